//! The switch's end of a cable: what the port that a node is plugged into counts, where a switch's exporter is read.

use std::collections::HashMap;

use gaunt_schema::{Class, Safe, UnixMs, catalogue::switch_port};

use super::{
    Thresholds,
    average::{Average, Tick},
};
use crate::cluster::{Cluster, Node, NodeId};

/// Cables are followed anew after so many seconds.
const FOLLOW_S: f64 = 20.0;

/// Bytes that a tick of waiting stands for on Quantum switches, whichever their generation.
const TICK_BYTES: f64 = 8.0;

/// The far end of each node's port, by the port's row.
#[derive(Debug, Default)]
pub(super) struct Switches {
    far: HashMap<u32, Far>,
    followed: Option<UnixMs>,
}

/// The averages of a switch's port, all in a second unless it is said otherwise. Directions are the switch's.
#[derive(Clone, Debug)]
pub(super) struct Far {
    row: u32,
    looked: UnixMs,
    /// Symbols and packets that arrived broken from the node.
    pub(super) errors: Average,
    /// Packets for the node that were dropped.
    pub(super) dropped: Average,
    /// Share of the line rate that was lost to waiting for the node to take more.
    pub(super) waited: Average,
    /// Pause frames by which the node stopped the switch.
    pub(super) stopped: Average,
}

impl Switches {
    /// Takes in the newest sample of every switch's port that leads to a node.
    pub(super) fn look(&mut self, cluster: &Cluster, limits: &Thresholds) {
        if cluster.rows(Class::SwitchPort) == 0 {
            return self.far.clear();
        }
        let due = |at| cluster.now().since(at).as_secs_f64() >= FOLLOW_S;
        if self.followed.is_none_or(due) {
            self.followed = Some(cluster.now());
            self.follow(cluster);
        }
        for far in self.far.values_mut() {
            let entry = cluster.device(Class::SwitchPort, far.row);
            let switch = entry.and_then(|entry| cluster.node(entry.node));
            let at = switch.and_then(|switch| switch.fed(Class::SwitchPort));
            if let Some(at) = at.filter(|at| far.looked < *at) {
                far.looked = at;
                far.add(cluster, at, limits);
            }
        }
    }

    /// The switch's end of the cable of the port at this row, if its switch is read.
    pub(super) fn of(&self, port: u32) -> Option<&Far> {
        self.far.get(&port)
    }

    fn follow(&mut self, cluster: &Cluster) {
        let mut far = HashMap::new();
        let peers = Peers::of(cluster);
        for (_, switch) in cluster.nodes() {
            for row in switch.rows(Class::SwitchPort) {
                let Some(port) = peers.find(cluster, *row) else { continue };
                let known = self.far.remove(&port).filter(|known| known.row == *row);
                far.insert(port, known.unwrap_or_else(|| Far::new(*row)));
            }
        }
        self.far = far;
    }
}

impl Far {
    fn new(row: u32) -> Self {
        Self {
            row,
            looked: UnixMs(i64::MIN),
            errors: Average::default(),
            dropped: Average::default(),
            waited: Average::default(),
            stopped: Average::default(),
        }
    }

    fn add(&mut self, cluster: &Cluster, at: UnixMs, limits: &Thresholds) {
        let rate = |metric| cluster.rate(metric, self.row);
        let tick = &mut Tick::new(at, limits.average_seconds, cluster.fresh_for());
        let line = cluster.value(switch_port::RATE, self.row).filter(|line| *line > 0.0);
        let broken = [switch_port::SYMBOL_ERRORS, switch_port::RECEIVE_ERRORS];
        let broken = broken.into_iter().filter_map(rate).reduce(|a, b| a + b);
        let waited = rate(switch_port::TRANSMIT_WAIT).zip(line);
        let waited = waited.map(|(ticks, line)| ticks * TICK_BYTES / line);
        let (dropped, stopped) =
            (rate(switch_port::TRANSMIT_DISCARDS), rate(switch_port::RECEIVE_PAUSE));
        self.errors.add(broken, tick);
        self.dropped.add(dropped, tick);
        self.waited.add(waited, tick);
        self.stopped.add(stopped, tick);
    }

    /// How far it is above its limits that packets for the node queue up here; none if they do not.
    pub(super) fn queues(&self, cluster: &Cluster, limits: &Thresholds) -> Option<f64> {
        let now = |average: Average, limit: f64| {
            Some(average.at(cluster.now(), cluster.fresh_for())? / limit)
        };
        let waited = now(self.waited, limits.switch_waited_ratio);
        let dropped = now(self.dropped, limits.switch_dropped_per_second);
        waited.into_iter().chain(dropped).filter(|times| *times >= 1.0).reduce(f64::max)
    }
}

/// What ports of switches may lead to, looked up once for all of them.
struct Peers<'a> {
    /// The first node of each name without its domain.
    short: HashMap<&'a str, NodeId>,
    /// Ports of nodes by the names of their devices, the first of each.
    cards: HashMap<(NodeId, &'a str), u32>,
}

impl<'a> Peers<'a> {
    fn of(cluster: &'a Cluster) -> Self {
        let (mut short, mut cards) = (HashMap::new(), HashMap::new());
        for (id, node) in cluster.nodes() {
            short.entry(without_domain(&node.name)).or_insert(id);
            for row in node.rows(Class::Port) {
                let entry = cluster.device(Class::Port, *row);
                if let Some(card) = entry.and_then(|entry| entry.device.key.first()) {
                    cards.entry((id, card.as_str())).or_insert(*row);
                }
            }
        }
        Self { short, cards }
    }

    /// The row of the node's port at the other end of a switch's port.
    fn find(&self, cluster: &Cluster, row: u32) -> Option<u32> {
        let entry = cluster.device(Class::SwitchPort, row)?;
        let told = |label| entry.info(switch_port::INFO, label);
        if told("peer_kind").is_some_and(|kind| *kind == "switch") {
            return None;
        }
        let (id, node) = self.node(cluster, told("peer")?)?;
        let ports = node.rows(Class::Port);
        let card = told("peer_device").map(Safe::as_str).unwrap_or_default();
        let named = self.cards.get(&(id, card));
        // A card's usual description counts from one: `HCA-1` is the first of the node.
        let numbered = || {
            let number: usize = card.strip_prefix("HCA-")?.parse().ok()?;
            ports.get(number.checked_sub(1)?)
        };
        let only = || (ports.len() == 1).then(|| &ports[0]);
        named.or_else(numbered).or_else(only).copied()
    }

    /// The node that is called so, or so up to its domain.
    fn node(&self, cluster: &'a Cluster, name: &str) -> Option<(NodeId, &'a Node)> {
        let short = without_domain(name);
        let same = || {
            let id = *self.short.get(short)?;
            Some((id, cluster.node(id)?))
        };
        cluster.named(name).or_else(|| cluster.named(short)).or_else(same)
    }
}

fn without_domain(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}
