//! Ports with traffic: their place in the fabric, and whether packets queue up at them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::{AbsenceReason, DeviceClass, SanitizedText, catalogue::port};

use super::{
    JudgeState, Thresholds,
    job_group::JobGroup,
    link_averages::{LinkAverages, current_value},
    port_rail::NodeRails,
    standing_waits::{ports_that_stand_out, rails_that_stand_out, waits_long},
    strongest_ports::{CongestionSign, ShownCongestion, find_weaker_ports},
};

/// A port with traffic, its location and its congestion.
pub(super) struct LoadedPort<'a> {
    pub(super) node: NodeId,
    pub(super) row: u32,
    pub(super) link: &'a LinkAverages,
    /// Its leaf switch, or the group of its node that a scheduler calls by the name of a switch.
    pub(super) leaf: Option<&'a SanitizedText>,
    /// Whether only a scheduler names the leaf: for the node, and not for the port.
    pub(super) is_leaf_of_node: bool,
    pub(super) rail: SanitizedText,
    /// The congestion at this port; none if there is none.
    pub(super) congested: Option<Congestion>,
}

/// How much packets queue up at a port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Congestion {
    /// Whether a share or a switch shows it, and not only the comparison with the port's own past.
    pub(super) is_certain: bool,
    /// Whether only its own waiting or pauses show it: packets queue up where it sends to.
    pub(super) is_of_sender: bool,
    /// Whether only the other ports of its node show it, which carry as much and do not wait.
    pub(super) is_standing: bool,
    /// What shows it, and how much more of that there is than usual.
    pub(super) sign: CongestionSign,
    pub(super) strength: f64,
}

/// A sign of congestion that needs no comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CertainSign {
    /// Its switch reports a queue at it.
    Queue,
    /// Its packets are ECN-marked.
    Marks,
}

/// The signals of congestion at one port.
#[derive(Clone, Copy, Debug, Default)]
struct CongestionSigns {
    /// What is over a limit that holds anywhere.
    certain: Option<CertainSign>,
    /// The share of ECN-marked packets, and that / baseline.
    marked: f64,
    marked_times: Option<f64>,
    /// Whether the port waits or is paused: signs of senders, which locate a queue less well than marks.
    is_delayed: bool,
    /// How long it waits, if only that shows that it is delayed.
    waited: Option<f64>,
    /// For which share of the time it is paused, if that shows it.
    paused: Option<f64>,
    /// Whether it sends packets again: on a fabric that neither marks nor pauses, a full queue drops.
    is_resending: bool,
    /// Packets that it receives out of order a second, if that tells of lost ones.
    missing: Option<f64>,
    /// Whether it has waited far longer than the other ports of its node all along, like the others of its rail.
    is_standing: bool,
}

impl CongestionSigns {
    fn of(judge: &JudgeState, cluster: &Cluster, row: u32, link: &LinkAverages) -> Self {
        let limits = &judge.limits;
        let far = judge.switches.of(row).and_then(|far| far.queue_over_limit(cluster, limits));
        let marked = current_value(link.ecn_marked, cluster);
        let waited = link.waited_times(cluster, limits);
        let paused = current_value(link.pause_received, cluster);
        let marked_times = link.marked_times(cluster, limits);
        // In some fabrics a hundredth of the packets is always marked.
        let is_usual = marked_times.is_some_and(|times| times < limits.marked_times);
        let is_marked = marked.is_some_and(|share| share >= limits.congested_ratio);
        let waits = waited.is_some_and(|times| times >= limits.counter_times);
        let is_paused = paused.is_some_and(|share| share >= limits.congested_ratio);
        let waited = current_value(link.transmit_wait, cluster).filter(|_| waits && !is_paused);
        let queue = far.filter(|times| *times >= 1.0).map(|_| CertainSign::Queue);
        Self {
            certain: queue.or((is_marked && !is_usual).then_some(CertainSign::Marks)),
            marked: marked.unwrap_or_default(),
            marked_times,
            is_delayed: waits || is_paused,
            waited,
            paused: paused.filter(|_| is_paused),
            is_resending: current_value(link.retransmitted, cluster)
                .is_some_and(|rate| rate >= limits.errors_per_second),
            missing: cluster
                .current_rate(port::OUT_OF_SEQUENCE, row)
                .filter(|rate| *rate >= limits.errors_per_second),
            is_standing: false,
        }
    }

