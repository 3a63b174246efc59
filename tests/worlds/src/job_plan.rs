//! The jobs of a world: their nodes, how their steps are spent, and their pauses.

use std::ops::Range;

/// One job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPlan {
    /// Its nodes, as indices.
    pub nodes: Vec<usize>,
    /// The GPUs that it uses on each of them.
    pub gpus: Range<usize>,
    /// What it does.
    pub kind: JobKind,
    /// When it runs, in seconds since the start of the run; may begin before and end after it.
    pub runs_s: Range<f64>,
    /// Duration of a step in seconds, with no fault.
    pub step_s: f64,
    /// How a step is spent.
    pub step: StepPlan,
    /// Ranks that wait in a collective spin: the GPU is busy at little power. Otherwise they are idle.
    pub spins_while_waiting: bool,
    /// All ranks pause to write a checkpoint.
    pub checkpoint: Option<PausePlan>,
    /// All ranks evaluate: forward passes without gradients, hardly any collectives.
    pub evaluation: Option<PausePlan>,
    /// Slow, harmless change of the amount of work per step: share by which it has grown at the end of the run.
    pub work_drift: f64,
    /// An instant at which the work per step changes by a share for good, in seconds since the start of the run.
    pub work_change: Option<(f64, f64)>,
    /// Whether it ends in a crash: its ports lose their peers within seconds, with timeouts and retries.
    pub ends_in_crash: bool,
}

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobKind {
    /// Synchronous training: all ranks meet in every step.
    Train,
    /// Training in which two halves of the nodes alternate, such as rollouts and learning.
    Alternate,
    /// Inference servers: each GPU group answers requests by itself.
    Serve,
    /// The GPUs are allocated and nothing runs.
    Idle,
}

/// How a step of a rank is spent: shares of [`JobPlan::step_s`], without waiting for others.
#[derive(Clone, Debug, PartialEq)]
pub struct StepPlan {
    /// Compute on the GPU.
    pub compute: f64,
    /// Copies between host and GPU over PCIe.
    pub host_copy: f64,
    /// The host prepares: kernel launches, the interpreter, data loading that is not hidden.
    pub host: f64,
    /// Collectives inside a node, over NVLink or PCIe.
    pub node_collective: f64,
    /// Collectives between nodes, over the rails.
    pub network_collective: f64,
    /// Share of the network collective that compute hides.
    pub overlap: f64,
    /// Share of the rails' rate that the collective reaches.
    pub network_intensity: f64,
    /// Steps of silence of the network between two exchanges (gradient accumulation): 0 for none.
    pub accumulation_steps: usize,
    /// Pipeline stages: consecutive groups of nodes. 1 for none.
    pub pipeline_stages: usize,
    /// Relative work of each pipeline stage, with a mean of 1: uneven by design.
    pub stage_work: Vec<f64>,
    /// GPUs of a tensor-parallel group: they exchange within layers.
    pub tensor_group: usize,
    /// Seconds of prefetched batches that hide a slow data loader.
    pub prefetch_s: f64,
    /// Bytes per second and node that the data loader reads from shared storage.
    pub read_bytes_per_s: f64,
    /// Rank-to-rank spread of the work in each step (experts, sequence lengths), as a standard deviation.
    pub work_spread: f64,
    /// Tensor-pipe share of compute: 0 for jobs in FP64 or FP32.
    pub tensor_share: f64,
    /// Memory-bandwidth share of compute.
    pub memory_share: f64,
    /// Power while computing, as a share of the limit.
    pub compute_power: f64,
}

/// A pause that all ranks of a job make together, again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct PausePlan {
    /// The first one, in seconds since the start of the run.
    pub first_s: f64,
    /// From one to the next.
    pub every_s: f64,
    /// Duration.
    pub lasts_s: f64,
    /// One rank works and all others wait.
    pub is_by_one_rank: bool,
}
