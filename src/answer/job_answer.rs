//! Jobs: one of them in full.

use gaunt_schema::{GpuState, SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

use super::{AnswerTable, Finding, StateCount};

/// One job in full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobDetail {
    /// The owner's clock when this was true.
    pub at: UnixMs,
    /// Its number.
    pub job: SanitizedText,
    /// What is known of it: the row of the table of jobs, every column.
    pub line: AnswerTable,
    /// Its GPUs by state, only states that occur.
    pub states: Vec<StateCount>,
    /// Lost GPUs of it.
    pub lost_gpus: f64,
    /// Its GPUs, in the order of their ranks where these are known, else by node and index.
    pub gpus: AnswerTable,
    /// Open findings that blame it, one of its GPUs, or a node that it is on.
    pub findings: Vec<Finding>,
    /// What its GPUs did in the past that is kept.
    #[serde(default)]
    pub past: JobTimeline,
}

/// What a job's GPUs did of late.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobTimeline {
    /// The time between two points of a strip, in milliseconds.
    pub step_ms: u64,
    /// What most of its GPUs did at each point, a code letter each (`GpuState::code`), oldest first.
    pub most: String,
    /// The GPUs whose states differ most from what most did, the oddest first; a bounded number.
    pub strips: Vec<GpuTimeline>,
    /// The time that the lost GPU time was added up over, in milliseconds.
    pub span_ms: u64,
    /// GPU time that was lost in that time, by the state of the GPUs, the most first.
    pub lost: Vec<StateTime>,
}

/// The states of one GPU over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuTimeline {
    /// Its node.
    pub node: SanitizedText,
    /// Its index there.
    pub gpu: SanitizedText,
    /// A code letter for each point, oldest first.
    pub states: String,
    /// The share of the points at which it did something else than most.
    pub odd_ratio: f64,
}

/// How much GPU time was spent in a state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateTime {
    /// The state.
    pub state: GpuState,
    /// The time of all GPUs together, in hours.
    pub gpu_hours: f64,
}
