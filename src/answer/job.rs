//! Jobs: one of them in full.

use gaunt_schema::{Safe, UnixMs};
use serde::{Deserialize, Serialize};

use super::{Finding, StateCount, Table};

/// One job in full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobDetail {
    /// The owner's clock when this was true.
    pub at: UnixMs,
    /// Its number.
    pub job: Safe,
    /// What is known of it: the row of the table of jobs, every column.
    pub line: Table,
    /// Its GPUs by state, only states that occur.
    pub states: Vec<StateCount>,
    /// Its GPUs, in the order of their ranks where these are known, else by node and index.
    pub gpus: Table,
    /// Open findings that blame it, one of its GPUs, or a node that it is on.
    pub findings: Vec<Finding>,
}
