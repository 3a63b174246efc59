//! One page for one slowdown: what is inferred about a job, while an open finding already pages for it, is a warning.
//! What devices report themselves pages in any case.

use std::collections::BTreeSet;

use gaunt_schema::{Finding, SanitizedText, Severity};

use super::{JudgeState, finding_lifecycle::DetectorOutcome, pending_finding::is_inferred};

/// Keeps inferred findings from paging for a job for which another open finding pages.
pub(super) fn cap_second_pages(judge: &JudgeState, outcome: &mut DetectorOutcome) {
    let critical = |finding: &Finding| finding.severity == Severity::Critical;
    let paged: Vec<(&Finding, BTreeSet<&SanitizedText>)> = judge
        .tracker
        .open_records()
        .into_iter()
        .filter(|record| critical(&record.finding))
        .map(|record| (&record.finding, affected_names(&record.finding, &record.jobs)))
        .collect();
    if paged.is_empty() {
        return;
    }
    for pending in &mut outcome.suspicions {
        let finding = &pending.finding;
        let has_paged = paged.iter().any(|(open, _)| open.id == finding.id);
        if !critical(finding) || !is_inferred(finding.kind) || has_paged {
            continue;
        }
        let names = affected_names(finding, &pending.jobs);
        if paged.iter().any(|(_, others)| !others.is_disjoint(&names)) {
            pending.cap_severity();
        }
    }
}

/// The names of the jobs that a finding affects or, where none is known, of its nodes.
fn affected_names<'a>(
    finding: &'a Finding,
    jobs: &'a [SanitizedText],
) -> BTreeSet<&'a SanitizedText> {
    let entities = || std::iter::once(&finding.entity).chain(&finding.victims);
    let named: BTreeSet<&SanitizedText> =
        entities().filter_map(|entity| entity.job.as_ref()).chain(jobs).collect();
    if named.is_empty() {
        return entities().filter_map(|entity| entity.node.as_ref()).collect();
    }
    named
}
