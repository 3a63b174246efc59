//! What the board says of itself: limits, engines, its place, and fields.

#![expect(unsafe_code, reason = "C functions take pointers, and their names must stand unmangled")]

use std::ffi::{c_char, c_int, c_longlong, c_uint, c_ulonglong};

use super::{Device, code, device, number, put, words};
use crate::{
    driver::{Driver, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, VERSION_MISMATCH},
    scenario::{FIELDS, Gpu, LINK_COUNT, LINK_FIELDS},
};

#[repr(C)]
struct Bar1 {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlFieldValue_t`; the value is a union of numbers of which the longest is kept.
#[repr(C)]
struct Field {
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
struct Fabric {
    version: c_uint,
    cluster: [u8; 16],
    status: c_uint,
    clique: c_uint,
    state: u8,
    health: c_uint,
    summary: u8,
}

#[repr(C)]
struct Margin {
    version: c_uint,
    celsius: c_int,
}

// SAFETY of all names below: they are those of NVML's header, which no other library of this process defines.

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetVbiosVersion(handle: Device, to: *mut c_char, length: c_uint) -> c_uint {
    words("nvmlDeviceGetVbiosVersion", handle, to, length, |gpu| gpu.vbios.as_deref())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetEncoderUtilization(
    handle: Device,
    to: *mut c_uint,
    window: *mut c_uint,
) -> c_uint {
    let answer =
        number("nvmlDeviceGetEncoderUtilization", handle, to, |gpu| gpu.value("encoder_percent"));
    code(put(window, 1_000_000)).max(answer)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetDecoderUtilization(
    handle: Device,
    to: *mut c_uint,
    window: *mut c_uint,
) -> c_uint {
    let answer =
        number("nvmlDeviceGetDecoderUtilization", handle, to, |gpu| gpu.value("decoder_percent"));
    code(put(window, 1_000_000)).max(answer)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetJpgUtilization(
    handle: Device,
    to: *mut c_uint,
    window: *mut c_uint,
) -> c_uint {
    let answer = number("nvmlDeviceGetJpgUtilization", handle, to, |gpu| gpu.value("jpeg_percent"));
    code(put(window, 1_000_000)).max(answer)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetOfaUtilization(
    handle: Device,
    to: *mut c_uint,
    window: *mut c_uint,
) -> c_uint {
    let answer = number("nvmlDeviceGetOfaUtilization", handle, to, |gpu| gpu.value("ofa_percent"));
    code(put(window, 1_000_000)).max(answer)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPerformanceState(handle: Device, to: *mut c_uint) -> c_uint {
    number("nvmlDeviceGetPerformanceState", handle, to, |gpu| gpu.value("performance_state"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrPcieLinkGeneration(handle: Device, to: *mut c_uint) -> c_uint {
    number("nvmlDeviceGetCurrPcieLinkGeneration", handle, to, |gpu| gpu.value("pcie_generation"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxPcieLinkGeneration(handle: Device, to: *mut c_uint) -> c_uint {
    number("nvmlDeviceGetMaxPcieLinkGeneration", handle, to, |gpu| gpu.value("pcie_generation_max"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrPcieLinkWidth(handle: Device, to: *mut c_uint) -> c_uint {
    number("nvmlDeviceGetCurrPcieLinkWidth", handle, to, |gpu| gpu.value("pcie_width"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxPcieLinkWidth(handle: Device, to: *mut c_uint) -> c_uint {
    number("nvmlDeviceGetMaxPcieLinkWidth", handle, to, |gpu| gpu.value("pcie_width_max"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeMode(handle: Device, to: *mut c_uint) -> c_uint {
    number("nvmlDeviceGetComputeMode", handle, to, |gpu| gpu.value("compute_mode"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPersistenceMode(handle: Device, to: *mut c_uint) -> c_uint {
    number("nvmlDeviceGetPersistenceMode", handle, to, |gpu| gpu.value("persistence"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperatureThreshold(
    handle: Device,
    threshold: c_uint,
    to: *mut c_uint,
) -> c_uint {
    let key = if threshold == 0 { "shutdown_celsius" } else { "slowdown_celsius" };
    number("nvmlDeviceGetTemperatureThreshold", handle, to, |gpu| gpu.value(key))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMarginTemperature(handle: Device, to: *mut Margin) -> c_uint {
    code(device("nvmlDeviceGetMarginTemperature", handle).and_then(|(driver, gpu)| {
        // SAFETY: by NVML's contract a pointer that is not null leads to a structure with its version in it.
        let version = unsafe { to.as_ref() }.ok_or(INVALID_ARGUMENT)?.version;
        if version != (size_of::<Margin>() as c_uint | 1 << 24) {
            return Err(VERSION_MISMATCH);
        }
        let celsius = driver.now(gpu.value("margin_celsius"))? as c_int;
        put(to, Margin { version, celsius })
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetBAR1MemoryInfo(handle: Device, to: *mut Bar1) -> c_uint {
    code(device("nvmlDeviceGetBAR1MemoryInfo", handle).and_then(|(driver, gpu)| {
        let total = driver.now(gpu.value("bar1_total_bytes"))?;
        let used = driver.now(gpu.value("bar1_used_bytes"))?;
        put(to, Bar1 { total, free: total.saturating_sub(used), used })
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuFabricInfoV(handle: Device, to: *mut Fabric) -> c_uint {
    code(device("nvmlDeviceGetGpuFabricInfoV", handle).and_then(|(driver, gpu)| {
        let state = driver.now(gpu.value("fabric_state"))? as u8;
        // SAFETY: by NVML's contract a pointer that is not null leads to a structure with its version in it.
        let version = unsafe { to.as_ref() }.ok_or(INVALID_ARGUMENT)?.version;
        let known = driver.now(gpu.value("fabric_version")).unwrap_or(3);
        if u64::from(version >> 24) > known {
            return Err(VERSION_MISMATCH);
        }
        let digits = gpu.cluster.as_deref().unwrap_or_default();
        let mut cluster = [0; 16];
        for (at, byte) in cluster.iter_mut().enumerate() {
            let digits = digits.get(2 * at..2 * at + 2);
            *byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).unwrap_or(0);
        }
        let clique = driver.now(gpu.value("fabric_clique")).unwrap_or(0) as c_uint;
        let info =
            Fabric { version, cluster, status: SUCCESS, clique, state, health: 0, summary: 0 };
        put(to, info)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetFieldValues(handle: Device, count: c_int, fields: *mut Field) -> c_uint {
    code(device("nvmlDeviceGetFieldValues", handle).and_then(|(driver, gpu)| {
        if fields.is_null() || count < 0 {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: by NVML's contract there are `count` fields behind the pointer.
        let fields = unsafe { std::slice::from_raw_parts_mut(fields, count as usize) };
        for field in fields {
            let answer = value(driver, gpu, field.id, field.scope);
            field.answer = code(answer.map(|value| (field.kind, field.value) = (LONG_LONG, value)));
            // As newer drivers do: the number that comes back is not always the one that was asked.
            field.id = field.id.wrapping_add(1_000);
        }
        Ok(())
    }))
}

fn value(driver: &Driver, gpu: &Gpu, id: u32, scope: u32) -> Result<u64, u32> {
    if id == LINK_COUNT {
        return if gpu.links.is_empty() { Err(NOT_SUPPORTED) } else { Ok(gpu.links.len() as u64) };
    }
    if let Some((_, key)) = LINK_FIELDS.iter().find(|(known, _)| *known == id) {
        let link = gpu.links.get(scope as usize).ok_or(INVALID_ARGUMENT)?;
        return driver.now(link.values.get(*key));
    }
    let (_, key) = FIELDS.iter().find(|(known, _)| *known == id).ok_or(INVALID_ARGUMENT)?;
    driver.now(gpu.value(key))
}
