//! CUDA driver FFI bindings: its C functions, loaded at run time, each call checked. All `unsafe` code is here.
//!
//! Only numbers cross the interface: addresses in GPU memory, handles. A wrong one is an error of the driver or of the
//! GPU, never of this process's memory; only [`CudaDriver::read_pinned`] and [`CudaDriver::write_pinned`] access host
//! memory, which [`super::gpu_context`] keeps allocated while its address is in use.

#![expect(unsafe_code, reason = "the CUDA driver is a C library that is opened at run time")]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    path::Path,
    ptr,
};

use libloading::{Library, Symbol};

use super::CudaError;

/// The driver's library, which only the driver installs.
const LIBRARY: &str = "libcuda.so.1";

/// The driver's code for work that is not complete.
const NOT_READY: c_int = 600;

/// The driver's code for peer access that is enabled already.
const PEER_ENABLED: c_int = 704;

/// Pinned memory that every context may use, at the address that the host uses.
const HOST_PORTABLE_MAPPED: c_uint = 3;

/// Streams that do not wait for the default stream.
const STREAM_NON_BLOCKING: c_uint = 1;

/// Events without timing, which cost less.
const EVENT_NO_TIME: c_uint = 2;

/// The buffer size for a GPU's name and address.
const TEXT: usize = 256;

/// A context, stream, event, module or kernel of the driver: passed back to it, never dereferenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CudaHandle(*mut c_void);

impl CudaHandle {
    /// The pointer, for NCCL, which uses the driver's streams.
    pub(crate) fn as_raw(self) -> *mut c_void {
        self.0
    }
}

/// One argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KernelArgument {
    /// An address or a count.
    Long(u64),
    /// A small number.
    Word(u32),
}

/// Declares the driver's functions: our name, the symbol, and the argument types. All return a code.
macro_rules! functions {
    ($($name:ident = $symbol:literal($($argument:ty),*);)*) => {
        struct Functions { $($name: unsafe extern "C" fn($($argument),*) -> c_int,)* }

        impl Functions {
            fn load(library: &Library) -> Result<Self, CudaError> {
                Ok(Self { $($name: {
                    // SAFETY: the symbol has the signature that is declared with its name, from CUDA's header; the
                    // library stays open as long as the functions exist.
                    let symbol: Symbol<'_, unsafe extern "C" fn($($argument),*) -> c_int> =
                        unsafe { library.get($symbol.as_bytes()) }
                            .map_err(|_| CudaError::Symbol($symbol))?;
                    *symbol
                },)* })
            }
        }
    };
}

functions! {
    init = "cuInit"(c_uint);
    driver_version = "cuDriverGetVersion"(*mut c_int);
    error_name = "cuGetErrorName"(c_int, *mut *const c_char);
    device_count = "cuDeviceGetCount"(*mut c_int);
    device_get = "cuDeviceGet"(*mut c_int, c_int);
    device_name = "cuDeviceGetName"(*mut c_char, c_int, c_int);
    device_bus_id = "cuDeviceGetPCIBusId"(*mut c_char, c_int, c_int);
    device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
    can_access_peer = "cuDeviceCanAccessPeer"(*mut c_int, c_int, c_int);
    context_retain = "cuDevicePrimaryCtxRetain"(*mut *mut c_void, c_int);
    context_release = "cuDevicePrimaryCtxRelease_v2"(c_int);
    context_set = "cuCtxSetCurrent"(*mut c_void);
    enable_peer = "cuCtxEnablePeerAccess"(*mut c_void, c_uint);
    memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
    allocate = "cuMemAlloc_v2"(*mut u64, usize);
    free = "cuMemFree_v2"(u64);
    host_allocate = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost"(*mut c_void);
    copy = "cuMemcpyAsync"(u64, u64, usize, *mut c_void);
    copy_peer = "cuMemcpyPeerAsync"(u64, *mut c_void, u64, *mut c_void, usize, *mut c_void);
    fill = "cuMemsetD32Async"(u64, c_uint, usize, *mut c_void);
    module_load = "cuModuleLoadData"(*mut *mut c_void, *const c_void);
    module_unload = "cuModuleUnload"(*mut c_void);
    module_function = "cuModuleGetFunction"(*mut *mut c_void, *mut c_void, *const c_char);
    stream_create = "cuStreamCreate"(*mut *mut c_void, c_uint);
    stream_destroy = "cuStreamDestroy_v2"(*mut c_void);
    stream_wait = "cuStreamWaitEvent"(*mut c_void, *mut c_void, c_uint);
    event_create = "cuEventCreate"(*mut *mut c_void, c_uint);
    event_destroy = "cuEventDestroy_v2"(*mut c_void);
    event_record = "cuEventRecord"(*mut c_void, *mut c_void);
    event_query = "cuEventQuery"(*mut c_void);
    event_elapsed = "cuEventElapsedTime"(*mut f32, *mut c_void, *mut c_void);
    launch = "cuLaunchKernel"(
        *mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void, *mut *mut c_void,
        *mut *mut c_void
    );
}

