//! A batch: what one attempt to read one target brought, on its way to the owner.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Dialect, JobList, RecordingPreamble, RecordingStatus, Report, SanitizedText, SourceTopology,
    UnixMs,
};

/// A target's number, given by the sender that announced it and unique in one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TargetId(pub u32);

/// A place that is to be read once a period: announced to the owner before its first batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrapeTarget {
    /// Its number.
    pub id: TargetId,
    /// Its address as a person would write it: `10.0.0.7:9770`, or `this box`.
    pub address: SanitizedText,
    /// The node name that the operator gave it; it wins over what the page says.
    pub node: Option<SanitizedText>,
    /// Where the target comes from: a flag, a file, the demo.
    pub origin: SanitizedText,
}

/// The result of reading one target once. Every target sends one each period: scraped or flagged.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Which target.
    pub target: TargetId,
    /// When the attempt ended, by the owner's clock.
    pub at: UnixMs,
    /// How long the attempt took, in milliseconds.
    pub duration_ms: f64,
    /// What it brought.
    pub outcome: Result<ScrapedPage, ScrapeFailure>,
}

/// A page that was read and decoded.
#[derive(Clone, Debug)]
pub struct ScrapedPage {
    /// What the node said.
    pub report: Report,
    /// In whose words it said it.
    pub dialect: Dialect,
    /// The size of the page in bytes, decompressed.
    pub bytes: u64,
    /// The lines that could not be taken.
    pub rejected: RejectionCounts,
}

/// How many lines of a page were not taken, by reason, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectionCounts {
    /// Reason and count, only those that occurred, in a fixed order.
    pub by_reason: Vec<(SanitizedText, u64)>,
    /// The first rejected line: its number, its reason, its beginning.
    pub first: Option<SanitizedText>,
}

impl RejectionCounts {
    /// All lines that were not taken.
    pub fn total_count(&self) -> u64 {
        self.by_reason.iter().map(|(_, count)| count).sum()
    }
}

/// Why a target brought no page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason", content = "detail")]
pub enum ScrapeFailure {
    /// No connection: refused, unreachable, or the name is unknown.
    Connect(SanitizedText),
    /// gaunt itself may open no more files: this many connections are all that there is room for.
    OutOfFiles(u64),
    /// Not done within the deadline; says in which step.
    Timeout(SanitizedText),
    /// Answered with another status than 200.
    Status(u16),
    /// The connection broke, or what came over it is not HTTP.
    Broken(SanitizedText),
    /// The page is larger than the limit, in bytes.
    TooLarge(u64),
    /// The body is not a page: wrong encoding, not UTF-8, no sample in it.
    NotAPage(SanitizedText),
    /// It wants more than it was given, so that nothing of its page is taken.
    OverBudget(LimitExceeded),
    /// It was not asked, because the settings forbid to go there; says what they would have to say.
    Forbidden(SanitizedText),
    /// It was not asked in this period, because it failed too often in a row: it is asked more seldom for a while.
    Resting(Box<ScrapeFailure>),
    /// The sender was too busy to try in this period.
    Skipped,
    /// The attempt ran out of time while the sender itself was late for so many milliseconds of it: that says nothing of
    /// the target.
    OwnLateness(u64),
}

impl ScrapeFailure {
    /// Whether it says nothing of the target: gaunt itself did not come to read it.
    pub const fn is_own(&self) -> bool {
        matches!(self, Self::Skipped | Self::OwnLateness(_))
    }

    /// The reason as one word, for a label.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::OutOfFiles(_) => "out_of_files",
            Self::Timeout(_) => "timeout",
            Self::Status(_) => "status",
            Self::Broken(_) => "broken",
            Self::TooLarge(_) => "too_large",
            Self::NotAPage(_) => "not_a_page",
            Self::OverBudget(_) => "over_budget",
            Self::Forbidden(_) => "forbidden",
            Self::Resting(_) => "resting",
            Self::Skipped => "skipped",
            Self::OwnLateness(_) => "own_lateness",
        }
    }
}

