//! The door to the caller: the CUDA driver's functions with their C names and layouts.

#![expect(unsafe_code, reason = "C functions take pointers, and their names must stand unmangled")]

use std::{
    cell::Cell,
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    ptr,
    sync::MutexGuard,
    thread,
};

use super::{
    machine,
    machine::{
        INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, Machine, NO_DEVICE, OUT_OF_MEMORY, Work,
    },
    memory::Home,
};
use crate::driver::driver;

thread_local! {
    /// The GPU whose context this thread is in.
    static CURRENT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// A handle: a context is its GPU's index plus one, everything else a number of the machine's. Never followed.
type Handle = *mut c_void;

/// The attributes that are answered, by CUDA's numbers.
const MULTIPROCESSORS: c_int = 16;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;

/// Every H100 has so many.
const H100_MULTIPROCESSORS: c_int = 132;

fn code(result: Result<(), u32>) -> u32 {
    result.err().unwrap_or(0)
}

/// Goes through the call's faults and finds the machine.
fn enter(call: &str, gpu: Option<u32>) -> Result<MutexGuard<'static, Machine>, u32> {
    let mut machine = super::machine()?;
    let fault = machine.fault(|fault| {
        fault.call.as_deref() == Some(call) && fault.gpu.is_none_or(|wanted| gpu == Some(wanted))
    });
    if fault.is_some_and(|fault| fault.hang) {
        drop(machine);
        forever();
    }
    match fault.and_then(|fault| fault.error) {
        Some(code) => Err(code),
        None => Ok(machine),
    }
}

/// The same for a call that is about the GPU of this thread's context, which must live.
fn within(call: &str) -> Result<(MutexGuard<'static, Machine>, u32), u32> {
    let gpu = CURRENT.get().ok_or(INVALID_CONTEXT)?;
    let machine = enter(call, Some(gpu))?;
    machine.health(gpu)?;
    Ok((machine, gpu))
}

fn forever() -> ! {
    loop {
        thread::park();
    }
}

fn gpu_of(device: c_int) -> Result<u32, u32> {
    let driver = driver().map_err(|_| NO_DEVICE)?;
    let index = u32::try_from(device).map_err(|_| INVALID_VALUE)?;
    if index < driver.count() { Ok(index) } else { Err(INVALID_VALUE) }
}

fn context(gpu: u32) -> Handle {
    ptr::without_provenance_mut(gpu as usize + 1)
}

fn gpu_in(context: Handle) -> Result<u32, u32> {
    context.addr().checked_sub(1).map(|gpu| gpu as u32).ok_or(INVALID_CONTEXT)
}

fn put<T>(to: *mut T, value: T) -> Result<(), u32> {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: by CUDA's contract a pointer that is not null points to room for one value of its type.
    unsafe { to.write(value) };
    Ok(())
}

fn put_handle(to: *mut Handle, number: u64) -> Result<(), u32> {
    put(to, ptr::without_provenance_mut(number as usize))
}

