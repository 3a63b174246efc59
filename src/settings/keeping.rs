//! What the settings file says of the site's own files and of recording.

use std::{path::Path, time::Duration};

use serde::{Deserialize, Deserializer, de::Error as _};

use super::file::{File, Size};
use crate::{cli::parse_age, record, site};

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
