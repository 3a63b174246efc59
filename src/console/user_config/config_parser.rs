//! Parser of the user's file: each entry is checked on its own, so that one fault does not take the others with it.

use std::path::Path;

use toml::{Table, Value};

use super::{
    ContextAddress, MAX_ENTRIES, NotificationForm, UserBinding, UserConfig,
    plugin_key::{MAX_ARGUMENTS, PluginKey, unknown_placeholder},
    theme_file,
    time_zone::DisplayZone,
};
use crate::key_press::KeyPress;
use gaunt_api::{Filter, Subject};

/// Keys that keep their meaning, so that the console can always be left and its help be read.
const RESERVED: [KeyPress; 2] = [KeyPress::Ctrl('c'), KeyPress::Char('?')];

impl UserConfig {
    /// Parses the text of the file at `path`.
    pub(super) fn parse(text: &str, path: &Path) -> Self {
        let mut config = Self::default();
        let table: Table = match text.parse() {
            Ok(table) => table,
            Err(error) => {
                let error: toml::de::Error = error;
                let line = error.span().map_or(1, |span| {
                    1 + text.get(..span.start).map_or(0, |before| before.matches('\n').count())
                });
                let why = error.message().replace('\n', " ");
                config.errors.push(format!("line {line}: {why}; nothing of the file applies"));
                return config;
            }
        };
        for (key, value) in &table {
            if let Err(why) = config.apply_entry(key, value, path) {
                config.errors.push(why);
            }
        }
        config
    }

    fn apply_entry(&mut self, key: &str, value: &Value, path: &Path) -> Result<(), String> {
        match (key, value) {
            ("theme", Value::String(name)) => {
                self.theme = Some(theme_file::find_theme(name, path)?);
            }
            ("time", Value::String(zone)) => {
                self.zone = DisplayZone::parse(zone).ok_or_else(|| {
                    let why = "is not valid; use utc, local or an offset such as +02:00";
                    format!("time = {zone:?} {why}")
                })?;
            }
            ("bell", Value::Boolean(on)) => self.silent = !on,
            ("notify", Value::String(form)) => {
                self.notification = match form.as_str() {
                    "off" => NotificationForm::Off,
                    "osc9" => NotificationForm::Osc9,
                    "osc777" => NotificationForm::Osc777,
                    _ => {
                        let why = "is not valid; use off, osc9 or osc777";
                        return Err(format!("notify = {form:?} {why}"));
                    }
                };
            }
            ("contexts" | "aliases" | "bindings" | "columns" | "units", Value::Table(entries)) => {
                for (name, value) in entries.iter().take(MAX_ENTRIES) {
                    if let Err(why) = self.apply_named(key, name, value, path) {
                        self.errors.push(format!("{key}.{name}: {why}"));
                    }
                }
                check_count(key, entries.len())?;
            }
            ("keys", Value::Array(plugins)) => {
                for (number, value) in plugins.iter().take(MAX_ENTRIES).enumerate() {
                    match parse_plugin(value) {
                        Ok(plugin) => self.plugins.push(plugin),
                        Err(why) => self.errors.push(format!("keys, number {}: {why}", number + 1)),
                    }
                }
                check_count(key, plugins.len())?;
            }
            ("theme" | "notify" | "time", _) => return Err(format!("{key} is not a text")),
            ("bell", _) => return Err("bell is neither true nor false".to_owned()),
            ("contexts" | "aliases" | "bindings" | "columns" | "units", _) => {
                return Err(format!("{key} is not a section; write [{key}]"));
            }
            ("keys", _) => return Err("keys is not a list; write [[keys]]".to_owned()),
            _ => {
                let known = "theme, time, bell, notify, units, contexts, aliases, bindings, columns and keys";
                return Err(format!("{key} is not known; known are {known}"));
            }
        }
        Ok(())
    }

    /// Applies one entry of a section.
    fn apply_named(
        &mut self,
        section: &str,
        name: &str,
        value: &Value,
        path: &Path,
    ) -> Result<(), String> {
        if section == "contexts" {
            let address = parse_context(value, path)?;
            self.contexts.insert(name.to_owned(), address);
            return Ok(());
        }
        let Value::String(text) = value else { return Err("is not a text".to_owned()) };
        let text = text.trim().trim_start_matches(':').to_owned();
        match section {
            "aliases" => _ = self.aliases.insert(name.to_owned(), text),
            "units" => self.units.choose(name, &text)?,
            "columns" => {
                let subject = Subject::ALL.into_iter().find(|subject| subject.as_str() == name);
                let subject = subject.ok_or_else(|| {
                    let known = Subject::ALL.map(Subject::as_str).join(", ");
                    format!("is not a list; lists are {known}")
                })?;
                Filter::parse(subject, &format!("columns {text}"))
                    .map_err(|error| error.message.to_string())?;
                self.columns.insert(name.to_owned(), text);
            }
            _ => {
                let key = parse_key(name)?;
                self.bindings.push(UserBinding { key, label: name.to_owned(), command: text });
            }
        }
        Ok(())
    }
}

