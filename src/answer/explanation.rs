//! Explanations: the whole chain of evidence behind one finding, open or closed.

use gaunt_schema::{AbsenceReason, FindingKind, UnixMs, unit::Unit};
use serde::{Deserialize, Serialize};

use super::{EvidenceItem, Finding};

/// Everything that is known of one finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The owner's clock when this was true.
    pub at: UnixMs,
    /// The finding, as it is or was last.
    pub finding: Finding,
    /// How findings of this kind are recognised, in a few sentences.
    pub rule: String,
    /// The limits that its evidence was measured against.
    pub limits: Vec<LimitDetail>,
    /// What was known beside its evidence when it was last looked at closely; none if it was told by an older gaunt.
    pub chain: Option<EvidenceContext>,
}

/// One limit with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitDetail {
    /// Its key in the settings, below `[judge]`.
    pub key: String,
    /// What it is set to.
    pub value: f64,
    /// What it is for, and where it comes from.
    pub why: String,
}

/// What was looked at around the thing that is blamed, at one instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvidenceContext {
    /// When that was, by the owner's clock.
    pub at: UnixMs,
    /// With whom it was compared: `7 other GPUs of job 8812`; empty if with nobody.
    pub peers: String,
    /// Its signals, beside what is usual for it and what its peers do.
    pub signals: Vec<SignalDetail>,
    /// Other faults that were looked for in the same place.
    pub alternatives: Vec<AlternativeDetail>,
}

/// One signal of what is blamed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SignalDetail {
    /// What it is, in a few words.
    pub what: String,
    /// The series that it was made of.
    pub source: String,
    /// Its unit.
    pub unit: Unit,
    /// Its value, averaged over some seconds; none if it is not known.
    pub value: Option<f64>,
    /// Why it is not known, where a page says so.
    #[serde(default)]
    pub absent: Option<AbsenceReason>,
    /// What is usual for it, once that is known.
    pub usual: Option<f64>,
    /// The middle of its peers.
    pub peers: Option<f64>,
    /// The quarter of its peers below which every fourth is, and that above which every fourth is.
    pub quartiles: Option<(f64, f64)>,
}

/// Another fault that would look alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlternativeDetail {
    /// Which one.
    pub kind: FindingKind,
    /// What became of the suspicion.
    pub ruling: AlternativeOutcome,
    /// The number that decides, beside its limit.
    pub number: EvidenceItem,
}

/// What became of a suspicion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlternativeOutcome {
    /// The number is on the good side of its limit.
    RuledOut,
    /// The number is beyond its limit too.
    AlsoThere,
    /// The number is not known.
    Unknown,
}
