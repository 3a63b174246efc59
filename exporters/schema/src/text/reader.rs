//! The strict reader: every line of a page is taken or refused with a reason, and a bad line spoils no other.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use memchr::memchr;

use super::{Label, Limits, Reason, labels, number, series::Series};

/// Pages rarely have shorter lines than this on average; the table of series is sized by it.
const SHORT_LINE_BYTES: usize = 48;

/// A line that was taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Line<'r, 'a> {
    /// A value.
    Sample(Sample<'r, 'a>),
    /// What a metric means.
    Help {
        /// The metric.
        name: &'a str,
        /// The sentence as it stands on the page, escapes included.
        text: &'a str,
    },
    /// What a metric is.
    Type {
        /// The metric.
        name: &'a str,
        /// One of `counter`, `gauge`, `histogram`, `summary` and `untyped`.
        kind: &'a str,
    },
}

/// One value of one series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'r, 'a> {
    /// The metric.
    pub name: &'a str,
    /// The labels in the order of the page.
    pub labels: &'r [Label<'a>],
    /// The value.
    pub value: f64,
    /// The value as it stands on the page: a double does not hold every whole number of 64 bits.
    pub digits: &'a str,
    /// Milliseconds since the epoch, where the page says so.
    pub timestamp: Option<i64>,
}

impl<'a> Sample<'_, 'a> {
    /// The label of this name; an empty one counts as none.
    pub fn label(&self, name: &str) -> Option<&Label<'a>> {
        self.labels.iter().find(|label| label.name == name && !label.raw.is_empty())
    }
}

/// A line that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject<'a> {
    /// Why.
    pub reason: Reason,
    /// The number of the line, from 1.
    pub line: u64,
    /// The line.
    pub text: &'a [u8],
}

/// What was seen of a metric name so far.
#[derive(Clone, Copy, Debug, Default)]
struct Family {
    help: bool,
    kind: bool,
    sampled: bool,
}

/// Takes a page apart. It allocates a fixed number of tables for the page and nothing for a line.
#[derive(Debug)]
pub struct Reader<'a> {
    body: &'a [u8],
    limits: Limits,
    /// Where the current line begins and ends.
    line: (usize, usize),
    number: u64,
    next: usize,
    samples: usize,
    labels: Vec<Label<'a>>,
    series: Series<'a>,
    families: HashMap<&'a str, Family, RandomState>,
    /// The name of the last sample: those of one metric mostly stand together.
    last: &'a str,
}

impl<'a> Reader<'a> {
    /// A reader at the beginning of `body`. The limit on the body itself is the caller's to hold; positions beyond
    /// 4 GiB are not read.
    pub fn new(body: &'a [u8], limits: &Limits) -> Self {
        let body = &body[..body.len().min(u32::MAX as usize)];
        let expected = limits.samples.min(body.len() / SHORT_LINE_BYTES + 1);
        Self {
            body,
            limits: *limits,
            line: (0, 0),
            number: 0,
            next: 0,
            samples: 0,
            labels: Vec::with_capacity(limits.labels.min(64)),
            series: Series::with_capacity(expected),
            families: HashMap::default(),
            last: "",
        }
    }

    /// The number of the current line, from 1.
    pub fn line_number(&self) -> u64 {
        self.number
    }