    /// Returns what shows that a port is congested, which is marked or delayed, or else sends packets again.
    fn shown(&self, is_marked: bool, is_delayed: bool) -> CongestionSign {
        match (is_marked, is_delayed) {
            (true, _) if self.certain == Some(CertainSign::Queue) => CongestionSign::Queued,
            (true, _) => CongestionSign::Marked,
            (_, true) if self.paused.is_some() => CongestionSign::Paused,
            (_, true) => CongestionSign::Waits,
            _ => CongestionSign::Resends,
        }
    }

    fn is_any(self, limits: &Thresholds) -> bool {
        self.certain.is_some()
            || self.is_delayed
            || self.is_resending
            || self.marked_times.is_some_and(|times| times >= limits.marked_times)
    }
}

/// Share of the marks of the most marked port below which those of another one tell nothing.
const FAINT_SHARE: f64 = 0.1;

/// Share of the waiting or the pauses of the port of a job that waits or is paused longest, and of the marks of the most
/// marked port of a node, below which those of another one tell nothing: it takes part in the same collectives.
const FAINT_SIBLING_SHARE: f64 = 0.25;

/// Whether nothing can tell if packets queue up at a port: the only counter that would stands at its maximum.
fn is_unknown(judge: &JudgeState, cluster: &Cluster, row: u32, link: &LinkAverages) -> bool {
    cluster.current_reading(port::TRANSMIT_WAIT, row) == Some(AbsenceReason::Saturated.into())
        && current_value(link.ecn_marked, cluster).is_none()
        && current_value(link.pause_received, cluster).is_none()
        && judge.switches.of(row).is_none()
}

/// Whether any port may be congested.
pub(super) fn is_any_port_congested(judge: &JudgeState, cluster: &Cluster) -> bool {
    let limits = &judge.limits;
    cluster.sorted_nodes().any(|(id, node)| {
        loaded_links(judge, cluster, id, node).any(|(row, link)| {
            CongestionSigns::of(judge, cluster, row, link).is_any(limits)
                || waits_long(cluster, link, limits)
        })
    })
}

/// Whether packets queue up at a port of this node, and at none of most other nodes of its job.
pub(super) fn is_congested_alone(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
    id: NodeId,
) -> bool {
    let is_congested = |id: &NodeId| {
        let node = cluster.node_by_id(*id);
        node.is_some_and(|node| {
            loaded_links(judge, cluster, *id, node).any(|(row, link)| {
                CongestionSigns::of(judge, cluster, row, link).is_any(&judge.limits)
            })
        })
    };
    is_congested(&id)
        && group.nodes.iter().filter(|id| is_congested(id)).count() * 2 <= group.nodes.len()
}

/// Marks the ports of rails on which they have waited all along.
fn mark_standing(
    cluster: &Cluster,
    ports: &[LoadedPort<'_>],
    signs: &mut [CongestionSigns],
    limits: &Thresholds,
) {
    let mut stand_out = Vec::with_capacity(ports.len());
    for of_node in ports.chunk_by(|a, b| a.node == b.node) {
        let links: Vec<&LinkAverages> = of_node.iter().map(|port| port.link).collect();
        let found = ports_that_stand_out(cluster, &links, limits);
        stand_out.extend((0..of_node.len()).map(|at| found.contains(&at)));
    }
    let seen = ports.iter().zip(&stand_out).map(|(port, is)| (port.node, &port.rail, *is));
    let rails = rails_that_stand_out(seen, limits);
    for ((port, sign), stands_out) in ports.iter().zip(signs).zip(stand_out) {
        sign.is_standing = stands_out && !sign.is_delayed && rails.contains(&port.rail);
    }
}

/// Iterates the ports of a node that carry traffic, or do at its usual pace: congestion itself leaves little of it.
pub(super) fn loaded_links<'a>(
    judge: &'a JudgeState,
    cluster: &'a Cluster,
    id: NodeId,
    node: &'a Node,
) -> impl Iterator<Item = (u32, &'a LinkAverages)> {
    let least = least_load(judge, cluster, id);
    node.device_rows(DeviceClass::Port).iter().filter_map(move |row| {
        let link = judge.links.of(*row)?;
        let share = current_value(link.utilization, cluster)?;
        (share >= least).then_some((*row, link))
    })
}

/// Returns the share of its line rate from which a port of a node has traffic: less where the node sends less than usual.
pub(super) fn least_load(judge: &JudgeState, cluster: &Cluster, id: NodeId) -> f64 {
    let pace = judge.hosts.get(id).and_then(|host| host.traffic_ratio(cluster));
    (judge.limits.carries_ratio * pace.map_or(1.0, |pace| pace.min(1.0))).max(f64::MIN_POSITIVE)
}

