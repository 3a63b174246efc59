//! Marks on the time bar: where findings opened, jobs started and ended, and nodes changed.

use gaunt_schema::{SanitizedText, Severity, UnixMs};

use gaunt_api::{Finding, FleetChangeKind, Overview};

/// Maximum number of marks: more than a bar has columns for.
const MAX_MARKS: usize = 160;

/// One mark.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TimeMark {
    /// Its time.
    pub(crate) at: UnixMs,
    /// What it marks.
    pub(crate) kind: MarkKind,
    /// What happened, in a few words.
    pub(crate) text: SanitizedText,
    /// Id of the finding that opened, if one did.
    pub(crate) finding: Option<String>,
}

/// What a mark stands for; of several in one column the last in this order is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MarkKind {
    /// A job ended.
    JobEnded,
    /// A job started or was deployed.
    JobStarted,
    /// Nodes rebooted, or have another driver or kernel.
    NodeChanged,
    /// A finding opened.
    Finding(Severity),
}

/// Returns the times of what is marked, without its text, in any order.
pub(crate) fn mark_times(overview: &Overview) -> impl Iterator<Item = (UnixMs, MarkKind)> {
    let findings = overview.findings.iter();
    let findings =
        findings.map(|finding| (opening_time(finding), MarkKind::Finding(finding.severity)));
    let changes = overview.changes.iter().map(|change| (change.at, change_mark(change.kind)));
    findings.chain(changes).filter(|(at, _)| *at <= overview.at)
}

/// Returns when a finding opened: from then on it is listed, while its evidence may be older.
fn opening_time(finding: &Finding) -> UnixMs {
    finding.life.opened.max(finding.since)
}

const fn change_mark(kind: FleetChangeKind) -> MarkKind {
    match kind {
        FleetChangeKind::JobStarted => MarkKind::JobStarted,
        FleetChangeKind::JobEnded => MarkKind::JobEnded,
        FleetChangeKind::Rebooted
        | FleetChangeKind::DriverChanged
        | FleetChangeKind::KernelChanged => MarkKind::NodeChanged,
    }
}

/// Returns the marks of an overview, oldest first.
pub(crate) fn collect_marks(overview: &Overview) -> Vec<TimeMark> {
    let findings = overview.findings.iter().map(|finding| TimeMark {
        at: opening_time(finding),
        kind: MarkKind::Finding(finding.severity),
        text: SanitizedText::new(&format!("{} {}", finding.kind, finding.entity)),
        finding: Some(finding.id.clone()),
    });
    let changes = overview.changes.iter().map(|change| TimeMark {
        at: change.at,
        kind: change_mark(change.kind),
        text: SanitizedText::new(&change.describe()),
        finding: None,
    });
    let mut marks: Vec<TimeMark> =
        findings.chain(changes).filter(|mark| mark.at <= overview.at).collect();
    marks.sort_by(|a, b| a.at.cmp(&b.at).then(a.kind.cmp(&b.kind)));
    marks.drain(..marks.len().saturating_sub(MAX_MARKS));
    marks
}

/// Returns the newest mark before an instant; marks of the same second are one.
pub(crate) fn previous_mark(marks: &[TimeMark], before: UnixMs) -> Option<&TimeMark> {
    marks.iter().rev().find(|mark| mark.at.0.div_euclid(1_000) < before.0.div_euclid(1_000))
}

/// Returns the oldest mark after an instant.
pub(crate) fn next_mark(marks: &[TimeMark], after: UnixMs) -> Option<&TimeMark> {
    marks.iter().find(|mark| mark.at.0.div_euclid(1_000) > after.0.div_euclid(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_answers::{self, AT};

    #[test]
    fn marks_are_in_order_of_time_and_found_on_both_sides() {
        let marks = collect_marks(&sample_answers::two_faults_overview(8));
        let ages: Vec<i64> = marks.iter().map(|mark| (AT.0 - mark.at.0) / 1_000).collect();
        assert_eq!(ages, [385, 368, 40], "a job start, then two findings");
        assert_eq!(marks[0].kind, MarkKind::JobStarted);
        assert_eq!(previous_mark(&marks, AT), Some(&marks[2]));
        assert_eq!(previous_mark(&marks, marks[2].at), Some(&marks[1]));
        assert_eq!(previous_mark(&marks, marks[0].at), None);
        assert_eq!(next_mark(&marks, marks[0].at), Some(&marks[1]));
        assert_eq!(next_mark(&marks, AT), None);
    }
}
