//! Filter parser: recursive descent, bounded in depth and number, with errors that point at the token.

use gaunt_schema::GlobPattern;

use super::{
    Filter, FilterComparison, FilterError, FilterExpr, FilterOp, FilterValue, MAX_BYTES,
    MAX_COLUMNS, MAX_DEPTH, MAX_ROWS, MAX_SORTS, MAX_VALUES, SortKey,
    filter_error::nearest_word,
    filter_token::{FilterToken, FilterTokenKind, parse_tokens},
    unit_words,
};
use crate::field::{FieldKind, Subject, SubjectField};

/// Keywords, wherever a field could be.
pub(super) const KEYWORDS: [&str; 8] =
    ["and", "or", "not", "has", "sort", "limit", "offset", "columns"];

pub(super) fn parse_filter(subject: Subject, text: &str) -> Result<Filter, FilterError> {
    let text = text.trim();
    if text.len() > MAX_BYTES {
        let error = FilterError::new(text, MAX_BYTES, text.len(), "the filter is too long");
        return Err(error.with_hint(&format!("the maximum is {MAX_BYTES} bytes")));
    }
    let tokens = parse_tokens(text)?;
    let mut parser = FilterParser { subject, text, tokens, at: 0, values: 0 };
    let mut filter = Filter { text: text.to_owned(), ..Filter::all_rows(subject) };
    if !parser.is_at_clause() && parser.peek_token().kind != FilterTokenKind::End {
        filter.expr = Some(parser.parse_rows(false, 0)?);
    }
    filter.rows = parser.peek_token().start.min(text.len());
    parser.parse_clauses(&mut filter)?;
    Ok(filter)
}

struct FilterParser<'a> {
    subject: Subject,
    text: &'a str,
    tokens: Vec<FilterToken<'a>>,
    at: usize,
    values: usize,
}

impl<'a> FilterParser<'a> {
    /// Parses rows joined by `or`; `negated` if a `not` precedes them.
    fn parse_rows(&mut self, negated: bool, depth: usize) -> Result<FilterExpr, FilterError> {
        self.parse_chain("or", negated, depth)
    }

    fn parse_chain(
        &mut self,
        word: &str,
        negated: bool,
        depth: usize,
    ) -> Result<FilterExpr, FilterError> {
        let inner = |parser: &mut Self| {
            if word == "or" {
                parser.parse_chain("and", negated, depth)
            } else {
                parser.parse_term(negated, depth)
            }
        };
        let mut parts = vec![inner(self)?];
        while self.accept_keyword(word) {
            parts.push(inner(self)?);
        }
        // A negated `or` matches if all of its negated parts match.
        Ok(match parts.len() {
            1 => parts.remove(0),
            _ if (word == "or") == negated => FilterExpr::All(parts),
            _ => FilterExpr::Any(parts),
        })
    }

