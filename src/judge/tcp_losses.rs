//! Packets that TCP loses, where the traffic of a job takes network devices: the only node that drops what it receives is a
//! slow receiver, the only one that sends again has a bad link, and if most nodes send again a queue that they share drops.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{DeviceClass, Entity, EntityKind, FindingKind, SanitizedText};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    full_port::FullPort,
    job_group::JobGroup,
    link_averages::current_value,
    netdev_link::{LostShare, NetdevLink, TcpShares},
    netdev_rates::carried_bytes,
    pending_finding::{PendingFinding, format_nodes},
    port_rail::UNNAMED,
    robust_stats::median,
};

/// The share of its segments that a node sends again from which its job may be slower for that: TCP then reaches some
/// 20 Gb/s where an answer takes 50 µs.
const LEAST_RESENT: f64 = 1e-4;

/// The share of received packets that are dropped from which the same holds: one packet has several segments.
const LEAST_DROPPED: f64 = 3e-5;

/// How many times as much the only node loses as any other node of the job, and as before.
const LONE_TIMES: f64 = 10.0;

/// The source of the limit of the only node.
const LONE_NOTE: &str = "limit: far above its past and the other nodes of the job";

/// How many times as much as before most nodes of a job lose.
const SHARED_TIMES: f64 = 4.0;

/// What a node of a job loses.
#[derive(Clone, Copy)]
struct NodeLosses<'a> {
    id: NodeId,
    /// The link that carries the traffic of the job.
    row: u32,
    tcp: &'a TcpShares,
}

/// The only node of a job that loses so much.
#[derive(Clone, Copy)]
struct LoneLoss<'a> {
    of: NodeLosses<'a>,
    share: f64,
    /// The share from which it counts.
    limit: f64,
}

/// A slower job, and by how much it is slower.
type SlowerJob<'a> = (&'a JobGroup, f64);

/// Returns the link of a node that carries its job's traffic: the one that carries most, where it has no RDMA port.
fn main_link<'a>(
    judge: &'a JudgeState,
    cluster: &Cluster,
    id: NodeId,
) -> Option<(u32, &'a NetdevLink)> {
    let node = cluster.node_by_id(id)?;
    if !node.device_rows(DeviceClass::Port).is_empty() {
        return None;
    }
    let rows = node.device_rows(DeviceClass::Netdev).iter();
    rows.filter_map(|row| Some((*row, judge.netdevs.links.get(row)?)))
        .max_by(|a, b| carried_bytes(cluster, a.0).total_cmp(&carried_bytes(cluster, b.0)))
}

/// Returns the node that loses most, if it is the only one that loses far more than before and than all others.
fn lone_loss<'a>(
    cluster: &Cluster,
    nodes: &[NodeLosses<'a>],
    of: fn(&TcpShares) -> &LostShare,
    least: f64,
) -> Option<LoneLoss<'a>> {
    let shares =
        nodes.iter().filter_map(|node| Some((*node, current_value(of(node.tcp).now, cluster)?)));
    let mut shares: Vec<(NodeLosses<'a>, f64)> = shares.collect();
    shares.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let [(most, share), (_, second), ..] = shares[..] else { return None };
    let limit = least.max(second.max(of(most.tcp).usual().unwrap_or_default()) * LONE_TIMES);
    (share >= limit).then_some(LoneLoss { of: most, share, limit })
}

/// Adds, for each slower job, the only node that drops what it receives, the only one that sends again, or the queue that
/// most nodes send through.
pub(super) fn detect_tcp_losses(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    if judge.netdevs.links.is_empty() {
        return;
    }
    for group in judge.job_groups.all_groups().iter().filter(|group| group.nodes.len() > 1) {
        let Some(slowed) = group.confirmed_slowdown(judge.limits.slowed_ratio) else { continue };
        // What a full port loses is known.
        if FullPort::find(judge, cluster, group).is_some() {
            continue;
        }
        let losses = |id: &NodeId| {
            let (row, link) = main_link(judge, cluster, *id)?;
            Some(NodeLosses { id: *id, row, tcp: link.tcp.as_deref()? })
        };
        let nodes: Vec<NodeLosses<'_>> = group.nodes.iter().filter_map(losses).collect();
        let job = (group, slowed);
        // What a node does not take, others send again.
        let dropped = lone_loss(cluster, &nodes, |tcp| &tcp.dropped, LEAST_DROPPED);
        let resent = || lone_loss(cluster, &nodes, |tcp| &tcp.resent, LEAST_RESENT);
        let found = match dropped {
            Some(loss) => slow_receiver(judge, cluster, job, loss),
            None => match resent() {
                Some(loss) => bad_link(judge, cluster, job, loss),
                None => shared_queue(judge, cluster, job, &nodes),
            },
        };
        // Errors of the link itself say more.
        let is_told = |found: &PendingFinding| {
            outcome.suspicions.iter().any(|told| told.finding.id == found.finding.id)
        };
        let found = found.filter(|found| !is_told(found));
        outcome.suspicions.extend(found);
    }
}

