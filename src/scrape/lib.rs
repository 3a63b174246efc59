//! Scraping: discovers the targets, scrapes each at its own offset in the period, and sends the engine one batch per
//! target and period.

use std::{sync::Arc, time::Duration};

use gaunt_schema::{ClockFn, Delivery, SanitizedText, TargetId, text};
use tokio::{sync::mpsc, task::AbortHandle};

mod address_policy;
mod backoff;
mod content_negotiation;
mod deadline_read;
mod discovery_source;
mod endpoint;
mod fetch;
mod file_polling;
mod host_list;
mod http_client;
mod log_thinning;
mod machine_identity;
mod network;
mod quotas;
mod scrape_manager;
mod scrape_slots;
mod scrape_task;
mod server_access;
mod shown_address;
mod target_set;
#[cfg(test)]
mod tests;
mod timer_lateness;
pub mod tls;
mod widening;

pub use address_policy::{AddressPolicy, AddressRange, AddressRangeError};
pub use deadline_read::{READ_DEADLINE, RepeatedRead};
pub use discovery_source::{
    DiscoverySource, DnsDiscovery, DnsRecordType, HttpDiscovery, REFRESH, ServerUrlError,
    parse_url,
    prometheus_targets::{TargetListNotation, parse_addresses},
};
pub use endpoint::{
    DEFAULT_PATH, DEFAULT_PORT, Endpoint, EndpointDefaults, EndpointList, EndpointNamedBy,
    TargetListError, UrlScheme, check_host_list, check_path,
};
pub use host_list::{HostListError, MAX_NAMES, expand_host_list};
pub use http_client::HttpClient;
pub use network::{ConnectionResult, Network, NetworkStream};
pub use quotas::ScrapeQuotas;
pub use scrape_slots::ScrapeSlots;
pub use server_access::{CredentialState, HttpCredentials, LoadedCredentials, ServerAccess};
pub use shown_address::shown_address;
pub use target_set::MAX_TARGETS;

/// The longest default deadline of one scrape: a slower target counts as down.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(4);

/// The share of a source's targets that may vanish at once: enough for one rack of five, but not for a broken list.
pub const REMOVAL: f64 = 0.2;

/// Capacity of the plan channel: the operator reloads by hand.
const PLANS: usize = 4;

/// Options of scraping.
#[derive(Clone, Debug, PartialEq)]
pub struct ScrapeOptions {
    /// The time between two scrapes of one target.
    pub period: Duration,
    /// The deadline of one scrape: connecting, headers, body and decoding together.
    pub timeout: Duration,
    /// The largest page, in bytes.
    pub max_body: usize,
    /// The quotas of targets.
    pub limits: ScrapeQuotas,
    /// The share of a source's targets that may vanish at once; 1 disables the check.
    pub removal: f64,
}

impl ScrapeOptions {
    /// The default options for a period.
    pub fn with_period(period: Duration) -> Self {
        Self {
            period,
            timeout: timeout_for(period),
            max_body: text::PageLimits::default().body_bytes,
            limits: ScrapeQuotas::default(),
            removal: REMOVAL,
        }
    }

    /// Whether an option differs that needs a restart to change.
    fn is_restart_needed(&self, other: &Self) -> bool {
        Self { removal: 0.0, ..self.clone() } != Self { removal: 0.0, ..other.clone() }
    }
}

/// The default deadline, which leaves time in the period for the next scrape: four fifths of it, at most 4 s.
pub fn timeout_for(period: Duration) -> Duration {
    (period * 4 / 5).min(LONGEST_TIMEOUT)
}

/// Targets with common transport options, and the sources that list them.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetGroup {
    /// Its name in the settings.
    pub name: SanitizedText,
    /// The sources that list its targets.
    pub sources: Vec<DiscoverySource>,
    /// Defaults for what their addresses leave out.
    pub defaults: EndpointDefaults,
    /// The addresses that they may have.
    pub address_policy: AddressPolicy,
    /// Encryption and credentials.
    pub access: ServerAccess,
    /// Whether compressed pages are requested.
    pub compress: bool,
    /// Whether OpenMetrics is preferred to text.
    pub open_metrics: bool,
    /// Whether frames are preferred to text, unless OpenMetrics is.
    pub frames: bool,
}

impl Default for TargetGroup {
    fn default() -> Self {
        Self {
            name: SanitizedText::default(),
            sources: Vec::new(),
            defaults: EndpointDefaults::default(),
            address_policy: AddressPolicy::default(),
            access: ServerAccess::default(),
            compress: false,
            open_metrics: false,
            frames: true,
        }
    }
}

