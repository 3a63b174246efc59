//! Work for a GPU with nothing but the driver: a kernel in PTX that the driver compiles, launched in a rhythm.

#![expect(unsafe_code, reason = "CUDA's driver is a C library that is loaded at run time")]
#![expect(clippy::unwrap_used, reason = "a load that cannot be made fails its test")]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use libloading::{Library, Symbol};

/// Multiplies and adds in every thread for as many rounds as it is told, and stores what came out.
const SPIN: &CStr = c"
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 spin_out, .param .u32 spin_rounds)
{
    .reg .pred %p<2>;
    .reg .f32 %f<3>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [spin_out];
    ld.param.u32 %r1, [spin_rounds];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    cvt.rn.f32.u32 %f1, %r5;
    mov.u32 %r6, 0;
again:
    fma.rn.f32 %f1, %f1, 0f3F800001, 0f3F000000;
    add.u32 %r6, %r6, 1;
    setp.lt.u32 %p1, %r6, %r1;
    @%p1 bra again;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd2, %rd3;
    st.global.f32 [%rd4], %f1;
    ret;
}
";

/// Enough blocks and threads to hold every multiprocessor of the largest board.
const BLOCKS: c_uint = 2_048;
const THREADS: c_uint = 256;

/// How long one launch takes, about: short beside a look at the GPU.
const LAUNCH: Duration = Duration::from_millis(5);

/// For how long the GPU works, and for how long it then waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rhythm {
    pub(super) works: Duration,
    pub(super) waits: Duration,
}

/// A GPU that is made to work, until it goes out of scope.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    launches: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Starts to work on GPU 0, or says why that is not possible.
    pub(super) fn start(rhythm: Rhythm) -> Result<Self, String> {
        let (stop, launches) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (told, counted) = (Arc::clone(&stop), Arc::clone(&launches));
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let cuda = match Cuda::open() {
                Ok(cuda) => cuda,
                Err(why) => return ready.send(Err(why)).unwrap(),
            };
            let spin = cuda.spin();
            let rounds = spin.as_ref().map(Spin::calibrate).map_err(Clone::clone);
            ready.send(rounds.clone().map(|_| ())).unwrap();
            let (Ok(spin), Ok(rounds)) = (spin, rounds) else { return };
            while !told.load(Ordering::Relaxed) {
                let end = Instant::now() + rhythm.works;
                while Instant::now() < end && !told.load(Ordering::Relaxed) {
                    spin.launch(rounds).unwrap();
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                thread::park_timeout(rhythm.waits);
            }
        });
        is_ready.recv().unwrap()?;
        Ok(Self { stop, launches, thread: Some(thread) })
    }

    /// How many launches were finished.
    pub(super) fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            _ = thread.join();
        }
    }
}

/// CUDA's driver, with a context on GPU 0 that is current in this thread.
struct Cuda(Library);

/// The kernel, and the memory that it writes.
struct Spin<'a> {
    cuda: &'a Cuda,
    function: *mut c_void,
    out: u64,
}

/// Calls a function of CUDA's driver by its name and the types of its arguments.
macro_rules! cuda {
    ($cuda:expr, $name:literal($($type:ty = $argument:expr),*)) => {{
        // SAFETY: the function has this name and these arguments in CUDA's driver API, and each pointer leads to room
        // that outlives the call.
        let code = unsafe {
            let function: Result<Symbol<'_, unsafe extern "C" fn($($type),*) -> c_int>, _> =
                $cuda.0.get(concat!($name, "\0").as_bytes());
            function.map(|function| function($($argument),*))
        };
        match code {
            Ok(0) => Ok(()),
            Ok(code) => Err(format!("{} answers {code}", $name)),
            Err(error) => Err(error.to_string()),
        }
    }};
}

impl Cuda {
    fn open() -> Result<Self, String> {
        // SAFETY: CUDA's driver has no code of its own that runs when it is loaded beyond its initialisation.
        let library = unsafe { Library::new("libcuda.so.1") };
        let cuda = Self(library.map_err(|error| error.to_string())?);
        let (mut device, mut context) = (0, ptr::null_mut());
        cuda!(cuda, "cuInit"(c_uint = 0))?;
        cuda!(cuda, "cuDeviceGet"(*mut c_int = &raw mut device, c_int = 0))?;
        cuda!(cuda, "cuDevicePrimaryCtxRetain"(*mut *mut c_void = &raw mut context, c_int = device))?;
        cuda!(cuda, "cuCtxSetCurrent"(*mut c_void = context))?;
        Ok(cuda)
    }

    fn spin(&self) -> Result<Spin<'_>, String> {
        let (mut module, mut function, mut out) = (ptr::null_mut(), ptr::null_mut(), 0_u64);
        let (text, name) = (SPIN.as_ptr().cast::<c_void>(), CString::from(c"spin"));
        cuda!(self, "cuModuleLoadData"(*mut *mut c_void = &raw mut module, *const c_void = text))?;
        cuda!(self, "cuModuleGetFunction"(
            *mut *mut c_void = &raw mut function, *mut c_void = module, *const c_char = name.as_ptr()
        ))?;
        let bytes = BLOCKS as usize * THREADS as usize * size_of::<f32>();
        cuda!(self, "cuMemAlloc_v2"(*mut u64 = &raw mut out, usize = bytes))?;
        Ok(Spin { cuda: self, function, out })
    }
}

impl Spin<'_> {
    /// Runs the kernel once, and waits for its end.
    fn launch(&self, rounds: u32) -> Result<(), String> {
        let (mut out, mut rounds) = (self.out, rounds);
        let mut arguments = [(&raw mut out).cast::<c_void>(), (&raw mut rounds).cast::<c_void>()];
        cuda!(self.cuda, "cuLaunchKernel"(
            *mut c_void = self.function,
            c_uint = BLOCKS, c_uint = 1, c_uint = 1,
            c_uint = THREADS, c_uint = 1, c_uint = 1,
            c_uint = 0, *mut c_void = ptr::null_mut(),
            *mut *mut c_void = arguments.as_mut_ptr(), *mut *mut c_void = ptr::null_mut()
        ))?;
        cuda!(self.cuda, "cuCtxSynchronize"())
    }

    /// How many rounds make a launch of the wanted length.
    fn calibrate(&self) -> u32 {
        const TRIED: u32 = 10_000;
        self.launch(TRIED).unwrap();
        let began = Instant::now();
        self.launch(TRIED).unwrap();
        let took = began.elapsed().as_secs_f64().max(1e-6);
        (f64::from(TRIED) * LAUNCH.as_secs_f64() / took).clamp(1.0, 1e8) as u32
    }
}