/// Returns that the link of the only node that sends again is bad.
fn bad_link(
    judge: &JudgeState,
    cluster: &Cluster,
    (group, slowed): SlowerJob<'_>,
    LoneLoss { of, share, limit }: LoneLoss<'_>,
) -> Option<PendingFinding> {
    let limits = &judge.limits;
    let node = cluster.node_by_id(of.id)?;
    let device = cluster.device_at(DeviceClass::Netdev, of.row)?.device.key.first()?;
    let entity = Entity::new_netdev(&node.name, device);
    let summary = format!(
        "{} sends {:.2} % of its TCP segments again, no other node of {} does: {entity} or its link loses packets.",
        node.name,
        share * 100.0,
        group.render_title(),
    );
    let next = "Clean and reseat the cable and its transceivers. If they are sound, check the node that it sends to (`ss -ti` has the resends of each connection).";
    Some(
        PendingFinding::of(FindingKind::LinkErrors, entity, 1, true)
            .with_hold_seconds(limits.link_errors_seconds)
            .with_cost(group.lost_gpus(), group.list_victims(cluster, Some(of.id)))
            .with_summary(summary, next.to_owned())
            .with_evidence([
                EvidenceRow::SegmentResends
                    .to_evidence(Some(share), Some(limit))
                    .with_note(LONE_NOTE),
                EvidenceRow::JobSlowdown.to_evidence(Some(slowed), Some(limits.slowed_ratio)),
            ]),
    )
}

fn slow_receiver(
    judge: &JudgeState,
    cluster: &Cluster,
    (group, slowed): SlowerJob<'_>,
    LoneLoss { of, share, limit }: LoneLoss<'_>,
) -> Option<PendingFinding> {
    let node = cluster.node_by_id(of.id)?;
    let device = cluster.device_at(DeviceClass::Netdev, of.row)?.device.key.first()?;
    let summary = format!(
        "{} drops {:.2} % of the packets that it receives on {device}, and no other node of {} does: slow receiver.",
        node.name,
        share * 100.0,
        group.render_title(),
    );
    let next = format!(
        "Check what takes the CPUs of {}, which of them serve the interrupts of {device}, and its ring sizes (`ethtool -g {device}`).",
        node.name
    );
    Some(
        PendingFinding::of(FindingKind::HostBlocksNetwork, Entity::new_node(&node.name), 1, true)
            .with_hold_seconds(judge.limits.hotspot_seconds)
            .with_slowed_jobs(std::iter::once(group.group_key()))
            .with_cost(group.lost_gpus(), group.list_victims(cluster, Some(of.id)))
            .with_summary(summary, next)
            .with_evidence([
                EvidenceRow::DroppedPackets
                    .to_evidence(Some(share), Some(limit))
                    .with_note(LONE_NOTE),
                EvidenceRow::JobSlowdown.to_evidence(Some(slowed), Some(judge.limits.slowed_ratio)),
            ]),
    )
}

/// Returns that most nodes of a job send far more segments again than before: a queue between them drops packets.
fn shared_queue(
    judge: &JudgeState,
    cluster: &Cluster,
    (group, slowed): SlowerJob<'_>,
    nodes: &[NodeLosses<'_>],
) -> Option<PendingFinding> {
    let limits = &judge.limits;
    // Its usual share must be known: some networks drop now and then.
    let risen = |node: &NodeLosses<'_>| {
        let share = current_value(node.tcp.resent.now, cluster)?;
        (share >= LEAST_RESENT.max(node.tcp.resent.usual()? * SHARED_TIMES))
            .then_some((node.id, share))
    };
    let risen: BTreeMap<NodeId, f64> = nodes.iter().filter_map(risen).collect();
    let leaf_of = |id: &NodeId| {
        let known = cluster.topology().node_topology(*id)?.leaf.as_ref();
        known.map(|fact| &fact.value)
    };
    let leaves: BTreeSet<Option<&SanitizedText>> = risen.keys().map(leaf_of).collect();
    let only = leaves.first().copied().flatten().filter(|_| leaves.len() == 1);
    // Below one leaf it need not be most nodes of the job.
    let below = |leaf| nodes.iter().filter(|node| leaf_of(&node.id) == Some(leaf)).count();
    let of = only.map_or(group.nodes.len(), below);
    let least = limits.sharing_members.max(limits.members_bad_ratio * of as f64);
    if (risen.len() as f64) < least {
        return None;
    }
    let unnamed = SanitizedText::new(UNNAMED);
    let leaf = only.unwrap_or(&unnamed);
    let entity = Entity { leaf: Some(leaf.clone()), ..Entity::new(EntityKind::Leaf) };
    let share = median(risen.values().copied())?;
    let names = format_nodes(cluster, &risen.keys().copied().collect());
    let summary = format!(
        "{} of {of} nodes of {}{} send {:.2} % of their TCP segments again, far more than before, those of {names}: a queue that they share drops packets.",
        risen.len(),
        group.render_title(),
        only.map_or_else(String::new, |leaf| format!(" below {leaf}")),
        share * 100.0,
    );
    let next = "Check the queues and drops of the switches of these nodes and of the links above them, and what else is sent through them.";
    Some(
        PendingFinding::of(FindingKind::LeafCongested, entity, 1, true)
            .with_hold_seconds(limits.hotspot_seconds)
            .with_slowed_jobs(std::iter::once(group.group_key()))
            .with_cost(group.lost_gpus(), group.list_victims(cluster, None))
            .with_summary(summary, next.to_owned())
            .with_evidence([
                EvidenceRow::ResendingNodes
                    .to_evidence(Some(risen.len() as f64), Some(least))
                    .with_note(format!("limit: share of {of}")),
                EvidenceRow::SegmentResends
                    .to_evidence(Some(share), Some(LEAST_RESENT))
                    .with_note("limit: what slows TCP"),
                EvidenceRow::JobSlowdown.to_evidence(Some(slowed), Some(limits.slowed_ratio)),
            ]),
    )
}
