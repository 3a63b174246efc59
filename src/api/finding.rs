//! Findings: the fault, its entity, start, confidence, cost, evidence and lifecycle.

use gaunt_schema::{
    Entity, FindingEvent, FindingKind, LifeState, SanitizedText, Severity, UnixMs, unit::Unit,
};
use serde::{Deserialize, Serialize};

/// One fault, reported once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// Id, stable as long as the same kind is found on the same entity: `port_down/gpu003/mlx5_1/1`.
    pub id: String,
    /// Kind of the fault.
    pub kind: FindingKind,
    /// Its severity.
    pub severity: Severity,
    /// The faulty entity.
    pub entity: Entity,
    /// Start of the evidence, in engine time.
    pub since: UnixMs,
    /// Confidence from 0 to 1.
    #[cfg_attr(test, schemars(range(min = 0, max = 1)))]
    pub confidence: f64,
    /// Lost GPUs attributed to it; each GPU is attributed to one finding at most.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub lost_gpus: f64,
    /// The same as GPU-hours lost per hour.
    pub cost_gpu_hours_per_hour: f64,
    /// Affected entities.
    pub victims: Vec<Entity>,
    /// One sentence: the fault and its start.
    pub summary: String,
    /// One sentence: the next step.
    pub next: String,
    /// The evidence, each number with its limit.
    pub evidence: Vec<EvidenceItem>,
    /// Missing telemetry that would raise the confidence, a few words each.
    #[serde(default)]
    pub missing: Vec<String>,
    /// Its lifecycle so far.
    #[serde(default)]
    pub life: FindingLifecycle,
    /// Its acknowledgement, if any.
    #[serde(default)]
    pub acknowledged: Option<Acknowledgement>,
}

/// One number of the evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EvidenceItem {
    /// Short description.
    pub what: String,
    /// Its value; none if the evidence is an absence.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: Unit,
    /// The limit that it exceeds, if that is a number.
    pub limit: Option<f64>,
    /// Short explanation; empty if the numbers suffice.
    pub note: String,
    /// Source series by catalogue name; empty if it does not come from a page.
    #[serde(default)]
    pub source: String,
    /// Key of the limit in the settings, below `[judge]`; empty if it is not derived from one.
    #[serde(default)]
    pub threshold: String,
    /// Relation of the number to the history of its first series.
    #[serde(default)]
    pub past: HistoryRelation,
}

/// How an evidence number relates to the history of a series of the faulty entity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HistoryRelation {
    /// None: it has no series, or series of other entities.
    #[default]
    Nothing,
    /// The number is derived from the series, and the series is not directly comparable with its limit.
    Part,
    /// The number is the series itself and comparable with its limit.
    Same,
}

/// Lifecycle of a finding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindingLifecycle {
    /// Current state.
    pub state: LifeState,
    /// Time of its opening, in engine time; the evidence may be older.
    pub opened: UnixMs,
    /// Time at which its evidence was last present.
    pub seen: UnixMs,
    /// Time of its closing, if closed.
    pub closed: Option<UnixMs>,
    /// Number of openings within the flapping window.
    pub openings: u32,
    /// Changes, oldest first: the opening and the newest others.
    pub changes: Vec<LifecycleChange>,
}

/// One lifecycle change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LifecycleChange {
    /// When.
    pub at: UnixMs,
    /// The event.
    pub what: FindingEvent,
    /// Previous value; empty if not applicable.
    #[serde(default, skip_serializing_if = "str_is_empty")]
    pub from: SanitizedText,
    /// New value, or the user who made the change.
    #[serde(default, skip_serializing_if = "str_is_empty")]
    pub to: SanitizedText,
}

/// Acknowledgement of a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Acknowledgement {
    /// User name as given.
    pub by: SanitizedText,
    /// Time, in engine time.
    pub at: UnixMs,
    /// Note of the user; may be empty.
    pub note: SanitizedText,
    /// Severity at that time: the acknowledgement ends when the finding becomes more severe.
    pub severity: Severity,
}

fn str_is_empty(text: &SanitizedText) -> bool {
    text.is_empty()
}
