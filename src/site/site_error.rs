//! Site file errors: the file, the line, the invalid text, and the next step.

use std::{
    io,
    path::{Path, PathBuf},
};

use gaunt_schema::plain_error;

/// The longest piece of a file that is quoted in a message, in characters.
const QUOTED: usize = 60;

/// Why a file is rejected.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// The file cannot be read.
    #[error("cannot read {}: {why}; check the path, or remove it from the settings", path.display(), why = plain_error::io(error))]
    Read {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file exceeds the size limit.
    #[error("{} is larger than {limit} bytes; check that it is the right file", path.display())]
    TooLarge {
        /// Its path.
        path: PathBuf,
        /// The limit.
        limit: u64,
    },
    /// The content is invalid.
    #[error("{}:{line}: {what}", path.display())]
    Content {
        /// Its path.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The invalid text, and what to write instead.
        what: String,
    },
    /// The format is unknown.
    #[error(
        "{}: unknown format; give Slurm's topology.conf or topology.yaml, the output of \
         `ibnetdiscover`, a folder of NODE.json written by `lldpcli -f json show neighbors`, or \
         gaunt's own .toml",
        .0.display()
    )]
    Unknown(PathBuf),
}

/// An error in a text whose file is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SiteFault {
    /// The line, from 1.
    pub(super) line: usize,
    /// The invalid text, and what to write instead.
    pub(super) what: String,
}

impl SiteFault {
    pub(super) fn at_line(line: usize, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }

    /// Error of a text that is not JSON, with the next step.
    pub(super) fn json(error: &serde_json::Error, next: &str) -> Self {
        let what = plain_error::json_without_place(error);
        let column = error.column();
        Self::at_line(error.line().max(1), format!("{what} (column {column}); {next}"))
    }

    /// The error at a byte of a text.
    pub(super) fn at_byte(text: &str, offset: usize, what: impl Into<String>) -> Self {
        let before = text.as_bytes().iter().take(offset);
        Self::at_line(before.filter(|byte| **byte == b'\n').count() + 1, what)
    }

    pub(super) fn into_site_error(self, path: &Path) -> SiteError {
        SiteError::Content { path: path.to_owned(), line: self.line, what: self.what }
    }
}

/// An excerpt of a file, safe for a message.
pub(super) fn quote_excerpt(text: &str) -> String {
    let safe = gaunt_schema::SanitizedText::new(text.trim());
    match safe.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{:?}…", &safe[..end]),
        None => format!("{:?}", safe.as_str()),
    }
}
