//! Baseline acceptance: a user accepts the present level of all devices that a finding names as their baseline.

use gaunt_schema::{DeviceClass, FindingKind};

use super::{ClockDrift, FrozenBaselines, Judge};
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
    )
}

impl Judge {
    /// Accepts the present level of all devices that an open finding names, and closes the finding. Returns whether it
    /// was open.
    pub fn accept_finding(&mut self, cluster: &Cluster, id: &str, by: &str) -> bool {
        let named = FrozenBaselines::from_finding(self, cluster, id);
        if !self.tracker.accept_finding(id, cluster.now(), by) {
            return false;
        }
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        for (row, gpu) in (0..).zip(&mut self.gpus) {
            if named.has_gpu(row) {
                gpu.averages.accept_baselines(now, gap, &self.limits);
                gpu.drift = ClockDrift::default();
            }
        }
        let nodes: Vec<NodeId> =
            cluster.sorted_nodes().map(|(id, _)| id).filter(|id| named.has_node(*id)).collect();
        for id in nodes {
            if let Some(host) = self.hosts.get_mut(&id) {
                host.accept_baselines(cluster, &self.limits);
            }
            for row in cluster
                .node_by_id(id)
                .map(|node| node.device_rows(DeviceClass::Port))
                .unwrap_or_default()
            {
                self.links.accept_baselines(*row, cluster, &self.limits);
            }
        }
        let groups = self.job_groups.all_groups().iter();
        let named = groups.filter(|group| group.gpus.iter().any(|row| named.has_gpu(*row)));
        for name in named.map(super::job_group::JobGroup::group_key).collect::<Vec<_>>() {
            self.shares.forget_group(&name);
        }
        true
    }
}
