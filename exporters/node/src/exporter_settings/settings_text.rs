//! The text of a settings file, and what is wrong in it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use gaunt_schema::plain_error;
use serde::de::DeserializeOwned;

use super::ExporterSettingsError;
use crate::{
    thread_read::{READ_DEADLINE, read_on_thread},
    toml_faults::read_toml,
};

/// A file with the errors found so far; without a file, only the arguments can have errors.
#[derive(Debug, Default)]
pub(super) struct SettingsText {
    path: PathBuf,
    text: String,
    /// Each error with its line, 0 if it is not in the file.
    errors: Vec<(usize, String)>,
}

impl SettingsText {
    /// Reads the file.
    pub(super) fn read_file(path: &Path) -> Result<Self, ExporterSettingsError> {
        let file = path.to_path_buf();
        let text = read_on_thread(READ_DEADLINE, move || fs::read_to_string(file))
            .flatten()
            .map_err(|why| ExporterSettingsError::Read { path: path.to_path_buf(), why })?;
        Ok(Self { path: path.to_path_buf(), text, errors: Vec::new() })
    }

    /// Parses the text without the entries that have errors; none if the syntax is wrong.
    pub(super) fn parse<T: DeserializeOwned>(&mut self) -> Option<T> {
        let (settings, faults) = read_toml(&self.text);
        let has_syntax = toml::from_str::<toml::Table>(&self.text).is_ok();
        for fault in faults {
            let offset = fault.span().map_or(0, |span| span.start);
            // On one line, as the log is.
            let message = plain_error::document(fault.message(), "TOML", has_syntax);
            let what = match plain_error::toml_key(&self.text, offset) {
                Some(key) if !message.contains(key) => format!("{key}: {message}"),
                _ => message,
            };
            let before = self.text.get(..offset).unwrap_or_default();
            self.errors.push((before.matches('\n').count() + 1, what));
        }
        settings
    }

    /// Adds an error of a key without a section, which an argument may have set instead of the file.
    pub(super) fn add_error(&mut self, key: &str, is_argument: bool, what: String) {
        let is_key = |line: &str| line.split_once('=').is_some_and(|(name, _)| name.trim() == key);
        let line = self.text.lines().position(is_key).filter(|_| !is_argument);
        self.errors.push((line.map_or(0, |index| index + 1), what));
    }

    /// All errors, in the order of their lines.
    pub(super) fn into_result(mut self) -> Result<(), ExporterSettingsError> {
        if self.errors.is_empty() {
            return Ok(());
        }
        self.errors.sort_by_key(|(line, _)| *line);
        let path = self.path.display();
        let errors = self.errors.iter().map(|(line, what)| match line {
            0 => what.clone(),
            line => format!("{path}:{line}: {what}"),
        });
        Err(ExporterSettingsError::Content { errors: errors.collect() })
    }
}
