//! Processes: those that a scenario lists, or the number that it sets.

#![expect(unsafe_code, reason = "C functions take pointers, and their names must not be mangled")]

use std::ffi::{c_uint, c_ulonglong};

use super::{RawNvmlDevice, begin_device_call, error_code, write_value};
use crate::{
    driver_scenario::GpuScenario,
    driver_state::{INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_FOUND},
};

#[repr(C)]
struct NvmlProcessInfo {
    pid: c_uint,
    used_memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

#[repr(C)]
struct NvmlProcessSample {
    pid: c_uint,
    timestamp: c_ulonglong,
    sm: c_uint,
    memory: c_uint,
    encoder: c_uint,
    decoder: c_uint,
}

/// Writes a list to the caller's buffer, or returns the size that it needs.
fn write_list<T>(items: Vec<T>, count: *mut c_uint, to: *mut T) -> Result<(), u32> {
    if count.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: by NVML's contract `count` points to the length of the list `to`.
    let capacity = unsafe { count.read() } as usize;
    write_value(count, items.len() as c_uint)?;
    if capacity < items.len() {
        return Err(INSUFFICIENT_SIZE);
    }
    for (index, item) in items.into_iter().enumerate() {
        // SAFETY: `index` is below `capacity`, the length of the caller's list.
        unsafe { to.add(index).write(item) };
    }
    Ok(())
}

/// The processes of which a scenario only sets the number.
fn counted_processes(
    gpu: &GpuScenario,
    count: u64,
) -> impl Iterator<Item = NvmlProcessInfo> + use<> {
    let from = 1_000 + gpu.processes.len() as c_uint;
    (from..from + count as c_uint).map(|pid| process_info(pid, 1 << 30))
}

fn process_info(pid: c_uint, used_memory: u64) -> NvmlProcessInfo {
    NvmlProcessInfo { pid, used_memory, gpu_instance: c_uint::MAX, compute_instance: c_uint::MAX }
}

// SAFETY of all names below: they are those of NVML's header, which no other library of this process defines.

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    handle: RawNvmlDevice,
    count: *mut c_uint,
    to: *mut NvmlProcessInfo,
) -> c_uint {
    error_code(begin_device_call("nvmlDeviceGetComputeRunningProcesses_v3", handle).and_then(
        |(driver, gpu)| {
            let named =
                gpu.processes.iter().map(|process| process_info(process.pid, process.memory_bytes));
            let mut processes: Vec<_> = named.collect();
            let index = (handle as usize & super::PARENT) as u32 - 1;
            processes.extend(
                crate::fake_cuda::list_processes(index)
                    .into_iter()
                    .map(|pid| process_info(pid, 1 << 29)),
            );
            match driver.value_now(gpu.value_of_key("processes")) {
                Ok(count) => processes.extend(counted_processes(gpu, count)),
                Err(code) if processes.is_empty() => return Err(code),
                Err(_) => {}
            }
            write_list(processes, count, to)
        },
    ))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetProcessUtilization(
    handle: RawNvmlDevice,
    to: *mut NvmlProcessSample,
    count: *mut c_uint,
    last_seen: c_ulonglong,
) -> c_uint {
    error_code(begin_device_call("nvmlDeviceGetProcessUtilization", handle).and_then(
        |(driver, gpu)| {
            let timestamp = (driver.elapsed_seconds() * 1e6) as c_ulonglong;
            // One sample since the last call, whenever that was.
            let sample = |pid, sm| NvmlProcessSample {
                pid,
                timestamp,
                sm,
                memory: 0,
                encoder: 0,
                decoder: 0,
            };
            let samples: Vec<_> = gpu
                .processes
                .iter()
                .map(|process| sample(process.pid, process.sm_percent))
                .filter(|sample| sample.timestamp > last_seen)
                .collect();
            if samples.is_empty() { Err(NOT_FOUND) } else { write_list(samples, count, to) }
        },
    ))
}
