//! The filter language: which rows of a table, in which order, how many, with which columns.
//!
//! ```text
//! ask     = [ rows ] { clause }
//! rows    = row { "or" row }          row = term { "and" term }
//! term    = "not" term | "(" rows ")" | "has" FIELD | FIELD OP VALUE { "," VALUE }
//! OP      = "=" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "!~"
//! clause  = "sort" FIELD [ "asc" | "desc" ] { "," … } | "limit" N | "offset" N | "columns" FIELD { "," FIELD }
//! ```
//!
//! Numbers take units (`300W`, `10GB`, `30 %`, `5m`). `~` compares with a glob, whatever the case: `*`, `?`, `[a-z]`;
//! without any of these it looks for the text anywhere. Text is put in order as a person counts: `gpu2` before `gpu10`.
//! What is absent never matches a comparison, not even a negated one, and is sorted last; `has` asks for it.
//!
//! ```
//! use gaunt::answer::{Filter, Subject};
//!
//! let filter = Filter::parse(Subject::Gpus, "job=8812 and sm_active<30% sort power desc limit 20").unwrap();
//! assert_eq!(filter.limit(), Some(20));
//! let error = Filter::parse(Subject::Gpus, "job=8812 and powr>300W").unwrap_err();
//! assert_eq!(error.to_string(), "column 14: gpus have no field powr; did you mean power?");
//! ```

use std::hash::{Hash, Hasher};

use super::field::{FieldKey, Subject, SubjectField};

mod filter_completion;
mod filter_error;
mod filter_parser;
mod filter_token;
mod glob_pattern;
mod select_rows;
#[cfg(test)]
mod tests;
mod unit_words;

pub use filter_completion::{CompletionCandidate, FilterCompletion, complete_filter, quote_text};
pub use filter_error::FilterError;
use glob_pattern::GlobPattern;
pub use select_rows::{NO_TEXT, RowSource, SelectedRows, TextColumn, select_rows};

/// The longest filter, in bytes: a screen's width several times over.
pub const MAX_BYTES: usize = 1_024;

/// How deep parentheses and `not` may be nested.
pub const MAX_DEPTH: usize = 32;

/// The most comparisons in one filter, each value of a list counted.
pub const MAX_VALUES: usize = 128;

/// The most fields to sort by.
pub const MAX_SORTS: usize = 4;

/// The most columns.
pub const MAX_COLUMNS: usize = 64;

/// The most rows of one answer: as many as one aggregator is made for, and some more.
pub const MAX_ROWS: u32 = 131_072;

/// The most cells of one table: every GPU of a large fleet with as many columns as a screen shows.
pub const MAX_CELLS: u32 = 2_097_152;

/// Rows of an answer where the filter names no limit.
pub const USUAL_ROWS: u32 = 1_000;

/// A filter that was understood. Two are equal if they are written alike.
#[derive(Clone, Debug)]
pub struct Filter {
    subject: Subject,
    text: String,
    expr: Option<FilterExpr>,
    sorts: Vec<SortKey>,
    columns: Vec<&'static SubjectField>,
    limit: Option<u32>,
    offset: u32,
    /// The bytes that say which rows; clauses follow.
    rows: usize,
}

/// What a row must be like. There is no `not` in it: it was moved into the tests.
#[derive(Clone, Debug)]
enum FilterExpr {
    All(Vec<FilterExpr>),
    Any(Vec<FilterExpr>),
    Test(FilterComparison),
}

/// One comparison.
#[derive(Clone, Debug)]
struct FilterComparison {
    field: &'static SubjectField,
    op: FilterOp,
    /// One of them must match, or with a negated comparison none; empty for `has` and its contrary.
    values: Vec<FilterValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterOp {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Like,
    NotLike,
    Has,
    Lacks,
}

#[derive(Clone, Debug)]
enum FilterValue {
    Number(f64),
    Text(String),
    Glob(GlobPattern),
}

/// One field to sort by.
#[derive(Clone, Copy, Debug)]
struct SortKey {
    field: &'static SubjectField,
    descending: bool,
}

impl Filter {
    /// Every row of a subject.
    pub fn all_rows(subject: Subject) -> Self {
        Self {
            subject,
            text: String::new(),
            expr: None,
            sorts: Vec::new(),
            columns: Vec::new(),
            limit: None,
            offset: 0,
            rows: 0,
        }
    }

