//! Link quality: ports with symbol errors or FEC corrections, and ports below their expected line rate.

use std::collections::HashMap;

use gaunt_schema::{
    AbsenceReason, DeviceClass, Entity, Finding, FindingKind, MetricId, catalogue::port,
};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    leaf_link_errors::{FaultyPort, add_ports_or_leaves},
    link_averages::{LinkAverages, current_value},
    link_resends::lone_resends,
    loaded_ports::least_load,
    node_link_rates::FleetLinkRates,
    pending_finding::PendingFinding,
    port_counters::LINK_ERRORS,
    port_down::jobs_on_node,
    port_link::is_port_usable,
    rare_events::{LIMIT_NOTE, PeerEvents},
    robust_stats::median,
};
use gaunt_cluster::{Cluster, Node, NodeId};

/// Adds every port with a degraded link.
pub(super) fn detect_bad_links(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let (mut resends, mut faulty) = (HashMap::new(), Vec::new());
    let fleet_rates = FleetLinkRates::of(cluster);
    let peers = judge.links.sum_errors();
    let loads = PortLoads { judge, cluster };
    for (id, node) in cluster.sorted_nodes() {
        let fell = |row| {
            let rate = cluster.current_value(port::RATE, row);
            judge.links.of(row).is_some_and(|link| link.is_below_best(rate))
        };
        // While its job pauses, a port that is told carries nothing. That one fell says nothing about its peers.
        let works_like_others = |row| {
            (!fell(row) && loads.is_told(node, row))
                || loads.works_like_siblings(id, node, row)
                || loads.works_like_namesakes(id, node, row)
        };
        let below_peers = fleet_rates.ports_below_peers(id, node, fell, works_like_others);
        let below_peers = below_peers.unwrap_or_default();
        for row in node.device_rows(DeviceClass::Port) {
            let Some(link) = judge.links.of(*row) else { continue };
            if !is_port_usable(cluster, *row) {
                continue;
            }
            let (row, below_peers) = (*row, below_peers.as_slice());
            let active_port =
                ActivePort { judge, cluster, id, node, row, link, peers, below_peers };
            outcome.suspicions.extend(active_port.detect_low_rate());
            match active_port.detect_link_errors(&mut resends) {
                Some(pending) => faulty.push(FaultyPort { node: id, row, pending }),
                None if active_port.is_unclear() => {
                    outcome.undecidable.push(active_port.link_errors_id());
                }
                None => {}
            }
        }
    }
    add_ports_or_leaves(judge, cluster, faulty, outcome);
}

/// What two ports have in common that do the same work.
struct PortLoads<'a> {
    judge: &'a JudgeState,
    cluster: &'a Cluster,
}

impl PortLoads<'_> {
    fn rate(&self, row: u32) -> Option<f64> {
        self.cluster.current_value(port::RATE, row)
    }

    /// The share of its rate that a port carries.
    fn share(&self, row: u32) -> Option<f64> {
        current_value(self.judge.links.of(row)?.utilization, self.cluster)
    }

    fn bytes(&self, row: u32) -> Option<f64> {
        Some(self.share(row)? * self.rate(row)?)
    }

    /// Whether a finding is open that the rate of a port is low.
    fn is_told(&self, node: &Node, row: u32) -> bool {
        let entity = port_entity(self.cluster, node, row);
        let id = Finding::build_id(FindingKind::PortRateLow, &entity);
        self.judge.tracker.open_one(&id).is_some()
    }

    /// Whether a port carries as much as the faster ports of its node: it is one of them, and no adapter for something else.
    fn works_like_siblings(&self, id: NodeId, node: &Node, row: u32) -> bool {
        let faster = node.device_rows(DeviceClass::Port).iter().copied();
        let faster = faster.filter(|other| self.rate(*other) > self.rate(row));
        let faster: Vec<f64> = faster.filter_map(|other| self.bytes(other)).collect();
        let least = least_load(self.judge, self.cluster, id);
        self.share(row).is_some_and(|share| share >= least)
            && faster.len() >= LEAST_SIBLINGS
            && self.carries_about(row, median(faster.iter().copied()))
    }

    /// Whether a port is busy and carries as much as the faster ports of its name on all other nodes of its job, as where
    /// they exchange their data with each other.
    fn works_like_namesakes(&self, id: NodeId, node: &Node, row: u32) -> bool {
        let device = |row: u32| Some(&self.cluster.device_at(DeviceClass::Port, row)?.device);
        let groups = self.judge.job_groups.groups_on(node.device_rows(DeviceClass::Gpu));
        let [group] = groups.as_slice() else { return false };
        let others = group.nodes.iter().filter(|other| **other != id);
        let namesake = |other: &NodeId| {
            let ports = self.cluster.node_by_id(*other)?.device_rows(DeviceClass::Port);
            ports.iter().copied().find(|other| device(*other) == device(row))
        };
        let namesakes: Option<Vec<u32>> = others.map(namesake).collect();
        self.share(row).is_some_and(|share| share >= BUSY_SHARE)
            && namesakes.is_some_and(|namesakes| {
                !namesakes.is_empty()
                    && namesakes.iter().all(|other| {
                        self.rate(*other) > self.rate(row)
                            && self.carries_about(row, self.bytes(*other))
                    })
            })
    }

    fn carries_about(&self, row: u32, usual: Option<f64>) -> bool {
        let as_much = self.bytes(row).zip(usual);
        as_much.is_some_and(|(own, usual)| (own - usual).abs() <= ALIKE_SHARE * usual)
    }
}

