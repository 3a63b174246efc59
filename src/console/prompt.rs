//! Prompt at the bottom of the screen: input of a filter, a command or a note, and its completion candidates.

use gaunt_schema::SanitizedText;

use super::key_press::KeyPress;
use gaunt_api::{FilterError, Subject, filter::MAX_BYTES};

/// Maximum number of lines in the history.
const REMEMBERED: usize = 32;

/// Kind of input that the prompt expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PromptKind {
    /// Filter of the rows of a subject.
    Filter(Subject),
    /// Command.
    Command,
    /// Search over everything that has a name.
    Search,
    /// Note on findings, and their common name.
    Note(Vec<SanitizedText>, SanitizedText),
    /// Text for a plug-in of the user, by its number, and what is asked.
    PluginInput(usize, SanitizedText),
}

/// State of the open prompt.
#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    /// Kind of input.
    pub(crate) asks: PromptKind,
    /// Current text.
    pub(crate) text: String,
    /// Byte offset of the cursor.
    pub(crate) cursor: usize,
    /// Error of the last submitted line.
    pub(crate) error: Option<PromptError>,
    /// Completion candidates at the cursor, and the inserted one.
    pub(crate) completion: PromptCompletion,
    /// What the keys do while the line is empty, if they do more than to cancel.
    pub(crate) empty_hint: SanitizedText,
    /// How far back the line was recalled from the history.
    recall_depth: usize,
}

/// Reason why a line was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PromptError {
    /// First rejected column, from 0, and the number of columns; none if the whole line is rejected.
    pub(crate) span: Option<(usize, usize)>,
    /// Reason, and what is valid there.
    pub(crate) why: SanitizedText,
}

/// Completion candidates at the cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PromptCompletion {
    /// Start of the byte range that a candidate replaces.
    pub(crate) from: usize,
    /// End of the byte range.
    pub(crate) to: usize,
    /// Candidates with their descriptions.
    pub(crate) candidates: Vec<(String, String)>,
    /// Index of the candidate inserted by Tab.
    pub(crate) inserted: Option<usize>,
}

/// Result of a key in the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PromptOutcome {
    /// The line changed, and with it the completion candidates.
    Edited,
    /// A candidate was inserted; the candidates stay.
    Completed,
    /// The prompt was cancelled.
    Cancelled,
    /// The line was submitted.
    Entered(String),
}

/// Submitted lines, the newest last.
#[derive(Clone, Debug, Default)]
pub(crate) struct PromptHistory {
    filters: Vec<String>,
    commands: Vec<String>,
    notes: Vec<String>,
}

impl PromptHistory {
    fn of(&self, asks: &PromptKind) -> &[String] {
        match asks {
            PromptKind::Filter(_) => &self.filters,
            PromptKind::Command => &self.commands,
            PromptKind::Note(..) => &self.notes,
            PromptKind::Search | PromptKind::PluginInput(..) => &[],
        }
    }

    /// Adds a line to the history.
    pub(crate) fn record_line(&mut self, asks: &PromptKind, line: &str) {
        let lines = match asks {
            PromptKind::Filter(_) => &mut self.filters,
            PromptKind::Command => &mut self.commands,
            PromptKind::Note(..) => &mut self.notes,
            PromptKind::Search | PromptKind::PluginInput(..) => return,
        };
        if line.is_empty() {
            return;
        }
        lines.retain(|known| known != line);
        lines.push(line.to_owned());
        if lines.len() > REMEMBERED {
            lines.remove(0);
        }
    }
}

impl Prompt {
    /// Creates a prompt with an initial text.
    pub(crate) fn new(asks: PromptKind, text: &str) -> Self {
        Self {
            asks,
            text: text.to_owned(),
            cursor: text.len(),
            error: None,
            completion: PromptCompletion::default(),
            empty_hint: SanitizedText::default(),
            recall_depth: 0,
        }
    }

    /// Handles a key.
    pub(crate) fn handle_key(&mut self, key: KeyPress, history: &PromptHistory) -> PromptOutcome {
        match key {
            KeyPress::Enter => return PromptOutcome::Entered(self.text.trim().to_owned()),
            KeyPress::Escape | KeyPress::Ctrl('c') => return PromptOutcome::Cancelled,
            KeyPress::Backspace if self.text.is_empty() => return PromptOutcome::Cancelled,
            KeyPress::Tab | KeyPress::BackTab => {
                self.insert_candidate(key == KeyPress::Tab);
                return PromptOutcome::Completed;
            }
            KeyPress::Up | KeyPress::Down => self.recall_line(key == KeyPress::Up, history),
            _ => {
                self.edit_line(key);
                self.error = None;
            }
        }
        PromptOutcome::Edited
    }