fn put_text(to: *mut c_char, length: c_int, text: &str) -> Result<(), u32> {
    if to.is_null() || text.len() >= length as usize {
        return Err(INVALID_VALUE);
    }
    // SAFETY: by CUDA's contract there is room for `length` bytes, and the text with its zero is no longer.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

fn text<'a>(from: *const c_char) -> Result<&'a CStr, u32> {
    if from.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: by CUDA's contract names and PTX are text that ends in a zero and lives during the call.
    Ok(unsafe { CStr::from_ptr(from) })
}

fn number(handle: Handle) -> u64 {
    handle.addr() as u64
}

// SAFETY of all names below: they are those of CUDA's header, which no other library of this process defines.

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> u32 {
    code(enter("cuInit", None).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(to: *mut c_int) -> u32 {
    code(enter("cuDriverGetVersion", None).and_then(|machine| put(to, machine.settings.version)))
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
    code(put(to, name.as_ptr()))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(to: *mut c_int) -> u32 {
    code(enter("cuDeviceGetCount", None).and_then(|_machine| {
        let driver = driver().map_err(|_| NO_DEVICE)?;
        put(to, driver.count() as c_int)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(to: *mut c_int, ordinal: c_int) -> u32 {
    code(gpu_of(ordinal).and_then(|gpu| put(to, gpu as c_int)))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(to: *mut c_char, length: c_int, device: c_int) -> u32 {
    code(gpu_of(device).and_then(|gpu| {
        let driver = driver().map_err(|_| NO_DEVICE)?;
        put_text(to, length, &driver.gpu(gpu).map_err(|_| INVALID_VALUE)?.model)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetPCIBusId(to: *mut c_char, length: c_int, device: c_int) -> u32 {
    code(gpu_of(device).and_then(|gpu| {
        let driver = driver().map_err(|_| NO_DEVICE)?;
        // NVML's domain has eight digits, CUDA's has four.
        let bus_id = &driver.gpu(gpu).map_err(|_| INVALID_VALUE)?.pci_bus_id;
        put_text(to, length, bus_id.strip_prefix("0000").unwrap_or(bus_id))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(to: *mut c_int, attribute: c_int, device: c_int) -> u32 {
    code(gpu_of(device).and_then(|gpu| {
        let machine = enter("cuDeviceGetAttribute", Some(gpu))?;
        let capability = machine.settings.capability;
        match attribute {
            MULTIPROCESSORS => put(to, H100_MULTIPROCESSORS),
            MAJOR => put(to, capability / 10),
            MINOR => put(to, capability % 10),
            _ => Err(INVALID_VALUE),
        }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceCanAccessPeer(to: *mut c_int, device: c_int, peer: c_int) -> u32 {
    code(gpu_of(device).and_then(|gpu| {
        let machine = enter("cuDeviceCanAccessPeer", Some(gpu))?;
        put(to, machine.reaches(gpu, gpu_of(peer)?).into())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(to: *mut Handle, device: c_int) -> u32 {
    code(gpu_of(device).and_then(|gpu| {
        let mut machine = enter("cuDevicePrimaryCtxRetain", Some(gpu))?;
        put(to, context(gpu))?;
        machine.retain(gpu);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> u32 {
    code(gpu_of(device).and_then(|gpu| enter("cuDevicePrimaryCtxRelease", Some(gpu))?.release(gpu)))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: Handle) -> u32 {
    code(gpu_in(context).map(|gpu| CURRENT.set(Some(gpu))))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxEnablePeerAccess(peer: Handle, _flags: c_uint) -> u32 {
    code(within("cuCtxEnablePeerAccess").and_then(|(mut machine, gpu)| {
        let peer = gpu_in(peer)?;
        machine.enable_peer(gpu, peer)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> u32 {
    code(within("cuMemGetInfo").and_then(|(machine, gpu)| {
        let all = machine.settings.memory_bytes;
        put(free, all.saturating_sub(machine.memory.used(Home::Gpu(gpu))))?;
        put(total, all)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(to: *mut u64, bytes: usize) -> u32 {
    code(within("cuMemAlloc").and_then(|(mut machine, gpu)| {
        let home = Home::Gpu(gpu);
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        if machine.memory.used(home) + bytes > machine.settings.memory_bytes {
            return Err(OUT_OF_MEMORY);
        }
        put(to, machine.memory.allocate(home, bytes))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(at: u64) -> u32 {
    code(within("cuMemFree").and_then(|(mut machine, gpu)| {
        // Memory is freed when nothing uses it any more, which may be never.
        if !machine.drain(gpu) {
            drop(machine);
            forever();
        }
        if machine.memory.free(at) { Ok(()) } else { Err(INVALID_VALUE) }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(to: *mut Handle, bytes: usize, _flags: c_uint) -> u32 {
    code(within("cuMemHostAlloc").and_then(|(mut machine, _)| {
        let at = machine.memory.allocate(Home::Host, bytes);
        put(to, ptr::with_exposed_provenance_mut(at as usize))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(at: Handle) -> u32 {
    code(within("cuMemFreeHost").and_then(|(mut machine, _)| {
        if machine.memory.free(number(at)) { Ok(()) } else { Err(INVALID_VALUE) }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle) -> u32 {
    code(
        within("cuMemcpyAsync").and_then(|(mut machine, _)| {
            machine.push(number(stream), Work::Copy { to, from, bytes })
        }),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    to_context: Handle,
    from: u64,
    from_context: Handle,
    bytes: usize,
    stream: Handle,
) -> u32 {
    code(within("cuMemcpyPeerAsync").and_then(|(mut machine, _)| {
        for (at, context) in [(to, to_context), (from, from_context)] {
            let home = Home::Gpu(gpu_in(context)?);
            let stretch = machine.memory.stretch(at, bytes).ok_or(INVALID_VALUE)?;
            if stretch.home != home {
                return Err(INVALID_VALUE);
            }
        }
        machine.push(number(stream), Work::Copy { to, from, bytes })
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32Async(to: u64, word: c_uint, words: usize, stream: Handle) -> u32 {
    code(
        within("cuMemsetD32Async").and_then(|(mut machine, _)| {
            machine.push(number(stream), Work::Fill { to, word, words })
        }),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(to: *mut Handle, image: *const c_void) -> u32 {
    code(within("cuModuleLoadData").and_then(|(mut machine, gpu)| {
        let ptx = text(image.cast())?.to_string_lossy();
        if !ptx.contains(".visible .entry gaunt_") {
            return Err(INVALID_VALUE);
        }
        put_handle(to, machine.module(gpu))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: Handle) -> u32 {
    code(within("cuModuleUnload").and_then(|(mut machine, _)| machine.unload(number(module))))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(to: *mut Handle, module: Handle, name: *const c_char) -> u32 {
    code(within("cuModuleGetFunction").and_then(|(mut machine, _)| {
        let name = text(name)?.to_string_lossy().into_owned();
        let function = machine.function(number(module), name)?;
        put_handle(to, function)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(to: *mut Handle, _flags: c_uint) -> u32 {
    code(
        within("cuStreamCreate").and_then(|(mut machine, gpu)| put_handle(to, machine.stream(gpu))),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: Handle) -> u32 {
    code(within("cuStreamDestroy").and_then(|(mut machine, gpu)| {
        // What is still queued on it goes on without it; here it is done first.
        machine.drain(gpu);
        machine.end_stream(number(stream))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) -> u32 {
    code(
        within("cuStreamWaitEvent")
            .and_then(|(mut machine, _)| machine.wait(number(stream), number(event))),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(to: *mut Handle, _flags: c_uint) -> u32 {
    code(within("cuEventCreate").and_then(|(mut machine, gpu)| put_handle(to, machine.event(gpu))))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: Handle) -> u32 {
    code(within("cuEventDestroy").and_then(|(mut machine, _)| machine.end_event(number(event))))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> u32 {
    code(
        within("cuEventRecord")
            .and_then(|(mut machine, _)| machine.record(number(event), number(stream))),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: Handle) -> u32 {
    code(within("cuEventQuery").and_then(|(mut machine, _)| {
        if machine.reached(number(event))? { Ok(()) } else { Err(machine::NOT_READY) }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime(to: *mut f32, from: Handle, until: Handle) -> u32 {
    code(within("cuEventElapsedTime").and_then(|(machine, _)| {
        put(to, (machine.seconds(number(from), number(until))? * 1e3) as f32)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    function: Handle,
    blocks: c_uint,
    _blocks_y: c_uint,
    _blocks_z: c_uint,
    _threads: c_uint,
    _threads_y: c_uint,
    _threads_z: c_uint,
    _shared: c_uint,
    stream: Handle,
    arguments: *const *const c_void,
    _extra: *const *const c_void,
) -> u32 {
    code(within("cuLaunchKernel").and_then(|(mut machine, gpu)| {
        let name = machine.name(number(function), gpu)?;
        let widths = widths(&name).ok_or(INVALID_HANDLE)?;
        let read = |(at, long): (usize, &bool)| {
            // SAFETY: the caller gives as many places as the kernel has parameters, each with a value of the width
            // that the kernel declares.
            unsafe {
                let place = *arguments.add(at);
                if *long { place.cast::<u64>().read() } else { place.cast::<u32>().read().into() }
            }
        };
        let arguments = widths.iter().enumerate().map(read).collect();
        machine.note_grid(blocks);
        machine.push(number(stream), Work::Kernel { name, arguments })
    }))
}

/// The parameters of a kernel: which ones have eight bytes.
fn widths(name: &str) -> Option<&'static [bool]> {
    Some(match name.trim_end_matches("_f32").trim_end_matches("_bf16") {
        "gaunt_copy" => &[true, true, true],
        "gaunt_gate" => &[true, true],
        "gaunt_add" => &[true, true, true, true],
        "gaunt_pattern" => &[true, true, true, false, false],
        "gaunt_check" => &[true, true, true, true, false, false, false, true],
        _ => return None,
    })
}
