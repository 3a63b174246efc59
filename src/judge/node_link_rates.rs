//! Line rates of nodes: which rates the ports of a node have by design, because other nodes have as many such ports.
//!
//! Storage and front-end adapters often are slower than those for collectives, on every node. Device names do not tell
//! them apart: they may be numbered differently on each node. So nodes are compared by how many ports have which rate, if
//! they have equally many ports of each kind: a slower adapter of another model is no fault.

use std::{
    cell::{OnceCell, RefCell},
    collections::HashMap,
};

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::{Device, DeviceClass, catalogue::port};

use super::port_link::is_port_active;

/// Other nodes that are needed to tell a fault from the design: fewer have no majority. Then the port must also carry what
/// its faster siblings do.
const LEAST_PEERS: usize = 3;

/// Nodes with a low rate are the design, and no fault of each, if there are two or more of them and only so many times as
/// many in all.
const DESIGN_TIMES: usize = 4;

/// The rates of all active ports, by node. Nodes with equally many ports of each kind are peers.
///
/// Most peers have the same rates: they are compared once for all nodes that have them, so that the cost grows with the
/// fleet and not with its square.
pub(super) struct FleetLinkRates<'a> {
    cluster: &'a Cluster,
    /// The index of each node's rates.
    nodes: HashMap<NodeId, usize>,
    /// All different rates of the nodes of each group of peers.
    rates: Vec<NodeLinkRates>,
    groups: Vec<PeerGroup>,
    /// By group of peers and the bits of a rate.
    slow_namesakes: RefCell<HashMap<(usize, u64), SlowNamesakes<'a>>>,
}

/// How many ports of each name are as slow as a rate.
type SlowNamesakes<'a> = HashMap<&'a Device, usize>;

/// Nodes that are peers of each other.
#[derive(Default)]
struct PeerGroup {
    nodes: Vec<NodeId>,
    /// The indices of their rates.
    rates: Vec<usize>,
}

/// The rates of the active ports of one or more nodes.
struct NodeLinkRates {
    /// The index of their group of peers.
    group: usize,
    /// Lowest first.
    active: Vec<f64>,
    /// The number of nodes that have these rates.
    nodes: usize,
    /// Which of the rates too many ports have; none without a peer.
    surplus: OnceCell<Option<Vec<SurplusRate>>>,
}

/// A rate that more ports of a node have than is usual.
#[derive(Clone, Copy)]
struct SurplusRate {
    /// Bytes per second.
    rate: f64,
    /// How many ports have this rate or a lower one, beyond the usual number.
    too_many: usize,
    /// The rate that most peers have instead, in bytes per second.
    instead: f64,
}

impl<'a> FleetLinkRates<'a> {
    pub(super) fn of(cluster: &'a Cluster) -> Self {
        let mut fleet = Self {
            cluster,
            nodes: HashMap::new(),
            rates: Vec::new(),
            groups: Vec::new(),
            slow_namesakes: RefCell::default(),
        };
        let mut groups: HashMap<u32, usize> = HashMap::new();
        let mut known: HashMap<(usize, Vec<u64>), usize> = HashMap::new();
        for (id, node) in cluster.sorted_nodes() {
            let rows = node.device_rows(DeviceClass::Port);
            let active = rows.iter().filter(|row| is_port_active(cluster, **row) == Some(true));
            let mut active: Vec<f64> =
                active.filter_map(|row| cluster.current_value(port::RATE, *row)).collect();
            if active.is_empty() {
                continue;
            }
            active.sort_by(f64::total_cmp);
            let Some(group) = cluster.topology().port_group(id) else { continue };
            let group = *groups.entry(group).or_insert_with(|| {
                fleet.groups.push(PeerGroup::default());
                fleet.groups.len() - 1
            });
            let bits = active.iter().map(|rate| rate.to_bits()).collect();
            let rates = *known.entry((group, bits)).or_insert_with(|| {
                fleet.groups[group].rates.push(fleet.rates.len());
                fleet.rates.push(NodeLinkRates {
                    group,
                    active,
                    nodes: 0,
                    surplus: OnceCell::new(),
                });
                fleet.rates.len() - 1
            });
            fleet.rates[rates].nodes += 1;
            fleet.groups[group].nodes.push(id);
            fleet.nodes.insert(id, rates);
        }
        fleet
    }

    /// Returns the ports of a node that are slower than its peers' and the rate that most peers have instead: first those
    /// that `fell`, and where there are few peers only those that work like faster ports. None without a peer.
    pub(super) fn ports_below_peers(
        &self,
        id: NodeId,
        node: &Node,
        fell: impl Fn(u32) -> bool,
        works_like_others: impl Fn(u32) -> bool,
    ) -> Option<Vec<(u32, f64)>> {
        let own = *self.nodes.get(&id)?;
        let has_few_peers = self.groups[self.rates[own].group].nodes.len() <= LEAST_PEERS;
        let surplus = self.rates[own].surplus.get_or_init(|| self.compare_with_peers(own));
        let mut below: Vec<(u32, f64)> = Vec::new();
        for SurplusRate { rate, too_many, instead } in surplus.as_ref()? {
            let mut ports = self.ports_with_rate(node, self.rates[own].group, *rate);
            ports.retain(|row| !has_few_peers || works_like_others(*row));
            ports.sort_by_key(|row| !fell(*row));
            let too_many = too_many.saturating_sub(below.len());
            below.extend(ports.into_iter().take(too_many).map(|row| (row, *instead)));
        }
        Some(below)
    }

