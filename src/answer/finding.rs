//! Findings: what is wrong, where, since when, how sure, what it costs, on what evidence, and what became of it.

use gaunt_schema::{
    Entity, FindingEvent, FindingKind, LifeState, SanitizedText, Severity, UnixMs, unit::Unit,
};
use serde::{Deserialize, Serialize};

use super::FindingGroup;

/// Findings: all that are open, or those that closed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FindingList {
    /// The owner's clock when this was true.
    pub at: UnixMs,
    /// The findings: open ones worst first, by severity, then by cost; closed ones newest first.
    pub findings: Vec<Finding>,
    /// How many there are in all.
    #[serde(default)]
    pub total: u32,
    /// How many of them match the filter; the list may be only a page of them.
    #[serde(default)]
    pub matched: u32,
    /// Those of the open ones that are many of one kind, worst group first.
    #[serde(default)]
    pub groups: Vec<FindingGroup>,
}

/// One fault, said once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable as long as the same kind blames the same thing: `port_down/gpu003/mlx5_1/1`.
    pub id: String,
    /// What is wrong.
    pub kind: FindingKind,
    /// How urgent it is.
    pub severity: Severity,
    /// What is to blame.
    pub entity: Entity,
    /// When the evidence began, by the owner's clock.
    pub since: UnixMs,
    /// How sure the judge is, from 0 to 1.
    pub confidence: f64,
    /// Lost GPUs that are attributed to it: of all GPUs each is attributed to one finding at most.
    pub lost_gpus: f64,
    /// The same number as GPU-hours that are lost in an hour.
    pub cost_gpu_hours_per_hour: f64,
    /// Who suffers from it.
    pub victims: Vec<Entity>,
    /// One sentence: what is wrong and since when.
    pub summary: String,
    /// One sentence: what to look at next.
    pub next: String,
    /// The numbers behind it, each beside its limit.
    pub evidence: Vec<EvidenceItem>,
    /// What is not known and would have made it surer, a few words each.
    #[serde(default)]
    pub missing: Vec<String>,
    /// What became of it so far.
    #[serde(default)]
    pub life: FindingLifecycle,
    /// Who took it on, if somebody did.
    #[serde(default)]
    pub acknowledged: Option<Acknowledgement>,
}

/// One number behind a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvidenceItem {
    /// What was looked at, in a few words.
    pub what: String,
    /// Its value; none if the evidence is an absence.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: Unit,
    /// The limit that it passed, if it is a number.
    pub limit: Option<f64>,
    /// What it means, in a few words; empty if the numbers say it.
    pub note: String,
    /// The series that it was made of, by their names in the catalogue; empty if it is no number of a page.
    #[serde(default)]
    pub source: String,
    /// The limit's key in the settings, below `[judge]`; empty if it is not made of one.
    #[serde(default)]
    pub threshold: String,
    /// What the past of its first series says of it.
    #[serde(default)]
    pub past: HistoryRelation,
}

/// What the past of a series, of the thing that is blamed, says of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryRelation {
    /// Nothing: it is made of no series, or of those of others.
    #[default]
    Nothing,
    /// The number is made of it, in other words than its limit.
    Part,
    /// The number itself, and its limit stands beside it.
    Same,
}

/// The life of a finding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FindingLifecycle {
    /// Where it stands.
    pub state: LifeState,
    /// When it was first said, by the owner's clock; the evidence may be older.
    pub opened: UnixMs,
    /// When its evidence was last there.
    pub seen: UnixMs,
    /// When it was closed, if it was.
    pub closed: Option<UnixMs>,
    /// How often it was opened within the last minutes that count for flapping.
    pub openings: u32,
    /// What changed, oldest first; the opening and the newest of the others.
    pub changes: Vec<LifecycleChange>,
}

/// One change in the life of a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifecycleChange {
    /// When.
    pub at: UnixMs,
    /// What changed.
    pub what: FindingEvent,
    /// What it was before; empty if that says nothing.
    #[serde(default, skip_serializing_if = "str_is_empty")]
    pub from: SanitizedText,
    /// What it is from then on, or who did it.
    #[serde(default, skip_serializing_if = "str_is_empty")]
    pub to: SanitizedText,
}

/// That somebody took a finding on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledgement {
    /// Who, as he calls himself.
    pub by: SanitizedText,
    /// When, by the owner's clock.
    pub at: UnixMs,
    /// What he says about it; may be empty.
    pub note: SanitizedText,
    /// How urgent it was then: it no longer holds when the finding becomes more urgent than that.
    pub severity: Severity,
}

fn str_is_empty(text: &SanitizedText) -> bool {
    text.is_empty()
}
