//! The user's own file: contexts, key bindings, aliases, columns, theme, notifications and plug-in keys.
//!
//! It is read once, when the console opens. Its faults never stop the console: each is named, and the rest applies.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::{
    display_units::DisplayUnits,
    key_press::KeyPress,
    theme::{CustomColours, Palette},
};

mod config_parser;
pub(crate) mod plugin_key;
mod theme_file;
mod time_zone;

use plugin_key::PluginKey;
pub(crate) use time_zone::DisplayZone;

/// The largest file that is read: many times a file with every kind of entry.
const MAX_BYTES: u64 = 256 << 10;

/// Maximum number of entries of each kind.
const MAX_ENTRIES: usize = 64;

/// What the user's file says; empty without a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct UserConfig {
    /// Its path, if there is a file.
    pub(crate) path: Option<PathBuf>,
    /// Aggregators by name, for `:ctx`.
    pub(crate) contexts: BTreeMap<String, ContextAddress>,
    /// Commands by their short names.
    pub(crate) aliases: BTreeMap<String, String>,
    /// Keys that run a command.
    pub(crate) bindings: Vec<UserBinding>,
    /// Columns of each subject, in the syntax of a filter.
    pub(crate) columns: BTreeMap<String, String>,
    /// The theme.
    pub(crate) theme: Option<ThemeChoice>,
    /// The time zone of the times of day.
    pub(crate) zone: DisplayZone,
    /// The units of the screens.
    pub(crate) units: DisplayUnits,
    /// Whether a new critical finding rings the bell; on unless set.
    pub(crate) silent: bool,
    /// How the terminal is told about a new critical finding.
    pub(crate) notification: NotificationForm,
    /// Keys that run a program.
    pub(crate) plugins: Vec<PluginKey>,
    /// What is wrong with the file, each with the next step.
    pub(crate) errors: Vec<String>,
}

/// An aggregator of the user's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextAddress {
    /// Its URL.
    pub aggregator: String,
    /// File with its token, to acknowledge findings.
    pub token_file: Option<PathBuf>,
}

/// A key that runs a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserBinding {
    /// The key.
    pub(crate) key: KeyPress,
    /// Its name as in the file.
    pub(crate) label: String,
    /// The command, as after `:`.
    pub(crate) command: String,
}

/// A theme of the user's file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ThemeChoice {
    /// The palette, or the one that the colours complete.
    pub(crate) palette: Palette,
    /// Colours of a theme file.
    pub(crate) colours: Option<CustomColours>,
}

/// How the terminal is told about a new critical finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NotificationForm {
    /// Not at all.
    #[default]
    Off,
    /// OSC 9: iTerm2, Windows Terminal, kitty, `WezTerm`.
    Osc9,
    /// OSC 777: urxvt, foot, VTE, Ghostty.
    Osc777,
}

/// Returns the path of the user's file; none without a home directory.
pub(crate) fn config_path(environment: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let absolute = |name: &str| environment(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(folder.join("gaunt/config.toml"))
}

impl UserConfig {
    /// Loads the file, if there is one. In restricted mode it is read too, but without programs and other aggregators.
    pub(crate) fn load(path: Option<PathBuf>, restricted: bool) -> Self {
        let Some(path) = path.filter(|path| path.exists()) else { return Self::default() };
        let mut config = match read_bounded(&path) {
            Ok(text) => Self::parse(&text, &path),
            Err(why) => Self { errors: vec![why], ..Self::default() },
        };
        if restricted {
            (config.plugins, config.contexts) = (Vec::new(), BTreeMap::new());
        }
        config.path = Some(path);
        config
    }

    /// Returns the first error, and the number of the others.
    pub(crate) fn describe_errors(&self) -> Option<String> {
        let first = self.errors.first()?;
        let path = self.path.as_deref().unwrap_or(Path::new("config.toml")).display();
        Some(match self.errors.len() {
            1 => format!("{path}: {first}"),
            count => format!("{path}: {first} (and {} more; ? lists them)", count - 1),
        })
    }

    /// Replaces an alias at the beginning of a command line.
    pub(crate) fn expand_alias(&self, line: &str) -> String {
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match self.aliases.get(word) {
            Some(command) => format!("{command} {rest}").trim().to_owned(),
            None => line.to_owned(),
        }
    }

    /// Returns the command of a key, if the user bound it.
    pub(crate) fn bound_command(&self, key: KeyPress) -> Option<&str> {
        let found = self.bindings.iter().find(|binding| binding.key == key)?;
        Some(&found.command)
    }

    /// Returns the number of the plug-in of a key.
    pub(crate) fn bound_plugin(&self, key: KeyPress) -> Option<usize> {
        self.plugins.iter().position(|plugin| plugin.key == key)
    }
}

/// Reads a text file of the user up to its size limit; returns what is wrong.
fn read_bounded(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot be read: {error}; check its permissions");
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > MAX_BYTES {
        return Err(format!("has {size} bytes; at most {MAX_BYTES} are read, so it is ignored"));
    }
    fs::read_to_string(path).map_err(failed)
}

#[cfg(test)]
mod tests;
