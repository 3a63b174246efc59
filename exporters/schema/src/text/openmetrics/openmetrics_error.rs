//! The errors of OpenMetrics parsing, each of which names the offending text.

use thiserror::Error;

/// Why a page is rejected. OpenMetrics is all or nothing: a page with an error is rejected as a whole.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(super) enum OpenMetricsError {
    #[error("the page is not UTF-8")]
    NotUtf8,
    #[error("no `# EOF` at the end: the page is truncated or not OpenMetrics")]
    NoEnd,
    #[error("content after `# EOF`")]
    AfterEnd,
    #[error("blank line, which OpenMetrics does not allow")]
    Blank,
    #[error("line of {0} bytes, longer than the limit")]
    LongLine(usize),
    #[error("comment that is not HELP, TYPE, UNIT or EOF")]
    Comment,
    #[error("`{0}` is not a valid name")]
    Name(String),
    #[error(
        "{0} has the invalid type `{1}`; must be counter, gauge, histogram, gaugehistogram, stateset, info, summary or unknown"
    )]
    Type(String, String),
    #[error("second {1} of {0}")]
    Repeated(String, &'static str),
    #[error("{1} of {0} after its samples")]
    Late(String, &'static str),
    #[error("{0} is interleaved with other families")]
    Interleaved(String),
    #[error("{0} and {1} share a sample name")]
    Clash(String, String),
    #[error("the name of {0} does not end in its unit {1}")]
    Unit(String, String),
    #[error("{0} has a unit, which info and stateset do not allow")]
    Unitless(String),
    #[error("labels are not `{{name=\"value\",…}}`")]
    Labels,
    #[error("duplicate label {0}")]
    Twin(String),
    #[error("more labels than the limit of {0}")]
    ManyLabels(usize),
    #[error("more samples than the limit of {0}")]
    ManySamples(usize),
    #[error("the parts of a sample must be separated by one blank")]
    Blanks,
    #[error("`{0}` is not a number")]
    Number(String),
    #[error("`{0}` is not a timestamp in seconds")]
    Timestamp(String),
    #[error("samples of the counter {0} must end in _total or _created")]
    NoTotal(String),
    #[error("{0} has a sample with an invalid suffix: {1}")]
    Ending(String, String),
    #[error("{0} is {1}: a counter, count or sum must be a number not below zero")]
    Counter(String, String),
    #[error("{0} is {1}: an info must be 1")]
    Info(String, String),
    #[error("{0} is {1}: a state must be 0 or 1")]
    State(String, String),
    #[error("{0} has no label {1}")]
    NoLabel(String, String),
    #[error("{0} has the quantile `{1}`; must be a number from 0 to 1")]
    Quantile(String, String),
    #[error("the buckets of {0} are not in order of `le`, or their counts decrease")]
    Buckets(String),
    #[error("the buckets of {0} do not end at le=\"+Inf\"")]
    Infinity(String),
    #[error("the count of {0} differs from its bucket le=\"+Inf\"")]
    Count(String),
    #[error("{0} has a sum without a count, or a count without a sum")]
    CountWithoutSum(String),
    #[error("{0} has buckets below zero and a sum, which a histogram cannot have together")]
    SumOfNegatives(String),
    #[error("the sum of {0} is below zero, and none of its buckets is")]
    NegativeSum(String),
    #[error("{0} is {1}: a value at a quantile must not be below zero")]
    NegativeQuantile(String, String),
    #[error("exemplar on {0}: only counter totals and buckets may have one")]
    Exemplar(String),
    #[error("exemplar of {0} characters, over the limit of 128")]
    LongExemplar(usize),
    #[error("duplicate series")]
    Duplicate,
    #[error("points of one series must have timestamps, none before the previous one")]
    Order,
    #[error("samples of one metric of {0} are interleaved with others")]
    Apart(String),
}
