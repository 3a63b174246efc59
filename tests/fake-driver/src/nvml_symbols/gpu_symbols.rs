//! Queries about a GPU: limits, engines, PCI location, and fields.

#![expect(unsafe_code, reason = "C functions take pointers, and their names must not be mangled")]

use std::ffi::{c_char, c_int, c_longlong, c_uint, c_ulonglong};

use super::{
    RawNvmlDevice, answer_number, answer_text, begin_device_call, error_code, write_value,
};
use crate::{
    driver_scenario::{FIELDS, GpuScenario, LINK_COUNT, LINK_FIELDS},
    driver_state::{FakeDriver, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, VERSION_MISMATCH},
};

#[repr(C)]
struct NvmlBar1Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlFieldValue_t`; the value is a union of numbers, declared here as the longest.
#[repr(C)]
struct NvmlFieldValue {
    id: c_uint,
    scope: c_uint,
    timestamp: c_longlong,
    latency: c_longlong,
    kind: c_uint,
    answer: c_uint,
    value: c_ulonglong,
}

/// `NVML_VALUE_TYPE_UNSIGNED_LONG_LONG`.
const LONG_LONG: c_uint = 3;

/// `nvmlGpuFabricInfo_v3_t`; the version before it lacks the last member.
#[repr(C)]
struct NvmlFabricInfo {
    version: c_uint,
    cluster: [u8; 16],
    status: c_uint,
    clique: c_uint,
    state: u8,
    health: c_uint,
    summary: u8,
}

/// `nvmlGpuFabricInfo_v2_t`.
#[repr(C)]
struct NvmlFabricInfoV2 {
    version: c_uint,
    cluster: [u8; 16],
    status: c_uint,
    clique: c_uint,
    state: u8,
    health: c_uint,
}

impl From<NvmlFabricInfo> for NvmlFabricInfoV2 {
    fn from(info: NvmlFabricInfo) -> Self {
        let NvmlFabricInfo { version, cluster, status, clique, state, health, summary: _ } = info;
        Self { version, cluster, status, clique, state, health }
    }
}

#[repr(C)]
struct NvmlMarginTemperature {
    version: c_uint,
    celsius: c_int,
}

// SAFETY of all names below: they are those of NVML's header, which no other library of this process defines.

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetVbiosVersion(
    handle: RawNvmlDevice,
    to: *mut c_char,
    length: c_uint,
) -> c_uint {
    answer_text("nvmlDeviceGetVbiosVersion", handle, to, length, |gpu| gpu.vbios.as_deref())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetEncoderUtilization(
    handle: RawNvmlDevice,
    to: *mut c_uint,
    window: *mut c_uint,
) -> c_uint {
    let answer = answer_number("nvmlDeviceGetEncoderUtilization", handle, to, |gpu| {
        gpu.value_of_key("encoder_percent")
    });
    error_code(write_value(window, 1_000_000)).max(answer)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetDecoderUtilization(
    handle: RawNvmlDevice,
    to: *mut c_uint,
    window: *mut c_uint,
) -> c_uint {
    let answer = answer_number("nvmlDeviceGetDecoderUtilization", handle, to, |gpu| {
        gpu.value_of_key("decoder_percent")
    });
    error_code(write_value(window, 1_000_000)).max(answer)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetJpgUtilization(
    handle: RawNvmlDevice,
    to: *mut c_uint,
    window: *mut c_uint,
) -> c_uint {
    let answer = answer_number("nvmlDeviceGetJpgUtilization", handle, to, |gpu| {
        gpu.value_of_key("jpeg_percent")
    });
    error_code(write_value(window, 1_000_000)).max(answer)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetOfaUtilization(
    handle: RawNvmlDevice,
    to: *mut c_uint,
    window: *mut c_uint,
) -> c_uint {
    let answer = answer_number("nvmlDeviceGetOfaUtilization", handle, to, |gpu| {
        gpu.value_of_key("ofa_percent")
    });
    error_code(write_value(window, 1_000_000)).max(answer)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPerformanceState(handle: RawNvmlDevice, to: *mut c_uint) -> c_uint {
    answer_number("nvmlDeviceGetPerformanceState", handle, to, |gpu| {
        gpu.value_of_key("performance_state")
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrPcieLinkGeneration(
    handle: RawNvmlDevice,
    to: *mut c_uint,
) -> c_uint {
    answer_number("nvmlDeviceGetCurrPcieLinkGeneration", handle, to, |gpu| {
        gpu.value_of_key("pcie_generation")
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxPcieLinkGeneration(handle: RawNvmlDevice, to: *mut c_uint) -> c_uint {
    answer_number("nvmlDeviceGetMaxPcieLinkGeneration", handle, to, |gpu| {
        gpu.value_of_key("pcie_generation_max")
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrPcieLinkWidth(handle: RawNvmlDevice, to: *mut c_uint) -> c_uint {
    answer_number("nvmlDeviceGetCurrPcieLinkWidth", handle, to, |gpu| {
        gpu.value_of_key("pcie_width")
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxPcieLinkWidth(handle: RawNvmlDevice, to: *mut c_uint) -> c_uint {
    answer_number("nvmlDeviceGetMaxPcieLinkWidth", handle, to, |gpu| {
        gpu.value_of_key("pcie_width_max")
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeMode(handle: RawNvmlDevice, to: *mut c_uint) -> c_uint {
    answer_number("nvmlDeviceGetComputeMode", handle, to, |gpu| gpu.value_of_key("compute_mode"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPersistenceMode(handle: RawNvmlDevice, to: *mut c_uint) -> c_uint {
    answer_number("nvmlDeviceGetPersistenceMode", handle, to, |gpu| gpu.value_of_key("persistence"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperatureThreshold(
    handle: RawNvmlDevice,
    threshold: c_uint,
    to: *mut c_uint,
) -> c_uint {
    let key = if threshold == 0 { "shutdown_celsius" } else { "slowdown_celsius" };
    answer_number("nvmlDeviceGetTemperatureThreshold", handle, to, |gpu| gpu.value_of_key(key))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMarginTemperature(
    handle: RawNvmlDevice,
    to: *mut NvmlMarginTemperature,
) -> c_uint {
    error_code(begin_device_call("nvmlDeviceGetMarginTemperature", handle).and_then(
        |(driver, gpu)| {
            // SAFETY: by NVML's contract a pointer that is not null points to a structure with its version set.
            let version = unsafe { to.as_ref() }.ok_or(INVALID_ARGUMENT)?.version;
            if version != (size_of::<NvmlMarginTemperature>() as c_uint | 1 << 24) {
                return Err(VERSION_MISMATCH);
            }
            let celsius = driver.value_now(gpu.value_of_key("margin_celsius"))? as c_int;
            write_value(to, NvmlMarginTemperature { version, celsius })
        },
    ))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetBAR1MemoryInfo(
    handle: RawNvmlDevice,
    to: *mut NvmlBar1Memory,
) -> c_uint {
    error_code(begin_device_call("nvmlDeviceGetBAR1MemoryInfo", handle).and_then(
        |(driver, gpu)| {
            let total = driver.value_now(gpu.value_of_key("bar1_total_bytes"))?;
            let used = driver.value_now(gpu.value_of_key("bar1_used_bytes"))?;
            write_value(to, NvmlBar1Memory { total, free: total.saturating_sub(used), used })
        },
    ))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuFabricInfoV(
    handle: RawNvmlDevice,
    to: *mut NvmlFabricInfo,
) -> c_uint {
    error_code(begin_device_call("nvmlDeviceGetGpuFabricInfoV", handle).and_then(
        |(driver, gpu)| {
            let state = driver.value_now(gpu.value_of_key("fabric_state"))? as u8;
            if to.is_null() {
                return Err(INVALID_ARGUMENT);
            }
            // SAFETY: by NVML's contract the pointer points to a structure with its version set. An older one is shorter,
            // so that a reference to the whole newest one would reach beyond it.
            let version = unsafe { (&raw const (*to).version).read() };
            let newest_version = driver.value_now(gpu.value_of_key("fabric_version")).unwrap_or(3);
            if u64::from(version >> 24) > newest_version {
                return Err(VERSION_MISMATCH);
            }
            let digits = gpu.cluster.as_deref().unwrap_or_default();
            let mut cluster = [0; 16];
            for (index, byte) in cluster.iter_mut().enumerate() {
                let digits = digits.get(2 * index..2 * index + 2);
                *byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).unwrap_or(0);
            }
            let number = |key| driver.value_now(gpu.value_of_key(key));
            let info = NvmlFabricInfo {
                version,
                cluster,
                status: number("fabric_status").map_or(SUCCESS, |status| status as c_uint),
                clique: number("fabric_clique").unwrap_or(0) as c_uint,
                state,
                health: number("fabric_health_mask").unwrap_or(0) as c_uint,
                summary: number("fabric_health_summary").unwrap_or(0) as u8,
            };
            if version >> 24 < 3 {
                // The older structure ends before the summary.
                return write_value(to.cast(), NvmlFabricInfoV2::from(info));
            }
            write_value(to, info)
        },
    ))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetFieldValues(
    handle: RawNvmlDevice,
    count: c_int,
    fields: *mut NvmlFieldValue,
) -> c_uint {
    error_code(begin_device_call("nvmlDeviceGetFieldValues", handle).and_then(|(driver, gpu)| {
        if fields.is_null() || count < 0 {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: by NVML's contract the pointer points to `count` fields.
        let fields = unsafe { std::slice::from_raw_parts_mut(fields, count as usize) };
        for field in fields {
            let answer = field_value(driver, gpu, field.id, field.scope);
            field.answer =
                error_code(answer.map(|value| (field.kind, field.value) = (LONG_LONG, value)));
            // As newer drivers do: the returned number is not always the requested one.
            field.id = field.id.wrapping_add(1_000);
        }
        Ok(())
    }))
}

fn field_value(driver: &FakeDriver, gpu: &GpuScenario, id: u32, scope: u32) -> Result<u64, u32> {
    if id == LINK_COUNT {
        return if gpu.links.is_empty() { Err(NOT_SUPPORTED) } else { Ok(gpu.links.len() as u64) };
    }
    if let Some((_, key)) = LINK_FIELDS.iter().find(|(known, _)| *known == id) {
        let link = gpu.links.get(scope as usize).ok_or(INVALID_ARGUMENT)?;
        return driver.value_now(link.values.get(*key));
    }
    let (_, key) = FIELDS.iter().find(|(known, _)| *known == id).ok_or(INVALID_ARGUMENT)?;
    driver.value_now(gpu.value_of_key(key))
}