/// Renders a rate in Gb/s: those of slow links are no whole numbers.
fn render_gbit(bytes: f64) -> String {
    let gbit = bytes * 8.0 / 1e9;
    if gbit < 10.0 { format!("{gbit:.1}") } else { format!("{gbit:.0}") }
}

fn port_entity(cluster: &Cluster, node: &Node, row: u32) -> Entity {
    let entry = cluster.device_at(DeviceClass::Port, row);
    let key = |at: usize| entry.and_then(|entry| entry.device.key.get(at)).cloned();
    Entity::new_port(&node.name, &key(0).unwrap_or_default(), &key(1).unwrap_or_default())
}

/// What to do about a node of which all ports lose packets.
const CLASS_ADVICE: &str = "Check the traffic class of its ports (DSCP, priority flow control) and their MTU; if they are those of the other nodes, the switch that they connect to.";

/// The share of its rate from which a port may keep its job waiting.
const BUSY_SHARE: f64 = 0.5;

/// The faster ports of a node from which they show what a rail carries, and how far another one of them may be from that.
const LEAST_SIBLINGS: usize = 3;
const ALIKE_SHARE: f64 = 0.2;

/// One active port with its link.
struct ActivePort<'a> {
    judge: &'a JudgeState,
    cluster: &'a Cluster,
    id: NodeId,
    node: &'a Node,
    row: u32,
    link: &'a LinkAverages,
    /// The recent errors of all ports.
    peers: PeerEvents,
    /// The ports of its node that are slower than those of most peers, and the rate that these have instead.
    below_peers: &'a [(u32, f64)],
}

