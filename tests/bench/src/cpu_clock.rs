//! CPU time of this process: the only clock that measures cost on a shared machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The CPU time that this process has used, with a resolution of nanoseconds.
pub(crate) fn process_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}
