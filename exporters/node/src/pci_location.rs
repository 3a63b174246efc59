//! PCI topology from the kernel's tree alone: which GPUs and RDMA devices are neighbours.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::kernel_files::{list_names, read_once};

/// The most devices of a kind that are listed: a host has 16 GPUs at most today, and a card for each of them.
const MAX_DEVICES: usize = 64;

/// NVIDIA's and AMD's PCI vendor ids.
const GPU_VENDORS: [&str; 2] = ["0x10de", "0x1002"];

/// The PCI class prefixes of GPUs: display controllers and accelerators.
const GPU_CLASSES: [&str; 2] = ["0x03", "0x12"];

/// A device's location on the bus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PciLocation {
    /// The device's own folder below `devices`, with the bridges before it.
    path: PathBuf,
    /// Its address, such as `0000:17:00.0`, if it is on the bus at all.
    pub(crate) address: Option<String>,
    /// Its NUMA node.
    pub(crate) numa: Option<String>,
    /// Whether it is an SR-IOV virtual function.
    pub(crate) is_virtual: bool,
}

/// The kind of proximity of two devices, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PciProximity {
    /// They share a bridge below the processor's own.
    Bridge,
    /// They share the processor's bridge.
    HostBridge,
    /// They share a NUMA node.
    NumaNode,
}

impl PciProximity {
    /// The name on the page.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Bridge => "pci_bridge",
            Self::HostBridge => "host_bridge",
            Self::NumaNode => "numa_node",
        }
    }
}

impl PciLocation {
    /// The location of the device whose folder, or a link to it, is at `device`.
    pub(crate) fn of(device: &Path) -> Self {
        let path = fs::canonicalize(device).unwrap_or_default();
        let address = path.file_name().and_then(|name| name.to_str());
        Self {
            address: address.filter(|name| is_address(name)).map(str::to_owned),
            numa: read_once(&device.join("numa_node")).filter(|node| !node.starts_with('-')),
            is_virtual: device.join("physfn").exists(),
            path,
        }
    }

    /// The number of bridges that the paths of two devices share. Bridges that all devices share carry no information.
    fn count_shared_bridges(&self, other: &Self) -> usize {
        let both = self.path.components().zip(other.path.components());
        let common = both.take_while(|(one, two)| one == two).map(|(one, _)| one.as_os_str());
        let is_bus = |part: &str| part.starts_with("pci") || is_address(part);
        common.filter(|part| part.to_str().is_some_and(is_bus)).count()
    }

    /// The nearest of `others`: with the longest common path down the bus, or else on the same NUMA node.
    pub(crate) fn find_nearest<'a, T>(
        &self,
        others: impl IntoIterator<Item = (T, &'a Self)>,
    ) -> Option<(Vec<T>, PciProximity)> {
        self.address.as_ref()?;
        let (mut most, mut near, mut same_node) = (0, Vec::new(), Vec::new());
        for (other, place) in others {
            let shared = self.count_shared_bridges(place);
            if shared > most {
                (most, near) = (shared, Vec::new());
            }
            if shared == most && most > 0 {
                near.push(other);
            } else if self.numa.is_some() && self.numa == place.numa {
                same_node.push(other);
            }
        }
        match most {
            0 if same_node.is_empty() => None,
            0 => Some((same_node, PciProximity::NumaNode)),
            1 => Some((near, PciProximity::HostBridge)),
            _ => Some((near, PciProximity::Bridge)),
        }
    }
}

/// The GPUs of the bus by their addresses, in its order.
pub(crate) fn list_gpus(sys_root: &Path) -> Vec<(String, PciLocation)> {
    let folder = sys_root.join("bus/pci/devices");
    let mut all = list_names(&folder).unwrap_or_default();
    all.retain(|name| is_gpu(&folder.join(name)));
    all.truncate(MAX_DEVICES);
    let place = |name: String| {
        let place = PciLocation::of(&folder.join(&name));
        (name, place)
    };
    all.into_iter().map(place).collect()
}

/// The RDMA devices by name, without virtual functions and those that `leaves_alone` excludes.
pub(crate) fn list_rdma_devices(
    sys_root: &Path,
    leaves_alone: impl Fn(&str) -> bool,
) -> Vec<(String, PciLocation)> {
    let folder = sys_root.join("class/infiniband");
    let mut all = list_names(&folder).unwrap_or_default();
    all.retain(|name| !leaves_alone(name));
    all.truncate(MAX_DEVICES);
    let place = |name: String| {
        let place = PciLocation::of(&folder.join(&name).join("device"));
        (name, place)
    };
    all.into_iter().map(place).filter(|(_, place)| !place.is_virtual).collect()
}

