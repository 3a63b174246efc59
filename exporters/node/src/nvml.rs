//! GPUs through NVML: a worker process makes the driver calls and sends the results to the parent over a pipe.
//!
//! The driver can block for ever inside a call, in a state in which nothing can end it. So only the worker calls it,
//! and the parent never waits for the worker.

mod driver_call;
mod gpu_inventory;
mod imex_daemon;
mod kernel_log;
pub(crate) mod nvml_collector;
mod nvml_driver;
mod nvml_ffi;
pub mod nvml_worker;
mod process_owners;
mod worker_pipe;
mod worker_supervisor;
mod xid_counts;
mod xid_tracker;
