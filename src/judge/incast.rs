//! Incast: several nodes send more to one port than it can take.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::{DeviceClass, Entity, FindingKind, SanitizedText};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    host_blocks_network::detect_marked_receiver,
    job_group::JobGroup,
    link_averages::current_value,
    loaded_ports::LoadedPort,
    pending_finding::{MAX_VICTIMS, PendingFinding, format_count},
    port_rail::render_rail,
    robust_stats::median,
    sample_interval::SampleInterval,
    waiting_senders::{LEAST_SENDERS, find_awaited_receivers},
};

/// What to do about an incast.
const NEXT_STEP: &str =
    "Check which nodes send to this one at the same time, and how its ranks map to rails.";

/// Adds incasts: receivers to which several nodes send more than they can take, where nothing larger is congested.
pub(super) fn detect_incasts(
    judge: &JudgeState,
    cluster: &Cluster,
    ports: &mut [LoadedPort<'_>],
    outcome: &mut DetectorOutcome,
) {
    for awaited in find_awaited_receivers(judge, cluster, ports) {
        let (receiver, senders) = (&ports[awaited.receiver], awaited.senders.len());
        outcome.suspicions.extend(awaited_finding(judge, cluster, receiver, senders));
        for sender in awaited.senders {
            ports[sender].congested = None;
        }
    }
    let mut rails: BTreeMap<&SanitizedText, Vec<&LoadedPort<'_>>> = BTreeMap::new();
    for port in ports.iter().filter(|port| port.congested.is_some()) {
        rails.entry(&port.rail).or_default().push(port);
    }
    // Where ports of a rail are congested on several nodes, the cause is what they share.
    let is_on_one_node =
        |bad: &&Vec<&LoadedPort<'_>>| bad.iter().all(|port| port.node == bad[0].node);
    let lone: Vec<&LoadedPort<'_>> =
        rails.values().filter(is_on_one_node).flatten().copied().collect();
    let mut nodes: BTreeMap<NodeId, Vec<&LoadedPort<'_>>> = BTreeMap::new();
    for port in lone {
        nodes.entry(port.node).or_default().push(port);
    }
    let are_many = nodes.len() > 1;
    let mut senders: HashMap<NodeId, usize> = HashMap::new();
    for (id, lone) in nodes {
        let loaded = ports.iter().filter(|port| port.node == id).count();
        // What a receiver drops for want of buffers it was sent at a rate that its host cannot take.
        let drops = |port: &&LoadedPort<'_>| {
            current_value(port.link.out_of_buffer, cluster)
                .is_some_and(|rate| rate >= judge.limits.errors_per_second)
        };
        if (lone.len() > 1 && lone.len() * 2 > loaded) || lone.iter().any(drops) {
            outcome.suspicions.extend(detect_marked_receiver(judge, cluster, &lone, loaded));
            continue;
        }
        let of_port = |port| detect_incast(judge, cluster, port, are_many, &mut senders);
        outcome.suspicions.extend(lone.into_iter().filter_map(of_port));
    }
}

/// Counts the nodes that share a job with a node and whose ports handle CNPs.
fn count_senders(judge: &JudgeState, cluster: &Cluster, of: NodeId, node: &Node) -> usize {
    let limits = &judge.limits;
    let groups = judge.job_groups.groups_on(node.device_rows(DeviceClass::Gpu));
    let peers = groups.iter().flat_map(|group| &group.nodes).filter(|id| **id != of);
    let obeys = |id: &&NodeId| {
        let rows = cluster
            .node_by_id(**id)
            .map(|node| node.device_rows(DeviceClass::Port))
            .unwrap_or_default();
        rows.iter().filter_map(|row| judge.links.of(*row)).any(|link| {
            link.notified_times(cluster, limits).is_some_and(|times| times >= limits.counter_times)
        })
    };
    peers.filter(obeys).count()
}

