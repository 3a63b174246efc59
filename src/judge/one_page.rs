//! One page for one slowdown: what is inferred about a job, while an open finding already pages for it, is a warning.
//! What devices report themselves pages in any case.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{DeviceClass, Finding, FindingKind, SanitizedText, Severity, UnixMs};

use super::{
    JudgeState, finding_lifecycle::DetectorOutcome, host_pressure::only_pressed,
    pending_finding::is_inferred,
};

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

/// Makes starvation at rare samples informational that is found after another fault which slows the same nodes: samples
/// of GPUs that wait are low now and then, and chores of hosts are everywhere. The only host of the job that is clearly
/// pressed is a second cause, and a warning.
pub(super) fn cap_late_starvation(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let mut slowed: BTreeMap<&SanitizedText, UnixMs> = BTreeMap::new();
    for record in judge.tracker.open_records() {
        let finding = &record.finding;
        if finding.severity == Severity::Info || !slows_a_job(finding.kind) {
            continue;
        }
        for node in finding.victims.iter().filter_map(|victim| victim.node.as_ref()) {
            let opened = slowed.entry(node).or_insert(finding.life.opened);
            *opened = (*opened).min(finding.life.opened);
        }
    }
    if slowed.is_empty() {
        return;
    }
    for pending in &mut outcome.suspicions {
        let finding = &pending.finding;
        let is_starved = matches!(finding.kind, FindingKind::DataStarved | FindingKind::HostBound);
        if !is_starved || !pending.interval.is_slow(&judge.limits) {
            continue;
        }
        let caused = finding.entity.node.as_ref().and_then(|node| slowed.get(node));
        let opened = judge.tracker.open_one(&finding.id).map(|open| open.life.opened);
        if caused.is_some_and(|caused| opened.is_none_or(|opened| opened > *caused)) {
            let node = finding.entity.node.as_ref().and_then(|node| cluster.node_by_name(node));
            let is_second = node.is_some_and(|(id, _)| is_only_pressed(judge, cluster, id));
            let most = if is_second { Severity::Warning } else { Severity::Info };
            pending.finding.severity = pending.finding.severity.min(most);
        }
    }
}

/// Whether a host is the only one of a slower job that is clearly pressed.
fn is_only_pressed(judge: &JudgeState, cluster: &Cluster, id: NodeId) -> bool {
    let rows = cluster.node_by_id(id).map(|node| node.device_rows(DeviceClass::Gpu));
    let groups = judge.job_groups.groups_on(rows.unwrap_or_default());
    groups.into_iter().any(|group| only_pressed(judge, cluster, group) == Some(id))
}

/// Whether a finding of this kind says what slows a job, by what devices or ports report.
const fn slows_a_job(kind: FindingKind) -> bool {
    use FindingKind::{LeafCongested, RailSlow};
    !is_inferred(kind) || matches!(kind, LeafCongested | RailSlow)
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
