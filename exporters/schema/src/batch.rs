//! A batch: what one attempt to read one target brought, on its way to the owner.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Dialect, JobList, Report, Safe, Topology, UnixMs};

/// A target's number, given by the sender that announced it and unique in one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TargetId(pub u32);

/// A place that is to be read once a period: announced to the owner before its first batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Its number.
    pub id: TargetId,
    /// Its address as a person would write it: `10.0.0.7:9770`, or `this box`.
    pub address: Safe,
    /// The node name that the operator gave it; it wins over what the page says.
    pub node: Option<Safe>,
    /// Where the target comes from: a flag, a file, the demo.
    pub origin: Safe,
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
    pub outcome: Result<Page, Failure>,
}

/// A page that was read and decoded.
#[derive(Clone, Debug)]
pub struct Page {
    /// What the node said.
    pub report: Report,
    /// In whose words it said it.
    pub dialect: Dialect,
    /// The size of the page in bytes, decompressed.
    pub bytes: u64,
    /// The lines that could not be taken.
    pub rejected: Rejected,
}

/// How many lines of a page were not taken, by reason, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// Reason and count, only those that occurred, in a fixed order.
    pub by_reason: Vec<(Safe, u64)>,
    /// The first rejected line: its number, its reason, its beginning.
    pub first: Option<Safe>,
}

impl Rejected {
    /// All lines that were not taken.
    pub fn total(&self) -> u64 {
        self.by_reason.iter().map(|(_, count)| count).sum()
    }
}

/// Why a target brought no page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason", content = "detail")]
pub enum Failure {
    /// No connection: refused, unreachable, or the name is unknown.
    Connect(Safe),
    /// Not done within the deadline; says in which step.
    Timeout(Safe),
    /// Answered with another status than 200.
    Status(u16),
    /// The connection broke, or what came over it is not HTTP.
    Broken(Safe),
    /// The page is larger than the limit, in bytes.
    TooLarge(u64),
    /// The body is not a page: wrong encoding, not UTF-8, no sample in it.
    NotAPage(Safe),
    /// The sender was too busy to try in this period.
    Skipped,
}

impl Failure {
    /// The reason as one word, for a label.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Timeout(_) => "timeout",
            Self::Status(_) => "status",
            Self::Broken(_) => "broken",
            Self::TooLarge(_) => "too_large",
            Self::NotAPage(_) => "not_a_page",
            Self::Skipped => "skipped",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(why) => write!(f, "cannot connect: {why}"),
            Self::Timeout(step) => write!(f, "no answer in time while {step}"),
            Self::Status(code) => write!(f, "answered with HTTP status {code}"),
            Self::Broken(why) => write!(f, "connection broke: {why}"),
            Self::TooLarge(limit) => write!(f, "page is larger than the limit of {limit} bytes"),
            Self::NotAPage(why) => write!(f, "not an exposition page: {why}"),
            Self::Skipped => f.write_str("not tried in this period: the scraper was too busy"),
        }
    }
}

/// What a sender puts into the owner's inbox.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// All targets of this sender from now on; those that it named before and names no more are retired.
    Targets(Vec<Target>),
    /// The result of reading one of them.
    Batch(Batch),
    /// What a source says about the wiring, instead of what it said before.
    Topology(Topology),
    /// What a scheduler says about running jobs, instead of what it said before.
    Jobs(JobList),
}
