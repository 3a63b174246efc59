//! Explanations: the evidence behind one finding, open or closed.

use gaunt_schema::{AbsenceReason, FindingKind, UnixMs, unit::Unit};
use serde::{Deserialize, Serialize};

use super::{EvidenceItem, Finding};

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

/// State around the faulty entity at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EvidenceContext {
    /// Time of the evaluation, in engine time.
    pub at: UnixMs,
    /// The peers it is compared with: `7 other GPUs of job 8812`; empty if there are none.
    pub peers: String,
    /// Its signals, with baseline and peers.
    pub signals: Vec<SignalDetail>,
    /// Other causes that were checked for the same entity.
    pub alternatives: Vec<AlternativeDetail>,
}

/// One signal of the faulty entity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SignalDetail {
    /// Short description.
    pub what: String,
    /// Source series.
    pub source: String,
    /// Its unit.
    pub unit: Unit,
    /// Its value, averaged over some seconds; none if unknown.
    pub value: Option<f64>,
    /// Why it is unknown, if the page gives a reason.
    #[serde(default)]
    pub absent: Option<AbsenceReason>,
    /// Its baseline, once known.
    pub usual: Option<f64>,
    /// The peer median.
    pub peers: Option<f64>,
    /// The first and third quartile of the peers.
    pub quartiles: Option<(f64, f64)>,
}

/// Another fault with similar symptoms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AlternativeDetail {
    /// Kind of the fault.
    pub kind: FindingKind,
    /// Result of the check.
    pub ruling: AlternativeOutcome,
    /// The deciding number and its limit.
    pub number: EvidenceItem,
}

/// Result of checking an alternative cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AlternativeOutcome {
    /// The number is within its limit.
    RuledOut,
    /// The number exceeds its limit too.
    AlsoThere,
    /// The number is unknown.
    Unknown,
}
