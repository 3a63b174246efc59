//! Targets: the scrape targets and the results of their last scrapes.

use std::collections::BTreeMap;

use gaunt_schema::{
    CertificateLine, Dialect, FindingKind, RecordingStatus, RejectionCounts, SanitizedText,
    ScrapeFailure, SiteFileStatus, TargetSource, UnixMs,
};
use serde::{Deserialize, Serialize};

use super::{PeerLine, StoreLine};

/// All targets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TargetList {
    /// Engine time of this answer.
    pub at: UnixMs,
    /// The targets, in configured order.
    pub targets: Vec<TargetLine>,
    /// Number of targets before filtering.
    #[serde(default)]
    pub total: u32,
    /// Number of targets that match the filter; the list may be only a page of them.
    #[serde(default)]
    pub matched: u32,
    /// Sources of the targets.
    #[serde(default)]
    pub sources: Vec<TargetSource>,
    /// The operator's files of topology and jobs.
    #[serde(default)]
    pub site_files: Vec<SiteFileStatus>,
    /// Totals since the start.
    pub totals: CumulativeTotals,
    /// What limits leave out.
    #[serde(default)]
    pub left_out: LimitOmissions,
    /// Status of the recording, if there is one.
    #[serde(default)]
    pub keeping: Option<RecordingStatus>,
    /// The other aggregators of this cluster.
    #[serde(default)]
    pub peers: Vec<PeerLine>,
    /// The store that verdicts are written to, if there is one.
    #[serde(default)]
    pub store: Option<StoreLine>,
    /// The certificates that the aggregator itself presents.
    #[serde(default)]
    pub certificates: Vec<CertificateLine>,
}

/// Counters since the engine started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CumulativeTotals {
    /// Scrapes by outcome: `ok`, or the reason of the failure.
    pub scrapes: BTreeMap<SanitizedText, u64>,
    /// Samples taken from pages.
    pub samples: u64,
    /// Lines of pages that were rejected, by reason.
    pub rejected: BTreeMap<SanitizedText, u64>,
    /// Findings opened, by kind.
    pub findings_opened: BTreeMap<FindingKind, u64>,
}

/// What limits leave out, so that no source harms the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LimitOmissions {
    /// Findings with present evidence that are not listed because of the limit, by kind.
    pub findings_without_place: BTreeMap<FindingKind, u32>,
    /// Devices on current pages beyond the limit of one node, by class.
    pub refused_devices: BTreeMap<SanitizedText, u64>,
    /// Targets whose last attempt is not judged because gaunt itself was late.
    pub unjudged_targets: u32,
    /// Batches dropped since the start, by reason: `unannounced` or `overtaken`.
    pub dropped_batches: BTreeMap<SanitizedText, u64>,
}

/// Scrape state of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TargetState {
    /// Not tried yet.
    Pending,
    /// Its last attempt succeeded, within its time.
    Live,
    /// Its last attempt failed, or none came within its time.
    Down,
}

impl TargetState {
    /// The name in labels.
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TargetLine {
    /// Its address.
    pub address: SanitizedText,
    /// Its node, once known.
    pub node: Option<SanitizedText>,
    /// Its source.
    pub origin: SanitizedText,
    /// Its scrape state.
    pub state: TargetState,
    /// Its exporter format, once known.
    pub dialect: Option<Dialect>,
    /// End of the last attempt, in engine time.
    pub last_attempt: Option<UnixMs>,
    /// End of the last successful attempt.
    pub last_success: Option<UnixMs>,
    /// Why the last attempt failed, if it did.
    pub failure: Option<ScrapeFailure>,
    /// The failure as a sentence with the next step, or another fault: two targets of one dialect claim one node.
    pub message: Option<SanitizedText>,
    /// Duration of the last attempt, in milliseconds.
    pub duration_ms: Option<f64>,
    /// Samples on its last page.
    pub samples: u64,
    /// Bytes of its last page.
    pub bytes: u64,
    /// Lines of its last page that were rejected.
    pub rejected: RejectionCounts,
    /// Periods in which it was neither scraped nor reported as failed; any value but 0 is a bug of gaunt.
    pub missed: u64,
    /// Results that were dropped because a later one was ingested before.
    #[serde(default)]
    pub dropped_batches: u64,
}