/// The RDMA devices nearest to a GPU, as labels of its info series.
pub(crate) fn nic_labels(
    gpu: &PciLocation,
    cards: &[(String, PciLocation)],
) -> Vec<(&'static str, String)> {
    let near = gpu.find_nearest(cards.iter().map(|(name, place)| (name.as_str(), place)));
    near.map_or(Vec::new(), |(names, by)| {
        vec![("nics", names.join(",")), ("nics_by", by.as_str().to_owned())]
    })
}

/// Whether a PCI device is a GPU.
fn is_gpu(folder: &Path) -> bool {
    let says = |file, any: &[&str]| {
        read_once(&folder.join(file)).is_some_and(|text| any.iter().any(|it| text.starts_with(it)))
    };
    says("vendor", &GPU_VENDORS) && says("class", &GPU_CLASSES)
}

/// Whether a name is an address on the PCI bus: `0000:17:00.0`.
pub(crate) fn is_address(name: &str) -> bool {
    let mut parts = name.split([':', '.']);
    let hex = |part: Option<&str>, least| {
        part.is_some_and(|it| {
            it.len() >= least && it.chars().all(|letter| letter.is_ascii_hexdigit())
        })
    };
    hex(parts.next(), 4)
        && hex(parts.next(), 2)
        && hex(parts.next(), 2)
        && hex(parts.next(), 1)
        && parts.next().is_none()
}

/// An address in NVML's form, with the domain in eight digits and capital letters: `00000000:3B:00.0`.
pub(crate) fn to_nvml_address(address: &str) -> String {
    format!("{:0>16}", address.to_ascii_uppercase())
}

/// An address in the kernel's form, with the domain in four digits if they are enough.
pub(crate) fn to_kernel_address(address: &str) -> Option<String> {
    let (domain, place) = address.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    Some(format!("{domain:04x}:{}", place.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_location(path: &str, numa: &str) -> PciLocation {
        let path = PathBuf::from("/sys/devices").join(path);
        let address = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        PciLocation { path, address, numa: Some(numa.to_owned()), is_virtual: false }
    }

    #[test]
    fn the_longest_common_way_is_the_nearest_and_the_memory_node_the_last_word() {
        let gpu = test_location("pci0000:15/0000:15:01.0/0000:16:00.0/0000:18:00.0", "0");
        let same_switch = test_location("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0", "0");
        let same_port = test_location("pci0000:15/0000:15:01.0/0000:1a:00.0", "0");
        let same_root = test_location("pci0000:15/0000:15:07.0/0000:29:00.0", "0");
        let same_node = test_location("pci0000:38/0000:38:01.0/0000:39:00.0", "0");
        let far = test_location("pci0000:98/0000:98:01.0/0000:99:00.0", "1");
        let all = [&far, &same_node, &same_root, &same_port, &same_switch];
        for (count, nearest, by) in [
            (5, Some(4), Some(PciProximity::Bridge)),
            (4, Some(3), Some(PciProximity::Bridge)),
            (3, Some(2), Some(PciProximity::HostBridge)),
            (2, Some(1), Some(PciProximity::NumaNode)),
            (1, None, None),
        ] {
            let found = gpu.find_nearest(all[..count].iter().enumerate().map(|(at, it)| (at, *it)));
            let (found, found_by) = found.unzip();
            assert_eq!((found, found_by), (nearest.map(|at| vec![at]), by), "of {count}");
        }
        let twins = [("a", &same_switch), ("b", &same_switch), ("c", &same_port)];
        assert_eq!(gpu.find_nearest(twins), Some((vec!["a", "b"], PciProximity::Bridge)));
        assert_eq!(PciLocation::default().find_nearest(twins), None, "what is not on the bus");
    }

    #[test]
    fn addresses_are_written_as_nvml_writes_them_and_back() {
        for (kernel, nvml) in
            [("0000:3b:00.0", "00000000:3B:00.0"), ("10000:e1:00.0", "00010000:E1:00.0")]
        {
            assert_eq!(to_nvml_address(kernel), nvml);
            assert_eq!(to_kernel_address(nvml).as_deref(), Some(kernel));
        }
        assert_eq!(to_kernel_address("none"), None);
    }

    #[test]
    fn addresses_are_told_from_other_folders() {
        assert!(is_address("0000:17:00.0") && is_address("10000:e1:00.0"));
        assert!(!is_address("pci0000:17") && !is_address("virtual") && !is_address("a:b:c.d"));
    }
}
