//! Fabric congestion: finds where packets queue up, at the host that blocks the network, the leaf or the rail.
//!
//! Congested ports vote for what they have in common: the smallest entity of which most members are congested is to
//! blame.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use gaunt_schema::{DeviceClass, Entity, EntityKind, Finding, FindingKind, SanitizedText};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    host_blocks_network::detect_blocking_host,
    incast::detect_incasts,
    link_averages::{LinkAverages, current_value},
    loaded_ports::{LoadedPort, collect_loaded_ports},
    pending_finding::{MAX_VICTIMS, PendingFinding, format_count, format_nodes},
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
    // Several rails that are congested at the same time, below leaves that nobody knows, share something.
    let unnamed =
        rails.values().filter(|leaves| leaves.iter().all(|of_leaf| of_leaf.leaf.is_none()));
    let unnamed: Vec<&LeafRailPorts<'_>> = unnamed.flatten().copied().collect();
    if unnamed.len() as f64 >= judge.limits.together_ports {
        let bad: Vec<_> = unnamed.iter().flat_map(|of_rail| of_rail.congested_ports()).collect();
        let members = unnamed.iter().map(|of_rail| of_rail.members.len()).sum();
        outcome.suspicions.push(several_rails_finding(judge, cluster, &bad, members));
        rails.retain(|_, leaves| leaves.iter().any(|of_leaf| of_leaf.leaf.is_some()));
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

/// Ports of one rail below one leaf.
pub(super) struct LeafRailPorts<'a> {
    pub(super) leaf: Option<&'a SanitizedText>,
    pub(super) rail: &'a SanitizedText,
    pub(super) members: Vec<&'a LoadedPort<'a>>,
}

