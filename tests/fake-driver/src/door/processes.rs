//! Processes: those that a scenario names, or as many as it counts.

#![expect(unsafe_code, reason = "C functions take pointers, and their names must stand unmangled")]

use std::ffi::{c_uint, c_ulonglong};

use super::{Device, code, device, put};
use crate::{
    driver::{INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_FOUND},
    scenario::Gpu,
};

#[repr(C)]
struct Process {
    pid: c_uint,
    used_memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

#[repr(C)]
struct Sample {
    pid: c_uint,
    timestamp: c_ulonglong,
    sm: c_uint,
    memory: c_uint,
    encoder: c_uint,
    decoder: c_uint,
}

/// Writes a list where the caller has room, or says how much room it takes.
fn list<T>(all: Vec<T>, count: *mut c_uint, to: *mut T) -> Result<(), u32> {
    if count.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: by NVML's contract `count` points to the number of places behind `to`.
    let room = unsafe { count.read() } as usize;
    put(count, all.len() as c_uint)?;
    if room < all.len() {
        return Err(INSUFFICIENT_SIZE);
    }
    for (at, one) in all.into_iter().enumerate() {
        // SAFETY: `at` is below `room`, the number of places that the caller has.
        unsafe { to.add(at).write(one) };
    }
    Ok(())
}

/// The processes that a scenario only counts.
fn counted(gpu: &Gpu, count: u64) -> impl Iterator<Item = Process> + use<> {
    let from = 1_000 + gpu.processes.len() as c_uint;
    (from..from + count as c_uint).map(|pid| process(pid, 1 << 30))
}

fn process(pid: c_uint, used_memory: u64) -> Process {
    Process { pid, used_memory, gpu_instance: c_uint::MAX, compute_instance: c_uint::MAX }
}

// SAFETY of all names below: they are those of NVML's header, which no other library of this process defines.

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    handle: Device,
    count: *mut c_uint,
    to: *mut Process,
) -> c_uint {
    code(device("nvmlDeviceGetComputeRunningProcesses_v3", handle).and_then(|(driver, gpu)| {
        let named = gpu.processes.iter().map(|known| process(known.pid, known.memory_bytes));
        let mut all: Vec<_> = named.collect();
        let index = (handle as usize & super::PARENT) as u32 - 1;
        all.extend(crate::cuda::processes(index).into_iter().map(|pid| process(pid, 1 << 29)));
        match driver.now(gpu.value("processes")) {
            Ok(count) => all.extend(counted(gpu, count)),
            Err(why) if all.is_empty() => return Err(why),
            Err(_) => {}
        }
        list(all, count, to)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetProcessUtilization(
    handle: Device,
    to: *mut Sample,
    count: *mut c_uint,
    seen: c_ulonglong,
) -> c_uint {
    code(device("nvmlDeviceGetProcessUtilization", handle).and_then(|(driver, gpu)| {
        let timestamp = (driver.seconds() * 1e6) as c_ulonglong;
        // One sample since the last time, whenever that was.
        let sample = |pid, sm| Sample { pid, timestamp, sm, memory: 0, encoder: 0, decoder: 0 };
        let all: Vec<_> = gpu
            .processes
            .iter()
            .map(|known| sample(known.pid, known.sm_percent))
            .filter(|sample| sample.timestamp > seen)
            .collect();
        if all.is_empty() { Err(NOT_FOUND) } else { list(all, count, to) }
    }))
}
