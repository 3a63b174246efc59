//! GPU time: current GPU states of each job, and lost time by job and cause.

use gaunt_schema::{SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

use super::StateCount;

/// Job name for the time of jobs that ended long ago.
pub const ENDED: &str = "(ended)";

/// Job name for unallocated GPUs. It is not an empty text, because Prometheus would put its own scrape job there.
pub const NOBODY: &str = "(nobody)";

/// What tables show in place of the job of unallocated GPUs.
pub const NO_JOB: &str = "(no job)";

/// GPU time by job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GpuTime {
    /// Engine time of this answer.
    pub at: UnixMs,
    /// Current GPU states of each job, the largest jobs first; a bounded number.
    pub jobs: Vec<JobTime>,
    /// Number of jobs beyond that limit.
    pub unlisted_jobs: u32,
    /// Lost GPU time since counting began, by job and cause; monotonic.
    pub starved: Vec<JobLostTime>,
}

/// Current GPU states of one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct JobTime {
    /// The job.
    pub job: SanitizedText,
    /// GPUs that it holds.
    pub gpus: u32,
    /// Its GPUs by state; only states that occur.
    pub states: Vec<StateCount>,
    /// Its lost GPUs.
    pub lost_gpus: f64,
}

/// GPU time that one job lost for one cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct JobLostTime {
    /// The job; `(nobody)` for GPUs without a known allocation.
    pub job: SanitizedText,
    /// Kind of the finding that it is attributed to; else `idle` or `unexplained`.
    pub cause: SanitizedText,
    /// Seconds, summed over GPUs.
    pub gpu_seconds: f64,
}
