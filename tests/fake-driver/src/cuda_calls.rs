//! Calls CUDA's and NCCL's functions as a C program does: memory, kernels, copies and a collective of two GPUs. Miri runs this
//! test: `tests/fuzz/sanitize`.

#![expect(unsafe_code, reason = "C functions take pointers")]

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    ptr,
};

type Handle = *mut c_void;

// SAFETY: the functions are those of CUDA's and NCCL's headers.
unsafe extern "C" {
    safe fn cuInit(flags: c_uint) -> u32;
    fn cuGetErrorName(code: u32, to: *mut *const c_char) -> u32;
    fn cuDeviceGetName(to: *mut c_char, length: c_int, device: c_int) -> u32;
    fn cuDevicePrimaryCtxRetain(to: *mut Handle, device: c_int) -> u32;
    safe fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> u32;
    safe fn cuCtxSetCurrent(context: Handle) -> u32;
    safe fn cuCtxEnablePeerAccess(peer: Handle, flags: c_uint) -> u32;
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> u32;
    fn cuMemAlloc_v2(to: *mut u64, bytes: usize) -> u32;
    safe fn cuMemFree_v2(address: u64) -> u32;
    fn cuMemHostAlloc(to: *mut Handle, bytes: usize, flags: c_uint) -> u32;
    safe fn cuMemFreeHost(address: Handle) -> u32;
    safe fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle) -> u32;
    safe fn cuMemcpyPeerAsync(
        to: u64,
        to_context: Handle,
        from: u64,
        from_context: Handle,
        bytes: usize,
        stream: Handle,
    ) -> u32;
    safe fn cuMemsetD32Async(to: u64, word: c_uint, words: usize, stream: Handle) -> u32;
    fn cuModuleLoadData(to: *mut Handle, image: *const c_void) -> u32;
    safe fn cuModuleUnload(module: Handle) -> u32;
    fn cuModuleGetFunction(to: *mut Handle, module: Handle, name: *const c_char) -> u32;
    fn cuStreamCreate(to: *mut Handle, flags: c_uint) -> u32;
    safe fn cuStreamDestroy_v2(stream: Handle) -> u32;
    fn cuEventCreate(to: *mut Handle, flags: c_uint) -> u32;
    safe fn cuEventDestroy_v2(event: Handle) -> u32;
    safe fn cuEventRecord(event: Handle, stream: Handle) -> u32;
    safe fn cuEventQuery(event: Handle) -> u32;
    fn cuEventElapsedTime(to: *mut f32, from: Handle, until: Handle) -> u32;
    fn cuLaunchKernel(
        function: Handle,
        blocks: c_uint,
        blocks_y: c_uint,
        blocks_z: c_uint,
        threads: c_uint,
        threads_y: c_uint,
        threads_z: c_uint,
        shared: c_uint,
        stream: Handle,
        arguments: *const *const c_void,
        extra: *const *const c_void,
    ) -> u32;
    fn ncclCommInitAll(to: *mut Handle, count: c_int, devices: *const c_int) -> c_int;
    safe fn ncclCommDestroy(communicator: Handle) -> c_int;
    safe fn ncclGroupStart() -> c_int;
    safe fn ncclGroupEnd() -> c_int;
    safe fn ncclAllReduce(
        send: u64,
        receive: u64,
        count: usize,
        kind: c_int,
        sum: c_int,
        communicator: Handle,
        stream: Handle,
    ) -> c_int;
}

const OUT_OF_MEMORY: u32 = 2;
const INVALID_VALUE: u32 = 1;

/// NCCL's numbers of `float` and of the sum.
const FLOAT: c_int = 7;
const SUM: c_int = 0;

/// Elements of each buffer, and their bytes.
const COUNT: usize = 24;
const BYTES: usize = COUNT * size_of::<f32>();

/// What a call writes to the pointer that it gets.
fn ask<T>(mut value: T, call: impl FnOnce(*mut T) -> u32) -> Result<T, u32> {
    match call(&raw mut value) {
        0 => Ok(value),
        code => Err(code),
    }
}

/// A GPU with a context, a stream, a loaded module and two buffers.
struct CalledGpu {
    number: c_int,
    context: Handle,
    stream: Handle,
    module: Handle,
    send: u64,
    receive: u64,
}

/// An argument of a kernel.
enum Argument {
    Long(u64),
    Word(u32),
}

