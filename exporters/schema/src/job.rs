//! Jobs: who holds which GPUs, as a scheduler tells it in one go for the whole cluster.

use serde::{Deserialize, Serialize};

use crate::{SanitizedText, UnixMs};

/// Every job that one scheduler says is running. It replaces what it said before; an empty one withdraws it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobList {
    /// Who says it, as a person would look it up: the name of a file.
    pub source: SanitizedText,
    /// The jobs.
    pub jobs: Vec<SchedulerJob>,
}

/// One running job. What the scheduler does not say is none, and never empty text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerJob {
    /// Its number or name, as the nodes' own pages write it.
    pub id: SanitizedText,
    /// What the user calls it.
    pub name: Option<SanitizedText>,
    /// Who submitted it.
    pub user: Option<SanitizedText>,
    /// Who pays for it.
    pub account: Option<SanitizedText>,
    /// The queue that it runs in.
    pub partition: Option<SanitizedText>,
    /// When it started.
    pub started: Option<UnixMs>,
    /// When it will be stopped at the latest.
    pub ends: Option<UnixMs>,
    /// What it holds.
    pub holds: Vec<JobAllocation>,
}

/// What a job holds of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAllocation {
    /// The node's name.
    pub node: SanitizedText,
    /// The indexes of the GPUs that it holds there; none if the scheduler does not say which.
    pub gpus: Option<Vec<u32>>,
    /// Whether the node is the job's alone, so that every GPU of it is.
    pub whole: bool,
}
