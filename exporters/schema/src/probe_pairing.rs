//! Probe pairing: the protocol by which the probes of two nodes find each other through the aggregator.
//!
//! A probe sends [`PairingRequest::Free`] until it gets an assignment. Rank 0 prepares its side and sends the key by
//! which rank 1 connects; rank 1 polls for that key. Both report their outcome. A probe that receives
//! [`PairingReply::Over`] starts again.

use serde::{Deserialize, Serialize};

use crate::SanitizedText;

/// A request of a probe to the aggregator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(tag = "word", rename_all = "snake_case", deny_unknown_fields)]
pub enum PairingRequest {
    /// An idle node is available for a measurement. Repeated while it waits.
    Free(PairingCandidate),
    /// Rank 0 is ready.
    Ready {
        /// The pairing.
        meeting: u64,
        /// How rank 1 connects: an NCCL key, or an address.
        key: SanitizedText,
    },
    /// Rank 1 polls for the key.
    Coming {
        /// The pairing.
        meeting: u64,
    },
    /// One side has finished.
    Ended {
        /// The pairing.
        meeting: u64,
        /// The rank of the side.
        rank: u8,
        /// The outcome.
        outcome: PairingOutcome,
    },
}

/// A node that is available for a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PairingCandidate {
    /// Its name, as the aggregator knows it.
    pub node: SanitizedText,
    /// The host name or address at which other nodes reach it.
    pub host: SanitizedText,
    /// Its measurement tools, the best first.
    pub tools: Vec<PairTool>,
}

/// The tool that measures a pair of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PairTool {
    /// NCCL, from the memory of one GPU to that of the other.
    Nccl,
    /// `ib_write_bw` of perftest, from host memory.
    Perftest,
}

impl PairTool {
    /// Its name in answers and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nccl => "nccl",
            Self::Perftest => "perftest",
        }
    }
}

/// The outcome of one side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PairingOutcome {
    /// The bandwidth between the two nodes, if it was measured.
    pub bytes_per_second: Option<f64>,
    /// One sentence: that it was measured, or why not.
    pub says: SanitizedText,
}

/// A reply of the aggregator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum PairingReply {
    /// Repeat the request later.
    Wait {
        /// The delay in milliseconds.
        millis: u64,
    },
    /// Measure with another node.
    Meet(PairingAssignment),
    /// How rank 1 connects.
    Key {
        /// An NCCL key, or an address.
        key: SanitizedText,
    },
    /// The request is recorded.
    Noted,
    /// The pairing does not exist, or no longer.
    Over {
        /// The reason.
        why: SanitizedText,
    },
}

/// The assignment of one side of a pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "openapi", schemars(inline))]
pub struct PairingAssignment {
    /// The pairing.
    pub meeting: u64,
    /// The rank: 0 is ready first, 1 connects.
    pub rank: u8,
    /// The tool.
    pub tool: PairTool,
    /// The local RDMA device, such as `mlx5_0`.
    pub device: SanitizedText,
    /// Its port.
    pub port: SanitizedText,
    /// The NVML index of the nearest local GPU, if known.
    pub gpu: Option<u32>,
    /// The node at the other end.
    pub peer: SanitizedText,
}
