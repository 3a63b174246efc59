//! In whose words a page is written, and what those words mean in ours.

mod absence;
mod assembly;
#[cfg(test)]
mod captured;
mod dcgm;
mod interpreter;
mod node_exporter;
#[cfg(test)]
mod words;

use serde::{Deserialize, Serialize};

pub(crate) use self::interpreter::Interpreter;

/// An exporter whose names gaunt understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// gaunt's own exporters.
    Gaunt,
    /// NVIDIA's dcgm-exporter.
    Dcgm,
    /// Prometheus's node_exporter.
    NodeExporter,
    /// No name on the page is known.
    Unknown,
}

impl Dialect {
    /// The word in answers and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gaunt => "gaunt",
            Self::Dcgm => "dcgm",
            Self::NodeExporter => "node_exporter",
            Self::Unknown => "unknown",
        }
    }
}
