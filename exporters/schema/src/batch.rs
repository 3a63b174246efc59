//! A batch: the result of one attempt to scrape one target, as the engine receives it.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    Dialect, JobList, RecordingPreamble, RecordingStatus, Report, SanitizedText, SourceTopology,
    UnixMs,
};

/// A target's number, assigned by the sender that announced it and unique in one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TargetId(pub u32);

/// An endpoint to scrape once per period. The engine learns of it before its first batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrapeTarget {
    /// Its number.
    pub id: TargetId,
    /// Its address for display: `10.0.0.7:9770`, or `this box`.
    pub address: SanitizedText,
    /// The node name that the operator configured; it takes precedence over the name on the page.
    pub node: Option<SanitizedText>,
    /// The origin of the target: a flag, a file, the demo.
    pub origin: SanitizedText,
}

/// The result of one scrape. Every target sends one per period: a page or a failure.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Which target.
    pub target: TargetId,
    /// When the attempt ended, by the engine's clock.
    pub at: UnixMs,
    /// How long the attempt took, in milliseconds.
    pub duration_ms: f64,
    /// The page, or why there is none.
    pub outcome: Result<ScrapedPage, ScrapeFailure>,
}

/// A page that was scraped and decoded.
#[derive(Clone, Debug)]
pub struct ScrapedPage {
    /// The decoded content.
    pub report: Report,
    /// The exporter format of the page.
    pub dialect: Dialect,
    /// The size of the page in bytes, decompressed.
    pub bytes: u64,
    /// The rejected lines.
    pub rejected: RejectionCounts,
}

/// The number of rejected lines by reason, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RejectionCounts {
    /// Reason and count in a fixed order; reasons with a count of zero are left out.
    pub by_reason: Vec<(SanitizedText, u64)>,
    /// The first rejected line: its number, its reason, its beginning.
    pub first: Option<SanitizedText>,
    /// The fields that were not understood, if there are any.
    #[serde(default, skip_serializing_if = "FieldCounts::is_empty")]
    pub fields: FieldCounts,
}

/// The most names of fields that a page's counts list.
pub const MAX_FIELD_NAMES: usize = 32;

/// How many fields of a page are understood, where some are not: those of dcgm-exporter, which has a name for each field
/// alone, and all names of a page of which nothing is understood.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct FieldCounts {
    /// Fields that are understood.
    pub known: u32,
    /// Fields that are not, because gaunt does not use them or because this version does not know their names.
    pub unknown: u32,
    // Pages of one layout share the list.
    /// The names of these, sorted, the first 32.
    pub names: Arc<[SanitizedText]>,
}

impl FieldCounts {
    /// Whether every field is understood.
    pub const fn is_empty(&self) -> bool {
        self.unknown == 0
    }

    /// Whether most fields are not understood: an exporter that is newer than gaunt.
    pub const fn is_mostly_unknown(&self) -> bool {
        self.unknown > self.known
    }
}

impl RejectionCounts {
    /// The total of all rejected lines.
    pub fn total_count(&self) -> u64 {
        self.by_reason.iter().map(|(_, count)| count).sum()
    }
}

/// Why a scrape returned no page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "reason", content = "detail")]
pub enum ScrapeFailure {
    /// No connection: refused, unreachable, or the host name does not resolve.
    Connect(SanitizedText),
    /// gaunt itself is out of file descriptors; the number is how many connections fit.
    OutOfFiles(u64),
    /// The deadline passed; the text names the step.
    Timeout(SanitizedText),
    /// The HTTP status is not 200.
    Status(u16),
    /// The connection broke, or the response is not HTTP.
    Broken(SanitizedText),
    /// The page is larger than the limit, in bytes.
    TooLarge(u64),
    /// The body is not a metrics page: wrong encoding, not UTF-8, or no sample in it.
    NotAPage(SanitizedText),
    /// The target exceeds a quota, so the whole page is rejected.
    OverBudget(LimitExceeded),
    /// The Prometheus that scrapes the target reports it as down; the text names that server.
    ReportedDown(SanitizedText),
    /// The settings forbid this address, so no request was sent; the text names the required setting.
    Forbidden(SanitizedText),
    /// Backoff: not scraped in this period because too many attempts in a row failed. The last failure is inside.
    Resting(Box<ScrapeFailure>),
    /// The sender was too busy to scrape in this period.
    Skipped,
    /// The attempt timed out while the sender itself was late for this many milliseconds, so it is no evidence about
    /// the target.
    OwnLateness(u64),
}

impl ScrapeFailure {
    /// Whether the failure is gaunt's own and therefore no evidence about the target.
    pub const fn is_own(&self) -> bool {
        matches!(self, Self::Skipped | Self::OwnLateness(_))
    }

