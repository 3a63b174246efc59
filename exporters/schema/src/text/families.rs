//! HELP and TYPE lines: at most one per name, and a type before the samples it applies to.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use memchr::memchr;

use super::{PageLimits, PageLine, Reason, labels};

/// What the page has contained of a metric name so far.
#[derive(Clone, Copy, Debug, Default)]
struct NameState<'a> {
    help: bool,
    kind: Option<&'a str>,
    sampled: bool,
}

/// The metric names of a page.
#[derive(Debug, Default)]
pub(super) struct FamilyTracker<'a> {
    names: HashMap<&'a str, NameState<'a>, RandomState>,
    /// The name of the last sample: samples of one metric are mostly adjacent.
    last: &'a str,
    /// The label of its series whose value must be a number.
    last_bound: Option<&'static str>,
}

impl<'a> FamilyTracker<'a> {
    /// The length of the metric name with which `text` begins; zero if it does not.
    ///
    /// It is mostly the name of the previous sample, and a comparison is faster than a scan of each byte.
    #[inline]
    pub(super) fn name_length(&self, text: &str) -> usize {
        let bytes = text.as_bytes();
        let last = self.last.len();
        if last != 0 && text.starts_with(self.last) && !labels::continues_name(bytes, last) {
            last
        } else {
            labels::name_length(bytes)
        }
    }

    /// The label whose value must be a number in series of this name: `le` of the buckets of a histogram, `quantile` of
    /// a summary.
    #[inline]
    pub(super) fn bound_label(&self, name: &str) -> Option<&'static str> {
        if self.last == name {
            return self.last_bound;
        }
        let kind = |name: &str| self.names.get(name).and_then(|state| state.kind);
        match name.strip_suffix("_bucket").and_then(kind) {
            Some("histogram") => Some("le"),
            _ if kind(name) == Some("summary") => Some("quantile"),
            _ => None,
        }
    }

    /// Records a sample of this name.
    #[inline]
    pub(super) fn record_sample(&mut self, name: &'a str) {
        if self.last != name {
            self.last_bound = self.bound_label(name);
            self.names.entry(name).or_default().sampled = true;
            self.last = name;
        }
    }

    /// Parses the text after a hash sign: a HELP or TYPE line, or a comment.
    pub(super) fn parse_comment<'r>(
        &mut self,
        text: &'a str,
        limits: &PageLimits,
    ) -> Result<Option<PageLine<'r, 'a>>, Reason> {
        let (keyword, rest) = next_word(text);
        if !matches!(keyword, "HELP" | "TYPE") {
            return Ok(None);
        }
        let rest = &rest[labels::skip_blanks(rest.as_bytes(), 0)..];
        if rest.is_empty() {
            // Without a name it is an ordinary comment.
            return Ok(None);
        }
        let (name, rest) = rest.split_at(labels::name_length(rest.as_bytes()));
        if name.is_empty() || !(rest.is_empty() || rest.starts_with([' ', '\t'])) {
            return Err(Reason::BadName);
        }
        if name.len() > limits.name_bytes {
            return Err(Reason::NameTooLong);
        }
        if keyword == "HELP" { self.parse_help(name, rest) } else { self.parse_type(name, rest) }
            .map(Some)
    }

    fn parse_help<'r>(&mut self, name: &'a str, rest: &'a str) -> Result<PageLine<'r, 'a>, Reason> {
        let text = &rest[labels::skip_blanks(rest.as_bytes(), 0)..];
        if !has_valid_escapes(text) {
            return Err(Reason::BadHelp);
        }
        let family = self.names.entry(name).or_default();
        // An empty text, from which an editor may have cut the last blank, is no help.
        if !text.is_empty() && std::mem::replace(&mut family.help, true) {
            return Err(Reason::HelpRepeated);
        }
        Ok(PageLine::Help { name, text })
    }

    fn parse_type<'r>(&mut self, name: &'a str, rest: &'a str) -> Result<PageLine<'r, 'a>, Reason> {
        let (kind, rest) = next_word(rest);
        let is_known = matches!(kind, "counter" | "gauge" | "histogram" | "summary" | "untyped");
        if !is_known || !next_word(rest).0.is_empty() {
            return Err(Reason::BadType);
        }
        let family = self.names.entry(name).or_default();
        if family.sampled {
            return Err(Reason::TypeAfterSamples);
        }
        if family.kind.replace(kind).is_some() {
            return Err(Reason::TypeRepeated);
        }
        Ok(PageLine::Type { name, kind })
    }
}

/// Whether every backslash of a help text precedes another one or `n`.
fn has_valid_escapes(text: &str) -> bool {
    let mut rest = text.as_bytes();
    while let Some(offset) = memchr(b'\\', rest) {
        if !matches!(rest.get(offset + 1), Some(b'\\' | b'n')) {
            return false;
        }
        rest = &rest[offset + 2..];
    }
    true
}

/// The first word of `text` and what follows it.
fn next_word(text: &str) -> (&str, &str) {
    let start = labels::skip_blanks(text.as_bytes(), 0);
    text[start..].split_at(labels::skip_word(text.as_bytes(), start) - start)
}
