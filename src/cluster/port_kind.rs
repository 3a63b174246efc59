//! Port kinds: which ports are of one kind, so that they can be expected to be alike, and which nodes have equally many
//! ports of each kind.

use std::collections::HashMap;

use gaunt_schema::{DeviceClass, SanitizedText, catalogue::port};

use super::{
    cluster_node::{DeviceEntry, Node, NodeId},
    device_inventory::DeviceInventory,
};

/// What ports of one kind have in common: the type of their adapter, the link layer and the number of the port. Where
/// the type is unknown, the name of the device without the number at its end stands for it, so that an unknown type is
/// that of no port with a known one.
type KindLabels<'a> = (AdapterType<'a>, Option<&'a str>, &'a str);

/// The type of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum AdapterType<'a> {
    /// As reported.
    Known(&'a str),
    /// Unknown: the prefix of the device's name.
    Named(&'a str),
}

/// The kind of every port, and the nodes with equally many ports of each kind.
#[derive(Debug, Default)]
pub(super) struct PortKinds {
    /// By row; none for rows without a port.
    kinds: Vec<Option<u32>>,
    /// The group of each node with ports.
    groups: HashMap<NodeId, u32>,
}

impl PortKinds {
    pub(super) fn of(inventory: &DeviceInventory) -> Self {
        let mut all = Self::default();
        all.kinds.resize(inventory.row_count(DeviceClass::Port), None);
        let mut kinds: HashMap<KindLabels<'_>, u32> = HashMap::new();
        let mut groups: HashMap<Vec<u32>, u32> = HashMap::new();
        for (id, node) in inventory.sorted_nodes() {
            let own = all.add_node(inventory, node, &mut kinds);
            if !own.is_empty() {
                let next = groups.len() as u32;
                all.groups.insert(id, *groups.entry(own).or_insert(next));
            }
        }
        all
    }

    /// Returns the kinds of a node's ports, sorted.
    fn add_node<'a>(
        &mut self,
        inventory: &'a DeviceInventory,
        node: &Node,
        kinds: &mut HashMap<KindLabels<'a>, u32>,
    ) -> Vec<u32> {
        let mut own = Vec::new();
        for row in node.device_rows(DeviceClass::Port) {
            let Some(entry) = inventory.entry_at(DeviceClass::Port, *row) else { continue };
            let next = kinds.len() as u32;
            let kind = *kinds.entry(kind_labels(entry)).or_insert(next);
            self.kinds[*row as usize] = Some(kind);
            own.push(kind);
        }
        own.sort_unstable();
        own
    }

    pub(super) fn of_port(&self, row: u32) -> Option<u32> {
        *self.kinds.get(row as usize)?
    }

    pub(super) fn group_of_node(&self, id: NodeId) -> Option<u32> {
        self.groups.get(&id).copied()
    }
}

fn kind_labels(entry: &DeviceEntry) -> KindLabels<'_> {
    let info = |label| entry.info_label(port::INFO, label).map(SanitizedText::as_str);
    let key = |at: usize| entry.device.key.get(at).map_or("", SanitizedText::as_str);
    let prefix = || key(0).trim_end_matches(|c: char| c.is_ascii_digit());
    let adapter = info("hca_type").map_or_else(|| AdapterType::Named(prefix()), AdapterType::Known);
    (adapter, info("link_layer"), key(1))
}
