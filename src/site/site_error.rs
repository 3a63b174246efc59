//! What is wrong with a file of the site: which file, which line, what stands there, and what to do.

use std::{
    io,
    path::{Path, PathBuf},
};

use gaunt_schema::plain_error;

/// The longest piece of a file that is quoted in a message, in characters.
const QUOTED: usize = 60;

/// Why a file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// It cannot be read.
    #[error("cannot read {}: {why}; check the path, or remove it from the settings", path.display(), why = plain_error::io(error))]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It is larger than any such file has to be.
    #[error("{} is larger than {limit} bytes; check that it is the right file", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// The limit.
        limit: u64,
    },
    /// Something in it cannot be meant.
    #[error("{}:{line}: {what}", path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What stands there, and what to write instead.
        what: String,
    },
    /// Nobody knows how to read it.
    #[error(
        "{}: what is in it is not known; give Slurm's topology.conf or topology.yaml, the output of `ibnetdiscover`, \
         a folder of NODE.json written by `lldpcli -f json show neighbors`, or gaunt's own .toml",
        .0.display()
    )]
    Unknown(PathBuf),
}

/// What is wrong in a text, before it is known which file it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SiteFault {
    /// The line, from 1.
    pub(super) line: usize,
    /// What stands there, and what to write instead.
    pub(super) what: String,
}

impl SiteFault {
    pub(super) fn at_line(line: usize, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }

    /// The fault of a text that is no JSON, with what to do.
    pub(super) fn json(error: &serde_json::Error, next: &str) -> Self {
        let what = plain_error::json_without_place(error);
        let column = error.column();
        Self::at_line(error.line().max(1), format!("{what} (column {column}); {next}"))
    }

    /// The fault at a byte of a text.
    pub(super) fn at_byte(text: &str, at: usize, what: impl Into<String>) -> Self {
        let before = text.as_bytes().iter().take(at);
        Self::at_line(before.filter(|byte| **byte == b'\n').count() + 1, what)
    }

    pub(super) fn into_site_error(self, path: &Path) -> SiteError {
        SiteError::Content { path: path.to_owned(), line: self.line, what: self.what }
    }
}

/// A piece of a file as it may stand in a message.
pub(super) fn quote_excerpt(text: &str) -> String {
    let safe = gaunt_schema::SanitizedText::new(text.trim());
    match safe.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{:?}…", &safe[..end]),
        None => format!("{:?}", safe.as_str()),
    }
}
