//! gaunt-probe: measures the bandwidth of GPU interconnects, in milliseconds, on idle GPUs.
//!
//! A parent process enforces the deadline; a worker, the same program executed again, uses the GPUs and may be killed.

pub mod auto;
pub mod baselines;
mod collective_kind;
mod collective_plan;
pub mod cross_node;
mod cuda;
pub mod doctor;
mod exit_code;
mod idle_check;
mod idle_watch;
mod measure;
mod nccl_ffi;
mod pattern;
mod perftest;
mod probe_supervisor;
pub mod probe_worker;
pub mod ras;
mod reference_bandwidth;
pub mod request;

pub use collective_kind::Collective;
pub use collective_plan::MAX_RANKS;
pub use cuda::kernel_set::ElementType;
pub use exit_code::{ExitKind, ProbeExit, SkipReason};
pub use probe_supervisor::run_supervised;