/// Returns the ports with traffic. Where switches mark packets, marks locate the queue; senders that wait or are paused
/// count only where no port is marked.
pub(super) fn collect_loaded_ports<'a>(
    judge: &'a JudgeState,
    cluster: &'a Cluster,
) -> Vec<LoadedPort<'a>> {
    let limits = &judge.limits;
    let (mut ports, mut signs) = (Vec::new(), Vec::new());
    for (id, node) in cluster.sorted_nodes() {
        let rails = NodeRails::of(node);
        for (row, link) in loaded_links(judge, cluster, id, node) {
            if is_unknown(judge, cluster, row, link) {
                continue;
            }
            let Some(rail) = rails.rail_of(cluster, row) else { continue };
            let topology = cluster.topology();
            signs.push(CongestionSigns::of(judge, cluster, row, link));
            ports.push(LoadedPort {
                node: id,
                row,
                link,
                leaf: topology.leaf_of_port(id, row).map(|fact| &fact.value),
                is_leaf_of_node: topology.port_topology(row).is_none_or(|port| port.leaf.is_none()),
                rail,
                congested: None,
            });
        }
    }
    mark_standing(cluster, &ports, &mut signs, limits);
    // Marks that rise on all ports alike are those of more load, unless they cost the job its speed.
    let quiet = quiet_level(&signs).max(1.0);
    let slower_nodes = nodes_of_slower_jobs(judge);
    let slower: Vec<bool> = ports.iter().map(|port| slower_nodes.contains(&port.node)).collect();
    // Beside ports where the queue certainly is, a small part of their marks is the same traffic on its way there.
    let certain = signs.iter().filter(|sign| sign.certain.is_some()).map(|sign| sign.marked);
    let faint = certain.fold(0.0, f64::max) * FAINT_SHARE;
    let is_marked = |(sign, is_slower): (&CongestionSigns, bool)| {
        if sign.certain.is_none() && sign.marked < faint {
            return false;
        }
        let least = if is_slower { limits.marked_times } else { limits.marked_times * quiet };
        sign.certain.is_some() || sign.marked_times.is_some_and(|times| times >= least)
    };
    let longest = longest_delays(judge, cluster, &ports, &signs);
    let signs: Vec<(&CongestionSigns, bool)> = signs.iter().zip(slower).collect();
    let marked = ports.iter().zip(&signs).filter(|(_, sign)| is_marked(**sign));
    let most_marked = most_by_node(marked.map(|(port, (sign, _))| (port.node, sign.marked)));
    let any_marked = !most_marked.is_empty();
    let rails_with_errors = rails_with_errors(&ports, cluster, limits);
    let by_arrival = are_lost_on_arrival(signs.iter().map(|(sign, _)| *sign));
    for ((port, (sign, is_slower)), longest) in ports.iter_mut().zip(signs).zip(longest) {
        let loses = if by_arrival { sign.missing.is_some() } else { sign.is_resending };
        let drops = loses && is_slower && !rails_with_errors.contains(&port.rail);
        let most = most_marked.get(&port.node).copied().unwrap_or_default();
        let is_marked = is_marked((sign, is_slower))
            && (sign.certain == Some(CertainSign::Queue)
                || sign.marked >= most * FAINT_SIBLING_SHARE);
        let is_clear = !delays_of(sign).into_iter().zip(longest).any(|(delay, longest)| {
            delay.is_some_and(|delay| delay < longest * FAINT_SIBLING_SHARE)
        });
        let is_delayed = (sign.is_delayed && is_clear) || sign.is_standing;
        let is_congested = is_marked || ((is_delayed || drops) && !any_marked);
        // Whoever waits for credits or is paused has lost that time, whatever its past.
        let is_certain = sign.certain.is_some() || sign.is_delayed;
        let is_standing = sign.is_standing && !is_marked;
        let is_of_sender = !is_marked && (sign.is_delayed || is_standing);
        let shown = sign.shown(is_marked, is_delayed);
        let missing = sign.missing.filter(|_| by_arrival && shown == CongestionSign::Resends);
        let strength = missing.or_else(|| port.link.excess_of(shown, cluster)).unwrap_or_default();
        let found = Congestion { is_certain, is_of_sender, is_standing, sign: shown, strength };
        port.congested = is_congested.then_some(found);
    }
    clear_weaker(judge, cluster, &mut ports);
    ports
}

