//! Findings from before a restart: whether what each one rests on is looked at again, so that its absence says something.
//!
//! A restart empties averages and forgets states. Until what a finding rests on was read for long enough again nobody can
//! say that its evidence is gone, however long that takes; only what never comes back is given up, with a reason.

use gaunt_schema::{Class, EntityKind, FindingKind, Safe};

use super::{Finding, Gone, Judge, Whereabouts, life::Look};
use crate::cluster::{Cluster, Node, Standing};

/// Why what never comes back is given up.
const NO_DEVICE: &str = "its node does not have it any more since the restart";
const NO_PAST: &str = "what was usual before the restart is not known any more";

/// How far each finding from before a restart is looked at, by its id.
pub(super) fn looks(judge: &Judge, cluster: &Cluster) -> Vec<(String, Look)> {
    let nodes = Whereabouts::of(judge, cluster);
    let ids = judge.life.unsettled();
    ids.map(|finding| (finding.id.clone(), look(judge, cluster, &nodes, finding))).collect()
}

/// Whether a node's pages say nothing now of what a finding of this kind rests on, although they did.
pub(super) fn is_silent(cluster: &Cluster, node: &Node, kind: FindingKind) -> bool {
    let old = |at: Option<_>| at.is_none_or(|at| cluster.is_old(at));
    let part = rests_on(kind).filter(|class| !node.rows(*class).is_empty());
    old(node.sampled) || part.is_some_and(|class| old(node.fed(class)))
}

/// The devices whose pages a kind of finding rests on; none if it rests on those of the node itself.
fn rests_on(kind: FindingKind) -> Option<Class> {
    use FindingKind::{
        AggregatorLate, CollectiveHang, ComputeStraggler, DataSkew, DataStale, DataStarved,
        DriverHung, FindingsOverLimit, GpuFailed, HostBlocksNetwork, HostBound, IdleAllocated,
        LeafCongested, LinkErrors, NvlinkDegraded, PcieDegraded, PortDown, PortRateLow, RailSlow,
        StageImbalance, StorageSlow, TargetDown, Throttled,
    };
    match kind {
        DataStarved | StorageSlow | ComputeStraggler | Throttled | HostBound | PcieDegraded
        | NvlinkDegraded | CollectiveHang | GpuFailed | IdleAllocated | StageImbalance
        | DataSkew => Some(Class::Gpu),
        PortDown | PortRateLow | LinkErrors | LeafCongested | RailSlow | HostBlocksNetwork => {
            Some(Class::Port)
        }
        TargetDown | DriverHung | DataStale | AggregatorLate | FindingsOverLimit => None,
    }
}

/// Whether a kind of finding compares GPUs with what is usual for them.
fn rests_on_usual(kind: FindingKind) -> bool {
    use FindingKind::{
        CollectiveHang, DataSkew, DataStarved, HostBound, StageImbalance, StorageSlow,
    };
    matches!(
        kind,
        DataStarved | StorageSlow | HostBound | CollectiveHang | StageImbalance | DataSkew
    )
}

/// Seconds for which it must be looked at before its absence says that a finding of this kind is over.
fn needed(judge: &Judge, cluster: &Cluster, finding: &Finding) -> f64 {
    let (limits, period) = (&judge.limits, cluster.period().as_secs_f64());
    match finding.kind {
        FindingKind::PortDown
        | FindingKind::PortRateLow
        | FindingKind::GpuFailed
        | FindingKind::DriverHung => f64::from(limits.port_samples + 1) * period,
        FindingKind::TargetDown | FindingKind::AggregatorLate => {
            f64::from(limits.target_failures + 2) * period
        }
        FindingKind::DataStale => {
            limits.stale_seconds.max(limits.stale_periods * period) + 2.0 * period
        }
        _ => {
            let unnamed = finding.entity.kind == EntityKind::Job && finding.entity.job.is_none();
            let regroups = if unnamed { limits.regroup_seconds } else { 0.0 };
            limits.resume_seconds.max(judge.two_samples_of_all(cluster) + 2.0 * period) + regroups
        }
    }
}

