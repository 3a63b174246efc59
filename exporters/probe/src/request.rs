//! A measurement request and its limits, sent by the parent and executed by the worker; and its result.

use std::path::PathBuf;

use gaunt_schema::SanitizedText;
use serde::{Deserialize, Serialize};

use crate::{
    collective_kind::Collective,
    collective_plan::CollectivePlan,
    cuda::{gpu_context::ProbeGpu, kernel_set::ElementType},
    exit_code::{ExitKind, ProbeExit},
};

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasureRequest {
    /// What is measured.
    pub what: MeasureKind,
    /// The GPUs by their NVML index; all if none are named.
    pub gpus: Vec<u32>,
    /// Bytes of the message.
    pub bytes: usize,
    /// Its element type.
    pub element: ElementType,
    /// Timed runs.
    pub runs: usize,
    /// Warm-up runs before them.
    pub warm_up: usize,
    /// Streams of each rank.
    pub channels: usize,
    /// Whether missing peer access between GPUs is an error.
    pub require_peer: bool,
    /// Whether to measure on GPUs that other processes use.
    pub even_if_busy: bool,
    /// Paths that mark a job: none may exist. The last part may end in `*`.
    pub unless: Vec<PathBuf>,
    /// The limits.
    pub limits: MeasureLimits,
    /// Libraries to open instead of what the loader finds.
    pub libraries: LibraryPaths,
    /// Whether NCCL is also measured, if installed.
    pub nccl: bool,
    /// The pair's settings.
    pub meeting: Option<PairSetup>,
}

/// The settings of a pair.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PairSetup {
    /// The key from rank 0; none for rank 0, which creates it.
    pub key: Option<String>,
    /// The port to use, in NCCL's notation: `mlx5_0:1`. With none NCCL chooses.
    pub port: Option<String>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasureKind {
    /// A collective with so many ranks; with none, one for each GPU.
    Collective(Collective, Option<usize>),
    /// Every pair of GPUs in both directions, and every GPU with the host.
    Matrix,
    /// One GPU with one of another node, with NCCL: this side is rank 0 or 1.
    Pair(usize),
}

/// Paths of libraries that the loader does not find.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LibraryPaths {
    /// CUDA's driver.
    pub cuda: Option<PathBuf>,
    /// NVML.
    pub nvml: Option<PathBuf>,
    /// NCCL.
    pub nccl: Option<PathBuf>,
}

/// The limits of a probe. Each is checked before or while it is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasureLimits {
    /// Milliseconds of GPU time; no further run begins after them.
    pub busy_millis: u64,
    /// Milliseconds from the first run to the result, enforced from outside.
    pub within_millis: u64,
    /// Milliseconds for contexts and memory before that, enforced from outside.
    pub setup_millis: u64,
    /// Bytes that cross between GPUs, or between one and the host.
    pub traffic_bytes: u64,
    /// Bytes of memory on one GPU.
    pub memory_bytes: u64,
    /// Multiprocessors of one GPU.
    pub sms: u32,
}

/// For a collective of 64 MiB on 8 GPUs: 9 runs of 1.75 times that over 8 links are 8 GB and about 10 ms on NVLink.
pub const COLLECTIVE: MeasureLimits = MeasureLimits {
    busy_millis: 500,
    within_millis: 2_000,
    setup_millis: 60_000,
    traffic_bytes: 64 << 30,
    memory_bytes: 1 << 30,
    sms: 32,
};

/// For a matrix of 8 GPUs and 64 MiB: 136 routes of 6 runs are 53 GB, 2 s if all of it goes over PCIe.
pub const MATRIX: MeasureLimits = MeasureLimits {
    busy_millis: 4_000,
    within_millis: 15_000,
    setup_millis: 60_000,
    traffic_bytes: 256 << 30,
    memory_bytes: 1 << 30,
    sms: 32,
};

impl MeasureLimits {
    /// Checks a plan against the limits: its memory on each GPU, and at least one run's traffic.
    pub(crate) fn check_plan(
        &self,
        plan: &CollectivePlan,
        memory: &[usize],
        element: ElementType,
    ) -> Result<(), ProbeExit> {
        self.check_memory(memory)?;
        let traffic = (plan.crossing_elements(memory.len()) * element.byte_size()) as u64;
        if traffic > self.traffic_bytes {
            let limit = self.traffic_bytes;
            return Err(ProbeExit::new(
                ExitKind::OverLimit,
                format!(
                    "one run moves {traffic} bytes, the limit is {limit}: lower --bytes or raise --traffic"
                ),
            ));
        }
        Ok(())
    }

    /// Checks the memory on each GPU against the limit.
    pub(crate) fn check_memory(&self, memory: &[usize]) -> Result<(), ProbeExit> {
        let needed = memory.iter().copied().max().unwrap_or(0) as u64;
        let limit = self.memory_bytes;
        if needed > limit {
            return Err(ProbeExit::new(
                ExitKind::OverLimit,
                format!(
                    "the request needs {needed} bytes on a GPU, the limit is {limit}: lower --bytes or raise --memory"
                ),
            ));
        }
        Ok(())
    }

    /// Checks the GPU's free memory before any allocation, so that none is taken from a job.
    pub(crate) fn check_free_memory(gpu: &ProbeGpu, needed: usize) -> Result<(), ProbeExit> {
        let free = gpu.free_bytes().map_err(|error| ProbeExit::of(&error, Some(gpu.index)))?;
        if free < needed {
            return Err(ProbeExit::new(
                ExitKind::OutOfMemory,
                format!(
                    "GPU {}: the request needs {needed} bytes, {free} are free: lower --bytes",
                    gpu.index
                ),
            ));
        }
        Ok(())
    }
}