    fn edit_line(&mut self, key: KeyPress) {
        match key {
            KeyPress::Char(c) if !c.is_control() && self.text.len() + c.len_utf8() <= MAX_BYTES => {
                self.text.insert(self.cursor, c);
                self.cursor += c.len_utf8();
            }
            KeyPress::Backspace | KeyPress::Ctrl('h') => {
                if let Some(last) = self.text[..self.cursor].chars().next_back() {
                    self.cursor -= last.len_utf8();
                    self.text.remove(self.cursor);
                }
            }
            KeyPress::Delete | KeyPress::Ctrl('d') if self.cursor < self.text.len() => {
                self.text.remove(self.cursor);
            }
            KeyPress::Left | KeyPress::Ctrl('b') => {
                let last = self.text[..self.cursor].chars().next_back();
                self.cursor -= last.map_or(0, char::len_utf8);
            }
            KeyPress::Right | KeyPress::Ctrl('f') => {
                let next = self.text[self.cursor..].chars().next();
                self.cursor += next.map_or(0, char::len_utf8);
            }
            KeyPress::Home | KeyPress::Ctrl('a') => self.cursor = 0,
            KeyPress::End | KeyPress::Ctrl('e') => self.cursor = self.text.len(),
            KeyPress::Ctrl('u') => {
                self.text.drain(..self.cursor);
                self.cursor = 0;
            }
            KeyPress::Ctrl('k') => self.text.truncate(self.cursor),
            KeyPress::Ctrl('w') => {
                let trimmed = self.text[..self.cursor].trim_end();
                let start = trimmed.rfind(|c: char| !c.is_alphanumeric() && c != '_');
                let start = start
                    .map_or(0, |at| at + trimmed[at..].chars().next().map_or(1, char::len_utf8));
                let start =
                    if start >= trimmed.len() { trimmed.len().saturating_sub(1) } else { start };
                let start = (0..=start).rev().find(|at| self.text.is_char_boundary(*at));
                let start = start.unwrap_or(0);
                self.text.drain(start..self.cursor);
                self.cursor = start;
            }
            _ => {}
        }
    }

    /// Inserts the next candidate, or the previous one.
    fn insert_candidate(&mut self, next: bool) {
        let count = self.completion.candidates.len();
        if count == 0 {
            return;
        }
        let at = match (self.completion.inserted, next) {
            (None, true) => 0,
            (None, false) => count - 1,
            (Some(at), true) => (at + 1) % count,
            (Some(at), false) => (at + count - 1) % count,
        };
        let (from, to) = (self.completion.from, self.completion.to.min(self.text.len()));
        let text = &self.completion.candidates[at].0;
        self.text.replace_range(from..to, text);
        self.completion.to = from + text.len();
        self.cursor = self.completion.to;
        self.completion.inserted = Some(at);
        self.error = None;
    }

    fn recall_line(&mut self, older: bool, history: &PromptHistory) {
        let lines = history.of(&self.asks);
        self.recall_depth = if older {
            (self.recall_depth + 1).min(lines.len())
        } else {
            self.recall_depth.saturating_sub(1)
        };
        let line = lines.len().checked_sub(self.recall_depth).and_then(|at| lines.get(at));
        self.text = line.cloned().unwrap_or_default();
        self.cursor = self.text.len();
        self.error = None;
    }

    /// Shows the error of the line.
    pub(crate) fn show_error(&mut self, error: &FilterError) {
        let hint = error.hint.as_deref().map_or_else(String::new, |hint| format!("; {hint}"));
        self.error = Some(PromptError {
            span: Some((error.column.saturating_sub(1) as usize, error.length as usize)),
            why: SanitizedText::new(&format!("{}{hint}", error.message)),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn type_into(prompt: &mut Prompt, keys: &[KeyPress], history: &PromptHistory) -> PromptOutcome {
        keys.iter().fold(PromptOutcome::Edited, |_, key| prompt.handle_key(*key, history))
    }

    fn char_keys(text: &str) -> Vec<KeyPress> {
        text.chars().map(KeyPress::Char).collect()
    }

    #[test]
    fn prompt_is_edited_as_in_a_shell() {
        let mut prompt = Prompt::new(PromptKind::Command, "");
        let history = PromptHistory::default();
        type_into(&mut prompt, &char_keys("at -20mx"), &history);
        type_into(
            &mut prompt,
            &[KeyPress::Backspace, KeyPress::Home, KeyPress::Char('ä'), KeyPress::Delete],
            &history,
        );
        assert_eq!((prompt.text.as_str(), prompt.cursor), ("ät -20m", 2));
        type_into(&mut prompt, &[KeyPress::End, KeyPress::Ctrl('w')], &history);
        assert_eq!(prompt.text, "ät -");
        type_into(&mut prompt, &[KeyPress::Ctrl('u')], &history);
        assert_eq!(prompt.text, "");
        assert_eq!(
            type_into(&mut prompt, &[KeyPress::Backspace], &history),
            PromptOutcome::Cancelled
        );
    }

    #[test]
    fn prompt_history_is_newest_first() {
        let mut history = PromptHistory::default();
        for line in ["live", "theme dark", "live"] {
            history.record_line(&PromptKind::Command, line);
        }
        let mut prompt = Prompt::new(PromptKind::Command, "");
        type_into(&mut prompt, &[KeyPress::Up], &history);
        assert_eq!(prompt.text, "live");
        type_into(&mut prompt, &[KeyPress::Up, KeyPress::Up], &history);
        assert_eq!(prompt.text, "theme dark");
        type_into(&mut prompt, &[KeyPress::Down, KeyPress::Down], &history);
        assert_eq!(prompt.text, "");
    }
}
