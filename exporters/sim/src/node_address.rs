//! Loopback addresses: each simulated node has its own address in 127.1.0.0/16, as a real node does.

use std::{
    io::{self, Write},
    net::Ipv4Addr,
};

/// Nodes per value of the third octet: 1 to 250, so that no address ends in 0 or 255.
const NODES_PER_BLOCK: usize = 250;

/// Maximum number of nodes for which there are addresses.
pub(crate) const MOST_NODES: usize = 256 * NODES_PER_BLOCK;

/// The address of a node.
pub(crate) fn of(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 1, (node / NODES_PER_BLOCK) as u8, (node % NODES_PER_BLOCK + 1) as u8)
}

/// The node with this address.
pub(crate) fn node_at(address: Ipv4Addr) -> Option<usize> {
    match address.octets() {
        [127, 1, block, last] if (1..=NODES_PER_BLOCK).contains(&usize::from(last)) => {
            Some(usize::from(block) * NODES_PER_BLOCK + usize::from(last) - 1)
        }
        _ => None,
    }
}

/// All addresses as one host list: `127.1.0.[1-250]:9770,127.1.1.[1-6]:9770`.
pub(crate) fn host_list(nodes: usize, port: u16) -> String {
    let block = |first: usize| {
        let last = (first + NODES_PER_BLOCK).min(nodes) - 1;
        let third = first / NODES_PER_BLOCK;
        match (first, last) {
            (first, last) if first == last => format!("{}:{port}", of(first)),
            (_, last) => format!("127.1.{third}.[1-{}]:{port}", last % NODES_PER_BLOCK + 1),
        }
    };
    (0..nodes).step_by(NODES_PER_BLOCK).map(block).collect::<Vec<_>>().join(",")
}

/// Writes one line for each port of each node: `gpu001=127.1.0.1:9770`.
pub(crate) fn write_targets(
    out: &mut impl Write,
    names: impl Iterator<Item = String>,
    ports: &[u16],
) -> io::Result<()> {
    for (node, name) in names.enumerate() {
        for port in ports {
            writeln!(out, "{name}={}:{port}", of(node))?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_found_by_their_address() {
        for nodes in 0..MOST_NODES {
            assert_eq!(node_at(of(nodes)), Some(nodes));
        }
        assert_eq!(of(MOST_NODES - 1), Ipv4Addr::new(127, 1, 255, 250));
        for other in ["127.0.0.1", "127.1.0.0", "127.1.0.251", "10.1.0.1"] {
            assert_eq!(node_at(other.parse().unwrap()), None, "{other}");
        }
    }

    #[test]
    fn host_list_is_short() {
        assert_eq!(host_list(1, 9770), "127.1.0.1:9770");
        assert_eq!(host_list(30, 9770), "127.1.0.[1-30]:9770");
        assert_eq!(host_list(501, 7), "127.1.0.[1-250]:7,127.1.1.[1-250]:7,127.1.2.1:7");
    }
}
