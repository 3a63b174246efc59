//! Peer exchange: what equal aggregators of one cluster send each other, and the state of each peer.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::Arc,
};

use gaunt_schema::{Finding, SanitizedText, Severity, UnixMs};
use serde::{Deserialize, Serialize};

/// Path of the exchange below the API base: the status of this aggregator.
pub const PEER_PATH: &str = "peer";

/// Path of what a new aggregator takes over, below the API base.
pub const PEER_STATE_PATH: &str = "peer/state";

/// Path to which actions on findings are posted, below the API base.
pub const PEER_ACTION_PATH: &str = "peer/actions";

/// The most alerts of one aggregator.
const MAX_ALERTS: usize = 1_000;

/// Alerts that peers post as open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerAlertSet {
    /// Their names.
    pub names: Arc<BTreeSet<SanitizedText>>,
    /// Since when a peer has not been asked: of what ended later, nothing is known there. The end of time without peers, and
    /// the beginning until each has answered.
    pub asked_at: UnixMs,
}

impl PeerAlertSet {
    /// The set without any peer.
    pub fn without_peers() -> Self {
        Self { names: Arc::default(), asked_at: UnixMs(i64::MAX) }
    }
}

/// The name by which aggregators tell each other of an alert: it is another one at another severity.
pub fn alert_name(finding: &str, severity: &str) -> SanitizedText {
    SanitizedText::new(&format!("{finding} {severity}"))
}

/// Names of the open alerts: acknowledged findings have none.
pub fn posted_alerts(findings: &[Finding]) -> Vec<SanitizedText> {
    let posted = findings.iter().filter(|finding| finding.acknowledged.is_none());
    let names = posted.map(|finding| alert_name(&finding.id, finding.severity.as_str()));
    names.take(MAX_ALERTS).collect()
}

/// The last action of users on a finding, as aggregators pass it on. Of two for one finding the later one holds; of the
/// same instant, the greater by user and command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerAction {
    /// Id of the finding.
    pub finding: String,
    /// When the action was made.
    pub at: UnixMs,
    /// User name as given.
    pub by: SanitizedText,
    /// The command.
    #[serde(flatten)]
    pub command: PeerCommand,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum PeerCommand {
    /// The acknowledgement was withdrawn.
    Withdraw,
    /// The finding was acknowledged.
    Acknowledge {
        /// The note; may be empty.
        note: SanitizedText,
        /// Severity of the finding then: a more severe one is no longer acknowledged.
        severity: Severity,
    },
    /// The present level was accepted as baseline.
    Accept {
        /// The note; may be empty.
        note: SanitizedText,
    },
}

/// What became of an action at a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PeerOutcome {
    /// It was applied, or had been before.
    Taken,
    /// The finding is not open at the peer: it is applied if the finding opens there soon.
    Waiting,
    /// A later action on the finding was applied before.
    Superseded,
}

impl PeerOutcome {
    /// The name in labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Waiting => "waiting",
            Self::Superseded => "superseded",
        }
    }
}

/// The reply to an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerReply {
    /// What became of the action.
    pub outcome: PeerOutcome,
    /// When the peer started.
    pub started: UnixMs,
}

/// A process of an aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregatorProcess {
    /// When it started.
    pub started: UnixMs,
    /// A random number: two aggregators may start in the same millisecond.
    pub nonce: u64,
}

impl AggregatorProcess {
    /// A process that starts at this time.
    pub fn new(started: UnixMs) -> Self {
        Self { started, nonce: RandomState::new().build_hasher().finish() }
    }
}

/// The status of an aggregator for its peers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerStatus {
    /// Name of its cluster: peers have the same.
    pub cluster: SanitizedText,
    /// When it started: another time means that it may have forgotten what it was sent.
    pub started: UnixMs,
    /// Random number of this process; 0 from a version without it.
    #[serde(default)]
    pub nonce: u64,
    /// The open alerts that it posts to Alertmanager: id and severity of each finding.
    #[serde(default)]
    pub posted: Vec<SanitizedText>,
}

/// Whether a peer answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PeerState {
    /// Not tried yet.
    #[default]
    Pending,
    /// It answered the last request.
    Live,
    /// It did not answer the last request, or refused it.
    Down,
}

impl PeerState {
    /// The name in labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Live => "live",
            Self::Down => "down",
        }
    }
}

/// One peer of an aggregator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerLine {
    /// Its address.
    pub address: SanitizedText,
    /// Whether it answers.
    pub state: PeerState,
    /// When it last answered.
    pub last_success: Option<UnixMs>,
    /// Why it does not answer, with the next step.
    pub failure: Option<SanitizedText>,
    /// Actions that it has not taken yet.
    pub waiting_actions: u32,
    /// Actions that it has taken since this aggregator started.
    pub passed_actions: u64,
}
