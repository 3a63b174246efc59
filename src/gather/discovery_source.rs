//! Sources of targets: who names them, how they are asked again, and what is said when they cannot be read.

use std::{path::PathBuf, sync::Arc, time::Duration};

use gaunt_schema::SanitizedText;
use tokio::{sync::mpsc, task::JoinSet, time::sleep};

use super::{
    address_policy::AddressPolicy,
    endpoint::{Endpoint, EndpointDefaults, EndpointList, TargetListError},
};

mod dns_discovery;
mod file_discovery;
mod http_discovery;
pub(super) mod prometheus_targets;

pub use dns_discovery::{DnsDiscovery, DnsRecordType};
pub use http_discovery::{HttpDiscovery, ServerUrlError, parse_url};

/// The time between two readings of a source on the network unless it says otherwise, as Prometheus has it.
pub const REFRESH: Duration = Duration::from_secs(30);

/// The time between two looks at a file.
const LOOK: Duration = Duration::from_secs(1);

/// Who names targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscoverySource {
    /// A host list of a flag or of the settings, with where it stands.
    List(String, SanitizedText),
    /// A file with a host list on each line.
    TargetsFile(PathBuf),
    /// Files in Prometheus's format; `*` and `?` in the last part of the path name several.
    Files(PathBuf),
    /// An HTTP server that answers in Prometheus's format.
    Http(HttpDiscovery),
    /// A name in DNS.
    Dns(DnsDiscovery),
}

/// What all places of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupDefaults {
    /// What an address does not say itself.
    pub(super) defaults: EndpointDefaults,
    /// Whether a source may take the encryption away: not where credentials would go in the clear.
    pub(super) may_downgrade: bool,
}

/// What a source names now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DiscoveredTargets {
    /// The places.
    pub(super) endpoints: Vec<Endpoint>,
    /// What in the list is no place, if anything; the rest is taken.
    pub(super) trouble: Option<SanitizedText>,
}

/// Why a source brought no list.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiscoveryError {
    #[error(transparent)]
    Places(#[from] TargetListError),
    #[error("cannot read {what}: {why}")]
    Read { what: String, why: String },
    #[error("{what}: {why}")]
    Content { what: String, why: String },
}

/// What a source has to say: news of the one with this number.
#[derive(Debug)]
pub(super) struct DiscoveryUpdate {
    pub(super) source: u64,
    pub(super) list: Result<DiscoveredTargets, DiscoveryError>,
}

impl DiscoverySource {
    /// What its targets have as their origin, and what it is called in sentences.
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

    /// What can be read at once: host lists, and files of them. The other sources may come up later.
    pub(super) fn static_endpoints(
        &self,
        usual: &EndpointDefaults,
    ) -> Result<Option<Vec<Endpoint>>, TargetListError> {
        let mut places = EndpointList::new(usual.clone());
        match self {
            Self::List(list, origin) => places.add_list(list, origin)?,
            Self::TargetsFile(path) => places.add_file(path)?,
            Self::Files(_) | Self::Http(_) | Self::Dns(_) => return Ok(None),
        }
        Ok(Some(places.into_vec()))
    }

    /// Tells what the source names, now and whenever it changes, until nobody listens or the task is ended.
    pub(super) async fn run(
        self,
        source: u64,
        common: GroupDefaults,
        news: mpsc::Sender<DiscoveryUpdate>,
    ) {
        let tell = DiscoverySender { source, news };
        match self {
            Self::List(..) => {
                let places = self.static_endpoints(&common.defaults);
                let list = places.map(|places| DiscoveredTargets {
                    endpoints: places.unwrap_or_default(),
                    trouble: None,
                });
                tell.send_update(list.map_err(DiscoveryError::from)).await;
            }
            Self::TargetsFile(path) => {
                file_discovery::watch_files(
                    file_discovery::TargetFileKind::HostLists,
                    path,
                    common,
                    tell,
                )
                .await;
            }
            Self::Files(path) => {
                file_discovery::watch_files(
                    file_discovery::TargetFileKind::Prometheus,
                    path,
                    common,
                    tell,
                )
                .await;
            }
            Self::Http(http) => {
                let mut tasks = JoinSet::new();
                let mut line =
                    http.open_client(Arc::new(AddressPolicy::default()), &mut tasks).await;
                while tell.send_update(http.fetch_targets(&mut line, &common).await).await {
                    sleep(http.refresh).await;
                }
            }
            Self::Dns(dns) => {
                while tell.send_update(dns.query_targets(&common).await).await {
                    sleep(dns.refresh).await;
                }
            }
        }
    }
}

/// The way by which a source tells its news.
pub(super) struct DiscoverySender {
    source: u64,
    news: mpsc::Sender<DiscoveryUpdate>,
}

impl DiscoverySender {
    /// Tells; false if nobody listens any more.
    async fn send_update(&self, list: Result<DiscoveredTargets, DiscoveryError>) -> bool {
        self.news.send(DiscoveryUpdate { source: self.source, list }).await.is_ok()
    }
}
