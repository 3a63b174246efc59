//! Slow receivers: hosts that accept received packets too slowly, so that their ports send PFC pause frames.

use std::collections::BTreeSet;

use gaunt_schema::{DeviceClass, Entity, FindingKind, unit::Unit};

use super::{
    FindingEvidence, Judge,
    fabric_congestion::slowed_groups,
    link_averages::{LinkAverages, current_value},
    pending_finding::{MAX_VICTIMS, PendingFinding, format_percent},
    robust_stats::median,
};
use gaunt_cluster::{Cluster, Node, NodeId};

/// Returns a finding for a host that receives too slowly and sends PFC pause.
pub(super) fn detect_blocking_host(
    judge: &Judge,
    cluster: &Cluster,
    id: NodeId,
    node: &Node,
) -> Option<PendingFinding> {
    let limits = &judge.limits;
    let suspect = |link: &LinkAverages| {
        current_value(link.pause_sent, cluster).is_some_and(|share| share >= limits.pauses_ratio)
            || current_value(link.out_of_buffer, cluster)
                .is_some_and(|it| it >= limits.unbuffered_per_second)
    };
    if !node
        .device_rows(DeviceClass::Port)
        .iter()
        .filter_map(|row| judge.links.of(*row))
        .any(suspect)
    {
        return None;
    }
    let links: Vec<&LinkAverages> =
        node.device_rows(DeviceClass::Port).iter().filter_map(|row| judge.links.of(*row)).collect();
    let carrying: Vec<&&LinkAverages> = links
        .iter()
        .filter(|link| {
            current_value(link.utilization, cluster)
                .is_some_and(|share| share >= limits.carries_ratio)
        })
        .collect();
    let pauses = |link: &&&&LinkAverages| {
        current_value(link.pause_sent, cluster).is_some_and(|share| share >= limits.pauses_ratio)
    };
    let drops = |link: &&&&LinkAverages| {
        current_value(link.out_of_buffer, cluster)
            .is_some_and(|rate| rate >= limits.unbuffered_per_second)
    };
    let (stopping, dropping) =
        (carrying.iter().filter(pauses).count(), carrying.iter().filter(drops).count());
    let rows = node.device_rows(DeviceClass::Port).iter();
    let stopped = rows.filter_map(|row| current_value(judge.switches.of(*row)?.stopped, cluster));
    let stopped = stopped.reduce(f64::max);
    if stopping.max(dropping) == 0 || stopping.max(dropping) * 2 < carrying.len() {
        return None;
    }
    let gangs = slowed_groups(judge, cluster, &BTreeSet::from([id]));
    let share = median(carrying.iter().filter_map(|link| current_value(link.pause_sent, cluster)));
    let unbuffered =
        median(carrying.iter().filter_map(|link| current_value(link.out_of_buffer, cluster)));
    let confirmed = stopped.is_some_and(|frames| frames >= limits.switch_stopped_per_second);
    let kinds = [stopping > 0, dropping > 0, confirmed, !gangs.is_empty()];
    let kinds = kinds.into_iter().filter(|kind| *kind).count();
    let how = match share.filter(|_| stopping > 0) {
        Some(share) => format!("stops the network {} of the time", format_percent(share)),
        None => format!("has no buffer for {:.1} packets a second", unbuffered.unwrap_or_default()),
    };
    Some(
        PendingFinding::of(FindingKind::HostBlocksNetwork, Entity::new_node(&node.name), kinds, true)
            .with_hold_seconds(limits.hotspot_seconds)
            .with_slowed_jobs(gangs.iter().copied())
            .with_cost(
                gangs.iter().map(|gang| gang.lost_gpus()).sum(),
                gangs.iter().flat_map(|gang| gang.list_victims(cluster, Some(id))).take(MAX_VICTIMS).collect(),
            )
            .with_summary(
                format!("{} {how}: it takes what it receives too slowly.", node.name),
                format!("Look at the PCIe links of {}'s adapters, at its IOMMU and memory settings, and at what else loads its memory.", node.name),
            )
            .with_evidence([
                FindingEvidence::new("ports that stop the network", Some(stopping as f64), Unit::Count, None).with_note(format!("of {}", carrying.len())),
                FindingEvidence::new("time in which they stop it", share, Unit::Ratio, Some(limits.pauses_ratio)),
                FindingEvidence::new("packets without a buffer in a second", unbuffered, Unit::Count, Some(limits.unbuffered_per_second)),
                FindingEvidence::new("pause frames that its switch receives in a second", stopped, Unit::Count, Some(limits.switch_stopped_per_second)),
            ]),
    )
}
