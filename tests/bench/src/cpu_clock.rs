//! CPU time of this process: on a machine that others use as well, the only clock that says what a thing costs.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The CPU time that this process has used, in nanoseconds.
pub(crate) fn process_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}
