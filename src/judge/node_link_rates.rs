//! Line rates of nodes: which rates the ports of a node have by design, because other nodes have as many such ports.
//!
//! Storage and front-end adapters often are slower than those for collectives, on every node. Device names do not tell
//! them apart: they may be numbered differently on each node. So nodes are compared by how many ports have which rate, if
//! they have equally many ports of each kind: a slower adapter of another model is no fault.

use std::collections::{BTreeMap, HashMap};

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::{Device, DeviceClass, catalogue::port};

use super::{
    port_trackers::is_port_active,
    sibling_kind::{SiblingKind, sibling_kind},
};

/// Other nodes that are needed to tell a fault from the design: fewer have no majority.
const LEAST_PEERS: usize = 3;

/// The rates of all active ports, by node. Nodes with equally many ports of each kind are peers.
pub(super) struct FleetLinkRates {
    nodes: BTreeMap<NodeId, NodeLinkRates>,
    /// Groups of peers.
    peers: Vec<Vec<NodeId>>,
}

/// The rates of a node's active ports.
struct NodeLinkRates {
    /// The index of its group of peers.
    group: usize,
    /// Lowest first.
    active: Vec<f64>,
}

impl FleetLinkRates {
    pub(super) fn of(cluster: &Cluster) -> Self {
        let mut rates = Self { nodes: BTreeMap::new(), peers: Vec::new() };
        let mut groups: HashMap<Vec<SiblingKind<'_>>, usize> = HashMap::new();
        for (id, node) in cluster.sorted_nodes() {
            let rows = node.device_rows(DeviceClass::Port);
            let active = rows.iter().filter(|row| is_port_active(cluster, **row) == Some(true));
            let mut active: Vec<f64> =
                active.filter_map(|row| cluster.current_value(port::RATE, *row)).collect();
            if active.is_empty() {
                continue;
            }
            active.sort_by(f64::total_cmp);
            let entries = rows.iter().filter_map(|row| cluster.device_at(DeviceClass::Port, *row));
            let mut kinds: Vec<SiblingKind<'_>> = entries.map(sibling_kind).collect();
            kinds.sort_unstable();
            let group = *groups.entry(kinds).or_insert_with(|| {
                rates.peers.push(Vec::new());
                rates.peers.len() - 1
            });
            rates.peers[group].push(id);
            rates.nodes.insert(id, NodeLinkRates { group, active });
        }
        rates
    }

    /// Returns the ports of a node that are slower than its peers' and the rate that most peers have instead: first those
    /// that `fell`. None if there are too few peers.
    pub(super) fn ports_below_peers(
        &self,
        cluster: &Cluster,
        id: NodeId,
        node: &Node,
        fell: impl Fn(u32) -> bool,
    ) -> Option<Vec<(u32, f64)>> {
        let own = self.nodes.get(&id)?;
        let peers = self.peers.get(own.group)?.iter().filter(|peer| **peer != id);
        let peers: Vec<NodeId> = peers.copied().collect();
        if peers.len() < LEAST_PEERS {
            return None;
        }
        let mut levels = own.active.clone();
        levels.dedup();
        let above = |rate: f64| {
            let low_count = own.low_count(rate);
            let usual_count = median_of(peers.iter().map(|peer| self.nodes[peer].low_count(rate)))?;
            let rates = peers.iter().filter_map(|peer| self.nodes[peer].active.get(low_count - 1));
            let instead = median_of(rates.copied()).filter(|instead| *instead > rate)?;
            Some((low_count.checked_sub(usual_count).filter(|excess| *excess > 0)?, instead))
        };
        let excess: Vec<Option<(usize, f64)>> = levels.iter().map(|rate| above(*rate)).collect();
        let mut below: Vec<(u32, f64)> = Vec::new();
        for (at, rate) in levels.into_iter().enumerate() {
            let Some((too_many, _)) = excess[at] else { continue };
            // A port that fell below another one by design is missing above that one, which is as it should be.
            let missing = excess[at..].iter().map_while(|level| level.map(|(_, instead)| instead));
            let instead = missing.last().unwrap_or(rate);
            let mut ports = ports_with_rate(cluster, node, &peers, rate);
            ports.sort_by_key(|row| !fell(*row));
            let too_many = too_many.saturating_sub(below.len());
            below.extend(ports.into_iter().take(too_many).map(|row| (row, instead)));
        }
        Some(below)
    }
}

impl NodeLinkRates {
    /// The number of ports with this rate or a lower one.
    fn low_count(&self, rate: f64) -> usize {
        self.active.partition_point(|other| *other <= rate)
    }
}

/// The active ports of a node with this rate; first those whose namesakes on the peers are faster.
fn ports_with_rate(cluster: &Cluster, node: &Node, peers: &[NodeId], rate: f64) -> Vec<u32> {
    let name = |row: u32| Some(&cluster.device_at(DeviceClass::Port, row)?.device);
    let peer_rows = peers.iter().filter_map(|peer| cluster.node_by_id(*peer));
    let mut slow_namesakes: HashMap<&Device, usize> = HashMap::new();
    for row in peer_rows.flat_map(|peer| peer.device_rows(DeviceClass::Port)) {
        if cluster.current_value(port::RATE, *row).is_some_and(|other| other <= rate)
            && let Some(name) = name(*row)
        {
            *slow_namesakes.entry(name).or_default() += 1;
        }
    }
    let has_rate = |row: &u32| {
        cluster.current_value(port::RATE, *row) == Some(rate)
            && is_port_active(cluster, *row) == Some(true)
    };
    let rows = node.device_rows(DeviceClass::Port).iter().copied();
    let mut rows: Vec<u32> = rows.filter(has_rate).collect();
    rows.sort_by_key(|row| name(*row).and_then(|name| slow_namesakes.get(name)).copied());
    rows
}

/// The median; of an even number of values the lower one.
fn median_of<T: PartialOrd + Copy>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    values.get(values.len().checked_sub(1)? / 2).copied()
}
