//! The CUDA part of a scenario: speeds, missing peer access, faults.

use std::path::PathBuf;

use serde::Deserialize;

/// CUDA's side of the scenario's GPUs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CudaScenario {
    /// The CUDA version that the driver supports.
    #[serde(default = "default_version")]
    pub(crate) version: i32,
    /// The compute capability of the GPUs: 90 is sm_90.
    #[serde(default = "default_capability")]
    pub(crate) capability: i32,
    /// Allocatable memory of each GPU.
    #[serde(default = "default_memory")]
    pub(crate) memory_bytes: usize,
    /// Speed between two GPUs, in each direction.
    #[serde(default = "default_link_speed")]
    pub(crate) link_gigabytes_per_second: f64,
    /// Speed of a copy within a GPU.
    #[serde(default = "default_local_speed")]
    pub(crate) local_gigabytes_per_second: f64,
    /// Speed between a GPU and the host.
    #[serde(default = "default_host_speed")]
    pub(crate) host_gigabytes_per_second: f64,
    /// Speed between a GPU here and one of another process.
    #[serde(default = "default_remote_speed")]
    pub(crate) remote_gigabytes_per_second: f64,
    /// The additional duration of every kernel and copy.
    #[serde(default = "default_latency")]
    pub(crate) latency_microseconds: f64,
    /// Whether GPUs have peer access to each other.
    #[serde(default = "default_true")]
    pub(crate) peer: bool,
    /// The seed of a random order of work, instead of the order of time.
    pub(crate) shuffle: Option<u64>,
    /// A file to which a line is appended when a context ends: what was not freed in it.
    pub(crate) ledger: Option<PathBuf>,
    /// After so many kernels another process starts on every GPU.
    pub(crate) process_after_launches: Option<u64>,
    /// Pairs of GPUs that differ from the others.
    #[serde(default, rename = "link")]
    pub(crate) links: Vec<CudaLinkScenario>,
    /// The faults.
    #[serde(default, rename = "fault")]
    pub(crate) faults: Vec<CudaFault>,
}

/// The link from one GPU to another.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CudaLinkScenario {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) gigabytes_per_second: Option<f64>,
    #[serde(default = "default_true")]
    pub(crate) peer: bool,
}

/// A fault of a call, or of a kernel on the GPU.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CudaFault {
    /// The C function.
    pub(crate) call: Option<String>,
    /// The kernel.
    pub(crate) kernel: Option<String>,
    /// The GPU; without it all GPUs.
    pub(crate) gpu: Option<u32>,
    /// The n-th matching call, counted from one.
    #[serde(default = "default_nth")]
    pub(crate) nth: u64,
    /// The code that is returned; that of a kernel stays with the context.
    pub(crate) error: Option<u32>,
    /// Whether it never ends.
    #[serde(default)]
    pub(crate) hang: bool,
    /// Whether a kernel flips a bit of what it writes.
    #[serde(default)]
    pub(crate) wrong: bool,
}

impl CudaScenario {
    /// The error in its faults, if any.
    pub(crate) fn invalid_fault(&self) -> Option<String> {
        let mut faults = self.faults.iter().enumerate();
        let (index, _) = faults.find(|(_, fault)| {
            let has_effect = fault.error.is_some() || fault.hang || fault.wrong;
            let names_one = fault.call.is_some() != fault.kernel.is_some();
            !has_effect || !names_one || (fault.wrong && fault.kernel.is_none())
        })?;
        Some(format!("cuda.fault {}: set call or kernel, and error, hang or wrong", index + 1))
    }
}

fn default_version() -> i32 {
    12_080
}

fn default_capability() -> i32 {
    90
}

fn default_memory() -> usize {
    1 << 30
}

fn default_link_speed() -> f64 {
    400.0
}

fn default_local_speed() -> f64 {
    1_500.0
}

fn default_host_speed() -> f64 {
    50.0
}

fn default_remote_speed() -> f64 {
    48.0
}

fn default_latency() -> f64 {
    2.0
}

fn default_true() -> bool {
    true
}

fn default_nth() -> u64 {
    1
}
