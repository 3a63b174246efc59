//! The address policy: which addresses and ports may be scraped, checked after name resolution.
//!
//! A target list, a DNS server or an HTTP discovery server determines where gaunt connects to. gaunt connects to the
//! checked address itself: the name is not resolved again in between.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    ops::RangeInclusive,
    str::FromStr,
    sync::Arc,
};

use gaunt_schema::plain_error;
use tokio::sync::Semaphore;

use super::endpoint::EndpointNamedBy;

/// Concurrent name lookups. The system's resolver blocks a thread for each, for 30 s if DNS does not respond.
const LOOKUPS: usize = 64;

/// Maximum number of addresses that are tried per name.
const MAX_ADDRESSES: usize = 8;

/// Addresses of cloud metadata services, which serve credentials, apart from the link-local one.
const METADATA: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254)),
];

/// A network and its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRange {
    network: IpAddr,
    prefix: u8,
    ports: RangeInclusive<u16>,
}

/// An error in a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a network; write ADDRESS/BITS, with :PORT or :FIRST-LAST to limit the ports")]
pub struct AddressRangeError(String);

impl FromStr for AddressRange {
    type Err = AddressRangeError;

    fn from_str(text: &str) -> Result<Self, AddressRangeError> {
        parse(text).ok_or_else(|| AddressRangeError(text.to_owned()))
    }
}

/// `10.0.0.0/8`, `10.0.0.7:9100`, `[fd00::]/8:9000-9999`, `fd00::/8`.
fn parse(text: &str) -> Option<AddressRange> {
    let (network, rest) = match text.strip_prefix('[') {
        Some(inner) => inner.split_once(']')?,
        None if text.matches(':').count() > 1 => {
            text.split_at(text.find('/').unwrap_or(text.len()))
        }
        None => text.split_at(text.find(['/', ':']).unwrap_or(text.len())),
    };
    let network: IpAddr = network.parse().ok()?;
    let bits = if network.is_ipv4() { 32 } else { 128 };
    let (prefix, ports) = match rest.strip_prefix('/') {
        None => (bits, rest),
        Some(rest) => {
            let (prefix, ports) = rest.split_at(rest.find(':').unwrap_or(rest.len()));
            (prefix.parse().ok().filter(|prefix| *prefix <= bits)?, ports)
        }
    };
    let ports = match ports {
        "" => 1..=u16::MAX,
        ports => {
            let ports = ports.strip_prefix(':')?;
            let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
            let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
            (first > 0 && first <= last).then_some(first..=last)?
        }
    };
    Some(AddressRange { network, prefix, ports })
}

impl AddressRange {
    fn contains_address(&self, address: IpAddr, port: u16) -> bool {
        let same_network = match (self.network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let to_128_bits = |a: Ipv4Addr| u128::from(a.to_bits()) << 96;
                same_bits(to_128_bits(network), to_128_bits(address), self.prefix)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                same_bits(network.to_bits(), address.to_bits(), self.prefix)
            }
            _ => false,
        };
        same_network && self.ports.contains(&port)
    }
}

fn same_bits(a: u128, b: u128, prefix: u8) -> bool {
    // Without this, an empty prefix would shift by all bits.
    prefix == 0 || (a ^ b) >> (128 - u32::from(prefix)) == 0
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}-{}", self.network, self.prefix, self.ports.start(), self.ports.end())
    }
}

/// The allowed addresses of a group's targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    /// If not empty, only these; else all but those where no legitimate exporter can be.
    pub allow: Vec<AddressRange>,
}

impl AddressPolicy {
    /// Checks whether this address is allowed; returns why not.
    pub(super) fn check_address(
        &self,
        address: SocketAddr,
        named_by: EndpointNamedBy,
    ) -> Result<(), String> {
        let (ip, port) = (canonical_ip(address.ip()), address.port());
        if !self.allow.is_empty() {
            let is_in = |range: &AddressRange| {
                range.contains_address(ip, port) || range.contains_address(address.ip(), port)
            };
            let allowed = self.allow.iter().any(is_in);
            return if allowed {
                Ok(())
            } else {
                Err(format!("{address} is not in `allow`; add its network, or remove the target"))
            };
        }
        let what = if METADATA.contains(&ip) {
            "a cloud metadata address, which serves credentials"
        } else if is_link_local(ip) {
            "link-local, like cloud metadata addresses, which serve credentials"
        } else if ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST)
        {
            "not a unicast address"
        } else if ip.is_loopback() && named_by == EndpointNamedBy::Network {
            "loopback, listed by another machine"
        } else {
            return Ok(());
        };
        Err(format!("{address} is {what}; to scrape it anyway, add its network to `allow`"))
    }
}

/// An IPv4 address within IPv6 is checked as IPv4: a mapped or compatible one, one behind the well-known NAT64 prefix,
/// and the gateway of a 6to4 network, which is where its packets go.
fn canonical_ip(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = ip else { return ip };
    if let Some(four) = six.to_ipv4_mapped() {
        return four.into();
    }
    match six.segments() {
        // `::` and `::1` have this form, and are addresses of IPv6.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => ip,
        [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => {
            Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)).into()
        }
        _ => ip,
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    }
}

/// Resolves names, a bounded number at once.
#[derive(Clone, Debug)]
pub(super) struct NameResolver {
    permits: Arc<Semaphore>,
}

impl Default for NameResolver {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(LOOKUPS)) }
    }
}

