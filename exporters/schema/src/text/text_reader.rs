//! The strict reader: every line of a page is accepted or rejected with a reason, and a bad line affects no other.

use memchr::{memchr, memchr_iter};

use super::{
    PageLimits, PageLine, Reason, SeriesLabel, TextSample, families::FamilyTracker, labels, number,
    series::SeriesSet,
};

/// Bytes of a page that are scanned to estimate its number of lines, which sizes the table of series.
const LOOKED_AT_BYTES: usize = 4 << 10;

/// A line that was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectedLine<'a> {
    /// The reason.
    pub reason: Reason,
    /// The number of the line, from 1.
    pub line: u64,
    /// The line.
    pub text: &'a [u8],
}

/// Splits a page into lines. It allocates a fixed number of tables per page and nothing per line.
#[derive(Debug)]
pub struct TextReader<'a> {
    body: &'a [u8],
    /// The prefix of the body that is valid UTF-8; later lines are checked one by one.
    valid: &'a str,
    limits: PageLimits,
    /// The range of the current line.
    line: (usize, usize),
    number: u64,
    next: usize,
    samples: usize,
    labels: Vec<SeriesLabel<'a>>,
    series: SeriesSet<'a>,
    families: FamilyTracker<'a>,
}

impl<'a> TextReader<'a> {
    /// A reader at the beginning of `body`. The caller enforces the limit on the body itself; positions beyond 4 GiB
    /// are not read.
    pub fn new(body: &'a [u8], limits: &PageLimits) -> Self {
        let body = &body[..body.len().min(u32::MAX as usize)];
        let start = &body[..body.len().min(LOOKED_AT_BYTES)];
        let lines = memchr_iter(b'\n', start).count() + 1;
        let expected = limits.samples.min(lines * (body.len() / LOOKED_AT_BYTES + 1));
        let valid = match std::str::from_utf8(body) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&body[..error.valid_up_to()]).unwrap_or_default(),
        };
        Self {
            body,
            valid,
            limits: *limits,
            line: (0, 0),
            number: 0,
            next: 0,
            samples: 0,
            labels: Vec::with_capacity(limits.labels.min(64)),
            series: SeriesSet::with_capacity(expected),
            families: FamilyTracker::default(),
        }
    }

    /// The number of the current line, from 1.
    pub fn line_number(&self) -> u64 {
        self.number
    }

    /// The current line as on the page, without its end.
    pub fn current_line(&self) -> &'a [u8] {
        &self.body[self.line.0..self.line.1]
    }

    /// The next line with content: blank lines and comments are skipped.
    #[expect(clippy::should_implement_trait, reason = "a line borrows from the reader")]
    pub fn next(&mut self) -> Option<Result<PageLine<'_, 'a>, RejectedLine<'a>>> {
        let unlabeled = loop {
            self.advance_line()?;
            let text = match self.line_text() {
                Ok("") => continue,
                Ok(text) => text,
                Err(reason) => return Some(Err(self.reject_line(reason))),
            };
            let Some(comment) = text.strip_prefix('#') else {
                match self.parse_sample(text) {
                    Ok(unlabeled) => break unlabeled,
                    Err(reason) => return Some(Err(self.reject_line(reason))),
                }
            };
            match self.families.parse_comment(comment, &self.limits) {
                Ok(None) => {}
                Ok(Some(line)) => return Some(Ok(line)),
                Err(reason) => return Some(Err(self.reject_line(reason))),
            }
        };
        let UnlabeledSample { name, value, digits, timestamp } = unlabeled;
        let (labels, line) = (&self.labels, self.current_line());
        Some(Ok(PageLine::Sample(TextSample { name, labels, value, digits, timestamp, line })))
    }

    /// Moves to the next line; none at the end of the page.
    #[inline]
    fn advance_line(&mut self) -> Option<()> {
        let start = self.next;
        let rest = self.body.get(start..).filter(|rest| !rest.is_empty())?;
        let length = memchr(b'\n', rest).unwrap_or(rest.len());
        let has_carriage_return = length > 0 && rest[length - 1] == b'\r';
        self.line = (start, start + length - usize::from(has_carriage_return));
        self.next = start + length + 1;
        self.number += 1;
        Some(())
    }

    /// The current line as text, without leading blanks.
    #[inline]
    fn line_text(&self) -> Result<&'a str, Reason> {
        let line = self.current_line();
        if line.len() > self.limits.line_bytes {
            return Err(Reason::LineTooLong);
        }
        let text = match self.valid.get(self.line.0..self.line.1) {
            Some(text) => text,
            None => std::str::from_utf8(line).map_err(|_| Reason::NotUtf8)?,
        };
        Ok(&text[labels::skip_blanks(line, 0)..])
    }

    fn reject_line(&self, reason: Reason) -> RejectedLine<'a> {
        RejectedLine { reason, line: self.number, text: self.current_line() }
    }

    /// Parses a sample; its labels are left in `self.labels`.
    #[inline]
    fn parse_sample(&mut self, text: &'a str) -> Result<UnlabeledSample<'a>, Reason> {
        let bytes = text.as_bytes();
        let length = self.families.name_length(text);
        if length > self.limits.name_bytes {
            return Err(Reason::NameTooLong);
        }
        let name = &text[..length];
        let mut offset = labels::skip_blanks(bytes, length);
        self.labels.clear();
        match bytes.get(offset) {
            _ if length == 0 => return Err(Reason::BadName),
            Some(b'{') => offset = labels::parse(text, offset, &self.limits, &mut self.labels)?,
            Some(_) if offset == length => return Err(Reason::BadName),
            _ => {}
        }
        let (digits, value, timestamp) = parse_value(text, offset)?;
        if SeriesSet::has_duplicate_names(&self.labels) {
            return Err(Reason::DuplicateLabel);
        }
        if self.samples == self.limits.samples {
            return Err(Reason::TooManySamples);
        }
        if let Some(label) = self.families.bound_label(name) {
            let bound = self.labels.iter().find(|other| other.name == label);
            if bound.is_some_and(|bound| number::parse(bound.raw).is_none()) {
                return Err(Reason::BadBound);
            }
        }
        let start = self.line.1 - bytes.len();
        if !self.series.insert(self.body, (start, self.line.1), name, &self.labels) {
            return Err(Reason::DuplicateSeries);
        }
        self.samples += 1;
        self.families.record_sample(name);
        Ok(UnlabeledSample { name, value, digits, timestamp })
    }
}

/// A sample without its labels.
struct UnlabeledSample<'a> {
    name: &'a str,
    value: f64,
    digits: &'a str,
    timestamp: Option<i64>,
}

/// Parses the value from `offset`, returned raw and as a number, and the timestamp after it.
#[inline]
fn parse_value(text: &str, offset: usize) -> Result<(&str, f64, Option<i64>), Reason> {
    let bytes = text.as_bytes();
    let start = labels::skip_blanks(bytes, offset);
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
    let timestamp = number::parse_timestamp(&text[start..end]).ok_or(Reason::BadTimestamp)?;
    if labels::skip_blanks(bytes, end) != bytes.len() {
        return Err(Reason::BadTimestamp);
    }
    Ok((digits, value, Some(timestamp)))
}
