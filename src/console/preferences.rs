//! Saved preferences of the user: palette and columns, in a small file in the user's state directory.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// Maximum file size that is read: many times the columns of every subject.
const MAX_BYTES: u64 = 64 << 10;

/// The user's preferences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ConsolePreferences {
    /// Name of the palette; none for the palette of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) theme: Option<String>,
    /// Columns of each subject, in the syntax of a filter.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) columns: BTreeMap<String, String>,
    /// Commands that open saved rows, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) saved: BTreeMap<String, String>,
}

/// Maximum number of saved rows.
pub(crate) const MAX_SAVED: usize = 64;

/// Returns the path of the preferences, in the user's state directory; none without a home directory.
pub(crate) fn preferences_path(environment: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let absolute = |name: &str| environment(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state =
        absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("gaunt/console.json"))
}

/// Loads the preferences; a missing or invalid file counts as no preferences.
pub(crate) fn load_preferences(path: &Path) -> ConsolePreferences {
    let read = || -> io::Result<ConsolePreferences> {
        if fs::metadata(path)?.len() > MAX_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    };
    read().unwrap_or_default()
}

/// Saves the preferences atomically.
pub(crate) fn save_preferences(path: &Path, preferences: &ConsolePreferences) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec_pretty(preferences)?)?;
    fs::rename(&new, path)
}

/// Writes a text to a file that must not exist yet.
pub(crate) fn write_new_file(path: &Path, text: &str) -> io::Result<()> {
    use io::Write as _;

    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_are_loaded_back_and_damaged_files_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_string_lossy().into_owned();
        let path = preferences_path(|name| (name == "HOME").then(|| home.clone())).unwrap();
        assert!(path.ends_with(".local/state/gaunt/console.json"));
        assert_eq!(load_preferences(&path), ConsolePreferences::default());
        let preferences = ConsolePreferences {
            theme: Some("light".into()),
            columns: BTreeMap::from([("gpus".to_owned(), "node,gpu,power".to_owned())]),
            saved: BTreeMap::from([("hot".to_owned(), "gpus temperature>80".to_owned())]),
        };
        save_preferences(&path, &preferences).unwrap();
        assert_eq!(load_preferences(&path), preferences);
        fs::write(&path, "{ torn").unwrap();
        assert_eq!(load_preferences(&path), ConsolePreferences::default());
        assert_eq!(preferences_path(|_| None), None);
        assert_eq!(preferences_path(|name| (name == "HOME").then(|| "relative".into())), None);
    }

    #[test]
    fn existing_file_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        write_new_file(&path, "a\n").unwrap();
        assert_eq!(write_new_file(&path, "b\n").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\n");
    }
}
