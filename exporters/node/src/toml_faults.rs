//! Reads a TOML file with every fault in it, not only the first.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue, Error};

/// How many faults of a file are reported at most: more than one corrects at once.
const MAX_FAULTS: usize = 100;

/// Reads the text without the keys that have faults, and returns these faults; no value if its syntax is wrong.
pub fn read_toml<T: DeserializeOwned>(text: &str) -> (Option<T>, Vec<Error>) {
    let (mut table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return (None, errors);
    }
    let (mut faults, mut removed) = (Vec::new(), Vec::new());
    while faults.len() < MAX_FAULTS {
        let error = match T::deserialize(toml::Deserializer::from(table.clone())) {
            Ok(value) => return (Some(value), faults),
            Err(error) => error,
        };
        let Some(key) = remove_key(table.get_mut(), &error.span().unwrap_or(0..0)) else {
            faults.push(error);
            break;
        };
        let is_missing = |key| error.message().starts_with(&format!("missing field `{key}`"));
        if !removed.iter().any(is_missing) {
            faults.push(error);
        }
        removed.push(key);
    }
    (None, faults)
}

/// Removes the innermost key that contains the span, and returns its name.
fn remove_key(table: &mut DeTable<'_>, span: &Range<usize>) -> Option<String> {
    if let Some(key) = table.iter_mut().find_map(|(_, value)| remove_below(value.get_mut(), span)) {
        return Some(key);
    }
    let contains = |outer: Range<usize>| outer.start <= span.start && span.end <= outer.end;
    let found = table.iter().find(|(key, value)| contains(key.span()) || contains(value.span()));
    let key = found?.0.clone();
    table.remove(&key)?;
    Some(key.into_inner().into_owned())
}

fn remove_below(value: &mut DeValue<'_>, span: &Range<usize>) -> Option<String> {
    match value {
        DeValue::Table(table) => remove_key(table, span),
        DeValue::Array(values) => {
            values.iter_mut().find_map(|value| remove_below(value.get_mut(), span))
        }
        _ => None,
    }
}
