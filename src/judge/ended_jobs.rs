//! Findings about jobs that have ended: what came and went while a job ran does not come again.

use gaunt_cluster::Cluster;
use gaunt_schema::{DeviceClass, EntityKind, Finding, SanitizedText};

use super::{JudgeState, finding_lifecycle::DetectorOutcome, pending_finding::rests_on_work};

/// Closes findings about what jobs do that have no GPU any more, although their nodes are read.
pub(super) fn close_of_ended_jobs(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let settled = judge.limits.pause_settle_seconds;
    let ended = judge.tracker.iter_open().filter(|finding| {
        let unseen = cluster.now().duration_since(finding.life.seen).as_secs_f64();
        // Labels of exporters may be missing for a moment.
        unseen >= settled && rests_on_work(finding.kind) && has_ended(judge, cluster, finding)
    });
    let reason = || SanitizedText::new("its job has ended");
    outcome.superseded.extend(ended.map(|finding| (finding.id.clone(), reason())));
}

/// Whether the job that a finding is about has no GPU, and all nodes are read that it had.
fn has_ended(judge: &JudgeState, cluster: &Cluster, finding: &Finding) -> bool {
    let entity = &finding.entity;
    let Some(job) = entity.job.as_ref().filter(|_| entity.kind == EntityKind::Job) else {
        return false;
    };
    let mut nodes = finding.victims.iter().filter_map(|victim| victim.node.as_ref()).peekable();
    let is_read = |name: &SanitizedText| {
        let node = cluster.node_by_name(name).map(|(_, node)| node);
        let read = node.and_then(|node| node.last_fed(DeviceClass::Gpu));
        read.is_some_and(|at| cluster.now().duration_since(at) <= cluster.freshness_window())
    };
    judge.job_groups.by_key(job).is_none() && nodes.peek().is_some() && nodes.all(is_read)
}
