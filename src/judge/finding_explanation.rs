//! The explanation of a finding: the signals around the blamed device, other causes, and missing telemetry.

use gaunt_schema::{AbsenceReason, FindingKind, UnixMs, unit::Unit};
use serde::{Deserialize, Serialize};

use super::FindingEvidence;

/// The context of a finding's blamed device at one instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FindingExplanation {
    /// The time of the explanation.
    pub at: UnixMs,
    /// The peers that it was compared with; empty if none.
    pub peers: String,
    /// Its signals.
    pub signals: Vec<ComparedSignal>,
    /// Other faults that were checked on the same devices.
    pub alternatives: Vec<AlternativeCause>,
    /// Missing telemetry that would have raised the confidence.
    pub missing: Vec<String>,
}

/// One signal of the blamed device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedSignal {
    /// The name of the signal.
    pub what: String,
    /// The series that it is computed from.
    pub source: String,
    /// Its unit.
    pub unit: Unit,
    /// Its value; none if unknown.
    pub value: Option<f64>,
    /// Why it is unknown, where a page gives a reason.
    pub absent: Option<AbsenceReason>,
    /// Its baseline.
    pub usual: Option<f64>,
    /// The median of its peers.
    pub peers: Option<f64>,
    /// The quartiles of its peers.
    pub quartiles: Option<(f64, f64)>,
}

/// Another fault with similar symptoms, with the deciding value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlternativeCause {
    /// Its kind.
    pub kind: FindingKind,
    /// Whether its value is beyond its limit; none if unknown.
    pub beyond: Option<bool>,
    /// The value.
    pub number: FindingEvidence,
    /// The limit's key in the settings.
    pub threshold: String,
    /// The series that the value is computed from.
    pub source: String,
}
