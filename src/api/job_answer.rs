//! Jobs: the detail answer of one job.

use gaunt_schema::{GpuState, SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

use super::{AnswerTable, Finding, StateCount};

/// Detail of one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct JobDetail {
    /// Engine time of this answer.
    pub at: UnixMs,
    /// Its id.
    pub job: SanitizedText,
    /// Its row of the jobs table, all columns.
    pub line: AnswerTable,
    /// Its GPUs by state; only states that occur.
    pub states: Vec<StateCount>,
    /// Its lost GPUs.
    pub lost_gpus: f64,
    /// Its GPUs by rank where known, else by node and index.
    pub gpus: AnswerTable,
    /// Open findings on the job, one of its GPUs, or one of its nodes.
    pub findings: Vec<Finding>,
    /// Recent history of its GPU states.
    #[serde(default)]
    pub past: JobTimeline,
}

/// Recent GPU states of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct JobTimeline {
    /// Time between two points, in milliseconds.
    pub step_ms: u64,
    /// The most frequent GPU state at each point, as code letters (`GpuState::code`), oldest first.
    pub most: String,
    /// The GPUs whose states differ most from the most frequent one, largest difference first; a bounded number.
    pub strips: Vec<GpuTimeline>,
    /// The period over which lost GPU time is summed, in milliseconds.
    pub span_ms: u64,
    /// GPU time lost in that period, by GPU state, largest first.
    pub lost: Vec<StateTime>,
}

/// The states of one GPU over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GpuTimeline {
    /// Its node.
    pub node: SanitizedText,
    /// Its index there.
    pub gpu: SanitizedText,
    /// A state code letter for each point, oldest first.
    pub states: String,
    /// Share of the points at which its state differs from the most frequent one.
    #[cfg_attr(test, schemars(range(min = 0, max = 1)))]
    pub odd_ratio: f64,
}

/// GPU time spent in a state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StateTime {
    /// The state.
    pub state: GpuState,
    /// The time of all GPUs together, in hours.
    pub gpu_hours: f64,
}
