//! Completion: candidates for the filter text at the cursor.

use gaunt_schema::SanitizedText;

use super::{
    MAX_BYTES,
    filter_error::nearest_word,
    filter_parser::KEYWORDS,
    filter_token::{FilterToken, FilterTokenKind, parse_tokens},
};
use crate::field::{FieldKind, Subject, SubjectField};

/// The most candidates: more than any screen shows.
const MAX_CANDIDATES: usize = 64;

/// Candidates that replace the bytes from `from` to `to`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterCompletion {
    /// The first byte that a candidate replaces.
    pub from: usize,
    /// The byte after the last one: the cursor.
    pub to: usize,
    /// Best candidate first.
    pub candidates: Vec<CompletionCandidate>,
}

/// One completion candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionCandidate {
    /// Text to insert, quoted if necessary.
    pub text: String,
    /// Short description; may be empty.
    pub note: String,
}

/// What the grammar expects at the cursor.
#[derive(Clone, Copy)]
enum ExpectedToken {
    /// A comparison, `not`, `has` or a parenthesis; also a clause at the start.
    Term { first: bool },
    /// A comparison operator for this field.
    Op(&'static SubjectField),
    /// A value of this field.
    Value(&'static SubjectField),
    /// A token that joins or ends comparisons.
    Join,
    /// A field name; `sort` if a direction may follow.
    Field { sort: bool },
    /// A direction, a comma or another clause.
    Direction,
    /// A number of rows.
    Count,
    /// Unknown.
    Nothing,
}

/// Completes a filter over `subject` at the byte `cursor`. `values` returns the current texts of a field.
pub fn complete_filter(
    subject: Subject,
    text: &str,
    cursor: usize,
    values: &dyn Fn(&SubjectField) -> Vec<SanitizedText>,
) -> FilterCompletion {
    let mut cursor = cursor.min(text.len()).min(MAX_BYTES);
    while !text.is_char_boundary(cursor) {
        cursor -= 1;
    }
    let before = &text[..cursor];
    let Ok(tokens) = parse_tokens(before) else {
        // Inside an open quote: complete a value.
        return complete_quoted(subject, before, values);
    };
    let typed = tokens.iter().rev().nth(1).filter(|token| {
        token.end == cursor
            && matches!(token.kind, FilterTokenKind::Word(_) | FilterTokenKind::Quoted(_))
    });
    let from = typed.map_or(cursor, |token| token.start);
    let prefix = typed.map_or("", |token| before[token.start..token.end].trim_matches(['"', '\'']));
    let known = &tokens[..tokens.len() - 1 - usize::from(typed.is_some())];
    let candidates = collect_candidates(subject, expected_token(subject, known), values);
    FilterCompletion { from, to: cursor, candidates: rank_candidates(candidates, prefix) }
}

fn complete_quoted(
    subject: Subject,
    before: &str,
    values: &dyn Fn(&SubjectField) -> Vec<SanitizedText>,
) -> FilterCompletion {
    let Some(quote) = before.rfind(['"', '\'']) else { return FilterCompletion::default() };
    let Ok(tokens) = parse_tokens(&before[..quote]) else { return FilterCompletion::default() };
    match expected_token(subject, &tokens[..tokens.len() - 1]) {
        expected @ ExpectedToken::Value(_) => {
            let found = collect_candidates(subject, expected, values);
            let candidates = rank_candidates(found, &before[quote + 1..]);
            FilterCompletion { from: quote, to: before.len(), candidates }
        }
        _ => FilterCompletion::default(),
    }
}

/// Determines what is expected after these tokens; errors are left to the parser.
fn expected_token(subject: Subject, tokens: &[FilterToken<'_>]) -> ExpectedToken {
    let keyword = |word: &str| KEYWORDS.into_iter().find(|known| known.eq_ignore_ascii_case(word));
    let mut state = ExpectedToken::Term { first: true };
    let mut field = None;
    for token in tokens {
        state = match (&token.kind, &state) {
            (FilterTokenKind::Open, _) => ExpectedToken::Term { first: false },
            (FilterTokenKind::Close | FilterTokenKind::Quoted(_), _) => ExpectedToken::Join,
            (FilterTokenKind::Op(_), _) | (FilterTokenKind::Comma, ExpectedToken::Join) => {
                field.map_or(ExpectedToken::Nothing, ExpectedToken::Value)
            }
            (FilterTokenKind::Comma, ExpectedToken::Direction) => {
                ExpectedToken::Field { sort: true }
            }
            (FilterTokenKind::Word(word), _) => match keyword(word) {
                Some("and" | "or" | "not") => ExpectedToken::Term { first: false },
                Some("has" | "columns") => ExpectedToken::Field { sort: false },
                Some("sort") => ExpectedToken::Field { sort: true },
                Some(_) => ExpectedToken::Count,
                None => match state {
                    ExpectedToken::Term { .. } => {
                        field = subject.find_field(word);
                        field.map_or(ExpectedToken::Nothing, ExpectedToken::Op)
                    }
                    ExpectedToken::Field { sort: true } => ExpectedToken::Direction,
                    _ => ExpectedToken::Join,
                },
            },
            (FilterTokenKind::Comma | FilterTokenKind::End, _) => ExpectedToken::Nothing,
        };
    }
    state
}

fn collect_candidates(
    subject: Subject,
    expected: ExpectedToken,
    values: &dyn Fn(&SubjectField) -> Vec<SanitizedText>,
) -> Vec<CompletionCandidate> {
    let plain = |words: &[&str]| -> Vec<CompletionCandidate> {
        words
            .iter()
            .map(|word| CompletionCandidate { text: (*word).into(), note: String::new() })
            .collect()
    };
    let fields = || {
        let fields = subject.all_fields().iter();
        fields
            .map(|field| CompletionCandidate { text: field.name.clone(), note: field.help.into() })
    };
    match expected {
        ExpectedToken::Term { first } => {
            let words: &[&str] =
                if first { &["not", "has", "sort", "limit", "columns"] } else { &["not", "has"] };
            fields().chain(plain(words)).collect()
        }
        ExpectedToken::Field { .. } => fields().collect(),
        ExpectedToken::Op(field) => plain(match field.kind {
            FieldKind::Number(_) => &["<", "<=", ">", ">=", "=", "!="],
            _ => &["=", "!=", "~", "!~", "<", ">"],
        }),
        ExpectedToken::Value(field) => {
            let known = field.allowed_values(subject).into_iter().map(str::to_owned);
            let mut words: Vec<String> = known.collect();
            if words.is_empty() {
                words = values(field).iter().map(|word| quote_text(word)).collect();
            }
            words
                .into_iter()
                .map(|text| CompletionCandidate { text, note: String::new() })
                .collect()
        }
        ExpectedToken::Join => plain(&["and", "or", "sort", "limit", "offset", "columns"]),
        ExpectedToken::Direction => plain(&["desc", "asc", "limit", "offset", "columns"]),
        ExpectedToken::Count | ExpectedToken::Nothing => Vec::new(),
    }
}

/// Quotes text for a filter unless it is one word.
pub fn quote_text(text: &str) -> String {
    let one = parse_tokens(text).is_ok_and(
        |tokens| matches!(&tokens[..], [only, _] if only.kind == FilterTokenKind::Word(text)),
    );
    let keyword = KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(text));
    if one && !keyword {
        return text.to_owned();
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Ranks candidates: matching prefix, then substring, then the most similar.
fn rank_candidates(candidates: Vec<CompletionCandidate>, prefix: &str) -> Vec<CompletionCandidate> {
    let typed = prefix.to_ascii_lowercase();
    let bare =
        |candidate: &CompletionCandidate| candidate.text.trim_matches('"').to_ascii_lowercase();
    let meant = nearest_word(&typed, candidates.iter().map(|c| c.text.as_str())).map(str::to_owned);
    let rank = |candidate: &CompletionCandidate| {
        let text = bare(candidate);
        match text.find(&typed) {
            Some(0) => Some(0),
            Some(_) => Some(1),
            None => (meant.as_deref() == Some(&candidate.text)).then_some(2),
        }
    };
    let mut ranked: Vec<_> = candidates
        .into_iter()
        .filter_map(|candidate| Some((rank(&candidate)?, candidate)))
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.truncate(MAX_CANDIDATES);
    ranked.into_iter().map(|(_, candidate)| candidate).collect()
}
