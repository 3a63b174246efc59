//! Findings: the fault, its entity, start, confidence, cost, evidence and lifecycle.

use serde::{Deserialize, Serialize};

use crate::{
    Entity, FindingEvent, FindingKind, LifeState, SanitizedText, Severity, UnixMs, unit::Unit,
};

/// One fault, reported once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
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
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 1)))]
    pub confidence: f64,
    /// Lost GPUs attributed to it; each GPU is attributed to one finding at most.
    #[cfg_attr(feature = "openapi", schemars(range(min = 0)))]
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

impl Finding {
    /// Creates a finding of an entity, without evidence, texts and cost.
    pub fn new(kind: FindingKind, severity: Severity, entity: Entity) -> Self {
        Self {
            id: Self::build_id(kind, &entity),
            kind,
            severity,
            entity,
            since: UnixMs::default(),
            confidence: 0.0,
            lost_gpus: 0.0,
            cost_gpu_hours_per_hour: 0.0,
            victims: Vec::new(),
            summary: String::new(),
            next: String::new(),
            evidence: Vec::new(),
            missing: Vec::new(),
            life: FindingLifecycle::default(),
            acknowledged: None,
        }
    }

    /// Builds the id of a finding: its kind, and the path of the faulty entity.
    pub fn build_id(kind: FindingKind, entity: &Entity) -> String {
        let parts = [
            &entity.source,
            &entity.job,
            &entity.leaf,
            &entity.rail,
            &entity.node,
            &entity.gpu,
            &entity.device,
            &entity.port,
        ];
        let mut id = kind.to_string();
        for part in parts.into_iter().flatten() {
            id.push('/');
            id.push_str(part);
        }
        id
    }

    /// Sets its cost: a GPU whose whole time is lost costs one GPU hour per hour.
    pub fn set_lost_gpus(&mut self, lost_gpus: f64) {
        (self.lost_gpus, self.cost_gpu_hours_per_hour) = (lost_gpus, lost_gpus);
    }

    /// The same finding with this cost.
    #[must_use]
    pub fn with_lost_gpus(mut self, lost_gpus: f64) -> Self {
        self.set_lost_gpus(lost_gpus);
        self
    }
}

/// One number of the evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
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

impl EvidenceItem {
    /// Adds the name that completes the description.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        self.what = format!("{} {name}", self.what);
        self
    }

    /// Adds an explanation.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

/// How an evidence number relates to the history of a series of the faulty entity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
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
