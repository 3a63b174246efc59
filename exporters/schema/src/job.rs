//! Jobs: who holds which GPUs, as a scheduler tells it in one go for the whole cluster.

use serde::{Deserialize, Serialize};

use crate::{Safe, UnixMs};

/// Every job that one scheduler says is running. It replaces what it said before; an empty one withdraws it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobList {
    /// Who says it, as a person would look it up: the name of a file.
    pub source: Safe,
    /// The jobs.
    pub jobs: Vec<Job>,
}

/// One running job. What the scheduler does not say is none, and never empty text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its number or name, as the nodes' own pages write it.
    pub id: Safe,
    /// What the user calls it.
    pub name: Option<Safe>,
    /// Who submitted it.
    pub user: Option<Safe>,
    /// Who pays for it.
    pub account: Option<Safe>,
    /// The queue that it runs in.
    pub partition: Option<Safe>,
    /// When it started.
    pub started: Option<UnixMs>,
    /// When it will be stopped at the latest.
    pub ends: Option<UnixMs>,
    /// What it holds.
    pub holds: Vec<Holding>,
}

/// What a job holds of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// The node's name.
    pub node: Safe,
    /// The indexes of the GPUs that it holds there; none if the scheduler does not say which.
    pub gpus: Option<Vec<u32>>,
    /// Whether the node is the job's alone, so that every GPU of it is.
    pub whole: bool,
}
