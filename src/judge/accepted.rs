//! A level that somebody accepts: what all that a finding names does now is usual from now on.

use gaunt_schema::{Class, FindingKind};

use super::{Drift, Frozen, Judge};
use crate::cluster::{Cluster, NodeId};

/// Whether findings of this kind rest on what is usual, so that another level can be accepted. What a device states of
/// itself, or what is too much for any, is a fault at every level.
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
    /// Takes for usual what all that an open finding names does now, and closes the finding. Says whether it was open.
    pub fn accept(&mut self, cluster: &Cluster, id: &str, by: &str) -> bool {
        let named = Frozen::by_one(self, cluster, id);
        if !self.life.accept(id, cluster.now(), by) {
            return false;
        }
        let (now, gap) = (cluster.now(), cluster.fresh_for());
        for (row, gpu) in (0..).zip(&mut self.gpus) {
            if named.has_gpu(row) {
                gpu.averages.accept(now, gap, &self.limits);
                gpu.drift = Drift::default();
            }
        }
        let nodes: Vec<NodeId> =
            cluster.nodes().map(|(id, _)| id).filter(|id| named.has_node(*id)).collect();
        for id in nodes {
            if let Some(host) = self.hosts.get_mut(&id) {
                host.accept(cluster, &self.limits);
            }
            for row in cluster.node(id).map(|node| node.rows(Class::Port)).unwrap_or_default() {
                self.links.accept(*row, cluster, &self.limits);
            }
        }
        let gangs = self.gangs.all().iter();
        let named = gangs.filter(|gang| gang.gpus.iter().any(|row| named.has_gpu(*row)));
        for name in named.map(super::gang::Gang::name).collect::<Vec<_>>() {
            self.shares.forget(&name);
        }
        true
    }
}
