//! An accepted line of a page: a sample, a help text or a type.

use super::SeriesLabel;

/// A line that was accepted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PageLine<'r, 'a> {
    /// A value.
    Sample(TextSample<'r, 'a>),
    /// The help text of a metric.
    Help {
        /// The metric.
        name: &'a str,
        /// The help text as on the page, escapes included.
        text: &'a str,
    },
    /// The type of a metric.
    Type {
        /// The metric.
        name: &'a str,
        /// One of `counter`, `gauge`, `histogram`, `summary` and `untyped`.
        kind: &'a str,
    },
}

/// One value of one series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TextSample<'r, 'a> {
    /// The metric.
    pub name: &'a str,
    /// The labels in the order of the page.
    pub labels: &'r [SeriesLabel<'a>],
    /// The value.
    pub value: f64,
    /// The value as on the page: a double cannot represent every 64-bit integer.
    pub digits: &'a str,
    /// Milliseconds since the epoch, if the line has a timestamp.
    pub timestamp: Option<i64>,
    /// The whole line, without its end.
    pub line: &'a [u8],
}

impl<'a> TextSample<'_, 'a> {
    /// The label of this name; an empty one counts as none.
    pub fn find_label(&self, name: &str) -> Option<&SeriesLabel<'a>> {
        self.labels.iter().find(|label| label.name == name && !label.raw.is_empty())
    }
}
