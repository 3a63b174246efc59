//! GPU time: what the GPUs of each job do now, and the time that each has lost, by cause.

use gaunt_schema::{SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

use super::StateCount;

/// The job under which the time of jobs is told that ended long ago.
pub const ENDED: &str = "(ended)";

/// What stands for the job of GPUs that nobody holds. It is no empty text: Prometheus would put its own scrape job there.
pub const NOBODY: &str = "(nobody)";

/// GPU time by job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuTime {
    /// The owner's clock when this was true.
    pub at: UnixMs,
    /// What the GPUs of each job do, the largest jobs first; a bounded number.
    pub jobs: Vec<JobTime>,
    /// Jobs beyond that number.
    pub unlisted_jobs: u32,
    /// GPU time that was lost since counting began, by job and cause; it only grows.
    pub starved: Vec<JobLostTime>,
}

/// What the GPUs of one job do now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobTime {
    /// The job.
    pub job: SanitizedText,
    /// GPUs that it holds.
    pub gpus: u32,
    /// Them by state, only states that occur.
    pub states: Vec<StateCount>,
    /// Lost GPUs of it.
    pub lost_gpus: f64,
}

/// GPU time that one job lost for one cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobLostTime {
    /// The job; `(nobody)` for GPUs of which nobody says who holds them.
    pub job: SanitizedText,
    /// The kind of the finding that it is attributed to; else `idle` or `unexplained`.
    pub cause: SanitizedText,
    /// Seconds, summed over GPUs.
    pub gpu_seconds: f64,
}
