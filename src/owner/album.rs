//! The album: what was judged and published at the ticks of the last half an hour, for who looks back.
//!
//! A picture holds the state of every GPU by its row, four bits each, the findings, and the nodes that were not live.
//! Values of metrics are not in it: they are in the cluster's history. Pictures of the last two minutes are a tick
//! apart, older ones ten seconds.

use std::{collections::HashMap, sync::Arc, time::Duration};

use gaunt_schema::{GpuState, Safe, UnixMs};

use crate::answer::{FindingList, NodeCounts, NodeState};

/// Pictures are at least so far apart, however fast the owner ticks.
const FINE: Duration = Duration::from_secs(1);

/// How many of those are kept.
const FINE_KEPT: usize = 120;

/// Older pictures are so far apart.
const COARSE: Duration = Duration::from_secs(10);

/// How many of those are kept: half an hour.
const COARSE_KEPT: usize = 180;

/// Findings in all pictures together, at some two kilobytes each: beyond, the oldest pictures go.
const MAX_FINDINGS: usize = 20_000;

/// What was true at one tick.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    pub(super) at: UnixMs,
    pub(super) findings: Arc<FindingList>,
    pub(super) nodes: NodeCounts,
    /// The nodes that were not live.
    pub(super) ailing: Arc<HashMap<Safe, NodeState>>,
    /// Two GPUs a byte, the lower half first.
    states: Box<[u8]>,
}

impl Picture {
    pub(super) fn new(
        at: UnixMs,
        states: &[GpuState],
        findings: Arc<FindingList>,
        nodes: NodeCounts,
        ailing: Arc<HashMap<Safe, NodeState>>,
    ) -> Self {
        let half = |state: Option<&GpuState>| state.map_or(0x0f, |state| *state as u8);
        let pairs = states.chunks(2).map(|pair| half(pair.first()) | half(pair.get(1)) << 4);
        Self { at, findings, nodes, ailing, states: pairs.collect() }
    }

    /// The state of the GPU at a row.
    pub(super) fn state(&self, row: u32) -> GpuState {
        let pair = self.states.get(row as usize / 2).copied().unwrap_or(u8::MAX);
        let half = if row.is_multiple_of(2) { pair & 0x0f } else { pair >> 4 };
        GpuState::ALL.get(usize::from(half)).copied().unwrap_or(GpuState::Unknown)
    }

    /// The state of every GPU by row.
    pub(super) fn states(&self) -> Vec<GpuState> {
        (0..self.states.len() as u32 * 2).map(|row| self.state(row)).collect()
    }
}

/// The pictures that are kept, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Album {
    pictures: std::collections::VecDeque<Picture>,
}

impl Album {
    /// Whether the picture of this instant would be kept.
    pub(super) fn wants(&self, at: UnixMs) -> bool {
        self.pictures.back().is_none_or(|last| at.since(last.at) >= FINE)
    }

    /// Keeps a picture, and lets go what is too old or too much.
    pub(super) fn keep(&mut self, picture: Picture) {
        self.pictures.push_back(picture);
        // The one that leaves the fine part stays only if it is far enough from the one before it.
        if let Some(leaving) = self.pictures.len().checked_sub(FINE_KEPT + 1)
            && leaving > 0
        {
            let (before, at) = (self.pictures[leaving - 1].at, self.pictures[leaving].at);
            if at.since(before) < COARSE {
                self.pictures.remove(leaving);
            }
        }
        let many = |pictures: &std::collections::VecDeque<Picture>| {
            pictures.iter().map(|picture| picture.findings.findings.len()).sum::<usize>()
        };
        while self.pictures.len() > FINE_KEPT + COARSE_KEPT
            || (self.pictures.len() > 1 && many(&self.pictures) > MAX_FINDINGS)
        {
            self.pictures.pop_front();
        }
    }

    /// The picture of an instant: the last one not after it; none if what is kept begins later.
    pub(super) fn at(&self, at: UnixMs) -> Option<&Picture> {
        let after = self.pictures.partition_point(|picture| picture.at <= at);
        self.pictures.get(after.checked_sub(1)?)
    }

    /// When what is kept begins.
    pub(super) fn begins(&self) -> Option<UnixMs> {
        self.pictures.front().map(|picture| picture.at)
    }

    /// Every picture up to an instant, oldest first.
    pub(super) fn until(&self, at: UnixMs) -> impl DoubleEndedIterator<Item = &Picture> {
        let after = self.pictures.partition_point(|picture| picture.at <= at);
        self.pictures.range(..after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(second: i64, states: &[GpuState]) -> Picture {
        let (findings, ailing) = (Arc::default(), Arc::default());
        Picture::new(UnixMs(second * 1_000), states, findings, NodeCounts::default(), ailing)
    }

    #[test]
    fn states_come_back_as_they_were() {
        let all: Vec<GpuState> = GpuState::ALL.to_vec();
        let kept = picture(0, &all);
        assert_eq!(kept.states()[..all.len()], all);
        assert_eq!(kept.state(1_000), GpuState::Unknown);
    }

    #[test]
    fn the_near_past_is_fine_the_far_past_coarse_and_both_end() {
        let mut album = Album::default();
        for second in 0..4_000 {
            assert!(album.wants(UnixMs(second * 1_000)));
            album.keep(picture(second, &[]));
        }
        assert!(!album.wants(UnixMs(3_999_500)));
        let of = |second: i64| album.at(UnixMs(second * 1_000)).map(|picture| picture.at.0 / 1_000);
        assert_eq!((of(3_999), of(3_950), of(3_881)), (Some(3_999), Some(3_950), Some(3_881)));
        let far = of(3_000).unwrap();
        assert!((2_990..=3_000).contains(&far), "{far}");
        assert!(album.pictures.len() <= FINE_KEPT + COARSE_KEPT);
        let begins = album.begins().unwrap().0 / 1_000;
        assert!((2_000..2_150).contains(&begins), "{begins}");
        assert_eq!(of(1_000), None);
        assert_eq!(album.until(UnixMs(begins * 1_000 + 25_000)).count(), 3);
    }

    #[test]
    fn too_many_findings_shorten_the_past() {
        let mut album = Album::default();
        for second in 0..100 {
            let list = FindingList {
                findings: vec![crate::owner::tests::finding(); 1_000],
                ..FindingList::default()
            };
            let mut picture = picture(second, &[]);
            picture.findings = Arc::new(list);
            album.keep(picture);
        }
        assert_eq!(album.pictures.len(), MAX_FINDINGS / 1_000);
    }
}