impl CalledGpu {
    fn open(number: c_int) -> Self {
        let ptx = c".visible .entry gaunt_copy(";
        // SAFETY: each pointer is valid for a value, and the PTX ends with a zero.
        unsafe {
            let handle = |call: &dyn Fn(*mut Handle) -> u32| ask(ptr::null_mut(), call).unwrap();
            let context = handle(&|to| cuDevicePrimaryCtxRetain(to, number));
            assert_eq!(cuCtxSetCurrent(context), 0);
            let stream = handle(&|to| cuStreamCreate(to, 1));
            let module = handle(&|to| cuModuleLoadData(to, ptx.as_ptr().cast()));
            let memory = || ask(0, |to| cuMemAlloc_v2(to, BYTES)).unwrap();
            Self { number, context, stream, module, send: memory(), receive: memory() }
        }
    }

    fn launch_kernel(&self, name: &CStr, arguments: &[Argument]) {
        assert_eq!(cuCtxSetCurrent(self.context), 0);
        let pointers: Vec<*const c_void> = arguments
            .iter()
            .map(|argument| match argument {
                Argument::Long(value) => ptr::from_ref(value).cast(),
                Argument::Word(value) => ptr::from_ref(value).cast(),
            })
            .collect();
        let (pointers, null) = (pointers.as_ptr(), ptr::null());
        // SAFETY: the kernel has as many parameters as there are pointers, of the widths that they point to.
        unsafe {
            let function = |to| cuModuleGetFunction(to, self.module, name.as_ptr());
            let function = ask(ptr::null_mut(), function).unwrap();
            let stream = self.stream;
            let code = cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, pointers, null);
            assert_eq!(code, 0);
        }
    }

    /// Waits for the work of the stream; returns how long it took, in milliseconds of the driver.
    fn finish_work(&self) -> f32 {
        assert_eq!(cuCtxSetCurrent(self.context), 0);
        // SAFETY: each pointer is valid for a value.
        unsafe {
            let events =
                [(), ()].map(|()| ask(ptr::null_mut(), |to| cuEventCreate(to, 0)).unwrap());
            assert_eq!(events.map(|event| cuEventRecord(event, self.stream)), [0, 0]);
            assert_eq!(events.map(|event| cuEventQuery(event)), [0, 0]);
            let took = ask(0.0, |to| cuEventElapsedTime(to, events[0], events[1])).unwrap();
            assert_eq!(events.map(|event| cuEventDestroy_v2(event)), [0, 0]);
            took
        }
    }

    /// The values of a buffer, by way of pinned memory.
    fn read_values(&self, from: u64) -> Vec<f32> {
        assert_eq!(cuCtxSetCurrent(self.context), 0);
        // SAFETY: the host's memory is aligned for a GPU's, has `BYTES` bytes, and is freed at the end.
        unsafe {
            let host = ask(ptr::null_mut(), |to| cuMemHostAlloc(to, BYTES, 0)).unwrap();
            let address = host.expose_provenance() as u64;
            assert_eq!(cuMemcpyAsync(address, from, BYTES, self.stream), 0);
            self.finish_work();
            let values = std::slice::from_raw_parts(host.cast::<f32>(), COUNT).to_vec();
            assert_eq!(cuMemFreeHost(host), 0);
            values
        }
    }

    fn close(self) {
        assert_eq!(cuCtxSetCurrent(self.context), 0);
        assert_eq!([self.send, self.receive].map(|address| cuMemFree_v2(address)), [0, 0]);
        assert_eq!(cuMemFree_v2(self.send), INVALID_VALUE);
        assert_eq!((cuModuleUnload(self.module), cuStreamDestroy_v2(self.stream)), (0, 0));
        assert_eq!(cuDevicePrimaryCtxRelease_v2(self.number), 0);
    }
}

