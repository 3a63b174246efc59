//! Row selection: column by column, so that a name is tested once per distinct name and not once per row.

use std::cmp::Ordering;

use gaunt_schema::{AbsenceReason, SanitizedText, natural_order};

use super::{Filter, FilterComparison, FilterExpr, FilterOp, FilterValue, MAX_ROWS};
use crate::field::{BuiltinField, FieldKey, FieldKind, SubjectField};

/// Rows of a subject, as columns that are filled on demand.
pub trait RowSource {
    /// How many rows there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A number for each of these rows, in their order; NaN where it is absent.
    fn collect_numbers(&self, key: FieldKey, rows: &[u32]) -> Vec<f64>;

    /// A text for each of these rows, in their order.
    fn collect_texts(&self, key: FieldKey, rows: &[u32]) -> TextColumn;

    /// Why a row has no number, if known.
    fn absent_reason(&self, _key: FieldKey, _row: u32) -> Option<AbsenceReason> {
        None
    }
}

/// Texts of rows, each distinct text stored once.
#[derive(Clone, Debug, Default)]
pub struct TextColumn {
    /// The distinct texts.
    pub words: Vec<SanitizedText>,
    /// Indexes into `words`: one per row, or several per row with `starts`.
    pub codes: Vec<u32>,
    /// Start of each row's codes, and the end of the last; only for rows of several texts.
    pub starts: Option<Vec<u32>>,
}

/// Code in [`TextColumn::codes`] of a row without a text.
pub const NO_TEXT: u32 = u32::MAX;

impl TextColumn {
    /// The codes of a row; none where it is absent.
    pub fn of(&self, row: usize) -> &[u32] {
        let codes = match &self.starts {
            None => self.codes.get(row..=row),
            Some(starts) => match (starts.get(row), starts.get(row + 1)) {
                (Some(from), Some(to)) => self.codes.get(*from as usize..*to as usize),
                _ => None,
            },
        };
        match codes {
            Some([NO_TEXT]) | None => &[],
            Some(codes) => codes,
        }
    }

    /// The texts of a row.
    pub fn row_texts(&self, row: usize) -> impl Iterator<Item = &SanitizedText> {
        self.of(row).iter().filter_map(|code| self.words.get(*code as usize))
    }
}

/// Rows selected by a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedRows {
    /// Number of rows that match.
    pub matched: u32,
    /// The selected rows in order.
    pub rows: Vec<u32>,
}

/// Selects and sorts rows; returns as many as the filter's limit, or else `default_limit`.
pub fn select_rows(filter: &Filter, rows: &dyn RowSource, default_limit: u32) -> SelectedRows {
    let all: Vec<u32> = (0..rows.len() as u32).collect();
    let mut selected = match &filter.expr {
        None => all,
        Some(expr) => match_rows(expr, rows, all),
    };
    let matched = selected.len() as u32;
    let limit = filter.limit.unwrap_or(default_limit).min(MAX_ROWS) as usize;
    let offset = (filter.offset as usize).min(selected.len());
    let end = offset.saturating_add(limit).min(selected.len());
    if filter.sorts.is_empty() {
        selected.truncate(end);
        selected.drain(..offset);
        return SelectedRows { matched, rows: selected };
    }
    SelectedRows { matched, rows: sort_rows(filter, rows, &selected, offset, end) }
}

/// The rows from `offset` to `end` in sort order; sorts only as many as needed.
fn sort_rows(
    filter: &Filter,
    rows: &dyn RowSource,
    selected: &[u32],
    offset: usize,
    end: usize,
) -> Vec<u32> {
    let ranks: Vec<(SortRanks, bool)> = filter
        .sorts
        .iter()
        .map(|sort| (SortRanks::new(sort.field, rows, selected), sort.descending))
        .collect();
    let order = |a: &u32, b: &u32| {
        let parts =
            ranks.iter().map(|(ranks, down)| ranks.compare_rows(*a as usize, *b as usize, *down));
        parts.fold(Ordering::Equal, Ordering::then).then(a.cmp(b))
    };
    let mut positions: Vec<u32> = (0..selected.len() as u32).collect();
    if end > 0 && end < positions.len() {
        positions.select_nth_unstable_by(end - 1, order);
        positions.truncate(end);
    }
    positions.sort_unstable_by(order);
    positions[offset..].iter().map(|position| selected[*position as usize]).collect()
}

/// Sort keys: one number per row, absent if there is none.
struct SortRanks(Vec<f64>);

impl SortRanks {
    fn new(field: &SubjectField, rows: &dyn RowSource, selected: &[u32]) -> Self {
        if matches!(field.kind, FieldKind::Number(_)) {
            let mut numbers = rows.collect_numbers(field.key, selected);
            if field.key == FieldKey::Builtin(BuiltinField::Load) {
                // Whole percents, as lists show it: noise changes no order.
                for load in &mut numbers {
                    *load = (*load * 100.0).round();
                }
            }
            return Self(numbers);
        }
        let texts = rows.collect_texts(field.key, selected);
        let mut order: Vec<usize> = (0..texts.words.len()).collect();
        order.sort_unstable_by(|a, b| natural_order(&texts.words[*a], &texts.words[*b]));
        let mut rank = vec![0.0; order.len()];
        for (position, word) in order.into_iter().enumerate() {
            rank[word] = position as f64;
        }
        let lowest_rank = |row| {
            let ranks = texts.of(row).iter().filter_map(|code| rank.get(*code as usize).copied());
            ranks.reduce(f64::min).unwrap_or(f64::NAN)
        };
        Self((0..selected.len()).map(lowest_rank).collect())
    }

