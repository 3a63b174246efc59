//! Discovery sources: where target lists come from, how they are refreshed, and the errors of reading them.

use std::{path::PathBuf, sync::Arc, time::Duration};

use gaunt_schema::SanitizedText;
use tokio::{sync::mpsc, task::JoinSet, time::sleep};

use super::{
    address_policy::AddressPolicy,
    endpoint::{Endpoint, EndpointDefaults, EndpointList, TargetListError},
    network::Network,
};

mod dns_discovery;
mod file_discovery;
mod http_discovery;
pub(super) mod prometheus_targets;

pub use dns_discovery::{DnsDiscovery, DnsRecordType};
pub use http_discovery::{HttpDiscovery, ServerUrlError, parse_url};

/// Default refresh interval of network sources, as in Prometheus.
pub const REFRESH: Duration = Duration::from_secs(30);

/// The time between two polls of a file.
const LOOK: Duration = Duration::from_secs(1);

/// A source of targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscoverySource {
    /// A host list from a flag or the settings, with its origin.
    List(String, SanitizedText),
    /// A file with a host list on each line.
    TargetsFile(PathBuf),
    /// Files in Prometheus's format; `*` and `?` are wildcards in the last part of the path.
    Files(PathBuf),
    /// An HTTP server that responds in Prometheus's format.
    Http(HttpDiscovery),
    /// A DNS name.
    Dns(DnsDiscovery),
}

/// What all endpoints of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupDefaults {
    /// Defaults for what an address leaves out.
    pub(super) defaults: EndpointDefaults,
    /// Whether a source may disable TLS: not where credentials would be sent in the clear.
    pub(super) may_downgrade: bool,
}

/// The current targets of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DiscoveredTargets {
    /// The endpoints.
    pub(super) endpoints: Vec<Endpoint>,
    /// The invalid entries of the list, if any; the rest is accepted.
    pub(super) trouble: Option<SanitizedText>,
}

/// Why a source returned no list.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiscoveryError {
    #[error(transparent)]
    Places(#[from] TargetListError),
    #[error("cannot read {what}: {why}")]
    Read { what: String, why: String },
    #[error("{}", file_discovery::name_file(.what, .why))]
    Content { what: String, why: String },
}

/// An update from the source with this number.
#[derive(Debug)]
pub(super) struct DiscoveryUpdate {
    pub(super) source: u64,
    pub(super) list: Result<DiscoveredTargets, DiscoveryError>,
}

impl DiscoverySource {
    /// The origin of its targets, and its name in messages.
    pub fn display_name(&self) -> SanitizedText {
        match self {
            Self::List(_, origin) => origin.clone(),
            Self::TargetsFile(path) | Self::Files(path) => {
                SanitizedText::new(&path.display().to_string())
            }
            Self::Http(http) => SanitizedText::new(&http.endpoint.to_string()),
            Self::Dns(dns) => SanitizedText::new(&dns.to_string()),
        }
    }

    /// Targets that can be read at once: host lists, and files of them. Other sources may become available later.
    pub(super) fn static_endpoints(
        &self,
        defaults: &EndpointDefaults,
    ) -> Result<Option<Vec<Endpoint>>, TargetListError> {
        let mut endpoints = EndpointList::new(defaults.clone());
        match self {
            Self::List(list, origin) => endpoints.add_list(list, origin)?,
            Self::TargetsFile(path) => endpoints.add_file(path)?,
            Self::Files(_) | Self::Http(_) | Self::Dns(_) => return Ok(None),
        }
        Ok(Some(endpoints.into_vec()))
    }

    /// Reads the files of the source once, and returns their number with the first error of each; none of other sources.
    pub(super) fn check_files(&self, common: GroupDefaults) -> (usize, Vec<String>) {
        let (kind, path) = match self {
            Self::TargetsFile(path) => (file_discovery::TargetFileKind::HostLists, path),
            Self::Files(path) => (file_discovery::TargetFileKind::Prometheus, path),
            Self::List(..) | Self::Http(_) | Self::Dns(_) => return (0, Vec::new()),
        };
        file_discovery::check_files(kind, path, common)
    }

    /// Sends the targets of the source, now and whenever they change, until the receiver is dropped or the task is
    /// aborted. A discovery server is reached over `network` if there is one, else over TCP.
    pub(super) async fn run(
        self,
        source: u64,
        common: GroupDefaults,
        updates: mpsc::Sender<DiscoveryUpdate>,
        network: Option<Arc<dyn Network>>,
    ) {
        let sender = DiscoverySender { source, updates };
        match self {
            Self::List(..) => {
                let endpoints = self.static_endpoints(&common.defaults);
                let list = endpoints.map(|endpoints| DiscoveredTargets {
                    endpoints: endpoints.unwrap_or_default(),
                    trouble: None,
                });
                sender.send_update(list.map_err(DiscoveryError::from)).await;
            }
            Self::TargetsFile(path) => {
                file_discovery::watch_files(
                    file_discovery::TargetFileKind::HostLists,
                    path,
                    common,
                    sender,
                )
                .await;
            }
            Self::Files(path) => {
                file_discovery::watch_files(
                    file_discovery::TargetFileKind::Prometheus,
                    path,
                    common,
                    sender,
                )
                .await;
            }
            Self::Http(http) => {
                let mut tasks = JoinSet::new();
                let mut client =
                    http.open_client(Arc::new(AddressPolicy::default()), &mut tasks).await;
                loop {
                    let list = http.fetch_targets(&mut client, &common, network.clone()).await;
                    if !sender.send_update(list).await {
                        return;
                    }
                    sleep(http.refresh).await;
                }
            }
            Self::Dns(dns) => {
                while sender.send_update(dns.query_targets(&common).await).await {
                    sleep(dns.refresh).await;
                }
            }
        }
    }
}

/// The channel for a source's updates.
pub(super) struct DiscoverySender {
    source: u64,
    updates: mpsc::Sender<DiscoveryUpdate>,
}

impl DiscoverySender {
    /// Sends an update; false if the receiver is dropped.
    async fn send_update(&self, list: Result<DiscoveredTargets, DiscoveryError>) -> bool {
        self.updates.send(DiscoveryUpdate { source: self.source, list }).await.is_ok()
    }
}
