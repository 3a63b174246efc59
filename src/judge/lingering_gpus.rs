//! Lingering GPUs: they compute for longer than the others of their job and get no more done. Nothing else may show that a
//! GPU is slow: its clock is that of the others. Without profiling counters, their power tells that all others wait for one.

use std::time::Duration;

use gaunt_schema::UnixMs;

use super::{
    EvidenceRow, Thresholds, gpu_tracker::GpuTracker, pending_finding::format_percent,
    robust_stats::median,
};

/// The SM activity for the same tensor activity from which a GPU may linger, as a multiple of the median of its job: ranks of
/// one job differ by a few per cent, and the waiting of the others is at most a third of theirs. Both are averages of the
/// same samples, so that their quotient does not vary with the phase of a step in which a node is sampled.
const LINGERS_TIMES: f64 = 1.25;

/// The others wait for it: their SM activity is lower, by more than the phase of a step makes.
const BUSIER_TIMES: f64 = 1.1;

/// A GPU with so much more tensor activity than the median has more work than the others.
const SAME_WORK_TIMES: f64 = 1.25;

/// The share of a job's GPUs that may linger: more of them are a stage with more work.
const MOST_SHARE: usize = 16;

/// The share of the others that must take as long as each other for the same work: GPUs that differ among themselves do not
/// work for each other.
const LEAST_ALIKE: f64 = 0.9;

/// The least GPUs of a job of which one can stand out.
const LEAST_GPUS: usize = 4;

/// A GPU without profiling counters that others wait for works at this share of its usual power at least, they at no more than
/// the second one, and at no less than the third, or nothing goes on.
const WORKS_SHARE: f64 = 0.9;
const MOST_WAITING_SHARE: f64 = 0.8;
const LEAST_WAITING_SHARE: f64 = 0.2;

/// How far those that wait for the same GPU may be from each other.
const WAIT_SPREAD: f64 = 0.1;

/// A GPU that takes longer than the others of its job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LingeringGpu {
    row: u32,
    /// How many times as long as they.
    pub(super) times: f64,
    shown_by: LingeringSign,
}

/// What shows that a GPU takes longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LingeringSign {
    /// Profiling counters: it does no more work than the others.
    SameWork,
    /// All others draw less power than usual, and it does not.
    Power,
    /// Since their job is slower all others do less than before, and it does not.
    Unchanged,
}

/// Returns the only GPU of a job that works as usual while all others wait, by their power, if none has profiling counters: it
/// is slow, or has more work than they.
fn find_awaited(
    trackers: &[GpuTracker],
    gpus: &[u32],
    (now, gap): (UnixMs, Duration),
    limits: &Thresholds,
) -> Option<LingeringGpu> {
    let pace = |row: &u32| {
        let averages = &trackers.get(*row as usize)?.averages;
        let busy = averages.utilization_at(now, gap)?;
        let is_plain = busy >= limits.utilization_spinning_ratio && !averages.is_profiled(now, gap);
        averages.activity_ratio(now, gap, limits).filter(|_| is_plain).map(|pace| (*row, pace))
    };
    let paces: Vec<(u32, f64)> = gpus.iter().map_while(pace).collect();
    let waiting = || paces.iter().map(|(_, pace)| *pace).filter(|pace| *pace <= MOST_WAITING_SHARE);
    let least = LEAST_ALIKE * (paces.len() as f64 - 1.0);
    if paces.len() < gpus.len() || paces.len() < LEAST_GPUS || (waiting().count() as f64) < least {
        return None;
    }
    let (row, own) = *paces.iter().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let usual = median(waiting()).filter(|usual| *usual >= LEAST_WAITING_SHARE)?;
    let alike = waiting().filter(|pace| (pace - usual).abs() <= WAIT_SPREAD).count();
    (own >= WORKS_SHARE && alike as f64 >= least).then_some(LingeringGpu {
        row,
        times: own / usual,
        shown_by: LingeringSign::Power,
    })
}

