//! Checkpoint pauses: what a job that pauses refutes, and the findings that cannot be decided meanwhile.

use gaunt_schema::{DeviceClass, Entity, EntityKind, Finding, FindingKind, catalogue::gpu};

use super::{
    JudgeState, finding_lifecycle::DetectorOutcome, job_group::JobGroup,
    pending_finding::rests_on_work, sample_interval::SampleInterval,
};
use gaunt_cluster::{Cluster, Node, NodeId};

/// Refutes starvation of a job that stops sending: it pauses as a whole, which began with the low activity before.
pub(super) fn refute_starvation(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
    outcome: &mut DetectorOutcome,
) {
    let pauses = |id: &&NodeId| {
        let pauses = judge.hosts.get(**id).and_then(|host| host.is_pausing(cluster, &judge.limits));
        pauses == Some(true)
    };
    let pausing = group.nodes.iter().filter(pauses).filter_map(|id| cluster.node_by_id(*id));
    let pausing: Vec<&Node> = pausing.collect();
    if pausing.len() * 2 <= group.nodes.len() {
        return;
    }
    let starved =
        |node: &&Node| Finding::build_id(FindingKind::DataStarved, &Entity::new_node(&node.name));
    outcome.refuted.extend(pausing.iter().map(starved));
    outcome
        .refuted
        .push(Finding::build_id(FindingKind::StorageSlow, &Entity::new(EntityKind::Storage)));
}

/// Whether a GPU stood still a moment ago and is active again: any activity excludes a pause. Where pages come rarely,
/// only counters between them show it.
pub(super) fn works_intermittently(judge: &JudgeState, cluster: &Cluster, row: u32) -> bool {
    let limits = &judge.limits;
    let Some(averages) = judge.gpus.get(row as usize).map(|gpu| &gpu.averages) else {
        return false;
    };
    let interval = cluster
        .device_at(DeviceClass::Gpu, row)
        .and_then(|entry| cluster.node_by_id(entry.node))
        .map(|node| SampleInterval::of_gpus(cluster, node));
    if interval.is_some_and(|interval| interval.is_slow(limits)) {
        let counted = cluster.current_rate(gpu::UTILIZATION_SECONDS, row).is_some();
        return counted
            && averages
                .utilization_now()
                .is_some_and(|share| share >= limits.utilization_idle_ratio);
    }
    averages.since_active_again(cluster.now()).is_some_and(|it| it < limits.active_again_seconds)
}

/// Whether an open finding depends on the work of a job that pauses.
pub(super) fn is_unclear(judge: &JudgeState, cluster: &Cluster, finding: &Finding) -> bool {
    if !rests_on_work(finding.kind) {
        return false;
    }
    let (entity, now) = (&finding.entity, cluster.now());
    let pauses = |group: &JobGroup| {
        let limits = &judge.limits;
        judge.pauses.has(group, now, limits) || judge.pauses.nearly_stands_still(group, now, limits)
    };
    let on_node = |entity: &Entity| {
        let (_, node) = cluster.node_by_name(entity.node.as_ref()?)?;
        let rows = node.device_rows(DeviceClass::Gpu).iter().filter(|row| {
            let key = cluster
                .device_at(DeviceClass::Gpu, **row)
                .and_then(|entry| entry.device.key.first());
            entity.gpu.is_none() || key == entity.gpu.as_ref()
        });
        Some(rows.filter_map(|row| judge.job_groups.of(*row)).any(pauses))
    };
    let of_job = |entity: &Entity| {
        let job = entity.job.as_ref()?;
        let group =
            judge.job_groups.all_groups().iter().find(|group| group.job.as_ref() == Some(job))?;
        Some(pauses(group))
    };
    // An entity larger than a node is observed through its victims.
    of_job(entity).or_else(|| on_node(entity)).unwrap_or_else(|| {
        finding
            .victims
            .iter()
            .any(|victim| of_job(victim).or_else(|| on_node(victim)) == Some(true))
    })
}