    /// Absent values sort last in both directions.
    fn compare_rows(&self, a: usize, b: usize, descending: bool) -> Ordering {
        let (a, b) = (self.0[a], self.0[b]);
        match (a.is_nan(), b.is_nan()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            // -0 and 0 are equal.
            (false, false) if descending => b.partial_cmp(&a).unwrap_or(Ordering::Equal),
            (false, false) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
        }
    }
}

/// The rows of `candidates` for which the expression holds, in their order.
fn match_rows(expr: &FilterExpr, rows: &dyn RowSource, candidates: Vec<u32>) -> Vec<u32> {
    match expr {
        FilterExpr::Test(test) => match_comparison(test, rows, candidates),
        FilterExpr::All(parts) => {
            parts.iter().fold(candidates, |left, part| match_rows(part, rows, left))
        }
        FilterExpr::Any(parts) => {
            let (mut remaining, mut found) = (candidates, Vec::new());
            for part in parts {
                let matched = match_rows(part, rows, remaining.clone());
                remaining = subtract_rows(&remaining, &matched);
                found.extend(matched);
            }
            found.sort_unstable();
            found
        }
    }
}

/// `all` without `some`; both ascending.
fn subtract_rows(all: &[u32], some: &[u32]) -> Vec<u32> {
    let mut taken = some.iter().peekable();
    all.iter().copied().filter(|row| taken.next_if(|next| **next == *row).is_none()).collect()
}

fn match_comparison(
    test: &FilterComparison,
    rows: &dyn RowSource,
    mut candidates: Vec<u32>,
) -> Vec<u32> {
    if candidates.is_empty() {
        return candidates;
    }
    if matches!(test.field.kind, FieldKind::Number(_)) {
        let numbers = rows.collect_numbers(test.field.key, &candidates);
        let mut at = 0;
        candidates.retain(|_| {
            at += 1;
            test.matches_number(numbers[at - 1])
        });
        return candidates;
    }
    let texts = rows.collect_texts(test.field.key, &candidates);
    // Each distinct text is tested once.
    let fits: Vec<bool> = texts.words.iter().map(|word| test.matches_text(word)).collect();
    let fits = |code: &u32| fits.get(*code as usize).copied().unwrap_or(false);
    let mut at = 0;
    candidates.retain(|_| {
        at += 1;
        let codes = texts.of(at - 1);
        match test.op {
            FilterOp::Has => !codes.is_empty(),
            FilterOp::Lacks => codes.is_empty(),
            // None of a row's texts may match.
            FilterOp::NotEqual | FilterOp::NotLike => !codes.is_empty() && !codes.iter().any(fits),
            _ => codes.iter().any(fits),
        }
    });
    candidates
}

impl FilterComparison {
    /// Whether the comparison holds for a number; an absent number matches only the negation of `has`.
    fn matches_number(&self, number: f64) -> bool {
        if number.is_nan() {
            return self.op == FilterOp::Lacks;
        }
        let mut values = self.values.iter().filter_map(|value| match value {
            FilterValue::Number(value) => Some(*value),
            FilterValue::Text(_) | FilterValue::Glob(_) => None,
        });
        let order = |value: f64| number.partial_cmp(&value);
        match self.op {
            FilterOp::Equal => values.any(|value| order(value) == Some(Ordering::Equal)),
            FilterOp::NotEqual => !values.any(|value| order(value) == Some(Ordering::Equal)),
            FilterOp::Less => values.any(|value| number < value),
            FilterOp::LessOrEqual => values.any(|value| number <= value),
            FilterOp::Greater => values.any(|value| number > value),
            FilterOp::GreaterOrEqual => values.any(|value| number >= value),
            FilterOp::Has => true,
            FilterOp::Like | FilterOp::NotLike | FilterOp::Lacks => false,
        }
    }

    /// Whether a text is one of the values; a negated comparison tests the same texts as its opposite.
    ///
    /// The negation of an order is an order: `not node<gpu5` is `node>=gpu5`, and with several texts one match
    /// suffices.
    fn matches_text(&self, word: &str) -> bool {
        self.values.iter().any(|value| match value {
            FilterValue::Number(_) => false,
            FilterValue::Glob(glob) => glob.matches_text(word),
            FilterValue::Text(text) => match self.op {
                FilterOp::Less => natural_order(word, text).is_lt(),
                FilterOp::LessOrEqual => natural_order(word, text).is_le(),
                FilterOp::Greater => natural_order(word, text).is_gt(),
                FilterOp::GreaterOrEqual => natural_order(word, text).is_ge(),
                _ => word == text,
            },
        })
    }
}