fn check_count(key: &str, count: usize) -> Result<(), String> {
    if count > MAX_ENTRIES {
        return Err(format!("{key} has {count} entries; the first {MAX_ENTRIES} apply"));
    }
    Ok(())
}

fn parse_key(name: &str) -> Result<KeyPress, String> {
    let key = KeyPress::parse(name)
        .ok_or("is not a key; write a character, Ctrl-X, or a name such as Enter, Up or PgDn")?;
    if RESERVED.contains(&key) {
        return Err("keeps its meaning; choose another key".to_owned());
    }
    Ok(key)
}

/// Parses `"URL"`, or `{ aggregator = "URL", token_file = "FILE" }`; a relative file is beside the user's file.
fn parse_context(value: &Value, path: &Path) -> Result<ContextAddress, String> {
    let address = |url: &str| match url.trim() {
        "" => Err("has no address; write a URL such as https://10.0.0.5:9771".to_owned()),
        url => Ok(url.to_owned()),
    };
    match value {
        Value::String(url) => Ok(ContextAddress { aggregator: address(url)?, token_file: None }),
        Value::Table(entries) => {
            let known = ["aggregator", "token_file"];
            if let Some(other) = entries.keys().find(|key| !known.contains(&key.as_str())) {
                return Err(format!("{other} is not known; known are aggregator and token_file"));
            }
            let text = |key: &str| entries.get(key).and_then(Value::as_str);
            let folder = path.parent().unwrap_or(Path::new(""));
            let token_file = text("token_file").map(|file| folder.join(file));
            let aggregator = address(text("aggregator").unwrap_or(""))?;
            Ok(ContextAddress { aggregator, token_file })
        }
        _ => Err("is not an address; write a URL such as https://10.0.0.5:9771".to_owned()),
    }
}

fn parse_plugin(value: &Value) -> Result<PluginKey, String> {
    let Value::Table(entries) = value else { return Err("is not a table".to_owned()) };
    let known = ["key", "name", "run", "input", "confirm", "background"];
    if let Some(other) = entries.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("{other} is not known; known are {}", known.join(", ")));
    }
    let text = |key: &str| entries.get(key).and_then(Value::as_str).map(str::to_owned);
    let flag = |key: &str, default| match entries.get(key) {
        None => Ok(default),
        Some(Value::Boolean(on)) => Ok(*on),
        Some(_) => Err(format!("{key} is neither true nor false")),
    };
    let label = text("key").ok_or("key is missing, such as key = \"S\"")?;
    let key = parse_key(&label).map_err(|why| format!("key {label} {why}"))?;
    let Some(Value::Array(run)) = entries.get("run") else {
        return Err("run is not a list of texts, such as run = [\"ssh\", \"{node}\"]".to_owned());
    };
    let run: Option<Vec<String>> =
        run.iter().map(|argument| argument.as_str().map(str::to_owned)).collect();
    let run = run.ok_or("run is not a list of texts, such as run = [\"ssh\", \"{node}\"]")?;
    if run.is_empty() || run[0].is_empty() || run[0].contains('{') || run.len() > MAX_ARGUMENTS {
        return Err(format!("run needs a program and at most {MAX_ARGUMENTS} texts"));
    }
    if let Some(name) = unknown_placeholder(&run) {
        let known = super::plugin_key::PLACEHOLDERS.map(|(name, _)| name).join(", ");
        return Err(format!("{{{name}}} in run is not known; known are {known}"));
    }
    let input = text("input");
    if run.iter().any(|argument| argument.contains("{input}")) && input.is_none() {
        return Err("run has {input}, but input = \"QUESTION\" is missing".to_owned());
    }
    Ok(PluginKey {
        key,
        name: text("name").unwrap_or_else(|| run[0].clone()),
        label,
        input,
        confirm: flag("confirm", true)?,
        background: flag("background", false)?,
        run,
    })
}
