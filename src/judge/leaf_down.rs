//! A leaf switch that is down: one finding instead of one for each port below it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use gaunt_schema::{DeviceClass, Entity, EntityKind, Finding, FindingKind, SanitizedText, UnixMs};

use super::{
    JudgeState,
    finding_lifecycle::DetectorOutcome,
    node_ports_down::{FoundDown, MOST_BELOW_SWITCH, add_ports_or_nodes, sum_findings},
    pending_finding::{MOST_BELOW, format_count, format_most_nodes, format_time_of_day},
    port_link::is_port_active,
    port_rail::{NodeRails, UNNAMED, render_rail},
    port_trackers::PortTracker,
};
use gaunt_cluster::{Cluster, NodeId};

/// The least ports, of two nodes at least, that are reported as one switch: two may go down together by chance.
const LEAST_PORTS: usize = 3;

/// Within so long after the first port of a switch the others go down too, or within a scrape period: links end at once.
const LAG: Duration = Duration::from_secs(2);

/// Seconds within which the ports of several nodes go down that share a switch which no source names.
const TOGETHER_SECONDS: f64 = 60.0;

/// The ports of one rail below one leaf: by name, if a source names it.
type LeafRail = (Option<SanitizedText>, SanitizedText);

/// What is known of the ports of a rail below a leaf of which some are down.
#[derive(Debug, Default)]
struct PortStates {
    /// When the first went down.
    since: UnixMs,
    down: Vec<usize>,
    /// Those that were active well after that.
    active: usize,
    /// Those that were not read since, or not often enough.
    undecided: usize,
}

/// What becomes of the ports that are down.
enum Verdict {
    /// All of them are: the switch is.
    Switch,
    /// Others may be: it is not known yet.
    Wait,
    /// Each for itself.
    Single,
}

/// Adds the findings of ports; those of a leaf none of whose ports are active are one. It stays one until half of its
/// ports are active again.
pub(super) fn add_ports_or_leaves(
    judge: &JudgeState,
    cluster: &Cluster,
    down: Vec<FoundDown>,
    outcome: &mut DetectorOutcome,
) {
    if down.is_empty() {
        return;
    }
    let (states, in_part) = observe_leaves(cluster, &down);
    let mut of_leaf: BTreeMap<Option<&SanitizedText>, Vec<(&LeafRail, &PortStates, Verdict)>> =
        BTreeMap::new();
    for (key, states) in &states {
        let verdict = states.decide(judge, cluster, key, &down);
        of_leaf.entry(key.0.as_ref()).or_default().push((key, states, verdict));
    }
    let mut down: Vec<Option<FoundDown>> = down.into_iter().map(Some).collect();
    let mut single = Vec::new();
    for (leaf, rails) in of_leaf {
        let dead = || rails.iter().filter(|(.., verdict)| matches!(verdict, Verdict::Switch));
        let has_others = leaf.is_some_and(|leaf| in_part.contains(leaf));
        let is_whole = leaf.is_none() || !has_others && dead().count() == rails.len();
        let mut found = Vec::new();
        for ((_, rail), states, verdict) in &rails {
            let mut ports = states.down.iter().filter_map(|at| down[*at].take());
            match verdict {
                Verdict::Single => single.extend(ports),
                Verdict::Wait => ports.by_ref().for_each(drop),
                Verdict::Switch if is_whole => found.extend(ports),
                Verdict::Switch => {
                    let (entity, ports) =
                        (leaf_entity(leaf, Some(rail)), ports.collect::<Vec<_>>());
                    let finding = leaf_finding(cluster, &entity, &ports, states.members());
                    outcome.add_instead_of(judge, ports, finding);
                }
            }
        }
        if !found.is_empty() {
            let rail = dead().map(|((_, rail), ..)| rail).next().filter(|_| dead().count() == 1);
            let members = dead().map(|(_, states, _)| states.members()).sum();
            let finding = leaf_finding(cluster, &leaf_entity(leaf, rail), &found, members);
            outcome.add_instead_of(judge, found, finding);
        }
    }
    single.extend(down.into_iter().flatten());
    add_ports_or_nodes(judge, cluster, single, outcome);
}

fn leaf_entity(leaf: Option<&SanitizedText>, rail: Option<&SanitizedText>) -> Entity {
    let leaf = leaf.cloned().unwrap_or_else(|| SanitizedText::new(UNNAMED));
    Entity { leaf: Some(leaf), rail: rail.cloned(), ..Entity::new(EntityKind::Leaf) }
}

