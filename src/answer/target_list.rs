//! Targets: what is to be read, and the fate of the last attempt.

use std::collections::BTreeMap;

use gaunt_schema::{
    Dialect, FindingKind, RecordingStatus, RejectionCounts, SanitizedText, ScrapeFailure,
    TargetSource, UnixMs,
};
use serde::{Deserialize, Serialize};

/// Every target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetList {
    /// The owner's clock when this was true.
    pub at: UnixMs,
    /// The targets, in the order in which they were named.
    pub targets: Vec<TargetLine>,
    /// How many there are in all.
    #[serde(default)]
    pub total: u32,
    /// How many of them match the filter; the list may be only a page of them.
    #[serde(default)]
    pub matched: u32,
    /// Where the targets come from.
    #[serde(default)]
    pub sources: Vec<TargetSource>,
    /// What was done since the start.
    pub totals: CumulativeTotals,
    /// What limits leave out.
    #[serde(default)]
    pub left_out: LimitOmissions,
    /// How the recording stands, if there is one.
    #[serde(default)]
    pub keeping: Option<RecordingStatus>,
}

/// Counters since the owner started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CumulativeTotals {
    /// Scrapes by outcome: `ok`, or the reason of the failure.
    pub scrapes: BTreeMap<SanitizedText, u64>,
    /// Samples taken from pages.
    pub samples: u64,
    /// Lines of pages that were not taken, by reason.
    pub rejected: BTreeMap<SanitizedText, u64>,
    /// Findings opened, by kind.
    pub findings_opened: BTreeMap<FindingKind, u64>,
}

/// What limits leave out, so that no source harms the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitOmissions {
    /// Findings whose evidence is there now and that are not listed because there is no place for them, by kind.
    pub findings_without_place: BTreeMap<FindingKind, u32>,
    /// Devices that pages name now beyond what one node may have, by class.
    pub refused_devices: BTreeMap<SanitizedText, u64>,
    /// Targets whose last attempt says nothing of them because gaunt itself was late.
    pub unjudged_targets: u32,
    /// Batches that were not taken since the start, by reason: `unannounced` or `overtaken`.
    pub dropped_batches: BTreeMap<SanitizedText, u64>,
}

/// Whether a target is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetState {
    /// It has not been tried yet.
    Pending,
    /// Its last attempt succeeded, within its time.
    Live,
    /// Its last attempt failed, or none came within its time.
    Down,
}

impl TargetState {
    /// The word in labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Live => "live",
            Self::Down => "down",
        }
    }
}

/// One target in a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetLine {
    /// Its address.
    pub address: SanitizedText,
    /// The node that it speaks for, once known.
    pub node: Option<SanitizedText>,
    /// Where it comes from.
    pub origin: SanitizedText,
    /// Whether it is read.
    pub state: TargetState,
    /// In whose words it speaks, once known.
    pub dialect: Option<Dialect>,
    /// The end of the last attempt, by the owner's clock.
    pub last_attempt: Option<UnixMs>,
    /// The end of the last attempt that succeeded.
    pub last_success: Option<UnixMs>,
    /// Why the last attempt failed, if it did.
    pub failure: Option<ScrapeFailure>,
    /// The failure as a sentence with the next step, or another flag: two targets of one dialect claim one node.
    pub message: Option<SanitizedText>,
    /// How long the last attempt took, in milliseconds.
    pub duration_ms: Option<f64>,
    /// Samples on its last page.
    pub samples: u64,
    /// Bytes of its last page.
    pub bytes: u64,
    /// Lines of its last page that were not taken.
    pub rejected: RejectionCounts,
    /// Periods in which it was neither scraped nor reported as failed; anything but 0 is a fault of gaunt.
    pub missed: u64,
    /// Results of attempts at it that were not taken, because a later one had been taken before.
    #[serde(default)]
    pub dropped_batches: u64,
}
