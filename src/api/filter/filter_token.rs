//! Filter tokens: the words and operators of a filter, with positions.

use super::{FilterError, FilterOp};

/// One token.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FilterToken<'a> {
    pub(super) kind: FilterTokenKind<'a>,
    /// The first byte.
    pub(super) start: usize,
    /// The byte after the last.
    pub(super) end: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum FilterTokenKind<'a> {
    /// A name, a number, a keyword or plain text.
    Word(&'a str),
    /// Text that was quoted, without its quotes.
    Quoted(String),
    /// A comparison operator.
    Op(FilterOp),
    Open,
    Close,
    Comma,
    /// The end of the filter.
    End,
}

/// All tokens of a filter; the last one is [`FilterTokenKind::End`].
pub(super) fn parse_tokens(text: &str) -> Result<Vec<FilterToken<'_>>, FilterError> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (kind, end) = parse_token(text, at, first)?;
        found.push(FilterToken { kind, start: at, end });
        at = end;
    }
    found.push(FilterToken { kind: FilterTokenKind::End, start: text.len(), end: text.len() });
    Ok(found)
}

fn parse_token(
    text: &str,
    at: usize,
    first: char,
) -> Result<(FilterTokenKind<'_>, usize), FilterError> {
    let two = text.get(at..at + 2).unwrap_or("");
    let sign = match (two, first) {
        ("!=", _) => Some((FilterOp::NotEqual, 2)),
        ("!~", _) => Some((FilterOp::NotLike, 2)),
        ("<=", _) => Some((FilterOp::LessOrEqual, 2)),
        (">=", _) => Some((FilterOp::GreaterOrEqual, 2)),
        ("==", _) => Some((FilterOp::Equal, 2)),
        (_, '=') => Some((FilterOp::Equal, 1)),
        (_, '<') => Some((FilterOp::Less, 1)),
        (_, '>') => Some((FilterOp::Greater, 1)),
        (_, '~') => Some((FilterOp::Like, 1)),
        _ => None,
    };
    if let Some((op, length)) = sign {
        return Ok((FilterTokenKind::Op(op), at + length));
    }
    let foreign = |meant: &str| {
        let length = if two.chars().all(|c| c == first) && two.len() == 2 { 2 } else { 1 };
        let message = format!("{} is not an operator", &text[at..at + length]);
        Err(FilterError::new(text, at, at + length, &message).with_hint(&format!("write {meant}")))
    };
    match first {
        '(' => Ok((FilterTokenKind::Open, at + 1)),
        ')' => Ok((FilterTokenKind::Close, at + 1)),
        ',' => Ok((FilterTokenKind::Comma, at + 1)),
        '"' | '\'' => parse_quoted(text, at, first),
        '&' => foreign("and"),
        '|' => foreign("or"),
        '!' => foreign("not"),
        _ => parse_word(text, at),
    }
}

/// Parses quoted text; a backslash escapes the next character.
fn parse_quoted(
    text: &str,
    at: usize,
    quote: char,
) -> Result<(FilterTokenKind<'_>, usize), FilterError> {
    let mut unescaped = String::new();
    let mut escaped = false;
    for (offset, character) in text[at + 1..].char_indices() {
        match character {
            _ if escaped => {
                unescaped.push(character);
                escaped = false;
            }
            '\\' => escaped = true,
            _ if character == quote => {
                return Ok((FilterTokenKind::Quoted(unescaped), at + 1 + offset + 1));
            }
            _ => unescaped.push(character),
        }
    }
    let error = FilterError::new(text, at, text.len(), "unclosed quote");
    Err(error.with_hint(&format!("close it with {quote}")))
}

/// Parses a word: it ends before a blank, an operator or a quote; a pair of braces and its content belong to it.
fn parse_word(text: &str, at: usize) -> Result<(FilterTokenKind<'_>, usize), FilterError> {
    let (mut end, mut braces, mut brackets) = (at, false, false);
    for character in text[at..].chars() {
        let ends = character.is_whitespace()
            || matches!(
                character,
                '(' | ')' | ',' | '"' | '\'' | '&' | '|' | '=' | '<' | '>' | '~' | '!'
            );
        match character {
            '{' => braces = true,
            '}' => braces = false,
            '[' => brackets = true,
            ']' => brackets = false,
            // `gpu[!0-3]` and `[a,b]` are patterns, not operators.
            '!' | ',' if brackets => {}
            _ if ends && !braces => break,
            _ => {}
        }
        end += character.len_utf8();
    }
    if braces {
        let error = FilterError::new(text, at, text.len(), "unclosed brace");
        return Err(
            error.with_hint("write a full name as gaunt_gpu_clock_event{reason=\"hw_thermal\"}")
        );
    }
    Ok((FilterTokenKind::Word(&text[at..end]), end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token_kinds(text: &str) -> Vec<FilterTokenKind<'_>> {
        parse_tokens(text).unwrap().into_iter().map(|token| token.kind).collect()
    }

    #[test]
    fn tokens_need_no_blanks_around_signs() {
        use FilterTokenKind::{Close, Comma, End, Op as Sign, Open, Quoted, Word};
        assert_eq!(
            token_kinds("(job=8812,9 and node!~gpu-0[!1-3]*)"),
            [
                Open,
                Word("job"),
                Sign(FilterOp::Equal),
                Word("8812"),
                Comma,
                Word("9"),
                Word("and"),
                Word("node"),
                Sign(FilterOp::NotLike),
                Word("gpu-0[!1-3]*"),
                Close,
                End
            ]
        );
        assert_eq!(token_kinds(r#"a~"x \"y\"""#)[2], Quoted("x \"y\"".into()));
        let full = "gaunt_gpu_clock_event{reason=\"hw thermal\"}>0";
        assert_eq!(token_kinds(full)[0], Word(&full[..full.len() - 2]));
    }

    #[test]
    fn foreign_operators_are_answered_with_those_of_the_filter() {
        for (text, column, said) in [
            ("a=1 && b=2", 5, "column 5: && is not an operator; write and"),
            ("a=1 | b=2", 5, "column 5: | is not an operator; write or"),
            ("!a=1", 1, "column 1: ! is not an operator; write not"),
            ("a=\"x", 3, "column 3: unclosed quote; close it with \""),
        ] {
            let error = parse_tokens(text).unwrap_err();
            assert_eq!((error.column, error.to_string().as_str()), (column, said));
        }
    }
}