    /// Returns the rates that too many ports of a node have, lowest first.
    fn compare_with_peers(&self, own: usize) -> Option<Vec<SurplusRate>> {
        let own_rates = &self.rates[own];
        let peers = || {
            let peers = self.groups[own_rates.group].rates.iter();
            peers.map(|at| (&self.rates[*at], self.rates[*at].nodes - usize::from(*at == own)))
        };
        let peer_count: usize = peers().map(|(_, nodes)| nodes).sum();
        if peer_count == 0 {
            return None;
        }
        let mut levels = own_rates.active.clone();
        levels.dedup();
        let above = |rate: f64| {
            let low_count = own_rates.low_count(rate);
            let counts = peers().map(|(rates, nodes)| (rates.low_count(rate), nodes));
            let usual_count = weighted_median(counts)?;
            let rates = peers()
                .filter_map(|(rates, nodes)| Some((*rates.active.get(low_count - 1)?, nodes)));
            let instead = weighted_median(rates).filter(|instead| *instead > rate)?;
            // One that is active beside as many faster ports as the peers have is no slow one: the peers do not use theirs.
            let fast_counts = peers().map(|(rates, nodes)| (rates.fast_count(instead), nodes));
            let missing = weighted_median(fast_counts)?.checked_sub(own_rates.fast_count(instead));
            let alike = peers().filter(|(rates, _)| rates.low_count(rate) >= low_count);
            let alike: usize = alike.map(|(_, nodes)| nodes).sum();
            if alike > 0 && (alike + 1) * DESIGN_TIMES > peer_count + 1 {
                return None;
            }
            let too_many = low_count.checked_sub(usual_count)?.min(missing?);
            (too_many > 0).then_some(SurplusRate { rate, too_many, instead })
        };
        let surplus: Vec<Option<SurplusRate>> = levels.into_iter().map(above).collect();
        let with_rate_instead = |(at, level): (usize, &Option<SurplusRate>)| {
            // A port that fell below another one by design is missing above that one, which is as it should be.
            let missing = surplus[at..].iter().map_while(|level| level.map(|level| level.instead));
            level.map(|level| SurplusRate {
                instead: missing.last().unwrap_or(level.instead),
                ..level
            })
        };
        Some(surplus.iter().enumerate().filter_map(with_rate_instead).collect())
    }

    /// The active ports of a node with this rate; first those whose namesakes on the peers are faster.
    fn ports_with_rate(&self, node: &Node, group: usize, rate: f64) -> Vec<u32> {
        let mut namesakes = self.slow_namesakes.borrow_mut();
        let slow = namesakes
            .entry((group, rate.to_bits()))
            .or_insert_with(|| self.count_slow_namesakes(group, rate));
        let has_rate = |row: &u32| {
            self.cluster.current_value(port::RATE, *row) == Some(rate)
                && is_port_active(self.cluster, *row) == Some(true)
        };
        let rows = node.device_rows(DeviceClass::Port).iter().copied();
        let mut rows: Vec<u32> = rows.filter(has_rate).collect();
        rows.sort_by_key(|row| self.port_name(*row).and_then(|name| slow.get(name)).copied());
        rows
    }

    /// Counts the ports of a group of peers with this rate or a lower one, by name.
    fn count_slow_namesakes(&self, group: usize, rate: f64) -> SlowNamesakes<'a> {
        let mut slow = HashMap::new();
        let nodes = self.groups[group].nodes.iter().filter_map(|id| self.cluster.node_by_id(*id));
        for row in nodes.flat_map(|node| node.device_rows(DeviceClass::Port)) {
            if self.cluster.current_value(port::RATE, *row).is_some_and(|other| other <= rate)
                && let Some(name) = self.port_name(*row)
            {
                *slow.entry(name).or_default() += 1;
            }
        }
        slow
    }

    fn port_name(&self, row: u32) -> Option<&'a Device> {
        Some(&self.cluster.device_at(DeviceClass::Port, row)?.device)
    }
}

impl NodeLinkRates {
    /// The number of ports with this rate or a lower one.
    fn low_count(&self, rate: f64) -> usize {
        self.active.partition_point(|other| *other <= rate)
    }

    /// The number of ports with this rate or a higher one.
    fn fast_count(&self, rate: f64) -> usize {
        self.active.len() - self.active.partition_point(|other| *other < rate)
    }
}

/// The median of values that occur so many times; of an even number of values the lower one.
fn weighted_median<T: PartialOrd + Copy>(values: impl Iterator<Item = (T, usize)>) -> Option<T> {
    let mut values: Vec<(T, usize)> = values.filter(|(_, times)| *times > 0).collect();
    values.sort_by(|(a, _), (b, _)| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    let all: usize = values.iter().map(|(_, times)| times).sum();
    let middle = all.checked_sub(1)? / 2;
    let mut before = 0;
    values.into_iter().find_map(|(value, times)| {
        before += times;
        (before > middle).then_some(value)
    })
}