impl LingeringGpu {
    /// Creates one that works as before, so many times as long as the others of its job.
    pub(super) fn unchanged(row: u32, times: f64) -> Self {
        Self { row, times, shown_by: LingeringSign::Unchanged }
    }

    /// Returns what sets it apart.
    pub(super) fn words(self) -> String {
        let times = self.times;
        match self.shown_by {
            LingeringSign::SameWork => format!(
                "it computes {times:.1} times as long as the others of its job for the same work"
            ),
            LingeringSign::Power => format!(
                "the others of its job wait for it, as it works {times:.1} times as long; it is slow, or has more to do"
            ),
            LingeringSign::Unchanged => format!(
                "it goes on as before while the others of its job do {} less; it is slow, or has more to do",
                format_percent(1.0 - 1.0 / times)
            ),
        }
    }

    /// Returns the row of its evidence.
    pub(super) fn evidence_row(self) -> EvidenceRow {
        match self.shown_by {
            LingeringSign::SameWork => EvidenceRow::LingeringGpu,
            LingeringSign::Power => EvidenceRow::AwaitedGpu,
            LingeringSign::Unchanged => EvidenceRow::UnchangedGpu,
        }
    }

    /// Whether it is known only of the time in which its job is slower, all of it.
    pub(super) fn is_of_whole_slowdown(self) -> bool {
        self.shown_by == LingeringSign::Unchanged
    }

    /// Whether both are of the same GPU.
    pub(super) fn is_same_gpu(&self, other: &Self) -> bool {
        self.row == other.row
    }

    /// Whether it is this one.
    pub(super) fn is_at(&self, row: u32) -> bool {
        self.row == row
    }
}

/// Returns the lingering GPUs of a job by row, and the time that each takes for the same work as a multiple of the median;
/// none if so many linger that it is the design.
pub(super) fn list_lingering(
    trackers: &[GpuTracker],
    gpus: &[u32],
    (now, gap): (UnixMs, Duration),
    limits: &Thresholds,
) -> Vec<LingeringGpu> {
    if gpus.len() < LEAST_GPUS {
        return Vec::new();
    }
    if let Some(awaited) = find_awaited(trackers, gpus, (now, gap), limits) {
        return vec![awaited];
    }
    let activity = |row: &u32| {
        let (sm, tensor) = trackers.get(*row as usize)?.averages.pipe_activity(now, gap);
        Some((*row, sm?, tensor.filter(|tensor| *tensor > 0.0)?))
    };
    let known: Vec<(u32, f64, f64)> = gpus.iter().filter_map(activity).collect();
    let usual = |of: fn(&(u32, f64, f64)) -> f64| {
        median(known.iter().map(of)).filter(|usual| *usual > 0.0 && known.len() >= LEAST_GPUS)
    };
    let share = |(_, sm, tensor): &(u32, f64, f64)| sm / tensor;
    let usual = usual(|(_, sm, _)| *sm).zip(usual(|(_, _, tensor)| *tensor)).zip(usual(share));
    let Some(((usual_sm, usual_tensor), usual_share)) = usual else { return Vec::new() };
    let lingers = |gpu: &&(u32, f64, f64)| {
        share(gpu) >= usual_share * LINGERS_TIMES
            && gpu.1 >= usual_sm * BUSIER_TIMES
            && gpu.2 <= usual_tensor * SAME_WORK_TIMES
    };
    let lingering = |gpu: &(u32, f64, f64)| LingeringGpu {
        row: gpu.0,
        times: share(gpu) / usual_share,
        shown_by: LingeringSign::SameWork,
    };
    let found: Vec<LingeringGpu> = known.iter().filter(lingers).map(lingering).collect();
    let is_alike = |gpu: &&(u32, f64, f64)| {
        (1.0 / LINGERS_TIMES..LINGERS_TIMES).contains(&(share(gpu) / usual_share))
    };
    let (others, alike) = (known.len() - found.len(), known.iter().filter(is_alike).count());
    let stand_out = found.len() <= (known.len() / MOST_SHARE).max(1)
        && alike as f64 >= LEAST_ALIKE * others as f64;
    if stand_out { found } else { Vec::new() }
}
