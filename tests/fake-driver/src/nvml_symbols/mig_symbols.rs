//! MIG: the instances of a GPU, each with its own handle.

#![expect(unsafe_code, reason = "the names must not be mangled")]

use std::ffi::c_uint;

use super::{PARENT, RawNvmlDevice, begin_device_call, error_code, write_value};
use crate::{
    driver_scenario::{GpuScenario, MigScenario},
    driver_state::{NOT_FOUND, NOT_SUPPORTED},
};

/// The maximum instances of a GPU.
const MAX_INSTANCES: c_uint = 7;

/// The instance that a handle refers to, if any.
pub(super) fn find_instance(gpu: &GpuScenario, handle: RawNvmlDevice) -> Option<&MigScenario> {
    let number = (handle as usize / (PARENT + 1)).checked_sub(1)?;
    gpu.instances.get(number)
}

// SAFETY of all names below: they are those of NVML's header, which no other library of this process defines.

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigMode(
    handle: RawNvmlDevice,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> c_uint {
    error_code(begin_device_call("nvmlDeviceGetMigMode", handle).and_then(|(driver, gpu)| {
        let mode = driver.value_now(gpu.value_of_key("mig_mode"))? as c_uint;
        write_value(current, mode)?;
        write_value(pending, mode)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxMigDeviceCount(handle: RawNvmlDevice, to: *mut c_uint) -> c_uint {
    error_code(
        begin_device_call("nvmlDeviceGetMaxMigDeviceCount", handle)
            .and_then(|_| write_value(to, MAX_INSTANCES)),
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    handle: RawNvmlDevice,
    index: c_uint,
    to: *mut RawNvmlDevice,
) -> c_uint {
    error_code(begin_device_call("nvmlDeviceGetMigDeviceHandleByIndex", handle).and_then(
        |(_, gpu)| {
            gpu.instances.get(index as usize).ok_or(NOT_FOUND)?;
            write_value(
                to,
                (handle as usize + (index as usize + 1) * (PARENT + 1)) as RawNvmlDevice,
            )
        },
    ))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceId(handle: RawNvmlDevice, to: *mut c_uint) -> c_uint {
    error_code(begin_device_call("nvmlDeviceGetGpuInstanceId", handle).and_then(|(_, gpu)| {
        write_value(to, find_instance(gpu, handle).ok_or(NOT_SUPPORTED)?.gpu_instance)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeInstanceId(handle: RawNvmlDevice, to: *mut c_uint) -> c_uint {
    error_code(begin_device_call("nvmlDeviceGetComputeInstanceId", handle).and_then(|(_, gpu)| {
        write_value(to, find_instance(gpu, handle).ok_or(NOT_SUPPORTED)?.compute_instance)
    }))
}
