//! Switches without a name: congested ports whose leaf or rail no source tells, by what they have in common.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use gaunt_schema::{
    DeviceClass, Entity, EntityKind, Finding, FindingKind, SanitizedText, Severity,
};

use super::{
    EvidenceRow, JudgeState,
    inferred_leaf::CongestionGroup,
    leaf_rail_ports::{congestion_finding, group_by_leaf, group_ports},
    loaded_ports::{LoadedPort, collect_loaded_ports, is_any_port_congested},
    pending_finding::{MOST_BELOW, PendingFinding, format_count, format_most_nodes},
    port_rail::{UNNAMED, is_unnamed, render_rail},
    sample_interval::SampleInterval,
    standing_fault::ran_as_usual_beside,
};
use gaunt_cluster::{Cluster, NodeId};

/// Congested ports without a known leaf, by rail, where they are too few to blame the rail and too many to blame each
/// one. A rail is excluded if at least half of them are on nodes with several congested rails: these share the node and
/// not a switch. None if no port at all is congested.
pub(super) fn unnamed_leaf_ports(
    judge: &JudgeState,
    cluster: &Cluster,
) -> Option<Vec<(SanitizedText, Vec<u32>)>> {
    if !is_any_port_congested(judge, cluster) {
        return None;
    }
    let ports = collect_loaded_ports(judge, cluster);
    let mut rails: BTreeMap<NodeId, BTreeSet<&SanitizedText>> = BTreeMap::new();
    for port in ports.iter().filter(|port| port.congested.is_some()) {
        rails.entry(port.node).or_default().insert(&port.rail);
    }
    // A scheduler's groups of nodes need not be switches: they count as unknown, unless one explains its congestion.
    let explained: HashSet<u32> = group_by_leaf(&ports)
        .iter()
        .filter(|leaf_rail| leaf_rail.leaf.is_some() && leaf_rail.is_mostly_congested(judge))
        .flat_map(|leaf_rail| leaf_rail.members.iter().map(|port| port.row))
        .collect();
    let mut unnamed = Vec::new();
    for leaf_rail in group_ports(&ports, |port| port.leaf.filter(|_| !port.is_leaf_of_node)) {
        let mut bad = leaf_rail.congested_ports();
        bad.retain(|port| !explained.contains(&port.row));
        let is_alone = |port: &&&LoadedPort<'_>| rails[&port.node].len() == 1;
        let alone = bad.iter().filter(is_alone).count();
        let nodes: BTreeSet<NodeId> = bad.iter().map(|port| port.node).collect();
        let are_few = nodes.len() as f64 >= judge.limits.together_ports && alone * 2 > bad.len();
        if leaf_rail.leaf.is_none() && are_few && !leaf_rail.is_mostly_congested(judge) {
            unnamed.push((leaf_rail.rail.clone(), bad.iter().map(|port| port.row).collect()));
        }
    }
    Some(unnamed)
}

