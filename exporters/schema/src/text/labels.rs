//! Labels of a series: parsed without copying; escapes are undone only when the value is read.

use std::borrow::Cow;

use super::{PageLimits, Reason};

/// One label of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesLabel<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its value as on the page. There is only one way to write a value, so equal values have equal raw text.
    pub raw: &'a str,
    /// Whether the value contains escapes.
    pub escaped: bool,
}

impl<'a> SeriesLabel<'a> {
    /// The value, escapes undone.
    pub fn unescaped_value(&self) -> Cow<'a, str> {
        if !self.escaped {
            return Cow::Borrowed(self.raw);
        }
        let mut value = String::with_capacity(self.raw.len());
        let mut characters = self.raw.chars();
        while let Some(character) = characters.next() {
            if character != '\\' {
                value.push(character);
                continue;
            }
            match characters.next() {
                Some('n') => value.push('\n'),
                Some(literal @ ('\\' | '"')) => value.push(literal),
                // OpenMetrics keeps any other backslash.
                Some(other) => value.extend(['\\', other]),
                None => value.push('\\'),
            }
        }
        Cow::Owned(value)
    }
}

const NAME: u8 = 1;
const NAME_START: u8 = 2;
const LABEL: u8 = 4;
const LABEL_START: u8 = 8;
const BLANK: u8 = 16;

/// The character classes of each byte.
static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => NAME | NAME_START | LABEL | LABEL_START,
            b'0'..=b'9' => NAME | LABEL,
            b':' => NAME | NAME_START,
            b' ' | b'\t' => BLANK,
            _ => 0,
        };
        byte += 1;
    }
    classes
};

const fn is_class(byte: u8, class: u8) -> bool {
    CLASSES[byte as usize] & class != 0
}

/// The position of the first byte from `offset` that is not of `class`.
#[inline]
fn skip_class(bytes: &[u8], mut offset: usize, class: u8) -> usize {
    while offset < bytes.len() && is_class(bytes[offset], class) {
        offset += 1;
    }
    offset
}

/// The position of the first byte from `offset` that is not a blank or a tab.
#[inline]
pub(super) fn skip_blanks(bytes: &[u8], offset: usize) -> usize {
    skip_class(bytes, offset, BLANK)
}

/// The position of the first blank or tab from `offset`, or the end.
#[inline]
pub(super) fn skip_word(bytes: &[u8], mut offset: usize) -> usize {
    while offset < bytes.len() && !is_class(bytes[offset], BLANK) {
        offset += 1;
    }
    offset
}

/// The length of the metric name with which `bytes` begin; zero if they do not.
#[inline]
pub(super) fn name_length(bytes: &[u8]) -> usize {
    if bytes.first().is_some_and(|byte| is_class(*byte, NAME_START)) {
        skip_class(bytes, 1, NAME)
    } else {
        0
    }
}

/// Whether `bytes` continue a metric name at `offset`.
#[inline]
pub(super) fn continues_name(bytes: &[u8], offset: usize) -> bool {
    bytes.get(offset).is_some_and(|byte| is_class(*byte, NAME))
}

/// Whether `name` is a valid label name on a page.
pub(super) fn is_label_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.first().is_some_and(|byte| is_class(*byte, LABEL_START))
        && skip_class(bytes, 1, LABEL) == bytes.len()
        && name != RESERVED
}

/// The label that other systems use internally for the metric name; it is not allowed on a page.
const RESERVED: &str = "__name__";

/// Parses the labels from the opening brace at `offset` into `labels`; returns the position after the closing one.
pub(super) fn parse<'a>(
    text: &'a str,
    mut offset: usize,
    limits: &PageLimits,
    labels: &mut Vec<SeriesLabel<'a>>,
) -> Result<usize, Reason> {
    let bytes = text.as_bytes();
    offset += 1;
    loop {
        offset = skip_blanks(bytes, offset);
        match bytes.get(offset) {
            Some(b'}') => return Ok(offset + 1),
            Some(byte) if is_class(*byte, LABEL_START) => {}
            Some(_) => return Err(Reason::BadLabel),
            None => return Err(Reason::UnclosedLabel),
        }
        let (label, after) = parse_label(text, offset, limits)?;
        if labels.len() == limits.labels {
            return Err(Reason::TooManyLabels);
        }
        labels.push(label);
        offset = skip_blanks(bytes, after);
        match bytes.get(offset) {
            Some(b',') => offset += 1,
            Some(b'}') => return Ok(offset + 1),
            Some(_) => return Err(Reason::BadLabel),
            None => return Err(Reason::UnclosedLabel),
        }
    }
}

/// Parses the label whose name begins at `offset`; returns it with the position after its closing quote.
#[inline]
fn parse_label<'a>(
    text: &'a str,
    offset: usize,
    limits: &PageLimits,
) -> Result<(SeriesLabel<'a>, usize), Reason> {
    let bytes = text.as_bytes();
    let name_end = skip_class(bytes, offset + 1, LABEL);
    let name = &text[offset..name_end];
    if name.len() > limits.name_bytes {
        return Err(Reason::NameTooLong);
    }
    let equals = skip_blanks(bytes, name_end);
    expect_byte(bytes, equals, b'=')?;
    let quote = skip_blanks(bytes, equals + 1);
    expect_byte(bytes, quote, b'"')?;
    if name == RESERVED {
        return Err(Reason::BadLabel);
    }
    let start = quote + 1;
    let (end, escaped) = find_value_end(bytes, start)?;
    if end - start > limits.value_bytes {
        return Err(Reason::LabelTooLong);
    }
    Ok((SeriesLabel { name, raw: &text[start..end], escaped }, end + 1))
}

#[inline]
fn expect_byte(bytes: &[u8], offset: usize, expected: u8) -> Result<(), Reason> {
    match bytes.get(offset) {
        Some(byte) if *byte == expected => Ok(()),
        Some(_) => Err(Reason::BadLabel),
        None => Err(Reason::UnclosedLabel),
    }
}

/// The position of the quote that ends the value at `offset`, and whether the value has escapes.
#[inline]
fn find_value_end(bytes: &[u8], mut offset: usize) -> Result<(usize, bool), Reason> {
    let mut escaped = false;
    loop {
        offset = find_quote_or_backslash(bytes, offset).ok_or(Reason::UnclosedLabel)?;
        if bytes[offset] == b'"' {
            return Ok((offset, escaped));
        }
        match bytes.get(offset + 1) {
            Some(b'\\' | b'"' | b'n') => offset += 2,
            Some(_) => return Err(Reason::BadEscape),
            None => return Err(Reason::UnclosedLabel),
        }
        escaped = true;
    }
}

/// The first quote or backslash from `offset`, eight bytes at a time: values are too short for a vector routine to pay
/// off, and too long for a byte loop.
#[inline]
fn find_quote_or_backslash(bytes: &[u8], mut offset: usize) -> Option<usize> {
    while let Some(chunk) = bytes.get(offset..)?.first_chunk() {
        let word = u64::from_le_bytes(*chunk);
        let matches =
            find_zero_bytes(word ^ repeat_byte(b'"')) | find_zero_bytes(word ^ repeat_byte(b'\\'));
        if matches != 0 {
            return Some(offset + matches.trailing_zeros() as usize / 8);
        }
        offset += 8;
    }
    let rest = bytes[offset..].iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    Some(offset + rest)
}

/// The byte eight times.
const fn repeat_byte(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// The high bit of every zero byte; bits above the lowest one may be wrong, and are not used.
const fn find_zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(repeat_byte(0x01)) & !word & repeat_byte(0x80)
}