fn look(judge: &Judge, cluster: &Cluster, nodes: &Whereabouts<'_>, finding: &Finding) -> Look {
    let limits = &judge.limits;
    let since = judge.began.map(|began| cluster.now().since(began).as_secs_f64());
    let waited = limits.resume_seconds * limits.resume_unread_times;
    let waited = since.is_some_and(|since| since >= waited);
    let never = |why: Safe| if waited { Look::Never(why) } else { Look::Nothing };
    // A target that was not tried yet may be any node.
    let pending = cluster.targets().iter().any(|target| target.standing == Standing::Pending);
    let enough = Look::At(needed(judge, cluster, finding));
    match finding.entity.node.as_ref().and_then(|name| nodes.gone(name)) {
        Some(Gone::Renamed(name)) => return Look::Never(Gone::Renamed(name).reason()),
        // A list of targets may come in parts.
        Some(Gone::Removed) => return never(Gone::Removed.reason()),
        None => {}
    }
    if finding.kind == FindingKind::TargetDown {
        return if pending { Look::Nothing } else { enough };
    }
    let Some(name) = &finding.entity.node else {
        return if read_all(cluster, finding, waited) && (!pending || waited) {
            enough
        } else {
            Look::Nothing
        };
    };
    // Its target is there, and was not read yet: that may take as long as it likes.
    let Some((_, node)) = cluster.named(name) else { return Look::Nothing };
    if is_silent(cluster, node, finding.kind) {
        return Look::Nothing;
    }
    if lacks_board(judge, node, finding) {
        return Look::Nothing;
    }
    if !has_device(cluster, node, finding) {
        return never(NO_DEVICE.into());
    }
    if rests_on_usual(finding.kind) && !knows_usual(judge, node) {
        return never(NO_PAST.into());
    }
    enough
}

/// Whether every node that suffers is read: what is to blame is larger than one. After a while those that do not come
/// back are not waited for.
fn read_all(cluster: &Cluster, finding: &Finding, waited: bool) -> bool {
    let read = |name: &Safe| {
        cluster.named(name).is_some_and(|(_, node)| !is_silent(cluster, node, finding.kind))
    };
    let mut nodes = finding.victims.iter().filter_map(|victim| victim.node.as_ref()).peekable();
    if nodes.peek().is_none() {
        return true;
    }
    if waited { nodes.any(read) } else { nodes.all(read) }
}

/// Whether a board that failed is still missing: its node has fewer than it had.
fn lacks_board(judge: &Judge, node: &Node, finding: &Finding) -> bool {
    let Some(gpu) = finding.entity.gpu.as_ref() else { return false };
    let Some(before) = judge.boards.get(&node.name) else { return false };
    finding.kind == FindingKind::GpuFailed
        && before.contains(gpu)
        && node.rows(Class::Gpu).len() < before.len()
}

/// Whether the device that is blamed is on its node.
fn has_device(cluster: &Cluster, node: &Node, finding: &Finding) -> bool {
    let entity = &finding.entity;
    let (class, first) = match (&entity.gpu, &entity.device) {
        (Some(gpu), _) => (Class::Gpu, gpu),
        (None, Some(device)) => (Class::Port, device),
        (None, None) => {
            let part = rests_on(finding.kind);
            return part.is_none_or(|class| !node.rows(class).is_empty());
        }
    };
    let is = |row: &u32| {
        let key = cluster.device(class, *row).map(|entry| &entry.device.key);
        key.is_some_and(|key| {
            let port = entity.port.as_ref().filter(|_| class == Class::Port);
            key.first() == Some(first) && (port.is_none() || key.get(1) == port)
        })
    };
    node.rows(class).iter().any(is)
}

/// Whether it is known what is usual for any GPU of a node.
fn knows_usual(judge: &Judge, node: &Node) -> bool {
    let known = node.rows(Class::Gpu).iter().filter_map(|row| judge.gpus.get(*row as usize));
    let usual =
        |gpu: &super::Gpu| gpu.averages.usual_utilization().or_else(|| gpu.averages.usual_power());
    known.into_iter().any(|gpu| usual(gpu).is_some())
}
