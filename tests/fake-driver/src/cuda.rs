//! CUDA's driver in the same library: memory and copies on the host, kernels by name, simulated time, and faults.
//!
//! Work is queued as on a GPU and done when somebody asks for its end: in the order of simulated time, or, if the
//! scenario says `shuffle`, in any order that streams and events allow, so that an order that was forgotten shows.

use std::sync::{
    Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicU64, Ordering},
};

mod door;
mod kernel;
mod machine;
mod memory;
mod nccl;
mod remote;
pub(crate) mod scenario;

use self::machine::Machine;
use crate::driver::{Driver, driver};

/// The machine of this process.
fn machine() -> Result<MutexGuard<'static, Machine>, u32> {
    static MACHINE: OnceLock<Mutex<Machine>> = OnceLock::new();
    let driver = driver().map_err(|_| machine::NOT_INITIALIZED)?;
    let settings = driver.cuda().ok_or(machine::NO_DEVICE)?;
    let machine = MACHINE.get_or_init(|| Mutex::new(Machine::new(settings)));
    Ok(machine.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The GPUs with a context, a bit for each, and how many kernels were started: NVML answers while the machine works.
static OPEN: AtomicU64 = AtomicU64::new(0);
static LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// The process that is not ours.
const STRANGER: u32 = 4_000_000;

/// The processes that CUDA has on a GPU: this one, and the stranger that a scenario lets come.
pub(crate) fn processes(gpu: u32) -> Vec<u32> {
    let settings = driver().ok().and_then(Driver::cuda);
    let after = settings.and_then(|settings| settings.process_after_launches);
    let comes = after.is_some_and(|after| LAUNCHES.load(Ordering::Relaxed) >= after);
    let own = (OPEN.load(Ordering::Relaxed) >> gpu & 1 == 1).then(std::process::id);
    own.into_iter().chain(comes.then_some(STRANGER)).collect()
}
