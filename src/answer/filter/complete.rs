//! Completion: what can stand at the cursor.

use gaunt_schema::Safe;

use super::{
    MAX_BYTES,
    error::nearest,
    parse::KEYWORDS,
    token::{Kind, Token, tokens},
};
use crate::answer::field::{Field, FieldKind, Subject};

/// The most candidates: more than any screen shows.
const MAX_CANDIDATES: usize = 64;

/// What can stand at the cursor in the place of the bytes from `from` to `to`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The first byte that a candidate replaces.
    pub from: usize,
    /// The byte after the last one: the cursor.
    pub to: usize,
    /// The best first.
    pub candidates: Vec<Candidate>,
}

/// One of the texts that can stand there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// What is to be put in, quoted where that is needed.
    pub text: String,
    /// What it means, in a few words; may be empty.
    pub note: String,
}

/// What the grammar expects at the cursor.
#[derive(Clone, Copy)]
enum Expected {
    /// A comparison, `not`, `has`, a parenthesis; a clause too where nothing stands before it.
    Term { first: bool },
    /// The comparison of this field.
    Op(&'static Field),
    /// A value of this field.
    Value(&'static Field),
    /// What joins or ends comparisons.
    Join,
    /// A field alone, and whether a direction may follow it.
    Field { sort: bool },
    /// A direction, a comma or another clause.
    Direction,
    /// A number of rows.
    Count,
    /// Nothing can be said.
    Nothing,
}

/// What can stand at the byte `cursor` of a filter over `subject`. `values` knows the texts that a field has now.
pub fn complete(
    subject: Subject,
    text: &str,
    cursor: usize,
    values: &dyn Fn(&Field) -> Vec<Safe>,
) -> Completion {
    let mut cursor = cursor.min(text.len()).min(MAX_BYTES);
    while !text.is_char_boundary(cursor) {
        cursor -= 1;
    }
    let before = &text[..cursor];
    let Ok(tokens) = tokens(before) else {
        // An open quote: what stands in it is a value.
        return in_quotes(subject, before, values);
    };
    let typed = tokens.iter().rev().nth(1).filter(|token| {
        token.end == cursor && matches!(token.kind, Kind::Word(_) | Kind::Quoted(_))
    });
    let from = typed.map_or(cursor, |token| token.start);
    let prefix = typed.map_or("", |token| before[token.start..token.end].trim_matches(['"', '\'']));
    let known = &tokens[..tokens.len() - 1 - usize::from(typed.is_some())];
    let candidates = candidates(subject, expected(subject, known), values);
    Completion { from, to: cursor, candidates: ranked(candidates, prefix) }
}

fn in_quotes(subject: Subject, before: &str, values: &dyn Fn(&Field) -> Vec<Safe>) -> Completion {
    let Some(quote) = before.rfind(['"', '\'']) else { return Completion::default() };
    let Ok(tokens) = tokens(&before[..quote]) else { return Completion::default() };
    match expected(subject, &tokens[..tokens.len() - 1]) {
        expected @ Expected::Value(_) => {
            let found = candidates(subject, expected, values);
            let candidates = ranked(found, &before[quote + 1..]);
            Completion { from: quote, to: before.len(), candidates }
        }
        _ => Completion::default(),
    }
}

/// Walks over what stands before the cursor; what is wrong there is left to the parser.
fn expected(subject: Subject, tokens: &[Token<'_>]) -> Expected {
    let keyword = |word: &str| KEYWORDS.into_iter().find(|known| known.eq_ignore_ascii_case(word));
    let mut state = Expected::Term { first: true };
    let mut field = None;
    for token in tokens {
        state = match (&token.kind, &state) {
            (Kind::Open, _) => Expected::Term { first: false },
            (Kind::Close | Kind::Quoted(_), _) => Expected::Join,
            (Kind::Op(_), _) | (Kind::Comma, Expected::Join) => {
                field.map_or(Expected::Nothing, Expected::Value)
            }
            (Kind::Comma, Expected::Direction) => Expected::Field { sort: true },
            (Kind::Word(word), _) => match keyword(word) {
                Some("and" | "or" | "not") => Expected::Term { first: false },
                Some("has" | "columns") => Expected::Field { sort: false },
                Some("sort") => Expected::Field { sort: true },
                Some(_) => Expected::Count,
                None => match state {
                    Expected::Term { .. } => {
                        field = subject.field(word);
                        field.map_or(Expected::Nothing, Expected::Op)
                    }
                    Expected::Field { sort: true } => Expected::Direction,
                    _ => Expected::Join,
                },
            },
            (Kind::Comma | Kind::End, _) => Expected::Nothing,
        };
    }
    state
}

fn candidates(
    subject: Subject,
    expected: Expected,
    values: &dyn Fn(&Field) -> Vec<Safe>,
) -> Vec<Candidate> {
    let plain = |words: &[&str]| -> Vec<Candidate> {
        words.iter().map(|word| Candidate { text: (*word).into(), note: String::new() }).collect()
    };
    let fields = || {
        let fields = subject.fields().iter();
        fields.map(|field| Candidate { text: field.name.clone(), note: field.help.into() })
    };
    match expected {
        Expected::Term { first } => {
            let words: &[&str] =
                if first { &["not", "has", "sort", "limit", "columns"] } else { &["not", "has"] };
            fields().chain(plain(words)).collect()
        }
        Expected::Field { .. } => fields().collect(),
        Expected::Op(field) => plain(match field.kind {
            FieldKind::Number(_) => &["<", "<=", ">", ">=", "=", "!="],
            _ => &["=", "!=", "~", "!~", "<", ">"],
        }),
        Expected::Value(field) => {
            let known = field.words(subject).into_iter().map(str::to_owned);
            let mut words: Vec<String> = known.collect();
            if words.is_empty() {
                words = values(field).iter().map(|word| quoted(word)).collect();
            }
            words.into_iter().map(|text| Candidate { text, note: String::new() }).collect()
        }
        Expected::Join => plain(&["and", "or", "sort", "limit", "offset", "columns"]),
        Expected::Direction => plain(&["desc", "asc", "limit", "offset", "columns"]),
        Expected::Count | Expected::Nothing => Vec::new(),
    }
}

/// Text as it can stand in a filter: in quotes unless it is one word.
pub fn quoted(text: &str) -> String {
    let one = tokens(text)
        .is_ok_and(|tokens| matches!(&tokens[..], [only, _] if only.kind == Kind::Word(text)));
    let keyword = KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(text));
    if one && !keyword {
        return text.to_owned();
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Those that begin as was typed, then those that hold it, then the one that was probably meant.
fn ranked(candidates: Vec<Candidate>, prefix: &str) -> Vec<Candidate> {
    let typed = prefix.to_ascii_lowercase();
    let bare = |candidate: &Candidate| candidate.text.trim_matches('"').to_ascii_lowercase();
    let meant = nearest(&typed, candidates.iter().map(|c| c.text.as_str())).map(str::to_owned);
    let rank = |candidate: &Candidate| {
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