/// Returns the rails below leaves of which a port is down, with the states of all their ports, and the leaves that have
/// other rails.
fn observe_leaves(
    cluster: &Cluster,
    down: &[FoundDown],
) -> (BTreeMap<LeafRail, PortStates>, BTreeSet<SanitizedText>) {
    let mut states: BTreeMap<LeafRail, PortStates> = BTreeMap::new();
    for (at, port) in down.iter().enumerate() {
        let Some(node) = cluster.node_by_id(port.node) else { continue };
        let Some(rail) = NodeRails::of(node).rail_of(cluster, port.row) else { continue };
        let leaf = cluster.topology().leaf_of_port(port.node, port.row);
        let leaf = leaf.map(|fact| fact.value.clone());
        let state = states.entry((leaf, rail)).or_default();
        let since = port.finding.since;
        state.since = if state.down.is_empty() { since } else { state.since.min(since) };
        state.down.push(at);
    }
    let leaves: BTreeSet<SanitizedText> =
        states.keys().filter_map(|(leaf, _)| leaf.clone()).collect();
    let mut in_part = BTreeSet::new();
    if leaves.is_empty() {
        return (states, in_part);
    }
    let lag = LAG.min(cluster.scrape_period());
    let is_down: BTreeSet<u32> = down.iter().map(|port| port.row).collect();
    for (id, node) in cluster.sorted_nodes() {
        let (rails, read) = (NodeRails::of(node), node.last_fed(DeviceClass::Port));
        for row in node.device_rows(DeviceClass::Port) {
            let leaf = cluster.topology().leaf_of_port(id, *row).map(|fact| &fact.value);
            let leaf = leaf.filter(|leaf| leaves.contains(*leaf));
            let Some(leaf) = leaf.filter(|_| !is_down.contains(row)) else { continue };
            let Some(is_active) = is_port_active(cluster, *row) else { continue };
            let Some(rail) = rails.rail_of(cluster, *row) else { continue };
            let Some(state) = states.get_mut(&(Some(leaf.clone()), rail)) else {
                if is_active {
                    in_part.insert(leaf.clone());
                }
                continue;
            };
            if is_active && read.is_some_and(|read| read.duration_since(state.since) > lag) {
                state.active += 1;
            } else {
                state.undecided += 1;
            }
        }
    }
    (states, in_part)
}

impl PortStates {
    fn members(&self) -> usize {
        self.down.len() + self.active + self.undecided
    }

    fn decide(
        &self,
        judge: &JudgeState,
        cluster: &Cluster,
        (leaf, rail): &LeafRail,
        down: &[FoundDown],
    ) -> Verdict {
        let nodes: BTreeSet<NodeId> = self.down.iter().map(|at| down[*at].node).collect();
        let are_many = self.down.len() >= LEAST_PORTS && nodes.len() > 1;
        let open_since = || {
            [Some(rail), None].into_iter().find_map(|rail| {
                let entity = leaf_entity(leaf.as_ref(), rail);
                let id = Finding::build_id(FindingKind::PortDown, &entity);
                judge.tracker.open_one(&id).map(|finding| finding.since)
            })
        };
        if leaf.is_none() {
            let times = || self.down.iter().map(|at| down[*at].finding.since);
            let last = times().max().unwrap_or(self.since);
            let is_together = last.duration_since(self.since).as_secs_f64() <= TOGETHER_SECONDS;
            // Those that were down at the first look did not go down together.
            let went_down =
                |at: &usize| judge.ports.of(down[*at].row).is_some_and(PortTracker::was_active);
            let are_many =
                are_many && nodes.len() >= LEAST_PORTS && self.down.iter().all(went_down);
            // Those that come back last are no faults of their own: they wait until the finding has closed.
            let are_rest = || {
                open_since().is_some_and(|since| {
                    last.duration_since(since).as_secs_f64() <= TOGETHER_SECONDS
                        && since.duration_since(self.since).as_secs_f64() <= TOGETHER_SECONDS
                })
            };
            return if are_many && is_together {
                Verdict::Switch
            } else if are_rest() {
                Verdict::Wait
            } else {
                Verdict::Single
            };
        }
        let is_open = open_since().is_some();
        let are_most = self.down.len() * 2 > self.members();
        if is_open {
            return if are_most { Verdict::Switch } else { Verdict::Wait };
        }
        let samples = f64::from(judge.limits.port_samples) + 0.5;
        let passed = cluster.now().duration_since(self.since).as_secs_f64();
        let waits = passed < samples * cluster.scrape_period().as_secs_f64();
        match (self.active, self.undecided) {
            (0, 1..) if waits && self.members() >= LEAST_PORTS => Verdict::Wait,
            (0, _) if are_many && are_most => Verdict::Switch,
            _ => Verdict::Single,
        }
    }
}

fn leaf_finding(
    cluster: &Cluster,
    entity: &Entity,
    ports: &[FoundDown],
    members: usize,
) -> Finding {
    let mut summed = sum_findings(entity.clone(), ports);
    let nodes: BTreeSet<NodeId> = ports.iter().map(|port| port.node).collect();
    let names = format_most_nodes(cluster, &nodes, MOST_BELOW);
    let nodes_below = nodes.iter().filter_map(|id| cluster.node_by_id(*id));
    let nodes_below = nodes_below.map(|node| Entity::new_node(&node.name));
    // Which nodes and jobs have the fault is read from its victims.
    summed.victims.extend(nodes_below.take(MOST_BELOW_SWITCH));
    let on_rail = entity.rail.as_ref().map(|rail| format!(" on {}", render_rail(rail)));
    let on_rail = on_rail.unwrap_or_default();
    let since_then = format_time_of_day(summed.since);
    let leaf = entity.leaf.clone().unwrap_or_default();
    let (summary, next) = if leaf.as_str() == UNNAMED {
        (
            format!(
                "{}{on_rail} went down together at {since_then}, those of {names}: they share a leaf switch (no topology configured).",
                format_count(ports.len(), "port"),
            ),
            "Check the switch that these ports connect to; add a topology file under [topology]."
                .to_owned(),
        )
    } else {
        let count = match ports.len() {
            all if all == members && all > 1 => format!("All {all} ports"),
            some => format!("{some} of {members} ports"),
        };
        (
            format!("{count} below {leaf}{on_rail} are down since {since_then}, those of {names}."),
            format!("Check the power of {leaf}, its log, and its links."),
        )
    };
    Finding { summary, next, ..summed }
}