/// Clears the congestion of ports that only wait for others of their job.
fn clear_weaker(judge: &JudgeState, cluster: &Cluster, ports: &mut [LoadedPort<'_>]) {
    if ports.iter().all(|port| port.congested.is_none()) {
        return;
    }
    let shown = ports.iter().map(|port| {
        let Congestion { sign, strength, .. } = port.congested?;
        Some(ShownCongestion { node: port.node.index(), sign, strength })
    });
    let jobs = jobs_of_ports(judge, cluster, ports);
    for at in find_weaker_ports(&shown.collect::<Vec<_>>(), &jobs) {
        ports[at].congested = None;
    }
}

/// Whether packets that are sent again are known where they are missed: below the switch that loses them. Where most ports
/// receive some out of order, they take several paths.
fn are_lost_on_arrival<'a>(signs: impl Iterator<Item = &'a CongestionSigns> + Clone) -> bool {
    let missing = signs.clone().filter(|sign| sign.missing.is_some()).count();
    missing > 0
        && missing * 2 <= signs.clone().count()
        && signs.into_iter().any(|sign| sign.is_resending)
}

/// Returns the most of these of each node.
fn most_by_node(values: impl Iterator<Item = (NodeId, f64)>) -> HashMap<NodeId, f64> {
    let mut most_of: HashMap<NodeId, f64> = HashMap::new();
    for (node, value) in values {
        let most = most_of.entry(node).or_default();
        *most = most.max(value);
    }
    most_of
}

/// How long a port waits, and how long it is paused.
fn delays_of(sign: &CongestionSigns) -> [Option<f64>; 2] {
    [sign.waited, sign.paused]
}

/// Returns for each port the longest delays of any port of the jobs of its node; 0 without a job.
fn longest_delays(
    judge: &JudgeState,
    cluster: &Cluster,
    ports: &[LoadedPort<'_>],
    signs: &[CongestionSigns],
) -> Vec<[f64; 2]> {
    if signs.iter().flat_map(delays_of).all(|delay| delay.is_none()) {
        return vec![[0.0; 2]; ports.len()];
    }
    let longer = |a: [f64; 2], b: [f64; 2]| [a[0].max(b[0]), a[1].max(b[1])];
    let jobs = jobs_of_ports(judge, cluster, ports);
    let mut longest: BTreeMap<usize, [f64; 2]> = BTreeMap::new();
    for (jobs, sign) in jobs.iter().zip(signs) {
        for job in jobs {
            let known = longest.entry(*job).or_default();
            *known = longer(*known, delays_of(sign).map(Option::unwrap_or_default));
        }
    }
    let of_jobs = |jobs: &BTreeSet<usize>| {
        jobs.iter().filter_map(|job| longest.get(job)).copied().fold([0.0; 2], longer)
    };
    jobs.iter().map(of_jobs).collect()
}

/// Returns the jobs of the node of each port.
fn jobs_of_ports(
    judge: &JudgeState,
    cluster: &Cluster,
    ports: &[LoadedPort<'_>],
) -> Vec<BTreeSet<usize>> {
    let jobs_of = |port: &LoadedPort<'_>| {
        let node = cluster.node_by_id(port.node);
        let gpus = node.map(|node| node.device_rows(DeviceClass::Gpu)).unwrap_or_default();
        gpus.iter().filter_map(|row| judge.job_groups.group_index(*row)).collect::<BTreeSet<_>>()
    };
    ports.iter().map(jobs_of).collect()
}

/// Returns the nodes of jobs that are likely slower, by enough to need an explanation.
fn nodes_of_slower_jobs(judge: &JudgeState) -> HashSet<NodeId> {
    let limits = &judge.limits;
    let is_slower = |group: &&JobGroup| {
        group.slowdown_ratio().is_some_and(|slowed| slowed >= limits.unexplained_ratio)
            && judge.gangs.of(group).is_slower(group, limits)
    };
    let slower = judge.job_groups.all_groups().iter().filter(is_slower);
    slower.flat_map(|group| group.nodes.iter().copied()).collect()
}

/// Returns the rails with a port that has link errors: packets are lost there and sent again elsewhere.
fn rails_with_errors(
    ports: &[LoadedPort<'_>],
    cluster: &Cluster,
    limits: &Thresholds,
) -> BTreeSet<SanitizedText> {
    let has_errors = |port: &&LoadedPort<'_>| {
        current_value(port.link.errors, cluster)
            .is_some_and(|rate| rate >= limits.errors_per_second)
    };
    ports.iter().filter(has_errors).map(|port| port.rail.clone()).collect()
}

/// Marks / baseline of the quieter third of all ports: the load of all of them may have changed.
fn quiet_level(signs: &[CongestionSigns]) -> f64 {
    let mut times: Vec<f64> = signs.iter().filter_map(|sign| sign.marked_times).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 3).copied().unwrap_or_default()
}
