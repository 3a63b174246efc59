//! The album: what was judged and published at the ticks of the last half an hour, for who looks back.
//!
//! A picture holds the state of every GPU by its row, four bits each, what each lost and to which cause, the findings, and
//! the nodes that were not live.
//! Values of metrics are not in it: they are in the cluster's history. Pictures of the last two minutes are a tick
//! apart, older ones ten seconds.

use std::{collections::HashMap, sync::Arc, time::Duration};

use gaunt_schema::{FindingKind, GpuState, Safe, UnixMs};

use crate::{
    answer::{FindingList, NodeCounts, NodeState},
    judge::{GpuLoss, Loss, LossTotals},
};

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

/// Runs of GPUs that lost alike, in all pictures together, at eight bytes each: beyond, the oldest pictures go.
const MAX_RUNS: usize = 2_000_000;

/// Neighbouring rows that lost the same share to the same cause.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The row after the last.
    end: u32,
    parts: u16,
    cause: u16,
}

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
    runs: Box<[Run]>,
    /// What causes point to.
    causes: Arc<[(String, FindingKind)]>,
    totals: LossTotals,
}

impl Picture {
    pub(super) fn new(
        at: UnixMs,
        loss: &Loss,
        findings: Arc<FindingList>,
        nodes: NodeCounts,
        ailing: Arc<HashMap<Safe, NodeState>>,
    ) -> Self {
        let half = |gpu: Option<&GpuLoss>| gpu.map_or(0x0f, |gpu| gpu.state() as u8);
        let pairs = loss.gpus.chunks(2).map(|pair| half(pair.first()) | half(pair.get(1)) << 4);
        let mut runs: Vec<Run> = Vec::new();
        for (gpu, end) in loss.gpus.iter().zip(1..) {
            let parts = gpu.parts();
            let cause = if parts > 0 { gpu.cause_code() } else { 0 };
            match runs.last_mut() {
                Some(run) if (run.parts, run.cause) == (parts, cause) => run.end = end,
                _ => runs.push(Run { end, parts, cause }),
            }
        }
        Self {
            at,
            findings,
            nodes,
            ailing,
            states: pairs.collect(),
            runs: runs.into(),
            causes: loss.findings.clone(),
            totals: loss.totals,
        }
    }

    /// The state of the GPU at a row.
    pub(super) fn state(&self, row: u32) -> GpuState {
        let pair = self.states.get(row as usize / 2).copied().unwrap_or(u8::MAX);
        let half = if row.is_multiple_of(2) { pair & 0x0f } else { pair >> 4 };
        GpuState::ALL.get(usize::from(half)).copied().unwrap_or(GpuState::Unknown)
    }

    fn run(&self, row: u32) -> Option<&Run> {
        self.runs.get(self.runs.partition_point(|run| run.end <= row))
    }

    /// Ten-thousandths of its time that the GPU at a row lost.
    pub(super) fn parts(&self, row: u32) -> u16 {
        self.run(row).map_or(0, |run| run.parts)
    }

    /// What every GPU did and lost.
    pub(super) fn loss(&self) -> Loss {
        let rows = self.runs.last().map_or(0, |run| run.end);
        let gpus = (0..rows).map(|row| {
            let run = self.run(row).copied().unwrap_or(Run { end: rows, parts: 0, cause: 0 });
            GpuLoss::kept(self.state(row), run.parts, run.cause)
        });
        Loss { gpus: gpus.collect(), findings: self.causes.clone(), totals: self.totals }
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
        let runs = |pictures: &std::collections::VecDeque<Picture>| {
            pictures.iter().map(|picture| picture.runs.len()).sum::<usize>()
        };
        while self.pictures.len() > FINE_KEPT + COARSE_KEPT
            || (self.pictures.len() > 1 && many(&self.pictures) > MAX_FINDINGS)
            || (self.pictures.len() > 1 && runs(&self.pictures) > MAX_RUNS)
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
        let gpus = states.iter().zip(0..).map(|(state, parts)| GpuLoss::kept(*state, parts, 3));
        let loss = Loss { gpus: gpus.collect(), ..Loss::default() };
        Picture::new(UnixMs(second * 1_000), &loss, findings, NodeCounts::default(), ailing)
    }

    #[test]
    fn states_come_back_as_they_were() {
        let all: Vec<GpuState> = GpuState::ALL.to_vec();
        let kept = picture(0, &all);
        let gpus = kept.loss().gpus;
        let of: Vec<_> = gpus.iter().map(|gpu| (gpu.state(), gpu.parts())).collect();
        let told: Vec<_> = all.iter().copied().zip(0..).collect();
        assert_eq!(of, told, "states and shares");
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
