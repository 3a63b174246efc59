//! Reading a filter: descent by the grammar, bounded in depth and number, with errors that point at the token.

use super::{
    Expr, Filter, FilterError, Glob, MAX_BYTES, MAX_COLUMNS, MAX_DEPTH, MAX_ROWS, MAX_SORTS,
    MAX_VALUES, Op, Sort, Test, Value,
    error::nearest,
    quantity,
    token::{Kind, Token, tokens},
};
use crate::answer::field::{Field, FieldKind, Subject};

/// Words that mean something of their own, wherever a field could stand.
pub(super) const KEYWORDS: [&str; 8] =
    ["and", "or", "not", "has", "sort", "limit", "offset", "columns"];

pub(super) fn filter(subject: Subject, text: &str) -> Result<Filter, FilterError> {
    let text = text.trim();
    if text.len() > MAX_BYTES {
        let error = FilterError::new(text, MAX_BYTES, text.len(), "the filter is too long");
        return Err(error.hint(&format!("{MAX_BYTES} bytes are read")));
    }
    let tokens = tokens(text)?;
    let mut parser = Parser { subject, text, tokens, at: 0, values: 0 };
    let mut filter = Filter { text: text.to_owned(), ..Filter::all(subject) };
    if !parser.at_clause() && parser.peek().kind != Kind::End {
        filter.expr = Some(parser.rows(false, 0)?);
    }
    filter.rows = parser.peek().start.min(text.len());
    parser.clauses(&mut filter)?;
    Ok(filter)
}

struct Parser<'a> {
    subject: Subject,
    text: &'a str,
    tokens: Vec<Token<'a>>,
    at: usize,
    values: usize,
}

impl<'a> Parser<'a> {
    /// Rows joined by `or`; `negated` says that a `not` stands before them.
    fn rows(&mut self, negated: bool, depth: usize) -> Result<Expr, FilterError> {
        self.chain("or", negated, depth)
    }

    fn chain(&mut self, word: &str, negated: bool, depth: usize) -> Result<Expr, FilterError> {
        let inner = |parser: &mut Self| {
            if word == "or" {
                parser.chain("and", negated, depth)
            } else {
                parser.term(negated, depth)
            }
        };
        let mut parts = vec![inner(self)?];
        while self.takes(word) {
            parts.push(inner(self)?);
        }
        // A negated `or` holds if all its parts, negated, hold.
        Ok(match parts.len() {
            1 => parts.remove(0),
            _ if (word == "or") == negated => Expr::All(parts),
            _ => Expr::Any(parts),
        })
    }

