//! Which device of a node a page means: a GPU by its UUID, then by its PCI address, then by its number.

use gaunt_schema::{Class, Device, MetricId, Report, Safe, Shared, catalogue::gpu};

use super::{
    inventory::Inventory,
    node::{Entry, NodeId},
};

/// The label of a GPU's UUID.
const UUID: &str = "uuid";

/// The label of a GPU's PCI address.
const PCI: &str = "pci_bus_id";

/// What a page calls its devices, and what we call them.
pub(super) struct Names<'a> {
    /// Our name of the node, for switches that do not say theirs.
    pub(super) node: &'a Safe,
    /// The target's address, for servers that do not say where they are.
    pub(super) address: &'a Safe,
}

impl Names<'_> {
    /// The devices of a page as the node's other pages call them.
    pub(super) fn devices(
        &self,
        inventory: &mut Inventory,
        id: NodeId,
        report: &Report,
    ) -> Shared<Device> {
        let mut boards: Vec<(Safe, Safe)> = Vec::new();
        for (at, device) in (0..).zip(&report.devices) {
            if device.class == Class::Gpu {
                let ours = board(inventory, id, device, &Told::by(report, at));
                boards.push((device.key[0].clone(), ours));
            }
        }
        let ours: Shared<Device> =
            report.devices.iter().map(|device| self.device(device, &boards)).collect();
        // Mostly the page calls them as all do: then it is its own list, which all pages like it share.
        if ours == report.devices { report.devices.clone() } else { ours }
    }

    fn device(&self, device: &Device, boards: &[(Safe, Safe)]) -> Device {
        let mut device = device.clone();
        let Some(first) = device.key.first() else { return device };
        let ours = match device.class {
            Class::SwitchPort if first.is_empty() => Some(self.node),
            Class::Service if first.is_empty() => Some(self.address),
            class if class.labels().first() == Some(&"gpu") => {
                let known = boards.iter().find(|(theirs, ours)| theirs == first && ours != first);
                known.map(|(_, ours)| ours)
            }
            _ => None,
        };
        if let Some(ours) = ours {
            device.rename(ours);
        }
        device
    }
}

/// What is known of who a GPU is, in one spelling.
#[derive(Debug, Default, PartialEq)]
struct Told {
    uuid: Option<String>,
    pci: Option<String>,
}

impl Told {
    /// What a page says of the GPU at a position of its devices.
    fn by(report: &Report, device: u32) -> Self {
        let infos = || report.infos.iter().filter(|i| i.device == device && i.metric == gpu::INFO);
        let label = |name| {
            let mut labels = infos().flat_map(|info| &info.labels);
            labels
                .find(|(label, value)| *label == name && !value.is_empty())
                .map(|(_, value)| value)
        };
        Self {
            uuid: label(UUID).map(|uuid| plain(uuid)),
            pci: label(PCI).and_then(|pci| slot(pci)),
        }
    }

    /// What is known of a GPU of the node.
    fn of(entry: &Entry) -> Self {
        let label = |series: MetricId, name| entry.info(series, name);
        Self {
            uuid: label(gpu::INFO, UUID).map(|uuid| plain(uuid)),
            pci: label(gpu::INFO, PCI).and_then(|pci| slot(pci)),
        }
    }

    /// Whether both are known and differ.
    fn contradicts(&self, other: &Self) -> bool {
        let differ = |one: &Option<String>, other: &Option<String>| {
            one.is_some() && other.is_some() && one != other
        };
        match (&self.uuid, &other.uuid) {
            (Some(one), Some(other)) => one != other,
            _ => differ(&self.pci, &other.pci),
        }
    }
}

/// The name of a GPU of the node that is the one that a page means; the page's own name if the node has no such GPU.
fn board(inventory: &mut Inventory, id: NodeId, device: &Device, told: &Told) -> Safe {
    let theirs = &device.key[0];
    let known: Vec<(u32, Safe, Told)> = inventory
        .node(id)
        .map(|node| node.rows(Class::Gpu).to_vec())
        .unwrap_or_default()
        .into_iter()
        .filter_map(|row| {
            let entry = inventory.entry(Class::Gpu, row)?;
            Some((row, entry.device.key.first()?.clone(), Told::of(entry)))
        })
        .collect();
    let equal = |one: &Option<String>, other: &Option<String>| one.is_some() && one == other;
    let found = known.iter().find(|(_, _, known)| equal(&known.uuid, &told.uuid)).or_else(|| {
        known.iter().find(|(_, _, known)| equal(&known.pci, &told.pci) && !known.contradicts(told))
    });
    if let Some((row, name, _)) = found {
        // A number is what people call a GPU: who knows it names it.
        let free = known.iter().all(|(_, other, _)| other != theirs);
        if !is_number(name) && is_number(theirs) && free {
            inventory.rename(Class::Gpu, *row, device);
            return theirs.clone();
        }
        return name.clone();
    }
    theirs.clone()
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

/// A UUID without what some write before it, in small letters.
fn plain(uuid: &str) -> String {
    let lower = uuid.to_ascii_lowercase();
    lower.strip_prefix("gpu-").unwrap_or(&lower).to_owned()
}

/// A PCI address in one spelling: `00000000:1B:00.0`, `0000:1b:00.0` and `1b:00.0` are one.
fn slot(address: &str) -> Option<String> {
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
    fn one_slot_is_spelled_in_many_ways() {
        let spelled = ["00000000:1B:00.0", "0000:1b:00.0", "1b:00.0", "0000:1b:00"];
        for address in spelled {
            assert_eq!(slot(address).as_deref(), Some("0:1b:0.0"), "{address}");
        }
        assert_eq!(slot("here"), None);
        assert_ne!(slot("0001:1b:00.0"), slot("0000:1b:00.0"));
    }
}
