//! The context of a finding's evidence: the signals around the faulty entity, and other causes.

use serde::{Deserialize, Serialize};

use crate::{AbsenceReason, EvidenceItem, FindingKind, UnixMs, unit::Unit};

/// State around the faulty entity at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AlternativeOutcome {
    /// The number is within its limit.
    RuledOut,
    /// The number exceeds its limit too.
    AlsoThere,
    /// The number is unknown.
    Unknown,
}