    fn term(&mut self, negated: bool, depth: usize) -> Result<Expr, FilterError> {
        if depth >= MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} parentheses and nots inside each other");
            return Err(self.wrong(&message));
        }
        if self.takes("not") {
            return self.term(!negated, depth + 1);
        }
        if self.peek().kind == Kind::Open {
            let open = self.next();
            let rows = self.rows(negated, depth + 1)?;
            if self.peek().kind != Kind::Close {
                let place = format!("close the parenthesis of column {}", self.column(&open));
                return Err(self.unexpected("and, or or )").hint(&place));
            }
            self.next();
            return Ok(rows);
        }
        if self.takes("has") {
            let field = self.field()?;
            let op = if negated { Op::Lacks } else { Op::Has };
            return Ok(Expr::Test(Test { field, op, values: Vec::new() }));
        }
        self.test(negated)
    }

    fn test(&mut self, negated: bool) -> Result<Expr, FilterError> {
        let name = self.peek().clone();
        let field = self.field()?;
        let Kind::Op(op) = self.peek().kind else {
            let error = self.unexpected("a comparison: = != < <= > >= ~ !~");
            let rest = &self.text[name.start..name.end];
            return Err(error.hint(&format!("has {rest} asks whether there is one")));
        };
        let sign = self.next();
        if matches!((op, field.kind), (Op::Like | Op::NotLike, FieldKind::Number(_))) {
            let message = format!("{} is a number, and ~ compares text", field.name);
            return Err(self.error(&sign, &message).hint("use = != < <= > >="));
        }
        let mut values = vec![self.value(field, op)?];
        while self.peek().kind == Kind::Comma {
            let comma = self.next();
            if !matches!(op, Op::Equal | Op::NotEqual | Op::Like | Op::NotLike) {
                let message = format!("{} takes one value", op.as_str());
                return Err(self.error(&comma, &message).hint("only = != ~ !~ take a list"));
            }
            values.push(self.value(field, op)?);
        }
        let op = if negated { op.negated() } else { op };
        Ok(Expr::Test(Test { field, op, values }))
    }

    fn value(&mut self, field: &'static Field, op: Op) -> Result<Value, FilterError> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(self.wrong(&format!("more than {MAX_VALUES} values in one filter")));
        }
        let token = self.peek().clone();
        let text = match &token.kind {
            Kind::Word(word) => (*word).to_owned(),
            Kind::Quoted(text) => text.clone(),
            _ => return Err(self.unexpected(&format!("a value for {}", field.name))),
        };
        self.next();
        match field.kind {
            FieldKind::Number(unit) => self.number(field, unit, &token, &text),
            FieldKind::Text | FieldKind::Texts if matches!(op, Op::Like | Op::NotLike) => {
                let glob = Glob::new(&text).map_err(|_| {
                    let error = self.error(&token, "the bracket is never closed");
                    error.hint("a pattern knows * ? and [a-z]")
                })?;
                Ok(Value::Glob(glob))
            }
            FieldKind::Text | FieldKind::Texts => self.word(field, op, &token, text),
        }
    }

    /// A word of a closed list is checked: a comparison with a word that cannot be is a slip.
    fn word(
        &self,
        field: &Field,
        op: Op,
        token: &Token<'a>,
        text: String,
    ) -> Result<Value, FilterError> {
        let known = field.words(self.subject);
        let slip = !known.is_empty() && !known.contains(&text.as_str());
        if slip && matches!(op, Op::Equal | Op::NotEqual) {
            let error = self.error(token, &format!("{} is never {text}", field.name));
            return Err(match nearest(&text, known.iter().copied()) {
                Some(meant) => error.hint(&format!("did you mean {meant}?")),
                None => error.hint(&format!("it is one of {}", known.join(", "))),
            });
        }
        Ok(Value::Text(text))
    }

    fn number(
        &mut self,
        field: &Field,
        unit: gaunt_schema::unit::Unit,
        token: &Token<'a>,
        text: &str,
    ) -> Result<Value, FilterError> {
        let called = quantity::called(unit);
        let Some((value, rest)) = quantity::number(text) else {
            let error = self.error(token, &format!("{text} is not a number"));
            return Err(error.hint(&format!("{} is {called}", field.name)));
        };
        let mut unit_at = token.clone();
        unit_at.start = token.end - rest.len().min(token.end - token.start);
        let mut word = rest;
        // `30 %`: the unit may stand apart, as long as it cannot be anything else.
        let apart = self.peek().clone();
        if word.is_empty()
            && let Kind::Word(unit) = apart.kind
            && !KEYWORDS.iter().any(|keyword| unit.eq_ignore_ascii_case(keyword))
        {
            self.next();
            (word, unit_at) = (unit, apart);
        }
        if word.is_empty() {
            return Ok(Value::Number(value));
        }
        match quantity::factor(word, unit) {
            Some(factor) if (value * factor).is_finite() => Ok(Value::Number(value * factor)),
            _ => {
                let error = self.error(&unit_at, &format!("{word} is no unit of {}", field.name));
                Err(error.hint(&format!("it is {called}")))
            }
        }
    }

    fn clauses(&mut self, filter: &mut Filter) -> Result<(), FilterError> {
        let mut said: Vec<&str> = Vec::new();
        while self.peek().kind != Kind::End {
            let token = self.peek().clone();
            let clause = match token.kind {
                Kind::Word(word) => KEYWORDS[4..].iter().find(|c| c.eq_ignore_ascii_case(word)),
                _ => None,
            };
            let Some(clause) = clause else {
                return Err(self.unexpected("and, or, sort, limit, offset or columns"));
            };
            if said.contains(clause) {
                return Err(self.error(&token, &format!("{clause} is said twice")));
            }
            said.push(clause);
            self.next();
            match *clause {
                "sort" => filter.sorts = self.sorts()?,
                "limit" => filter.limit = Some(self.count(1)?),
                "offset" => filter.offset = self.count(0)?,
                _ => filter.columns = self.columns()?,
            }
        }
        Ok(())
    }

    fn sorts(&mut self) -> Result<Vec<Sort>, FilterError> {
        let mut sorts = Vec::new();
        loop {
            if sorts.len() == MAX_SORTS {
                return Err(self.wrong(&format!("more than {MAX_SORTS} fields to sort by")));
            }
            let field = self.field()?;
            let descending = self.takes("desc");
            if !descending {
                self.takes("asc");
            }
            sorts.push(Sort { field, descending });
            if self.peek().kind != Kind::Comma {
                return Ok(sorts);
            }
            self.next();
        }
    }

    fn columns(&mut self) -> Result<Vec<&'static Field>, FilterError> {
        let mut columns: Vec<&'static Field> = Vec::new();
        loop {
            if columns.len() == MAX_COLUMNS {
                return Err(self.wrong(&format!("more than {MAX_COLUMNS} columns")));
            }
            let place = self.peek().clone();
            let field = self.field()?;
            if columns.contains(&field) {
                return Err(self.error(&place, &format!("{} is a column already", field.name)));
            }
            columns.push(field);
            if self.peek().kind != Kind::Comma {
                return Ok(columns);
            }
            self.next();
        }
    }

    fn count(&mut self, least: u32) -> Result<u32, FilterError> {
        let allowed = format!("a whole number from {least} to {MAX_ROWS}");
        let Kind::Word(word) = self.peek().kind else { return Err(self.unexpected(&allowed)) };
        match word.parse::<u32>() {
            Ok(count) if (least..=MAX_ROWS).contains(&count) => {
                self.next();
                Ok(count)
            }
            _ => Err(self.unexpected(&allowed)),
        }
    }

    fn field(&mut self) -> Result<&'static Field, FilterError> {
        let token = self.peek().clone();
        let Kind::Word(word) = token.kind else { return Err(self.unexpected("a field")) };
        if let Some(field) = self.subject.field(word) {
            self.next();
            return Ok(field);
        }
        if KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(word)) {
            return Err(self.unexpected("a field"));
        }
        let rows = self.subject.as_str();
        let error = self.error(&token, &format!("{rows} have no field {word}"));
        let names = self.subject.fields().iter().map(|field| field.name.as_str());
        if let Some(meant) = nearest(word, names) {
            return Err(error.hint(&format!("did you mean {meant}?")));
        }
        let elsewhere = Subject::ALL.into_iter().find(|other| other.field(word).is_some());
        Err(error.hint(&match elsewhere {
            Some(other) => format!("{} have it", other.as_str()),
            None => "`gaunt metrics` lists the names of metrics".to_owned(),
        }))
    }

    /// Whether a clause begins here.
    fn at_clause(&self) -> bool {
        let Kind::Word(word) = self.peek().kind else { return false };
        KEYWORDS[4..].iter().any(|clause| clause.eq_ignore_ascii_case(word))
    }

    /// Takes a keyword if it stands here.
    fn takes(&mut self, keyword: &str) -> bool {
        let here = matches!(self.peek().kind, Kind::Word(w) if w.eq_ignore_ascii_case(keyword));
        if here {
            self.next();
        }
        here
    }

    fn peek(&self) -> &Token<'a> {
        &self.tokens[self.at]
    }

    /// The token here; the end is never passed.
    fn next(&mut self) -> Token<'a> {
        let token = self.tokens[self.at].clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn column(&self, token: &Token<'a>) -> usize {
        self.text[..token.start].chars().count() + 1
    }

    /// Something else than `expected` stands here.
    fn unexpected(&self, expected: &str) -> FilterError {
        let token = self.peek();
        let found = match token.kind {
            Kind::End => "the filter ends".to_owned(),
            _ => format!("{} stands", &self.text[token.start..token.end]),
        };
        self.error(token, &format!("{found} where {expected} is expected"))
    }

    /// What stands here is too much.
    fn wrong(&self, message: &str) -> FilterError {
        self.error(self.peek(), message)
    }

    fn error(&self, token: &Token<'a>, message: &str) -> FilterError {
        FilterError::new(self.text, token.start, token.end, message)
    }
}
