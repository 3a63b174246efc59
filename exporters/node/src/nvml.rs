//! GPUs through NVML: a worker process makes the driver calls, and the parent reads what it says over a pipe.
//!
//! The driver can block for ever inside a call, in a state in which nothing can end it. So only the worker calls it,
//! and the parent never waits for the worker.

mod call;
pub(crate) mod collector;
mod door;
mod driver;
mod gpus;
mod kernel_log;
mod owners;
mod pipe;
mod supervisor;
pub mod worker;
mod xid_counts;
mod xids;
