//! Jobs: which jobs hold which GPUs, as a scheduler reports it for the whole cluster at once.

use serde::{Deserialize, Serialize};

use crate::{SanitizedText, UnixMs};

/// All running jobs of one scheduler. It replaces the previous list; an empty one withdraws it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobList {
    /// The name of the source for display: a file name.
    pub source: SanitizedText,
    /// The jobs.
    pub jobs: Vec<SchedulerJob>,
}

/// One running job. A field that the scheduler does not report is none, and never empty text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerJob {
    /// Its number or name, as on the nodes' own pages.
    pub id: SanitizedText,
    /// The name that the user gave it.
    pub name: Option<SanitizedText>,
    /// The user that submitted it.
    pub user: Option<SanitizedText>,
    /// The account that it is charged to.
    pub account: Option<SanitizedText>,
    /// The queue that it runs in.
    pub partition: Option<SanitizedText>,
    /// When it started.
    pub started: Option<UnixMs>,
    /// Its end by the time limit.
    pub ends: Option<UnixMs>,
    /// Its allocations.
    pub holds: Vec<JobAllocation>,
}

/// The allocation of a job on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAllocation {
    /// The node's name.
    pub node: SanitizedText,
    /// The indexes of the allocated GPUs; none if the scheduler does not report them.
    pub gpus: Option<Vec<u32>>,
    /// Whether the node is allocated exclusively, so that every GPU of it belongs to the job.
    pub whole: bool,
}
