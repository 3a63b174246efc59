//! gaunt-probe: what the wires between GPUs really carry, measured in milliseconds on GPUs that nobody uses.
//!
//! A parent process holds the deadline; a worker, the same program executed again, touches the GPUs and may be killed.

pub mod auto;
mod collective;
mod cuda;
pub mod doctor;
mod ending;
mod idle;
mod measure;
pub mod meet;
mod nccl;
pub mod order;
pub mod past;
mod pattern;
mod perftest;
mod plan;
pub mod ras;
mod reference;
mod supervisor;
mod watch;
pub mod worker;

pub use collective::Collective;
pub use cuda::kernel::Element;
pub use ending::{Ending, Kind, Reason};
pub use plan::MAX_RANKS;
pub use supervisor::supervise;
