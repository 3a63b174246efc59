//! Plug-in keys: a key that runs a program with values of the item under the cursor as its arguments.
//!
//! The arguments go to the program as they are, never through a shell. A value that would be read as an option, because
//! it begins with a dash, is refused.

use std::collections::BTreeMap;

use crate::key_press::KeyPress;

/// Maximum number of arguments of a program.
pub(super) const MAX_ARGUMENTS: usize = 32;

/// Names that can stand in braces, with what they mean.
pub(crate) const PLACEHOLDERS: [(&str, &str); 9] = [
    ("node", "node"),
    ("gpu", "GPU number"),
    ("port", "port, such as mlx5_0/1"),
    ("job", "job number"),
    ("user", "user of the job"),
    ("finding", "finding id"),
    ("kind", "kind of the finding"),
    ("aggregator", "address of the aggregator"),
    ("input", "text that you enter"),
];

/// A key that runs a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PluginKey {
    /// The key.
    pub(crate) key: KeyPress,
    /// Its name as in the file.
    pub(crate) label: String,
    /// What it does, in a few words.
    pub(crate) name: String,
    /// The program and its arguments, with placeholders.
    pub(crate) run: Vec<String>,
    /// What the user is asked to enter for `{input}`.
    pub(crate) input: Option<String>,
    /// Whether the user confirms the command before it runs.
    pub(crate) confirm: bool,
    /// Whether it runs without the terminal; otherwise the console makes way until it ends.
    pub(crate) background: bool,
}

/// A program that is ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PluginCommand {
    /// What it does, in a few words.
    pub(crate) name: String,
    /// The program and its arguments.
    pub(crate) argv: Vec<String>,
    /// Whether it runs without the terminal.
    pub(crate) background: bool,
}

impl PluginKey {
    /// Fills in the values, or returns why it cannot run.
    pub(crate) fn fill_in(
        &self,
        values: &BTreeMap<&'static str, String>,
    ) -> Result<PluginCommand, String> {
        let arguments = self.run.iter().map(|argument| fill_argument(argument, values));
        let argv = arguments.collect::<Result<Vec<String>, String>>();
        let argv = argv.map_err(|why| format!("{}: {why}", self.name))?;
        Ok(PluginCommand { name: self.name.clone(), argv, background: self.background })
    }
}

impl PluginCommand {
    /// Renders the command as it is shown in a question: arguments with blanks are quoted.
    pub(crate) fn render(&self) -> String {
        let quoted = self.argv.iter().map(|argument| {
            let plain = !argument.is_empty()
                && argument.chars().all(|c| c.is_alphanumeric() || "-_./:=@%+,{}#".contains(c));
            if plain { argument.clone() } else { format!("{argument:?}") }
        });
        quoted.collect::<Vec<_>>().join(" ")
    }
}

/// Replaces the placeholders of one argument.
fn fill_argument(
    argument: &str,
    values: &BTreeMap<&'static str, String>,
) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = argument;
    while let Some(open) = rest.find('{') {
        filled.push_str(&rest[..open]);
        let inner = &rest[open + 1..];
        let Some((name, after)) = inner.split_once('}') else {
            filled.push_str(&rest[open..]);
            return Ok(filled);
        };
        let known = PLACEHOLDERS.iter().find(|(known, _)| *known == name);
        let Some((name, meaning)) = known else {
            return Err(format!("{{{name}}} is not known"));
        };
        let value = values.get(name).filter(|value| !value.is_empty());
        let value =
            value.ok_or_else(|| format!("needs a {meaning}; choose an item that has one"))?;
        if filled.is_empty() && value.starts_with('-') {
            return Err(format!("the {meaning} begins with a dash and could be read as an option"));
        }
        filled.push_str(value);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Returns a placeholder of these arguments that is not known.
pub(super) fn unknown_placeholder(run: &[String]) -> Option<&str> {
    let names = run.iter().flat_map(|argument| {
        argument.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
    });
    names.into_iter().find(|name| !PLACEHOLDERS.iter().any(|(known, _)| known == name))
}
