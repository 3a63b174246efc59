//! The result of one check of a node.

use gaunt_schema::SanitizedText;
use serde::Serialize;

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeCheckState {
    /// Everything is there.
    Ok,
    /// Something is missing, and telemetry with it.
    Missing,
    /// This node has no such device or service, or the settings disable it.
    Unused,
}

/// One check of a node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeCheck {
    /// What it checks, such as `driver`.
    pub name: &'static str,
    /// The result.
    pub state: NodeCheckState,
    /// What was found.
    pub summary: SanitizedText,
    /// What to do; empty unless something is missing.
    pub next: SanitizedText,
}

impl NodeCheck {
    fn new(name: &'static str, state: NodeCheckState, summary: &str, next: &str) -> Self {
        let (summary, next) = (SanitizedText::new(summary), SanitizedText::new(next));
        Self { name, state, summary, next }
    }

    pub(super) fn ok(name: &'static str, summary: &str) -> Self {
        Self::new(name, NodeCheckState::Ok, summary, "")
    }

    pub(super) fn unused(name: &'static str, summary: &str) -> Self {
        Self::new(name, NodeCheckState::Unused, summary, "")
    }

    pub(super) fn missing(name: &'static str, summary: &str, next: &str) -> Self {
        Self::new(name, NodeCheckState::Missing, summary, next)
    }
}