/// The initialised driver of this process.
pub(crate) struct CudaDriver {
    functions: Functions,
    /// Keeps the functions loaded.
    _library: Library,
}

/// Calls a function of the driver and checks its code. Errors carry our name of the function.
macro_rules! call {
    ($cuda:expr, $name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments are those of CUDA's header; each pointer among them is null where that is allowed, or
        // points to a value that outlives the call.
        let code = unsafe { ($cuda.functions.$name)($($argument),*) };
        $cuda.check_code(stringify!($name), code)
    }};
}

/// Calls a function that writes its result to its first argument.
macro_rules! ask {
    ($cuda:expr, $name:ident($($argument:expr),*), $initial:expr) => {{
        let mut answer = $initial;
        call!($cuda, $name(&raw mut answer $(, $argument)*)).map(|()| answer)
    }};
}

impl CudaDriver {
    /// Opens and initialises the driver: the library of this path, or what the loader finds.
    pub(crate) fn open_library(path: Option<&Path>) -> Result<Self, CudaError> {
        let name = path.unwrap_or(Path::new(LIBRARY));
        // SAFETY: the driver's library may be opened by any process, and its initialisers have no side effects.
        let library = unsafe { Library::new(name) }.map_err(|error| CudaError::Absent {
            library: name.to_path_buf(),
            why: {
                let why = error.to_string();
                let named = format!("{}: ", name.display());
                gaunt_schema::SanitizedText::new(why.strip_prefix(&named).unwrap_or(&why))
            },
        })?;
        let cuda = Self { functions: Functions::load(&library)?, _library: library };
        call!(cuda, init(0))?;
        Ok(cuda)
    }

    fn check_code(&self, call: &'static str, code: c_int) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let mut name: *const c_char = ptr::null();
        // SAFETY: the function writes a pointer to text that never changes, or leaves or sets it null.
        let has_name = unsafe { (self.functions.error_name)(code, &raw mut name) } == 0;
        let name = if has_name && !name.is_null() {
            // SAFETY: the text is NUL-terminated and lives as long as the library, which is open.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            "an unknown error".to_owned()
        };
        Err(CudaError::Call { call, code, name })
    }

    /// The newest CUDA version that the driver supports, such as 12080.
    pub(crate) fn driver_version(&self) -> Result<i32, CudaError> {
        ask!(self, driver_version(), 0)
    }

    /// The number of GPUs that this process may use.
    pub(crate) fn device_count(&self) -> Result<i32, CudaError> {
        ask!(self, device_count(), 0)
    }

    /// The GPU at a position.
    pub(crate) fn device_at(&self, ordinal: i32) -> Result<i32, CudaError> {
        ask!(self, device_get(ordinal), 0)
    }

    /// The GPU's name.
    pub(crate) fn device_name(&self, device: i32) -> Result<String, CudaError> {
        let mut text = [0; TEXT];
        call!(self, device_name(text.as_mut_ptr(), TEXT as c_int, device))?;
        Ok(decode_c_string(&text))
    }

