//! A finding as a detector creates it: one fault, reported once, with the values behind it.

use gaunt_schema::{Entity, FindingKind, SanitizedText, Severity, UnixMs, unit::Unit};
use serde::{Deserialize, Serialize};

use super::{EvidenceRow, Thresholds};

/// The maximum of listed victims; the cost includes all of them.
pub(super) const MAX_VICTIMS: usize = 32;

/// The maximum of jobs that a finding keeps by name, so that its cost reaches all of them.
const MAX_JOBS: usize = 4_096;

/// One fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DetectedFinding {
    /// Stable as long as the same kind blames the same entity: `port_down/gpu003/mlx5_1/1`.
    pub id: String,
    /// The kind of fault.
    pub kind: FindingKind,
    /// The urgency.
    pub severity: Severity,
    /// The blamed entity.
    pub entity: Entity,
    /// When the evidence began.
    pub since: UnixMs,
    /// The confidence, from 0 to 1.
    pub confidence: f64,
    /// Lost GPUs that are attributed to it; until it opens, its detector's estimate.
    pub lost_gpus: f64,
    /// The affected entities; at most 32 are listed.
    pub victims: Vec<Entity>,
    /// All affected jobs, by name, where `victims` is too short for all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<SanitizedText>,
    /// One sentence: what is wrong and since when.
    pub summary: String,
    /// One sentence: the next step.
    pub next: String,
    /// The values, each with its limit.
    pub evidence: Vec<FindingEvidence>,
}

/// One value behind a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindingEvidence {
    /// Its row of the catalogue.
    #[serde(default)]
    pub row: EvidenceRow,
    /// What was measured: the label of the row, and a name where the label ends in a preposition.
    pub what: String,
    /// Its value; none if the evidence is an absence.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: Unit,
    /// The limit that it passed, if it is a number.
    pub limit: Option<f64>,
    /// An explanation; empty if the numbers suffice.
    pub note: String,
}

impl FindingEvidence {
    /// Creates a value with its limit.
    pub(super) fn new(row: EvidenceRow, value: Option<f64>, limit: Option<f64>) -> Self {
        let (label, unit) = row.label();
        Self { row, what: label.to_owned(), value, unit, limit, note: String::new() }
    }

    /// Adds the name that completes the label.
    pub(super) fn with_name(mut self, name: &str) -> Self {
        self.what = format!("{} {name}", self.what);
        self
    }

    /// Adds an explanation.
    pub(super) fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

/// A suspected fault: it becomes a finding once its evidence has lasted for a while.
#[derive(Clone, Debug)]
pub(super) struct PendingFinding {
    /// Seconds for which the evidence must last.
    pub(super) hold: f64,
    /// Seconds for which it must have lasted before it pages.
    pub(super) page_delay: f64,
    /// The number of independent kinds of evidence.
    kinds: usize,
    /// Whether it rests on something inferred that no exporter reports.
    learned: bool,
    /// Those that show it, where several do: at least one of them must be the same all the time.
    pub(super) members: Vec<String>,
    /// The future finding.
    pub(super) finding: DetectedFinding,
}

impl PendingFinding {
    /// Creates a pending finding about `entity` with `kinds` independent kinds of evidence. Two are critical (page),
    /// one that the hardware reports is a warning, and any other one is informational.
    pub(super) fn of(kind: FindingKind, entity: Entity, kinds: usize, hard: bool) -> Self {
        let severity = match (kinds, hard) {
            (2.., _) => Severity::Critical,
            (1, true) => Severity::Warning,
            _ => Severity::Info,
        };
        let finding = DetectedFinding {
            id: finding_id(kind, &entity),
            kind,
            severity,
            entity,
            since: UnixMs::default(),
            confidence: 0.0,
            lost_gpus: 0.0,
            victims: Vec::new(),
            jobs: Vec::new(),
            summary: String::new(),
            next: String::new(),
            evidence: Vec::new(),
        };
        Self { hold: 0.0, page_delay: 0.0, kinds, learned: false, members: Vec::new(), finding }
    }

    /// Sets the seconds for which it must have lasted.
    pub(super) fn with_hold_seconds(mut self, seconds: f64) -> Self {
        self.hold = seconds;
        self
    }