    /// Reads a filter over the rows of `subject`.
    pub fn parse(subject: Subject, text: &str) -> Result<Self, FilterError> {
        filter_parser::parse_filter(subject, text)
    }

    /// What its rows are.
    pub fn subject(&self) -> Subject {
        self.subject
    }

    /// The filter as it was written.
    pub fn source_text(&self) -> &str {
        &self.text
    }

    /// Whether it leaves every row in its place and says nothing else.
    pub fn is_all(&self) -> bool {
        self.text.is_empty()
    }

    /// The columns that are asked for, or those that are usual.
    pub fn shown_columns(&self) -> Vec<&'static SubjectField> {
        if self.columns.is_empty() {
            self.subject.default_fields().collect()
        } else {
            self.columns.clone()
        }
    }

    /// The most rows that are wanted, if the filter says.
    pub fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// How many of the rows that match are passed over.
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// The same rows in the same order, as many as `limit` from `offset` on.
    pub fn with_page(&self, limit: u32, offset: u32) -> Result<Self, FilterError> {
        let mut text = self.rows_text().to_owned();
        let sorts = self.sort_fields().map(|(field, descending)| {
            format!("{}{}", field.name, if descending { " desc" } else { "" })
        });
        let columns = self.columns.iter().map(|field| field.name.clone());
        let mut clause = |word: &str, values: Vec<String>| {
            if !values.is_empty() {
                let gap = if text.is_empty() { "" } else { " " };
                text = [text.as_str(), gap, word, " ", &values.join(", ")].concat();
            }
        };
        clause("sort", sorts.collect());
        clause("limit", vec![limit.to_string()]);
        clause("offset", if offset > 0 { vec![offset.to_string()] } else { Vec::new() });
        clause("columns", columns.collect());
        Self::parse(self.subject, &text)
    }

    /// The texts of which a field must have one in every row that matches, if the filter says so by `=`. Whoever keeps
    /// an index need not look at other rows.
    pub fn required_texts(&self, key: FieldKey) -> Option<Vec<&str>> {
        let tests: &[FilterExpr] = match self.expr.as_ref()? {
            FilterExpr::All(parts) => parts,
            only => std::slice::from_ref(only),
        };
        let values = tests.iter().find_map(|expr| match expr {
            FilterExpr::Test(test) if test.field.key == key && test.op == FilterOp::Equal => {
                Some(&test.values)
            }
            _ => None,
        })?;
        values
            .iter()
            .map(|value| match value {
                FilterValue::Text(text) => Some(text.as_str()),
                FilterValue::Number(_) | FilterValue::Glob(_) => None,
            })
            .collect()
    }

    /// The part that says which rows, without the clauses.
    pub fn rows_text(&self) -> &str {
        self.text[..self.rows].trim_end()
    }

    /// The fields that rows are sorted by, and whether each falls.
    pub fn sort_fields(&self) -> impl Iterator<Item = (&'static SubjectField, bool)> {
        self.sorts.iter().map(|sort| (sort.field, sort.descending))
    }

    /// Whether columns are chosen.
    pub fn has_columns(&self) -> bool {
        !self.columns.is_empty()
    }
}

impl FilterOp {
    /// The comparison that holds where this one does not, and something is there to compare.
    const fn to_negated(self) -> Self {
        match self {
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Less => Self::GreaterOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Greater => Self::LessOrEqual,
            Self::GreaterOrEqual => Self::Less,
            Self::Like => Self::NotLike,
            Self::NotLike => Self::Like,
            Self::Has => Self::Lacks,
            Self::Lacks => Self::Has,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Like => "~",
            Self::NotLike => "!~",
            Self::Has => "has",
            Self::Lacks => "not has",
        }
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        (self.subject, &self.text) == (other.subject, &other.text)
    }
}

impl Eq for Filter {}

impl Hash for Filter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.subject, &self.text).hash(state);
    }
}
