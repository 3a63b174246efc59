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
        let pairs = self.path.components().zip(other.path.components());
        let common =
            pairs.take_while(|(own, theirs)| own == theirs).map(|(own, _)| own.as_os_str());
        let is_bus = |part: &str| part.starts_with("pci") || is_address(part);
        common.filter(|part| part.to_str().is_some_and(is_bus)).count()
    }

    /// The nearest of `others`: with the longest common path down the bus, or else on the same NUMA node.
    pub(crate) fn find_nearest<'a, T>(
        &self,
        candidates: impl IntoIterator<Item = (T, &'a Self)>,
    ) -> Option<(Vec<T>, PciProximity)> {
        self.address.as_ref()?;
        let (mut max_shared, mut nearest, mut same_node) = (0, Vec::new(), Vec::new());
        for (other, location) in candidates {
            let shared = self.count_shared_bridges(location);
            if shared > max_shared {
                (max_shared, nearest) = (shared, Vec::new());
            }
            if shared == max_shared && max_shared > 0 {
                nearest.push(other);
            } else if self.numa.is_some() && self.numa == location.numa {
                same_node.push(other);
            }
        }
        match max_shared {
            0 if same_node.is_empty() => None,
            0 => Some((same_node, PciProximity::NumaNode)),
            1 => Some((nearest, PciProximity::HostBridge)),
            _ => Some((nearest, PciProximity::Bridge)),
        }
    }
}

/// The GPUs of the bus by their addresses, in its order.
pub(crate) fn list_gpus(sys_root: &Path) -> Vec<(String, PciLocation)> {
    let folder = sys_root.join("bus/pci/devices");
    let mut names = list_names(&folder).unwrap_or_default();
    names.retain(|name| is_gpu(&folder.join(name)));
    names.truncate(MAX_DEVICES);
    let locate = |name: String| {
        let location = PciLocation::of(&folder.join(&name));
        (name, location)
    };
    names.into_iter().map(locate).collect()
}

/// The RDMA devices by name, without virtual functions and those that `leaves_alone` excludes.
pub(crate) fn list_rdma_devices(
    sys_root: &Path,
    leaves_alone: impl Fn(&str) -> bool,
) -> Vec<(String, PciLocation)> {
    let folder = sys_root.join("class/infiniband");
    let mut names = list_names(&folder).unwrap_or_default();
    names.retain(|name| !leaves_alone(name));
    names.truncate(MAX_DEVICES);
    let locate = |name: String| {
        let location = PciLocation::of(&folder.join(&name).join("device"));
        (name, location)
    };
    names.into_iter().map(locate).filter(|(_, location)| !location.is_virtual).collect()
}

/// The RDMA devices nearest to a GPU, as labels of its info series.
pub(crate) fn nic_labels(
    gpu: &PciLocation,
    cards: &[(String, PciLocation)],
) -> Vec<(&'static str, String)> {
    let nearest = gpu.find_nearest(cards.iter().map(|(name, location)| (name.as_str(), location)));
    nearest.map_or(Vec::new(), |(names, proximity)| {
        vec![("nics", names.join(",")), ("nics_by", proximity.as_str().to_owned())]
    })
}

/// Whether a PCI device is a GPU.
fn is_gpu(folder: &Path) -> bool {
    let file_starts_with = |file, prefixes: &[&str]| {
        read_once(&folder.join(file))
            .is_some_and(|text| prefixes.iter().any(|prefix| text.starts_with(prefix)))
    };
    file_starts_with("vendor", &GPU_VENDORS) && file_starts_with("class", &GPU_CLASSES)
}

/// Whether a name is an address on the PCI bus: `0000:17:00.0`.
pub(crate) fn is_address(name: &str) -> bool {
    let mut parts = name.split([':', '.']);
    let is_hex = |part: Option<&str>, min_length| {
        part.is_some_and(|digits| {
            digits.len() >= min_length && digits.chars().all(|letter| letter.is_ascii_hexdigit())
        })
    };
    is_hex(parts.next(), 4)
        && is_hex(parts.next(), 2)
        && is_hex(parts.next(), 2)
        && is_hex(parts.next(), 1)
        && parts.next().is_none()
}

/// An address in NVML's form, with the domain in eight digits and capital letters: `00000000:3B:00.0`.
pub(crate) fn to_nvml_address(address: &str) -> String {
    format!("{:0>16}", address.to_ascii_uppercase())
}

/// An address in the kernel's form, with the domain in four digits if they are enough.
pub(crate) fn to_kernel_address(address: &str) -> Option<String> {
    let (domain, bus_device) = address.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    Some(format!("{domain:04x}:{}", bus_device.to_lowercase()))
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
    fn nearest_device_shares_most_bridges_then_numa_node() {
        let gpu = test_location("pci0000:15/0000:15:01.0/0000:16:00.0/0000:18:00.0", "0");
        let same_switch = test_location("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0", "0");
        let same_port = test_location("pci0000:15/0000:15:01.0/0000:1a:00.0", "0");
        let same_root = test_location("pci0000:15/0000:15:07.0/0000:29:00.0", "0");
        let same_node = test_location("pci0000:38/0000:38:01.0/0000:39:00.0", "0");
        let far = test_location("pci0000:98/0000:98:01.0/0000:99:00.0", "1");
        let locations = [&far, &same_node, &same_root, &same_port, &same_switch];
        for (count, nearest, proximity) in [
            (5, Some(4), Some(PciProximity::Bridge)),
            (4, Some(3), Some(PciProximity::Bridge)),
            (3, Some(2), Some(PciProximity::HostBridge)),
            (2, Some(1), Some(PciProximity::NumaNode)),
            (1, None, None),
        ] {
            let found = gpu.find_nearest(
                locations[..count].iter().enumerate().map(|(index, location)| (index, *location)),
            );
            let (found, found_by) = found.unzip();
            assert_eq!(
                (found, found_by),
                (nearest.map(|index| vec![index]), proximity),
                "of {count}"
            );
        }
        let equals = [("a", &same_switch), ("b", &same_switch), ("c", &same_port)];
        assert_eq!(gpu.find_nearest(equals), Some((vec!["a", "b"], PciProximity::Bridge)));
        assert_eq!(PciLocation::default().find_nearest(equals), None, "what is not on the bus");
    }

    #[test]
    fn addresses_convert_to_nvml_format_and_back() {
        for (kernel, nvml) in
            [("0000:3b:00.0", "00000000:3B:00.0"), ("10000:e1:00.0", "00010000:E1:00.0")]
        {
            assert_eq!(to_nvml_address(kernel), nvml);
            assert_eq!(to_kernel_address(nvml).as_deref(), Some(kernel));
        }
        assert_eq!(to_kernel_address("none"), None);
    }

    #[test]
    fn addresses_are_distinguished_from_other_folders() {
        assert!(is_address("0000:17:00.0") && is_address("10000:e1:00.0"));
        assert!(!is_address("pci0000:17") && !is_address("virtual") && !is_address("a:b:c.d"));
    }
}
