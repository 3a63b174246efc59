//! The exported CUDA symbols: the driver's functions with their C names and layouts.

#![expect(unsafe_code, reason = "C functions take pointers, and their names must not be mangled")]

use std::{
    cell::Cell,
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    ptr,
    sync::MutexGuard,
    thread,
};

use super::{
    cuda_codes::{
        INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NO_DEVICE, NOT_READY, OUT_OF_MEMORY,
    },
    cuda_machine::{FakeCudaMachine, StreamWork},
    fake_memory::MemoryLocation,
};
use crate::driver_state::shared_driver;

thread_local! {
    /// The GPU of this thread's current context.
    static CURRENT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// A handle: for a context its GPU's index plus one, otherwise a number of the machine. Never dereferenced.
type RawCudaHandle = *mut c_void;

/// The supported attributes, by CUDA's numbers.
const MULTIPROCESSORS: c_int = 16;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;

/// The multiprocessors of an H100.
const H100_MULTIPROCESSORS: c_int = 132;

fn error_code(result: Result<(), u32>) -> u32 {
    result.err().unwrap_or(0)
}

/// Applies the call's faults and returns the machine.
fn begin_call(call: &str, gpu: Option<u32>) -> Result<MutexGuard<'static, FakeCudaMachine>, u32> {
    let mut machine = super::lock_machine()?;
    let fault = machine.match_fault(|fault| {
        fault.call.as_deref() == Some(call) && fault.gpu.is_none_or(|wanted| gpu == Some(wanted))
    });
    if fault.is_some_and(|fault| fault.hang) {
        drop(machine);
        hang_forever();
    }
    match fault.and_then(|fault| fault.error) {
        Some(code) => Err(code),
        None => Ok(machine),
    }
}

/// The same for a call about the GPU of this thread's context, which must not have failed.
fn begin_context_call(call: &str) -> Result<(MutexGuard<'static, FakeCudaMachine>, u32), u32> {
    let gpu = CURRENT.get().ok_or(INVALID_CONTEXT)?;
    let machine = begin_call(call, Some(gpu))?;
    machine.check_context(gpu)?;
    Ok((machine, gpu))
}

fn hang_forever() -> ! {
    loop {
        thread::park();
    }
}

fn gpu_of_device(device: c_int) -> Result<u32, u32> {
    let driver = shared_driver().map_err(|_| NO_DEVICE)?;
    let index = u32::try_from(device).map_err(|_| INVALID_VALUE)?;
    if index < driver.gpu_count() { Ok(index) } else { Err(INVALID_VALUE) }
}

fn context_handle(gpu: u32) -> RawCudaHandle {
    ptr::without_provenance_mut(gpu as usize + 1)
}

fn gpu_of_context(context: RawCudaHandle) -> Result<u32, u32> {
    context.addr().checked_sub(1).map(|gpu| gpu as u32).ok_or(INVALID_CONTEXT)
}

fn write_value<T>(to: *mut T, value: T) -> Result<(), u32> {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: by CUDA's contract a pointer that is not null points to memory for one value of its type.
    unsafe { to.write(value) };
    Ok(())
}

fn write_handle(to: *mut RawCudaHandle, number: u64) -> Result<(), u32> {
    write_value(to, ptr::without_provenance_mut(number as usize))
}