/// Writes the pattern of each GPU, adds both up by NCCL, and lets a kernel check the sum; the other way is copies.
fn reduce_patterns(gpus: &[CalledGpu; 2]) {
    let count = COUNT as u64;
    for (gpu, rank) in gpus.iter().zip(0..) {
        let (base, round) = (Argument::Long(0), Argument::Word(3));
        let to = [Argument::Long(gpu.send), Argument::Long(count), base];
        let pattern: Vec<_> = to.into_iter().chain([Argument::Word(rank), round]).collect();
        gpu.launch_kernel(c"gaunt_pattern_f32", &pattern);
    }
    let mut ranks = [ptr::null_mut(); 2];
    // SAFETY: both lists have two elements.
    assert_eq!(unsafe { ncclCommInitAll(ranks.as_mut_ptr(), 2, [0, 1].as_ptr()) }, 0);
    assert_eq!(ncclGroupStart(), 0);
    for (gpu, rank) in gpus.iter().zip(ranks) {
        let CalledGpu { send, receive, stream, .. } = *gpu;
        assert_eq!(ncclAllReduce(send, receive, COUNT, FLOAT, SUM, rank, stream), 0);
    }
    assert_eq!(ncclGroupEnd(), 0);
    for gpu in gpus {
        let numbers = [gpu.receive, count, 0, 0].map(Argument::Long);
        let words = [0, 2, 3].map(Argument::Word);
        assert_eq!(cuMemsetD32Async(gpu.send, 0, 4, gpu.stream), 0);
        let wrong = [Argument::Long(gpu.send)];
        let check: Vec<_> = numbers.into_iter().chain(words).chain(wrong).collect();
        gpu.launch_kernel(c"gaunt_check_f32", &check);
    }
    let sums = gpus.each_ref().map(|gpu| gpu.read_values(gpu.receive));
    assert_eq!(sums[0], sums[1]);
    assert!(sums[0].iter().all(|sum| (2.0..=32.0).contains(sum)), "{sums:?}");
    let wrong = gpus.each_ref().map(|gpu| gpu.read_values(gpu.send)[..4].to_vec());
    assert_eq!(wrong, [vec![0.0; 4], vec![0.0; 4]]);
    assert_eq!(ranks.map(|rank| ncclCommDestroy(rank)), [0, 0]);
}

#[test]
fn memory_kernels_copies_and_a_collective_of_two_gpus() {
    crate::driver_state::use_called_scenario();
    assert_eq!(cuInit(0), 0);
    let gpus = [0, 1].map(CalledGpu::open);
    for (gpu, peer) in [(&gpus[0], &gpus[1]), (&gpus[1], &gpus[0])] {
        assert_eq!(cuCtxSetCurrent(gpu.context), 0);
        assert_eq!(cuCtxEnablePeerAccess(peer.context, 0), 0);
    }
    reduce_patterns(&gpus);

    let [first, other] = &gpus;
    // SAFETY: each pointer is valid for what its function writes.
    unsafe {
        assert_eq!(cuCtxSetCurrent(first.context), 0);
        let mut total = 0;
        let free = ask(0, |to| cuMemGetInfo_v2(to, &raw mut total)).unwrap();
        assert_eq!((free, total), ((64 << 10) - 2 * BYTES, 64 << 10));
        assert_eq!(ask(0, |to| cuMemAlloc_v2(to, total)), Err(OUT_OF_MEMORY));
        let name = ask(ptr::null(), |to| cuGetErrorName(OUT_OF_MEMORY, to)).unwrap();
        assert_eq!(CStr::from_ptr(name), c"CUDA_ERROR_OUT_OF_MEMORY");
        let mut text = [0_u8; 22];
        assert_eq!(cuDeviceGetName(text.as_mut_ptr().cast(), 22, 0), 0);
        assert_eq!(CStr::from_bytes_until_nul(&text).unwrap(), c"NVIDIA H100 80GB HBM3");
        assert_eq!(cuDeviceGetName(text.as_mut_ptr().cast(), 21, 0), INVALID_VALUE);
    }
    let word = 1.5_f32.to_bits();
    assert_eq!(cuMemsetD32Async(first.send, word, COUNT, first.stream), 0);
    first.finish_work();
    let (to, from) = ((other.send, other.context), (first.send, first.context));
    assert_eq!(cuMemcpyPeerAsync(to.0, to.1, from.0, from.1, BYTES, first.stream), 0);
    // A copy within a GPU, by a kernel.
    let copy = [first.receive, first.send, BYTES as u64].map(Argument::Long);
    first.launch_kernel(c"gaunt_copy", &copy);
    first.finish_work();
    assert_eq!(first.read_values(first.receive), [1.5; COUNT]);
    assert_eq!(other.read_values(other.send), [1.5; COUNT]);
    gpus.into_iter().for_each(CalledGpu::close);
}
