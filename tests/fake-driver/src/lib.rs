//! NVML's and the CUDA driver's C symbols, implemented from a scenario file, to test our programs without a GPU.
//!
//! The file is named by the environment variable `GAUNT_FAKE_DRIVER`. With an invalid file `nvmlInit`
//! fails, and the reason is printed on standard error.

#[cfg(test)]
mod cuda_calls;
mod driver_scenario;
mod driver_state;
mod fake_cuda;
#[cfg(test)]
mod nvml_calls;
mod nvml_symbols;
