//! Alerts: the state of gaunt's findings in Alertmanager, and their silences.

use gaunt_schema::{SanitizedText, Severity};
use serde::{Deserialize, Serialize};

/// State reported by all Alertmanagers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AlertList {
    /// The Alertmanagers that receive findings; empty if none is configured.
    pub servers: Vec<AlertServer>,
    /// Alerts of findings, deduplicated, worst first.
    pub alerts: Vec<AlertLine>,
}

/// One Alertmanager.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AlertServer {
    /// Its address.
    pub address: SanitizedText,
    /// Findings accepted since the start, repetitions included.
    pub posted: u64,
    /// Failed attempts since the start.
    pub failed: u64,
    /// Error of the last attempt, with the next step; none if it succeeded.
    pub failure: Option<SanitizedText>,
}

/// Processing state of an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AlertState {
    /// Not processed yet.
    #[default]
    Unprocessed,
    /// Sent to its receivers.
    Active,
    /// Suppressed: silenced, or inhibited by another alert.
    Suppressed,
}

/// One alert about a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AlertLine {
    /// Id of the finding.
    pub finding: SanitizedText,
    /// Alert name.
    pub name: SanitizedText,
    /// Severity.
    pub severity: Option<Severity>,
    /// Processing state.
    pub state: AlertState,
    /// Start time, as Alertmanager formats it.
    pub since: SanitizedText,
    /// Receivers that are notified.
    pub receivers: Vec<SanitizedText>,
    /// Silences that match.
    pub silences: Vec<AlertSilence>,
    /// Number of alerts that inhibit it.
    pub inhibited_by: u32,
}

/// A silence of an alert.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AlertSilence {
    /// Its id.
    pub id: SanitizedText,
    /// Who created it.
    pub by: SanitizedText,
    /// Its comment.
    pub comment: SanitizedText,
    /// Its end, as Alertmanager formats it.
    pub until: SanitizedText,
}
