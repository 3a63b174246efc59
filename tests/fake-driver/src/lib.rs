//! NVML's and the CUDA driver's C symbols answered from a scenario file, so that our programs are tested without a GPU.
//!
//! The file is named by the environment variable `GAUNT_FAKE_DRIVER`. A file that cannot be taken fails `nvmlInit`
//! and says why on standard error.

mod driver_scenario;
mod driver_state;
mod fake_cuda;
mod nvml_symbols;
