//! Pauses: jobs that do nothing for a while, and do not starve. They write a checkpoint, or end.

use gaunt_schema::{Entity, EntityKind, FindingKind, catalogue::gpu};

use super::{Judge, finding::id, gang::Gang, life::Seen};
use crate::cluster::{Cluster, Node, NodeId};

/// A job that sends nothing any more pauses as a whole: what was low before was the beginning of that.
pub(super) fn refute(judge: &Judge, cluster: &Cluster, gang: &Gang, seen: &mut Seen) {
    let pauses = |id: &&NodeId| {
        let pauses = judge.hosts.get(id).and_then(|host| host.pauses(cluster, &judge.limits));
        pauses == Some(true)
    };
    let pausing = gang.nodes.iter().filter(pauses).filter_map(|id| cluster.node(*id));
    let pausing: Vec<&Node> = pausing.collect();
    if pausing.len() * 2 <= gang.nodes.len() {
        return;
    }
    let starved = |node: &&Node| id(FindingKind::DataStarved, &Entity::node(&node.name));
    seen.refuted.extend(pausing.iter().map(starved));
    seen.refuted.push(id(FindingKind::StorageSlow, &Entity::new(EntityKind::Storage)));
}

/// Whether a GPU stood still a moment ago and does something again: however little that is, who pauses does not do it.
/// Where pages come seldom, only what is counted between them says so.
pub(super) fn goes_on_and_off(judge: &Judge, cluster: &Cluster, row: u32) -> bool {
    let limits = &judge.limits;
    let Some(averages) = judge.gpus.get(row as usize).map(|gpu| &gpu.averages) else {
        return false;
    };
    if judge.is_slow(cluster) {
        let counted = cluster.rate(gpu::UTILIZATION_SECONDS, row).is_some();
        return counted
            && averages.utilization_now().is_some_and(|share| share >= limits.active_ratio);
    }
    averages.since_active_again(cluster.now()).is_some_and(|it| it < limits.active_again_seconds)
}