    /// The GPU's address on the PCI bus.
    pub(crate) fn device_bus_id(&self, device: i32) -> Result<String, CudaError> {
        let mut text = [0; TEXT];
        call!(self, device_bus_id(text.as_mut_ptr(), TEXT as c_int, device))?;
        Ok(decode_c_string(&text))
    }

    /// An attribute, by CUDA's number for it.
    pub(crate) fn device_attribute(&self, device: i32, number: i32) -> Result<i32, CudaError> {
        ask!(self, device_attribute(number, device), 0)
    }

    /// Whether kernels of one GPU can address another one's memory.
    pub(crate) fn can_access(&self, device: i32, peer: i32) -> Result<bool, CudaError> {
        ask!(self, can_access_peer(device, peer), 0).map(|answer| answer != 0)
    }

    /// The GPU's primary context, created if there is none; [`CudaDriver::release_context`] releases it.
    pub(crate) fn retain_context(&self, device: i32) -> Result<CudaHandle, CudaError> {
        ask!(self, context_retain(device), ptr::null_mut()).map(CudaHandle)
    }

    /// Releases the primary context; the last release destroys it with all its memory.
    pub(crate) fn release_context(&self, device: i32) -> Result<(), CudaError> {
        call!(self, context_release(device))
    }

    /// Makes a context current for this thread.
    pub(crate) fn set_current_context(&self, context: CudaHandle) -> Result<(), CudaError> {
        call!(self, context_set(context.0))
    }

    /// Lets the current context access the memory of another.
    pub(crate) fn enable_peer(&self, peer: CudaHandle) -> Result<(), CudaError> {
        match call!(self, enable_peer(peer.0, 0)) {
            Err(CudaError::Call { code: PEER_ENABLED, .. }) => Ok(()),
            other => other,
        }
    }

    /// Free bytes on the current context's GPU.
    pub(crate) fn free_bytes(&self) -> Result<usize, CudaError> {
        let mut total = 0;
        ask!(self, memory_info(&raw mut total), 0)
    }

    pub(crate) fn allocate_device(&self, bytes: usize) -> Result<u64, CudaError> {
        ask!(self, allocate(bytes), 0)
    }

    pub(crate) fn free_device(&self, address: u64) -> Result<(), CudaError> {
        call!(self, free(address))
    }

    /// Allocates pinned host memory, which GPUs access at the same address.
    pub(crate) fn allocate_host(&self, bytes: usize) -> Result<u64, CudaError> {
        let flags = HOST_PORTABLE_MAPPED;
        let memory = ask!(self, host_allocate(bytes, flags), ptr::null_mut())?;
        Ok(memory.expose_provenance() as u64)
    }

    pub(crate) fn free_host(&self, address: u64) -> Result<(), CudaError> {
        call!(self, host_free(ptr::with_exposed_provenance_mut(address as usize)))
    }

    /// Copies between any two addresses that the driver knows.
    pub(crate) fn copy_memory(
        &self,
        to: u64,
        from: u64,
        bytes: usize,
        stream: CudaHandle,
    ) -> Result<(), CudaError> {
        call!(self, copy(to, from, bytes, stream.0))
    }

    /// Copies between two GPUs, directly or through the host, as the driver decides.
    pub(crate) fn copy_peer(
        &self,
        (to, to_context): (u64, CudaHandle),
        (from, from_context): (u64, CudaHandle),
        bytes: usize,
        stream: CudaHandle,
    ) -> Result<(), CudaError> {
        call!(self, copy_peer(to, to_context.0, from, from_context.0, bytes, stream.0))
    }

    /// Fills memory with a word.
    pub(crate) fn fill_words(
        &self,
        to: u64,
        word: u32,
        words: usize,
        stream: CudaHandle,
    ) -> Result<(), CudaError> {
        call!(self, fill(to, word, words, stream.0))
    }

    /// Loads PTX into the current context.
    pub(crate) fn load_module(&self, ptx: &str) -> Result<CudaHandle, CudaError> {
        let text = CString::new(ptx).map_err(|_| CudaError::Symbol("PTX"))?;
        ask!(self, module_load(text.as_ptr().cast()), ptr::null_mut()).map(CudaHandle)
    }

