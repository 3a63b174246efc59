//! Storage settings: site files, history and recording.

use std::{path::Path, time::Duration};

use serde::{Deserialize, Deserializer, de::Error as _};

use super::setting_values::SizeSetting;
use crate::cli::parse_age;
use gaunt_engine::record;

/// Default history length.
const SPAN: Duration = Duration::from_mins(15);

/// The most points of one series: an hour and more at one a second.
const MAX_SLOTS: usize = 4_000;

/// Site files, relative to the settings file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SiteFilesSection {
    files: Vec<String>,
}

/// Recording settings.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RecordSection {
    folder: String,
    max_size: Option<SizeSetting>,
    #[serde(deserialize_with = "deserialize_age")]
    max_age: Option<Duration>,
}

/// In-memory history settings.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HistorySection {
    #[serde(deserialize_with = "deserialize_age")]
    span: Option<Duration>,
    max_size: Option<SizeSetting>,
    pub(super) every_metric: bool,
}

impl HistorySection {
    /// History length, within the memory limit.
    pub(super) fn history_span(&self) -> Duration {
        self.span.unwrap_or(SPAN)
    }

    /// Memory limit in bytes.
    pub(super) fn max_bytes(&self) -> usize {
        self.max_size.map_or(gaunt_engine::HISTORY_BYTES, SizeSetting::to_bytes)
    }
}

/// Number of points of a history of this length, one per period.
pub(super) fn history_slots(span: Duration, period: Duration) -> usize {
    let slots = span.as_millis() / period.as_millis().max(1);
    usize::try_from(slots).unwrap_or(MAX_SLOTS).clamp(1, MAX_SLOTS)
}

fn deserialize_age<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    parse_age(&text).map(Some).map_err(D::Error::custom)
}

impl RecordSection {
    /// Recording options; none unless a directory is configured.
    pub(super) fn recording_options(&self, settings: &Path) -> Option<record::RecordOptions> {
        let folder = settings.parent().unwrap_or(Path::new("")).join(&self.folder);
        (!self.folder.is_empty()).then(|| record::RecordOptions {
            folder,
            max_size: self.max_size.map_or(record::MAX_SIZE, |size| size.to_bytes() as u64),
            max_age: self.max_age.unwrap_or(record::MAX_AGE),
            period: Duration::default(),
        })
    }
}

/// Site files: those of the sections `topology` and `jobs`.
pub(super) fn site_options(
    topology: &SiteFilesSection,
    jobs: &SiteFilesSection,
    settings: &Path,
) -> gaunt_site::SiteOptions {
    let folder = settings.parent().unwrap_or(Path::new(""));
    let paths = |section: &SiteFilesSection| {
        section.files.iter().take(gaunt_site::MAX_FILES).map(|file| folder.join(file)).collect()
    };
    gaunt_site::SiteOptions { topology: paths(topology), jobs: paths(jobs) }
}
