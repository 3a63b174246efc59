//! The snapshot history: what was judged and published at the ticks of the last half hour, for queries about the past.
//!
//! A snapshot holds the state of every GPU by row, four bits each, the loss of each with its cause, the findings, and
//! the nodes that were not live. Metric values are not in it: they are in the cluster's history. Snapshots of the last
//! two minutes are a tick apart, older ones ten seconds.

use std::{collections::HashMap, sync::Arc, time::Duration};

use gaunt_schema::{GpuState, SanitizedText, UnixMs};

use gaunt_api::{FindingList, NodeCounts, NodeState};
use gaunt_judge::{FleetLoss, GpuLoss, LossCauses, LossTotals};

/// The shortest time between two snapshots, however fast the engine ticks.
const FINE: Duration = Duration::from_secs(1);

/// Number of those that are kept.
const FINE_KEPT: usize = 120;

/// The time between older snapshots.
const COARSE: Duration = Duration::from_secs(10);

/// Number of those that are kept: half an hour.
const COARSE_KEPT: usize = 180;

/// Maximum number of findings in all snapshots, at some two kilobytes each: above it, the oldest snapshots are
/// evicted.
const MAX_FINDINGS: usize = 20_000;

/// Maximum number of loss runs in all snapshots, at eight bytes each: above it, the oldest snapshots are evicted.
const MAX_RUNS: usize = 2_000_000;

/// Neighbouring rows that lost the same share to the same cause.
#[derive(Clone, Copy, Debug)]
struct LossRun {
    /// The row after the last.
    end: u32,
    parts: u16,
    cause: u16,
}

/// The state at one tick.
#[derive(Clone, Debug)]
pub(super) struct TickSnapshot {
    pub(super) at: UnixMs,
    pub(super) findings: Arc<FindingList>,
    pub(super) nodes: NodeCounts,
    /// The nodes that were not live.
    pub(super) not_live: Arc<HashMap<SanitizedText, NodeState>>,
    /// Two GPUs per byte, the lower half first.
    states: Box<[u8]>,
    runs: Box<[LossRun]>,
    /// The causes that runs refer to.
    causes: Arc<LossCauses>,
    totals: LossTotals,
}

impl TickSnapshot {
    pub(super) fn new(
        at: UnixMs,
        loss: &FleetLoss,
        findings: Arc<FindingList>,
        nodes: NodeCounts,
        ailing: Arc<HashMap<SanitizedText, NodeState>>,
    ) -> Self {
        let half = |gpu: Option<&GpuLoss>| gpu.map_or(0x0f, |gpu| gpu.shown_state() as u8);
        let pairs = loss.gpus.chunks(2).map(|pair| half(pair.first()) | half(pair.get(1)) << 4);
        let mut runs: Vec<LossRun> = Vec::new();
        for (gpu, end) in loss.gpus.iter().zip(1..) {
            let parts = gpu.lost_parts();
            let cause = if parts > 0 { gpu.cause_code() } else { 0 };
            match runs.last_mut() {
                Some(run) if (run.parts, run.cause) == (parts, cause) => run.end = end,
                _ => runs.push(LossRun { end, parts, cause }),
            }
        }
        Self {
            at,
            findings,
            nodes,
            not_live: ailing,
            states: pairs.collect(),
            runs: runs.into(),
            causes: loss.causes.clone(),
            totals: loss.totals,
        }
    }

    /// The state of the GPU at a row.
    pub(super) fn gpu_state(&self, row: u32) -> GpuState {
        let pair = self.states.get(row as usize / 2).copied().unwrap_or(u8::MAX);
        let half = if row.is_multiple_of(2) { pair & 0x0f } else { pair >> 4 };
        GpuState::ALL.get(usize::from(half)).copied().unwrap_or(GpuState::Unknown)
    }

    fn run(&self, row: u32) -> Option<&LossRun> {
        self.runs.get(self.runs.partition_point(|run| run.end <= row))
    }

    /// Loss of the GPU at a row, in ten-thousandths of its time.
    pub(super) fn lost_parts(&self, row: u32) -> u16 {
        self.run(row).map_or(0, |run| run.parts)
    }

    /// State and loss of every GPU.
    pub(super) fn unpack_loss(&self) -> FleetLoss {
        let rows = self.runs.last().map_or(0, |run| run.end);
        let gpus = (0..rows).map(|row| {
            let run = self.run(row).copied().unwrap_or(LossRun { end: rows, parts: 0, cause: 0 });
            GpuLoss::from_parts(self.gpu_state(row), run.parts, run.cause)
        });
        FleetLoss { gpus: gpus.collect(), causes: self.causes.clone(), totals: self.totals }
    }
}

/// The snapshots, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct SnapshotHistory {
    snapshots: std::collections::VecDeque<TickSnapshot>,
}

impl SnapshotHistory {
    /// Whether a snapshot of this time would be kept.
    pub(super) fn is_due(&self, at: UnixMs) -> bool {
        self.snapshots.back().is_none_or(|last| at.duration_since(last.at) >= FINE)
    }

