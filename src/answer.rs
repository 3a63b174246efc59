//! Questions and their answers: the one vocabulary of the HTTP API, the console and `gaunt snapshot`.
//!
//! Types only. An answer is immutable once made; big ones are columns, never one object per GPU.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub mod finding;
pub mod node;
pub mod overview;
pub mod target;

pub use finding::{Evidence, Finding, FindingList};
pub use node::{DeviceDetail, NodeDetail, NodeLine, NodeList, NodeState, Series};
pub use overview::{Heat, Lost, NodeCounts, Overview, StateCount};
pub use target::{TargetLine, TargetList, TargetState, Totals};

use gaunt_schema::Safe;

/// The path under which the HTTP API lives; the version changes when an answer loses or renames a field.
pub const API: &str = "/api/gaunt/v1";

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// The whole fleet at a glance.
    Overview,
    /// Every node in a line each, worst first.
    Nodes,
    /// One node with all its devices, values and their recent past.
    Node(Safe),
    /// Every open finding, worst first.
    Findings,
    /// Every target with the fate of its last scrape.
    Targets,
}

/// What comes back.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To [`Question::Overview`].
    Overview(Arc<Overview>),
    /// To [`Question::Nodes`].
    Nodes(Arc<NodeList>),
    /// To [`Question::Node`].
    Node(Arc<NodeDetail>),
    /// To [`Question::Findings`].
    Findings(Arc<FindingList>),
    /// To [`Question::Targets`].
    Targets(Arc<TargetList>),
    /// The question makes no sense here; says why.
    Refused(Refusal),
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "refused")]
pub enum Refusal {
    /// No node has this name.
    #[error("no node is named {node}; `gaunt snapshot` or /api/gaunt/v1/nodes lists the names")]
    UnknownNode {
        /// The name that was asked for.
        node: Safe,
    },
}
