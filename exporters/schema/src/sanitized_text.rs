//! Text from outside, sanitized on input so that it is safe to show on a terminal.

use std::{
    borrow::Borrow,
    collections::HashSet,
    fmt,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The maximum length, in characters. Longer text ends in an ellipsis.
pub const MAX_CHARS: usize = 256;

/// The replacement for a run of forbidden characters.
const MARK: char = '\u{fffd}';

/// Text without control characters, bidirectional overrides and invisible characters, of bounded length.
///
/// A run of forbidden characters becomes one replacement mark, so that the removal is visible.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct SanitizedText(Arc<str>);

impl SanitizedText {
    /// Sanitizes any text. Text that is safe already is only copied.
    pub fn new(text: &str) -> Self {
        let clean = text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        if clean && text.len() <= MAX_CHARS {
            return Self(text.into());
        }
        let mut sanitized = String::with_capacity(text.len().min(4 * MAX_CHARS));
        for (count, character) in text.chars().enumerate() {
            if count == MAX_CHARS {
                sanitized.push('…');
                break;
            }
            if !is_forbidden(character) {
                sanitized.push(character);
            } else if !sanitized.ends_with(MARK) {
                sanitized.push(MARK);
            }
        }
        Self(sanitized.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Sanitizes a text in place, as [`SanitizedText::new`] does, but without the length limit, for texts longer than a
/// label.
pub fn sanitize_in_place(text: &mut String) {
    let is_plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if is_plain || !text.contains(is_forbidden) {
        return;
    }
    let mut sanitized = String::with_capacity(text.len());
    for character in text.chars() {
        if !is_forbidden(character) {
            sanitized.push(character);
        } else if !sanitized.ends_with(MARK) {
            sanitized.push(MARK);
        }
    }
    *text = sanitized;
}

/// Sanitizes every text and member name of a JSON value in place, at its full length.
pub fn sanitize_json(value: &mut Value) {
    match value {
        Value::String(text) => sanitize_in_place(text),
        Value::Array(items) => items.iter_mut().for_each(sanitize_json),
        Value::Object(members) => {
            let sanitized_name = |name: &String| {
                let mut safe = name.clone();
                sanitize_in_place(&mut safe);
                (safe != *name).then_some((name.clone(), safe))
            };
            let unsafe_names: Vec<_> = members.keys().filter_map(sanitized_name).collect();
            for (name, safe) in unsafe_names {
                if let Some(value) = members.remove(&name) {
                    members.insert(safe, value);
                }
            }
            members.values_mut().for_each(sanitize_json);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Sanitizes each line of a text.
pub fn sanitize_lines(text: &str) -> String {
    let lines = text.split('\n').map(|line| {
        let mut line = line.to_owned();
        sanitize_in_place(&mut line);
        line
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Interns the texts that a page repeats: label names, and label values that all devices of a node share.
#[derive(Debug, Default)]
pub(crate) struct TextInterner(HashSet<SanitizedText>);

impl TextInterner {
    /// The sanitized text.
    pub(crate) fn intern_text(&mut self, text: &str) -> SanitizedText {
        if let Some(interned) = self.0.get(text) {
            return interned.clone();
        }
        let sanitized = SanitizedText::new(text);
        // Sanitizing may have changed the text to one that is known.
        self.0.get(&sanitized).cloned().unwrap_or_else(|| {
            self.0.insert(sanitized.clone());
            sanitized
        })
    }
}

/// Maximum number of texts of [`SharedTexts`]: some hundred kilobytes.
const MAX_SHARED: usize = 4_096;

/// Texts that the pages of many nodes repeat, once for all of them: label names, models, drivers, jobs.
#[derive(Debug, Default)]
pub(crate) struct SharedTexts(Mutex<HashSet<SanitizedText>>);

impl SharedTexts {
    /// Replaces texts by equal ones of other pages. A text in a single place of its page, such as a UUID, is left alone.
    /// `texts` holds one more reference to each.
    pub(crate) fn share_repeated<'a>(
        &self,
        texts: &TextInterner,
        places: impl Iterator<Item = &'a mut SanitizedText>,
    ) {
        let is_repeated = |text: &&SanitizedText| Arc::strong_count(&text.0) > 2;
        let repeated: HashSet<_> = texts.0.iter().filter(is_repeated).collect();
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.len() + repeated.len() > MAX_SHARED {
            shared.retain(|text| Arc::strong_count(&text.0) > 1);
        }
        for text in places {
            if let Some(shared) = shared.get(&*text) {
                text.clone_from(shared);
            } else if shared.len() < MAX_SHARED && repeated.contains(text) {
                shared.insert(text.clone());
            }
        }
    }
}

/// Whether a terminal might interpret this character instead of showing it.
fn is_forbidden(character: char) -> bool {
    matches!(character,
        '\0'..='\x1f' | '\x7f'..='\u{9f}'          // C0, DEL, C1
        | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'                  // zero width, direction marks
        | '\u{2028}'..='\u{202e}'                  // separators, direction overrides
        | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}')
}

impl Default for SanitizedText {
    fn default() -> Self {
        Self("".into())
    }
}

impl Deref for SanitizedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for SanitizedText {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for SanitizedText {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for SanitizedText {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for SanitizedText {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

impl From<&str> for SanitizedText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for SanitizedText {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl fmt::Debug for SanitizedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for SanitizedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Text from the wire is sanitized again, because the sender is untrusted.
impl<'de> Deserialize<'de> for SanitizedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(feature = "openapi")]
impl schemars::JsonSchema for SanitizedText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        str::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        str::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_unchanged() {
        assert_eq!(SanitizedText::new("gpu-0417 Müller 東京").as_str(), "gpu-0417 Müller 東京");
    }

    #[test]
    fn terminal_control_characters_become_visible_marks() {
        assert_eq!(SanitizedText::new("a\x1b[31mb").as_str(), "a�[31mb");
        assert_eq!(SanitizedText::new("a\u{9b}31mb\u{7f}").as_str(), "a�31mb�");
        assert_eq!(SanitizedText::new("x\u{202e}\u{200b}y").as_str(), "x�y");
        assert_eq!(SanitizedText::new("two\r\nlines").as_str(), "two�lines");
    }

    #[test]
    fn text_length_is_bounded_in_characters() {
        let long = SanitizedText::new(&"ä".repeat(10_000));
        assert_eq!(long.chars().count(), MAX_CHARS + 1);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn interned_text_is_stored_once_and_sanitized() {
        let mut texts = TextInterner::default();
        let long = "x".repeat(MAX_CHARS + 5);
        for text in ["model", "a\x1bb", "a\u{9b}b", "a\u{fffd}b", "", &long] {
            let (first, repeated) = (texts.intern_text(text), texts.intern_text(text));
            assert_eq!(first, SanitizedText::new(text));
            assert!(Arc::ptr_eq(&first.0, &repeated.0), "{first}");
        }
        assert!(Arc::ptr_eq(&texts.intern_text("a\x1bb").0, &texts.intern_text("a\u{fffd}b").0));
    }

    #[test]
    fn repeated_texts_of_all_pages_are_stored_once_and_limited() {
        let shared = SharedTexts::default();
        let page = |of: &[&str]| {
            let mut texts = TextInterner::default();
            let mut places: Vec<_> = of.iter().map(|text| texts.intern_text(text)).collect();
            shared.share_repeated(&texts, places.iter_mut());
            places
        };
        let stored = || shared.0.lock().unwrap().len();
        let (one, two) = (page(&["H100", "H100", "GPU-1"]), page(&["H100", "GPU-1", "GPU-1"]));
        assert_eq!(two, ["H100", "GPU-1", "GPU-1"].map(SanitizedText::new));
        assert!(Arc::ptr_eq(&one[0].0, &two[0].0) && Arc::ptr_eq(&two[1].0, &two[2].0));
        assert!(!Arc::ptr_eq(&one[2].0, &two[1].0), "it was in one place when it was stored");
        assert_eq!(stored(), 2);
        for job in 0..3 * MAX_SHARED {
            let (name, used) = (format!("job {job}"), "H100");
            let texts = page(&[&name, &name, used]);
            assert!(Arc::ptr_eq(&texts[2].0, &one[0].0), "what is used is kept");
            assert!(stored() <= MAX_SHARED);
        }
        let many: Vec<String> = (0..MAX_SHARED + 9).map(|of| format!("user {of}")).collect();
        let twice: Vec<&str> = many.iter().chain(&many).map(String::as_str).collect();
        assert_eq!(
            page(&twice),
            twice.iter().map(|text| SanitizedText::new(text)).collect::<Vec<_>>()
        );
        assert_eq!(stored(), MAX_SHARED);
    }

    #[test]
    fn long_text_is_sanitized_at_full_length() {
        let mut text = format!("\u{1b}[2J{}\u{202e}\u{202d}", "é".repeat(1_000));
        sanitize_in_place(&mut text);
        assert_eq!(text, format!("�[2J{}�", "é".repeat(1_000)));
        assert_eq!(sanitize_lines("a\u{1b}b\nc\u{9b}\n"), "a�b\nc�\n");
    }

    #[test]
    fn json_text_is_sanitized() {
        let sanitized: SanitizedText = serde_json::from_str(r#""\u001b]52;c;x\u0007""#).unwrap();
        assert_eq!(sanitized.as_str(), "�]52;c;x�");
    }
}
