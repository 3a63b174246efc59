//! The network device of an RDMA port: pause frames and FEC corrections are counted by network device. gaunt-node states
//! it; node_exporter does not, and it follows from the names, or from the order of devices of one rate.

use std::collections::BTreeMap;

use gaunt_schema::natural_order;

/// An RDMA port of a node.
#[derive(Clone, Copy, Debug)]
pub struct PortName<'a> {
    /// Its RDMA device, such as `rocep129s0f0` or `mlx5_0`.
    pub device: &'a str,
    /// The network device that its page states.
    pub stated: Option<&'a str>,
    /// Bytes per second.
    pub rate: Option<f64>,
}

/// A network device of a node.
#[derive(Clone, Copy, Debug)]
pub struct NetdevName<'a> {
    /// Its name, such as `enp129s0f0np0`.
    pub name: &'a str,
    /// Bytes per second.
    pub rate: Option<f64>,
}

/// Two rates are one if they differ by less: exporters round them.
const SAME_RATE: f64 = 0.01;

/// Returns the position of the network device of each port, as far as it is certain: the stated one, the one whose name
/// has the same PCI path or address, or the one at the same place if a node has as many ports of a rate as network
/// devices.
pub fn join_netdevs(ports: &[PortName<'_>], netdevs: &[NetdevName<'_>]) -> Vec<Option<usize>> {
    let physical: Vec<usize> =
        (0..netdevs.len()).filter(|at| is_adapter(netdevs[*at].name)).collect();
    let by_name = |port: &PortName<'_>| {
        if let Some(stated) = port.stated.filter(|stated| !stated.is_empty()) {
            return netdevs.iter().position(|netdev| netdev.name == stated);
        }
        let mut same = physical.iter().filter(|at| has_same_place(port.device, netdevs[**at].name));
        let only = same.next().copied();
        only.filter(|_| same.next().is_none())
    };
    let mut joined: Vec<Option<usize>> = ports.iter().map(by_name).collect();
    let mut ports_left: Vec<usize> = (0..ports.len())
        .filter(|at| joined[*at].is_none() && ports[*at].stated.is_none_or(str::is_empty))
        .collect();
    ports_left.sort_by(|a, b| natural_order(ports[*a].device, ports[*b].device));
    let mut netdevs_left: Vec<usize> =
        physical.into_iter().filter(|at| !joined.contains(&Some(*at))).collect();
    netdevs_left.sort_by(|a, b| natural_order(netdevs[*a].name, netdevs[*b].name));
    for at in &ports_left {
        let Some(rate) = ports[*at].rate else { continue };
        let is_same = |other: Option<f64>| {
            other.is_some_and(|other| (other - rate).abs() <= rate * SAME_RATE)
        };
        let peers: Vec<usize> =
            ports_left.iter().filter(|peer| is_same(ports[**peer].rate)).copied().collect();
        let of_rate = netdevs_left.iter().filter(|netdev| is_same(netdevs[**netdev].rate));
        let candidates = only_family(of_rate.copied().collect(), peers.len(), netdevs);
        // Two ports of one device share its name, and their order is not known.
        let are_distinct =
            peers.windows(2).all(|pair| ports[pair[0]].device != ports[pair[1]].device);
        if peers.len() == candidates.len() && are_distinct {
            let place = peers.iter().position(|peer| peer == at);
            joined[*at] = place.map(|place| candidates[place]);
        }
    }
    joined
}

