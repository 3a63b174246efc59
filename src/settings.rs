//! Settings: reads the TOML file, refuses what cannot be meant, and fills each room's own options.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use gaunt_schema::SanitizedText;

use crate::{
    alert,
    command::report_command::GpuPrices,
    console, engine,
    gather::{ScrapeOptions, ScrapePlan, ScrapeQuotas, TargetGroup, timeout_for},
    record, site,
};

mod access_section;
mod alerting;
mod gather_section;
mod settings_file;
mod storage;

use settings_file::SettingsFile;

/// The largest settings file: a list of 20,000 targets fits many times.
const MAX_FILE: u64 = 16 << 20;

/// The address of the aggregator unless told otherwise: this machine only.
pub const LISTEN: &str = "127.0.0.1:9771";

/// What is wrong with a settings file.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// It cannot be read.
    #[error("cannot read settings file {}: {error}; check the path given with --config", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Something in it is not known or not possible.
    #[error("{}:{line}: {what}", path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong there, what is allowed, and the next step.
        what: String,
    },
}

/// All settings, with the usual values where nothing is said.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the owner is to know and judge by.
    pub engine: engine::EngineOptions,
    /// The time between two scrapes of one target.
    pub period: Duration,
    /// The time for one scrape; none for what suits the period.
    pub timeout: Option<Duration>,
    /// The largest page, in bytes.
    pub max_body: usize,
    /// Where `gaunt serve` listens.
    pub listen: SocketAddr,
    /// The names under which `gaunt serve` is asked, beside its addresses and the names of this machine.
    pub names: Vec<String>,
    /// Where findings, acknowledgements and counters outlive a restart, if they do.
    pub state_folder: Option<PathBuf>,
    /// The file of the token that lets its holder acknowledge findings, if anybody may.
    pub token_file: Option<PathBuf>,
    /// The aggregator that is asked where no flag and no environment names one.
    pub aggregator: Option<String>,
    /// How the console behaves.
    pub console: console::ConsoleOptions,
    /// What targets may use.
    pub limits: ScrapeQuotas,
    /// The share of a source's targets that may vanish at once.
    pub removal: f64,
    /// Who names targets, and how they are reached; the first is what the section itself says.
    pub groups: Vec<TargetGroup>,
    /// Files that say how the cluster is wired, and which jobs run.
    pub site: site::SiteOptions,
    /// How far history goes back.
    pub history: Duration,
    /// Where `gaunt serve` records everything, if it does; the period is filled in by [`Self::recording_options`].
    pub recording: Option<record::RecordOptions>,
    /// Where findings are posted, if they are.
    pub alerting: Option<alert::AlertOptions>,
    /// What boards cost.
    pub prices: GpuPrices,
    /// CO2 of a kilowatt-hour in kilograms, if it is known.
    pub co2_kg_per_kwh: Option<f64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::of(SettingsFile::default(), Path::new(""))
    }
}

impl Settings {
    /// Reads a file; without one, the usual values.
    pub fn load_file(path: Option<&Path>) -> Result<Self, SettingsError> {
        let Some(path) = path else { return Ok(Self::default()) };
        let text = read_file(path)
            .map_err(|error| SettingsError::Read { path: path.to_path_buf(), error })?;
        Self::parse(&text, path)
    }

    /// Reads the text of a file that lies at `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, SettingsError> {
        let file = SettingsFile::parse(text).map_err(|fault| SettingsError::Content {
            path: path.to_path_buf(),
            line: fault.line_number(text),
            what: fault.what,
        })?;
        Ok(Self::of(file, path))
    }

    fn of(file: SettingsFile, path: &Path) -> Self {
        let (period, site) = (file.gather.period.to_duration(), file.site_options(path));
        Self {
            engine: engine::EngineOptions {
                cluster: SanitizedText::new(&file.cluster.name),
                period,
                slots: storage::history_slots(file.history.history_span(), period),
                history_bytes: file.history.max_bytes(),
                every_past: file.history.every_metric,
                price_per_gpu_hour: file
                    .cluster
                    .price_per_gpu_hour
                    .map(settings_file::PriceSetting::to_amount),
                currency: SanitizedText::new(&file.cluster.currency),
                thresholds: Box::new(file.judge),
                usage: engine::USAGE,
                alerts: None,
                says_usual: false,
            },
            period,
            timeout: file.gather.timeout.as_ref().map(|timeout| timeout.get_ref().to_duration()),
            max_body: file.gather.max_body.get_ref().to_bytes(),
            listen: file.serve.listen.to_socket_address(),
            state_folder: resolve_path(path, &file.serve.state_folder),
            token_file: resolve_path(path, &file.serve.token_file),
            names: file.serve.names,
            aggregator: Some(file.console.aggregator.clone()).filter(|url| !url.is_empty()),
            console: file.console.console_options(),
            limits: file.gather.scrape_quotas(),
            removal: file.gather.removal_share(),
            groups: file.gather.target_groups(path),
            site,
            history: file.history.history_span(),
            recording: file.record.recording_options(path),
            alerting: file.alertmanager.into_inner().alert_options(path, &file.cluster.name),
            prices: file.report.gpu_prices(&file.cluster),
            co2_kg_per_kwh: file.report.co2_kg_per_kwh(),
        }
    }

    /// Where everything is recorded, if it is.
    pub fn recording_options(&self) -> Option<record::RecordOptions> {
        let keep = self.recording.clone()?;
        Some(record::RecordOptions { period: self.period, ..keep })
    }

    /// What is gathered, and how.
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

    /// Another period, as a flag gives it. A timeout of the file that no longer fits gives way to the usual one.
    pub fn set_period(&mut self, period: Duration) {
        self.period = period;
        self.engine.period = period;
        self.engine.slots = storage::history_slots(self.history, period);
        self.timeout = self.timeout.filter(|timeout| *timeout <= period);
    }
}

/// A path of the file, relative to where that lies; none of an empty one.
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
