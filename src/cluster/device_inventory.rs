//! The inventory of nodes and devices, with the rows of their cells.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use gaunt_schema::{
    Device, DeviceClass, MetricId, SanitizedText, UnixMs, catalogue::gpu, natural_order,
};

use super::{
    cluster_node::{DeviceEntry, Node, NodeId, compare_devices},
    column::MetricColumn,
    name_spelling::{is_same_name, short_name},
};

/// Maximum number of nodes: 12,500 nodes make 100,000 GPUs, and as many again may have left a stale name.
const MAX_NODES: usize = 25_000;

/// Maximum number of devices of one class on one node: a host with many containers has some hundred network devices.
const MAX_DEVICES: usize = 1_024;

/// Maximum number of switch ports of one target: a fabric of 500 switches with 64 ports each.
const MAX_SWITCH_PORTS: usize = 32_768;

/// Maximum number of GPUs on one node: the largest machines have 16, and those with shared PCIe switches 32.
const MAX_GPUS: usize = 64;

/// Maximum number of MIG instances on one node: 7 on each of its GPUs, and some margin.
const MAX_MIG: usize = 512;

/// Maximum number of devices of a class on one node. Devices beyond are refused and counted; the rest of the page is
/// ingested.
pub(super) const fn max_devices(class: DeviceClass) -> usize {
    match class {
        DeviceClass::Gpu => MAX_GPUS,
        DeviceClass::Mig => MAX_MIG,
        DeviceClass::SwitchPort => MAX_SWITCH_PORTS,
        _ => MAX_DEVICES,
    }
}

/// Network devices and collectors that no page names are forgotten after this time: containers create new names all
/// day. GPUs and ports are kept as long as their node exists, because their absence is a finding. Nodes that no target
/// reports are forgotten after the same time.
const FORGET_AFTER: Duration = Duration::from_mins(10);

/// Nodes, and the devices of each class in dense rows.
#[derive(Debug, Default)]
pub(super) struct DeviceInventory {
    nodes: Vec<Option<Node>>,
    free: Vec<NodeId>,
    names: BTreeMap<SanitizedText, NodeId>,
    /// Nodes by their short name in lower case.
    spellings: HashMap<SanitizedText, Vec<NodeId>>,
    /// Every node, in natural order of names.
    order: Vec<NodeId>,
    classes: [ClassRows; DeviceClass::ALL.len()],
    /// The model of each GPU by row: every tick reads it for all GPUs.
    models: Vec<Option<SanitizedText>>,
    last_forgotten: UnixMs,
}

#[derive(Debug, Default)]
struct ClassRows {
    entries: Vec<Option<DeviceEntry>>,
    /// When a page last named each device: each page updates this field, and no other one, for all its devices.
    seen: Vec<UnixMs>,
    free: Vec<u32>,
}