impl ActivePort<'_> {
    /// Whether it has traffic: a port without any slows no job down.
    fn carries_traffic(&self) -> bool {
        current_value(self.link.utilization, self.cluster)
            .is_some_and(|share| share >= least_load(self.judge, self.cluster, self.id))
    }

    /// Returns the job group on its node with the largest slowdown, and the slowdown, if the port has traffic.
    fn slowed_group(&self) -> Option<(&JobGroup, f64)> {
        if !self.carries_traffic() {
            return None;
        }
        self.judge
            .job_groups
            .most_slowed_on(self.node.device_rows(DeviceClass::Gpu), self.judge.limits.slowed_ratio)
    }

    fn to_entity(&self) -> Entity {
        port_entity(self.cluster, self.node, self.row)
    }

    fn pending_finding(&self, kind: FindingKind, kinds: usize) -> PendingFinding {
        let slowed = self.slowed_group();
        PendingFinding::of(kind, self.to_entity(), kinds, true).with_cost(
            slowed.map_or(0.0, |(group, _)| group.lost_gpus()),
            slowed
                .map(|(group, _)| group.list_victims(self.cluster, Some(self.id)))
                .unwrap_or_default(),
        )
    }

    /// The next step for a cable with errors; it names the other end only where that is known to the port.
    fn cleaning_advice(&self) -> String {
        let topology = self.cluster.topology().port_topology(self.row);
        let known = topology.filter(|topology| topology.switch_port.is_some());
        let far = known.map_or_else(String::new, |end| format!(" to {}", end.describe_far_end()));
        format!(
            "Clean and reseat the cable{far} and its transceivers; replace them if the errors continue."
        )
    }

    fn detect_low_rate(&self) -> Option<PendingFinding> {
        let now = self.cluster.current_value(port::RATE, self.row)?;
        let own_best = self.link.best_rate()?;
        let peer = self.below_peers.iter().find(|(row, _)| *row == self.row).map(|(_, rate)| *rate);
        let fell = self.link.is_below_best(Some(now));
        if !fell && peer.is_none() {
            return None;
        }
        // A rate that was low before explains nothing that began later.
        let slowed = fell && self.slowed_group().is_some();
        let kinds = [fell, peer.is_some(), slowed].into_iter().filter(|kind| *kind).count();
        let used = self.carries_traffic() || !jobs_on_node(self.cluster, self.node).is_empty();
        let should = own_best.max(peer.unwrap_or_default());
        let (now_gbit, should_gbit) = (render_gbit(now), render_gbit(should));
        let since = if fell {
            "it was higher before"
        } else {
            "most other nodes have a faster port instead"
        };
        Some(
            self.pending_finding(FindingKind::PortRateLow, if used { kinds } else { 1 })
                .with_summary(
                    format!(
                        "{} runs at {now_gbit} of {should_gbit} Gb/s: {since}.",
                        self.to_entity(),
                    ),
                    "Check the cable and the transceivers at both ends, then retrain the link."
                        .to_owned(),
                )
                .with_evidence([
                    EvidenceRow::LineRate
                        .to_evidence(Some(now), Some(should))
                        .with_note("limit: expected rate"),
                    EvidenceRow::PeerLineRate.to_evidence(peer, None),
                    EvidenceRow::LinkWidth
                        .to_evidence(self.cluster.current_value(port::LANES, self.row), None),
                ]),
        )
    }

    fn detect_link_errors(&self, resends: &mut HashMap<String, bool>) -> Option<PendingFinding> {
        let limits = &self.judge.limits;
        let near = current_value(self.link.errors, self.cluster);
        let events = self.link.error_events;
        let near = events.telling_rate(near, limits);
        // Packets from the node arrive at the switch with errors: the same cable, the other direction.
        let far = self.judge.switches.of(self.row);
        let far = far.and_then(|far| current_value(far.errors, self.cluster));
        let errors = near.into_iter().chain(far).reduce(f64::max);
        let retransmitted = current_value(self.link.retransmitted, self.cluster);
        let corrected = self.link.corrected_times(self.cluster, limits);
        let errs = errors.is_some_and(|rate| rate >= limits.errors_per_second);
        let repairs = corrected.is_some_and(|times| times >= limits.counter_times);
        let recur = events.is_unusual(self.peers);
        if !errs && !recur {
            return self.detect_resends();
        }
        // A few errors cost next to nothing: packets that are sent again say nothing about them, nor does a slower job.
        let slowed = self.slowed_group().filter(|_| errs).map(|(_, slowed)| slowed);
        let lost = errs && self.any_sender_resends(resends);
        let kinds = [true, errs && repairs, lost, slowed.is_some()];
        let kinds = kinds.into_iter().filter(|kind| *kind).count();
        let entity = self.to_entity();
        let summary = if errs {
            let rate = errors.unwrap_or_default();
            let at = if far > near { " at its switch port" } else { "" };
            format!("{entity} has {rate:.1} link errors per second{at}.")
        } else {
            let count = events.recent();
            format!("{entity} has {count:.0} link errors in recent minutes.")
        };
        let pending = if errs {
            self.pending_finding(FindingKind::LinkErrors, kinds)
        } else {
            PendingFinding::of(FindingKind::LinkErrors, entity, kinds, true)
        };
        Some(
            pending
                .with_hold_seconds(limits.link_errors_seconds)
                .with_summary(summary, self.cleaning_advice())
                .with_possible_evidence([
                    EvidenceRow::LinkErrors.to_evidence(near, Some(limits.errors_per_second)),
                    EvidenceRow::LinkErrorCount
                        .to_evidence(Some(events.recent()), events.unusual_from(self.peers))
                        .with_note(LIMIT_NOTE),
                    EvidenceRow::SwitchLinkErrors.to_evidence(far, Some(limits.errors_per_second)),
                    EvidenceRow::CorrectedBits.to_evidence(corrected, Some(limits.counter_times)),
                    EvidenceRow::Retransmits.to_evidence(retransmitted, None),
                    EvidenceRow::JobSlowdown.to_evidence(slowed, Some(limits.slowed_ratio)),
                ]),
        )
    }

    /// Returns a finding if it is the only port of a slower job that sends packets again.
    fn detect_resends(&self) -> Option<PendingFinding> {
        let limits = &self.judge.limits;
        let (group, slowed) = self.slowed_group()?;
        let of_port = (self.id, self.row);
        let found = lone_resends(self.judge, self.cluster, of_port, group, self.peers)?;
        let (rate, job) = (found.rate, group.render_title());
        let (entity, summary, next) = if let Some(ports) = found.of_node {
            let node = &self.node.name;
            let summary = format!(
                "{node} sends {rate:.1} packets per second again on each of {ports} ports, no other node of {job} does: they are lost on their way.",
            );
            (Entity::new_node(node), summary, CLASS_ADVICE.to_owned())
        } else {
            let entity = self.to_entity();
            let summary = format!(
                "{entity} sends {rate:.1} packets per second again, no other port of {job} does: its link loses packets."
            );
            let advice = self.cleaning_advice();
            (
                entity,
                summary,
                format!("{advice} If they are sound, check the port that it sends to."),
            )
        };
        Some(
            self.pending_finding(FindingKind::LinkErrors, 1)
                .about(entity)
                .with_hold_seconds(limits.link_errors_seconds)
                .with_summary(summary, next)
                .with_evidence([
                    EvidenceRow::Retransmits
                        .to_evidence(Some(rate), Some(limits.errors_per_second))
                        .with_threshold("errors_per_second"),
                    EvidenceRow::JobSlowdown.to_evidence(Some(slowed), Some(limits.slowed_ratio)),
                ]),
        )
    }

    /// Whether it cannot be decided that the link is healthy: an error counter is saturated at its maximum, no other
    /// counter with errors of this link goes on, and FEC corrections that rose with them have not fallen again.
    fn is_unclear(&self) -> bool {
        let reading = |metric: MetricId| self.cluster.current_reading(metric, self.row);
        if !LINK_ERRORS.iter().any(|it| reading(*it) == Some(AbsenceReason::Saturated.into())) {
            return false;
        }
        let limits = &self.judge.limits;
        let corrected = self.link.corrected_times(self.cluster, limits);
        let open = self.judge.tracker.open_one(&self.link_errors_id());
        let rose = open
            .and_then(|finding| {
                finding.evidence.iter().find(|number| EvidenceRow::CorrectedBits.is_row_of(number))
            })
            .and_then(|row| row.value)
            .is_some_and(|times| times >= limits.counter_times);
        let fell = corrected.is_some_and(|times| times < limits.counter_times);
        let counts = |metric: &MetricId| {
            self.cluster.current_value(*metric, self.row).is_some_and(|total| total > 0.0)
        };
        let counted = LINK_ERRORS.iter().any(counts) && corrected.is_none_or(|_| fell);
        !(counted || (rose && fell))
    }

    fn link_errors_id(&self) -> String {
        Finding::build_id(FindingKind::LinkErrors, &self.to_entity())
    }

    /// Whether another node of the same job group retransmits packets.
    fn any_sender_resends(&self, known: &mut HashMap<String, bool>) -> bool {
        let groups = self.judge.job_groups.groups_on(self.node.device_rows(DeviceClass::Gpu));
        let resends = |group: &&JobGroup| {
            *known.entry(group.group_key()).or_insert_with(|| self.any_resends(&group.nodes))
        };
        groups.iter().any(resends)
    }

    /// Whether a port of one of these nodes retransmits packets.
    fn any_resends(&self, nodes: &[NodeId]) -> bool {
        let least = self.judge.limits.errors_per_second;
        let nodes = nodes.iter().filter_map(|id| self.cluster.node_by_id(*id));
        let mut links = nodes
            .flat_map(|node| node.device_rows(DeviceClass::Port))
            .filter_map(|row| self.judge.links.of(*row));
        links.any(|link| {
            current_value(link.retransmitted, self.cluster).is_some_and(|rate| rate >= least)
        })
    }
}
