//! Fabric congestion: finds where packets queue up, at the host that blocks the network, the leaf or the rail.
//!
//! Congested ports vote for what they have in common: the smallest entity of which most members are congested is to
//! blame.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use gaunt_schema::{DeviceClass, Entity, EntityKind, Finding, FindingKind, SanitizedText};

use super::{
    JudgeState,
    finding_lifecycle::DetectorOutcome,
    host_blocks_network::detect_blocking_host,
    incast::detect_incasts,
    leaf_rail_ports::{LeafRailPorts, congestion_finding, group_by_leaf, render_standing},
    link_averages::{LinkAverages, current_value},
    loaded_ports::{LoadedPort, collect_loaded_ports},
    pending_finding::{PendingFinding, format_count, format_nodes},
    port_rail::render_rail,
    robust_stats::median,
    unnamed_switches::{
        ports_of_congested_nodes, several_rails_finding, unnamed_leaf_finding, unnamed_rail_finding,
    },
};
use gaunt_cluster::{Cluster, NodeId};

/// Adds hosts that block the network, and congested leaves and rails.
pub(super) fn detect_congestion(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    // Whoever sends to a host that blocks the network waits for it, on all rails.
    let mut waiting: HashSet<NodeId> = HashSet::new();
    for (id, node) in cluster.sorted_nodes() {
        if let Some(suspicion) = detect_blocking_host(judge, cluster, id, node) {
            let groups = judge.job_groups.groups_on(node.device_rows(DeviceClass::Gpu));
            waiting.extend(groups.iter().flat_map(|group| &group.nodes));
            outcome.suspicions.push(suspicion);
        }
    }
    if !judge.inferred_leaves.is_any_congested() {
        return;
    }
    let mut ports = collect_loaded_ports(judge, cluster);
    for port in ports.iter_mut().filter(|port| waiting.contains(&port.node)) {
        port.congested = None;
    }
    detect_incasts(judge, cluster, &mut ports, outcome);
    let waits = |row: &u32| {
        cluster.device_at(DeviceClass::Port, *row).is_some_and(|port| waiting.contains(&port.node))
    };
    for group in judge.inferred_leaves.groups_at(cluster.now()) {
        if group.bad.iter().all(waits) {
            continue;
        }
        let suspicion = unnamed_rail_finding(judge, cluster, &ports, group);
        let of_leaf = || unnamed_leaf_finding(judge, cluster, &ports, group);
        outcome.suspicions.push(suspicion.unwrap_or_else(of_leaf));
    }
    let all = group_by_leaf(&ports);
    let mut rails: BTreeMap<&SanitizedText, Vec<&LeafRailPorts<'_>>> = BTreeMap::new();
    for leaf_rail in all.iter().filter(|leaf_rail| leaf_rail.is_mostly_congested(judge)) {
        rails.entry(leaf_rail.rail).or_default().push(leaf_rail);
    }
    // Several rails that are congested at the same time share something, unless a leaf that is known explains each of them.
    let is_shared = |leaves: &[&LeafRailPorts<'_>]| {
        leaves.len() > 1 || leaves.iter().any(|of_rail| of_rail.leaf.is_none())
    };
    let shared = || rails.values().filter(|leaves| is_shared(leaves));
    let known: BTreeSet<&SanitizedText> = all.iter().map(|leaf_rail| leaf_rail.rail).collect();
    let are_all = shared().count() > 1 && shared().count() == known.len();
    if are_all || shared().count() as f64 >= judge.limits.together_ports {
        let bad: Vec<_> = shared().flatten().flat_map(|it| it.congested_ports()).collect();
        let members = shared().flatten().map(|of_rail| of_rail.members.len()).sum();
        outcome.suspicions.push(several_rails_finding(judge, cluster, &bad, members));
        rails.retain(|_, leaves| !is_shared(leaves));
    } else if let Some((bad, members)) = ports_of_congested_nodes(judge, cluster, &ports) {
        outcome.suspicions.push(several_rails_finding(judge, cluster, &bad, members));
    }
    for (rail, leaves) in rails {
        // A rail that is congested below several leaves takes precedence over each of them; so does one whose leaves
        // are unknown.
        let named: BTreeSet<&SanitizedText> =
            leaves.iter().filter_map(|leaf_rail| leaf_rail.leaf).collect();
        let suspicion = match named.len() {
            1 if leaves.len() == 1 && !leaves[0].is_whole_rail(judge, cluster, &all) => {
                let leaf = named.into_iter().next();
                let entity = leaf_entity(judge, leaf, leaves[0], &all, outcome);
                leaf_congested_finding(judge, cluster, entity, leaves[0])
            }
            _ => rail_slow_finding(judge, cluster, rail, &leaves),
        };
        outcome.suspicions.push(suspicion);
    }
}

