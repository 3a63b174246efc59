//! Slow receivers: hosts that accept received packets too slowly, so that their ports send PFC pause frames.

use std::collections::BTreeSet;

use gaunt_schema::{DeviceClass, Entity, EvidenceItem, FindingKind};

use super::{
    EvidenceRow, JudgeState,
    job_group::JobGroup,
    link_averages::{LinkAverages, current_value},
    loaded_ports::{LoadedPort, loaded_links},
    pending_finding::{MAX_VICTIMS, PendingFinding, format_count, format_percent},
    robust_stats::median,
};
use gaunt_cluster::{Cluster, Node, NodeId};

/// Returns a finding for a host that receives too slowly and sends PFC pause.
pub(super) fn detect_blocking_host(
    judge: &JudgeState,
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
    let ports = ReceivingPorts::of(judge, cluster, id, node);
    let bad = ports.stopping.len().max(ports.dropping.len());
    if bad == 0 {
        return None;
    }
    let groups = judge.job_groups.slowed_on_nodes(cluster, &BTreeSet::from([id]), limits);
    let stopped = stopped_by_switch(judge, cluster, node);
    let confirmed = stopped.is_some_and(|frames| frames >= limits.switch_events_per_second);
    let is_slower = groups.iter().any(|group| judge.gangs.is_likely_slower(group, limits));
    let kinds = [!ports.stopping.is_empty(), !ports.dropping.is_empty(), confirmed, is_slower];
    let kinds = kinds.into_iter().filter(|kind| *kind).count();
    // Few of its ports tell of a slow adapter, where that is not all that shows it.
    let are_few = bad * 2 < ports.carrying;
    if are_few && kinds < 2 {
        return None;
    }
    let who = if are_few { ports.render_names(cluster, node) } else { node.name.to_string() };
    let (share, unbuffered) = (ports.share, ports.unbuffered);
    let how = match share {
        Some(share) => format!("sends PFC pause {} of the time", format_percent(share)),
        None => format!("has {:.1} out_of_buffer drops per second", unbuffered.unwrap_or_default()),
    };
    let count = |row: EvidenceRow, found: &[u32]| {
        if !are_few {
            return half_of(row, found.len(), ports.carrying);
        }
        row.to_evidence(Some(found.len() as f64).filter(|found| *found > 0.0), None)
            .with_note(format!("of {} with traffic", ports.carrying))
    };
    let pending = PendingFinding::of(
        FindingKind::HostBlocksNetwork,
        Entity::new_node(&node.name),
        kinds,
        true,
    );
    Some(
        with_slowed_groups(pending, cluster, id, &groups)
            .with_hold_seconds(limits.hotspot_seconds)
            .with_summary(format!("{who} {how}: slow receiver."), next_step(node))
            .with_possible_evidence([
                count(EvidenceRow::PausingPorts, &ports.stopping),
                count(EvidenceRow::DroppingPorts, &ports.dropping),
                EvidenceRow::PauseSent.to_evidence(share, Some(limits.pauses_ratio)),
                EvidenceRow::OutOfBuffer
                    .to_evidence(unbuffered, Some(limits.unbuffered_per_second)),
                EvidenceRow::SwitchPauseFrames
                    .to_evidence(stopped, Some(limits.switch_events_per_second)),
            ]),
    )
}

/// The ports of a node with traffic that do not accept it fast enough.
struct ReceivingPorts {
    /// How many have traffic.
    carrying: usize,
    /// Those that send PFC pause, and for which share of the time.
    stopping: Vec<u32>,
    share: Option<f64>,
    /// Those that drop packets for want of buffers, and how many per second.
    dropping: Vec<u32>,
    unbuffered: Option<f64>,
}

impl ReceivingPorts {
    fn of(judge: &JudgeState, cluster: &Cluster, id: NodeId, node: &Node) -> Self {
        let limits = &judge.limits;
        let (mut stopping, mut dropping, mut carrying) = (Vec::new(), Vec::new(), 0);
        for (row, link) in loaded_links(judge, cluster, id, node) {
            carrying += 1;
            let pause = current_value(link.pause_sent, cluster);
            stopping.extend(pause.filter(|it| *it >= limits.pauses_ratio).map(|it| (row, it)));
            let drops = current_value(link.out_of_buffer, cluster);
            let drops = drops.filter(|it| *it >= limits.unbuffered_per_second);
            dropping.extend(drops.map(|it| (row, it)));
        }
        // That of ports which do neither says nothing.
        let middle = |ports: &[(u32, f64)]| median(ports.iter().map(|port| port.1));
        let share = middle(&stopping)
            .filter(|it| usual_pause(judge, cluster, id, node).is_none_or(|its| its * 2.0 < *it));
        if share.is_none() {
            stopping.clear();
        }
        let unbuffered = middle(&dropping);
        let rows = |ports: Vec<(u32, f64)>| ports.into_iter().map(|port| port.0).collect();
        Self { carrying, stopping: rows(stopping), share, dropping: rows(dropping), unbuffered }
    }

