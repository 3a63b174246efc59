//! MIG: the instances of a GPU, each with a handle of its own.

#![expect(unsafe_code, reason = "the names must stand unmangled")]

use std::ffi::c_uint;

use super::{Device, PARENT, code, device, put};
use crate::{
    driver::{NOT_FOUND, NOT_SUPPORTED},
    scenario::{Gpu, Mig},
};

/// The most instances of a GPU.
const MAX_INSTANCES: c_uint = 7;

/// The instance that a handle means, if it means one.
pub(super) fn instance(gpu: &Gpu, handle: Device) -> Option<&Mig> {
    let number = (handle as usize / (PARENT + 1)).checked_sub(1)?;
    gpu.instances.get(number)
}

// SAFETY of all names below: they are those of NVML's header, which no other library of this process defines.

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigMode(
    handle: Device,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> c_uint {
    code(device("nvmlDeviceGetMigMode", handle).and_then(|(driver, gpu)| {
        let mode = driver.now(gpu.value("mig_mode"))? as c_uint;
        put(current, mode)?;
        put(pending, mode)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxMigDeviceCount(handle: Device, to: *mut c_uint) -> c_uint {
    code(device("nvmlDeviceGetMaxMigDeviceCount", handle).and_then(|_| put(to, MAX_INSTANCES)))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    handle: Device,
    index: c_uint,
    to: *mut Device,
) -> c_uint {
    code(device("nvmlDeviceGetMigDeviceHandleByIndex", handle).and_then(|(_, gpu)| {
        gpu.instances.get(index as usize).ok_or(NOT_FOUND)?;
        put(to, (handle as usize + (index as usize + 1) * (PARENT + 1)) as Device)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceId(handle: Device, to: *mut c_uint) -> c_uint {
    code(
        device("nvmlDeviceGetGpuInstanceId", handle)
            .and_then(|(_, gpu)| put(to, instance(gpu, handle).ok_or(NOT_SUPPORTED)?.gpu_instance)),
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeInstanceId(handle: Device, to: *mut c_uint) -> c_uint {
    code(
        device("nvmlDeviceGetComputeInstanceId", handle).and_then(|(_, gpu)| {
            put(to, instance(gpu, handle).ok_or(NOT_SUPPORTED)?.compute_instance)
        }),
    )
}
