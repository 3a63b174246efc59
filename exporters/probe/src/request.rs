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
    /// What it consists of.
    pub element: ElementType,
    /// Timed runs.
    pub runs: usize,
    /// Warm-up runs before them.
    pub warm_up: usize,
    /// Streams of each rank.
    pub channels: usize,
    /// Whether missing peer access between GPUs is an error.
    pub require_peer: bool,
    /// Whether to measure on GPUs that others use.
    pub even_if_busy: bool,
    /// Paths of which none may exist: a job is there or starting. A `*` ends the last part.
    pub unless: Vec<PathBuf>,
    /// The limits.
    pub limits: MeasureLimits,
    /// Libraries to open instead of what the loader finds.
    pub libraries: LibraryPaths,
    /// Whether NCCL is measured beside, where it is found.
    pub nccl: bool,
    /// The settings of a pair.
    pub meeting: Option<PairSetup>,
}

/// How a pair comes together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PairSetup {
    /// The key that rank 0 gave out; none for rank 0, which makes it.
    pub key: Option<String>,
    /// The port that carries it, as NCCL names it: `mlx5_0:1`. None leaves the choice to NCCL.
    pub port: Option<String>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasureKind {
    /// A collective among so many ranks; one for each GPU if none are said.
    Collective(Collective, Option<usize>),
    /// Every pair of GPUs in both directions, and every GPU with the host.
    Matrix,
    /// One GPU with one of another node, by NCCL: this side is rank 0 or 1.
    Pair(usize),
}

/// Where libraries are, if not where the loader looks.
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

/// For a matrix of 8 GPUs and 64 MiB: 136 ways of 6 runs are 53 GB, 2 s where all of it goes over PCIe.
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
        let crossing = (plan.crossing_elements(memory.len()) * element.byte_size()) as u64;
        if crossing > self.traffic_bytes {
            let limit = self.traffic_bytes;
            return Err(ProbeExit::new(
                ExitKind::OverLimit,
                format!(
                    "one run moves {crossing} bytes and the limit is {limit}: use less --bytes, or raise --traffic"
                ),
            ));
        }
        Ok(())
    }

    /// Checks the memory on each GPU against the limit.
    pub(crate) fn check_memory(&self, memory: &[usize]) -> Result<(), ProbeExit> {
        let most = memory.iter().copied().max().unwrap_or(0) as u64;
        let limit = self.memory_bytes;
        if most > limit {
            return Err(ProbeExit::new(
                ExitKind::OverLimit,
                format!(
                    "it needs {most} bytes on a GPU and the limit is {limit}: use less --bytes, or raise --memory"
                ),
            ));
        }
        Ok(())
    }

    /// Whether the GPUs have the memory now; asking first leaves what a job may want untouched.
    pub(crate) fn check_free_memory(gpu: &ProbeGpu, needed: usize) -> Result<(), ProbeExit> {
        let free = gpu.free_bytes().map_err(|error| ProbeExit::of(&error, Some(gpu.index)))?;
        if free < needed {
            return Err(ProbeExit::new(
                ExitKind::OutOfMemory,
                format!(
                    "GPU {}: it needs {needed} bytes and {free} are free: use less --bytes",
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
    pub(crate) fn from_exit(ending: ProbeExit) -> Self {
        let cost = MeasureCost::default();
        Self { ending, model: None, measured: Vec::new(), notes: Vec::new(), cost }
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

/// The path of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataPath {
    /// Within one GPU: this says nothing of any link.
    Local,
    /// One GPU's kernels in another one's memory.
    Peer,
    /// The driver's copies, through the host's memory.
    Staged,
    /// Some of it by peer access, some through the host.
    Mixed,
    /// Between a GPU and pinned memory of the host.
    Host,
    /// As NCCL chose.
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
    /// Between whom: `gpu0..7`, or `gpu0>gpu3` for what flows from 0 to 3.
    pub between: SanitizedText,
    /// Whose work it was.
    pub tool: MeasureTool,
    /// The way that it took.
    pub way: DataPath,
    /// How many ranks there were; more than GPUs if some were virtual.
    pub ranks: usize,
    /// Whether several ranks shared a GPU: then links carried less than the numbers say.
    pub virtual_ranks: bool,
    /// Bytes of the message, as nccl-tests counts them.
    pub bytes: u64,
    /// What it consisted of.
    pub element: ElementType,
    /// Seconds of the runs: least, median, most.
    pub seconds: [f64; 3],
    /// How many runs counted.
    pub runs: usize,
    /// Bytes over seconds, by the median.
    pub algbw: f64,
    /// What each link carried, as nccl-tests defines it; absent where no link did.
    pub busbw: Option<f64>,
    /// The least that boards of this model should reach, where somebody says one.
    #[serde(default)]
    pub reference: Option<f64>,
    /// Elements that were not what they had to be, over all runs.
    pub wrong: u64,
    /// Where the first of them was.
    pub wrong_at: Option<SanitizedText>,
}

impl BandwidthMeasurement {
    /// The bandwidth as one number: the bus bandwidth, or the plain one if there is no bus.
    pub fn effective_bandwidth(&self) -> f64 {
        self.busbw.unwrap_or(self.algbw)
    }
}

/// Least, median and most of the seconds of some runs.
pub(crate) fn min_median_max(mut seconds: Vec<f64>) -> Option<[f64; 3]> {
    seconds.sort_by(f64::total_cmp);
    let middle = seconds.len() / 2;
    let (least, most) = (*seconds.first()?, *seconds.last()?);
    let median = if seconds.len() % 2 == 1 {
        seconds[middle]
    } else {
        f64::midpoint(seconds[middle - 1], seconds[middle])
    };
    Some([least, median, most])
}

/// Some GPUs in one word: `gpu0..7`, or `gpu0,2`.
pub(crate) fn gpu_group_name(indices: &[u32]) -> String {
    let in_order = indices.windows(2).all(|pair| pair[1] == pair[0] + 1);
    match indices {
        [one] => format!("gpu{one}"),
        [first, .., last] if in_order => format!("gpu{first}..{last}"),
        all => {
            let all: Vec<String> = all.iter().map(u32::to_string).collect();
            format!("gpu{}", all.join(","))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_stands_in_the_middle() {
        assert_eq!(min_median_max(vec![3.0, 1.0, 2.0]), Some([1.0, 2.0, 3.0]));
        assert_eq!(min_median_max(vec![4.0, 1.0]), Some([1.0, 2.5, 4.0]));
        assert_eq!(min_median_max(Vec::new()), None);
    }

    #[test]
    fn groups_are_named_shortly() {
        assert_eq!(gpu_group_name(&[3]), "gpu3");
        assert_eq!(gpu_group_name(&[0, 1, 2, 3]), "gpu0..3");
        assert_eq!(gpu_group_name(&[0, 2]), "gpu0,2");
    }
}