    /// Sets those that show it now. What one shows after another does not add up to the hold time.
    pub(super) fn with_members(mut self, members: impl IntoIterator<Item = String>) -> Self {
        self.members = members.into_iter().collect();
        self
    }

    /// Delays paging until it has lasted for so many seconds: until then it may be harmless.
    pub(super) fn with_page_delay(mut self, seconds: f64) -> Self {
        self.page_delay = seconds;
        self
    }

    /// Marks it as resting on something inferred that no exporter reports: it never pages, and has a lower confidence.
    pub(super) fn mark_learned(mut self) -> Self {
        self.finding.severity = self.finding.severity.min(Severity::Warning);
        self.learned = true;
        self
    }

    /// Adds another independent kind of evidence.
    pub(super) fn add_confirmation(&mut self, evidence: FindingEvidence) {
        self.kinds += 1;
        self.finding.evidence.push(evidence);
        self.finding.severity = Severity::Critical;
    }

    /// Computes the confidence.
    pub(super) fn compute_confidence(&self, limits: &Thresholds) -> f64 {
        let of_kinds = match self.kinds {
            0 | 1 => limits.sure_of_one_ratio,
            2 => limits.sure_of_two_ratio,
            _ => limits.sure_of_more_ratio,
        };
        if self.learned { of_kinds.min(limits.sure_of_learned_ratio) } else { of_kinds }
    }

    /// Sets the estimated cost, which orders pending findings, and the victims. The cost of an open finding is the sum
    /// of the shares that are attributed to it.
    pub(super) fn with_cost(mut self, lost_gpus: f64, victims: Vec<Entity>) -> Self {
        self.finding.lost_gpus = lost_gpus;
        self.finding.victims = victims;
        self
    }

    /// Sets all affected job groups by name, also those that exceed the maximum of victims.
    pub(super) fn with_slowed_jobs(mut self, names: impl Iterator<Item = String>) -> Self {
        let names = names.map(|name| SanitizedText::new(&name));
        self.finding.jobs = names.take(MAX_JOBS).collect();
        self
    }

    /// Sets the summary and the next step.
    pub(super) fn with_summary(mut self, summary: String, next: String) -> Self {
        self.finding.summary = summary;
        self.finding.next = next;
        self
    }

    /// Sets the values behind it; unknown ones are left out.
    pub(super) fn with_evidence(
        mut self,
        evidence: impl IntoIterator<Item = FindingEvidence>,
    ) -> Self {
        self.finding.evidence.extend(evidence.into_iter().filter(|number| number.value.is_some()));
        self
    }
}

/// Builds the id of a finding: its kind, and the path of the blamed entity.
pub(super) fn finding_id(kind: FindingKind, entity: &Entity) -> String {
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

/// Whether the evidence of a kind of finding exists only while a job works.
pub(super) fn rests_on_work(kind: FindingKind) -> bool {
    use FindingKind::{
        ComputeStraggler, DataSkew, DataStarved, HostBlocksNetwork, HostBound, LeafCongested,
        LinkErrors, NvlinkDegraded, PcieDegraded, RailSlow, StageImbalance, StorageSlow, Throttled,
    };
    matches!(
        kind,
        ComputeStraggler
            | DataSkew
            | DataStarved
            | HostBlocksNetwork
            | HostBound
            | LeafCongested
            | LinkErrors
            | NvlinkDegraded
            | PcieDegraded
            | RailSlow
            | StageImbalance
            | StorageSlow
            | Throttled
    )
}

/// Formats a share as a percentage: `31 %`.
pub(super) fn format_percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Formats the time of day of an instant: `11:57:32 UTC`.
pub(super) fn format_time_of_day(at: UnixMs) -> String {
    let seconds = at.0.div_euclid(1_000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02} UTC", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Formats a count with its noun: `1 GPU`, `8 GPUs`.
pub(super) fn format_count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day_is_that_of_the_instant() {
        assert_eq!(format_time_of_day(UnixMs(0)), "00:00:00 UTC");
        assert_eq!(format_time_of_day(UnixMs(1_700_000_000_999)), "22:13:20 UTC");
        assert_eq!(format_time_of_day(UnixMs(-1)), "23:59:59 UTC");
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!(
            (format_count(1, "GPU"), format_count(0, "port")),
            ("1 GPU".into(), "0 ports".into())
        );
    }
}