impl TargetGroup {
    /// Whether both use the same transport, so that connections can be kept.
    fn has_same_transport(&self, other: &Self) -> bool {
        let transport = |group: &Self| (group.compress, group.open_metrics, group.frames);
        self.address_policy == other.address_policy
            && self.access == other.access
            && transport(self) == transport(other)
    }
}

/// Options and groups of all targets.
#[derive(Clone, Debug, PartialEq)]
pub struct ScrapePlan {
    /// Options of scraping.
    pub options: ScrapeOptions,
    /// The target groups.
    pub groups: Vec<TargetGroup>,
}

impl ScrapePlan {
    /// Whether there is no source.
    pub fn is_empty(&self) -> bool {
        self.source_count() == 0
    }

    /// The number of sources.
    pub fn source_count(&self) -> usize {
        self.groups.iter().map(|group| group.sources.len()).sum()
    }

    /// Parses the host lists of flags and settings and returns the first error.
    pub fn check_lists(&self) -> Result<(), TargetListError> {
        self.check_sources(|source| matches!(source, DiscoverySource::List(..)))
    }

    /// Reads the files of host lists and returns the first error. A service that runs on reads them later.
    pub fn check_files(&self) -> Result<(), TargetListError> {
        self.check_sources(|source| matches!(source, DiscoverySource::TargetsFile(_)))
    }

    /// Reads all files that list targets or hold the credentials of a group or of a discovery server, and returns their number
    /// with the first error of each.
    pub fn list_file_errors(&self) -> (usize, Vec<String>) {
        let (mut files, mut errors) = (0, Vec::new());
        for group in &self.groups {
            let servers = group.sources.iter().filter_map(|source| match source {
                DiscoverySource::Http(http) => Some(&http.access),
                _ => None,
            });
            for access in std::iter::once(&group.access).chain(servers) {
                let (read, error) = access.check_files();
                files += read;
                errors.extend(error);
            }
            for source in &group.sources {
                let (read, found) = source.check_files(scrape_manager::group_defaults(group));
                files += read;
                errors.extend(found);
            }
        }
        (files, errors)
    }

    fn check_sources(
        &self,
        is_checked: impl Fn(&DiscoverySource) -> bool,
    ) -> Result<(), TargetListError> {
        for group in &self.groups {
            for source in group.sources.iter().filter(|source| is_checked(source)) {
                source.static_endpoints(&group.defaults)?;
            }
        }
        Ok(())
    }
}

/// A running scrape manager. Dropping it ends every scrape.
#[derive(Debug)]
pub struct ScrapeManagerHandle {
    plans: mpsc::Sender<ScrapePlan>,
    manager: AbortHandle,
}

impl Drop for ScrapeManagerHandle {
    fn drop(&mut self) {
        self.manager.abort();
    }
}

impl ScrapeManagerHandle {
    /// Applies a new plan: reads all sources again, and accepts their lists even if many targets vanish.
    pub async fn reload_plan(&self, plan: ScrapePlan) {
        // The manager ends only with the engine.
        drop(self.plans.send(plan).await);
    }
}

/// Whether the next scrape of a target also requests the status of NCCL's RAS.
pub type RasRequestFn = Arc<dyn Fn(TargetId) -> bool + Send + Sync>;

/// Scrapes the targets of the plan's sources, each once per period, until the manager is dropped.
pub fn spawn_manager(
    plan: ScrapePlan,
    inbox: mpsc::Sender<Delivery>,
    clock: ClockFn,
) -> ScrapeManagerHandle {
    spawn_manager_with_requests(plan, inbox, clock, Arc::new(|_| false))
}

/// The same, with requests for the status of NCCL's RAS.
pub fn spawn_manager_with_requests(
    plan: ScrapePlan,
    inbox: mpsc::Sender<Delivery>,
    clock: ClockFn,
    wants_ras_status: RasRequestFn,
) -> ScrapeManagerHandle {
    spawn_manager_on_network(plan, inbox, clock, wants_ras_status, None)
}

/// The same, over a network that replaces TCP, if there is one.
pub fn spawn_manager_on_network(
    plan: ScrapePlan,
    inbox: mpsc::Sender<Delivery>,
    clock: ClockFn,
    wants_ras_status: RasRequestFn,
    network: Option<Arc<dyn Network>>,
) -> ScrapeManagerHandle {
    let (plans, reloads) = mpsc::channel(PLANS);
    let manager = scrape_manager::ScrapeManager::new(plan, inbox, clock, wants_ras_status, network);
    let manager = tokio::spawn(manager.run(reloads)).abort_handle();
    ScrapeManagerHandle { plans, manager }
}
