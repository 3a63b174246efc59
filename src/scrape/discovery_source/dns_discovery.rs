//! DNS discovery: the hosts and ports of a service (SRV), or the addresses of a name (A, AAAA).
//!
//! The system's resolver does not support SRV records, so this queries the servers of /etc/resolv.conf itself, through
//! hickory. The discovered hosts are then resolved by the system like all others.

use std::{fmt, net::SocketAddr, time::Duration};

use gaunt_schema::{SanitizedText, plain_error};
use hickory_resolver::{
    Resolver, TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolverConfig},
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::rr::{RData, RecordType},
};

use super::{DiscoveredTargets, DiscoveryError, GroupDefaults};
use crate::{
    endpoint::{Endpoint, EndpointDefaults, EndpointNamedBy, check_host},
    host_list::MAX_NAMES,
};

/// The timeout of one query to one server.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The record type of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsRecordType {
    /// Hosts and ports of a service.
    Srv,
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
}

impl DnsRecordType {
    /// Parses the name of a record type.
    pub fn parse_record_type(name: &str) -> Option<Self> {
        match name.to_ascii_uppercase().as_str() {
            "SRV" => Some(Self::Srv),
            "A" => Some(Self::A),
            "AAAA" => Some(Self::Aaaa),
            _ => None,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Srv => "SRV",
            Self::A => "A",
            Self::Aaaa => "AAAA",
        }
    }
}

/// A DNS name with targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsDiscovery {
    /// The name.
    pub name: String,
    /// The record type.
    pub record: DnsRecordType,
    /// The time between two queries.
    pub refresh: Duration,
    /// The server to query; without it, those of the system.
    pub server: Option<SocketAddr>,
}

impl fmt::Display for DnsDiscovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dns {} {}", self.record.as_str(), self.name)
    }
}

impl DnsDiscovery {
    /// Queries once. A name that does not exist, or has no such record, has no targets.
    pub(super) async fn query_targets(
        &self,
        common: &GroupDefaults,
    ) -> Result<DiscoveredTargets, DiscoveryError> {
        let failed = |error: &NetError| DiscoveryError::Read {
            what: self.to_string(),
            why: format!("{}; check the name server", plain_error::network(error)),
        };
        let resolver = self.build_resolver().map_err(|error| failed(&error))?;
        let record = match self.record {
            DnsRecordType::Srv => RecordType::SRV,
            DnsRecordType::A => RecordType::A,
            DnsRecordType::Aaaa => RecordType::AAAA,
        };
        let response = match resolver.lookup(self.name.as_str(), record).await {
            Ok(response) => response,
            Err(error) if error.is_no_records_found() || error.is_nx_domain() => {
                let trouble = format!("{self}: no such record; check the name");
                return Ok(DiscoveredTargets {
                    endpoints: Vec::new(),
                    trouble: Some(SanitizedText::new(&trouble)),
                });
            }
            Err(error) => return Err(failed(&error)),
        };
        let found = response.answers().iter().filter_map(|record| match &record.data {
            RData::SRV(service) => Some((host_of(&service.target.to_ascii()), Some(service.port))),
            RData::A(address) => Some((address.0.to_string(), None)),
            RData::AAAA(address) => Some((address.0.to_string(), None)),
            _ => None,
        });
        Ok(self.collect_endpoints(found.collect(), common))
    }

    fn build_resolver(&self) -> Result<TokioResolver, NetError> {
        let mut builder = match self.server {
            None => Resolver::builder_tokio()?,
            Some(server) => {
                let (mut udp, mut tcp) = (ConnectionConfig::udp(), ConnectionConfig::tcp());
                (udp.port, tcp.port) = (server.port(), server.port());
                let server = NameServerConfig::new(server.ip(), true, vec![udp, tcp]);
                let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
                Resolver::builder_with_config(config, TokioRuntimeProvider::default())
            }
        };
        let options = builder.options_mut();
        options.timeout = TIMEOUT;
        // No cache: the operator sets the interval.
        options.cache_size = 0;
        builder.build()
    }

    fn collect_endpoints(
        &self,
        mut found: Vec<(String, Option<u16>)>,
        common: &GroupDefaults,
    ) -> DiscoveredTargets {
        // Servers rotate the order with each answer.
        found.sort();
        found.dedup();
        let origin = SanitizedText::new(&self.to_string());
        let (mut endpoints, mut trouble) = (Vec::new(), None);
        for (host, port) in found.into_iter().take(MAX_NAMES) {
            let is_ip_address = host.parse::<std::net::IpAddr>().is_ok();
            if let Err(why) = if is_ip_address { Ok(()) } else { check_host(&host) } {
                trouble.get_or_insert_with(|| SanitizedText::new(&format!("{self}: {why}")));
                continue;
            }
            let EndpointDefaults { scheme, path, port: default_port } = common.defaults.clone();
            endpoints.push(Endpoint {
                scheme,
                host,
                port: port.filter(|port| *port != 0).unwrap_or(default_port),
                path,
                node: None,
                origin: origin.clone(),
                named_by: EndpointNamedBy::Network,
            });
        }
        DiscoveredTargets { endpoints, trouble }
    }
}

/// A DNS name ends with a dot, a host name does not.
fn host_of(name: &str) -> String {
    name.trim_end_matches('.').to_owned()
}
