//! Settings: reads the TOML file, rejects invalid values, and fills the options of each module.

use std::{
    collections::BTreeSet,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use gaunt_schema::{SanitizedText, plain_error};

use crate::{
    alert,
    command::report_command::GpuPrices,
    peers::{PeerError, PeerOptions},
    serve::RoleOptions,
};
use gaunt_engine::record;
use gaunt_node::thread_read::{READ_DEADLINE, read_on_thread};
use gaunt_scrape::{
    HttpCredentials, ScrapeOptions, ScrapePlan, ScrapeQuotas, ServerAccess, TargetGroup,
    timeout_for,
};
use gaunt_series::SeriesOptions;
use gaunt_store::StoreOptions;

mod access_section;
mod alerting;
mod gather_section;
mod peers_section;
mod prometheus_section;
mod roles_section;
mod setting_values;
mod settings_file;
mod storage;
mod store_section;

use settings_file::SettingsFile;

/// The largest settings file: many times a list of 20,000 targets.
const MAX_FILE: u64 = 16 << 20;

/// Default listen address of the aggregator: this machine only.
pub const LISTEN: &str = "127.0.0.1:9771";

/// Error in a settings file.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read settings file {}: {}; {}", path.display(), plain_error::io(error), read_advice(error))]
    Read {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Keys or values are unknown or invalid.
    #[error("{}", errors.join("\n"))]
    Content {
        /// Each error: file, line, the valid values, and the next step.
        errors: Vec<String>,
    },
}

impl SettingsError {
    /// Each error of the file.
    pub fn into_messages(self) -> Vec<String> {
        match self {
            Self::Read { .. } => vec![self.to_string()],
            Self::Content { errors } => errors,
        }
    }
}

/// What to do about a file that cannot be read.
fn read_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::InvalidData => "save it as UTF-8",
        io::ErrorKind::PermissionDenied => "let the user that runs gaunt read it",
        _ => "check the path given with --config",
    }
}

/// All settings, with defaults where a key is not set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Engine options.
    pub engine: gaunt_engine::EngineOptions,
    /// The time between two scrapes of one target.
    pub period: Duration,
    /// Time limit of one scrape; none for the default of the period.
    pub timeout: Option<Duration>,
    /// The largest page, in bytes.
    pub max_body: usize,
    /// Listen address of `gaunt serve`.
    pub listen: SocketAddr,
    /// Host names that `gaunt serve` accepts, in addition to its addresses and the names of this machine.
    pub names: Vec<String>,
    /// Directory of the state that outlives a restart (findings, acknowledgements, counters), if set.
    pub state_folder: Option<PathBuf>,
    /// File of the token that permits acknowledging findings, if set.
    pub token_file: Option<PathBuf>,
    /// File of the token with which a sender may write what it scrapes, if that is received.
    pub receive_token_file: Option<PathBuf>,
    /// Web configuration of `gaunt serve` with TLS and users, if set.
    pub web_config: Option<PathBuf>,
    /// File to which `gaunt serve` logs actions as JSON, if set.
    pub audit_file: Option<PathBuf>,
    /// Who may do what, without the token in that file.
    pub roles: RoleOptions,
    /// Aggregator to use where neither a flag nor the environment names one.
    pub aggregator: Option<String>,
    /// CA certificates with which the aggregator is verified, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Console options.
    pub console: gaunt_console::ConsoleOptions,
    /// Quotas of targets.
    pub limits: ScrapeQuotas,
    /// The share of a source's targets that may disappear at once.
    pub removal: f64,
    /// Target sources and how they are reached; the first group holds the section's own targets.
    pub groups: Vec<TargetGroup>,
    /// Files of topology and running jobs.
    pub site: gaunt_site::SiteOptions,
    /// History length.
    pub history: Duration,
    /// Where `gaunt serve` records, if enabled; the period is filled in by [`Self::recording_options`].
    pub recording: Option<record::RecordOptions>,
    /// Alerting, if enabled.
    pub alerting: Option<alert::AlertOptions>,
    /// The other aggregators of the cluster; without URLs if there are none.
    pub peers: PeerOptions,
    /// The store; its URL is empty if none is set.
    pub store: StoreOptions,
    /// A Prometheus that already scrapes the exporters; its URL is empty if none is set.
    pub prometheus: SeriesOptions,
    /// The time between two refreshes from it.
    pub series_refresh: Duration,
    /// GPU prices.
    pub prices: GpuPrices,
    /// Kilograms of CO2 per kilowatt-hour, if known.
    pub co2_kg_per_kwh: Option<f64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::of(SettingsFile::default(), Path::new(""))
    }
}

