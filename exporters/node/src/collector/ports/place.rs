//! Where a card sits: its address on the bus, the GPUs nearest to it, its rail.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use gaunt_schema::Safe;

use crate::files::{names, read_once};

/// The most GPUs that are looked for: a host has 16 at most today.
const MAX_GPUS: usize = 32;

/// NVIDIA's and AMD's numbers among the makers of PCI devices.
const GPU_VENDORS: [&str; 2] = ["0x10de", "0x1002"];

/// What the class of a PCI device that computes or draws begins with: display controllers and accelerators.
const GPU_CLASSES: [&str; 2] = ["0x03", "0x12"];

/// What is known of a card without asking it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The device's own folder below `devices`, with the bridges before it.
    path: PathBuf,
    /// Its address on the bus, such as `0000:17:00.0`.
    pub(super) pci: Option<String>,
    /// The memory node that it hangs on.
    pub(super) numa: Option<String>,
    /// What kind of board it is.
    board: (Option<String>, Option<String>),
    /// Whether it is a share of another device, made for a guest.
    pub(super) is_virtual: bool,
    /// Its port numbers.
    ports: Vec<String>,
}

impl Place {
    /// The place of the RDMA device at `folder`.
    pub(super) fn of(folder: &Path) -> Self {
        let device = folder.join("device");
        let path = fs::canonicalize(&device).unwrap_or_default();
        let pci = path.file_name().and_then(|name| name.to_str()).filter(|name| is_address(name));
        let numa = read_once(&device.join("numa_node")).filter(|node| !node.starts_with('-'));
        Self {
            pci: pci.map(str::to_owned),
            numa,
            board: (read_once(&folder.join("hca_type")), read_once(&folder.join("board_id"))),
            is_virtual: device.join("physfn").exists(),
            ports: names(&folder.join("ports")).unwrap_or_default(),
            path,
        }
    }

    /// The GPUs nearest to the card: those with the longest common way down the bus, or else on the same memory node.
    /// Their addresses are written as their own info series writes them.
    pub(super) fn gpus(&self, sys_root: &Path) -> Vec<String> {
        if self.pci.is_none() {
            return Vec::new();
        }
        let folder = sys_root.join("bus/pci/devices");
        let mut near: (usize, Vec<String>) = (0, Vec::new());
        let mut same_node = Vec::new();
        let all = names(&folder).unwrap_or_default();
        for name in all.into_iter().filter(|name| is_gpu(&folder.join(name))).take(MAX_GPUS) {
            if self.numa.is_some() && read_once(&folder.join(&name).join("numa_node")) == self.numa
            {
                same_node.push(name.clone());
            }
            let path = fs::canonicalize(folder.join(&name)).unwrap_or_default();
            let both = self.path.components().zip(path.components());
            let common: Vec<_> = both.take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
            // Only bridges count: what all devices share says nothing.
            let is_bus = |part: &str| part.starts_with("pci") || is_address(part);
            let names = common.iter().filter_map(|part| part.as_os_str().to_str());
            let bridges = names.filter(|part| is_bus(part)).count();
            if bridges > near.0 {
                near = (bridges, Vec::new());
            }
            if bridges == near.0 && bridges > 0 {
                near.1.push(name);
            }
        }
        let nearest = if near.0 > 0 { near.1 } else { same_node };
        nearest.iter().map(|address| as_nvml_writes(address)).collect()
    }
}

/// Whether a PCI device is a GPU.
fn is_gpu(folder: &Path) -> bool {
    let says = |file, any: &[&str]| {
        read_once(&folder.join(file)).is_some_and(|text| any.iter().any(|it| text.starts_with(it)))
    };
    says("vendor", &GPU_VENDORS) && says("class", &GPU_CLASSES)
}

/// Whether a name is an address on the PCI bus: `0000:17:00.0`.
pub(in crate::collector) fn is_address(name: &str) -> bool {
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

/// An address as the info series of GPUs has it, with the domain in eight digits and capital letters: `00000000:3B:00.0`.
pub(in crate::collector) fn as_nvml_writes(address: &str) -> String {
    format!("{:0>16}", address.to_ascii_uppercase())
}

/// The rail of each port: its position, in the order of the bus, among the ports of the kind of board that the host has
/// most of. Those are the compute fabric; front-end and storage cards are of another kind, or fewer. The rate is no
/// help: a link that is down says 2.5 Gb/s, and must not move its neighbours' rails.
pub(super) fn rails(places: Vec<(&str, Place)>) -> BTreeMap<(Safe, Safe), u32> {
    let mut kinds: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (name, place) in places.into_iter().filter(|(_, place)| !place.is_virtual) {
        for port in &place.ports {
            let order = (place.pci.clone(), name.to_owned(), port.clone());
            kinds.entry(place.board.clone()).or_default().push(order);
        }
    }
    // Two kinds of equal number cannot be told apart, and no rail is better than a wrong one.
    let most = kinds.values().map(Vec::len).max().unwrap_or(0);
    let mut largest = kinds.into_values().filter(|ports| ports.len() == most);
    let (Some(mut ports), None) = (largest.next(), largest.next()) else { return BTreeMap::new() };
    ports.sort();
    let key = |(_, name, port): (_, String, String)| (Safe::new(&name), Safe::new(&port));
    ports.into_iter().map(key).zip(0..).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pci: &str, board: &str, is_virtual: bool) -> Place {
        Place {
            path: PathBuf::new(),
            pci: Some(pci.to_owned()),
            numa: None,
            board: (Some("MT4129".to_owned()), Some(board.to_owned())),
            is_virtual,
            ports: vec!["1".to_owned()],
        }
    }

    #[test]
    fn rails_are_counted_along_the_bus_among_the_most_common_boards() {
        let rails = rails(vec![
            ("mlx5_0", place("0000:9a:00.0", "compute", false)),
            ("mlx5_1", place("0000:18:00.0", "compute", false)),
            ("mlx5_2", place("0000:29:00.0", "storage", false)),
            ("mlx5_3", place("0000:3a:00.0", "compute", false)),
            ("mlx5_4", place("0000:18:00.1", "compute", true)),
        ]);
        let expected = [("mlx5_1", 0), ("mlx5_3", 1), ("mlx5_0", 2)];
        let expected = expected.map(|(name, rail)| ((Safe::new(name), Safe::new("1")), rail));
        assert_eq!(rails, BTreeMap::from(expected));
    }

    #[test]
    fn boards_of_equal_number_have_no_rails() {
        let two = vec![
            ("a", place("0000:18:00.0", "x", false)),
            ("b", place("0000:19:00.0", "y", false)),
        ];
        assert_eq!(rails(two), BTreeMap::new());
    }

    #[test]
    fn addresses_are_written_as_nvml_writes_them() {
        assert_eq!(as_nvml_writes("0000:3b:00.0"), "00000000:3B:00.0");
        assert_eq!(as_nvml_writes("10000:e1:00.0"), "00010000:E1:00.0");
    }

    #[test]
    fn addresses_are_told_from_other_folders() {
        assert!(is_address("0000:17:00.0") && is_address("10000:e1:00.0"));
        assert!(!is_address("pci0000:17") && !is_address("virtual") && !is_address("a:b:c.d"));
    }
}
