//! The errors of OpenMetrics parsing, each of which names the offending text.

use thiserror::Error;

/// Why a page is rejected. OpenMetrics is all or nothing: a page with an error is rejected as a whole.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(super) enum OpenMetricsError {
    #[error("the page is not UTF-8")]
    NotUtf8,
    #[error(
        "the page ends without `# EOF`: it was cut off, or its exporter does not speak OpenMetrics"
    )]
    NoEnd,
    #[error("something follows `# EOF`")]
    AfterEnd,
    #[error("a blank line: OpenMetrics has none")]
    Blank,
    #[error("a line of {0} bytes is longer than the limit")]
    LongLine(usize),
    #[error("a comment that is neither HELP, TYPE, UNIT nor EOF")]
    Comment,
    #[error("`{0}` is not a name")]
    Name(String),
    #[error(
        "{0} has no type `{1}`: counter, gauge, histogram, gaugehistogram, stateset, info, summary, unknown are"
    )]
    Type(String, String),
    #[error("a second {1} for {0}")]
    Repeated(String, &'static str),
    #[error("{1} of {0} stands after its samples")]
    Late(String, &'static str),
    #[error("{0} comes back after other families: families are not interleaved")]
    Interleaved(String),
    #[error("{0} and {1} would share the name of a sample")]
    Clash(String, String),
    #[error("the unit of {0} is {1}, and its name does not end in it")]
    Unit(String, String),
    #[error("{0} has a unit: info and stateset have none")]
    Unitless(String),
    #[error("labels are not `{{name=\"value\",…}}`")]
    Labels,
    #[error("the label {0} stands twice")]
    Twin(String),
    #[error("more labels than the limit of {0}")]
    ManyLabels(usize),
    #[error("more samples than the limit of {0}")]
    ManySamples(usize),
    #[error("one blank, and one only, stands between the parts of a sample")]
    Blanks,
    #[error("`{0}` is not a number")]
    Number(String),
    #[error("`{0}` is not a timestamp in seconds")]
    Timestamp(String),
    #[error("a sample of the counter {0} ends in _total or _created")]
    NoTotal(String),
    #[error("{0} has no sample of this ending: {1}")]
    Ending(String, String),
    #[error("{0} is {1}: a counter is a number that is not below zero")]
    Counter(String, String),
    #[error("{0} is {1}: an info is 1")]
    Info(String, String),
    #[error("{0} is {1}: a state is 0 or 1")]
    State(String, String),
    #[error("{0} has no label {1}")]
    NoLabel(String, String),
    #[error("{0} has `{1}` where a number from 0 to 1 stands")]
    Quantile(String, String),
    #[error("the buckets of {0} are not in order of `le`, or one counts less than the one before")]
    Buckets(String),
    #[error("the buckets of {0} do not end at le=\"+Inf\"")]
    Infinity(String),
    #[error("an exemplar behind {0}: only counters' totals and buckets have them")]
    Exemplar(String),
    #[error("an exemplar of {0} characters: 128 are the most")]
    LongExemplar(usize),
    #[error("the series stood on the page before")]
    Duplicate,
    #[error("points of one series are in order of time, and each has a timestamp")]
    Order,
    #[error("samples of one metric of {0} stand apart: metrics are not interleaved")]
    Apart(String),
    #[error("no sample in it")]
    Empty,
}