/// Returns the network devices of which there are as many as this: where there are more, those whose names begin alike, such
/// as `rdma0` to `rdma7` beside an adapter for storage.
fn only_family(of_rate: Vec<usize>, count: usize, netdevs: &[NetdevName<'_>]) -> Vec<usize> {
    if of_rate.len() <= count {
        return of_rate;
    }
    let mut families: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for at in &of_rate {
        let name = netdevs[*at].name;
        let digits = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
        families.entry(&name[..digits]).or_default().push(*at);
    }
    let mut fitting = families.into_values().filter(|family| family.len() == count);
    match (fitting.next(), fitting.next()) {
        (Some(family), None) => family,
        _ => of_rate,
    }
}

/// Whether names of an RDMA device and a network device tell the same PCI path or hardware address.
pub(crate) fn has_same_place(rdma_device: &str, netdev: &str) -> bool {
    let rdma = ["roce", "ib", "iw", "opa"].iter().find_map(|kind| rdma_device.strip_prefix(kind));
    let netdev = ["en", "ib"].iter().find_map(|kind| netdev.strip_prefix(kind));
    let (Some(rdma), Some(netdev)) = (rdma, netdev) else { return false };
    match (rdma.strip_prefix('x'), netdev.strip_prefix('x')) {
        (Some(guid), Some(address)) => address_of_guid(guid) == address_of_guid(address),
        (None, None) => {
            let place = pci_path(rdma);
            place.is_some() && place == pci_path(netdev)
        }
        _ => false,
    }
}

/// Whether an RDMA device is named by its hardware address or GUID, as in `ibxb8cef603007ad1f0`: such a name tells nothing
/// about its place in the node.
pub fn is_named_by_address(rdma_device: &str) -> bool {
    let kinds = ["roce", "ib", "iw", "opa"].iter();
    let mut addresses = kinds.filter_map(|kind| rdma_device.strip_prefix(kind)?.strip_prefix('x'));
    addresses.any(|address| {
        address.len() >= ADDRESS_DIGITS && address.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// The least digits of a hardware address.
const ADDRESS_DIGITS: usize = 12;

/// Returns domain, bus, slot and function of `[P<domain>]p<bus>s<slot>[f<function>]` with anything behind it that starts
/// with `n` or `d`: the name of the port.
fn pci_path(name: &str) -> Option<[u32; 4]> {
    let (domain, rest) = match name.strip_prefix('P') {
        Some(rest) => leading_number(rest)?,
        None => (0, name),
    };
    let (bus, rest) = leading_number(rest.strip_prefix('p')?)?;
    let (slot, rest) = leading_number(rest.strip_prefix('s')?)?;
    let (function, rest) = match rest.strip_prefix('f') {
        Some(rest) => leading_number(rest)?,
        None => (0, rest),
    };
    (rest.is_empty() || rest.starts_with(['n', 'd'])).then_some([domain, bus, slot, function])
}

fn leading_number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// Returns the hardware address of 12 digits in a GUID of 16, which has four digits in the middle and may have a bit
/// flipped; other texts stay as they are.
fn address_of_guid(guid: &str) -> String {
    let guid = guid.to_ascii_lowercase();
    if guid.len() != 16 || !guid.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return guid;
    }
    let flips = &guid[6..10] == "fffe";
    let second = u8::from_str_radix(&guid[1..2], 16).unwrap_or_default();
    let second = if flips { second ^ 2 } else { second };
    format!("{}{second:x}{}{}", &guid[..1], &guid[2..6], &guid[10..])
}

/// What the names of network devices begin with that are no adapters: of bonds, bridges, tunnels, containers and virtual
/// machines. Adapters have any name: operators call them `gpu0eth0` or `rdma0`.
const SOFTWARE: [&str; 37] = [
    "antrea",
    "bond",
    "br",
    "cali",
    "cilium",
    "cni",
    "docker",
    "dummy",
    "erspan",
    "flannel",
    "geneve",
    "gre",
    "ifb",
    "ip6",
    "ipip",
    "ipvl",
    "kube",
    "lxc",
    "lxd",
    "macv",
    "nodelocaldns",
    "ovs",
    "podman",
    "sit",
    "tailscale",
    "tap",
    "team",
    "tun",
    "veth",
    "virbr",
    "vlan",
    "vnet",
    "vti",
    "vxlan",
    "weave",
    "wg",
    "wlan",
];

/// Whether the name may be that of an adapter, and is not that of a device of the kernel alone.
pub fn is_adapter(name: &str) -> bool {
    let is_software = name == "lo" || SOFTWARE.iter().any(|kind| name.starts_with(kind));
    !is_software && !name.contains(['.', '@', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(ports: &[(&str, f64)], netdevs: &[(&str, f64)]) -> Vec<Option<String>> {
        let ports: Vec<PortName<'_>> = ports
            .iter()
            .map(|(device, rate)| PortName { device, stated: None, rate: Some(*rate) })
            .collect();
        let names: Vec<NetdevName<'_>> =
            netdevs.iter().map(|(name, rate)| NetdevName { name, rate: Some(*rate) }).collect();
        let joined = join_netdevs(&ports, &names);
        joined.into_iter().map(|at| Some(names[at?].name.to_owned())).collect()
    }

    fn names(names: &[&str]) -> Vec<Option<String>> {
        names.iter().map(|name| Some((*name).to_owned())).collect()
    }

    #[test]
    fn same_pci_path_joins_in_any_order() {
        let netdevs = [("enp24s0np0", 50e9), ("enp7s0f1np1", 50e9), ("enP2p7s0np0", 50e9)];
        let joined = join(&[("rocep7s0f1", 50e9), ("rocep24s0f0", 50e9)], &netdevs);
        assert_eq!(joined, names(&["enp7s0f1np1", "enp24s0np0"]));
        assert!(has_same_place("roceP2p7s0", "enP2p7s0np0"));
        assert!(!has_same_place("rocep7s0", "enP2p7s0np0") && !has_same_place("mlx5_0", "eth0"));
    }

    #[test]
    fn adapter_has_any_name_but_those_of_software() {
        for name in ["ens1f0np0", "eth0", "ib0", "gpu0eth0", "rdma7", "ocp1"] {
            assert!(is_adapter(name), "{name}");
        }
        for name in
            ["lo", "bond0", "br-4f1c", "docker0", "veth3a@if2", "eth0.100", "cali12ab", "tunl0"]
        {
            assert!(!is_adapter(name), "{name}");
        }
        let netdevs = [("gpu1eth0", 50e9), ("gpu0eth0", 50e9), ("bond0", 50e9)];
        let joined = join(&[("mlx5_0", 50e9), ("mlx5_1", 50e9)], &netdevs);
        assert_eq!(joined, names(&["gpu0eth0", "gpu1eth0"]));
    }

    #[test]
    fn name_by_address_is_known() {
        for name in ["ibxb8cef603007ad1f0", "rocex0c42a1160549"] {
            assert!(is_named_by_address(name), "{name}");
        }
        for name in ["mlx5_0", "rocep75s0", "ibx1", "ibp12s0", "rocexy0c42a116054"] {
            assert!(!is_named_by_address(name), "{name}");
        }
    }

    #[test]
    fn same_address_joins() {
        assert!(has_same_place("rocex0c42a1160549", "enx0c42a1160549"));
        assert!(has_same_place("rocex0c42a10300160549", "enx0c42a1160549"));
        assert!(has_same_place("rocex0e42a1fffe160549", "enx0c42a1160549"));
        assert!(!has_same_place("rocex0c42a10300160548", "enx0c42a1160549"));
    }

    #[test]
    fn order_joins_devices_of_one_rate_if_there_are_as_many() {
        let ports = [("mlx5_10", 50e9), ("mlx5_2", 50e9), ("mlx5_3", 12.5e9)];
        let mut netdevs = vec![
            ("enp9s0np0", 50.01e9),
            ("enp65s0np0", 50e9),
            ("ens1f0", 12.5e9),
            ("docker0", 50e9),
        ];
        let joined = join(&ports, &netdevs);
        assert_eq!(joined, names(&["enp65s0np0", "enp9s0np0", "ens1f0"]));
        // One more of a rate, and nothing is known of that rate.
        netdevs.push(("enp99s0", 50e9));
        assert_eq!(join(&ports, &netdevs), [None, None, Some("ens1f0".to_owned())]);
        // The ports of one device.
        assert_eq!(
            join(&[("mlx5_0", 1e9), ("mlx5_0", 1e9)], &[("eth0", 1e9), ("eth1", 1e9)]),
            [None, None]
        );
    }

    #[test]
    fn more_devices_of_a_rate_are_told_apart_by_how_their_names_begin() {
        let ports = [("mlx5_0", 50e9), ("mlx5_1", 50e9)];
        let mut netdevs = vec![("rdma1", 50e9), ("enp225s0", 50e9), ("rdma0", 50e9)];
        assert_eq!(join(&ports, &netdevs), names(&["rdma0", "rdma1"]));
        netdevs.push(("enp226s0", 50e9));
        assert_eq!(join(&ports, &netdevs), [None, None], "two of each");
    }

    #[test]
    fn stated_name_takes_precedence() {
        let port = PortName { device: "rocep7s0", stated: Some("bond0"), rate: Some(1e9) };
        let netdevs = ["enp7s0", "bond0"].map(|name| NetdevName { name, rate: Some(1e9) });
        assert_eq!(join_netdevs(&[port], &netdevs), [Some(1)]);
        assert_eq!(join_netdevs(&[port], &netdevs[..1]), [None]);
    }
}
