//! The exported NVML symbols: functions with their C names and layouts. All `unsafe` code is here.

#![expect(unsafe_code, reason = "C functions take pointers, and their names must not be mangled")]

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::{
    driver_scenario::{GpuScenario, ScenarioValue},
    driver_state::{
        FakeDriver, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, shared_driver,
    },
};

mod event_symbols;
mod gpm_symbols;
mod gpu_symbols;
mod mig_symbols;
mod nvlink_symbols;
mod process_symbols;

/// A handle: the GPU's index plus one, and for a MIG instance its number plus one above it; never dereferenced.
type RawNvmlDevice = *mut c_void;

/// The bits of a handle that identify the GPU.
const PARENT: usize = 0xffff;

/// `nvmlClockType_t`: the clock of the memory.
const CLOCK_MEMORY: c_uint = 2;

/// `nvmlClockType_t`: the clock of the streaming multiprocessors.
const CLOCK_SM: c_uint = 1;

#[repr(C)]
struct NvmlUtilization {
    gpu: c_uint,
    memory: c_uint,
}

#[repr(C)]
struct NvmlMemoryInfo {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[repr(C)]
struct NvmlPciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

/// The code that a C function returns.
fn error_code(result: Result<(), u32>) -> c_uint {
    result.err().unwrap_or(SUCCESS)
}

/// Applies the call's faults and returns the driver.
fn begin_call(call: &str) -> Result<&'static FakeDriver, u32> {
    let driver = shared_driver()?;
    driver.begin_call(call, None)?;
    Ok(driver)
}

/// Applies the call's faults and returns the GPU of a handle.
fn begin_device_call(
    call: &str,
    handle: RawNvmlDevice,
) -> Result<(&'static FakeDriver, &'static GpuScenario), u32> {
    let driver = shared_driver()?;
    let index = (handle as usize & PARENT).checked_sub(1).ok_or(INVALID_ARGUMENT)? as u32;
    let gpu = driver.gpu_at(index)?;
    driver.begin_call(call, Some(index))?;
    Ok((driver, gpu))
}

