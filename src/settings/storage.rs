//! What the settings file says of the site's own files, of history and of recording.

use std::{path::Path, time::Duration};

use serde::{Deserialize, Deserializer, de::Error as _};

use super::settings_file::{SettingsFile, SizeSetting};
use crate::{cli::parse_age, engine, record, site};

/// How far history goes back unless told otherwise.
const SPAN: Duration = Duration::from_mins(15);

/// The most points of one series: an hour and more at one a second.
const MAX_SLOTS: usize = 4_000;

/// Files that are read besides targets, relative to the settings file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SiteFilesSection {
    files: Vec<String>,
}

/// Whether and where everything is recorded.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RecordSection {
    folder: String,
    max_size: Option<SizeSetting>,
    #[serde(deserialize_with = "deserialize_age")]
    max_age: Option<Duration>,
}

/// How much of the past is kept in memory.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HistorySection {
    #[serde(deserialize_with = "deserialize_age")]
    span: Option<Duration>,
    max_size: Option<SizeSetting>,
    pub(super) every_metric: bool,
}

impl HistorySection {
    /// How far back it goes, if there is room.
    pub(super) fn history_span(&self) -> Duration {
        self.span.unwrap_or(SPAN)
    }

    /// The most bytes of it.
    pub(super) fn max_bytes(&self) -> usize {
        self.max_size.map_or(engine::HISTORY_BYTES, SizeSetting::to_bytes)
    }
}

/// The points of a history that goes back so far, one a period.
pub(super) fn history_slots(span: Duration, period: Duration) -> usize {
    let slots = span.as_millis() / period.as_millis().max(1);
    usize::try_from(slots).unwrap_or(MAX_SLOTS).clamp(1, MAX_SLOTS)
}

fn deserialize_age<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    parse_age(&text).map(Some).map_err(D::Error::custom)
}

impl RecordSection {
    /// None unless a folder is named.
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

impl SettingsFile {
    /// The site's own files.
    pub(super) fn site_options(&self, settings: &Path) -> site::SiteOptions {
        let folder = settings.parent().unwrap_or(Path::new(""));
        let paths = |files: &SiteFilesSection| {
            files.files.iter().take(site::MAX_FILES).map(|file| folder.join(file)).collect()
        };
        site::SiteOptions { topology: paths(&self.topology), jobs: paths(&self.jobs) }
    }
}
