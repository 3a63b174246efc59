//! What the settings file says of the site's own files, of history and of recording.

use std::{path::Path, time::Duration};

use serde::{Deserialize, Deserializer, de::Error as _};

use super::file::{File, Size};
use crate::{cli::parse_age, owner, record, site};

/// How far history goes back unless told otherwise.
const SPAN: Duration = Duration::from_mins(15);

/// The most points of one series: an hour and more at one a second.
const MAX_SLOTS: usize = 4_000;

/// Files that are read besides targets, relative to the settings file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Files {
    files: Vec<String>,
}

/// Whether and where everything is recorded.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Record {
    folder: String,
    max_size: Option<Size>,
    #[serde(deserialize_with = "age")]
    max_age: Option<Duration>,
}

/// How much of the past is kept in memory.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct History {
    #[serde(deserialize_with = "age")]
    span: Option<Duration>,
    max_size: Option<Size>,
    pub(super) every_metric: bool,
}

impl History {
    /// How far back it goes, if there is room.
    pub(super) fn span(&self) -> Duration {
        self.span.unwrap_or(SPAN)
    }

    /// The most bytes of it.
    pub(super) fn bytes(&self) -> usize {
        self.max_size.map_or(owner::HISTORY_BYTES, Size::bytes)
    }
}

/// The points of a history that goes back so far, one a period.
pub(super) fn slots(span: Duration, period: Duration) -> usize {
    let slots = span.as_millis() / period.as_millis().max(1);
    usize::try_from(slots).unwrap_or(MAX_SLOTS).clamp(1, MAX_SLOTS)
}

fn age<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    parse_age(&text).map(Some).map_err(D::Error::custom)
}

impl Record {
    /// None unless a folder is named.
    pub(super) fn options(&self, settings: &Path) -> Option<record::Options> {
        let folder = settings.parent().unwrap_or(Path::new("")).join(&self.folder);
        (!self.folder.is_empty()).then(|| record::Options {
            folder,
            max_size: self.max_size.map_or(record::MAX_SIZE, |size| size.bytes() as u64),
            max_age: self.max_age.unwrap_or(record::MAX_AGE),
            period: Duration::default(),
        })
    }
}

impl File {
    /// The site's own files.
    pub(super) fn site(&self, settings: &Path) -> site::Options {
        let folder = settings.parent().unwrap_or(Path::new(""));
        let paths = |files: &Files| {
            files.files.iter().take(site::MAX_FILES).map(|file| folder.join(file)).collect()
        };
        site::Options { topology: paths(&self.topology), jobs: paths(&self.jobs) }
    }
}