    /// Names the ports: `mlx5_2/1 on gpu003`.
    fn render_names(&self, cluster: &Cluster, node: &Node) -> String {
        let rows = if self.stopping.is_empty() { &self.dropping } else { &self.stopping };
        let name = |row: &u32| {
            let entry = cluster.device_at(DeviceClass::Port, *row)?;
            Some(entry.device.key.join("/"))
        };
        format!("{} on {}", rows.iter().filter_map(name).collect::<Vec<_>>().join(", "), node.name)
    }
}

/// Returns a finding for a host whose ports receive marked packets, each as the only one of its rail, where that are most of
/// them or they drop some: it takes packets too slowly.
pub(super) fn detect_marked_receiver(
    judge: &JudgeState,
    cluster: &Cluster,
    marked: &[&LoadedPort<'_>],
    loaded: usize,
) -> Option<PendingFinding> {
    let limits = &judge.limits;
    let id = marked.first()?.node;
    let node = cluster.node_by_id(id)?;
    let groups = judge.job_groups.slowed_on_nodes(cluster, &BTreeSet::from([id]), limits);
    let times = median(marked.iter().filter_map(|port| port.link.marked_times(cluster, limits)))
        .filter(|times| *times >= limits.marked_times)?;
    if !groups.iter().any(|group| judge.gangs.is_likely_slower(group, limits)) {
        return None;
    }
    let unbuffered =
        marked.iter().filter_map(|port| current_value(port.link.out_of_buffer, cluster));
    let unbuffered = unbuffered.reduce(f64::max).filter(|rate| *rate >= limits.errors_per_second);
    let drops = unbuffered
        .map(|rate| format!(" and has {rate:.1} out_of_buffer drops per second"))
        .unwrap_or_default();
    let one = marked.len() == 1;
    let summary = format!(
        "{} of {} receive{} ECN-marked packets{drops}, and no other port of {} does: slow receiver.",
        format_count(marked.len(), "port"),
        node.name,
        if one { "s" } else { "" },
        if one { "its rail" } else { "their rails" },
    );
    let pending =
        PendingFinding::of(FindingKind::HostBlocksNetwork, Entity::new_node(&node.name), 2, true);
    Some(
        with_slowed_groups(pending, cluster, id, &groups)
            .with_summary(summary, next_step(node))
            .with_hold_seconds(limits.hotspot_seconds)
            .with_evidence([
                half_of(EvidenceRow::CongestedPorts, marked.len(), loaded),
                EvidenceRow::MarkedTimes.to_evidence(Some(times), Some(limits.marked_times)),
                EvidenceRow::OutOfBuffer
                    .to_evidence(unbuffered, Some(limits.errors_per_second))
                    .with_threshold("errors_per_second")
                    .or_context(),
                EvidenceRow::JobSlowdown
                    .to_evidence(
                        median(groups.iter().filter_map(|group| group.slowdown_ratio())),
                        Some(limits.slowed_ratio),
                    )
                    .or_context(),
            ]),
    )
}

fn with_slowed_groups(
    pending: PendingFinding,
    cluster: &Cluster,
    id: NodeId,
    groups: &[&JobGroup],
) -> PendingFinding {
    let victims = groups.iter().flat_map(|group| group.list_victims(cluster, Some(id)));
    pending.with_slowed_jobs(groups.iter().map(|group| group.group_key())).with_cost(
        groups.iter().map(|group| group.lost_gpus()).sum(),
        victims.take(MAX_VICTIMS).collect(),
    )
}

/// Returns the share of the time for which the other nodes of its jobs send PFC pause: where that is as much, it comes from
/// the jobs or from how the network is set up, and not from this host.
fn usual_pause(judge: &JudgeState, cluster: &Cluster, id: NodeId, node: &Node) -> Option<f64> {
    let groups = judge.job_groups.groups_on(node.device_rows(DeviceClass::Gpu)).into_iter();
    let others = groups.flat_map(|group| &group.nodes).filter(|other| **other != id);
    median(others.filter_map(|other| {
        let links = loaded_links(judge, cluster, *other, cluster.node_by_id(*other)?);
        median(links.filter_map(|(_, link)| current_value(link.pause_sent, cluster)))
    }))
}

fn next_step(node: &Node) -> String {
    format!(
        "Check the PCIe links of the HCAs of {}, its IOMMU and memory settings, and other load on its memory.",
        node.name
    )
}

/// Returns the most PFC pause frames per second that a switch receives from a node.
fn stopped_by_switch(judge: &JudgeState, cluster: &Cluster, node: &Node) -> Option<f64> {
    let rows = node.device_rows(DeviceClass::Port).iter();
    let stopped = rows.filter_map(|row| current_value(judge.switches.of(*row)?.stopped, cluster));
    stopped.reduce(f64::max)
}

/// Returns how many ports show it; half of those with traffic are enough.
fn half_of(row: EvidenceRow, ports: usize, carrying: usize) -> EvidenceItem {
    row.to_evidence((ports > 0).then_some(ports as f64), Some((carrying as f64 / 2.0).ceil()))
        .with_note(format!("limit: half of {carrying}"))
}
