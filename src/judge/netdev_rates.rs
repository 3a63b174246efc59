//! Network devices: the present line rate of each and the highest one that was seen, and the links of those that stand for a
//! port.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
};

use gaunt_cluster::{Cluster, DeviceEntry, Node, NodeId, is_adapter};
use gaunt_schema::{DeviceClass, SanitizedText, UnixMs, catalogue::host};

use super::{
    Thresholds,
    compact_value::{CompactValue, NodeTag},
    frozen_baselines::FrozenBaselines,
    link_averages::LinkTable,
    netdev_link::NetdevLink,
    port_trackers::{LastActive, PortTracker},
};

/// The highest line rate of each network device, by row, and those that are below it.
#[derive(Debug, Default)]
pub(super) struct NetdevRates {
    devices: Vec<Option<NetdevRate>>,
    /// The links of cards without an RDMA port that have carried traffic, by row.
    pub(super) links: BTreeMap<u32, NetdevLink>,
    /// The nodes with such links.
    linked: HashSet<NodeId>,
    /// The nodes with such devices.
    pub(super) fallen: BTreeSet<NodeId>,
    /// The timestamp of each node's page that was read last.
    read_at: HashMap<NodeId, UnixMs>,
}

/// The line rate of one network device: sixteen bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetdevRate {
    /// Its node and its name: rows are reassigned, and devices of containers come and go.
    node: NodeTag,
    name: NodeTag,
    now: CompactValue,
    /// The highest one that was seen.
    best: CompactValue,
}

impl NetdevRates {
    /// Ingests the newest sample of every network device.
    pub(super) fn observe_netdevs(
        &mut self,
        cluster: &Cluster,
        ports: &LinkTable,
        frozen: &FrozenBaselines,
        limits: &Thresholds,
    ) {
        let nodes = self.read_at.len();
        self.read_at.retain(|id, _| cluster.node_by_id(*id).is_some());
        if self.read_at.len() < nodes {
            self.fallen.retain(|id| cluster.node_by_id(*id).is_some());
            self.linked.retain(|id| cluster.node_by_id(*id).is_some());
            self.links.retain(|row, link| {
                let entry = cluster.device_at(DeviceClass::Netdev, *row);
                let node = entry.and_then(|entry| cluster.node_by_id(entry.node));
                node.is_some_and(|node| link.carrier.node == NodeTag::of(&node.name))
            });
        }
        self.devices.resize(cluster.row_count(DeviceClass::Netdev), None);
        for (id, node) in cluster.sorted_nodes() {
            let Some(at) = node.last_fed(DeviceClass::Netdev) else { continue };
            if self.read_at.insert(id, at) != Some(at) {
                self.observe_rates(cluster, id, node);
                let sampled = (at, frozen.has_node(id));
                self.observe_links(cluster, ports, (id, node), sampled, limits);
            }
        }
    }