impl Settings {
    /// Reads a file; without one, returns the defaults.
    pub fn load_file(path: Option<&Path>) -> Result<Self, SettingsError> {
        let Some(path) = path else { return Ok(Self::default()) };
        Self::load_within(path, READ_DEADLINE)
    }

    fn load_within(path: &Path, deadline: Duration) -> Result<Self, SettingsError> {
        let file = path.to_path_buf();
        let text = read_on_thread(deadline, move || read_file(&file))
            .flatten()
            .map_err(|error| SettingsError::Read { path: path.to_path_buf(), error })?;
        Self::parse(&text, path)
    }

    /// Parses the text of the file at `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, SettingsError> {
        let file = SettingsFile::parse(text).map_err(|faults| SettingsError::Content {
            errors: faults
                .iter()
                .map(|fault| {
                    format!("{}:{}: {}", path.display(), fault.line_number(text), fault.what)
                })
                .collect(),
        })?;
        Ok(Self::of(file, path))
    }

    fn of(file: SettingsFile, path: &Path) -> Self {
        let period = file.gather.period.to_duration();
        let site = storage::site_options(&file.topology, &file.jobs, path);
        let prices = file.report.gpu_prices(&file.cluster);
        Self {
            engine: gaunt_engine::EngineOptions {
                cluster: SanitizedText::new(&file.cluster.name),
                period,
                slots: storage::history_slots(file.history.history_span(), period),
                history_bytes: file.history.max_bytes(),
                every_past: file.history.every_metric,
                price_per_gpu_hour: file
                    .cluster
                    .price_per_gpu_hour
                    .map(setting_values::PriceSetting::to_amount),
                model_prices: prices.by_model.clone(),
                currency: SanitizedText::new(&file.cluster.currency),
                thresholds: Box::new(file.judge),
                usage: gaunt_engine::USAGE,
                alerts: None,
                peers: None,
                store: None,
                certificates: None,
                says_usual: false,
            },
            period,
            timeout: file.gather.timeout.as_ref().map(|timeout| timeout.get_ref().to_duration()),
            max_body: file.gather.max_body.get_ref().to_bytes(),
            listen: file.serve.listen.to_socket_address(),
            state_folder: resolve_path(path, &file.serve.state_folder),
            token_file: resolve_path(path, &file.serve.token_file),
            receive_token_file: resolve_path(path, &file.serve.receive_token_file),
            web_config: resolve_path(path, &file.serve.web_config),
            audit_file: resolve_path(path, &file.serve.audit_file),
            names: file.serve.names,
            roles: roles_section::role_options(
                file.serve.tokens.into_inner(),
                file.serve.trusted_proxy.map(toml::Spanned::into_inner),
                file.serve.read_needs_role,
                path,
            ),
            aggregator: Some(file.console.aggregator.clone()).filter(|url| !url.is_empty()),
            ca_file: resolve_path(path, &file.console.ca_file),
            console: file.console.console_options(),
            limits: file.gather.scrape_quotas(),
            removal: file.gather.removal_share(),
            groups: file.gather.target_groups(path),
            site,
            history: file.history.history_span(),
            recording: file.record.recording_options(path),
            alerting: file.alertmanager.into_inner().alert_options(path, &file.cluster.name),
            peers: file.serve.peers.into_inner().peer_options(path, &file.cluster.name),
            store: file.store.into_inner().store_options(path, &file.cluster.name),
            series_refresh: file.prometheus.get_ref().refresh(),
            prometheus: file.prometheus.into_inner().series_options(path),
            prices,
            co2_kg_per_kwh: file.report.co2_kg_per_kwh(),
        }
    }

    /// Recording options, if enabled.
    pub fn recording_options(&self) -> Option<record::RecordOptions> {
        let options = self.recording.clone()?;
        Some(record::RecordOptions { period: self.period, ..options })
    }

    /// Store options, if the flag or the settings name a store. What waits is kept in a folder of the state.
    pub fn store_options(&self, url: Option<String>, state: Option<&Path>) -> Option<StoreOptions> {
        let url = url.unwrap_or_else(|| self.store.url.clone());
        let query_url =
            self.store.query_url.clone().or_else(|| gaunt_store::derive_query_url(&url));
        let backlog_folder = state.map(|folder| folder.join("store"));
        let options = StoreOptions { url, query_url, backlog_folder, ..self.store.clone() };
        (!options.url.is_empty()).then_some(options)
    }

    /// Who may do what. The token in the file of the first flag, else of the settings, permits everything, and that of
    /// the second one to send measurements.
    pub fn role_options(
        &self,
        token_flag: Option<&Path>,
        receive_flag: Option<&Path>,
    ) -> RoleOptions {
        let token_file = token_flag.or(self.token_file.as_deref());
        let receive_file = receive_flag.or(self.receive_token_file.as_deref());
        roles_section::with_named_tokens(self.roles.clone(), token_file, receive_file)
    }

    /// Peer options, if the settings name any. Unless they name another, the token is that of this aggregator.
    pub fn peer_options(
        &self,
        token_flag: Option<&Path>,
    ) -> Result<Option<PeerOptions>, PeerError> {
        if self.peers.urls.is_empty() {
            return Ok(None);
        }
        let token_file = token_flag.or(self.token_file.as_deref());
        let token = token_file.ok_or(PeerError::NoToken)?;
        let mut peers = self.peers.clone();
        let own = || HttpCredentials::Bearer(token.to_path_buf());
        peers.access.credentials.get_or_insert_with(own);
        Ok(Some(peers))
    }

    /// Files of the client certificates that are presented to targets and servers, each once.
    pub fn client_certificates(&self) -> Vec<PathBuf> {
        let groups = self.groups.iter().map(|group| &group.access);
        let alerting = self.alerting.iter().map(|alerting| &alerting.access);
        let servers = [&self.peers.access, &self.store.access, &self.prometheus.access];
        let all = groups.chain(alerting).chain(servers);
        let certificates = all.filter_map(|access| access.tls.client_certificate.as_ref());
        let files: BTreeSet<PathBuf> = certificates.map(|(file, _)| file.clone()).collect();
        files.into_iter().collect()
    }

    /// Options of the Prometheus that the flags or the settings name, if any do.
    pub fn series_options(
        &self,
        url: Option<String>,
        matchers: Option<String>,
    ) -> Option<SeriesOptions> {
        let mut options = self.prometheus.clone();
        options.url = url.unwrap_or(options.url);
        options.selector = matchers.unwrap_or(options.selector);
        (!options.url.is_empty()).then_some(options)
    }

    /// How the servers are reached that gaunt asks or sends to, besides targets: Alertmanager, store, Prometheus and peers.
    pub fn server_accesses(&self) -> Vec<ServerAccess> {
        let alerting = self.alerting.iter().map(|alerting| &alerting.access);
        let others = [&self.peers.access, &self.store.access, &self.prometheus.access];
        alerting.chain(others).cloned().collect()
    }

    /// What is scraped, and how.
    pub fn scrape_plan(&self) -> ScrapePlan {
        let options = ScrapeOptions {
            period: self.period,
            timeout: self.timeout.unwrap_or_else(|| timeout_for(self.period)),
            max_body: self.max_body,
            limits: self.limits,
            removal: self.removal,
        };
        ScrapePlan { options, groups: self.groups.clone() }
    }

    /// Overrides the CA certificates by a flag: of the aggregator, and of the targets without a group.
    pub fn trust_authorities(&mut self, ca_file: Option<PathBuf>) {
        if let Some(ca_file) = ca_file {
            if let Some(group) = self.groups.first_mut() {
                group.access.tls.ca_file = Some(ca_file.clone());
            }
            self.ca_file = Some(ca_file);
        }
    }

    /// Overrides the period by a flag. A configured timeout that no longer fits is replaced by the default.
    pub fn set_period(&mut self, period: Duration) {
        self.period = period;
        self.engine.period = period;
        self.engine.slots = storage::history_slots(self.history, period);
        self.timeout = self.timeout.filter(|timeout| *timeout <= period);
    }
}

/// A path from the file, relative to the file's directory; none if empty.
fn resolve_path(settings: &Path, path: &str) -> Option<PathBuf> {
    let folder = settings.parent().unwrap_or(Path::new(""));
    (!path.is_empty()).then(|| folder.join(path))
}

fn read_file(path: &Path) -> io::Result<String> {
    use io::Read as _;

    let mut text = String::new();
    fs::File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("it is larger than {MAX_FILE} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
