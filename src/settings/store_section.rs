//! Store settings: where verdicts are written, how often, and how much waits for a store that is away.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use gaunt_schema::SanitizedText;
use serde::Deserialize;

use super::{
    access_section::{self, BasicAuthSection, TlsSection},
    setting_values::{SizeSetting, SpanSetting},
};
use gaunt_series::TENANT_HEADER;
use gaunt_store::{BACKLOG_BYTES, StoreLevel, StoreOptions};

/// The shortest and the longest time between two steps: a series must not be older than the 5 minutes for which
/// Prometheus looks back.
const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_mins(2);

/// The smallest backlog, in bytes.
const MIN_BACKLOG: usize = 1 << 20;

/// What is written.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LevelSetting {
    #[default]
    Verdicts,
    Screens,
}

/// A store that receives remote write.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct StoreSection {
    url: String,
    query_url: String,
    level: LevelSetting,
    every: SpanSetting,
    backlog: SizeSetting,
    replica_label: String,
    replica: String,
    tenant: String,
    tenant_header: String,
    tls: TlsSection,
    bearer_file: Option<PathBuf>,
    basic: Option<BasicAuthSection>,
}

impl Default for StoreSection {
    fn default() -> Self {
        Self {
            url: String::new(),
            query_url: String::new(),
            level: LevelSetting::default(),
            every: SpanSetting::from_seconds(gaunt_store::INTERVAL.as_secs()),
            backlog: SizeSetting::new(BACKLOG_BYTES),
            replica_label: String::new(),
            replica: String::new(),
            tenant: String::new(),
            tenant_header: TENANT_HEADER.to_owned(),
            tls: TlsSection::default(),
            bearer_file: None,
            basic: None,
        }
    }
}

impl StoreSection {
    /// Checks across keys.
    pub(super) fn check_section(&self) -> Result<(), String> {
        let (bearer, basic) = (self.bearer_file.as_ref(), self.basic.as_ref());
        access_section::check_access("store", &self.tls, bearer, basic)?;
        if !self.url.is_empty() {
            gaunt_store::check_store_url(&self.url)
                .map_err(|error| format!("store.url: {error}"))?;
        }
        if let Some(name) = self.tls.server_name() {
            return Err(format!("store has tls.server_name; write {name:?} in store.url instead"));
        }
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if self.tenant_header.is_empty() || !self.tenant_header.bytes().all(is_token) {
            return Err(format!(
                "store.tenant_header is {:?}, which is not the name of a header; use letters, digits \
                 and -",
                self.tenant_header
            ));
        }
        if !self.tenant.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            return Err(
                "store.tenant has characters that a header cannot have; use ASCII".to_owned()
            );
        }
        let every = self.every.to_duration();
        if !INTERVALS.contains(&every) {
            return Err(format!("store.every is {every:?}; allowed are 1s to 2m"));
        }
        if self.backlog.to_bytes() < MIN_BACKLOG {
            return Err("store.backlog is below 1MiB; raise it".to_owned());
        }
        let is_label = |name: &str| {
            let mut bytes = name.bytes();
            bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
                && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        match (self.replica_label.as_str(), self.replica.as_str()) {
            ("", "") => Ok(()),
            ("", _) => Err("store.replica needs store.replica_label; set both".to_owned()),
            (_, "") => Err("store.replica_label needs store.replica; set both".to_owned()),
            (label, _) if is_label(label) => Ok(()),
            (label, _) => Err(format!(
                "store.replica_label is {label:?}, which is not a label name; use letters, digits and _"
            )),
        }
    }

    /// Store options; the URL is empty if no store is configured.
    pub(super) fn store_options(self, settings: &Path, cluster: &str) -> StoreOptions {
        let folder = settings.parent().unwrap_or(Path::new(""));
        let tenant = (!self.tenant.is_empty()).then_some((self.tenant_header, self.tenant));
        StoreOptions {
            url: self.url,
            query_url: Some(self.query_url).filter(|url| !url.is_empty()),
            tenant,
            level: match self.level {
                LevelSetting::Verdicts => StoreLevel::Verdicts,
                LevelSetting::Screens => StoreLevel::Screens,
            },
            interval: self.every.to_duration(),
            replica_label: Some(self.replica_label).filter(|label| !label.is_empty()),
            replica: self.replica,
            cluster: SanitizedText::new(cluster),
            backlog_folder: None,
            backlog_bytes: self.backlog.to_bytes() as u64,
            access: access_section::of(self.tls, self.bearer_file, self.basic, folder),
        }
    }
}