impl NameResolver {
    /// The addresses of a host from the system's own resolver, so that /etc/hosts and nsswitch.conf apply. A cancelled
    /// lookup keeps its thread and its permit until the resolver returns.
    pub(super) async fn look_up(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.map_err(|_| "gaunt is stopping".to_owned())?;
        let name = host.to_owned();
        let addresses = tokio::task::spawn_blocking(move || {
            let addresses = (name.as_str(), port).to_socket_addrs();
            drop(permit);
            addresses.map(|addresses| addresses.take(MAX_ADDRESSES).collect::<Vec<_>>())
        });
        match addresses.await {
            Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
            Ok(Ok(_)) => Err(format!("{host} has no address")),
            Ok(Err(error)) => Err(format!("cannot resolve {host}: {}", no_address(&error))),
            Err(error) => {
                tracing::error!(%error, "name lookup ended unexpectedly");
                Err(format!("cannot resolve {host}; see the log"))
            }
        }
    }
}

/// Why the system returns no address: its resolver adds its own text to that of the library.
fn no_address(error: &io::Error) -> String {
    if error.raw_os_error().is_some() {
        return plain_error::io(error);
    }
    let message = error.to_string();
    tracing::debug!(error = %message, "cannot resolve a name");
    // The message of getaddrinfo follows a colon.
    message.rsplit_once(": ").map_or(message.clone(), |(_, reason)| reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_with_allow(
        allow: &[&str],
        address: &str,
        named_by: EndpointNamedBy,
    ) -> Result<(), String> {
        let allow = allow.iter().map(|range| range.parse().unwrap()).collect();
        AddressPolicy { allow }.check_address(address.parse().unwrap(), named_by)
    }

    #[test]
    fn metadata_and_special_addresses_are_refused() {
        for address in [
            "169.254.169.254:80",
            "[fe80::1]:80",
            "[::ffff:169.254.169.254]:80",
            "[64:ff9b::a9fe:a9fe]:80",
            "[::a9fe:a9fe]:80",
            "[2002:a9fe:a9fe::1]:80",
            "[2002:6464:64c8:7::9]:80",
            "[fd00:ec2::254]:80",
            "100.100.100.200:80",
            "0.0.0.0:9100",
            "[::]:9100",
            "[::ffff:0.0.0.0]:9100",
            "224.0.0.1:9100",
            "[ff02::1]:9100",
            "255.255.255.255:9100",
        ] {
            for named_by in [EndpointNamedBy::Operator, EndpointNamedBy::Network] {
                let why = check_with_allow(&[], address, named_by).unwrap_err();
                assert!(why.starts_with(address) && why.contains("`allow`"), "{why}");
            }
        }
    }

    #[test]
    fn loopback_is_allowed_for_the_operator_only() {
        for address in [
            "127.0.0.1:9100",
            "127.1.2.3:1",
            "[::1]:9100",
            "[::ffff:127.0.0.1]:1",
            "[::127.0.0.1]:1",
            "[2002:7f00:1::]:1",
        ] {
            check_with_allow(&[], address, EndpointNamedBy::Operator).unwrap();
            let why = check_with_allow(&[], address, EndpointNamedBy::Network).unwrap_err();
            assert!(why.contains("loopback, listed by another machine"), "{why}");
        }
        for address in ["10.0.0.7:9100", "[2001:db8::7]:9100", "192.168.0.1:80"] {
            check_with_allow(&[], address, EndpointNamedBy::Network).unwrap();
        }
    }

    #[test]
    fn allow_list_excludes_all_other_addresses() {
        let allow = [
            "10.1.0.0/16:9100-9199",
            "fd00::/8",
            "127.0.0.1:9770",
            "169.254.0.0/16",
            "2002:a00:1::/48",
        ];
        for (address, is_allowed) in [
            ("10.1.2.3:9100", true),
            ("10.1.2.3:9200", false),
            ("10.2.2.3:9100", false),
            ("[fd12::1]:1", true),
            ("[fe12::1]:1", false),
            ("127.0.0.1:9770", true),
            ("127.0.0.2:9770", false),
            ("[::ffff:10.1.2.3]:9100", true),
            ("169.254.7.7:9100", true),
            ("[2002:a00:1::7]:9100", true),
            ("[2002:a00:2::7]:9100", false),
        ] {
            assert_eq!(
                check_with_allow(&allow, address, EndpointNamedBy::Network).is_ok(),
                is_allowed,
                "{address}"
            );
        }
    }

    #[test]
    fn networks_are_parsed_strictly() {
        for (text, shown) in [
            ("10.0.0.0/8", "10.0.0.0/8:1-65535"),
            ("10.0.0.7", "10.0.0.7/32:1-65535"),
            ("10.0.0.7:9100", "10.0.0.7/32:9100-9100"),
            ("fd00::/8", "fd00::/8:1-65535"),
            ("[fd00::]/8:1-2", "fd00::/8:1-2"),
            ("[::1]:80", "::1/128:80-80"),
            ("0.0.0.0/0", "0.0.0.0/0:1-65535"),
        ] {
            assert_eq!(text.parse::<AddressRange>().unwrap().to_string(), shown);
        }
        for wrong in [
            "",
            "10.0.0.0/33",
            "fd00::/129",
            "10.0.0/8",
            "gpu1",
            "10.0.0.0/8:0",
            "10.0.0.0/8:9-1",
            "10.0.0.0/",
        ] {
            assert!(wrong.parse::<AddressRange>().is_err(), "{wrong:?}");
        }
    }
}
