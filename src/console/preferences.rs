//! What the reader chose and finds again: colours and columns, in a small file of his own.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// The largest file that is read: columns of every subject fit many times.
const MAX_BYTES: u64 = 64 << 10;

/// The reader's choices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ConsolePreferences {
    /// The palette, by its word; none for that of the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) theme: Option<String>,
    /// The columns of a subject, as they are written in a filter.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) columns: BTreeMap<String, String>,
}

/// Where the choices are kept: with the other state of this user's programs; nowhere without a home.
pub(crate) fn preferences_path(environment: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let absolute = |name: &str| environment(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state =
        absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("gaunt/console.json"))
}

/// Reads the choices; what is not there or not understood is as if nothing was chosen.
pub(crate) fn load_preferences(path: &Path) -> ConsolePreferences {
    let read = || -> io::Result<ConsolePreferences> {
        if fs::metadata(path)?.len() > MAX_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    };
    read().unwrap_or_default()
}

/// Keeps the choices, as a whole or not at all.
pub(crate) fn save_preferences(path: &Path, kept: &ConsolePreferences) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec_pretty(kept)?)?;
    fs::rename(&new, path)
}

/// Writes a text into a file that must not be there yet.
pub(crate) fn write_new_file(path: &Path, text: &str) -> io::Result<()> {
    use io::Write as _;

    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_come_back_and_damage_is_no_choice() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_string_lossy().into_owned();
        let path = preferences_path(|name| (name == "HOME").then(|| home.clone())).unwrap();
        assert!(path.ends_with(".local/state/gaunt/console.json"));
        assert_eq!(load_preferences(&path), ConsolePreferences::default());
        let kept = ConsolePreferences {
            theme: Some("light".into()),
            columns: BTreeMap::from([("gpus".to_owned(), "node,gpu,power".to_owned())]),
        };
        save_preferences(&path, &kept).unwrap();
        assert_eq!(load_preferences(&path), kept);
        fs::write(&path, "{ torn").unwrap();
        assert_eq!(load_preferences(&path), ConsolePreferences::default());
        assert_eq!(preferences_path(|_| None), None);
        assert_eq!(preferences_path(|name| (name == "HOME").then(|| "relative".into())), None);
    }

    #[test]
    fn a_file_that_is_there_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        write_new_file(&path, "a\n").unwrap();
        assert_eq!(write_new_file(&path, "b\n").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\n");
    }
}