    pub(crate) fn unload_module(&self, module: CudaHandle) -> Result<(), CudaError> {
        call!(self, module_unload(module.0))
    }

    /// A kernel of a module.
    pub(crate) fn find_kernel(
        &self,
        module: CudaHandle,
        name: &CStr,
    ) -> Result<CudaHandle, CudaError> {
        ask!(self, module_function(module.0, name.as_ptr()), ptr::null_mut()).map(CudaHandle)
    }

    pub(crate) fn create_stream(&self) -> Result<CudaHandle, CudaError> {
        ask!(self, stream_create(STREAM_NON_BLOCKING), ptr::null_mut()).map(CudaHandle)
    }

    pub(crate) fn destroy_stream(&self, stream: CudaHandle) -> Result<(), CudaError> {
        call!(self, stream_destroy(stream.0))
    }

    /// Makes later work on a stream wait for an event.
    pub(crate) fn wait_event(
        &self,
        stream: CudaHandle,
        event: CudaHandle,
    ) -> Result<(), CudaError> {
        call!(self, stream_wait(stream.0, event.0, 0))
    }

    /// Creates an event, with or without timing.
    pub(crate) fn create_event(&self, timed: bool) -> Result<CudaHandle, CudaError> {
        let flags = if timed { 0 } else { EVENT_NO_TIME };
        ask!(self, event_create(flags), ptr::null_mut()).map(CudaHandle)
    }

    pub(crate) fn destroy_event(&self, event: CudaHandle) -> Result<(), CudaError> {
        call!(self, event_destroy(event.0))
    }

    pub(crate) fn record_event(
        &self,
        event: CudaHandle,
        stream: CudaHandle,
    ) -> Result<(), CudaError> {
        call!(self, event_record(event.0, stream.0))
    }

    /// Whether everything before the event is done.
    pub(crate) fn is_event_done(&self, event: CudaHandle) -> Result<bool, CudaError> {
        match call!(self, event_query(event.0)) {
            Ok(()) => Ok(true),
            Err(CudaError::Call { code: NOT_READY, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Seconds from one event to another of the same GPU.
    pub(crate) fn seconds_between(
        &self,
        from: CudaHandle,
        to: CudaHandle,
    ) -> Result<f64, CudaError> {
        ask!(self, event_elapsed(from.0, to.0), 0.0_f32).map(|millis| f64::from(millis) / 1e3)
    }

    /// Starts a kernel of one-dimensional blocks. The driver copies the arguments before it returns.
    pub(crate) fn launch_kernel(
        &self,
        kernel: CudaHandle,
        (blocks, threads): (u32, u32),
        stream: CudaHandle,
        arguments: &[KernelArgument],
    ) -> Result<(), CudaError> {
        let mut pointers: Vec<*mut c_void> = arguments
            .iter()
            .map(|argument| match argument {
                KernelArgument::Long(value) => ptr::from_ref(value).cast_mut().cast(),
                KernelArgument::Word(value) => ptr::from_ref(value).cast_mut().cast(),
            })
            .collect();
        let (pointers, null) = (pointers.as_mut_ptr(), ptr::null_mut());
        call!(self, launch(kernel.0, blocks, 1, 1, threads, 1, 1, 0, stream.0, pointers, null))
    }

    /// Reads a word of pinned memory that [`CudaDriver::allocate_host`] returned and that is not freed.
    pub(super) fn read_pinned(address: u64) -> u32 {
        let word: *const u32 = ptr::with_exposed_provenance(address as usize);
        // SAFETY: the only callers are in `gpu_context`, which checks that the address is in pinned memory that it owns
        // and that it is aligned; a GPU may write it at any time, hence volatile.
        unsafe { word.read_volatile() }
    }

    /// Writes a word of such memory.
    pub(super) fn write_pinned(address: u64, word: u32) {
        let address: *mut u32 = ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: as for `read_pinned`.
        unsafe { address.write_volatile(word) }
    }
}

fn decode_c_string(text: &[c_char]) -> String {
    let bytes: Vec<u8> =
        text.iter().map(|letter| *letter as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
