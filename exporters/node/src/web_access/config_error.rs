//! Why a web configuration is rejected: the file or the setting, the fault, the next step. No message has a secret.

use std::path::{Path, PathBuf};

/// Why a web configuration is rejected.
#[derive(Debug, thiserror::Error)]
pub enum WebConfigError {
    /// A file cannot be read.
    #[error("cannot read {}: {why}; check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error, in plain words.
        why: String,
    },
    /// The file is no web configuration.
    #[error("{}: {why}; see exporter-toolkit's web-configuration.md for the format", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A setting has a value that cannot be used.
    #[error("{}, {setting}: {why}", path.display())]
    Setting {
        /// The file.
        path: PathBuf,
        /// The setting, as it is written in the file.
        setting: String,
        /// What is wrong, and the next step.
        why: String,
    },
}

impl WebConfigError {
    /// The error of a setting.
    pub(super) fn of_setting(path: &Path, setting: &str, why: impl Into<String>) -> Self {
        Self::Setting { path: path.to_path_buf(), setting: setting.to_owned(), why: why.into() }
    }
}
