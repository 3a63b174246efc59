//! The line at the bottom that the reader types into: a filter, a command or a note, with completion.

use gaunt_schema::Safe;

use super::{commands, keymap::Key, place::Place};
use crate::answer::{
    Field, FilterError, Subject,
    filter::{MAX_BYTES, complete},
};

/// Lines that can be called back.
const REMEMBERED: usize = 32;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Which rows of a subject.
    Filter(Subject),
    /// What to do.
    Command,
    /// A note about findings, and what they are called together.
    Note(Vec<Safe>, Safe),
}

/// The line while it is typed.
#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    /// What is asked for.
    pub(crate) asks: Asks,
    /// What stands in it.
    pub(crate) text: String,
    /// The byte that the cursor is at.
    pub(crate) cursor: usize,
    /// What is wrong with what was entered last.
    pub(crate) wrong: Option<Wrong>,
    /// What could stand at the cursor, and which of it does.
    pub(crate) offer: Offer,
    /// How far back the line was called from.
    back: usize,
}

/// Why a line was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// The first column that is not understood, from 0, and how many columns; none if it is the whole line.
    pub(crate) place: Option<(usize, usize)>,
    /// Why, and what could stand there.
    pub(crate) why: Safe,
}

/// What can stand at the cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The bytes that a candidate replaces.
    pub(crate) from: usize,
    /// The end of them.
    pub(crate) to: usize,
    /// Texts with what they mean.
    pub(crate) candidates: Vec<(String, String)>,
    /// The one that was put in by Tab.
    pub(crate) put: Option<usize>,
}

/// What a key led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// The line goes on.
    Goes,
    /// It was given up.
    Left,
    /// It was entered.
    Entered(String),
}

/// What is known that can be completed.
pub(crate) struct Known<'a> {
    /// The texts that a field has now.
    pub(crate) values: &'a dyn Fn(&Field) -> Vec<Safe>,
    /// The names of nodes.
    pub(crate) nodes: &'a [Safe],
    /// The screen that is shown.
    pub(crate) place: &'a Place,
}

/// Lines that were entered, the newest last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    filters: Vec<String>,
    commands: Vec<String>,
}

impl Past {
    fn of(&self, asks: &Asks) -> &[String] {
        match asks {
            Asks::Filter(_) => &self.filters,
            Asks::Command => &self.commands,
            Asks::Note(..) => &[],
        }
    }

