//! Line rates of network devices: the present one of each, and the highest one that was seen.

use std::collections::{BTreeSet, HashMap};

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::{DeviceClass, SanitizedText, UnixMs, catalogue::host};

use super::compact_value::{CompactValue, NodeTag};

/// The highest line rate of each network device, by row, and those that are below it.
#[derive(Debug, Default)]
pub(super) struct NetdevRates {
    devices: Vec<Option<NetdevRate>>,
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
    pub(super) fn observe_netdevs(&mut self, cluster: &Cluster) {
        self.read_at.retain(|id, _| cluster.node_by_id(*id).is_some());
        self.fallen.retain(|id| cluster.node_by_id(*id).is_some());
        self.devices.resize(cluster.row_count(DeviceClass::Netdev), None);
        for (id, node) in cluster.sorted_nodes() {
            let Some(at) = node.last_fed(DeviceClass::Netdev) else { continue };
            if self.read_at.insert(id, at) != Some(at) {
                self.observe_node(cluster, id, node);
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

    fn observe_node(&mut self, cluster: &Cluster, id: NodeId, node: &Node) {
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
