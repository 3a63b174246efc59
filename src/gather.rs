//! Gathering: finds the targets, reaches each on a spread schedule, and sends the owner one batch of it every period.

use std::time::Duration;

use gaunt_schema::{ClockFn, Delivery, SanitizedText, text};
use tokio::{sync::mpsc, task::AbortHandle};

mod address_policy;
mod backoff;
mod content_negotiation;
mod discovery_source;
mod endpoint;
mod fetch;
mod file_polling;
mod host_list;
mod machine_identity;
mod quotas;
mod scrape_manager;
mod scrape_slots;
mod scrape_task;
mod server_access;
mod target_set;
#[cfg(test)]
mod tests;
mod timer_lateness;
mod widening;

pub use address_policy::{AddressPolicy, AddressRange, AddressRangeError};
pub use discovery_source::{
    DiscoverySource, DnsDiscovery, DnsRecordType, HttpDiscovery, REFRESH, ServerUrlError,
    parse_url,
    prometheus_targets::{TargetListNotation, parse_addresses},
};
pub use endpoint::{
    DEFAULT_PATH, DEFAULT_PORT, Endpoint, EndpointDefaults, EndpointList, EndpointNamedBy,
    TargetListError, UrlScheme, check_path,
};
pub use host_list::{HostListError, MAX_NAMES, expand_host_list};
pub use quotas::ScrapeQuotas;
pub use scrape_slots::ScrapeSlots;
pub use server_access::{CredentialState, HttpCredentials, LoadedCredentials, ServerAccess};
pub use target_set::MAX_TARGETS;

/// The longest deadline of one scrape unless the settings say otherwise: who needs longer is as good as down.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(4);

/// The share of a source's targets that may vanish at once: a rack of five goes, a broken list does not.
pub const REMOVAL: f64 = 0.2;

/// Plans that may wait: the operator reloads by hand.
const PLANS: usize = 4;

/// How targets are gathered.
#[derive(Clone, Debug, PartialEq)]
pub struct ScrapeOptions {
    /// The time between two scrapes of one target.
    pub period: Duration,
    /// The time for one scrape: connecting, headers, body and decoding together.
    pub timeout: Duration,
    /// The largest page, in bytes.
    pub max_body: usize,
    /// What targets may use.
    pub limits: ScrapeQuotas,
    /// The share of a source's targets that may vanish at once; 1 lets all of them go.
    pub removal: f64,
}

impl ScrapeOptions {
    /// The usual options for a period.
    pub fn with_period(period: Duration) -> Self {
        Self {
            period,
            timeout: timeout_for(period),
            max_body: text::PageLimits::default().body_bytes,
            limits: ScrapeQuotas::default(),
            removal: REMOVAL,
        }
    }

    /// Whether something differs that does not change while gaunt runs.
    fn is_restart_needed(&self, other: &Self) -> bool {
        Self { removal: 0.0, ..self.clone() } != Self { removal: 0.0, ..other.clone() }
    }
}

/// The deadline that leaves room in the period for the next scrape: four fifths of it, at most 4 s.
pub fn timeout_for(period: Duration) -> Duration {
    (period * 4 / 5).min(LONGEST_TIMEOUT)
}

/// Targets that are reached in one way, and who names them.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetGroup {
    /// What the operator calls it.
    pub name: SanitizedText,
    /// Who names its targets.
    pub sources: Vec<DiscoverySource>,
    /// What their addresses do not say.
    pub defaults: EndpointDefaults,
    /// Where they may be.
    pub address_policy: AddressPolicy,
    /// Encryption and credentials.
    pub access: ServerAccess,
    /// Whether compressed pages are asked for.
    pub compress: bool,
    /// Whether OpenMetrics is asked for before text.
    pub open_metrics: bool,
    /// Whether frames are asked for before text, unless OpenMetrics is.
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
    /// Whether targets of both are reached in the same way, so that their connections may stay.
    fn has_same_transport(&self, other: &Self) -> bool {
        let manners = |group: &Self| (group.compress, group.open_metrics, group.frames);
        self.address_policy == other.address_policy
            && self.access == other.access
            && manners(self) == manners(other)
    }
}

/// Everything that is gathered.
#[derive(Clone, Debug, PartialEq)]
pub struct ScrapePlan {
    /// How.
    pub options: ScrapeOptions,
    /// What.
    pub groups: Vec<TargetGroup>,
}

impl ScrapePlan {
    /// Whether nobody is named who could name a target.
    pub fn is_empty(&self) -> bool {
        self.source_count() == 0
    }

    /// How many there are who name targets.
    pub fn source_count(&self) -> usize {
        self.groups.iter().map(|group| group.sources.len()).sum()
    }

    /// Reads what can be read at once, and says what is wrong with it.
    pub fn check_lists(&self) -> Result<(), TargetListError> {
        for group in &self.groups {
            for source in &group.sources {
                source.static_endpoints(&group.defaults)?;
            }
        }
        Ok(())
    }
}

/// A running gatherer. Dropping it ends every scrape.
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
    /// Takes another plan: sources are read anew, and what they name now is believed even if much of it is gone.
    pub async fn reload_plan(&self, plan: ScrapePlan) {
        // The desk ends only with the owner.
        drop(self.plans.send(plan).await);
    }
}

/// Reads the targets that the plan's sources name, each once a period, until the gatherer is dropped.
pub fn spawn_manager(
    plan: ScrapePlan,
    inbox: mpsc::Sender<Delivery>,
    clock: ClockFn,
) -> ScrapeManagerHandle {
    let (plans, reloads) = mpsc::channel(PLANS);
    let desk = tokio::spawn(scrape_manager::ScrapeManager::new(plan, inbox, clock).run(reloads))
        .abort_handle();
    ScrapeManagerHandle { plans, manager: desk }
}
