//! Packets that TCP loses, where the traffic of a job takes network devices: the only node that drops what it receives is a
//! slow receiver, the only one that sends again has a bad link, and if most nodes send again a queue that they share drops.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{DeviceClass, Entity, EntityKind, FindingKind, SanitizedText};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
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
pub(super) const LONE_NOTE: &str = "limit: far above its past and the other nodes of the job";

/// How many times as much as before most nodes of a job lose.
const SHARED_TIMES: f64 = 4.0;

/// A share of packets that got lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TcpLoss {
    pub(super) share: f64,
    /// The share from which it counts.
    pub(super) limit: f64,
}

/// Which packets get lost.
type OfShares = fn(&TcpShares) -> &LostShare;

const RESENT: OfShares = |tcp| &tcp.resent;
const DROPPED: OfShares = |tcp| &tcp.dropped;

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

/// Returns what a node loses if it is the only one of its slower job.
fn lone_loss(
    judge: &JudgeState,
    cluster: &Cluster,
    (id, group): (NodeId, &JobGroup),
    (of, least): (OfShares, f64),
) -> Option<TcpLoss> {
    group.confirmed_slowdown(judge.limits.slowed_ratio)?;
    let share_of = |id: NodeId| {
        let lost = of(main_link(judge, cluster, id)?.1.tcp.as_deref()?);
        Some((current_value(lost.now, cluster)?, lost.usual()))
    };
    let (share, usual) = share_of(id)?;
    let others = group.nodes.iter().filter(|other| **other != id);
    let most = others.filter_map(|other| Some(share_of(*other)?.0)).reduce(f64::max)?;
    let limit = least.max(most.max(usual.unwrap_or_default()) * LONE_TIMES);
    (share >= limit).then_some(TcpLoss { share, limit })
}

/// Returns the share of its segments that the node of this link sends again, if it is the only one of its slower job, the
/// link is its main one, and no other node drops what it receives.
pub(super) fn lone_resends(
    judge: &JudgeState,
    cluster: &Cluster,
    (id, row): (NodeId, u32),
    group: &JobGroup,
) -> Option<TcpLoss> {
    let of = |id| lone_loss(judge, cluster, (id, group), (DROPPED, LEAST_DROPPED));
    let is_main = main_link(judge, cluster, id).is_some_and(|(main, _)| main == row);
    if !is_main || group.nodes.iter().any(|id| of(*id).is_some()) {
        return None;
    }
    lone_loss(judge, cluster, (id, group), (RESENT, LEAST_RESENT))
}

/// Adds, for each slower job, the only node that drops what it receives, or the queue that most nodes send through.
pub(super) fn detect_tcp_losses(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    if judge.netdevs.links.is_empty() {
        return;
    }
    let groups = judge.job_groups.all_groups().iter();
    for group in groups.filter(|group| group.nodes.len() > 1) {
        let Some(slowed) = group.confirmed_slowdown(judge.limits.slowed_ratio) else { continue };
        let lone = group.nodes.iter().find_map(|id| {
            let loss = lone_loss(judge, cluster, (*id, group), (DROPPED, LEAST_DROPPED))?;
            slow_receiver(judge, cluster, (*id, group, slowed), loss)
        });
        let found = lone.or_else(|| shared_queue(judge, cluster, (group, slowed)));
        outcome.suspicions.extend(found);
    }
}

fn slow_receiver(
    judge: &JudgeState,
    cluster: &Cluster,
    (id, group, slowed): (NodeId, &JobGroup, f64),
    loss: TcpLoss,
) -> Option<PendingFinding> {
    let (row, _) = main_link(judge, cluster, id)?;
    let node = cluster.node_by_id(id)?;
    let device = cluster.device_at(DeviceClass::Netdev, row)?.device.key.first()?;
    let summary = format!(
        "{} drops {:.2} % of the packets that it receives on {device}, and no other node of {} does: slow receiver.",
        node.name,
        loss.share * 100.0,
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
            .with_cost(group.lost_gpus(), group.list_victims(cluster, Some(id)))
            .with_summary(summary, next)
            .with_evidence([
                EvidenceRow::DroppedPackets
                    .to_evidence(Some(loss.share), Some(loss.limit))
                    .with_note(LONE_NOTE),
                EvidenceRow::JobSlowdown.to_evidence(Some(slowed), Some(judge.limits.slowed_ratio)),
            ]),
    )
}

/// Returns that most nodes of a job send far more segments again than before: a queue between them drops packets.
fn shared_queue(
    judge: &JudgeState,
    cluster: &Cluster,
    (group, slowed): (&JobGroup, f64),
) -> Option<PendingFinding> {
    let limits = &judge.limits;
    // Its usual share must be known: some networks drop now and then.
    let risen = |id: &&NodeId| {
        let resent = main_link(judge, cluster, **id)?.1.tcp.as_deref()?.resent;
        let share = current_value(resent.now, cluster)?;
        (share >= LEAST_RESENT.max(resent.usual()? * SHARED_TIMES)).then_some(share)
    };
    let shares: BTreeMap<NodeId, f64> =
        group.nodes.iter().filter_map(|id| Some((*id, risen(&id)?))).collect();
    let least = limits.sharing_members.max(limits.members_bad_ratio * group.nodes.len() as f64);
    if (shares.len() as f64) < least {
        return None;
    }
    let leaf_of = |id: &NodeId| {
        let (row, _) = main_link(judge, cluster, *id)?;
        cluster.topology().leaf_of_port(*id, row).map(|fact| &fact.value)
    };
    let leaves: BTreeSet<Option<&SanitizedText>> = shares.keys().map(leaf_of).collect();
    let named = leaves.first().copied().flatten().filter(|_| leaves.len() == 1);
    let unnamed = SanitizedText::new(UNNAMED);
    let leaf = named.unwrap_or(&unnamed);
    let entity = Entity { leaf: Some(leaf.clone()), ..Entity::new(EntityKind::Leaf) };
    let share = median(shares.values().copied())?;
    let nodes = format_nodes(cluster, &shares.keys().copied().collect());
    let summary = format!(
        "{} of {} nodes of {} send {:.2} % of their TCP segments again, far more than before, those of {nodes}: a queue that they share drops packets.",
        shares.len(),
        group.nodes.len(),
        group.render_title(),
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
                    .to_evidence(Some(shares.len() as f64), Some(least))
                    .with_note(format!("limit: share of {}", group.nodes.len())),
                EvidenceRow::SegmentResends
                    .to_evidence(Some(share), Some(LEAST_RESENT))
                    .with_note("limit: what slows TCP"),
                EvidenceRow::JobSlowdown.to_evidence(Some(slowed), Some(limits.slowed_ratio)),
            ]),
    )
}
