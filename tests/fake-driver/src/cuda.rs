//! CUDA's driver in the same library: memory and copies on the host, kernels by name, simulated time, and faults.
//!
//! Work is queued as on a GPU and done when somebody asks for its end: in the order of simulated time, or, if the
//! scenario says `shuffle`, in any order that streams and events allow, so that an order that was forgotten shows.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

mod door;
mod kernel;
mod machine;
mod memory;
mod nccl;
pub(crate) mod scenario;

use self::machine::Machine;
use crate::driver::driver;

/// The machine of this process.
fn machine() -> Result<MutexGuard<'static, Machine>, u32> {
    static MACHINE: OnceLock<Mutex<Machine>> = OnceLock::new();
    let driver = driver().map_err(|_| machine::NOT_INITIALIZED)?;
    let settings = driver.cuda().ok_or(machine::NO_DEVICE)?;
    let machine = MACHINE.get_or_init(|| Mutex::new(Machine::new(settings)));
    Ok(machine.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The processes that CUDA has on a GPU: this one, and the stranger that a scenario lets come.
pub(crate) fn processes(gpu: u32) -> Vec<u32> {
    let Ok(machine) = machine() else { return Vec::new() };
    let own = machine.is_open(gpu).then(std::process::id);
    own.into_iter().chain(machine.stranger()).collect()
}
