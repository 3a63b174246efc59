//! The collectives: their names, and their bus bandwidth factors as in nccl-tests.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A collective among ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Every rank receives the sum over all ranks.
    AllReduce,
    /// Every rank receives one chunk of the sum.
    ReduceScatter,
    /// Every rank receives the chunks of all ranks.
    AllGather,
    /// Every rank sends a different chunk to each other rank.
    AllToAll,
    /// Every rank receives the first rank's data.
    Broadcast,
    /// Every rank sends to the next rank and receives from the previous one.
    SendRecv,
}

impl Collective {
    /// All collectives.
    pub const ALL: [Self; 6] = [
        Self::AllReduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::AllToAll,
        Self::Broadcast,
        Self::SendRecv,
    ];

    /// Its name in series and files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllGather => "all_gather",
            Self::AllToAll => "all_to_all",
            Self::Broadcast => "broadcast",
            Self::SendRecv => "send_recv",
        }
    }

    /// Bytes that a link carries for each byte of the message, as nccl-tests defines it; none for one rank, which uses
    /// no link.
    pub fn bus_factor(self, ranks: usize) -> Option<f64> {
        let count = ranks as f64;
        match self {
            _ if ranks < 2 => None,
            Self::AllReduce => Some(2.0 * (count - 1.0) / count),
            Self::ReduceScatter | Self::AllGather | Self::AllToAll => Some((count - 1.0) / count),
            Self::Broadcast | Self::SendRecv => Some(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_those_of_nccl_tests() {
        let factors = Collective::ALL.map(|collective| collective.bus_factor(8));
        let expected = [1.75, 0.875, 0.875, 0.875, 1.0, 1.0].map(Some);
        assert_eq!(factors, expected);
        assert!(Collective::ALL.iter().all(|collective| collective.bus_factor(1).is_none()));
        assert_eq!(Collective::AllReduce.bus_factor(2), Some(1.0));
    }
}
