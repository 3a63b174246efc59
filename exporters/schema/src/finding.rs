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
    /// Lost GPUs attributed to it; the loss of each GPU is counted once.
    #[cfg_attr(feature = "openapi", schemars(range(min = 0)))]
    pub lost_gpus: f64,
    /// The same as GPU-hours lost per hour.
    pub cost_gpu_hours_per_hour: f64,
    /// The lost GPUs by which lists are sorted: they follow `lost_gpus` once that differs noticeably, so that findings of
    /// about equal cost keep their places. Absent in findings of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0)))]
    pub listed_lost_gpus: Option<f64>,
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
    /// Empty if it is the cause of what is attributed to it. Otherwise the cause is undecided: the findings that may be
    /// the cause, it among them, greatest share first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loss_shares: Vec<LossShare>,
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
            listed_lost_gpus: None,
            victims: Vec::new(),
            summary: String::new(),
            next: String::new(),
            evidence: Vec::new(),
            missing: Vec::new(),
            loss_shares: Vec::new(),
            life: FindingLifecycle::default(),
            acknowledged: None,
        }
    }

    /// Builds the id of a finding: its kind, and the path of the faulty entity.
    pub fn build_id(kind: FindingKind, entity: &Entity) -> String {
        let parts = [
            &entity.source,
            &entity.job,
            &entity.rack,
            &entity.leaf,
            &entity.rail,
            &entity.domain,
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

    /// The lost GPUs by which lists are sorted.
    pub fn listed_cost(&self) -> f64 {
        self.listed_lost_gpus.unwrap_or(self.lost_gpus)
    }

    /// Sets its cost: a GPU whose whole time is lost costs one GPU hour per hour.
    pub fn set_lost_gpus(&mut self, lost_gpus: f64) {
        (self.lost_gpus, self.cost_gpu_hours_per_hour) = (lost_gpus, lost_gpus);
    }

    /// Names the findings that may be the cause of the same loss, with their shares; none if the cause is decided.
    pub fn undecided_text(&self) -> Option<String> {
        let percent = |share: &LossShare| (share.share * 100.0).round();
        let own = self.loss_shares.iter().find(|share| share.id == self.id)?;
        let others = self.loss_shares.iter().filter(|share| share.id != self.id);
        let others: Vec<_> =
            others.map(|share| format!("{} % to {}", percent(share), share.id)).collect();
        let others = (!others.is_empty()).then(|| others.join(", "))?;
        Some(format!("{} % of the loss is attributed to this finding, {others}", percent(own)))
    }

    /// Describes why its evidence does not show it; none if it does. A number that is shown as proof, or as ruling out
    /// another cause, must be on its side of its limit, and at least one must prove the finding.
    pub fn evidence_fault(&self) -> Option<String> {
        let fails = |number: &&EvidenceItem| {
            number.role != EvidenceRole::Context && number.passes_limit() == Some(false)
        };
        let proves = |number: &EvidenceItem| {
            let is_fact = number.limit.is_none() && number.value.is_some();
            number.role == EvidenceRole::Proof && (is_fact || number.passes_limit() == Some(true))
        };
        if let Some(number) = self.evidence.iter().find(fails) {
            let (value, limit) = number.value.zip(number.limit).unwrap_or_default();
            let limit = number.side.render_limit(&limit.to_string());
            return Some(format!("{}: {} is {value}, limit {limit}", self.id, number.what));
        }
        (!self.evidence.iter().any(proves)).then(|| format!("{}: nothing proves it", self.id))
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
    /// The limit that it is compared with, if that is a number.
    pub limit: Option<f64>,
    /// The side of the limit on which it counts.
    #[serde(default)]
    pub side: LimitSide,
    /// What it is for; a number that is saved without one is context.
    #[serde(default)]
    pub role: EvidenceRole,
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

    /// Names another limit of the settings than that of its row.
    #[must_use]
    pub fn with_threshold(mut self, key: &str) -> Self {
        key.clone_into(&mut self.threshold);
        self
    }

    /// Makes it context if it is not on its side of the limit: one of several values of which each may show the fault.
    #[must_use]
    pub fn or_context(self) -> Self {
        let fails = self.passes_limit() == Some(false);
        self.context_if(fails)
    }

    /// Makes it context: it does not count.
    #[must_use]
    pub fn context_if(mut self, is_context: bool) -> Self {
        if is_context {
            self.role = EvidenceRole::Context;
        }
        self
    }

    /// Makes it one that rules out another cause: it counts on the other side of the limit.
    #[must_use]
    pub fn ruling_out(mut self) -> Self {
        self.side = self.side.opposite();
        self.role = EvidenceRole::RulesOut;
        self
    }

    /// Describes what it is for, if it is no proof, and its note.
    pub fn describe(&self) -> String {
        let role = if self.side == LimitSide::Unknown { "" } else { self.role.as_note() };
        match (role, self.note.as_str()) {
            (role, "") => role.to_owned(),
            ("", note) => note.to_owned(),
            (role, note) => format!("{role}; {note}"),
        }
    }

    /// Whether it is on its side of the limit; none without a value, a limit or a side.
    pub fn passes_limit(&self) -> Option<bool> {
        self.side.contains(self.value?, self.limit?)
    }
}

/// The side of its limit on which an evidence number counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LimitSide {
    /// It is not known, or there is no limit.
    #[default]
    Unknown,
    /// At the limit or above it.
    AtLeast,
    /// Below the limit.
    Below,
}

impl LimitSide {
    /// Returns its name in tables; empty if unknown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::AtLeast => "at_least",
            Self::Below => "below",
        }
    }

    /// Returns the sign before the limit: `≥` or `<`.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::AtLeast => "≥",
            Self::Below => "<",
        }
    }

    /// Renders a limit with its sign: `≥ 20 %`.
    pub fn render_limit(self, limit: &str) -> String {
        format!("{} {limit}", self.sign()).trim_start().to_owned()
    }

    /// Returns the other side.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Unknown => Self::Unknown,
            Self::AtLeast => Self::Below,
            Self::Below => Self::AtLeast,
        }
    }

    /// Whether a value is on this side of a limit; none if the side is unknown.
    pub fn contains(self, value: f64, limit: f64) -> Option<bool> {
        match self {
            Self::Unknown => None,
            Self::AtLeast => Some(value >= limit),
            Self::Below => Some(value < limit),
        }
    }
}

