//! What the settings file says of the site's own files and of recording.

use std::{path::Path, time::Duration};

use serde::Deserialize;

use super::file::{File, Size, Span};
use crate::{record, site};

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
    max_age: Option<Span>,
}

impl Record {
    /// None unless a folder is named.
    pub(super) fn options(&self, settings: &Path) -> Option<record::Options> {
        let folder = settings.parent().unwrap_or(Path::new("")).join(&self.folder);
        (!self.folder.is_empty()).then(|| record::Options {
            folder,
            max_size: self.max_size.map_or(record::MAX_SIZE, |size| size.bytes() as u64),
            max_age: self.max_age.map_or(record::MAX_AGE, Span::value),
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
