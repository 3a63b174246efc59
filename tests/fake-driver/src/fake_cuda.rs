//! CUDA's driver in the same library: memory and copies on the host, kernels by name, simulated time, and faults.
//!
//! Work is queued as on a GPU and executed when its completion is queried: in the order of simulated time, or, if the
//! scenario sets `shuffle`, in any order that streams and events allow, so that a missing dependency shows.

use std::sync::{
    Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicU64, Ordering},
};

mod cuda_codes;
mod cuda_machine;
pub(crate) mod cuda_scenario;
mod cuda_symbols;
mod emulated_kernels;
mod fake_memory;
mod nccl_symbols;
mod remote_rank;

use self::cuda_machine::FakeCudaMachine;
use crate::driver_state::{FakeDriver, shared_driver};

/// The machine of this process.
fn lock_machine() -> Result<MutexGuard<'static, FakeCudaMachine>, u32> {
    static MACHINE: OnceLock<Mutex<FakeCudaMachine>> = OnceLock::new();
    let driver = shared_driver().map_err(|_| cuda_codes::NOT_INITIALIZED)?;
    let settings = driver.cuda_scenario().ok_or(cuda_codes::NO_DEVICE)?;
    let machine = MACHINE.get_or_init(|| Mutex::new(FakeCudaMachine::new(settings)));
    Ok(machine.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The GPUs with a context, a bit for each, and the number of kernel launches: NVML reads them without the lock.
static OPEN: AtomicU64 = AtomicU64::new(0);
static LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// The id of the simulated other process.
const OTHER_PROCESS: u32 = 4_000_000;

/// The processes on a GPU: this one, and the other one that a scenario starts.
pub(crate) fn list_processes(gpu: u32) -> Vec<u32> {
    let settings = shared_driver().ok().and_then(FakeDriver::cuda_scenario);
    let threshold = settings.and_then(|settings| settings.process_after_launches);
    let started = threshold.is_some_and(|threshold| LAUNCHES.load(Ordering::Relaxed) >= threshold);
    let own_process = (OPEN.load(Ordering::Relaxed) >> gpu & 1 == 1).then(std::process::id);
    own_process.into_iter().chain(started.then_some(OTHER_PROCESS)).collect()
}