    /// Remembers a line.
    pub(crate) fn remember(&mut self, asks: &Asks, line: &str) {
        let lines = match asks {
            Asks::Filter(_) => &mut self.filters,
            Asks::Command => &mut self.commands,
            Asks::Note(..) => return,
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
    /// A line with something in it already.
    pub(crate) fn new(asks: Asks, text: &str) -> Self {
        Self {
            asks,
            text: text.to_owned(),
            cursor: text.len(),
            wrong: None,
            offer: Offer::default(),
            back: 0,
        }
    }

    /// Takes a key.
    pub(crate) fn press(&mut self, key: Key, past: &Past, known: &Known<'_>) -> Typed {
        match key {
            Key::Enter => return Typed::Entered(self.text.trim().to_owned()),
            Key::Escape | Key::Ctrl('c') => return Typed::Left,
            Key::Backspace if self.text.is_empty() => return Typed::Left,
            Key::Tab => self.put(true),
            Key::BackTab => self.put(false),
            Key::Up | Key::Down => self.recall(key == Key::Up, past),
            _ => {
                self.edit(key);
                self.wrong = None;
            }
        }
        if !matches!(key, Key::Tab | Key::BackTab) {
            self.offer = self.offered(known);
        }
        Typed::Goes
    }

    fn edit(&mut self, key: Key) {
        match key {
            Key::Char(c) if !c.is_control() && self.text.len() + c.len_utf8() <= MAX_BYTES => {
                self.text.insert(self.cursor, c);
                self.cursor += c.len_utf8();
            }
            Key::Backspace | Key::Ctrl('h') => {
                if let Some(last) = self.text[..self.cursor].chars().next_back() {
                    self.cursor -= last.len_utf8();
                    self.text.remove(self.cursor);
                }
            }
            Key::Delete | Key::Ctrl('d') if self.cursor < self.text.len() => {
                self.text.remove(self.cursor);
            }
            Key::Left | Key::Ctrl('b') => {
                let last = self.text[..self.cursor].chars().next_back();
                self.cursor -= last.map_or(0, char::len_utf8);
            }
            Key::Right | Key::Ctrl('f') => {
                let next = self.text[self.cursor..].chars().next();
                self.cursor += next.map_or(0, char::len_utf8);
            }
            Key::Home | Key::Ctrl('a') => self.cursor = 0,
            Key::End | Key::Ctrl('e') => self.cursor = self.text.len(),
            Key::Ctrl('u') => {
                self.text.drain(..self.cursor);
                self.cursor = 0;
            }
            Key::Ctrl('k') => self.text.truncate(self.cursor),
            Key::Ctrl('w') => {
                let kept = self.text[..self.cursor].trim_end();
                let start = kept.rfind(|c: char| !c.is_alphanumeric() && c != '_');
                let start =
                    start.map_or(0, |at| at + kept[at..].chars().next().map_or(1, char::len_utf8));
                let start = if start >= kept.len() { kept.len().saturating_sub(1) } else { start };
                let start = (0..=start).rev().find(|at| self.text.is_char_boundary(*at));
                let start = start.unwrap_or(0);
                self.text.drain(start..self.cursor);
                self.cursor = start;
            }
            _ => {}
        }
    }

    /// Puts the next candidate in, or the one before.
    fn put(&mut self, next: bool) {
        let count = self.offer.candidates.len();
        if count == 0 {
            return;
        }
        let at = match (self.offer.put, next) {
            (None, true) => 0,
            (None, false) => count - 1,
            (Some(at), true) => (at + 1) % count,
            (Some(at), false) => (at + count - 1) % count,
        };
        let (from, to) = (self.offer.from, self.offer.to.min(self.text.len()));
        let text = &self.offer.candidates[at].0;
        self.text.replace_range(from..to, text);
        self.offer.to = from + text.len();
        self.cursor = self.offer.to;
        self.offer.put = Some(at);
        self.wrong = None;
    }

    fn recall(&mut self, older: bool, past: &Past) {
        let lines = past.of(&self.asks);
        self.back =
            if older { (self.back + 1).min(lines.len()) } else { self.back.saturating_sub(1) };
        let line = lines.len().checked_sub(self.back).and_then(|at| lines.get(at));
        self.text = line.cloned().unwrap_or_default();
        self.cursor = self.text.len();
        self.wrong = None;
    }

    /// What could stand at the cursor.
    pub(crate) fn offered(&self, known: &Known<'_>) -> Offer {
        match &self.asks {
            Asks::Filter(subject) => {
                let found = complete(*subject, &self.text, self.cursor, known.values);
                let candidates = found.candidates.into_iter().map(|c| (c.text, c.note));
                Offer {
                    from: found.from,
                    to: found.to,
                    candidates: candidates.collect(),
                    put: None,
                }
            }
            Asks::Command => commands::complete(&self.text[..self.cursor], known),
            Asks::Note(..) => Offer::default(),
        }
    }

    /// Says what is wrong with the line.
    pub(crate) fn refuse(&mut self, error: &FilterError) {
        let hint = error.hint.as_deref().map_or_else(String::new, |hint| format!("; {hint}"));
        self.wrong = Some(Wrong {
            place: Some((error.column.saturating_sub(1) as usize, error.length as usize)),
            why: Safe::new(&format!("{}{hint}", error.message)),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn type_into(prompt: &mut Prompt, keys: &[Key], past: &Past) -> Typed {
        let values = |field: &Field| {
            if field.name == "node" { vec!["gpu001".into(), "gpu 2".into()] } else { Vec::new() }
        };
        let place = Place::Overview;
        let known = Known { values: &values, nodes: &[], place: &place };
        keys.iter().fold(Typed::Goes, |_, key| prompt.press(*key, past, &known))
    }

    fn letters(text: &str) -> Vec<Key> {
        text.chars().map(Key::Char).collect()
    }

    #[test]
    fn a_line_is_edited_as_in_a_shell() {
        let mut prompt = Prompt::new(Asks::Command, "");
        let past = Past::default();
        type_into(&mut prompt, &letters("at -20mx"), &past);
        type_into(&mut prompt, &[Key::Backspace, Key::Home, Key::Char('ä'), Key::Delete], &past);
        assert_eq!((prompt.text.as_str(), prompt.cursor), ("ät -20m", 2));
        type_into(&mut prompt, &[Key::End, Key::Ctrl('w')], &past);
        assert_eq!(prompt.text, "ät -");
        type_into(&mut prompt, &[Key::Ctrl('u')], &past);
        assert_eq!(prompt.text, "");
        assert_eq!(type_into(&mut prompt, &[Key::Backspace], &past), Typed::Left);
    }

    #[test]
    fn tab_walks_over_what_can_stand_there() {
        let mut prompt = Prompt::new(Asks::Filter(Subject::Nodes), "");
        let past = Past::default();
        type_into(&mut prompt, &letters("nod"), &past);
        type_into(&mut prompt, &[Key::Tab], &past);
        assert_eq!(prompt.text, "node");
        type_into(&mut prompt, &letters("="), &past);
        type_into(&mut prompt, &[Key::Tab], &past);
        assert_eq!(prompt.text, "node=gpu001");
        type_into(&mut prompt, &[Key::Tab], &past);
        assert_eq!(prompt.text, "node=\"gpu 2\"");
        type_into(&mut prompt, &[Key::BackTab], &past);
        assert_eq!(prompt.text, "node=gpu001");
        let entered = type_into(&mut prompt, &[Key::Enter], &past);
        assert_eq!(entered, Typed::Entered("node=gpu001".into()));
    }

    #[test]
    fn lines_come_back_the_newest_first() {
        let mut past = Past::default();
        for line in ["live", "theme dark", "live"] {
            past.remember(&Asks::Command, line);
        }
        let mut prompt = Prompt::new(Asks::Command, "");
        type_into(&mut prompt, &[Key::Up], &past);
        assert_eq!(prompt.text, "live");
        type_into(&mut prompt, &[Key::Up, Key::Up], &past);
        assert_eq!(prompt.text, "theme dark");
        type_into(&mut prompt, &[Key::Down, Key::Down], &past);
        assert_eq!(prompt.text, "");
    }
}
