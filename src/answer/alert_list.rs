//! Alerts: what Alertmanager knows of our findings, and who was told to be quiet about them.

use gaunt_schema::{SanitizedText, Severity};
use serde::{Deserialize, Serialize};

/// What the Alertmanagers say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AlertList {
    /// The Alertmanagers that findings are posted to; none if the settings name none.
    pub servers: Vec<AlertServer>,
    /// Their alerts about findings, each once, worst first.
    pub alerts: Vec<AlertLine>,
}

/// One Alertmanager.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AlertServer {
    /// Its address.
    pub address: SanitizedText,
    /// Findings that it took since the start, every repetition counted.
    pub posted: u64,
    /// Attempts that failed since the start.
    pub failed: u64,
    /// Why the last attempt failed, with the next step; none if it did not.
    pub failure: Option<SanitizedText>,
}

/// What is done about an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertState {
    /// It was not looked at yet.
    #[default]
    Unprocessed,
    /// Its receivers are told.
    Active,
    /// Nobody is told: it is silenced, or another alert says why.
    Suppressed,
}

/// One alert about a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlertLine {
    /// The finding.
    pub finding: SanitizedText,
    /// The name of the alert.
    pub name: SanitizedText,
    /// How urgent it is.
    pub severity: Option<Severity>,
    /// What is done about it.
    pub state: AlertState,
    /// When it began, as Alertmanager writes it.
    pub since: SanitizedText,
    /// Who is told.
    pub receivers: Vec<SanitizedText>,
    /// Who keeps it quiet.
    pub silences: Vec<AlertSilence>,
    /// How many other alerts keep it quiet because they say why.
    pub inhibited_by: u32,
}

/// Somebody's word to be quiet about an alert.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AlertSilence {
    /// Its number.
    pub id: SanitizedText,
    /// Who said it.
    pub by: SanitizedText,
    /// Why.
    pub comment: SanitizedText,
    /// Until when, as Alertmanager writes it.
    pub until: SanitizedText,
}
