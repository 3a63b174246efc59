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
//! use gaunt_api::{Filter, Subject};
//!
//! let filter = Filter::parse(Subject::Gpus, "job=8812 and sm_active<30% sort power desc limit 20").unwrap();
//! assert_eq!(filter.limit(), Some(20));
//! let error = Filter::parse(Subject::Gpus, "job=8812 and powr>300W").unwrap_err();
//! assert_eq!(error.to_string(), "column 14: gpus have no field powr; did you mean power?");
//! ```

use std::hash::{Hash, Hasher};

use gaunt_schema::GlobPattern;

use super::field::{FieldKey, Subject, SubjectField};

mod filter_completion;
mod filter_error;
mod filter_parser;
mod filter_token;
mod select_rows;
#[cfg(test)]
mod tests;
mod unit_words;

pub use filter_completion::{CompletionCandidate, FilterCompletion, complete_filter, quote_text};
pub use filter_error::{FilterError, nearest_word};
pub use select_rows::{NO_TEXT, RowSource, SelectedRows, TextColumn, select_rows};

/// The longest filter, in bytes: several screen widths.
pub const MAX_BYTES: usize = 1_024;

/// The maximum nesting depth of parentheses and `not`.
pub const MAX_DEPTH: usize = 32;

/// The most comparisons in one filter; each value of a list counts.
pub const MAX_VALUES: usize = 128;

/// The most sort fields.
pub const MAX_SORTS: usize = 4;

/// The most columns.
pub const MAX_COLUMNS: usize = 64;

/// The most rows of one answer: somewhat more than the design size of one aggregator.
pub const MAX_ROWS: u32 = 131_072;

/// The most cells of one table: every GPU of a large fleet with as many columns as a screen shows.
pub const MAX_CELLS: u32 = 2_097_152;

/// Default number of rows if the filter has no limit.
pub const USUAL_ROWS: u32 = 1_000;

/// A parsed filter. Two filters are equal if their texts are equal.
#[derive(Clone, Debug)]
pub struct Filter {
    subject: Subject,
    text: String,
    expr: Option<FilterExpr>,
    sorts: Vec<SortKey>,
    columns: Vec<&'static SubjectField>,
    limit: Option<u32>,
    offset: u32,
    /// Length in bytes of the row expression; clauses follow.
    rows: usize,
}

/// Row condition. It has no `not`: negation is pushed down into the comparisons.
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
    /// Values, of which one must match, or none for a negated comparison; empty for `has` and its negation.
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

/// One sort field.
#[derive(Clone, Copy, Debug)]
struct SortKey {
    field: &'static SubjectField,
    descending: bool,
}

impl Filter {
    /// All rows of a subject.
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

    /// Parses a filter over the rows of `subject`.
    pub fn parse(subject: Subject, text: &str) -> Result<Self, FilterError> {
        filter_parser::parse_filter(subject, text)
    }

    /// The subject of its rows.
    pub fn subject(&self) -> Subject {
        self.subject
    }

    /// The filter as written.
    pub fn source_text(&self) -> &str {
        &self.text
    }

    /// Whether it keeps every row in default order and has no clauses.
    pub fn is_all(&self) -> bool {
        self.text.is_empty()
    }

    /// The requested columns, or the default ones.
    pub fn shown_columns(&self) -> Vec<&'static SubjectField> {
        if self.columns.is_empty() {
            self.subject.default_fields().collect()
        } else {
            self.columns.clone()
        }
    }

    /// The row limit, if set.
    pub fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// Number of matching rows to skip.
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// The same rows in the same order, limited to `limit` rows from `offset`.
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

    /// Values that a field must have (`=`) in every matching row, if the filter requires that. An index can use them to
    /// skip other rows.
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

    /// The row expression without the clauses.
    pub fn rows_text(&self) -> &str {
        self.text[..self.rows].trim_end()
    }

    /// The sort fields, and whether each is descending.
    pub fn sort_fields(&self) -> impl Iterator<Item = (&'static SubjectField, bool)> {
        self.sorts.iter().map(|sort| (sort.field, sort.descending))
    }

    /// Whether columns are selected.
    pub fn has_columns(&self) -> bool {
        !self.columns.is_empty()
    }
}

impl FilterOp {
    /// The comparison that matches where this one does not and the value is present.
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