fn write_text(to: *mut c_char, length: c_int, text: &str) -> Result<(), u32> {
    if to.is_null() || text.len() >= length as usize {
        return Err(INVALID_VALUE);
    }
    // SAFETY: by CUDA's contract the buffer has `length` bytes, and the text with its NUL is no longer.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

fn read_c_text<'a>(from: *const c_char) -> Result<&'a CStr, u32> {
    if from.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: by CUDA's contract names and PTX are NUL-terminated and live during the call.
    Ok(unsafe { CStr::from_ptr(from) })
}

fn handle_number(handle: RawCudaHandle) -> u64 {
    handle.addr() as u64
}

// SAFETY of all names below: they are those of CUDA's header, which no other library of this process defines.

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> u32 {
    error_code(begin_call("cuInit", None).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(to: *mut c_int) -> u32 {
    error_code(
        begin_call("cuDriverGetVersion", None)
            .and_then(|machine| write_value(to, machine.settings.version)),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(error: u32, to: *mut *const c_char) -> u32 {
    let name = match error {
        1 => c"CUDA_ERROR_INVALID_VALUE",
        2 => c"CUDA_ERROR_OUT_OF_MEMORY",
        3 => c"CUDA_ERROR_NOT_INITIALIZED",
        46 => c"CUDA_ERROR_DEVICE_UNAVAILABLE",
        100 => c"CUDA_ERROR_NO_DEVICE",
        201 => c"CUDA_ERROR_INVALID_CONTEXT",
        214 => c"CUDA_ERROR_ECC_UNCORRECTABLE",
        217 => c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
        220 => c"CUDA_ERROR_NVLINK_UNCORRECTABLE",
        400 => c"CUDA_ERROR_INVALID_HANDLE",
        600 => c"CUDA_ERROR_NOT_READY",
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        704 => c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
        719 => c"CUDA_ERROR_LAUNCH_FAILED",
        802 => c"CUDA_ERROR_SYSTEM_NOT_READY",
        999 => c"CUDA_ERROR_UNKNOWN",
        _ => return INVALID_VALUE,
    };
    error_code(write_value(to, name.as_ptr()))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(to: *mut c_int) -> u32 {
    error_code(begin_call("cuDeviceGetCount", None).and_then(|_machine| {
        let driver = shared_driver().map_err(|_| NO_DEVICE)?;
        write_value(to, driver.gpu_count() as c_int)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(to: *mut c_int, ordinal: c_int) -> u32 {
    error_code(gpu_of_device(ordinal).and_then(|gpu| write_value(to, gpu as c_int)))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(to: *mut c_char, length: c_int, device: c_int) -> u32 {
    error_code(gpu_of_device(device).and_then(|gpu| {
        let driver = shared_driver().map_err(|_| NO_DEVICE)?;
        write_text(to, length, &driver.gpu_at(gpu).map_err(|_| INVALID_VALUE)?.model)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetPCIBusId(to: *mut c_char, length: c_int, device: c_int) -> u32 {
    error_code(gpu_of_device(device).and_then(|gpu| {
        let driver = shared_driver().map_err(|_| NO_DEVICE)?;
        // NVML's domain has eight digits, CUDA's has four.
        let bus_id = &driver.gpu_at(gpu).map_err(|_| INVALID_VALUE)?.pci_bus_id;
        write_text(to, length, bus_id.strip_prefix("0000").unwrap_or(bus_id))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(to: *mut c_int, attribute: c_int, device: c_int) -> u32 {
    error_code(gpu_of_device(device).and_then(|gpu| {
        let machine = begin_call("cuDeviceGetAttribute", Some(gpu))?;
        let capability = machine.settings.capability;
        match attribute {
            MULTIPROCESSORS => write_value(to, H100_MULTIPROCESSORS),
            MAJOR => write_value(to, capability / 10),
            MINOR => write_value(to, capability % 10),
            _ => Err(INVALID_VALUE),
        }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceCanAccessPeer(to: *mut c_int, device: c_int, peer: c_int) -> u32 {
    error_code(gpu_of_device(device).and_then(|gpu| {
        let machine = begin_call("cuDeviceCanAccessPeer", Some(gpu))?;
        write_value(to, machine.can_reach(gpu, gpu_of_device(peer)?).into())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(to: *mut RawCudaHandle, device: c_int) -> u32 {
    error_code(gpu_of_device(device).and_then(|gpu| {
        let mut machine = begin_call("cuDevicePrimaryCtxRetain", Some(gpu))?;
        write_value(to, context_handle(gpu))?;
        machine.retain_context(gpu);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> u32 {
    error_code(
        gpu_of_device(device).and_then(|gpu| {
            begin_call("cuDevicePrimaryCtxRelease", Some(gpu))?.release_context(gpu)
        }),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: RawCudaHandle) -> u32 {
    error_code(gpu_of_context(context).map(|gpu| CURRENT.set(Some(gpu))))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxEnablePeerAccess(peer: RawCudaHandle, _flags: c_uint) -> u32 {
    error_code(begin_context_call("cuCtxEnablePeerAccess").and_then(|(mut machine, gpu)| {
        let peer = gpu_of_context(peer)?;
        machine.enable_peer(gpu, peer)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> u32 {
    error_code(begin_context_call("cuMemGetInfo").and_then(|(machine, gpu)| {
        let capacity = machine.settings.memory_bytes;
        write_value(
            free,
            capacity.saturating_sub(machine.memory.used_bytes(MemoryLocation::Gpu(gpu))),
        )?;
        write_value(total, capacity)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(to: *mut u64, bytes: usize) -> u32 {
    error_code(begin_context_call("cuMemAlloc").and_then(|(mut machine, gpu)| {
        let location = MemoryLocation::Gpu(gpu);
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        if machine.memory.used_bytes(location) + bytes > machine.settings.memory_bytes {
            return Err(OUT_OF_MEMORY);
        }
        write_value(to, machine.memory.allocate_block(location, bytes))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> u32 {
    error_code(begin_context_call("cuMemFree").and_then(|(mut machine, gpu)| {
        // Memory is freed after the work that uses it, which may never end.
        if !machine.drain_gpu(gpu) {
            drop(machine);
            hang_forever();
        }
        if machine.memory.free_block(address) { Ok(()) } else { Err(INVALID_VALUE) }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(to: *mut RawCudaHandle, bytes: usize, _flags: c_uint) -> u32 {
    error_code(begin_context_call("cuMemHostAlloc").and_then(|(mut machine, _)| {
        let address = machine.memory.allocate_block(MemoryLocation::Host, bytes);
        write_value(to, ptr::with_exposed_provenance_mut(address as usize))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(address: RawCudaHandle) -> u32 {
    error_code(begin_context_call("cuMemFreeHost").and_then(|(mut machine, _)| {
        if machine.memory.free_block(handle_number(address)) { Ok(()) } else { Err(INVALID_VALUE) }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: RawCudaHandle) -> u32 {
    error_code(begin_context_call("cuMemcpyAsync").and_then(|(mut machine, _)| {
        machine.push(handle_number(stream), StreamWork::Copy { to, from, bytes })
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    to_context: RawCudaHandle,
    from: u64,
    from_context: RawCudaHandle,
    bytes: usize,
    stream: RawCudaHandle,
) -> u32 {
    error_code(begin_context_call("cuMemcpyPeerAsync").and_then(|(mut machine, _)| {
        for (address, context) in [(to, to_context), (from, from_context)] {
            let location = MemoryLocation::Gpu(gpu_of_context(context)?);
            let range = machine.memory.find_range(address, bytes).ok_or(INVALID_VALUE)?;
            if range.location != location {
                return Err(INVALID_VALUE);
            }
        }
        machine.push(handle_number(stream), StreamWork::Copy { to, from, bytes })
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32Async(to: u64, word: c_uint, words: usize, stream: RawCudaHandle) -> u32 {
    error_code(begin_context_call("cuMemsetD32Async").and_then(|(mut machine, _)| {
        machine.push(handle_number(stream), StreamWork::Fill { to, word, words })
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(to: *mut RawCudaHandle, image: *const c_void) -> u32 {
    error_code(begin_context_call("cuModuleLoadData").and_then(|(mut machine, gpu)| {
        let ptx = read_c_text(image.cast())?.to_string_lossy();
        if !ptx.contains(".visible .entry gaunt_") {
            return Err(INVALID_VALUE);
        }
        write_handle(to, machine.load_module(gpu))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: RawCudaHandle) -> u32 {
    error_code(
        begin_context_call("cuModuleUnload")
            .and_then(|(mut machine, _)| machine.unload_module(handle_number(module))),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(
    to: *mut RawCudaHandle,
    module: RawCudaHandle,
    name: *const c_char,
) -> u32 {
    error_code(begin_context_call("cuModuleGetFunction").and_then(|(mut machine, _)| {
        let name = read_c_text(name)?.to_string_lossy().into_owned();
        let function = machine.create_function(handle_number(module), name)?;
        write_handle(to, function)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(to: *mut RawCudaHandle, _flags: c_uint) -> u32 {
    error_code(
        begin_context_call("cuStreamCreate")
            .and_then(|(mut machine, gpu)| write_handle(to, machine.create_stream(gpu))),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: RawCudaHandle) -> u32 {
    error_code(begin_context_call("cuStreamDestroy").and_then(|(mut machine, gpu)| {
        // CUDA finishes queued work after the call; here it is finished first.
        machine.drain_gpu(gpu);
        machine.destroy_stream(handle_number(stream))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(
    stream: RawCudaHandle,
    event: RawCudaHandle,
    _flags: c_uint,
) -> u32 {
    error_code(begin_context_call("cuStreamWaitEvent").and_then(|(mut machine, _)| {
        machine.wait_event(handle_number(stream), handle_number(event))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(to: *mut RawCudaHandle, _flags: c_uint) -> u32 {
    error_code(
        begin_context_call("cuEventCreate")
            .and_then(|(mut machine, gpu)| write_handle(to, machine.create_event(gpu))),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: RawCudaHandle) -> u32 {
    error_code(
        begin_context_call("cuEventDestroy")
            .and_then(|(mut machine, _)| machine.destroy_event(handle_number(event))),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: RawCudaHandle, stream: RawCudaHandle) -> u32 {
    error_code(begin_context_call("cuEventRecord").and_then(|(mut machine, _)| {
        machine.record_event(handle_number(event), handle_number(stream))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: RawCudaHandle) -> u32 {
    error_code(begin_context_call("cuEventQuery").and_then(|(mut machine, _)| {
        if machine.is_event_done(handle_number(event))? { Ok(()) } else { Err(NOT_READY) }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime(to: *mut f32, from: RawCudaHandle, until: RawCudaHandle) -> u32 {
    error_code(begin_context_call("cuEventElapsedTime").and_then(|(machine, _)| {
        write_value(
            to,
            (machine.seconds_between(handle_number(from), handle_number(until))? * 1e3) as f32,
        )
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    function: RawCudaHandle,
    blocks: c_uint,
    _blocks_y: c_uint,
    _blocks_z: c_uint,
    _threads: c_uint,
    _threads_y: c_uint,
    _threads_z: c_uint,
    _shared: c_uint,
    stream: RawCudaHandle,
    arguments: *const *const c_void,
    _extra: *const *const c_void,
) -> u32 {
    error_code(begin_context_call("cuLaunchKernel").and_then(|(mut machine, gpu)| {
        let name = machine.kernel_name(handle_number(function), gpu)?;
        let widths = parameter_widths(&name).ok_or(INVALID_HANDLE)?;
        let read = |(index, is_wide): (usize, &bool)| {
            // SAFETY: the caller passes as many pointers as the kernel has parameters, each to a value of the width
            // that the kernel declares.
            unsafe {
                let value = *arguments.add(index);
                if *is_wide {
                    value.cast::<u64>().read()
                } else {
                    value.cast::<u32>().read().into()
                }
            }
        };
        let arguments = widths.iter().enumerate().map(read).collect();
        machine.record_launch(blocks);
        machine.push(handle_number(stream), StreamWork::Kernel { name, arguments })
    }))
}

/// For each parameter of a kernel, whether it has eight bytes.
fn parameter_widths(name: &str) -> Option<&'static [bool]> {
    Some(match name.trim_end_matches("_f32").trim_end_matches("_bf16") {
        "gaunt_copy" => &[true, true, true],
        "gaunt_gate" => &[true, true],
        "gaunt_add" => &[true, true, true, true],
        "gaunt_pattern" => &[true, true, true, false, false],
        "gaunt_check" => &[true, true, true, true, false, false, false, true],
        _ => return None,
    })
}
