//! Averages of the switch port that each node's port is connected to, where the switch's exporter is scraped.

use std::collections::{BTreeMap, HashMap};

use gaunt_schema::{DeviceClass, SanitizedText, UnixMs, catalogue::switch_port, parse_guid};

use super::{
    Thresholds,
    moving_average::{MovingAverage, SampleTiming},
};
use gaunt_cluster::{Cluster, Node, NodeId};

/// Cables are resolved again every so many seconds.
const FOLLOW_S: f64 = 20.0;

/// Bytes per wait tick on Quantum switches of all generations.
const TICK_BYTES: f64 = 8.0;

/// The switch port of each node's port, by the row of the node's port.
#[derive(Debug, Default)]
pub(super) struct SwitchPortTable {
    far: BTreeMap<u32, SwitchPortAverages>,
    followed: Option<UnixMs>,
}

/// The averages of a switch port, per second unless stated otherwise. Directions are the switch's.
#[derive(Clone, Debug)]
pub(super) struct SwitchPortAverages {
    row: u32,
    last_sampled: UnixMs,
    /// Symbol errors and receive errors on what the node sends.
    pub(super) errors: MovingAverage,
    /// Discarded packets towards the node.
    pub(super) dropped: MovingAverage,
    /// Share of the line rate that was lost to waiting for the node to accept data.
    pub(super) waited: MovingAverage,
    /// PFC pause frames received from the node.
    pub(super) stopped: MovingAverage,
}

impl SwitchPortTable {
    /// Ingests the newest sample of every switch port that leads to a node.
    pub(super) fn observe_switch_ports(&mut self, cluster: &Cluster, limits: &Thresholds) {
        if cluster.row_count(DeviceClass::SwitchPort) == 0 {
            return self.far.clear();
        }
        let due = |at| cluster.now().duration_since(at).as_secs_f64() >= FOLLOW_S;
        if self.followed.is_none_or(due) {
            self.followed = Some(cluster.now());
            self.resolve_cables(cluster);
        }
        for far in self.far.values_mut() {
            let entry = cluster.device_at(DeviceClass::SwitchPort, far.row);
            let switch = entry.and_then(|entry| cluster.node_by_id(entry.node));
            let at = switch.and_then(|switch| switch.last_fed(DeviceClass::SwitchPort));
            if let Some(at) = at.filter(|at| far.last_sampled < *at) {
                far.last_sampled = at;
                far.add_sample(cluster, at, limits);
            }
        }
    }

    /// Returns the switch port at the other end of the port at this row, if its switch is scraped.
    pub(super) fn of(&self, port: u32) -> Option<&SwitchPortAverages> {
        self.far.get(&port)
    }

    fn resolve_cables(&mut self, cluster: &Cluster) {
        let mut far = BTreeMap::new();
        let peers = CableEndIndex::of(cluster);
        for (_, switch) in cluster.sorted_nodes() {
            for row in switch.device_rows(DeviceClass::SwitchPort) {
                let Some(port) = peers.find_node_port(cluster, *row) else { continue };
                let previous = self.far.remove(&port).filter(|previous| previous.row == *row);
                far.insert(port, previous.unwrap_or_else(|| SwitchPortAverages::new(*row)));
            }
        }
        self.far = far;
    }
}

impl SwitchPortAverages {
    fn new(row: u32) -> Self {
        Self {
            row,
            last_sampled: UnixMs(i64::MIN),
            errors: MovingAverage::default(),
            dropped: MovingAverage::default(),
            waited: MovingAverage::default(),
            stopped: MovingAverage::default(),
        }
    }

