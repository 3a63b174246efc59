//! The fabric matrix: one cell per leaf and rail, with the worse of both directions in each number.

use gaunt_schema::{FindingKind, SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

/// The fabric as a leaf × rail matrix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FabricMatrix {
    /// Engine time of this answer.
    pub at: UnixMs,
    /// Number of ports before filtering.
    pub total: u32,
    /// Number of ports that match the filter and are counted in the cells.
    pub matched: u32,
    /// Leaf switches by name; an empty name holds ports with an unknown leaf.
    pub leaves: Vec<SanitizedText>,
    /// Rails by name; an empty name holds ports with an unknown rail.
    pub rails: Vec<SanitizedText>,
    /// Cells that have a port: leaf by leaf, rail by rail.
    pub cells: FabricCellColumns,
}

/// Cells of the fabric as columns. Ratios and rates are means over the active ports of the cell; none without active
/// ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FabricCellColumns {
    /// Index of the cell's leaf in `leaves`.
    pub leaf: Vec<u32>,
    /// Index of the cell's rail in `rails`.
    pub rail: Vec<u32>,
    /// Ports in the cell.
    pub ports: Vec<u32>,
    /// Ports that are active.
    pub active: Vec<u32>,
    /// Receive throughput as a share of the link rate.
    pub receive_ratio: Vec<Option<f32>>,
    /// Transmit throughput as a share of the link rate.
    pub transmit_ratio: Vec<Option<f32>>,
    /// Throughput of the busiest direction of the busiest port, as a share of its link rate.
    pub busiest_ratio: Vec<Option<f32>>,
    /// Share of time in which the ports receive PFC pause.
    pub pause_received_ratio: Vec<Option<f32>>,
    /// Share of time in which the ports send PFC pause.
    pub pause_sent_ratio: Vec<Option<f32>>,
    /// CNPs handled by the ports per second.
    pub cnp_handled_per_second: Vec<Option<f32>>,
    /// ECN-marked packets per second.
    pub ecn_marked_per_second: Vec<Option<f32>>,
    /// Symbol errors, link recoveries, link downs and receive errors of all ports together, per second.
    pub errors_per_second: Vec<Option<f32>>,
    /// Link downs of the cell per second.
    #[serde(default)]
    pub downs_per_second: Vec<Option<f32>>,
    /// The worst open finding on a port, the leaf or the rail.
    pub finding: Vec<Option<FindingKind>>,
}