/// The result of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasureResult {
    /// How the probe ended.
    pub ending: ProbeExit,
    /// The GPUs' model.
    pub model: Option<SanitizedText>,
    /// What was measured.
    pub measured: Vec<BandwidthMeasurement>,
    /// Notes on the measurement.
    pub notes: Vec<SanitizedText>,
    /// The cost.
    pub cost: MeasureCost,
}

impl MeasureResult {
    /// Nothing was measured.
    pub(crate) fn from_exit(exit: ProbeExit) -> Self {
        let cost = MeasureCost::default();
        Self { ending: exit, model: None, measured: Vec::new(), notes: Vec::new(), cost }
    }
}

/// The cost of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasureCost {
    /// Seconds from start to result.
    pub seconds: f64,
    /// Seconds of them until every GPU had a context and kernels.
    pub contexts_seconds: f64,
    /// Seconds of GPU time.
    pub busy_seconds: f64,
    /// Bytes that crossed between GPUs, or between one and the host.
    pub traffic_bytes: u64,
    /// The most bytes of memory on one GPU.
    pub memory_bytes: u64,
}

/// The tool whose copies and kernels were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasureTool {
    /// Our kernels.
    Gaunt,
    /// The driver's copies.
    Driver,
    /// NCCL.
    Nccl,
}

impl MeasureTool {
    /// Its name as a label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gaunt => "gaunt",
            Self::Driver => "driver",
            Self::Nccl => "nccl",
        }
    }
}

/// The path of the data between GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataPath {
    /// Within one GPU, over no link.
    Local,
    /// One GPU's kernels access another one's memory.
    Peer,
    /// The driver's copies, through the host's memory.
    Staged,
    /// Some of it by peer access, some through the host.
    Mixed,
    /// Between a GPU and pinned memory of the host.
    Host,
    /// The path that NCCL chose.
    Chosen,
}

impl DataPath {
    /// Its name as a label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Peer => "peer",
            Self::Staged => "staged",
            Self::Mixed => "mixed",
            Self::Host => "host",
            Self::Chosen => "chosen",
        }
    }
}

/// One measured bandwidth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BandwidthMeasurement {
    /// A collective's name, or `read`, `write`, `copy`, `to_gpu`, `from_gpu`.
    pub collective: SanitizedText,
    /// The GPUs: `gpu0..7`, or `gpu0>gpu3` for data from 0 to 3.
    pub between: SanitizedText,
    /// The tool that did it.
    pub tool: MeasureTool,
    /// The path of the data.
    pub way: DataPath,
    /// The number of ranks; more than GPUs if some were virtual.
    pub ranks: usize,
    /// Whether several ranks shared a GPU: then links carried less than the numbers show.
    pub virtual_ranks: bool,
    /// Bytes of the message, as nccl-tests counts them.
    pub bytes: u64,
    /// Its element type.
    pub element: ElementType,
    /// Seconds of the runs: minimum, median, maximum.
    pub seconds: [f64; 3],
    /// The number of measured runs.
    pub runs: usize,
    /// Bytes over seconds, by the median.
    pub algbw: f64,
    /// The bandwidth of each link, as nccl-tests defines it; none if no link was used.
    pub busbw: Option<f64>,
    /// The reference bandwidth of this model, if there is one.
    #[serde(default)]
    pub reference: Option<f64>,
    /// Wrong elements over all runs.
    pub wrong: u64,
    /// Where the first of them was.
    pub wrong_at: Option<SanitizedText>,
}

impl BandwidthMeasurement {
    /// The bandwidth as one number: the bus bandwidth, or the algorithm bandwidth if no link was used.
    pub fn effective_bandwidth(&self) -> f64 {
        self.busbw.unwrap_or(self.algbw)
    }
}

/// Minimum, median and maximum of the seconds of some runs.
pub(crate) fn min_median_max(mut seconds: Vec<f64>) -> Option<[f64; 3]> {
    seconds.sort_by(f64::total_cmp);
    let middle = seconds.len() / 2;
    let (min, max) = (*seconds.first()?, *seconds.last()?);
    let median = if seconds.len() % 2 == 1 {
        seconds[middle]
    } else {
        f64::midpoint(seconds[middle - 1], seconds[middle])
    };
    Some([min, median, max])
}

/// The name of some GPUs: `gpu0..7`, or `gpu0,2`.
pub(crate) fn gpu_group_name(indices: &[u32]) -> String {
    let in_order = indices.windows(2).all(|pair| pair[1] == pair[0] + 1);
    match indices {
        [index] => format!("gpu{index}"),
        [first, .., last] if in_order => format!("gpu{first}..{last}"),
        indices => {
            let names: Vec<String> = indices.iter().map(u32::to_string).collect();
            format!("gpu{}", names.join(","))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(min_median_max(vec![3.0, 1.0, 2.0]), Some([1.0, 2.0, 3.0]));
        assert_eq!(min_median_max(vec![4.0, 1.0]), Some([1.0, 2.5, 4.0]));
        assert_eq!(min_median_max(Vec::new()), None);
    }

    #[test]
    fn gpu_groups_have_short_names() {
        assert_eq!(gpu_group_name(&[3]), "gpu3");
        assert_eq!(gpu_group_name(&[0, 1, 2, 3]), "gpu0..3");
        assert_eq!(gpu_group_name(&[0, 2]), "gpu0,2");
    }
}
