//! NCCL FFI bindings, loaded at run time if installed: the collectives that jobs use, as a comparison with our kernels.

#![expect(unsafe_code, reason = "NCCL is a C library that is opened at run time")]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    path::Path,
    ptr,
};

use gaunt_schema::SanitizedText;
use libloading::{Library, Symbol};

use crate::cuda::{cuda_ffi::CudaHandle, kernel_set::ElementType};

/// The library as packages and wheels install it; `libnccl.so` comes with headers only.
const LIBRARY: &str = "libnccl.so.2";

/// Bytes of `ncclUniqueId`.
const KEY: usize = 128;

/// `ncclSum`.
const SUM: c_int = 0;

/// An error of NCCL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NcclError {
    /// It is not installed.
    #[error(
        "NCCL not found: {0}; install it (`apt install libnccl2`), or set its path with --nccl-library"
    )]
    Absent(SanitizedText),
    /// A call failed.
    #[error("NCCL {call} failed: {says}; set NCCL_DEBUG=INFO for details")]
    Call {
        /// Our name of the call.
        call: &'static str,
        /// NCCL's message.
        says: SanitizedText,
    },
}

/// Declares NCCL's functions: our name, the symbol, and the argument types. All return a code.
macro_rules! functions {
    ($($name:ident = $symbol:literal($($argument:ty),*);)*) => {
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> c_int,)*
            error_string: unsafe extern "C" fn(c_int) -> *const c_char,
        }

        impl Functions {
            fn load(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the symbols have the signatures that are declared with their names, from NCCL's header; the
                // library stays open as long as the functions exist.
                unsafe {
                    Ok(Self {
                        $($name: {
                            let symbol: Symbol<'_, unsafe extern "C" fn($($argument),*) -> c_int> =
                                library.get($symbol.as_bytes())?;
                            *symbol
                        },)*
                        error_string: *library.get(b"ncclGetErrorString")?,
                    })
                }
            }
        }
    };
}

/// NCCL's unique id, with which ranks of several processes join: it contains an address and a secret.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct NcclUniqueId([u8; KEY]);

impl NcclUniqueId {
    /// As text for JSON.
    pub(crate) fn to_hex(self) -> String {
        self.0.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    }

    /// From that text.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let mut key = [0; KEY];
        let is_complete = text.len() == 2 * KEY && text.is_ascii();
        for (index, byte) in key.iter_mut().enumerate().filter(|_| is_complete) {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
        }
        is_complete.then_some(Self(key))
    }
}

functions! {
    version = "ncclGetVersion"(*mut c_int);
    init_all = "ncclCommInitAll"(*mut *mut c_void, c_int, *const c_int);
    unique_id = "ncclGetUniqueId"(*mut NcclUniqueId);
    init_rank = "ncclCommInitRank"(*mut *mut c_void, c_int, NcclUniqueId, c_int);
    destroy = "ncclCommDestroy"(*mut c_void);
    group_start = "ncclGroupStart"();
    group_end = "ncclGroupEnd"();
    all_reduce = "ncclAllReduce"(u64, u64, usize, c_int, c_int, *mut c_void, *mut c_void);
    reduce_scatter = "ncclReduceScatter"(u64, u64, usize, c_int, c_int, *mut c_void, *mut c_void);
    all_gather = "ncclAllGather"(u64, u64, usize, c_int, *mut c_void, *mut c_void);
    broadcast = "ncclBroadcast"(u64, u64, usize, c_int, c_int, *mut c_void, *mut c_void);
    send = "ncclSend"(u64, usize, c_int, c_int, *mut c_void, *mut c_void);
    receive = "ncclRecv"(u64, usize, c_int, c_int, *mut c_void, *mut c_void);
}

/// NCCL, and the communicators of this process.
pub(crate) struct NcclLibrary {
    functions: Functions,
    communicators: Vec<*mut c_void>,
    /// Keeps the functions loaded.
    _library: Library,
}

/// Calls a function of NCCL and checks its code.
macro_rules! call {
    ($nccl:expr, $name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments are those of NCCL's header; pointers point to values that outlive the call, addresses
        // to GPU memory that only GPUs access, and communicators and streams are alive.
        let code = unsafe { ($nccl.functions.$name)($($argument),*) };
        $nccl.check_code(stringify!($name), code)
    }};
}

/// One rank's part of a call: its buffers and its stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NcclBuffers {
    /// The address of the sent data.
    pub(crate) send: u64,
    /// The address of the received data.
    pub(crate) receive: u64,
    /// The stream that runs it.
    pub(crate) stream: CudaHandle,
}

impl NcclLibrary {
    /// Opens NCCL: the library of this path, or what the loader finds.
    pub(crate) fn open_library(path: Option<&Path>) -> Result<Self, NcclError> {
        let absent =
            |error: libloading::Error| NcclError::Absent(SanitizedText::new(&error.to_string()));
        let name = path.unwrap_or(Path::new(LIBRARY));
        // SAFETY: NCCL may be opened by any process; its initialisers have no side effects.
        let library = unsafe { Library::new(name) }.map_err(absent)?;
        let functions = Functions::load(&library).map_err(absent)?;
        Ok(Self { functions, communicators: Vec::new(), _library: library })
    }

