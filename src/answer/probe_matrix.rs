//! The probe between nodes: what every pair of ports carried, and what that says of ports, leaves and uplinks.

use gaunt_schema::{SanitizedText, UnixMs, probe_pairing::PairTool};
use serde::{Deserialize, Serialize};

/// The matrix of what was measured between nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeMatrix {
    /// The owner's clock when this was true.
    pub at: UnixMs,
    /// Nodes that offer to be measured.
    pub free: u32,
    /// Pairs that are being measured.
    pub measuring: u32,
    /// Pairs that were measured, and how many of them failed, since the start.
    pub ended: [u64; 2],
    /// Each rail with its pairs.
    pub rails: Vec<RailMatrix>,
}

/// The pairs of one rail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RailMatrix {
    /// The rail; an empty name stands for ports whose rail is not known.
    pub rail: SanitizedText,
    /// The median of what pairs below one leaf carry, in bytes per second.
    pub within_leaf: Option<f64>,
    /// The median of what pairs across leaves carry, in bytes per second.
    pub across_leaves: Option<f64>,
    /// Each pair, by the names of its ends.
    pub pairs: Vec<ProbePair>,
    /// Who is slower than the others, the slowest first.
    pub suspects: Vec<ProbeSuspect>,
}

/// One pair of ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbePair {
    /// The end that was ready first.
    pub from: PairEnd,
    /// The end that came.
    pub to: PairEnd,
    /// When it was measured.
    pub at: UnixMs,
    /// What it was measured with.
    pub tool: PairTool,
    /// What it carried, the lesser of what the two ends say; none if it failed.
    pub bytes_per_second: Option<f64>,
    /// That as a share of what is usual for pairs of its sort.
    pub ratio: Option<f64>,
    /// Why it failed, if it did.
    pub failure: Option<SanitizedText>,
}

/// One end of a pair.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PairEnd {
    /// The node.
    pub node: SanitizedText,
    /// The RDMA device.
    pub device: SanitizedText,
    /// Its port.
    pub port: SanitizedText,
    /// The leaf switch, if known.
    pub leaf: Option<SanitizedText>,
}

/// Somebody whose pairs are all slow while others are not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeSuspect {
    /// What it is.
    pub kind: SuspectKind,
    /// Its name: `node device:port`, the leaf, or the two leaves.
    pub name: SanitizedText,
    /// The median share of what is usual that its pairs reach.
    pub ratio: f64,
    /// How many pairs say so.
    pub pairs: u32,
}

/// What can be slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspectKind {
    /// A port, its card or its cable: slow with every other port.
    Port,
    /// A leaf: its ports are slow with each other.
    Leaf,
    /// A leaf's way up: its ports are slow with every other leaf and not with each other.
    Uplink,
    /// The way between two leaves, each of which is not slow with the others.
    Path,
}
