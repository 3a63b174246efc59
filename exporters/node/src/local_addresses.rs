//! The addresses of this node, from the kernel's routing tables: NCCL's RAS names nodes by address.

use std::{
    collections::BTreeSet,
    fs::File,
    io::Read,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

use crate::kernel_files::current_path;

/// The most addresses, and the most bytes of a table: a node with thousands of routes has some hundred kilobytes.
const MAX_ADDRESSES: usize = 64;
const MAX_BYTES: u64 = 4 << 20;

/// The network folders under the root of the process tree, the host's own first: a container has another.
const FOLDERS: [&str; 2] = ["1/net", "net"];

/// The addresses of the node, loopback ones left out, in order.
pub(crate) fn read_addresses(proc_root: &Path) -> Vec<IpAddr> {
    let mut addresses = BTreeSet::new();
    for folder in FOLDERS {
        let folder = proc_root.join(folder);
        let table = |name: &str| read_table(&folder.join(name)).unwrap_or_default();
        addresses.extend(parse_ipv4_addresses(&table("fib_trie")).map(IpAddr::V4));
        addresses.extend(parse_ipv6_addresses(&table("if_inet6")).map(IpAddr::V6));
    }
    let is_own = |address: &IpAddr| !address.is_loopback() && !address.is_unspecified();
    addresses.into_iter().filter(is_own).take(MAX_ADDRESSES).collect()
}

fn read_table(path: &Path) -> Option<String> {
    current_path::record_read(path);
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The local addresses of `fib_trie`: each has a line `|-- ADDRESS` and, after it, one that ends in `host LOCAL`.
fn parse_ipv4_addresses(table: &str) -> impl Iterator<Item = Ipv4Addr> {
    let mut last = None;
    table.lines().filter_map(move |line| {
        if let Some(address) = line.trim_start().strip_prefix("|-- ") {
            last = address.trim().parse().ok();
            return None;
        }
        last.filter(|_| line.trim_end().ends_with("host LOCAL"))
    })
}

/// The addresses of `if_inet6`: 32 hexadecimal digits at the start of each line.
fn parse_ipv6_addresses(table: &str) -> impl Iterator<Item = Ipv6Addr> {
    let addresses = table.lines().filter_map(|line| line.split_ascii_whitespace().next());
    addresses
        .filter(|digits| digits.len() == 32)
        .filter_map(|digits| u128::from_str_radix(digits, 16).ok())
        .map(Ipv6Addr::from_bits)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn addresses_of_the_host_are_read_without_loopback() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("1/net");
        fs::create_dir_all(&folder).unwrap();
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 10.1.0.0\n        \
                    /16 link UNICAST\n     |-- 10.1.0.7\n        /32 host LOCAL\n     |-- 10.1.255.255\n        /32 link BROADCAST\n\
                    Local:\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 10.1.0.7\n        /32 host LOCAL\n";
        fs::write(folder.join("fib_trie"), trie).unwrap();
        let inet6 = "00000000000000000000000000000001 01 80 10 80       lo\n\
                     fd000000000000000000000000000007 02 40 00 80     eth0\nbroken\n";
        fs::write(folder.join("if_inet6"), inet6).unwrap();
        let addresses: Vec<String> =
            read_addresses(root.path()).iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.1.0.7", "fd00::7"]);
        assert_eq!(read_addresses(Path::new("/nowhere")), Vec::<IpAddr>::new());
    }
}
