//! Meetings: how the probes of two nodes find each other through the aggregator, word by word.
//!
//! A probe says [`PairingRequest::Free`] until it is invited. Rank 0 makes itself ready and says by what the other one comes;
//! rank 1 asks for that until it is there. Both say how it ended. Whoever hears [`PairingReply::Over`] begins again.

use serde::{Deserialize, Serialize};

use crate::SanitizedText;

/// What a probe says to the aggregator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "snake_case", deny_unknown_fields)]
pub enum PairingRequest {
    /// A node that nobody uses may be measured. Said again while it waits.
    Free(PairingCandidate),
    /// Rank 0 is ready.
    Ready {
        /// Which meeting.
        meeting: u64,
        /// By what rank 1 comes: a key of NCCL, or an address.
        key: SanitizedText,
    },
    /// Rank 1 asks by what it comes.
    Coming {
        /// Which meeting.
        meeting: u64,
    },
    /// One side has ended.
    Ended {
        /// Which meeting.
        meeting: u64,
        /// Which side.
        rank: u8,
        /// How it ended.
        outcome: PairingOutcome,
    },
}

/// A node that may be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairingCandidate {
    /// Its name, as the aggregator knows it.
    pub node: SanitizedText,
    /// The name or address under which other nodes reach it.
    pub host: SanitizedText,
    /// What it can measure with, the best first.
    pub tools: Vec<PairTool>,
}

/// What measures a pair of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairTool {
    /// NCCL, from the memory of one GPU to that of the other.
    Nccl,
    /// `ib_write_bw` of perftest, from the host's memory.
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

/// How one side ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairingOutcome {
    /// What the wires between the two carried, if it was measured.
    pub bytes_per_second: Option<f64>,
    /// One sentence: that it was measured, or why not.
    pub says: SanitizedText,
}

/// What the aggregator answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum PairingReply {
    /// Say it again then.
    Wait {
        /// Milliseconds until then.
        millis: u64,
    },
    /// Measure with another node.
    Meet(PairingAssignment),
    /// By this rank 1 comes.
    Key {
        /// A key of NCCL, or an address.
        key: SanitizedText,
    },
    /// It is noted.
    Noted,
    /// The meeting is not, or no more.
    Over {
        /// Why.
        why: SanitizedText,
    },
}

/// What one side of a pair is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairingAssignment {
    /// Which meeting it is.
    pub meeting: u64,
    /// Which side: 0 is ready first, 1 comes.
    pub rank: u8,
    /// What is measured with.
    pub tool: PairTool,
    /// The RDMA device here, such as `mlx5_0`.
    pub device: SanitizedText,
    /// Its port.
    pub port: SanitizedText,
    /// The GPU here that is nearest to it, by NVML's index, where that is known.
    pub gpu: Option<u32>,
    /// The node at the other end.
    pub peer: SanitizedText,
}