    /// The reason as a label value.
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
            Self::ReportedDown(_) => "reported_down",
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
            Self::OutOfFiles(limit) => write!(
                f,
                "gaunt itself has {limit} connections, the most that its limit of open files allows"
            ),
            Self::Timeout(step) => write!(f, "timeout while {step}"),
            Self::Status(code) => write!(f, "server returned HTTP status {code}"),
            Self::Broken(why) => write!(f, "connection broke: {why}"),
            Self::TooLarge(limit) => write!(f, "page is larger than the limit of {limit} bytes"),
            Self::NotAPage(why) => write!(f, "not an exposition page: {why}"),
            Self::OverBudget(excess) => excess.fmt(f),
            Self::ReportedDown(server) => write!(f, "{server} could not scrape it: up is 0"),
            Self::Forbidden(why) => write!(f, "not scraped: {why}"),
            Self::Resting(last) => write!(f, "{last}; backing off after repeated failures"),
            Self::Skipped => f.write_str("not scraped in this period: the scraper was too busy"),
            Self::OwnLateness(ms) => {
                write!(f, "not counted: gaunt itself was late by {ms} ms during the scrape")
            }
        }
    }
}

/// By how much a page exceeds a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct LimitExceeded {
    /// Which quota.
    pub budget: Quota,
    /// What the page needs.
    pub found: u64,
    /// The limit.
    pub limit: u64,
}

/// A limit on what a target may use, per target or for all targets together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Quota {
    /// The largest ratio of decompressed to compressed size.
    Ratio,
    /// Samples on one page, known to gaunt or not.
    Samples,
    /// Stored series of one target.
    Series,
    /// New series of one target in one minute.
    NewSeries,
    /// Samples of all targets together in one period.
    AllSamples,
    /// Stored series of all targets together.
    AllSeries,
    /// New series of all targets together in one minute.
    AllNewSeries,
    /// Bytes of pages in flight, of all targets together.
    AllBytes,
    /// Milliseconds of CPU time to ingest one page.
    IngestTime,
}

impl Quota {
    /// The settings key that raises this quota, if there is one.
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
                write!(f, "page is {found} times its compressed size, over the limit of {limit}")
            }
            Quota::Samples => {
                write!(f, "page has {found} samples or more, over the limit of {limit}")
            }
            Quota::Series => {
                write!(f, "page has {found} stored series, over the limit of {limit}")
            }
            Quota::NewSeries => {
                write!(f, "page has {found} new series, over the {limit} left in this minute")
            }
            Quota::AllSamples => write!(
                f,
                "page has {found} samples, over its share of {limit}; all targets together exceed their limit"
            ),
            Quota::AllSeries => write!(
                f,
                "page has {found} stored series, over its share of {limit}; all targets together exceed their limit"
            ),
            Quota::AllNewSeries => write!(
                f,
                "page has {found} new series, over the {limit} left for all targets in this minute"
            ),
            Quota::IngestTime => write!(
                f,
                "page repeatedly takes {found} ms of CPU time to ingest, over the {limit} ms for its size; it is ingested \
                 less often"
            ),
            Quota::AllBytes => {
                write!(f, "page needs {found} bytes, over the {limit} left for pages in flight")
            }
        }
    }
}

/// The status of a source of targets, such as a file or a DNS name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct TargetSource {
    /// The origin that its targets carry.
    pub name: SanitizedText,
    /// How many targets it lists.
    pub targets: u32,
    /// When its list was last loaded, by the engine's clock; none if it never was.
    pub taken: Option<UnixMs>,
    /// Why the current list was not loaded, with the next step; the previous list stays in force.
    pub trouble: Option<SanitizedText>,
    /// Since when the source is unreadable; none while it is readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_since: Option<UnixMs>,
    /// What the last refresh has cost its server; none if the source lists addresses only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<SourceLoad>,
}

/// What a refresh of a source costs its server: the mean of the last 5 minutes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SourceLoad {
    /// Queries that were sent.
    pub queries: u64,
    /// Samples that were read.
    pub samples: u64,
    /// How long all answers took together, in milliseconds.
    pub answer_ms: f64,
    /// The time between two refreshes, in milliseconds.
    pub refresh_ms: u64,
    /// How far what is shown is behind the present, in milliseconds.
    pub delay_ms: u64,
    /// How far the server's clock is ahead of that of this machine, in milliseconds, to a second; none if it states no
    /// time.
    #[serde(default)]
    pub skew_ms: Option<i64>,
    /// Whether the samples were received: `queries` are requests of the sender, and `answer_ms` is what reading them took.
    #[serde(default)]
    pub is_received: bool,
}

/// The status of one of the operator's files of topology or jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SiteFileStatus {
    /// The file or directory.
    pub file: SanitizedText,
    /// Why it is not read, or what in it was skipped, with its line and the next step. What was read of it before stays
    /// in force.
    pub trouble: Option<SanitizedText>,
}

/// A message that a sender puts into the engine's inbox.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// All targets of this sender from now on; targets of an earlier list that are missing here are retired.
    Targets(Vec<ScrapeTarget>),
    /// The result of one scrape.
    Batch(Batch),
    /// The topology of one source; it replaces the previous one.
    Topology(SourceTopology),
    /// The running jobs of one scheduler; they replace the previous list.
    Jobs(JobList),
    /// The sources of this sender's targets from now on.
    Sources(Vec<TargetSource>),
    /// All site files of this sender from now on; only what they state is recorded.
    SiteFiles(Vec<SiteFileStatus>),
    /// The status of the recording.
    RecordingStatus(RecordingStatus),
    /// The state at that time: only in recordings.
    Preamble(RecordingPreamble),
}
