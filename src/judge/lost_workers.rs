//! Lost workers: GPUs that a job holds and on which its process has ended, while those beside them work on. A replica or a
//! rank has crashed, and nothing has started it again.

use std::collections::BTreeSet;

use gaunt_cluster::Cluster;
use gaunt_schema::{Finding, FindingKind};

use super::{
    EvidenceRow, JudgeState, gpu_signals,
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_count, format_nodes},
    ranks_on_node::rows_in_group,
};

/// Returns a finding about the GPUs of a job that its processes have left, where others on the same node still hold theirs:
/// a job that ends, or gives a node back, leaves all of that node.
pub(super) fn detect_lost_workers(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
) -> Option<PendingFinding> {
    let job = group.job.as_ref()?;
    let limits = &judge.limits;
    // A restart of the aggregator forgets who has worked.
    let id = Finding::build_id(FindingKind::IdleAllocated, &group.to_entity());
    let is_told = judge.tracker.open_one(&id).is_some();
    let (mut nodes, mut count) = (BTreeSet::new(), 0);
    for id in &group.nodes {
        let Some(node) = cluster.node_by_id(*id) else { continue };
        let rows = rows_in_group(judge, cluster, node, group);
        let is_left = |row: &&u32| {
            let start = judge.gpus.get(**row as usize).map(|gpu| gpu.start);
            start.is_some_and(|start| start.is_empty() && (start.has_worked || is_told))
        };
        let left = rows.iter().filter(is_left).count();
        let is_held = |row: &u32| gpu_signals::is_held(cluster, *row, limits) == Some(true);
        if left > 0 && rows.iter().any(is_held) {
            nodes.insert(*id);
            count += left;
        }
    }
    if count == 0 {
        return None;
    }
    let (verb, them) = if count == 1 { ("has", "it") } else { ("have", "them") };
    Some(
        PendingFinding::of(FindingKind::IdleAllocated, group.to_entity(), 1, true)
            .with_hold_seconds(
                limits.pause_settle_seconds.max(group.interval.two_sample_seconds(limits)),
            )
            .with_cost(count as f64, group.list_victims(cluster, None))
            .with_summary(
                format!(
                    "{} of job {job} on {} {verb} no process any more, and the job still holds {them}.",
                    format_count(count, "GPU"),
                    format_nodes(cluster, &nodes),
                ),
                "Check the log of the worker that ended, and start it again or end the job."
                    .to_owned(),
            )
            .with_evidence([EvidenceRow::IdleGpus.to_evidence(Some(count as f64), None)]),
    )
}
