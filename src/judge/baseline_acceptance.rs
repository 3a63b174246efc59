//! Baseline acceptance: a user accepts the present level of all devices that a finding names as their baseline.

use gaunt_schema::{DeviceClass, FindingKind};

use super::{
    JudgeState, clock_drift::ClockDrift, evidence_sum::LevelEvidence,
    frozen_baselines::FrozenBaselines, host_evidence::HostEvidence, job_group::JobGroup,
};
use gaunt_cluster::{Cluster, NodeId};

/// Whether findings of this kind depend on baselines, so that another level can be accepted. An error that a device
/// reports, or a value beyond an absolute limit, is a fault at every level.
pub const fn is_acceptable(kind: FindingKind) -> bool {
    matches!(
        kind,
        FindingKind::DataStarved
            | FindingKind::StorageSlow
            | FindingKind::HostBound
            | FindingKind::ComputeStraggler
            | FindingKind::StageImbalance
            | FindingKind::DataSkew
            | FindingKind::UnexplainedSlowdown
    )
}

/// Accepts the present level of all devices that an open finding names, and closes the finding. Returns whether it
/// was open.
pub(super) fn accept_finding(
    judge: &mut JudgeState,
    cluster: &Cluster,
    id: &str,
    by: &str,
) -> bool {
    let one = judge.tracker.iter_open().filter(|finding| finding.id == id);
    let named = FrozenBaselines::of(cluster, one, &judge.job_groups);
    if !judge.tracker.accept_finding(id, cluster.now(), by) {
        return false;
    }
    let (now, gap) = (cluster.now(), cluster.freshness_window());
    for (row, gpu) in (0..).zip(&mut judge.gpus) {
        if named.has_gpu(row) {
            gpu.averages.accept_baselines(now, gap, &judge.limits);
            gpu.drift = ClockDrift::default();
            (gpu.idler, gpu.slower_clock) = (LevelEvidence::default(), LevelEvidence::default());
        }
    }
    let nodes: Vec<NodeId> =
        cluster.sorted_nodes().map(|(id, _)| id).filter(|id| named.has_node(*id)).collect();
    for id in nodes {
        if let Some(host) = judge.hosts.get_mut(id) {
            host.accept_baselines(cluster, &judge.limits);
            host.evidence = HostEvidence::default();
        }
        for row in cluster
            .node_by_id(id)
            .map(|node| node.device_rows(DeviceClass::Port))
            .unwrap_or_default()
        {
            judge.links.accept_baselines(*row, cluster, &judge.limits);
        }
    }
    let groups = judge.job_groups.all_groups().iter();
    let named = groups.filter(|group| group.gpus.iter().any(|row| named.has_gpu(*row)));
    for name in named.map(JobGroup::group_key).collect::<Vec<_>>() {
        judge.shares.forget_group(&name);
        judge.gangs.forget_job(&name);
    }
    true
}
