//! The fabric: a cell for each leaf and rail, the worse of its two directions in each number.

use gaunt_schema::{FindingKind, SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

/// The fabric as leaves by rails.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FabricMatrix {
    /// The owner's clock when this was true.
    pub at: UnixMs,
    /// How many ports there are in all.
    pub total: u32,
    /// How many of them match the filter, and are counted in the cells.
    pub matched: u32,
    /// The leaf switches in the order of their names; an empty name stands for ports whose leaf is not known.
    pub leaves: Vec<SanitizedText>,
    /// The rails in the order of their names; an empty name stands for ports whose rail is not known.
    pub rails: Vec<SanitizedText>,
    /// The cells that have a port: leaf by leaf, rail by rail.
    pub cells: FabricCellColumns,
}

/// The cells of the fabric as columns. Shares and rates are means over the cell's active ports; none without any.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FabricCellColumns {
    /// The leaf of each cell, by its place among the leaves.
    pub leaf: Vec<u32>,
    /// The rail of each cell, by its place among the rails.
    pub rail: Vec<u32>,
    /// Ports in the cell.
    pub ports: Vec<u32>,
    /// Ports that are active.
    pub active: Vec<u32>,
    /// Received data as a share of the rate.
    pub receive_ratio: Vec<Option<f32>>,
    /// Sent data as a share of the rate.
    pub transmit_ratio: Vec<Option<f32>>,
    /// The busiest direction of the busiest port, as a share of its rate.
    pub busiest_ratio: Vec<Option<f32>>,
    /// Share of the time in which the network pauses the cell's ports.
    pub pause_received_ratio: Vec<Option<f32>>,
    /// Share of the time in which the cell's ports pause the network.
    pub pause_sent_ratio: Vec<Option<f32>>,
    /// Congestion notifications that the ports handled, in a second.
    pub cnp_handled_per_second: Vec<Option<f32>>,
    /// Packets with a congestion mark, in a second.
    pub ecn_marked_per_second: Vec<Option<f32>>,
    /// Symbol errors, link recoveries, downs and packets received wrong, of all ports together, in a second.
    pub errors_per_second: Vec<Option<f32>>,
    /// Times that links of the cell went down, in a second.
    #[serde(default)]
    pub downs_per_second: Vec<Option<f32>>,
    /// The worst open finding that blames a port, the leaf or the rail.
    pub finding: Vec<Option<FindingKind>>,
}
