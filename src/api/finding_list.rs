//! The list of findings: open ones with their groups, or closed ones.

use gaunt_schema::UnixMs;
use serde::{Deserialize, Serialize};

use super::{Finding, FindingContext, FindingGroup};

/// All open findings, or the closed ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindingList {
    /// Engine time of this answer.
    pub at: UnixMs,
    /// The findings: open ones worst first, by severity, then by cost; closed ones newest first.
    pub findings: Vec<Finding>,
    /// Number of findings before filtering.
    #[serde(default)]
    pub total: u32,
    /// Number of findings that match the filter; the list may be only a page of them.
    #[serde(default)]
    pub matched: u32,
    /// Groups of many open findings of one kind, worst group first.
    #[serde(default)]
    pub groups: Vec<FindingGroup>,
    /// Owners, cost and nearby changes of the worst open findings, in their order; a bounded number.
    #[serde(default)]
    pub contexts: Vec<FindingContext>,
}