    /// Adds a snapshot and evicts what is too old or exceeds a limit.
    pub(super) fn add_snapshot(&mut self, snapshot: TickSnapshot) {
        self.snapshots.push_back(snapshot);
        // A snapshot that leaves the fine part is kept only if it is far enough from the one before it.
        if let Some(leaving) = self.snapshots.len().checked_sub(FINE_KEPT + 1)
            && leaving > 0
        {
            let (before, at) = (self.snapshots[leaving - 1].at, self.snapshots[leaving].at);
            if at.duration_since(before) < COARSE {
                self.snapshots.remove(leaving);
            }
        }
        let many = |snapshots: &std::collections::VecDeque<TickSnapshot>| {
            snapshots.iter().map(|snapshot| snapshot.findings.findings.len()).sum::<usize>()
        };
        let runs = |snapshots: &std::collections::VecDeque<TickSnapshot>| {
            snapshots.iter().map(|snapshot| snapshot.runs.len()).sum::<usize>()
        };
        while self.snapshots.len() > FINE_KEPT + COARSE_KEPT
            || (self.snapshots.len() > 1 && many(&self.snapshots) > MAX_FINDINGS)
            || (self.snapshots.len() > 1 && runs(&self.snapshots) > MAX_RUNS)
        {
            self.snapshots.pop_front();
        }
    }

    /// The last snapshot not after this time; none if history begins later.
    pub(super) fn snapshot_at(&self, at: UnixMs) -> Option<&TickSnapshot> {
        let after = self.snapshots.partition_point(|snapshot| snapshot.at <= at);
        self.snapshots.get(after.checked_sub(1)?)
    }

    /// Time of the oldest snapshot.
    pub(super) fn oldest_time(&self) -> Option<UnixMs> {
        self.snapshots.front().map(|snapshot| snapshot.at)
    }

    /// Every snapshot up to a time, oldest first.
    pub(super) fn snapshots_until(
        &self,
        at: UnixMs,
    ) -> impl DoubleEndedIterator<Item = &TickSnapshot> {
        let after = self.snapshots.partition_point(|snapshot| snapshot.at <= at);
        self.snapshots.range(..after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_snapshot(second: i64, states: &[GpuState]) -> TickSnapshot {
        let (findings, ailing) = (Arc::default(), Arc::default());
        let gpus =
            states.iter().zip(0..).map(|(state, parts)| GpuLoss::from_parts(*state, parts, 3));
        let loss = FleetLoss { gpus: gpus.collect(), ..FleetLoss::default() };
        TickSnapshot::new(UnixMs(second * 1_000), &loss, findings, NodeCounts::default(), ailing)
    }

    #[test]
    fn states_are_restored_as_they_were() {
        let all: Vec<GpuState> = GpuState::ALL.to_vec();
        let kept = sample_snapshot(0, &all);
        let gpus = kept.unpack_loss().gpus;
        let of: Vec<_> = gpus.iter().map(|gpu| (gpu.shown_state(), gpu.lost_parts())).collect();
        let expected: Vec<_> = all.iter().copied().zip(0..).collect();
        assert_eq!(of, expected, "states and shares");
        assert_eq!(kept.gpu_state(1_000), GpuState::Unknown);
    }

    #[test]
    fn history_is_fine_recently_coarse_earlier_and_bounded() {
        let mut history = SnapshotHistory::default();
        for second in 0..4_000 {
            assert!(history.is_due(UnixMs(second * 1_000)));
            history.add_snapshot(sample_snapshot(second, &[]));
        }
        assert!(!history.is_due(UnixMs(3_999_500)));
        let of = |second: i64| {
            history.snapshot_at(UnixMs(second * 1_000)).map(|snapshot| snapshot.at.0 / 1_000)
        };
        assert_eq!((of(3_999), of(3_950), of(3_881)), (Some(3_999), Some(3_950), Some(3_881)));
        let far = of(3_000).unwrap();
        assert!((2_990..=3_000).contains(&far), "{far}");
        assert!(history.snapshots.len() <= FINE_KEPT + COARSE_KEPT);
        let begins = history.oldest_time().unwrap().0 / 1_000;
        assert!((2_000..2_150).contains(&begins), "{begins}");
        assert_eq!(of(1_000), None);
        assert_eq!(history.snapshots_until(UnixMs(begins * 1_000 + 25_000)).count(), 3);
    }

    #[test]
    fn history_is_shortened_by_too_many_findings() {
        let mut history = SnapshotHistory::default();
        for second in 0..100 {
            let list = FindingList {
                findings: vec![crate::tests::sample_finding(); 1_000],
                ..FindingList::default()
            };
            let mut snapshot = sample_snapshot(second, &[]);
            snapshot.findings = Arc::new(list);
            history.add_snapshot(snapshot);
        }
        assert_eq!(history.snapshots.len(), MAX_FINDINGS / 1_000);
    }
}
