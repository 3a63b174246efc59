//! Standout GPUs: the one GPU of a slower job that goes on as before while all others of the job do less.
//!
//! In a synchronous job a slow rank works for the whole of a step, and the others wait for it. Compared with the time
//! before the slowdown, their power, temperature and activity fall by about the same ratio; its own do not. That shows
//! slowdowns of a few per cent, which no comparison of one GPU with the others at one moment shows, since they always
//! differ by more. It is read from the history of the cluster, when a job is likely slower.

use std::collections::HashMap;

use gaunt_cluster::Cluster;
use gaunt_schema::{MetricId, UnixMs, catalogue::gpu};

use super::{
    Thresholds,
    gang_evidence::GangEvidence,
    job_group::{JobGroup, JobGroups},
    job_pauses::Pauses,
    lingering_gpus::LingeringGpu,
    robust_stats::{RobustStats, median},
};

/// What a GPU that waits does less of; each with what tells the same where it is not reported.
const SIGNALS: [&[MetricId]; 5] = [
    // The counter is a mean over all the time between two readings, and the gauge one moment.
    &[gpu::ENERGY, gpu::POWER],
    &[gpu::TEMPERATURE],
    &[gpu::SM_ACTIVE],
    &[gpu::DRAM_ACTIVE],
    &[gpu::MEMORY_ACTIVITY],
];

/// The signals that must tell the same GPU apart.
const LEAST_SIGNALS: usize = 2;

/// How far a GPU must be from the next one of its job, in units of the noise of both.
const LEAST_DISTANCE: f64 = 3.0;

/// The noise of a ratio that is always assumed: values are rounded.
const LEAST_NOISE: f64 = 0.002;

/// A GPU that loses more than this share of what the others lose does not go on as before.
const MOST_OF_LOSS: f64 = 0.5;

/// A GPU that does so much more than before has other work.
const MORE_WORK_TIMES: f64 = 1.25;

/// How far before the last usual sample of a job the time that is compared begins, in seconds, and how much around it is left
/// out: averages follow a slowdown a little later, and not all GPUs are sampled at once.
const BEFORE_SECONDS: f64 = 300.0;
const GUARD_BEFORE_SECONDS: f64 = 30.0;
const GUARD_SINCE_SECONDS: f64 = 15.0;

/// The most seconds since then that are compared, the last ones: what stood out may be over.
const MOST_SINCE_SECONDS: f64 = 300.0;

/// A job that has been slower for longer than this, in seconds, is not compared any more: history ends.
const MOST_SLOWER_SECONDS: f64 = 1200.0;

/// The least points of a GPU before and since.
const LEAST_BEFORE: usize = 4;
const LEAST_SINCE: usize = 3;

/// The least GPUs of a job of which one can stand out, and the most that are read.
const LEAST_GPUS: usize = 4;
const MOST_GPUS: usize = 2048;

/// The GPUs from which their differences show the noise of each.
const MANY_GPUS: usize = 8;

/// The others do less if their median changed to this at most. Less than the other is an end or a pause: they do nothing.
const MOST_OF_OTHERS: f64 = 0.985;
const LEAST_OF_OTHERS: f64 = 0.1;

/// Seconds between two comparisons of a job, of which two in a row must tell the same GPU apart.
const COMPARED_SECONDS: f64 = 10.0;

/// The GPUs that stand out of slower jobs, by the group keys of these.
#[derive(Debug, Default)]
pub(super) struct StandoutTable {
    jobs: HashMap<String, StandoutRecord>,
}

#[derive(Clone, Copy, Debug)]
struct StandoutRecord {
    compared: UnixMs,
    /// What the last comparison told apart.
    last: Option<LingeringGpu>,
    /// What two in a row told apart.
    found: Option<LingeringGpu>,
}

/// How a signal of one GPU changed: its mean since / before, and the noise of that.
#[derive(Clone, Copy, Debug)]
struct SignalChange {
    row: u32,
    ratio: f64,
    noise: f64,
}

impl StandoutTable {
    /// Returns how the GPU at a row stands out of its job, if it does.
    pub(super) fn of_gpu(&self, group: &JobGroup, row: u32) -> Option<LingeringGpu> {
        let found = || self.jobs.get(&group.group_key())?.found;
        (!self.jobs.is_empty()).then(found)?.filter(|gpu| gpu.is_at(row))
    }

    /// Compares the GPUs of every job that is likely slower with the time before.
    pub(super) fn observe_groups(
        &mut self,
        cluster: &Cluster,
        groups: &JobGroups,
        (gangs, pauses): (&GangEvidence, &Pauses),
        limits: &Thresholds,
    ) {
        let now = cluster.now();
        let mut seen = HashMap::new();
        for group in groups.all_groups() {
            let evidence = gangs.of(group);
            if !evidence.may_be_slower(group, limits) {
                continue;
            }
            let key = group.group_key();
            let before = self.jobs.remove(&key);
            let every = COMPARED_SECONDS.max(group.interval.seconds());
            let is_due = before.is_none_or(|record| {
                now.duration_since(record.compared).as_secs_f64() >= every || record.compared > now
            });
            let usual_at = evidence.last_usual();
            let is_read = is_due
                && evidence.is_slower(group, limits)
                && evidence.is_steady(group)
                && usual_at > UnixMs(0)
                && !pauses.distort_averages(group, now, limits);
            let record = if is_read {
                Some(StandoutRecord::next(before, find_standout(cluster, group, usual_at), now))
            } else {
                before
            };
            seen.extend(record.map(|record| (key, record)));
        }
        self.jobs = seen;
    }
}

