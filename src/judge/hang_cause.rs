//! Hang causes: a job that lost a GPU or a port, or hangs since one of its nodes stopped reporting its GPUs, hangs because
//! of that.

use std::collections::BTreeSet;

use gaunt_cluster::Cluster;
use gaunt_schema::{Finding, FindingKind, Severity, UnixMs};

use super::{
    JudgeState, finding_lifecycle::DetectorOutcome, gpu_failed::works_in_spite_of_it,
    job_group::JobGroup, pending_finding::PendingFinding, standing_fault::nodes_of_fault,
    suppression::jobs_stopped_by,
};

/// The longest time in seconds from what happened to a node until the hang of its job shows: averages must settle first.
const TOGETHER_SECONDS: f64 = 180.0;

/// Kinds of findings about a node that its job cannot do without: its GPUs do not report, one of its devices is gone, or
/// nothing can be written.
const CAUSES: [FindingKind; 6] = [
    FindingKind::TargetDown,
    FindingKind::DataStale,
    FindingKind::DriverHung,
    FindingKind::GpuFailed,
    FindingKind::PortDown,
    FindingKind::FilesystemFull,
];

/// Makes what happened to a node the cause of the hang of its job: then it pages, and the hang does not.
pub(super) fn blame_causes_of_hangs(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let hangs = outcome
        .suspicions
        .iter()
        .enumerate()
        .filter(|(_, pending)| pending.finding.kind == FindingKind::CollectiveHang);
    let groups = judge.job_groups.all_groups();
    let causes: Vec<(usize, usize, &JobGroup)> = hangs
        .filter_map(|(at, hang)| {
            let group = groups.iter().find(|group| group.to_entity() == hang.finding.entity)?;
            Some((at, cause_of_hang(judge, cluster, outcome, (hang, group))?, group))
        })
        .collect();
    for (hang, cause, group) in causes {
        let pending = &mut outcome.suspicions[hang];
        let hang = pending.finding.clone();
        let since = judge.tracker.suspected_since(&hang.id);
        let lasts = since
            .is_some_and(|since| cluster.now().duration_since(since).as_secs_f64() >= pending.hold);
        // Its time counts, and it opens if the cause goes away while the job still hangs.
        pending.hold = f64::INFINITY;
        let count = outcome.findings.len();
        let cause = match cause.checked_sub(count) {
            Some(at) => &mut outcome.suspicions[at].finding,
            None => &mut outcome.findings[cause],
        };
        if lasts {
            add_hang(cause, &hang, group);
        }
        let reason = format!("explained by {}", cause.id);
        outcome.supersede_open(&judge.tracker, &hang.id, &reason);
    }
}

/// Returns the index of the finding that explains a hang: that about a device whose loss stops the job, the oldest of
/// several; or that about the only node of the job to which something happened at about the same time.
fn cause_of_hang(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &DetectorOutcome,
    (hang, group): (&PendingFinding, &JobGroup),
) -> Option<usize> {
    // The time of one that is not open yet is known to the tracker only.
    let since = |finding: &Finding| {
        let open = || judge.tracker.open_one(&finding.id).map(|open| open.since);
        let since = judge.tracker.suspected_since(&finding.id).or_else(open);
        since.unwrap_or(finding.since).min(cluster.now())
    };
    let pending = outcome.suspicions.iter().map(|pending| &pending.finding);
    let causes = outcome.findings.iter().chain(pending).enumerate().filter(|(_, finding)| {
        CAUSES.contains(&finding.kind) && !works_in_spite_of_it(finding.kind, finding.lost_gpus)
    });
    let causes: Vec<(usize, &Finding)> = causes.collect();
    let key = group.group_key();
    let stopping = causes.iter().filter(|(_, finding)| {
        jobs_stopped_by(judge, finding).iter().any(|job| job.as_ref() == key)
    });
    stopping
        .min_by_key(|(_, finding)| since(finding))
        .map(|(at, _)| *at)
        .or_else(|| only_cause(judge, cluster, &causes, (hang, group), since))
}

/// Returns the index of the finding about the only node of a hung job to which something happened at about the same time.
fn only_cause(
    judge: &JudgeState,
    cluster: &Cluster,
    causes: &[(usize, &Finding)],
    (hang, group): (&PendingFinding, &JobGroup),
    since: impl Fn(&Finding) -> UnixMs,
) -> Option<usize> {
    let hung_since =
        judge.tracker.suspected_since(&hang.finding.id).unwrap_or_else(|| cluster.now());
    let is_together = |finding: &Finding| {
        let since = since(finding);
        since <= hung_since + group.interval.to_duration()
            && hung_since.duration_since(since).as_secs_f64() <= TOGETHER_SECONDS
    };
    let is_of_job = |finding: &Finding| {
        nodes_of_fault(finding)
            .any(|name| cluster.node_by_name(name).is_some_and(|(id, _)| group.has_node(id)))
    };
    let mut nodes = BTreeSet::new();
    let together = causes.iter().filter(|(_, finding)| is_of_job(finding) && is_together(finding));
    let first: Vec<usize> = together
        .filter(|(_, finding)| nodes.insert(finding.entity.node.clone()))
        .map(|(at, _)| *at)
        .collect();
    <[usize; 1]>::try_from(first).ok().map(|[at]| at)
}

/// Makes a finding critical, because a job hangs since then. How many GPUs wait is in the evidence.
fn add_hang(cause: &mut Finding, hang: &Finding, group: &JobGroup) {
    cause.severity = Severity::Critical;
    cause.set_lost_gpus(hang.lost_gpus);
    let victims = hang.victims.iter();
    let more: Vec<_> = victims.filter(|it| !cause.victims.contains(it)).cloned().collect();
    cause.victims.extend(more);
    cause.summary = format!("{} {} hangs.", cause.summary, group.render_title());
    cause.evidence.extend(hang.evidence.iter().cloned());
}
