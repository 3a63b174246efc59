//! A finding as the judge makes it: one fault, said once, with the numbers behind it.

use gaunt_schema::{Entity, FindingKind, SanitizedText, Severity, UnixMs, unit::Unit};
use serde::{Deserialize, Serialize};

use super::{Thresholds, job_group::JobGroup};

/// The most victims that are listed; their cost is counted in full.
pub(super) const MAX_VICTIMS: usize = 32;

/// The most jobs that a finding keeps by name, so that its cost reaches all of them.
const MAX_JOBS: usize = 4_096;

/// One fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DetectedFinding {
    /// Stable as long as the same kind blames the same thing: `port_down/gpu003/mlx5_1/1`.
    pub id: String,
    /// What is wrong.
    pub kind: FindingKind,
    /// How urgent it is.
    pub severity: Severity,
    /// What is to blame.
    pub entity: Entity,
    /// When the evidence began.
    pub since: UnixMs,
    /// How sure the judge is, from 0 to 1.
    pub confidence: f64,
    /// Lost GPUs that are attributed to it; until it opens, its detector's estimate.
    pub lost_gpus: f64,
    /// Who suffers from it; at most 32 are named.
    pub victims: Vec<Entity>,
    /// Every job that suffers from it, by name, where `victims` may not have room for all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<SanitizedText>,
    /// One sentence: what is wrong and since when.
    pub summary: String,
    /// One sentence: what to look at next.
    pub next: String,
    /// The numbers, each beside its limit.
    pub evidence: Vec<FindingEvidence>,
}

/// One number behind a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindingEvidence {
    /// What was looked at.
    pub what: String,
    /// Its value; none if the evidence is an absence.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: Unit,
    /// The limit that it passed, if it is a number.
    pub limit: Option<f64>,
    /// What it means; empty if the numbers say it.
    pub note: String,
}

impl FindingEvidence {
    /// A number beside its limit.
    pub(super) fn new(what: &str, value: Option<f64>, unit: Unit, limit: Option<f64>) -> Self {
        Self { what: what.to_owned(), value, unit, limit, note: String::new() }
    }

    /// The same with what it means.
    pub(super) fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

/// A fault that is suspected: it becomes a finding when its evidence has stood for a while.
#[derive(Clone, Debug)]
pub(super) struct PendingFinding {
    /// Seconds for which the evidence must stand.
    pub(super) hold: f64,
    /// Seconds for which it must have stood before it wakes somebody.
    pub(super) page_delay: f64,
    /// Independent kinds of evidence that tell of it.
    kinds: usize,
    /// Whether it rests on something that was learned and that nobody says.
    learned: bool,
    /// Those that it is seen of, where it is seen of several: one of them at least must be the same all the time.
    pub(super) members: Vec<String>,
    /// What the finding will be.
    pub(super) finding: DetectedFinding,
}

impl PendingFinding {
    /// Something wrong with `entity`, of which `kinds` independent kinds of evidence tell. Two wake somebody, one that
    /// the hardware gives is worth a look, and any other one is only worth knowing.
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

    /// It must have stood for so many seconds.
    pub(super) fn with_hold_seconds(mut self, seconds: f64) -> Self {
        self.hold = seconds;
        self
    }

    /// It is seen of these now. What one does after another is not what stands for so many seconds.
    pub(super) fn with_members(mut self, members: impl IntoIterator<Item = String>) -> Self {
        self.members = members.into_iter().collect();
        self
    }

    /// It wakes nobody before it has stood for so many seconds: until then it may be something harmless.
    pub(super) fn with_page_delay(mut self, seconds: f64) -> Self {
        self.page_delay = seconds;
        self
    }

    /// It rests on something that was learned and that nobody says: it wakes nobody, and is less sure.
    pub(super) fn mark_learned(mut self) -> Self {
        self.finding.severity = self.finding.severity.min(Severity::Warning);
        self.learned = true;
        self
    }

    /// Another kind of evidence tells of it.
    pub(super) fn add_confirmation(&mut self, evidence: FindingEvidence) {
        self.kinds += 1;
        self.finding.evidence.push(evidence);
        self.finding.severity = Severity::Critical;
    }

    /// How sure the judge is of it.
    pub(super) fn compute_confidence(&self, limits: &Thresholds) -> f64 {
        let of_kinds = match self.kinds {
            0 | 1 => limits.sure_of_one_ratio,
            2 => limits.sure_of_two_ratio,
            _ => limits.sure_of_more_ratio,
        };
        if self.learned { of_kinds.min(limits.sure_of_learned_ratio) } else { of_kinds }
    }

    /// What it costs, as an estimate that orders suspicions, and whom. What it costs once it is open is the sum of the
    /// shares that are attributed to it.
    pub(super) fn with_cost(mut self, lost_gpus: f64, victims: Vec<Entity>) -> Self {
        self.finding.lost_gpus = lost_gpus;
        self.finding.victims = victims;
        self
    }

    /// All of these suffer from it, also those for which there is no room among the victims.
    pub(super) fn with_slowed_jobs<'a>(
        mut self,
        gangs: impl IntoIterator<Item = &'a JobGroup>,
    ) -> Self {
        let names = gangs.into_iter().map(|gang| SanitizedText::new(&gang.group_key()));
        self.finding.jobs = names.take(MAX_JOBS).collect();
        self
    }

    /// What is said about it, and what to look at next.
    pub(super) fn with_summary(mut self, summary: String, next: String) -> Self {
        self.finding.summary = summary;
        self.finding.next = next;
        self
    }

    /// The numbers behind it; what is not known is left out.
    pub(super) fn with_evidence(
        mut self,
        evidence: impl IntoIterator<Item = FindingEvidence>,
    ) -> Self {
        self.finding.evidence.extend(evidence.into_iter().filter(|number| number.value.is_some()));
        self
    }
}

/// The name of a finding: its kind, and the place of what it blames.
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

/// A share as a person says it: `31 %`.
pub(super) fn format_percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// The time of day of an instant: `11:57:32 UTC`.
pub(super) fn format_time_of_day(at: UnixMs) -> String {
    let seconds = at.0.div_euclid(1_000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02} UTC", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// A count with its noun: `1 GPU`, `8 GPUs`.
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
