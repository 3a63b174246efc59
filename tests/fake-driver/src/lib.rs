//! NVML's C symbols answered from a scenario file, so that the exporter and the real nvml-wrapper are tested together.
//!
//! The file is named by the environment variable `GAUNT_FAKE_DRIVER`. A file that cannot be taken fails `nvmlInit`
//! and says why on standard error.

mod door;
mod driver;
mod scenario;