    fn check_code(&self, call: &'static str, code: c_int) -> Result<(), NcclError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the function returns static text for any code, or null.
        let text = unsafe { (self.functions.error_string)(code) };
        let description = if text.is_null() {
            "an unknown error".to_owned()
        } else {
            // SAFETY: the text is NUL-terminated and lives as long as the library, which is open.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(NcclError::Call { call, says: SanitizedText::new(&description) })
    }

    /// Its version, such as 2.27.3.
    pub(crate) fn library_version(&self) -> Result<String, NcclError> {
        let mut version = 0;
        call!(self, version(&raw mut version))?;
        Ok(format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100))
    }

    /// Creates a communicator with these GPUs as ranks, by CUDA's numbers.
    pub(crate) fn init_communicators(&mut self, devices: &[i32]) -> Result<(), NcclError> {
        let mut communicators = vec![ptr::null_mut(); devices.len()];
        call!(
            self,
            init_all(communicators.as_mut_ptr(), devices.len() as c_int, devices.as_ptr())
        )?;
        self.communicators = communicators;
        Ok(())
    }

    /// Creates the unique id with which other processes join this one's communicator.
    pub(crate) fn create_unique_id(&self) -> Result<NcclUniqueId, NcclError> {
        let mut key = NcclUniqueId([0; KEY]);
        call!(self, unique_id(&raw mut key))?;
        Ok(key)
    }

    /// Joins a communicator of several processes with the current context's GPU as rank. Blocks until the others join.
    pub(crate) fn join_communicator(
        &mut self,
        key: NcclUniqueId,
        rank: usize,
        ranks: usize,
    ) -> Result<(), NcclError> {
        let mut communicator = ptr::null_mut();
        call!(self, init_rank(&raw mut communicator, ranks as c_int, key, rank as c_int))?;
        self.communicators.push(communicator);
        Ok(())
    }

    /// Groups several calls into one.
    pub(crate) fn group_calls(
        &self,
        calls: impl FnOnce() -> Result<(), NcclError>,
    ) -> Result<(), NcclError> {
        call!(self, group_start())?;
        let result = calls();
        // A group that was begun must be ended, whatever happened in it.
        let end_result = call!(self, group_end());
        result.and(end_result)
    }

    pub(crate) fn all_reduce(
        &self,
        rank: usize,
        part: NcclBuffers,
        count: usize,
        element: ElementType,
    ) -> Result<(), NcclError> {
        let (kind, comm) = (nccl_data_type(element), self.communicators[rank]);
        call!(
            self,
            all_reduce(part.send, part.receive, count, kind, SUM, comm, part.stream.as_raw())
        )
    }

    pub(crate) fn reduce_scatter(
        &self,
        rank: usize,
        part: NcclBuffers,
        count: usize,
        element: ElementType,
    ) -> Result<(), NcclError> {
        let (kind, comm) = (nccl_data_type(element), self.communicators[rank]);
        call!(
            self,
            reduce_scatter(part.send, part.receive, count, kind, SUM, comm, part.stream.as_raw())
        )
    }

    pub(crate) fn all_gather(
        &self,
        rank: usize,
        part: NcclBuffers,
        count: usize,
        element: ElementType,
    ) -> Result<(), NcclError> {
        let (kind, comm) = (nccl_data_type(element), self.communicators[rank]);
        call!(self, all_gather(part.send, part.receive, count, kind, comm, part.stream.as_raw()))
    }

    pub(crate) fn broadcast(
        &self,
        rank: usize,
        part: NcclBuffers,
        count: usize,
        element: ElementType,
    ) -> Result<(), NcclError> {
        let (kind, comm) = (nccl_data_type(element), self.communicators[rank]);
        call!(self, broadcast(part.send, part.receive, count, kind, 0, comm, part.stream.as_raw()))
    }

    /// Sends `part.send` to one rank and receives from another into `part.receive`.
    pub(crate) fn send_recv(
        &self,
        rank: usize,
        part: NcclBuffers,
        (to, from): (usize, usize),
        (count, element): (usize, ElementType),
    ) -> Result<(), NcclError> {
        let (kind, comm, stream) =
            (nccl_data_type(element), self.communicators[rank], part.stream.as_raw());
        call!(self, send(part.send, count, kind, to as c_int, comm, stream))?;
        call!(self, receive(part.receive, count, kind, from as c_int, comm, stream))
    }
}

impl Drop for NcclLibrary {
    fn drop(&mut self) {
        for communicator in self.communicators.drain(..) {
            // SAFETY: the communicator came from NCCL and is destroyed once. After a failure the end of the
            // process frees it.
            _ = unsafe { (self.functions.destroy)(communicator) };
        }
    }
}

/// NCCL's number of an element type.
fn nccl_data_type(element: ElementType) -> c_int {
    match element {
        ElementType::F32 => 7,
        ElementType::Bf16 => 9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nccl_key_text_round_trip() {
        let mut bytes = [0; KEY];
        bytes.iter_mut().zip(0..).for_each(|(byte, number)| *byte = number);
        let text = NcclUniqueId(bytes).to_hex();
        assert_eq!(NcclUniqueId::of(&text).unwrap().0, bytes);
        assert!(
            NcclUniqueId::of(&text[2..]).is_none()
                && NcclUniqueId::of(&text.replace("0a", "zz")).is_none()
        );
        assert!(NcclUniqueId::of(&"ä".repeat(KEY)).is_none());
    }
}