impl LeafRailPorts<'_> {
    pub(super) fn congested_ports(&self) -> Vec<&LoadedPort<'_>> {
        self.members.iter().filter(|port| port.congested.is_some()).copied().collect()
    }

    pub(super) fn is_mostly_congested(&self, judge: &JudgeState) -> bool {
        let bad = self.congested_ports().len();
        bad as f64 >= judge.limits.sharing_members
            && bad as f64 >= judge.limits.members_bad_ratio * self.members.len() as f64
    }

    /// Whether the rail explains its congestion, and not the leaf: no port of the rail below another leaf carries as much
    /// without congestion. Where the leaf is known for whole nodes only, most of its other rails are not congested either.
    fn is_whole_rail(
        &self,
        judge: &JudgeState,
        cluster: &Cluster,
        all: &[LeafRailPorts<'_>],
    ) -> bool {
        let is_of_nodes = self.members.iter().all(|port| port.is_leaf_of_node);
        let below: Vec<_> = all.iter().filter(|other| other.leaf == self.leaf).collect();
        let congested = below.iter().filter(|other| other.is_mostly_congested(judge)).count();
        if is_of_nodes && congested * 2 > below.len() {
            return false;
        }
        let load = |port: &&LoadedPort<'_>| current_value(port.link.utilization, cluster);
        let own = median(self.members.iter().filter_map(load)).unwrap_or_default();
        let elsewhere =
            all.iter().filter(|other| other.rail == self.rail && other.leaf != self.leaf);
        let elsewhere = elsewhere.flat_map(|other| &other.members);
        let (bad, calm): (Vec<&LoadedPort<'_>>, Vec<_>) =
            elsewhere.copied().partition(|port| port.congested.is_some());
        let carries =
            |port: &LoadedPort<'_>| load(&port).is_some_and(|load| load * ALIKE_LOADS >= own);
        // A single port below another leaf is too few to blame that leaf, and enough to clear this one.
        !calm.into_iter().any(carries) && (is_of_nodes || !bad.is_empty())
    }
}

/// Ports carry as much as others if they carry at least one part in so many of their load.
const ALIKE_LOADS: f64 = 2.0;

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

pub(super) fn group_by_leaf<'a>(ports: &'a [LoadedPort<'a>]) -> Vec<LeafRailPorts<'a>> {
    group_ports(ports, |port| port.leaf)
}

pub(super) fn group_ports<'a>(
    ports: &'a [LoadedPort<'a>],
    leaf_of: impl Fn(&LoadedPort<'a>) -> Option<&'a SanitizedText>,
) -> Vec<LeafRailPorts<'a>> {
    let mut leaf_rails: BTreeMap<(Option<&SanitizedText>, &SanitizedText), Vec<&LoadedPort<'a>>> =
        BTreeMap::new();
    for port in ports {
        leaf_rails.entry((leaf_of(port), &port.rail)).or_default().push(port);
    }
    let leaf_rail = |((leaf, rail), members)| LeafRailPorts { leaf, rail, members };
    leaf_rails.into_iter().map(leaf_rail).collect()
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
        "{} of {} below {} on {rail} are congested{}{}.",
        format_count(bad.len(), "port"),
        leaf_rail.members.len(),
        entity.leaf.as_ref().map(SanitizedText::as_str).unwrap_or_default(),
        render_signs(&bad, cluster),
        nodes.unwrap_or_default(),
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
            "{} on {}{}{below} are congested.",
            format_count(bad.len(), "port"),
            render_rail(rail),
            render_devices(cluster, rail, &bad)
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

pub(super) fn congestion_finding(
    judge: &JudgeState,
    cluster: &Cluster,
    kind: FindingKind,
    entity: Entity,
    bad: &[&LoadedPort<'_>],
    (least, of): (f64, String),
) -> PendingFinding {
    let limits = &judge.limits;
    let nodes: BTreeSet<NodeId> = bad.iter().map(|port| port.node).collect();
    let groups = judge.job_groups.slowed_on_nodes(cluster, &nodes, limits);
    // Pace varies: what is known to be more than that is evidence, what may be is worth a warning.
    let is_likely = groups.iter().any(|group| judge.gangs.is_likely_slower(group, limits));
    let median_of = |of: fn(&LinkAverages) -> super::moving_average::MovingAverage| {
        median(bad.iter().filter_map(|port| current_value(of(port.link), cluster)))
    };
    let paused = median_of(|link| link.pause_received);
    let marked = median(bad.iter().filter_map(|port| port.link.marked_times(cluster, limits)))
        .filter(|times| *times >= limits.marked_times);
    // The absolute limit is shown only where it is exceeded.
    let certain_marks = Some(limits.congested_ratio)
        .filter(|least| median_of(|link| link.ecn_marked).is_some_and(|share| share >= *least));
    let notified = median(bad.iter().filter_map(|port| port.link.notified_times(cluster, limits)));
    let far = bad
        .iter()
        .filter_map(|port| judge.switches.of(port.row)?.queue_over_limit(cluster, limits));
    let far = far.reduce(f64::max);
    // Marks, CNPs and pauses show one queue: only a switch and a slower job are other evidence. Without them a full queue
    // costs nobody anything.
    let kinds = 1 + usize::from(far.is_some()) + usize::from(is_likely);
    let is_certain =
        bad.iter().any(|port| port.congested.is_some_and(|congested| congested.is_certain));
    let slowed = groups.iter().filter_map(|group| group.slowdown_ratio()).reduce(f64::max);
    let lost = groups.iter().map(|group| group.lost_gpus()).sum();
    let victims = groups
        .iter()
        .flat_map(|group| group.list_victims(cluster, None))
        .take(MAX_VICTIMS)
        .collect();
    let suspicion =
        PendingFinding::of(kind, entity, kinds, !groups.is_empty() || (is_certain && kinds > 1))
            .with_slowed_jobs(groups.iter().map(|group| group.group_key()));
    let suspicion = suspicion.with_hold_seconds(limits.hotspot_seconds).with_cost(lost, victims);
    suspicion.with_possible_evidence([
        EvidenceRow::CongestedPorts
            .to_evidence(Some(bad.len() as f64), Some(least))
            .with_note(format!("limit: {of}")),
        EvidenceRow::EcnMarked.to_evidence(median_of(|link| link.ecn_marked), certain_marks),
        EvidenceRow::MarkedTimes.to_evidence(marked, Some(limits.marked_times)),
        EvidenceRow::PauseReceived.to_evidence(paused, Some(limits.congested_ratio)),
        EvidenceRow::CnpsReceived.to_evidence(notified, Some(limits.counter_times)),
        EvidenceRow::SwitchQueue
            .to_evidence(far, Some(1.0))
            .with_note("limit: the settings for each"),
        EvidenceRow::JobSlowdown
            .to_evidence(slowed, Some(limits.least_slowdown_ratio))
            .with_threshold("least_slowdown_ratio"),
    ])
}