impl fmt::Display for ScrapeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(why) => write!(f, "cannot connect: {why}"),
            Self::OutOfFiles(most) => write!(
                f,
                "gaunt itself has {most} connections, all that its limit of open files leaves room for"
            ),
            Self::Timeout(step) => write!(f, "no answer in time while {step}"),
            Self::Status(code) => write!(f, "answered with HTTP status {code}"),
            Self::Broken(why) => write!(f, "connection broke: {why}"),
            Self::TooLarge(limit) => write!(f, "page is larger than the limit of {limit} bytes"),
            Self::NotAPage(why) => write!(f, "not an exposition page: {why}"),
            Self::OverBudget(excess) => excess.fmt(f),
            Self::Forbidden(why) => write!(f, "not asked: {why}"),
            Self::Resting(last) => {
                write!(f, "{last}; it failed too often and is asked more seldom")
            }
            Self::Skipped => f.write_str("not tried in this period: the scraper was too busy"),
            Self::OwnLateness(ms) => {
                write!(f, "not judged: gaunt itself was late by {ms} ms while it read the target")
            }
        }
    }
}

/// How far a page goes over a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitExceeded {
    /// Which budget.
    pub budget: Quota,
    /// What the page would need.
    pub found: u64,
    /// What there is for it.
    pub limit: u64,
}

/// What a target may use, of its own and of what all targets share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quota {
    /// How many times its compressed size a page may have.
    Ratio,
    /// Samples on one page, known to gaunt or not.
    Samples,
    /// Series of one target that gaunt keeps.
    Series,
    /// Series of one target that it did not have before, in one minute.
    NewSeries,
    /// Samples in one period, of all targets together.
    AllSamples,
    /// Series that gaunt keeps, of all targets together.
    AllSeries,
    /// Series that their targets did not have before, in one minute, of all targets together.
    AllNewSeries,
    /// Bytes of pages that are being read, of all targets together.
    AllBytes,
    /// Milliseconds of processor time that taking in one page may need.
    IngestTime,
}

impl Quota {
    /// The key of the settings that gives more of it, if there is one.
    pub const fn settings_key(self) -> Option<&'static str> {
        match self {
            Self::Ratio | Self::IngestTime => None,
            Self::Samples => Some("max_samples"),
            Self::Series => Some("max_series"),
            Self::NewSeries => Some("max_new_series"),
            Self::AllSamples => Some("max_all_samples"),
            Self::AllSeries => Some("max_all_series"),
            Self::AllNewSeries => Some("max_all_new_series"),
            Self::AllBytes => Some("max_all_bytes"),
        }
    }
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found, limit, budget } = self;
        match budget {
            Quota::Ratio => {
                write!(f, "page grows to {found} times its compressed size, over {limit}")
            }
            Quota::Samples => {
                write!(f, "page has {found} samples or more, over the limit of {limit}")
            }
            Quota::Series => {
                write!(f, "page has {found} series to keep, over the limit of {limit}")
            }
            Quota::NewSeries => write!(
                f,
                "page brings {found} series that it did not have before, over the {limit} left in this minute"
            ),
            Quota::AllSamples => write!(
                f,
                "page has {found} samples, over its share of {limit}, and all targets together have too many"
            ),
            Quota::AllSeries => write!(
                f,
                "page has {found} series to keep, over its share of {limit}, and all targets together have too many"
            ),
            Quota::AllNewSeries => write!(
                f,
                "page brings {found} series that it did not have before, over the {limit} that all targets have left \
                 in this minute"
            ),
            Quota::IngestTime => write!(
                f,
                "taking in its page needs {found} ms of processor time again and again, over the {limit} ms for a page of \
                 its size; it is taken more seldom"
            ),
            Quota::AllBytes => write!(
                f,
                "page needs {found} bytes, and {limit} are left for pages that are being read"
            ),
        }
    }
}

/// A source of targets, such as a file or a name in DNS, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetSource {
    /// What the targets of this source have as their origin.
    pub name: SanitizedText,
    /// How many targets it names.
    pub targets: u32,
    /// When its list was last taken, by the owner's clock; none if it never was.
    pub taken: Option<UnixMs>,
    /// Why its list of now is not taken, with the next step; the list before stands meanwhile.
    pub trouble: Option<SanitizedText>,
    /// Since when it cannot be read at all; none while it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_since: Option<UnixMs>,
}

/// What a sender puts into the owner's inbox.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// All targets of this sender from now on; those that it named before and names no more are retired.
    Targets(Vec<ScrapeTarget>),
    /// The result of reading one of them.
    Batch(Batch),
    /// What a source says about the wiring, instead of what it said before.
    Topology(SourceTopology),
    /// What a scheduler says about running jobs, instead of what it said before.
    Jobs(JobList),
    /// Where this sender's targets come from, from now on.
    Sources(Vec<TargetSource>),
    /// How the recording of all this stands.
    RecordingStatus(RecordingStatus),
    /// What was known at that time: only for recordings.
    Preamble(RecordingPreamble),
}