/// Returns a finding for one port of most nodes each that are congested together, where names tell no rail: most likely
/// they are one.
pub(super) fn unnamed_rail_finding(
    judge: &JudgeState,
    cluster: &Cluster,
    ports: &[LoadedPort<'_>],
    group: &CongestionGroup,
) -> Option<PendingFinding> {
    let of_rail: Vec<&LoadedPort<'_>> =
        ports.iter().filter(|port| port.rail == group.rail).collect();
    let (bad, others): (Vec<&LoadedPort<'_>>, Vec<_>) =
        of_rail.iter().copied().partition(|port| group.bad.contains(&port.row));
    let nodes = |ports: &[&LoadedPort<'_>]| {
        ports.iter().map(|port| port.node).collect::<BTreeSet<NodeId>>()
    };
    let (with_bad, all) = (nodes(&bad).len(), nodes(&of_rail).len());
    let least = judge.limits.members_bad_ratio * all as f64;
    if !is_unnamed(&group.rail)
        || bad.len() != with_bad
        || others.len() < with_bad
        || (with_bad as f64) < least
    {
        return None;
    }
    let entity = Entity { rail: Some(group.rail.clone()), ..Entity::new(EntityKind::Rail) };
    let of = (least, format!("share of {all} nodes"));
    Some(
        congestion_finding(judge, cluster, FindingKind::RailSlow, entity, &bad, of).with_summary(
            format!(
                "One port of each of {with_bad} of {all} nodes is congested, such as {}: likely one rail (the names of the ports tell none).",
                render_ports(cluster, &bad),
            ),
            "Check the switches that these ports connect to; add a topology file under [topology]."
                .to_owned(),
        ),
    )
}

/// Names the first ports: `ibxb8cef603007ad1f0 on gpu001`.
fn render_ports(cluster: &Cluster, ports: &[&LoadedPort<'_>]) -> String {
    let name = |port: &&LoadedPort<'_>| {
        let device = &cluster.device_at(DeviceClass::Port, port.row)?.device;
        Some(format!("{} on {}", device.key.first()?, cluster.node_by_id(port.node)?.name))
    };
    ports.iter().filter_map(name).take(MOST_NAMED).collect::<Vec<_>>().join(", ")
}

/// The most ports that are named.
const MOST_NAMED: usize = 2;

/// Returns a finding for ports without a known leaf that are congested together: most likely they share a leaf.
pub(super) fn unnamed_leaf_finding(
    judge: &JudgeState,
    cluster: &Cluster,
    ports: &[LoadedPort<'_>],
    group: &CongestionGroup,
) -> PendingFinding {
    let congested: HashSet<u32> = group.bad.iter().copied().collect();
    let bad: Vec<&LoadedPort<'_>> =
        ports.iter().filter(|port| congested.contains(&port.row)).collect();
    let all = ports.iter().filter(|port| port.rail == group.rail).count();
    let again = if group.times > 1 {
        format!(", for the {} time", render_ordinal(group.times))
    } else {
        String::new()
    };
    let entity = Entity { rail: Some(group.rail.clone()), ..Entity::new(EntityKind::Rail) };
    let times = EvidenceRow::CongestedTogether
        .to_evidence(Some(f64::from(group.times)), None)
        .with_note("no topology: the shared leaf is inferred from this");
    let mut pending = congestion_finding(
        judge,
        cluster,
        FindingKind::LeafCongested,
        entity,
        &bad,
        (judge.limits.together_ports, format!("together_ports, of {all}")),
    );
    if group.is_chance {
        pending.finding.severity = Severity::Info;
    }
    pending
        .with_hold_seconds(judge.limits.incast_seconds.max(SampleInterval::of_pages(cluster).two_sample_seconds(&judge.limits)))
        .mark_learned()
        .with_summary(
            format!(
                "{} of {all} on {} are congested together{again}, those of {}: likely one leaf switch (no topology configured).",
                format_count(bad.len(), "port"),
                render_rail(&group.rail),
                render_most_nodes(cluster, &bad),
            ),
            "Check the switch that these ports connect to; add a topology file under [topology].".to_owned(),
        )
        .with_evidence([times])
}

/// Renders the names of the nodes of ports.
fn render_most_nodes(cluster: &Cluster, ports: &[&LoadedPort<'_>]) -> String {
    let nodes = ports.iter().map(|port| port.node).collect();
    format_most_nodes(cluster, &nodes, MOST_BELOW)
}

fn render_ordinal(number: u32) -> String {
    match number {
        2 => "second".to_owned(),
        3 => "third".to_owned(),
        more => format!("{more}th"),
    }
}

/// Returns the congested ports of nodes without a known leaf of which most rails are, and the number of all ports like
/// them, where these nodes are some of many and their job is slower: they share a switch of all rails, while one node
/// alone is a slow receiver. None if there are none.
pub(super) fn ports_of_congested_nodes<'a>(
    judge: &JudgeState,
    cluster: &Cluster,
    ports: &'a [LoadedPort<'a>],
) -> Option<(Vec<&'a LoadedPort<'a>>, usize)> {
    let limits = &judge.limits;
    let mut nodes: BTreeMap<NodeId, Vec<&LoadedPort<'_>>> = BTreeMap::new();
    for port in ports.iter().filter(|port| port.leaf.is_none()) {
        nodes.entry(port.node).or_default().push(port);
    }
    let all = nodes.len();
    nodes.retain(|_, of_node| {
        let bad = of_node.iter().filter(|port| port.congested.is_some()).count();
        bad > 1 && bad * 2 > of_node.len()
    });
    let share = nodes.len() as f64 / all.max(1) as f64;
    if (nodes.len() as f64) < limits.together_ports || share >= limits.members_bad_ratio {
        return None;
    }
    let groups =
        judge.job_groups.slowed_on_nodes(cluster, &nodes.keys().copied().collect(), limits);
    if !groups.iter().any(|group| judge.gangs.is_likely_slower(group, limits)) {
        return None;
    }
    let members = nodes.values().map(Vec::len).sum();
    let bad = nodes.into_values().flatten().filter(|port| port.congested.is_some());
    Some((bad.collect(), members))
}

/// Returns a finding for several rails that are congested at the same time, below unknown leaves or below several.
pub(super) fn several_rails_finding(
    judge: &JudgeState,
    cluster: &Cluster,
    bad: &[&LoadedPort<'_>],
    members: usize,
) -> PendingFinding {
    let name = SanitizedText::new(UNNAMED);
    let entity = Entity { leaf: Some(name), ..Entity::new(EntityKind::Leaf) };
    let rails: BTreeSet<&SanitizedText> = bad.iter().map(|port| &port.rail).collect();
    let rails = match rails.first() {
        Some(rail) if rails.len() == 1 => render_rail(rail),
        _ => format_count(rails.len(), "rail"),
    };
    let least = judge.limits.members_bad_ratio * members as f64;
    let of = (least, format!("share of {members} on {rails}"));
    let leaves: BTreeSet<&str> = bad.iter().filter_map(|port| Some(port.leaf?.as_str())).collect();
    let (shared, next) = if leaves.is_empty() {
        (
            "a leaf switch or the links above it (no topology configured)".to_owned(),
            "Check the switches that these nodes connect to; add a topology file under [topology].",
        )
    } else {
        let names = leaves.iter().take(MOST_LEAVES).copied().collect::<Vec<_>>().join(", ");
        let others = if leaves.len() > MOST_LEAVES { " and others" } else { "" };
        (
            format!("the links above {names}{others}, or what they send to"),
            "Check the links between these leaf switches and the spine switches, and the traffic of other jobs over them.",
        )
    };
    let found = congestion_finding(judge, cluster, FindingKind::LeafCongested, entity, bad, of);
    let mut found = found.with_summary(
        format!(
            "{} on {rails} are congested at the same time, those of {}: they share {shared}.",
            format_count(bad.len(), "port"),
            render_most_nodes(cluster, bad),
        ),
        next.to_owned(),
    );
    if leaves.is_empty() && comes_from_jobs(judge, cluster, &found.finding, bad) {
        found.cap_severity();
    }
    found
}

/// Whether the jobs themselves may fill the queues: these are ports of all nodes of one job, and of no other, or each of their
/// jobs ran as usual beside it.
fn comes_from_jobs(
    judge: &JudgeState,
    cluster: &Cluster,
    found: &Finding,
    ports: &[&LoadedPort<'_>],
) -> bool {
    let nodes: BTreeSet<NodeId> = ports.iter().map(|port| port.node).collect();
    let gpus = nodes.iter().filter_map(|id| cluster.node_by_id(*id));
    let gpus: Vec<u32> =
        gpus.flat_map(|node| node.device_rows(DeviceClass::Gpu)).copied().collect();
    match judge.job_groups.groups_on(&gpus).as_slice() {
        [group] if group.nodes.iter().all(|id| nodes.contains(id)) => true,
        [] => false,
        groups => groups.iter().all(|group| ran_as_usual_beside(judge, found, group)),
    }
}

/// The maximum of leaves that a summary names.
const MOST_LEAVES: usize = 3;
