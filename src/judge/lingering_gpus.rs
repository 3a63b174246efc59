//! Lingering GPUs: they compute for longer than the others of their job and get no more done. Nothing else may show that a
//! GPU is slow: its clock is that of the others.

use std::time::Duration;

use gaunt_schema::UnixMs;

use super::{gpu_tracker::GpuTracker, robust_stats::median};

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

/// Returns the lingering GPUs of a job by row, and the time that each takes for the same work as a multiple of the median;
/// none if so many linger that it is the design.
pub(super) fn list_lingering(
    trackers: &[GpuTracker],
    gpus: &[u32],
    now: UnixMs,
    gap: Duration,
) -> Vec<(u32, f64)> {
    if gpus.len() < LEAST_GPUS {
        return Vec::new();
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
    let found: Vec<(u32, f64)> =
        known.iter().filter(lingers).map(|gpu| (gpu.0, share(gpu) / usual_share)).collect();
    let is_alike = |gpu: &&(u32, f64, f64)| {
        (1.0 / LINGERS_TIMES..LINGERS_TIMES).contains(&(share(gpu) / usual_share))
    };
    let (others, alike) = (known.len() - found.len(), known.iter().filter(is_alike).count());
    let stand_out = found.len() <= (known.len() / MOST_SHARE).max(1)
        && alike as f64 >= LEAST_ALIKE * others as f64;
    if stand_out { found } else { Vec::new() }
}
