//! Reject reasons: the closed list of reasons why a line of a page is rejected, counted per page.

use crate::{FieldCounts, RejectionCounts, SanitizedText};

/// Declares the reasons with their names, in the order in which they are reported.
macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $word:literal,)*) => {
        /// Why a line is rejected.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[$doc])* $variant,)* }

        impl Reason {
            /// Every reason, in the order of reports.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in answers and labels.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    };
}

reasons! {
    /// The line is not UTF-8.
    NotUtf8 = "not_utf8",
    /// The line is longer than the limit.
    LineTooLong = "line_too_long",
    /// A metric name that the grammar does not allow, or no name at all.
    BadName = "bad_name",
    /// A metric or label name longer than the limit.
    NameTooLong = "name_too_long",
    /// A label that is not `name="value"`, or is not set apart by a comma.
    BadLabel = "bad_label",
    /// The line ends before the labels do.
    UnclosedLabel = "unclosed_label",
    /// A backslash before another character than a backslash, a quote or `n`.
    BadEscape = "bad_escape",
    /// A label value longer than the limit.
    LabelTooLong = "label_too_long",
    /// More labels than the limit.
    TooManyLabels = "too_many_labels",
    /// The same label name twice in one series.
    DuplicateLabel = "duplicate_label",
    /// The bound of a histogram's bucket (`le`) or the quantile of a summary is not a number.
    BadBound = "bad_bound",
    /// The line ends before the value.
    NoValue = "no_value",
    /// The value is not a number that a double can hold.
    BadValue = "bad_value",
    /// The timestamp is not a whole number of milliseconds, or something follows it.
    BadTimestamp = "bad_timestamp",
    /// A duplicate series; the first one counts.
    DuplicateSeries = "duplicate_series",
    /// A sample after the limit was reached.
    TooManySamples = "too_many_samples",
    /// A TYPE line without one of the five types of the format.
    BadType = "bad_type",
    /// A second TYPE line for one name.
    TypeRepeated = "type_repeated",
    /// A TYPE line after samples of its name.
    TypeAfterSamples = "type_after_samples",
    /// A HELP line with an escape that the format does not know.
    BadHelp = "bad_help",
    /// A second HELP line for one name.
    HelpRepeated = "help_repeated",
    /// A known metric without the labels that identify its device.
    NoDevice = "no_device",
    /// A second series for one metric of one device, distinguished by labels that gaunt does not know.
    SameDevice = "same_device",
    /// A series of another node than the page's first: gaunt reads a page as that of one node.
    OtherNode = "other_node",
    /// A mark of absence that names no known metric or reason.
    BadAbsence = "bad_absence",
}

/// How many bytes of the first rejected line are kept for display.
const SHOWN_BYTES: usize = 80;

/// Counts the rejected lines of one page while it is parsed.
#[derive(Debug, Default)]
pub(super) struct RejectionTally {
    counts: [u64; Reason::ALL.len()],
    first: Option<SanitizedText>,
}

impl RejectionTally {
    /// Counts one line and keeps the first one.
    pub(super) fn count_line(&mut self, reason: Reason, line: u64, text: &[u8]) {
        self.count_line_with(reason, text, || line);
    }

    /// Counts one line; its number is computed only if it is kept.
    pub(super) fn count_line_with(
        &mut self,
        reason: Reason,
        text: &[u8],
        line: impl FnOnce() -> u64,
    ) {
        self.counts[reason as usize] += 1;
        if self.first.is_none() {
            let line = line();
            let (excerpt, ellipsis) = match text.get(..SHOWN_BYTES) {
                Some(start) => (start, "…"),
                None => (text, ""),
            };
            let excerpt = String::from_utf8_lossy(excerpt);
            let reason_text = reason.as_str();
            self.first = Some(SanitizedText::new(&format!(
                "line {line}: {reason_text}: {excerpt}{ellipsis}"
            )));
        }
    }

    /// The counts in the order of [`Reason::ALL`], without those that are zero, with those of the page's fields.
    pub(super) fn into_counts(self, fields: FieldCounts) -> RejectionCounts {
        let by_reason = Reason::ALL.iter().zip(self.counts).filter(|(_, count)| *count > 0);
        RejectionCounts {
            by_reason: by_reason.map(|(reason, count)| (reason.as_str().into(), count)).collect(),
            first: self.first,
            fields,
        }
    }
}