    /// The current line as it stands on the page, without its end.
    pub fn line(&self) -> &'a [u8] {
        &self.body[self.line.0..self.line.1]
    }

    /// The next line that says something: blank lines and comments are passed over.
    #[expect(clippy::should_implement_trait, reason = "a line borrows from the reader")]
    pub fn next(&mut self) -> Option<Result<Line<'_, 'a>, Reject<'a>>> {
        let bare = loop {
            self.advance()?;
            let text = match self.text() {
                Ok("") => continue,
                Ok(text) => text,
                Err(reason) => return Some(Err(self.reject(reason))),
            };
            let Some(comment) = text.strip_prefix('#') else {
                match self.sample(text) {
                    Ok(bare) => break bare,
                    Err(reason) => return Some(Err(self.reject(reason))),
                }
            };
            match self.comment(comment) {
                Ok(None) => {}
                Ok(Some(line)) => return Some(Ok(line)),
                Err(reason) => return Some(Err(self.reject(reason))),
            }
        };
        let Bare { name, value, digits, timestamp } = bare;
        let labels = &self.labels;
        Some(Ok(Line::Sample(Sample { name, labels, value, digits, timestamp })))
    }

    /// Steps to the next line; nothing at the end of the page.
    #[inline]
    fn advance(&mut self) -> Option<()> {
        let start = self.next;
        let rest = self.body.get(start..).filter(|rest| !rest.is_empty())?;
        let length = memchr(b'\n', rest).unwrap_or(rest.len());
        let carriage = length > 0 && rest[length - 1] == b'\r';
        self.line = (start, start + length - usize::from(carriage));
        self.next = start + length + 1;
        self.number += 1;
        Some(())
    }

    /// The current line as text, without blanks before it.
    #[inline]
    fn text(&self) -> Result<&'a str, Reason> {
        let line = self.line();
        if line.len() > self.limits.line_bytes {
            return Err(Reason::LineTooLong);
        }
        let text = std::str::from_utf8(line).map_err(|_| Reason::NotUtf8)?;
        Ok(&text[labels::skip_blanks(line, 0)..])
    }

    fn reject(&self, reason: Reason) -> Reject<'a> {
        Reject { reason, line: self.number, text: self.line() }
    }

    /// Takes a sample; its labels are left in `self.labels`.
    #[inline]
    fn sample(&mut self, text: &'a str) -> Result<Bare<'a>, Reason> {
        let bytes = text.as_bytes();
        let length = labels::name_length(bytes);
        if length > self.limits.name_bytes {
            return Err(Reason::NameTooLong);
        }
        let name = &text[..length];
        let mut at = labels::skip_blanks(bytes, length);
        self.labels.clear();
        match bytes.get(at) {
            _ if length == 0 => return Err(Reason::BadName),
            Some(b'{') => at = labels::parse(text, at, &self.limits, &mut self.labels)?,
            Some(_) if at == length => return Err(Reason::BadName),
            _ => {}
        }
        let (digits, value, timestamp) = value(text, at)?;
        if Series::has_twins(&self.labels) {
            return Err(Reason::DuplicateLabel);
        }
        if self.samples == self.limits.samples {
            return Err(Reason::TooManySamples);
        }
        let start = self.line.1 - bytes.len();
        if !self.series.insert(self.body, (start, self.line.1), name, &self.labels) {
            return Err(Reason::DuplicateSeries);
        }
        self.samples += 1;
        if self.last != name {
            self.families.entry(name).or_default().sampled = true;
            self.last = name;
        }
        Ok(Bare { name, value, digits, timestamp })
    }

    /// Takes what follows a hash sign: a HELP or TYPE line, or nothing of interest.
    fn comment<'r>(&mut self, text: &'a str) -> Result<Option<Line<'r, 'a>>, Reason> {
        let (word, rest) = next_word(text);
        if !matches!(word, "HELP" | "TYPE") {
            return Ok(None);
        }
        let (name, rest) = next_word(rest);
        if name.is_empty() || labels::name_length(name.as_bytes()) != name.len() {
            return Err(Reason::BadName);
        }
        if name.len() > self.limits.name_bytes {
            return Err(Reason::NameTooLong);
        }
        if word == "HELP" { self.help(name, rest) } else { self.kind(name, rest) }.map(Some)
    }

    fn help<'r>(&mut self, name: &'a str, rest: &'a str) -> Result<Line<'r, 'a>, Reason> {
        let text = &rest[labels::skip_blanks(rest.as_bytes(), 0)..];
        let mut escapes = text.split('\\').skip(1);
        while let Some(after) = escapes.next() {
            // Nothing between two backslashes: the second one is the escaped character.
            let doubled = after.is_empty() && escapes.next().is_some();
            if !doubled && !after.starts_with('n') {
                return Err(Reason::BadHelp);
            }
        }
        let family = self.families.entry(name).or_default();
        if std::mem::replace(&mut family.help, true) {
            return Err(Reason::HelpRepeated);
        }
        Ok(Line::Help { name, text })
    }

    fn kind<'r>(&mut self, name: &'a str, rest: &'a str) -> Result<Line<'r, 'a>, Reason> {
        let (kind, rest) = next_word(rest);
        let known = matches!(kind, "counter" | "gauge" | "histogram" | "summary" | "untyped");
        if !known || !next_word(rest).0.is_empty() {
            return Err(Reason::BadType);
        }
        let family = self.families.entry(name).or_default();
        if family.sampled {
            return Err(Reason::TypeAfterSamples);
        }
        if std::mem::replace(&mut family.kind, true) {
            return Err(Reason::TypeRepeated);
        }
        Ok(Line::Type { name, kind })
    }
}

/// A sample without its labels.
struct Bare<'a> {
    name: &'a str,
    value: f64,
    digits: &'a str,
    timestamp: Option<i64>,
}

/// The value from `at`, as it stands and as a number, and the timestamp after it.
#[inline]
fn value(text: &str, at: usize) -> Result<(&str, f64, Option<i64>), Reason> {
    let bytes = text.as_bytes();
    let start = labels::skip_blanks(bytes, at);
    let end = labels::skip_word(bytes, start);
    if start == end {
        return Err(Reason::NoValue);
    }
    let digits = &text[start..end];
    let value = number::parse(digits).ok_or(Reason::BadValue)?;
    let start = labels::skip_blanks(bytes, end);
    if start == bytes.len() {
        return Ok((digits, value, None));
    }
    let end = labels::skip_word(bytes, start);
    let timestamp = number::timestamp(&text[start..end]).ok_or(Reason::BadTimestamp)?;
    if labels::skip_blanks(bytes, end) != bytes.len() {
        return Err(Reason::BadTimestamp);
    }
    Ok((digits, value, Some(timestamp)))
}

/// The first word of `text` and what follows it.
fn next_word(text: &str) -> (&str, &str) {
    let start = labels::skip_blanks(text.as_bytes(), 0);
    text[start..].split_at(labels::skip_word(text.as_bytes(), start) - start)
}