impl DeviceInventory {
    pub(super) fn sorted_nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.order.iter().filter_map(|id| Some((*id, self.node_by_id(*id)?)))
    }

    #[inline]
    pub(super) fn node_by_id(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id.0 as usize)?.as_mut()
    }

    pub(super) fn id_by_name(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    /// The nodes whose name is this but for case and domain.
    pub(super) fn ids_by_spelling(&self, name: &str) -> impl Iterator<Item = NodeId> {
        let ids = self.spellings.get(&short_name(name)).map(Vec::as_slice).unwrap_or_default();
        let is_same =
            |id: &NodeId| self.node_by_id(*id).is_some_and(|node| is_same_name(&node.name, name));
        ids.iter().copied().filter(is_same)
    }

    /// The node whose short name (without domain) is this, or whose name is the short form of this one.
    pub(super) fn id_by_short_name(&self, name: &str) -> Option<NodeId> {
        let by_full_name = || {
            let dotted = format!("{name}.");
            let (candidate, id) = self.names.range(SanitizedText::new(&dotted)..).next()?;
            candidate.starts_with(&dotted).then_some(*id)
        };
        name.split_once('.').map_or_else(by_full_name, |(short, _)| self.id_by_name(short))
    }

    #[inline]
    pub(super) fn row_count(&self, class: DeviceClass) -> usize {
        self.classes[class as usize].entries.len()
    }

    #[inline]
    pub(super) fn entry_at(&self, class: DeviceClass, row: u32) -> Option<&DeviceEntry> {
        self.classes[class as usize].entries.get(row as usize)?.as_ref()
    }

    #[inline]
    fn entry_mut(&mut self, class: DeviceClass, row: u32) -> Option<&mut DeviceEntry> {
        self.classes[class as usize].entries.get_mut(row as usize)?.as_mut()
    }

    /// The model of the GPU at a row, if known.
    #[inline]
    pub(super) fn gpu_model(&self, gpu: u32) -> Option<&SanitizedText> {
        self.models.get(gpu as usize)?.as_ref()
    }

    /// Sets or clears what a source reports about the device at a row.
    pub(super) fn update_identity(
        &mut self,
        class: DeviceClass,
        row: u32,
        update: impl FnOnce(&mut DeviceEntry),
    ) {
        let Some(entry) = self.entry_mut(class, row) else { return };
        update(entry);
        if class == DeviceClass::Gpu {
            let model = entry.info_label(gpu::INFO, "model").cloned();
            let index = row as usize;
            self.models.resize(self.models.len().max(index + 1), None);
            // GPUs of one model share its text: what compares the models of all GPUs finds one text in the cache.
            let before = index.checked_sub(1).and_then(|before| self.models[before].clone());
            self.models[index] = if before == model { before } else { model };
        }
    }

    /// When a page last named the device at a row.
    #[inline]
    pub(super) fn last_seen(&self, class: DeviceClass, row: u32) -> Option<UnixMs> {
        self.classes[class as usize].seen.get(row as usize).copied()
    }

    /// Records that a page names the device at a row.
    #[inline]
    pub(super) fn mark_seen(&mut self, class: DeviceClass, row: u32, at: UnixMs) {
        if let Some(last_seen) = self.classes[class as usize].seen.get_mut(row as usize) {
            *last_seen = at;
        }
    }

    /// Every device of a class with its row.
    pub(super) fn entries_of_class(
        &self,
        class: DeviceClass,
    ) -> impl Iterator<Item = (u32, &DeviceEntry)> {
        let entries = self.classes[class as usize].entries.iter().enumerate();
        entries.filter_map(|(row, entry)| Some((row as u32, entry.as_ref()?)))
    }

    /// The node of this name, added if new; none if there are too many.
    pub(super) fn ensure_node(&mut self, name: &SanitizedText) -> Option<NodeId> {
        if let Some(existing) = self.names.get(name) {
            return Some(*existing);
        }
        let id = match self.free.pop() {
            Some(id) => id,
            None if self.nodes.len() >= MAX_NODES => return None,
            None => NodeId(self.nodes.len() as u32),
        };
        self.nodes.resize_with(self.nodes.len().max(id.0 as usize + 1), || None);
        self.nodes[id.0 as usize] = Some(Node::new(name.clone()));
        self.names.insert(name.clone(), id);
        self.spellings.entry(short_name(name)).or_default().push(id);
        let position = self.order.partition_point(|existing| {
            self.node_by_id(*existing).is_some_and(|node| natural_order(&node.name, name).is_lt())
        });
        self.order.insert(position, id);
        Some(id)
    }

    /// The row of a node's device, added if new; none if the node has too many.
    pub(super) fn ensure_row(&mut self, id: NodeId, device: &Device, at: UnixMs) -> Option<u32> {
        let node = self.nodes.get_mut(id.0 as usize)?.as_mut()?;
        let class = &mut self.classes[device.class as usize];
        let rows = &mut node.rows[device.class as usize];
        let position = rows.binary_search_by(|row| {
            let existing = class.entries[*row as usize].as_ref().map(|entry| &entry.device);
            existing.map_or(std::cmp::Ordering::Less, |existing| compare_devices(existing, device))
        });
        match position {
            Ok(position) => Some(rows[position]),
            Err(_) if rows.len() >= max_devices(device.class) => None,
            Err(position) => {
                let row = class.free.pop().unwrap_or_else(|| {
                    class.entries.push(None);
                    class.seen.push(at);
                    class.entries.len() as u32 - 1
                });
                class.entries[row as usize] = Some(DeviceEntry::new(id, device.clone()));
                class.seen[row as usize] = at;
                rows.insert(position, row);
                Some(row)
            }
        }
    }

    /// The row of a node's device, if it is known.
    pub(super) fn device_row(&self, id: NodeId, device: &Device) -> Option<u32> {
        let entries = &self.classes[device.class as usize].entries;
        let rows = self.node_by_id(id)?.device_rows(device.class);
        let position = rows.binary_search_by(|row| {
            let existing = entries[*row as usize].as_ref().map(|entry| &entry.device);
            existing.map_or(std::cmp::Ordering::Less, |existing| compare_devices(existing, device))
        });
        Some(rows[position.ok()?])
    }

    /// Renames a device of a node; the new name must be free in its class there.
    pub(super) fn rename_device(&mut self, class: DeviceClass, row: u32, device: &Device) {
        let Some(entry) = self.entry_mut(class, row) else { return };
        entry.device = device.clone();
        let id = entry.node;
        let Some(node) = self.nodes.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let entries = &self.classes[class as usize].entries;
        let name = |row: &u32| entries[*row as usize].as_ref().map(|entry| &entry.device);
        node.rows[class as usize].sort_by(|one, other| match (name(one), name(other)) {
            (Some(one), Some(other)) => compare_devices(one, other),
            (one, other) => one.is_some().cmp(&other.is_some()),
        });
    }

    /// Devices that no page names on nodes that are at their limit: there, long unseen devices are evicted, even of
    /// classes whose absence is a finding.
    fn evictable_devices(&self, is_gone: impl Fn(UnixMs) -> bool) -> Vec<(DeviceClass, u32)> {
        let mut rows = Vec::new();
        for (_, node) in self.sorted_nodes() {
            for class in DeviceClass::ALL {
                if node.device_rows(class).len() >= max_devices(class) {
                    let is_old = |row: &&u32| self.last_seen(class, **row).is_none_or(&is_gone);
                    rows.extend(
                        node.device_rows(class).iter().filter(is_old).map(|row| (class, *row)),
                    );
                }
            }
        }
        rows
    }

    /// Forgets what is long gone, checked from time to time; returns whether anything was forgotten.
    pub(super) fn forget_gone(&mut self, now: UnixMs, columns: &mut [MetricColumn]) -> bool {
        if now.duration_since(self.last_forgotten) < FORGET_AFTER / 10 {
            return false;
        }
        self.last_forgotten = now;
        let is_gone = |at: UnixMs| now.duration_since(at) > FORGET_AFTER;
        let is_orphaned = |node: &Node| node.sources.is_empty() && node.sampled.is_none_or(is_gone);
        let nodes: Vec<_> =
            self.sorted_nodes().filter(|(_, node)| is_orphaned(node)).map(|(id, _)| id).collect();
        for id in &nodes {
            self.remove_node(*id, columns);
        }
        let mut any = !nodes.is_empty();
        let mut rows = self.evictable_devices(is_gone);
        for class in [
            DeviceClass::Mig,
            DeviceClass::Process,
            DeviceClass::Netdev,
            DeviceClass::Disk,
            DeviceClass::Mount,
            DeviceClass::Sensor,
            DeviceClass::Service,
            DeviceClass::Collective,
            DeviceClass::Rank,
            DeviceClass::Collector,
        ] {
            let is_old = |row: &u32| self.last_seen(class, *row).is_none_or(is_gone);
            rows.extend(
                self.entries_of_class(class)
                    .map(|(row, _)| row)
                    .filter(is_old)
                    .map(|row| (class, row)),
            );
        }
        any |= !rows.is_empty();
        // Each node's lists are scanned once, however many devices are removed.
        let removed = rows
            .into_iter()
            .filter_map(|(class, row)| Some((self.remove_row(class, row, columns)?, class)));
        let mut removed: Vec<(NodeId, DeviceClass)> = removed.collect();
        removed.sort_unstable();
        removed.dedup();
        for (id, class) in removed {
            self.drop_removed(class, id);
        }
        any
    }

    /// Forgets a node with all its devices.
    pub(super) fn remove_node(&mut self, id: NodeId, columns: &mut [MetricColumn]) {
        let Some(node) = self.nodes.get_mut(id.0 as usize).and_then(Option::take) else { return };
        self.names.remove(&node.name);
        let short = short_name(&node.name);
        if let Some(ids) = self.spellings.get_mut(&short) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.spellings.remove(&short);
            }
        }
        self.order.retain(|other| *other != id);
        self.free.push(id);
        for class in DeviceClass::ALL {
            for row in node.device_rows(class) {
                self.remove_row(class, *row, columns);
            }
        }
    }

    /// Keeps those rows of a node that still have a device.
    fn drop_removed(&mut self, class: DeviceClass, id: NodeId) {
        let entries = &self.classes[class as usize].entries;
        if let Some(node) = self.nodes.get_mut(id.0 as usize).and_then(Option::as_mut) {
            node.rows[class as usize].retain(|row| entries[*row as usize].is_some());
        }
    }

    /// Frees a row and returns the node of its device; the caller updates the node's own list of rows.
    fn remove_row(
        &mut self,
        class: DeviceClass,
        row: u32,
        columns: &mut [MetricColumn],
    ) -> Option<NodeId> {
        let rows = &mut self.classes[class as usize];
        let entry = rows.entries.get_mut(row as usize).and_then(Option::take)?;
        rows.free.push(row);
        if class == DeviceClass::Gpu
            && let Some(model) = self.models.get_mut(row as usize)
        {
            *model = None;
        }
        for metric in MetricId::all_ids().filter(|metric| metric.catalogue_row().class == class) {
            columns[usize::from(metric.0)].clear(row);
        }
        Some(entry.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_in_natural_order() {
        let mut inventory = DeviceInventory::default();
        for name in ["gpu10", "gpu2", "leaf-10", "gpu1", "leaf-2", "gpu2"] {
            assert!(inventory.ensure_node(&name.into()).is_some());
        }
        let names = |inventory: &DeviceInventory| -> Vec<String> {
            inventory.sorted_nodes().map(|(_, node)| node.name.to_string()).collect()
        };
        assert_eq!(names(&inventory), ["gpu1", "gpu2", "gpu10", "leaf-2", "leaf-10"]);
        let removed = inventory.id_by_name("gpu2").unwrap();
        inventory.remove_node(removed, &mut []);
        inventory.ensure_node(&"gpu3".into());
        assert_eq!(names(&inventory), ["gpu1", "gpu3", "gpu10", "leaf-2", "leaf-10"]);
    }
}
