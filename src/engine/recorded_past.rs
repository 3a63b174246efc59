//! The past in a recording: history points and the series of lost GPUs, in a versioned binary format.

use std::collections::BTreeSet;

use gaunt_schema::{LifeState, SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

use super::{Engine, LostGpuSeries};
use gaunt_cluster::KeptPast;

/// The version of the format; other versions are rejected.
const VERSION: u32 = 1;

/// Maximum size of history points in one preamble in bytes, before compression: half an hour of two series of 1,000
/// GPUs at 1 s, or what is kept of every series of some dozen nodes.
pub const MAX_PAST: usize = 4 << 20;

/// Size of the version and of the index's length in bytes.
const HEAD: usize = 8;

/// The recorded past.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedPast {
    lost: LostGpuSeries,
    cluster: KeptPast,
}

/// Why the bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadablePast {
    /// They have this other version.
    #[error("has version {0}, this gaunt reads {VERSION}; use the gaunt that recorded it")]
    Version(u32),
    /// They are malformed.
    #[error("has an unknown format; use the gaunt that recorded it")]
    Damaged,
}

impl RecordedPast {
    /// Number of series with points.
    pub fn series(&self) -> usize {
        self.cluster.series()
    }

    /// Time of the oldest points; none without any.
    pub fn begins(&self) -> Option<UnixMs> {
        self.cluster.begins()
    }

    /// Encodes version, length of the index, index, points.
    pub fn to_bytes(&self) -> Vec<u8> {
        let index = serde_json::to_vec(self).expect("plain structs become JSON");
        let points = self.cluster.points();
        let mut bytes = Vec::with_capacity(HEAD + index.len() + points.len());
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(index.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&index);
        bytes.extend_from_slice(points);
        bytes
    }

    /// Decodes what [`Self::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, UnreadablePast> {
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_le_bytes).ok_or(UnreadablePast::Damaged)
        };
        let version = number(0)?;
        if version != VERSION {
            return Err(UnreadablePast::Version(version));
        }
        let length = number(4)? as usize;
        let (index, points) =
            bytes[HEAD..].split_at_checked(length).ok_or(UnreadablePast::Damaged)?;
        let read: Self = serde_json::from_slice(index).map_err(|_| UnreadablePast::Damaged)?;
        let cluster = read.cluster.with_points(points.to_vec()).ok_or(UnreadablePast::Damaged)?;
        Ok(Self { lost: read.lost.bounded(), cluster })
    }
}

impl Engine {
    /// The past to record, in about `most` bytes: first that of the nodes that open findings name.
    pub fn recorded_past(&self, most: usize) -> RecordedPast {
        let open = self.findings.findings.iter();
        let open = open.filter(|finding| finding.life.state != LifeState::Closed);
        let entities = open.flat_map(|finding| finding.victims.iter().chain([&finding.entity]));
        let nodes: BTreeSet<SanitizedText> =
            entities.filter_map(|entity| entity.node.clone()).collect();
        let cluster = self.cluster.keep_past(most, &nodes);
        RecordedPast { lost: self.lost_series.clone(), cluster }
    }

    /// The same engine with a past from before its first page.
    #[must_use]
    pub fn recalling_past(mut self, past: &RecordedPast) -> Self {
        self.lost_series = past.lost.clone();
        self.cluster.recall_past(&past.cluster);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_past_is_read_back_and_refused_where_it_is_damaged() {
        let mut lost = LostGpuSeries::default();
        lost.record_loss(UnixMs(10_000), Some(2.5));
        let past = RecordedPast { lost, cluster: KeptPast::default() };
        let bytes = past.to_bytes();
        assert_eq!(RecordedPast::from_bytes(&bytes), Ok(past));
        for end in 0..bytes.len() {
            assert_eq!(RecordedPast::from_bytes(&bytes[..end]), Err(UnreadablePast::Damaged));
        }
        let more = [bytes.as_slice(), &[0]].concat();
        assert_eq!(RecordedPast::from_bytes(&more), Err(UnreadablePast::Damaged));
        let newer = [&[9, 0, 0, 0], &bytes[4..]].concat();
        let why = RecordedPast::from_bytes(&newer).unwrap_err();
        assert_eq!(why, UnreadablePast::Version(9));
        assert!(why.to_string().ends_with("use the gaunt that recorded it"), "{why}");
    }
}
