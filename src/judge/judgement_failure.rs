//! Failed judgements: an error of gaunt's own rules, on data that nobody foresaw, must not end what else it shows.
//!
//! A rule that panics is caught: findings stay as they are, one more says that nothing is judged and why, and the next
//! attempt comes after a while that grows with each one that fails. What is read and shown goes on meanwhile.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use gaunt_schema::{Entity, EntityKind, Finding, FindingKind, SanitizedText, Severity, UnixMs};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    pending_finding::{CERTAIN, PendingFinding, format_time_of_day},
};

/// The longest time between two attempts.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Seconds of failed judgements after which they page: nothing else does meanwhile.
const PAGES_AFTER_SECONDS: f64 = 60.0;

/// The most characters of an error that are shown.
const MOST_SHOWN: usize = 160;

/// Judgements that failed one after the other.
#[derive(Clone, Debug)]
pub(super) struct JudgementFailure {
    since: UnixMs,
    last: UnixMs,
    times: u32,
    error: String,
}

/// Runs what must not take anything else with it; returns the message of its panic if it panics.
pub fn run_guarded<T>(part: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(part)).map_err(|panic| panic_message(&*panic))
}

/// Returns the message of a panic, as much of it as is shown.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    let text = text.unwrap_or_else(|| "no message".to_owned());
    text.chars().take(MOST_SHOWN).collect()
}

impl JudgementFailure {
    /// Adds one that failed at this instant.
    pub(super) fn after(before: Option<Self>, error: String, now: UnixMs) -> Self {
        let (since, times) = before.map_or((now, 0), |before| (before.since, before.times));
        Self { since, last: now, times: times.saturating_add(1), error }
    }

    /// Whether it is too early for another attempt.
    pub(super) fn waits(&self, now: UnixMs) -> bool {
        let wait = Duration::from_secs(1 << self.times.min(6)).min(LONGEST_WAIT);
        now >= self.last && now.duration_since(self.last) < wait
    }

    /// Returns an outcome that keeps every finding as it is, with one about this failure.
    pub(super) fn keep_findings(&self, judge: &JudgeState, now: UnixMs) -> DetectorOutcome {
        let undecidable =
            judge.tracker.open_ids_where(|finding| finding.kind != FindingKind::JudgementFailed);
        DetectorOutcome {
            findings: vec![self.to_finding(now)],
            undecidable,
            ..DetectorOutcome::default()
        }
    }

    fn to_finding(&self, now: UnixMs) -> Finding {
        let entity = Entity::new(EntityKind::Aggregator);
        let pending = PendingFinding::of(FindingKind::JudgementFailed, entity, 1, true)
            .with_summary(
                format!(
                    "gaunt has an error in its own rules and judges nothing since {}: {}; findings stay as they were.",
                    format_time_of_day(self.since),
                    SanitizedText::new(&self.error),
                ),
                "Report it with the line of gaunt's log that says where; values, history and screens are right, and a restart judges anew."
                    .to_owned(),
            )
            .with_evidence([EvidenceRow::FailedJudgements.to_evidence(Some(f64::from(self.times)), None)]);
        let mut finding = pending.finding;
        let lasted = now.duration_since(self.since).as_secs_f64();
        finding.severity =
            if lasted >= PAGES_AFTER_SECONDS { Severity::Critical } else { Severity::Warning };
        (finding.confidence, finding.since) = (CERTAIN, self.since);
        finding
    }
}

#[cfg(test)]
mod tests {
    use gaunt_cluster::Cluster;

    use super::*;
    use crate::{Judge, Thresholds};

    fn open_findings(judge: &Judge) -> Vec<(FindingKind, Severity)> {
        judge.open_findings().iter().map(|finding| (finding.kind, finding.severity)).collect()
    }

    #[test]
    fn rule_that_panics_keeps_all_findings_and_is_told() {
        let mut judge = Judge::new(Thresholds::default());
        let mut cluster = Cluster::new(Duration::from_secs(1), 60);
        let full = |_: &JudgeState, _: &Cluster, outcome: &mut DetectorOutcome| {
            let entity = Entity::new_node(&"gpu001".into());
            let mut finding =
                PendingFinding::of(FindingKind::FilesystemFull, entity, 1, true).finding;
            finding.confidence = CERTAIN;
            finding.severity = Severity::Warning;
            outcome.findings.push(finding);
        };
        let broken = |_: &JudgeState, _: &Cluster, _: &mut DetectorOutcome| {
            let nothing: Vec<u32> = Vec::new();
            assert!(nothing[nothing.len()] > 0);
        };
        let known = (FindingKind::FilesystemFull, Severity::Warning);
        let failed = |severity| (FindingKind::JudgementFailed, severity);
        let mut attempts = 0;
        for second in 1..=400_i64 {
            cluster.advance_to(UnixMs(1_700_000_000_000 + second * 1_000));
            if (11..=200).contains(&second) {
                attempts += u32::from(!judge.waits_after_failure(&cluster));
                judge.evaluate_with(&[broken], &cluster);
            } else {
                judge.evaluate_with(&[full], &cluster);
            }
            let mut open = open_findings(&judge);
            open.sort_unstable();
            match second {
                1..=10 => assert_eq!(open, [known]),
                11..=70 => assert_eq!(open, [known, failed(Severity::Warning)], "{second}"),
                72..=200 => assert_eq!(open, [known, failed(Severity::Critical)], "{second}"),
                _ => {}
            }
        }
        assert_eq!(open_findings(&judge), [known], "another attempt came, and the failure is over");
        assert!((6..=12).contains(&attempts), "{attempts}");
        let told = judge.closed_records().first().map(|record| record.finding.summary.clone());
        assert!(told.is_some_and(|text| text.as_str().contains("index out of bounds")));
    }
}
