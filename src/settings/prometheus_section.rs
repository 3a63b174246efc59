//! Prometheus settings: the server that already scrapes the exporters, and how it is queried.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;

use super::{
    access_section::{self, BasicAuthSection, TlsSection},
    setting_values::{SizeSetting, SpanSetting},
};
use gaunt_series::{
    MAX_BODY, MAX_SAMPLES, QueryErrorSteps, REFRESH, SeriesOptions, TENANT_HEADER, TIMEOUT,
};

/// The limits of the time between two refreshes.
const REFRESHES: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_mins(2);

/// The longest deadline of one query: servers give up earlier.
const LONGEST_TIMEOUT: Duration = Duration::from_mins(10);

/// The limits of the largest answer to one query, in bytes.
const BODIES: std::ops::RangeInclusive<usize> = 1 << 20..=1 << 30;

/// A Prometheus-compatible server.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PrometheusSection {
    url: String,
    #[serde(rename = "match")]
    matchers: String,
    tenant: String,
    every: SpanSetting,
    timeout: SpanSetting,
    max_body: SizeSetting,
    max_samples: u64,
    tls: TlsSection,
    bearer_file: Option<PathBuf>,
    basic: Option<BasicAuthSection>,
}

impl Default for PrometheusSection {
    fn default() -> Self {
        Self {
            url: String::new(),
            matchers: String::new(),
            tenant: String::new(),
            every: SpanSetting::from_seconds(REFRESH.as_secs()),
            timeout: SpanSetting::from_seconds(TIMEOUT.as_secs()),
            max_body: SizeSetting::new(MAX_BODY as u64),
            max_samples: MAX_SAMPLES,
            tls: TlsSection::default(),
            bearer_file: None,
            basic: None,
        }
    }
}

impl PrometheusSection {
    /// Checks across keys.
    pub(super) fn check_section(&self) -> Result<(), String> {
        let (bearer, basic) = (self.bearer_file.as_ref(), self.basic.as_ref());
        access_section::check_access("prometheus", &self.tls, bearer, basic)?;
        if !self.url.is_empty() {
            gaunt_series::check_server_url(&self.url)
                .map_err(|error| format!("prometheus.url: {error}"))?;
        }
        if let Some(name) = self.tls.server_name() {
            return Err(format!(
                "prometheus has tls.server_name; write {name:?} in prometheus.url instead"
            ));
        }
        let every = self.every.to_duration();
        if !REFRESHES.contains(&every) {
            return Err(format!("prometheus.every is {every:?}; allowed are 1s to 2m"));
        }
        let timeout = self.timeout.to_duration();
        if timeout > LONGEST_TIMEOUT {
            return Err(format!("prometheus.timeout is {timeout:?}; the maximum is 10m"));
        }
        if !BODIES.contains(&self.max_body.to_bytes()) {
            return Err("prometheus.max_body is out of range; allowed are 1MiB to 1GiB".to_owned());
        }
        if self.max_samples == 0 {
            return Err("prometheus.max_samples is 0; give a number above 0".to_owned());
        }
        Ok(())
    }

    /// The time between two refreshes.
    pub(super) fn refresh(&self) -> Duration {
        self.every.to_duration()
    }

    /// Options of the server; the URL is empty if none is configured.
    pub(super) fn series_options(self, settings: &Path) -> SeriesOptions {
        let folder = settings.parent().unwrap_or(Path::new(""));
        SeriesOptions {
            url: self.url,
            selector: self.matchers,
            tenant: (!self.tenant.is_empty()).then(|| (TENANT_HEADER.to_owned(), self.tenant)),
            access: access_section::of(self.tls, self.bearer_file, self.basic, folder),
            timeout: self.timeout.to_duration(),
            max_body: self.max_body.to_bytes(),
            max_samples: self.max_samples,
            next_steps: QueryErrorSteps::PROMETHEUS,
        }
    }
}