/// Renders the names of the nodes of ports: `gpu001, gpu002 and others`.
fn render_nodes(cluster: &Cluster, ports: &[&LoadedPort<'_>]) -> String {
    format_nodes(cluster, &ports.iter().map(|port| port.node).collect())
}

/// Returns the ports of a leaf or a rail that have traffic, up to a maximum.
pub(super) fn ports_of_entity(
    judge: &JudgeState,
    cluster: &Cluster,
    of: &Entity,
    most: usize,
) -> Vec<u32> {
    if of.leaf.is_none() && of.rail.is_none() {
        return Vec::new();
    }
    let ports = collect_loaded_ports(judge, cluster);
    let leaf = |port: &&LoadedPort<'_>| of.leaf.is_none() || port.leaf == of.leaf.as_ref();
    let rail = |port: &&LoadedPort<'_>| of.rail.as_ref().is_none_or(|rail| port.rail == *rail);
    let rows: Vec<u32> = ports.iter().filter(leaf).filter(rail).map(|port| port.row).collect();
    let step = rows.len().div_ceil(most.max(1)).max(1);
    rows.into_iter().step_by(step).collect()
}

/// Returns the leaf to blame. Where it is known of whole nodes, it may be several switches, one of each rail: then the
/// rail is part of it while all other rails below it are calm.
fn leaf_entity(
    judge: &JudgeState,
    leaf: Option<&SanitizedText>,
    leaf_rail: &LeafRailPorts<'_>,
    all: &[LeafRailPorts<'_>],
    outcome: &mut DetectorOutcome,
) -> Entity {
    let whole = Entity { leaf: leaf.cloned(), ..Entity::new(EntityKind::Leaf) };
    let of_rail = Entity { rail: Some(leaf_rail.rail.clone()), ..whole.clone() };
    let id_of = |entity: &Entity| Finding::build_id(FindingKind::LeafCongested, entity);
    let mut others = all.iter().filter(|other| other.leaf == leaf && other.rail != leaf_rail.rail);
    let is_of_nodes = leaf_rail.members.iter().all(|port| port.is_leaf_of_node);
    let has_rails = is_of_nodes && others.clone().next().is_some();
    if !has_rails || others.any(|other| other.is_mostly_congested(judge)) {
        outcome.supersede_open(&judge.tracker, &id_of(&of_rail), "several rails are congested");
        return whole;
    }
    if judge.tracker.open_one(&id_of(&whole)).is_some() { whole } else { of_rail }
}

fn leaf_congested_finding(
    judge: &JudgeState,
    cluster: &Cluster,
    entity: Entity,
    leaf_rail: &LeafRailPorts<'_>,
) -> PendingFinding {
    let rail = render_rail(leaf_rail.rail);
    let bad = leaf_rail.congested_ports();
    // The name of a scheduler's group of nodes need not be on any switch.
    let is_of_nodes = bad.iter().all(|port| port.is_leaf_of_node);
    let nodes = is_of_nodes.then(|| format!(", those of {}", render_nodes(cluster, &bad)));
    let summary = format!(
        "{} of {} below {} on {rail} are congested{}{}{}.",
        format_count(bad.len(), "port"),
        leaf_rail.members.len(),
        entity.leaf.as_ref().map(SanitizedText::as_str).unwrap_or_default(),
        render_signs(&bad, cluster),
        nodes.unwrap_or_default(),
        render_standing(&bad),
    );
    let members = leaf_rail.members.len();
    let least = judge.limits.members_bad_ratio * members as f64;
    let of = (least, format!("share of {members} on {rail}"));
    congestion_finding(judge, cluster, FindingKind::LeafCongested, entity, &bad, of).with_summary(
        summary,
        "Check the queues and uplinks of this switch, and the senders to the ports below it."
            .to_owned(),
    )
}

/// Below this share a sign of congestion is not worth a word.
const SHOWN_SIGN: f64 = 0.000_5;

/// Renders the medians of what shows the congestion of ports: ` (ECN-marked packets 3.1 %, PFC pause 9.0 %)`.
fn render_signs(ports: &[&LoadedPort<'_>], cluster: &Cluster) -> String {
    let median_of = |of: fn(&LinkAverages) -> super::moving_average::MovingAverage| {
        median(ports.iter().filter_map(|port| current_value(of(port.link), cluster)))
    };
    let signs = [
        ("ECN-marked packets", median_of(|link| link.ecn_marked)),
        ("PFC pause", median_of(|link| link.pause_received)),
    ];
    let known = signs.into_iter().filter_map(|(name, share)| {
        let share = share.filter(|share| *share >= SHOWN_SIGN)?;
        Some(format!("{name} {:.1} %", share * 100.0))
    });
    let known = known.collect::<Vec<_>>().join(", ");
    if known.is_empty() { known } else { format!(" ({known})") }
}

fn rail_slow_finding(
    judge: &JudgeState,
    cluster: &Cluster,
    rail: &SanitizedText,
    leaf_rails: &[&LeafRailPorts<'_>],
) -> PendingFinding {
    let entity = Entity { rail: Some(rail.clone()), ..Entity::new(EntityKind::Rail) };
    let bad: Vec<&LoadedPort<'_>> =
        leaf_rails.iter().flat_map(|leaf_rail| leaf_rail.congested_ports()).collect();
    let leaves = leaf_rails.iter().filter(|leaf_rail| leaf_rail.leaf.is_some()).count();
    let below = if leaves > 0 {
        format!(" below {}", format_count(leaves, "leaf switch").replace("switchs", "switches"))
    } else {
        String::new()
    };
    let members: usize = leaf_rails.iter().map(|leaf_rail| leaf_rail.members.len()).sum();
    let least = judge.limits.members_bad_ratio * members as f64;
    let of = (least, format!("share of {members}{below}"));
    congestion_finding(judge, cluster, FindingKind::RailSlow, entity, &bad, of).with_summary(
        format!(
            "{} on {}{}{below} are congested{}.",
            format_count(bad.len(), "port"),
            render_rail(rail),
            render_devices(cluster, rail, &bad),
            render_standing(&bad)
        ),
        "Check the spine switches of this rail and their links to the leaves.".to_owned(),
    )
}

/// Returns the device of these ports, ` (rocep75s0)`, where it is the same on all nodes and the rail is not named after it:
/// a rail that is numbered by rank is found by that name.
fn render_devices(cluster: &Cluster, rail: &SanitizedText, ports: &[&LoadedPort<'_>]) -> String {
    let device = |port: &&LoadedPort<'_>| {
        cluster.device_at(DeviceClass::Port, port.row)?.device.key.first().cloned()
    };
    let mut names: Vec<SanitizedText> = ports.iter().filter_map(device).collect();
    names.dedup();
    match names.as_slice() {
        [name] if !name.ends_with(&format!("_{rail}")) => format!(" ({name})"),
        _ => String::new(),
    }
}
