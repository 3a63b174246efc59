//! Filter errors: position, reason, and the probable correction.

use std::fmt;

use gaunt_schema::SanitizedText;
use serde::{Deserialize, Serialize};

/// A filter error with its position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FilterError {
    /// The filter text.
    pub filter: SanitizedText,
    /// Column of the first invalid character, counted from 1.
    pub column: u32,
    /// Number of invalid characters; at least 1.
    pub length: u32,
    /// The error.
    pub message: SanitizedText,
    /// The probable correction, or what is allowed there.
    pub hint: Option<SanitizedText>,
}

impl FilterError {
    /// Creates an error about the bytes from `start` to `end` of `text`.
    pub(super) fn new(text: &str, start: usize, end: usize, message: &str) -> Self {
        let columns = |to: usize| text.get(..to).map_or(0, |part| part.chars().count());
        let (first, last) = (columns(start.min(text.len())), columns(end.min(text.len())));
        Self {
            filter: SanitizedText::new(text),
            column: first as u32 + 1,
            length: last.saturating_sub(first).max(1) as u32,
            message: SanitizedText::new(message),
            hint: None,
        }
    }

    /// Adds a hint.
    pub(super) fn with_hint(mut self, hint: &str) -> Self {
        self.hint = Some(SanitizedText::new(hint));
        self
    }

    /// Renders the filter with a second line that marks the position, for a terminal.
    pub fn render_pointer(&self) -> String {
        let before: String = " ".repeat(self.column.saturating_sub(1) as usize);
        format!("{}\n{before}{}", self.filter, "^".repeat(self.length as usize))
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FilterError {}

/// Returns the most similar known word, if one is close.
pub fn nearest_word<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let allowed = (word.len() / 3).clamp(1, 4);
    known
        .map(|known| {
            let is_substring = word.len() > 2 && known.contains(&word);
            (
                edit_distance(&word, known).min(if is_substring { allowed } else { usize::MAX }),
                known,
            )
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, known)| (*distance, known.len()))
        .map(|(_, known)| known)
}

/// Edit distance: characters that differ, are missing, added, or swapped with their neighbour.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len().abs_diff(b.len()) > 4 || a.len() > 64 {
        return usize::MAX;
    }
    let (mut older, mut old): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..=b.len()).collect());
    for (row, left) in a.iter().enumerate() {
        let mut new = vec![row + 1];
        for (column, right) in b.iter().enumerate() {
            let change = old[column] + usize::from(left != right);
            let mut least = change.min(old[column + 1] + 1).min(new[column] + 1);
            if row > 0 && column > 0 && a[row - 1] == *right && *left == b[column - 1] {
                least = least.min(older[column - 1] + 1);
            }
            new.push(least);
        }
        (older, old) = (old, new);
    }
    old[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestion_is_the_nearest_word() {
        let known = ["power", "power_limit", "sm_active", "temperature"];
        for (typed, meant) in [
            ("powr", Some("power")),
            ("pwoer", Some("power")),
            ("SM_ACTVE", Some("sm_active")),
            ("temp", Some("temperature")),
            ("zzz", None),
            ("", None),
        ] {
            assert_eq!(nearest_word(typed, known.into_iter()), meant, "{typed}");
        }
    }

    #[test]
    fn error_column_is_marked_below_the_filter() {
        let error = FilterError::new("node=ä powr>3", 8, 12, "what");
        assert_eq!((error.column, error.length), (8, 4));
        assert_eq!(error.render_pointer(), "node=ä powr>3\n       ^^^^");
        assert_eq!(FilterError::new("a", 1, 1, "end").render_pointer(), "a\n ^");
    }
}
