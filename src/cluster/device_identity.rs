//! Matches a page's devices with those of the node: a GPU by its UUID, then by its PCI address, then by its index.

use std::collections::{HashMap, HashSet};

use gaunt_schema::{CowList, Device, DeviceClass, MetricId, Report, SanitizedText, catalogue::gpu};

use super::{
    cluster_node::{DeviceEntry, NodeId},
    device_inventory::DeviceInventory,
};

/// The label of a GPU's UUID.
const UUID: &str = "uuid";

/// The label of a GPU's PCI address.
const PCI: &str = "pci_bus_id";

/// Maps a page's device names to ours.
pub(super) struct DeviceNames<'a> {
    /// Our name of the node, for switches whose pages do not name it.
    pub(super) node: &'a SanitizedText,
    /// The target's address, for servers that do not report their node.
    pub(super) address: &'a SanitizedText,
}

impl DeviceNames<'_> {
    /// The devices of a page under the names that the node's other pages use.
    pub(super) fn resolve_devices(
        &self,
        inventory: &mut DeviceInventory,
        id: NodeId,
        report: &Report,
    ) -> CowList<Device> {
        // GPUs whose name on the page differs from that on the node.
        let mut renamed: HashMap<SanitizedText, SanitizedText> = HashMap::new();
        let mut identifiers = GpuIdentifiers::from_report(report);
        let mut gpus = KnownGpus::of(inventory, id);
        for (index, device) in report.devices.iter().enumerate() {
            if device.class == DeviceClass::Gpu {
                let resolved = gpus.resolve_gpu(
                    inventory,
                    device,
                    &identifiers.remove(&index).unwrap_or_default(),
                );
                if resolved != device.key[0] {
                    renamed.insert(device.key[0].clone(), resolved);
                }
            }
        }
        let resolved: CowList<Device> =
            report.devices.iter().map(|device| self.resolve_device(device, &renamed)).collect();
        // Usually the names are the same: then the page's own list is shared by all pages like it.
        if resolved == report.devices { report.devices.clone() } else { resolved }
    }

    fn resolve_device(
        &self,
        device: &Device,
        renamed: &HashMap<SanitizedText, SanitizedText>,
    ) -> Device {
        let mut device = device.clone();
        let Some(first) = device.key.first() else { return device };
        let resolved = match device.class {
            DeviceClass::SwitchPort if first.is_empty() => Some(self.node),
            DeviceClass::Service if first.is_empty() => Some(self.address),
            class if class.key_label_names().first() == Some(&"gpu") => renamed.get(first),
            _ => None,
        };
        if let Some(resolved) = resolved {
            device.set_first_key(resolved);
        }
        device
    }
}

/// Identity of a GPU in one spelling, as far as known.
#[derive(Debug, Default, PartialEq)]
struct GpuIdentifiers {
    uuid: Option<String>,
    pci: Option<String>,
}

impl GpuIdentifiers {
    /// The identities of a page's GPUs, by their positions among its devices.
    fn from_report(report: &Report) -> HashMap<usize, Self> {
        let mut by_device: HashMap<usize, Self> = HashMap::new();
        for info in report.infos.iter().filter(|info| info.metric == gpu::INFO) {
            let identifiers = by_device.entry(info.device as usize).or_default();
            let label = |name| {
                let mut labels = info.labels.iter();
                let found = labels.find(|(label, value)| *label == name && !value.is_empty());
                found.map(|(_, value)| value)
            };
            identifiers.uuid =
                identifiers.uuid.take().or_else(|| label(UUID).map(|uuid| normalize_uuid(uuid)));
            identifiers.pci = identifiers
                .pci
                .take()
                .or_else(|| label(PCI).and_then(|pci| normalize_pci_address(pci)));
        }
        by_device
    }

    /// The known identity of a GPU of the node.
    fn of(entry: &DeviceEntry) -> Self {
        let label = |series: MetricId, name| entry.info_label(series, name);
        Self {
            uuid: label(gpu::INFO, UUID).map(|uuid| normalize_uuid(uuid)),
            pci: label(gpu::INFO, PCI).and_then(|pci| normalize_pci_address(pci)),
        }
    }

    /// Whether both are known and differ.
    fn differs_from(&self, other: &Self) -> bool {
        let differ = |one: &Option<String>, other: &Option<String>| {
            one.is_some() && other.is_some() && one != other
        };
        match (&self.uuid, &other.uuid) {
            (Some(one), Some(other)) => one != other,
            _ => differ(&self.pci, &other.pci),
        }
    }
}

