//! Probe matrix: measurements of every pair of ports, and the ports, leaves and uplinks suspected of being slow.

use gaunt_schema::{SanitizedText, UnixMs, probe_pairing::PairTool};
use serde::{Deserialize, Serialize};

/// The matrix of measurements between nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbeMatrix {
    /// Engine time of this answer.
    pub at: UnixMs,
    /// Number of nodes available for measurement.
    pub free: u32,
    /// Number of pairs that are being measured.
    pub measuring: u32,
    /// Numbers of measured pairs and of failed ones, since the start.
    pub ended: [u64; 2],
    /// The pairs of each rail.
    pub rails: Vec<RailMatrix>,
}

/// The pairs of one rail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RailMatrix {
    /// The rail; an empty name holds ports with an unknown rail.
    pub rail: SanitizedText,
    /// Median throughput of pairs within one leaf, in bytes per second.
    pub within_leaf: Option<f64>,
    /// Median throughput of pairs across leaves, in bytes per second.
    pub across_leaves: Option<f64>,
    /// The pairs, by the names of their ends.
    pub pairs: Vec<ProbePair>,
    /// Suspects, slowest first.
    pub suspects: Vec<ProbeSuspect>,
}

/// One pair of ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbePair {
    /// The end that was ready first.
    pub from: PairEnd,
    /// The end that joined.
    pub to: PairEnd,
    /// Time of the measurement.
    pub at: UnixMs,
    /// Tool of the measurement.
    pub tool: PairTool,
    /// Throughput, the lower of what both ends report; none if it failed.
    pub bytes_per_second: Option<f64>,
    /// Throughput as a share of the baseline of comparable pairs.
    pub ratio: Option<f64>,
    /// Why it failed, if it did.
    pub failure: Option<SanitizedText>,
}

/// One end of a pair.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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

/// A suspect: its pairs are all slow while others are not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbeSuspect {
    /// Kind of the suspect.
    pub kind: SuspectKind,
    /// Its name: `node device:port`, the leaf, or the two leaves.
    pub name: SanitizedText,
    /// Median share of the baseline that its pairs reach.
    pub ratio: f64,
    /// Number of pairs behind it.
    pub pairs: u32,
}

/// What can be slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SuspectKind {
    /// A port, its adapter or its cable: slow with every other port.
    Port,
    /// A leaf: its ports are slow with each other.
    Leaf,
    /// An uplink: the leaf's ports are slow with every other leaf and not with each other.
    Uplink,
    /// The path between two leaves, neither of which is slow with the others.
    Path,
}