    fn parse_term(&mut self, negated: bool, depth: usize) -> Result<FilterExpr, FilterError> {
        if depth >= MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} nested parentheses and nots");
            return Err(self.error_here(&message));
        }
        if self.accept_keyword("not") {
            return self.parse_term(!negated, depth + 1);
        }
        if self.peek_token().kind == FilterTokenKind::Open {
            let open = self.next();
            let rows = self.parse_rows(negated, depth + 1)?;
            if self.peek_token().kind != FilterTokenKind::Close {
                let hint = format!("close the parenthesis at column {}", self.column_of(&open));
                return Err(self.unexpected_token("and, or or )").with_hint(&hint));
            }
            self.next();
            return Ok(rows);
        }
        if self.accept_keyword("has") {
            let field = self.parse_field()?;
            let op = if negated { FilterOp::Lacks } else { FilterOp::Has };
            return Ok(FilterExpr::Test(FilterComparison { field, op, values: Vec::new() }));
        }
        self.parse_comparison(negated)
    }

    fn parse_comparison(&mut self, negated: bool) -> Result<FilterExpr, FilterError> {
        let name = self.peek_token().clone();
        let field = self.parse_field()?;
        let FilterTokenKind::Op(op) = self.peek_token().kind else {
            let error = self.unexpected_token("a comparison: = != < <= > >= ~ !~");
            let rest = &self.text[name.start..name.end];
            return Err(error.with_hint(&format!("has {rest} tests whether a value exists")));
        };
        let sign = self.next();
        if matches!((op, field.kind), (FilterOp::Like | FilterOp::NotLike, FieldKind::Number(_))) {
            let message = format!("{} is a number; ~ matches text", field.name);
            return Err(self.error_at(&sign, &message).with_hint("use = != < <= > >="));
        }
        let mut values = vec![self.parse_value(field, op)?];
        while self.peek_token().kind == FilterTokenKind::Comma {
            let comma = self.next();
            if !matches!(
                op,
                FilterOp::Equal | FilterOp::NotEqual | FilterOp::Like | FilterOp::NotLike
            ) {
                let message = format!("{} takes one value", op.as_str());
                return Err(self
                    .error_at(&comma, &message)
                    .with_hint("only = != ~ !~ take a list"));
            }
            values.push(self.parse_value(field, op)?);
        }
        let op = if negated { op.to_negated() } else { op };
        Ok(FilterExpr::Test(FilterComparison { field, op, values }))
    }

    fn parse_value(
        &mut self,
        field: &'static SubjectField,
        op: FilterOp,
    ) -> Result<FilterValue, FilterError> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(self.error_here(&format!("more than {MAX_VALUES} values in one filter")));
        }
        let token = self.peek_token().clone();
        let text = match &token.kind {
            FilterTokenKind::Word(word) => (*word).to_owned(),
            FilterTokenKind::Quoted(text) => text.clone(),
            _ => return Err(self.unexpected_token(&format!("a value for {}", field.name))),
        };
        self.next();
        match field.kind {
            FieldKind::Number(unit) => self.parse_number(field, unit, &token, &text),
            FieldKind::Text | FieldKind::Texts
                if matches!(op, FilterOp::Like | FilterOp::NotLike) =>
            {
                let glob = GlobPattern::parse_search(&text).map_err(|_| {
                    let error = self.error_at(&token, "unclosed bracket");
                    error.with_hint("a pattern may contain * ? and [a-z]")
                })?;
                Ok(FilterValue::Glob(glob))
            }
            FieldKind::Text | FieldKind::Texts => self.parse_word(field, op, &token, text),
        }
    }

    /// Checks values of a closed list: a comparison with an impossible value is an error.
    fn parse_word(
        &self,
        field: &SubjectField,
        op: FilterOp,
        token: &FilterToken<'a>,
        text: String,
    ) -> Result<FilterValue, FilterError> {
        let known = field.allowed_values(self.subject);
        let is_unknown = !known.is_empty() && !known.contains(&text.as_str());
        if is_unknown && matches!(op, FilterOp::Equal | FilterOp::NotEqual) {
            let error = self.error_at(token, &format!("{} is never {text}", field.name));
            return Err(match nearest_word(&text, known.iter().copied()) {
                Some(meant) => error.with_hint(&format!("did you mean {meant}?")),
                None => error.with_hint(&format!("it is one of {}", known.join(", "))),
            });
        }
        Ok(FilterValue::Text(text))
    }

    fn parse_number(
        &mut self,
        field: &SubjectField,
        unit: gaunt_schema::unit::Unit,
        token: &FilterToken<'a>,
        text: &str,
    ) -> Result<FilterValue, FilterError> {
        let example = unit_words::example_of_unit(unit);
        let Some((value, rest)) = unit_words::split_number(text) else {
            let error = self.error_at(token, &format!("{text} is not a number"));
            return Err(error.with_hint(&format!("{} is {example}", field.name)));
        };
        let mut unit_at = token.clone();
        unit_at.start = token.end - rest.len().min(token.end - token.start);
        let mut word = rest;
        // `30 %`: the unit may be a separate token if it cannot be anything else.
        let unit_token = self.peek_token().clone();
        if word.is_empty()
            && let FilterTokenKind::Word(unit) = unit_token.kind
            && !KEYWORDS.iter().any(|keyword| unit.eq_ignore_ascii_case(keyword))
        {
            self.next();
            (word, unit_at) = (unit, unit_token);
        }
        if word.is_empty() {
            return Ok(FilterValue::Number(value));
        }
        match unit_words::unit_factor(word, unit) {
            Some(factor) if (value * factor).is_finite() => Ok(FilterValue::Number(value * factor)),
            _ => {
                let error =
                    self.error_at(&unit_at, &format!("{word} is not a unit of {}", field.name));
                Err(error.with_hint(&format!("it is {example}")))
            }
        }
    }

    fn parse_clauses(&mut self, filter: &mut Filter) -> Result<(), FilterError> {
        let mut seen_clauses: Vec<&str> = Vec::new();
        while self.peek_token().kind != FilterTokenKind::End {
            let token = self.peek_token().clone();
            let clause = match token.kind {
                FilterTokenKind::Word(word) => {
                    KEYWORDS[4..].iter().find(|c| c.eq_ignore_ascii_case(word))
                }
                _ => None,
            };
            let Some(clause) = clause else {
                return Err(self.unexpected_token("and, or, sort, limit, offset or columns"));
            };
            if seen_clauses.contains(clause) {
                return Err(self.error_at(&token, &format!("{clause} is given twice")));
            }
            seen_clauses.push(clause);
            self.next();
            match *clause {
                "sort" => filter.sorts = self.parse_sorts()?,
                "limit" => filter.limit = Some(self.parse_count(1)?),
                "offset" => filter.offset = self.parse_count(0)?,
                _ => filter.columns = self.parse_columns()?,
            }
        }
        Ok(())
    }

    fn parse_sorts(&mut self) -> Result<Vec<SortKey>, FilterError> {
        let mut sorts = Vec::new();
        loop {
            if sorts.len() == MAX_SORTS {
                return Err(self.error_here(&format!("more than {MAX_SORTS} sort fields")));
            }
            let field = self.parse_field()?;
            let descending = self.accept_keyword("desc");
            if !descending {
                self.accept_keyword("asc");
            }
            sorts.push(SortKey { field, descending });
            if self.peek_token().kind != FilterTokenKind::Comma {
                return Ok(sorts);
            }
            self.next();
        }
    }

    fn parse_columns(&mut self) -> Result<Vec<&'static SubjectField>, FilterError> {
        let mut columns: Vec<&'static SubjectField> = Vec::new();
        loop {
            if columns.len() == MAX_COLUMNS {
                return Err(self.error_here(&format!("more than {MAX_COLUMNS} columns")));
            }
            let name_token = self.peek_token().clone();
            let field = self.parse_field()?;
            if columns.contains(&field) {
                return Err(
                    self.error_at(&name_token, &format!("{} is already a column", field.name))
                );
            }
            columns.push(field);
            if self.peek_token().kind != FilterTokenKind::Comma {
                return Ok(columns);
            }
            self.next();
        }
    }

    fn parse_count(&mut self, least: u32) -> Result<u32, FilterError> {
        let allowed = format!("a whole number from {least} to {MAX_ROWS}");
        let FilterTokenKind::Word(word) = self.peek_token().kind else {
            return Err(self.unexpected_token(&allowed));
        };
        match word.parse::<u32>() {
            Ok(count) if (least..=MAX_ROWS).contains(&count) => {
                self.next();
                Ok(count)
            }
            _ => Err(self.unexpected_token(&allowed)),
        }
    }

    fn parse_field(&mut self) -> Result<&'static SubjectField, FilterError> {
        let token = self.peek_token().clone();
        let FilterTokenKind::Word(word) = token.kind else {
            return Err(self.unexpected_token("a field"));
        };
        if let Some(field) = self.subject.find_field(word) {
            self.next();
            return Ok(field);
        }
        if KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(word)) {
            return Err(self.unexpected_token("a field"));
        }
        let rows = self.subject.as_str();
        let error = self.error_at(&token, &format!("{rows} have no field {word}"));
        let names = self.subject.all_fields().iter().map(|field| field.name.as_str());
        if let Some(meant) = nearest_word(word, names) {
            return Err(error.with_hint(&format!("did you mean {meant}?")));
        }
        let other_subject = Subject::ALL.into_iter().find(|other| other.find_field(word).is_some());
        Err(error.with_hint(&match other_subject {
            Some(other) => format!("{} have it", other.as_str()),
            None => "`gaunt metrics` lists the metric names".to_owned(),
        }))
    }

    /// Whether a clause begins here.
    fn is_at_clause(&self) -> bool {
        let FilterTokenKind::Word(word) = self.peek_token().kind else { return false };
        KEYWORDS[4..].iter().any(|clause| clause.eq_ignore_ascii_case(word))
    }

    /// Consumes a keyword if it is next.
    fn accept_keyword(&mut self, keyword: &str) -> bool {
        let is_next = matches!(self.peek_token().kind, FilterTokenKind::Word(w) if w.eq_ignore_ascii_case(keyword));
        if is_next {
            self.next();
        }
        is_next
    }

    fn peek_token(&self) -> &FilterToken<'a> {
        &self.tokens[self.at]
    }

    /// Returns the next token; never moves past the end.
    fn next(&mut self) -> FilterToken<'a> {
        let token = self.tokens[self.at].clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn column_of(&self, token: &FilterToken<'a>) -> usize {
        self.text[..token.start].chars().count() + 1
    }

    /// Error: `expected` is missing here.
    fn unexpected_token(&self, expected: &str) -> FilterError {
        let token = self.peek_token();
        let found = match token.kind {
            FilterTokenKind::End => "end of filter".to_owned(),
            _ => self.text[token.start..token.end].to_owned(),
        };
        self.error_at(token, &format!("expected {expected}, found {found}"))
    }

    /// Error about the token here.
    fn error_here(&self, message: &str) -> FilterError {
        self.error_at(self.peek_token(), message)
    }

    fn error_at(&self, token: &FilterToken<'a>, message: &str) -> FilterError {
        FilterError::new(self.text, token.start, token.end, message)
    }
}