/// The GPUs of a node, indexed once for all GPUs of a page.
struct KnownGpus {
    gpus: Vec<KnownGpu>,
    /// Positions in `gpus`: the first of each UUID, and all of each PCI address.
    by_uuid: HashMap<String, usize>,
    by_pci: HashMap<String, Vec<usize>>,
    names: HashSet<SanitizedText>,
}

/// One GPU: its row, its name and its known identity.
struct KnownGpu {
    row: u32,
    name: SanitizedText,
    identifiers: GpuIdentifiers,
}

impl KnownGpus {
    /// The GPUs of this node.
    fn of(inventory: &DeviceInventory, id: NodeId) -> Self {
        let rows = inventory
            .node_by_id(id)
            .map(|node| node.device_rows(DeviceClass::Gpu))
            .unwrap_or_default();
        let known_gpu = |row: &u32| {
            let entry = inventory.entry_at(DeviceClass::Gpu, *row)?;
            let name = entry.device.key.first()?.clone();
            Some(KnownGpu { row: *row, name, identifiers: GpuIdentifiers::of(entry) })
        };
        let gpus: Vec<KnownGpu> = rows.iter().filter_map(known_gpu).collect();
        let (mut by_uuid, mut by_pci) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
        for (index, gpu) in gpus.iter().enumerate() {
            if let Some(uuid) = &gpu.identifiers.uuid {
                by_uuid.entry(uuid.clone()).or_insert(index);
            }
            if let Some(pci) = &gpu.identifiers.pci {
                by_pci.entry(pci.clone()).or_default().push(index);
            }
        }
        let names = gpus.iter().map(|gpu| gpu.name.clone()).collect();
        Self { gpus, by_uuid, by_pci, names }
    }

    /// The name of the node's GPU that matches the page's GPU; the page's own name if there is none.
    fn resolve_gpu(
        &mut self,
        inventory: &mut DeviceInventory,
        device: &Device,
        identifiers: &GpuIdentifiers,
    ) -> SanitizedText {
        let page_name = &device.key[0];
        let by_uuid = identifiers.uuid.as_ref().and_then(|uuid| self.by_uuid.get(uuid));
        let by_pci = || {
            let candidates = identifiers.pci.as_ref().and_then(|pci| self.by_pci.get(pci));
            candidates?
                .iter()
                .find(|index| !self.gpus[**index].identifiers.differs_from(identifiers))
        };
        let Some(position) = by_uuid.or_else(by_pci).copied() else { return page_name.clone() };
        let gpu = &mut self.gpus[position];
        // Numbers are the common names of GPUs: a source that reports the number names the GPU.
        if !is_number(&gpu.name) && is_number(page_name) && !self.names.contains(page_name) {
            inventory.rename_device(DeviceClass::Gpu, gpu.row, device);
            self.names.remove(&gpu.name);
            self.names.insert(page_name.clone());
            gpu.name = page_name.clone();
        }
        gpu.name.clone()
    }
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

/// A UUID in lower case without the prefix that some exporters add.
fn normalize_uuid(uuid: &str) -> String {
    let lower = uuid.to_ascii_lowercase();
    lower.strip_prefix("gpu-").unwrap_or(&lower).to_owned()
}

/// A PCI address in one spelling: `00000000:1B:00.0`, `0000:1b:00.0` and `1b:00.0` are one.
fn normalize_pci_address(address: &str) -> Option<String> {
    let mut parts = address.trim().rsplitn(3, ':');
    let (device, bus, domain) = (parts.next()?, parts.next()?, parts.next().unwrap_or("0"));
    let (device, function) = device.split_once('.').unwrap_or((device, "0"));
    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
    Some(format!("{:x}:{:x}:{:x}.{:x}", hex(domain)?, hex(bus)?, hex(device)?, hex(function)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_normalized_from_every_spelling() {
        let spellings = ["00000000:1B:00.0", "0000:1b:00.0", "1b:00.0", "0000:1b:00"];
        for address in spellings {
            assert_eq!(normalize_pci_address(address).as_deref(), Some("0:1b:0.0"), "{address}");
        }
        assert_eq!(normalize_pci_address("here"), None);
        assert_ne!(normalize_pci_address("0001:1b:00.0"), normalize_pci_address("0000:1b:00.0"));
    }
}