    /// Iterates the devices of a node that are slower than they were, by name, and how fast they were.
    pub(super) fn fallen_from<'a>(
        &self,
        cluster: &'a Cluster,
        id: NodeId,
        node: &'a Node,
    ) -> impl Iterator<Item = (&'a SanitizedText, f32)> {
        let rows = node.device_rows(DeviceClass::Netdev).iter();
        rows.filter(move |_| self.fallen.contains(&id)).filter_map(|row| {
            let name = cluster.device_at(DeviceClass::Netdev, *row)?.device.key.first()?;
            let (_, best) = self.of(*row, &node.name, name)?.fallen_from()?;
            Some((name, best as f32))
        })
    }

    /// Restores the highest line rate of a network device of this node.
    pub(super) fn restore_best_rate(
        &mut self,
        node: &SanitizedText,
        (row, name): (u32, &SanitizedText),
        best: f32,
    ) {
        if self.devices.len() <= row as usize {
            self.devices.resize(row as usize + 1, None);
        }
        let unknown = CompactValue::default();
        let own = &mut self.devices[row as usize];
        if own.is_none_or(|own| own.now.known().is_none()) {
            *own = Some(NetdevRate::new(node, name, unknown, Some(best).into()));
        }
    }

    /// Ingests the links of a node that stand for a port. The kernel counts no traffic of an RDMA port.
    fn observe_links(
        &mut self,
        cluster: &Cluster,
        ports: &LinkTable,
        (id, node): (NodeId, &Node),
        (at, frozen): (UnixMs, bool),
        limits: &Thresholds,
    ) {
        let of_ports = OnceCell::new();
        let is_of_port = |row| of_ports.get_or_init(|| ports.netdev_rows_of(node)).contains(row);
        for row in node.device_rows(DeviceClass::Netdev) {
            let is_used = carries_traffic(cluster, *row, limits);
            if !is_used && !self.linked.contains(&id) {
                continue;
            }
            let Some(entry) = cluster.device_at(DeviceClass::Netdev, *row) else { continue };
            let Some(name) = entry.device.key.first() else { continue };
            let known = self.links.get(row).is_some_and(|link| link.is_of(&node.name, name));
            if !(known
                || is_used
                    && (is_card(entry) || is_only_bond(cluster, node, (entry, *row), limits)))
            {
                continue;
            }
            if is_of_port(row) {
                self.links.remove(row);
                continue;
            }
            if !known {
                let carrier = PortTracker::new(NodeTag::of(&node.name), at);
                self.links.insert(*row, NetdevLink::new(name, carrier));
                self.linked.insert(id);
            }
            if let Some(link) = self.links.get_mut(row) {
                link.add_sample(cluster, (node, *row), (at, frozen), limits);
            }
        }
    }

    /// Returns the last values of each link with a carrier, by name.
    pub(super) fn snapshot_links<'a>(
        &self,
        cluster: &'a Cluster,
        node: &'a Node,
    ) -> impl Iterator<Item = (&'a SanitizedText, LastActive)> {
        node.device_rows(DeviceClass::Netdev).iter().filter_map(|row| {
            let name = cluster.device_at(DeviceClass::Netdev, *row)?.device.key.first()?;
            let link = self.links.get(row).filter(|link| link.is_of(&node.name, name))?;
            Some((name, link.carrier.last_active(cluster.now())?))
        })
    }

    /// Restores the link of a network device of this node.
    pub(super) fn restore_link(
        &mut self,
        (id, node): (NodeId, &Node),
        (row, name): (u32, &SanitizedText),
        last: LastActive,
        now: UnixMs,
    ) {
        let carrier = PortTracker::restored(NodeTag::of(&node.name), last, now);
        self.links.entry(row).or_insert_with(|| NetdevLink::new(name, carrier));
        self.linked.insert(id);
    }

    fn observe_rates(&mut self, cluster: &Cluster, id: NodeId, node: &Node) {
        let mut has_fallen = false;
        for row in node.device_rows(DeviceClass::Netdev) {
            let entry = cluster.device_at(DeviceClass::Netdev, *row);
            let name = entry.and_then(|entry| entry.device.key.first());
            let rate = cluster.current_value(host::NETDEV_SPEED, *row).filter(|rate| *rate > 0.0);
            let (Some(name), Some(rate)) = (name, rate) else { continue };
            let own = &mut self.devices[*row as usize];
            if own.is_none_or(|own| own.now.known() != Some(rate as f32)) {
                let seen = own.filter(|own| own.is_of(&node.name, name));
                let best = seen.map_or(CompactValue::default(), |own| own.best);
                *own = Some(NetdevRate::new(&node.name, name, Some(rate).into(), best));
            }
            has_fallen |= own.is_some_and(|own| own.fallen_from().is_some());
        }
        if has_fallen {
            self.fallen.insert(id);
        } else {
            self.fallen.remove(&id);
        }
    }

    /// Returns the rate of the device of this name at a row of a node.
    pub(super) fn of(
        &self,
        row: u32,
        node: &SanitizedText,
        name: &SanitizedText,
    ) -> Option<&NetdevRate> {
        self.devices.get(row as usize)?.as_ref().filter(|own| own.is_of(node, name))
    }
}

/// Whether it is a card, and not a bridge or the end of a container's link.
fn is_card(entry: &DeviceEntry) -> bool {
    let address = entry.info_label(host::NETDEV_INFO, "pci_bus_id");
    address.is_some_and(|address| !address.as_str().is_empty())
        || entry.device.key.first().is_some_and(|name| is_adapter(name.as_str()))
}

/// Whether it is a bond that carries all traffic of its node as far as the page tells: its members are not on it.
fn is_only_bond(
    cluster: &Cluster,
    node: &Node,
    (entry, row): (&DeviceEntry, u32),
    limits: &Thresholds,
) -> bool {
    let name = entry.device.key.first();
    let mut others = node.device_rows(DeviceClass::Netdev).iter().filter(|other| **other != row);
    name.is_some_and(|name| ["bond", "team"].iter().any(|kind| name.starts_with(kind)))
        && !others.any(|other| carries_traffic(cluster, *other, limits))
}

/// Whether a network device carries traffic.
fn carries_traffic(cluster: &Cluster, row: u32, limits: &Thresholds) -> bool {
    let carried = carried_bytes(cluster, row);
    let line = || cluster.current_value(host::NETDEV_SPEED, row).filter(|line| *line > 0.0);
    // The card of a virtual machine tells no line rate.
    carried >= limits.least_bytes_per_second
        && line().is_none_or(|line| carried >= line * limits.carries_ratio)
}

/// Returns the bytes per second that a network device sends and receives.
pub(super) fn carried_bytes(cluster: &Cluster, row: u32) -> f64 {
    let traffic = [host::NETDEV_RECEIVE_BYTES, host::NETDEV_TRANSMIT_BYTES];
    traffic.iter().filter_map(|bytes| cluster.current_rate(*bytes, row)).sum()
}

impl NetdevRate {
    fn new(
        node: &SanitizedText,
        name: &SanitizedText,
        now: CompactValue,
        best: CompactValue,
    ) -> Self {
        Self { node: NodeTag::of(node), name: NodeTag::of(name), now, best: best.max(now) }
    }

    fn is_of(&self, node: &SanitizedText, name: &SanitizedText) -> bool {
        self.node == NodeTag::of(node) && self.name == NodeTag::of(name)
    }

    /// Returns the rate and the higher one that was seen, if there is one.
    pub(super) fn fallen_from(&self) -> Option<(f64, f64)> {
        let (now, best) = (self.now.known()?, self.best.known()?);
        (now < best).then(|| (now.into(), best.into()))
    }
}