/// Writes a value to the caller's pointer.
fn write_value<T>(to: *mut T, value: T) -> Result<(), u32> {
    if to.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: by NVML's contract a pointer that is not null points to memory for one value of its type.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes NUL-terminated text to the caller's buffer of `length` bytes.
fn write_text(to: *mut c_char, length: c_uint, text: &str) -> Result<(), u32> {
    if to.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(INSUFFICIENT_SIZE);
    }
    // SAFETY: by NVML's contract the buffer has `length` bytes, and the text with its NUL is no longer.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

/// Implements a call that returns one number.
fn answer_number<T: TryFrom<u64>>(
    call: &str,
    handle: RawNvmlDevice,
    to: *mut T,
    pick: impl Fn(&'static GpuScenario) -> Option<&'static ScenarioValue>,
) -> c_uint {
    error_code(begin_device_call(call, handle).and_then(|(driver, gpu)| {
        let value = driver.value_now(pick(gpu))?;
        write_value(to, T::try_from(value).map_err(|_| INVALID_ARGUMENT)?)
    }))
}

/// Implements a call that returns one text.
fn answer_text(
    call: &str,
    handle: RawNvmlDevice,
    to: *mut c_char,
    length: c_uint,
    pick: impl Fn(&'static GpuScenario) -> Option<&'static str>,
) -> c_uint {
    error_code(
        begin_device_call(call, handle)
            .and_then(|(_, gpu)| write_text(to, length, pick(gpu).ok_or(NOT_SUPPORTED)?)),
    )
}

/// The structure of a PCI address, of which only the text is set.
fn pci_info(bus_id: &str) -> Result<NvmlPciInfo, u32> {
    let mut info = NvmlPciInfo {
        bus_id_legacy: [0; 16],
        domain: 0,
        bus: 0,
        device: 0,
        pci_device_id: 0,
        pci_subsystem_id: 0,
        bus_id: [0; 32],
    };
    let length = info.bus_id.len() as c_uint;
    write_text(info.bus_id.as_mut_ptr(), length, bus_id)?;
    Ok(info)
}

/// The key of a clock's value: the SM clock's or the memory clock's.
fn clock_key(clock: c_uint, [sm, memory]: [&'static str; 2]) -> Option<&'static str> {
    match clock {
        CLOCK_SM => Some(sm),
        CLOCK_MEMORY => Some(memory),
        _ => None,
    }
}

// SAFETY of all names below: they are those of NVML's header, which no other library of this process defines.

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> c_uint {
    error_code(begin_call("nvmlInit_v2").map(|_| ()))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_uint {
    nvmlInit_v2()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> c_uint {
    error_code(begin_call("nvmlShutdown").map(|_| ()))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(_code: c_uint) -> *const c_char {
    c"an error of the fake driver".as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetDriverVersion(to: *mut c_char, length: c_uint) -> c_uint {
    let call = begin_call("nvmlSystemGetDriverVersion");
    error_code(call.and_then(|driver| write_text(to, length, driver.driver_version())))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(to: *mut c_uint) -> c_uint {
    error_code(
        begin_call("nvmlDeviceGetCount_v2").and_then(|driver| write_value(to, driver.gpu_count())),
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: *mut RawNvmlDevice) -> c_uint {
    error_code(shared_driver().and_then(|driver| {
        driver.gpu_at(index)?;
        driver.begin_call("nvmlDeviceGetHandleByIndex_v2", Some(index))?;
        write_value(to, (index as usize + 1) as RawNvmlDevice)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(handle: RawNvmlDevice, to: *mut c_char, length: c_uint) -> c_uint {
    answer_text("nvmlDeviceGetUUID", handle, to, length, |gpu| {
        Some(mig_symbols::find_instance(gpu, handle).map_or(&gpu.uuid, |instance| &instance.uuid))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(handle: RawNvmlDevice, to: *mut c_char, length: c_uint) -> c_uint {
    answer_text("nvmlDeviceGetName", handle, to, length, |gpu| {
        Some(mig_symbols::find_instance(gpu, handle).map_or(&gpu.model, |instance| &instance.model))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetSerial(
    handle: RawNvmlDevice,
    to: *mut c_char,
    length: c_uint,
) -> c_uint {
    answer_text("nvmlDeviceGetSerial", handle, to, length, |gpu| gpu.serial.as_deref())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfo_v3(handle: RawNvmlDevice, to: *mut NvmlPciInfo) -> c_uint {
    let call = begin_device_call("nvmlDeviceGetPciInfo_v3", handle);
    error_code(call.and_then(|(_, gpu)| write_value(to, pci_info(&gpu.pci_bus_id)?)))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUtilizationRates(
    handle: RawNvmlDevice,
    to: *mut NvmlUtilization,
) -> c_uint {
    error_code(begin_device_call("nvmlDeviceGetUtilizationRates", handle).and_then(
        |(driver, gpu)| {
            let busy = driver.value_now(gpu.value_of_key("utilization_percent"))? as c_uint;
            let memory = driver.value_now(gpu.value_of_key("memory_activity_percent"))? as c_uint;
            write_value(to, NvmlUtilization { gpu: busy, memory })
        },
    ))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo_v2(handle: RawNvmlDevice, to: *mut NvmlMemoryInfo) -> c_uint {
    error_code(begin_device_call("nvmlDeviceGetMemoryInfo_v2", handle).and_then(|(driver, gpu)| {
        if let Some(instance) = mig_symbols::find_instance(gpu, handle) {
            let (total, used) = (instance.memory_total_bytes, instance.memory_used_bytes);
            return write_value(
                to,
                NvmlMemoryInfo { version: 0, total, reserved: 0, free: total - used, used },
            );
        }
        let total = driver.value_now(gpu.value_of_key("memory_total_bytes"))?;
        let used = driver.value_now(gpu.value_of_key("memory_used_bytes"))?;
        let reserved = driver.value_now(gpu.value_of_key("memory_reserved_bytes")).unwrap_or(0);
        let free = total.saturating_sub(used + reserved);
        write_value(to, NvmlMemoryInfo { version: 0, total, reserved, free, used })
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPowerUsage(handle: RawNvmlDevice, to: *mut c_uint) -> c_uint {
    answer_number("nvmlDeviceGetPowerUsage", handle, to, |gpu| gpu.value_of_key("power_milliwatts"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetEnforcedPowerLimit(handle: RawNvmlDevice, to: *mut c_uint) -> c_uint {
    answer_number("nvmlDeviceGetEnforcedPowerLimit", handle, to, |gpu| {
        gpu.value_of_key("power_limit_milliwatts")
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTotalEnergyConsumption(
    handle: RawNvmlDevice,
    to: *mut c_ulonglong,
) -> c_uint {
    answer_number("nvmlDeviceGetTotalEnergyConsumption", handle, to, |gpu| {
        gpu.value_of_key("energy_millijoules")
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperature(
    handle: RawNvmlDevice,
    _sensor: c_uint,
    to: *mut c_uint,
) -> c_uint {
    answer_number("nvmlDeviceGetTemperature", handle, to, |gpu| {
        gpu.value_of_key("temperature_celsius")
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetClockInfo(
    handle: RawNvmlDevice,
    clock: c_uint,
    to: *mut c_uint,
) -> c_uint {
    answer_number("nvmlDeviceGetClockInfo", handle, to, |gpu| {
        gpu.value_of_key(clock_key(clock, ["sm_clock_megahertz", "memory_clock_megahertz"])?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxClockInfo(
    handle: RawNvmlDevice,
    clock: c_uint,
    to: *mut c_uint,
) -> c_uint {
    answer_number("nvmlDeviceGetMaxClockInfo", handle, to, |gpu| {
        gpu.value_of_key(clock_key(
            clock,
            ["sm_clock_max_megahertz", "memory_clock_max_megahertz"],
        )?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    handle: RawNvmlDevice,
    to: *mut c_ulonglong,
) -> c_uint {
    let call = "nvmlDeviceGetCurrentClocksThrottleReasons";
    answer_number(call, handle, to, |gpu| gpu.value_of_key("clock_events"))
}

/// C's `int` and `unsigned` are the same size on every platform of NVML; the codes fit both.
const _: () = assert!(size_of::<c_int>() == size_of::<c_uint>());