impl StandoutRecord {
    fn next(before: Option<Self>, last: Option<LingeringGpu>, now: UnixMs) -> Self {
        let known = before.and_then(|record| record.found);
        let earlier = before.and_then(|record| record.last);
        let again = earlier.zip(last).filter(|(earlier, last)| earlier.is_same_gpu(last));
        Self { compared: now, last, found: again.map(|(_, last)| last).or(known) }
    }
}

/// Returns the only GPU of a job that goes on as it did until `usual_at`.
fn find_standout(cluster: &Cluster, group: &JobGroup, usual_at: UnixMs) -> Option<LingeringGpu> {
    let slower_s = cluster.now().duration_since(usual_at).as_secs_f64();
    if !(LEAST_GPUS..=MOST_GPUS).contains(&group.gpus.len()) || slower_s > MOST_SLOWER_SECONDS {
        return None;
    }
    let tells_apart = |metrics: &&[MetricId]| {
        let changes =
            metrics.iter().map(|metric| collect_changes(cluster, group, *metric, slower_s));
        tell_apart(
            &changes.into_iter().find(|changes| changes.len() >= LEAST_GPUS)?,
            group.gpus.len(),
        )
    };
    let told: Vec<(u32, f64)> = SIGNALS.iter().filter_map(tells_apart).collect();
    let (row, _) = *told.first()?;
    let is_same = told.iter().all(|(other, _)| *other == row);
    let times = median(told.iter().map(|(_, times)| *times))?;
    (is_same && told.len() >= LEAST_SIGNALS).then(|| LingeringGpu::unchanged(row, times))
}

/// Returns the GPU that a signal tells apart from all others of a job with so many, and its change / the median change.
fn tell_apart(changes: &[SignalChange], of: usize) -> Option<(u32, f64)> {
    let ratios: Vec<f64> = changes.iter().map(|change| change.ratio).collect();
    let usual = RobustStats::of(&ratios, LEAST_GPUS.max(of * 3 / 4))?;
    let most = changes.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
    let others = changes.iter().filter(|other| other.row != most.row);
    let next = others.map(|other| other.ratio).max_by(f64::total_cmp)?;
    // What all GPUs have in common, such as the moments at which they are read, shows in how they differ.
    let own = if changes.len() < MANY_GPUS { most.noise } else { 0.0 };
    let noise = (usual.spread + LEAST_NOISE).hypot(own);
    let goes_on = |ratio: f64| 1.0 - ratio <= MOST_OF_LOSS * (1.0 - usual.median);
    let stands_out = most.ratio - next >= LEAST_DISTANCE * noise
        && goes_on(most.ratio)
        && !goes_on(next)
        && most.ratio <= MORE_WORK_TIMES
        && (LEAST_OF_OTHERS..=MOST_OF_OTHERS).contains(&usual.median);
    stands_out.then(|| (most.row, most.ratio / usual.median))
}

/// Returns how a signal of each GPU changed since its job is slower.
fn collect_changes(
    cluster: &Cluster,
    group: &JobGroup,
    metric: MetricId,
    slower_s: f64,
) -> Vec<SignalChange> {
    let period = cluster.scrape_period().as_secs_f64();
    let in_points = |seconds: f64| (seconds / period).ceil() as usize;
    let since = in_points(slower_s);
    let before = in_points(BEFORE_SECONDS);
    let guard = group.interval.seconds().max(GUARD_SINCE_SECONDS);
    let change = |row: &u32| {
        let points = cluster.points_until(metric, *row, cluster.now(), since + before)?;
        let (before, after) = points.split_at(points.len().saturating_sub(since));
        let before = &before[..before.len().saturating_sub(in_points(GUARD_BEFORE_SECONDS))];
        let after = after.get(in_points(guard)..).unwrap_or_default();
        let after = &after[after.len().saturating_sub(in_points(MOST_SINCE_SECONDS))..];
        let (usual, usual_noise) = mean_of(before, LEAST_BEFORE)?;
        let (now, noise) = mean_of(after, LEAST_SINCE)?;
        (usual > 0.0).then(|| SignalChange {
            row: *row,
            ratio: now / usual,
            noise: usual_noise.hypot(noise) / usual,
        })
    };
    group.gpus.iter().filter_map(change).collect()
}

/// Returns the mean of points and its standard error; none of fewer than `least`. A value that does not change from one to
/// the next was read twice.
fn mean_of(points: &[Option<f32>], least: usize) -> Option<(f64, f64)> {
    let known = || points.iter().flatten().map(|point| f64::from(*point));
    let count = known().count();
    if count < least {
        return None;
    }
    let mean = known().sum::<f64>() / count as f64;
    let variance = known().map(|point| (point - mean).powi(2)).sum::<f64>() / (count - 1) as f64;
    let changes = known().zip(known().skip(1)).filter(|(a, b)| a.total_cmp(b).is_ne()).count();
    Some((mean, (variance / (changes + 1) as f64).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(ratio: impl Fn(u32) -> f64) -> Vec<SignalChange> {
        (0..8).map(|row| SignalChange { row, ratio: ratio(row), noise: 0.001 }).collect()
    }

    #[test]
    fn gpu_is_told_apart_from_others_that_do_less_and_not_from_others_that_do_nothing() {
        let but_one = |others: f64| changes(move |row| if row == 3 { 1.0 } else { others });
        assert_eq!(tell_apart(&but_one(0.8), 8), Some((3, 1.25)));
        assert_eq!(tell_apart(&but_one(0.99), 8), None);
        assert_eq!(tell_apart(&but_one(0.0), 8), None);
        // Another one goes on as well, if a little less: an overloaded stage.
        let stage = changes(|row| match row {
            2 => 0.95,
            3 => 1.0,
            _ => 0.8,
        });
        assert_eq!(tell_apart(&stage, 8), None);
        assert_eq!(tell_apart(&changes(|_| 0.0), 8), None);
    }
}