    fn add_sample(&mut self, cluster: &Cluster, at: UnixMs, limits: &Thresholds) {
        let rate = |metric| cluster.current_rate(metric, self.row);
        let tick = &mut SampleTiming::new(at, limits.average_seconds, cluster.freshness_window());
        let line = cluster.current_value(switch_port::RATE, self.row).filter(|line| *line > 0.0);
        let broken = [switch_port::SYMBOL_ERRORS, switch_port::RECEIVE_ERRORS];
        let broken = broken.into_iter().filter_map(rate).reduce(|a, b| a + b);
        let waited = rate(switch_port::TRANSMIT_WAIT).zip(line);
        let waited = waited.map(|(ticks, line)| ticks * TICK_BYTES / line);
        let (dropped, stopped) =
            (rate(switch_port::TRANSMIT_DISCARDS), rate(switch_port::RECEIVE_PAUSE));
        self.errors.add_sample(broken, tick);
        self.dropped.add_sample(dropped, tick);
        self.waited.add_sample(waited, tick);
        self.stopped.add_sample(stopped, tick);
    }

    /// Returns queue wait and discards towards the node as a multiple of their limits; none if below.
    pub(super) fn queue_over_limit(&self, cluster: &Cluster, limits: &Thresholds) -> Option<f64> {
        let now = |average: MovingAverage, limit: f64| {
            Some(average.value_at(cluster.now(), cluster.freshness_window())? / limit)
        };
        let waited = now(self.waited, limits.switch_waited_ratio);
        let dropped = now(self.dropped, limits.switch_events_per_second);
        waited.into_iter().chain(dropped).filter(|times| *times >= 1.0).reduce(f64::max)
    }
}

/// The possible far ends of switch ports, indexed once for all of them.
struct CableEndIndex<'a> {
    /// The first node of each short host name.
    short: HashMap<&'a str, NodeId>,
    /// Ports of nodes by device name, the first of each.
    cards: HashMap<(NodeId, &'a str), u32>,
}

impl<'a> CableEndIndex<'a> {
    fn of(cluster: &'a Cluster) -> Self {
        let (mut short, mut cards) = (HashMap::new(), HashMap::new());
        for (id, node) in cluster.sorted_nodes() {
            short.entry(strip_domain(&node.name)).or_insert(id);
            for row in node.device_rows(DeviceClass::Port) {
                let entry = cluster.device_at(DeviceClass::Port, *row);
                if let Some(card) = entry.and_then(|entry| entry.device.key.first()) {
                    cards.entry((id, card.as_str())).or_insert(*row);
                }
            }
        }
        Self { short, cards }
    }

    /// Returns the row of the node's port at the other end of a switch port.
    fn find_node_port(&self, cluster: &Cluster, row: u32) -> Option<u32> {
        let entry = cluster.device_at(DeviceClass::SwitchPort, row)?;
        let record = |label| entry.info_label(switch_port::INFO, label);
        if record("peer_kind").is_some_and(|kind| *kind == "switch") {
            return None;
        }
        // Where the page names only the switch, the fabric's cables name the other end.
        let (peer, card) = if let Some(peer) = record("peer") {
            (peer, record("peer_device"))
        } else {
            let guid = record("guid").or_else(|| entry.device.key.first())?;
            let port = entry.device.key.get(1)?;
            let (node, adapter) = cluster.topology().cable_end(parse_guid(guid)?, port)?;
            (node, Some(adapter))
        };
        let (id, node) = self.find_node(cluster, peer)?;
        let ports = node.device_rows(DeviceClass::Port);
        let card = card.map(SanitizedText::as_str).unwrap_or_default();
        let named = self.cards.get(&(id, card));
        // The default description of an adapter counts from one: `HCA-1` is the first of the node.
        let numbered = || {
            let number: usize = card.strip_prefix("HCA-")?.parse().ok()?;
            ports.get(number.checked_sub(1)?)
        };
        let only = || (ports.len() == 1).then(|| &ports[0]);
        named.or_else(numbered).or_else(only).copied()
    }

    /// Returns the node with this name or short host name.
    fn find_node(&self, cluster: &'a Cluster, name: &str) -> Option<(NodeId, &'a Node)> {
        let short = strip_domain(name);
        let same = || {
            let id = *self.short.get(short)?;
            Some((id, cluster.node_by_id(id)?))
        };
        cluster.node_by_name(name).or_else(|| cluster.node_by_name(short)).or_else(same)
    }
}

fn strip_domain(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}
