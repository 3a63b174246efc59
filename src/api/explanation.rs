//! Explanations: the evidence behind one finding, open or closed.

use gaunt_schema::{EvidenceContext, Finding, UnixMs};
use serde::{Deserialize, Serialize};

/// Everything known about one finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Explanation {
    /// Engine time of this answer.
    pub at: UnixMs,
    /// The finding in its current or last state.
    pub finding: Finding,
    /// How findings of this kind are detected, in a few sentences.
    pub rule: String,
    /// The limits that its evidence is compared with.
    pub limits: Vec<LimitDetail>,
    /// Context of the evidence at the last detailed evaluation; none if an older gaunt wrote it.
    pub chain: Option<EvidenceContext>,
}

/// One limit with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LimitDetail {
    /// Key in the settings, below `[judge]`.
    pub key: String,
    /// Configured value.
    pub value: f64,
    /// Purpose and source of the limit.
    pub why: String,
}
