//! Targets from DNS: the hosts and ports of a service, or the addresses of a name.
//!
//! The system's own resolver knows no SRV records, so this asks the servers of /etc/resolv.conf itself, through
//! hickory. Hosts that are then read are looked up by the system as all others are.

use std::{fmt, net::SocketAddr, time::Duration};

use gaunt_schema::{SanitizedText, plain_error};
use hickory_resolver::{
    Resolver, TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolverConfig},
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::rr::{RData, RecordType},
};

use super::{DiscoveredTargets, DiscoveryError, GroupDefaults};
use crate::gather::{
    endpoint::{Endpoint, EndpointDefaults, EndpointNamedBy, check_host},
    host_list::MAX_NAMES,
};

/// The time for one answer of one server.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Which records of a name are asked for.
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
    /// The type of this name.
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

/// A name that stands for targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsDiscovery {
    /// The name.
    pub name: String,
    /// What is asked for.
    pub record: DnsRecordType,
    /// The time between two questions.
    pub refresh: Duration,
    /// Who is asked; the servers of the system without it.
    pub server: Option<SocketAddr>,
}

impl fmt::Display for DnsDiscovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dns {} {}", self.record.as_str(), self.name)
    }
}

impl DnsDiscovery {
    /// Asks once. A name that is not there, or has no such record, names nobody.
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
        let answer = match resolver.lookup(self.name.as_str(), record).await {
            Ok(answer) => answer,
            Err(error) if error.is_no_records_found() || error.is_nx_domain() => {
                let trouble = format!("{self}: there is no such record; check the name");
                return Ok(DiscoveredTargets {
                    endpoints: Vec::new(),
                    trouble: Some(SanitizedText::new(&trouble)),
                });
            }
            Err(error) => return Err(failed(&error)),
        };
        let found = answer.answers().iter().filter_map(|record| match &record.data {
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
        // Each reading asks anew; the interval is the operator's.
        options.cache_size = 0;
        builder.build()
    }

    fn collect_endpoints(
        &self,
        mut found: Vec<(String, Option<u16>)>,
        common: &GroupDefaults,
    ) -> DiscoveredTargets {
        // Servers turn the order with each answer.
        found.sort();
        found.dedup();
        let origin = SanitizedText::new(&self.to_string());
        let (mut places, mut trouble) = (Vec::new(), None);
        for (host, port) in found.into_iter().take(MAX_NAMES) {
            let literal = host.parse::<std::net::IpAddr>().is_ok();
            if let Err(why) = if literal { Ok(()) } else { check_host(&host) } {
                trouble.get_or_insert_with(|| SanitizedText::new(&format!("{self}: {why}")));
                continue;
            }
            let EndpointDefaults { scheme, path, port: usual } = common.defaults.clone();
            places.push(Endpoint {
                scheme,
                host,
                port: port.filter(|port| *port != 0).unwrap_or(usual),
                path,
                node: None,
                origin: origin.clone(),
                named_by: EndpointNamedBy::Network,
            });
        }
        DiscoveredTargets { endpoints: places, trouble }
    }
}

/// A name in DNS ends with a dot, a host's name does not.
fn host_of(name: &str) -> String {
    name.trim_end_matches('.').to_owned()
}