/// What an evidence number is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EvidenceRole {
    /// It is shown beside the evidence and proves nothing; its limit, if it has one, may not be reached.
    #[default]
    Context,
    /// It shows the fault: it is on its side of the limit, or a fact that needs no limit.
    Proof,
    /// It rules out another cause: it is on its side of the limit.
    RulesOut,
}

impl EvidenceRole {
    /// Returns its name in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Proof => "proof",
            Self::RulesOut => "rules_out",
        }
    }

    /// Returns the note of a number with a limit that is no proof; empty for a proof.
    pub const fn as_note(self) -> &'static str {
        match self {
            Self::Proof => "",
            Self::RulesOut => "not the cause",
            Self::Context => "context",
        }
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

impl LifecycleChange {
    /// What happened, in words: `opened as warning`, `10.6 GPUs lost`, `acknowledged by mira`.
    pub fn describe(&self) -> String {
        use FindingEvent as E;
        let (what, to) = (self.what, self.to.as_str());
        match what {
            _ if to.is_empty() => what.to_string(),
            E::Opened | E::Reopened => format!("{what} as {to}"),
            E::Cost => format!("{to} lost"),
            E::Victims => format!("{to} victim{}", if to == "1" { "" } else { "s" }),
            E::Blame => format!("blames {to}"),
            E::Acknowledged | E::Withdrawn | E::Accepted => format!("{what} by {to}"),
            E::Closed => format!("{what}: {to}"),
            E::Severity | E::Flapping | E::Lapsed => format!("{what} {to}"),
        }
    }
}

/// The share of a loss whose cause is undecided that is attributed to one of the findings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct LossShare {
    /// Id of the finding.
    pub id: String,
    /// Share of the loss, from 0 to 1.
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 1)))]
    pub share: f64,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntityKind;

    fn io_pressure(value: f64, role: EvidenceRole) -> EvidenceItem {
        EvidenceItem {
            what: "IO pressure (PSI or iowait)".to_owned(),
            value: Some(value),
            unit: Unit::Ratio,
            limit: Some(0.08),
            side: LimitSide::AtLeast,
            role,
            note: String::new(),
            source: String::new(),
            threshold: String::new(),
            past: HistoryRelation::Nothing,
        }
    }

    fn fault_of(evidence: Vec<EvidenceItem>) -> Option<String> {
        let entity = Entity::new(EntityKind::Storage);
        let finding = Finding::new(FindingKind::StorageSlow, Severity::Warning, entity);
        Finding { evidence, ..finding }.evidence_fault()
    }

    #[test]
    fn evidence_of_a_finding_passes_its_limits() {
        let proof = |value| io_pressure(value, EvidenceRole::Proof);
        assert_eq!(fault_of(vec![proof(0.08), proof(0.02).or_context()]), None);
        assert_eq!(
            fault_of(vec![proof(0.5), proof(0.02)]).unwrap(),
            "storage_slow: IO pressure (PSI or iowait) is 0.02, limit ≥ 0.08"
        );
        assert_eq!(
            fault_of(vec![proof(0.02).or_context()]).unwrap(),
            "storage_slow: nothing proves it"
        );
        let other_cause = proof(0.02).ruling_out();
        assert_eq!(other_cause.passes_limit(), Some(true));
        assert_eq!(fault_of(vec![other_cause.clone()]).unwrap(), "storage_slow: nothing proves it");
        assert_eq!(fault_of(vec![proof(0.5), other_cause]), None);
        assert!(fault_of(vec![proof(0.5), proof(0.5).ruling_out()]).is_some());
        let fact = EvidenceItem { limit: None, ..proof(79.0) };
        assert_eq!(fault_of(vec![fact]), None, "an error code needs no limit");
    }

    #[test]
    fn evidence_saved_without_a_side_is_context() {
        let saved = r#"{"what":"IO pressure","value":0.5,"unit":"ratio","limit":0.08,"note":""}"#;
        let item: EvidenceItem = serde_json::from_str(saved).unwrap();
        assert_eq!((item.side, item.role), (LimitSide::Unknown, EvidenceRole::Context));
        assert_eq!((item.passes_limit(), item.describe()), (None, String::new()));
        assert_eq!(item.side.render_limit("8 %"), "8 %");
        assert_eq!(LimitSide::AtLeast.render_limit("8 %"), "≥ 8 %");
    }
}