/// `known` caches the sender counts by node: a node may have a thousand ports. Where ports of several nodes are marked,
/// one on each rail, a rise alone does not tell which of them is to blame.
fn detect_incast(
    judge: &JudgeState,
    cluster: &Cluster,
    port: &LoadedPort<'_>,
    are_many: bool,
    known: &mut HashMap<NodeId, usize>,
) -> Option<PendingFinding> {
    let limits = &judge.limits;
    let marked =
        current_value(port.link.ecn_marked, cluster).filter(|it| *it >= limits.congested_ratio);
    let far = judge.switches.of(port.row).and_then(|far| far.queue_over_limit(cluster, limits));
    // By chance one port of many has more marks than usual: they must have risen by the square of what counts where
    // several ports agree.
    let risen = port.link.marked_times(cluster, limits);
    let risen = risen.filter(|times| !are_many && *times >= limits.marked_times.powi(2));
    // Transmit wait is evidence about the sender, and not about the receiver.
    if marked.is_none() && risen.is_none() && far.is_none() {
        return None;
    }
    let node = cluster.node_by_id(port.node)?;
    let senders =
        *known.entry(port.node).or_insert_with(|| count_senders(judge, cluster, port.node, node));
    let slowed = judge.job_groups.slowed_on_nodes(cluster, &BTreeSet::from([port.node]), limits);
    let are_senders_slowed = senders as f64 >= limits.sharing_members;
    let is_slower = slowed.iter().any(|group| judge.gangs.is_likely_slower(group, limits));
    // Not every adapter counts the CNPs that it obeys.
    if !are_senders_slowed && !is_slower {
        return None;
    }
    let kinds = usize::from(are_senders_slowed)
        + usize::from(marked.is_some() && far.is_some())
        + usize::from(is_slower);
    let finding = incast_finding(judge, cluster, port, &slowed, (kinds, true))?;
    let summary = render_incast(&node.name, &finding.finding.entity, senders);
    Some(
        finding.with_summary(summary, NEXT_STEP.to_owned()).with_evidence([
            EvidenceRow::EcnMarked.to_evidence(marked, Some(limits.congested_ratio)),
            EvidenceRow::MarkedTimes
                .to_evidence(risen, Some(limits.marked_times.powi(2)))
                .with_note("limit: the square of marked_times, for one port of many"),
            EvidenceRow::SwitchQueue
                .to_evidence(far, Some(1.0))
                .with_note("limit: the settings for each"),
            EvidenceRow::CnpSenders
                .to_evidence(Some(senders as f64), Some(limits.sharing_members))
                .or_context(),
        ]),
    )
}

/// Returns the finding about a receiver that all other ports of its slower job on its rail wait for.
fn awaited_finding(
    judge: &JudgeState,
    cluster: &Cluster,
    port: &LoadedPort<'_>,
    senders: usize,
) -> Option<PendingFinding> {
    let limits = &judge.limits;
    let slowed = judge.job_groups.slowed_on_nodes(cluster, &BTreeSet::from([port.node]), limits);
    let kinds =
        1 + usize::from(slowed.iter().any(|group| judge.gangs.is_likely_slower(group, limits)));
    let is_hard = !slowed.is_empty();
    let finding = incast_finding(judge, cluster, port, &slowed, (kinds, is_hard))?;
    let entity = &finding.finding.entity;
    let device = entity.device.as_deref().unwrap_or_default();
    let node = entity.node.as_deref().unwrap_or_default();
    let summary = format!(
        "Incast at {device} on {node}: all {senders} other ports of its job on {} wait to send, and this one does not.",
        render_rail(&port.rail)
    );
    Some(
        finding.with_summary(summary, NEXT_STEP.to_owned()).with_evidence([
            EvidenceRow::WaitingSenders
                .to_evidence(Some(senders as f64), Some(LEAST_SENDERS as f64))
                .with_note("limit: the least that tells the receiver"),
            EvidenceRow::JobSlowdown
                .to_evidence(
                    median(slowed.iter().filter_map(|group| group.slowdown_ratio())),
                    Some(limits.slowed_ratio),
                )
                .or_context(),
        ]),
    )
}

/// Creates the finding about a port without its summary and its evidence.
fn incast_finding(
    judge: &JudgeState,
    cluster: &Cluster,
    port: &LoadedPort<'_>,
    slowed: &[&JobGroup],
    (kinds, is_hard): (usize, bool),
) -> Option<PendingFinding> {
    let limits = &judge.limits;
    let node = cluster.node_by_id(port.node)?;
    let key = &cluster.device_at(DeviceClass::Port, port.row)?.device.key;
    let entity = Entity {
        leaf: port.leaf.cloned(),
        ..Entity::new_port(&node.name, key.first()?, key.get(1)?)
    };
    let interval = SampleInterval::of_pages(cluster);
    let lost = slowed.iter().map(|group| group.lost_gpus()).sum();
    let victims = slowed.iter().flat_map(|group| group.list_victims(cluster, Some(port.node)));
    Some(
        PendingFinding::of(FindingKind::LeafCongested, entity, kinds, is_hard)
            .with_hold_seconds(limits.incast_seconds.max(interval.two_sample_seconds(limits)))
            .with_slowed_jobs(slowed.iter().map(|group| group.group_key()))
            .with_cost(lost, victims.take(MAX_VICTIMS).collect()),
    )
}

fn render_incast(node: &str, entity: &Entity, senders: usize) -> String {
    let device = entity.device.as_deref().unwrap_or_default();
    if senders == 0 {
        return format!("Incast at {device} on {node}: ECN marks rise at this port alone.");
    }
    let receive = if senders == 1 { "receives" } else { "receive" };
    format!("Incast at {device} on {node}: {} {receive} CNPs.", format_count(senders, "sender"))
}
