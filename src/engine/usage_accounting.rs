//! GPU time accounting: each tick adds what every GPU did since the last tick to two tables.
//!
//! One ([`UsageWindow`]) holds the recent past in full; the other ([`LostTimeTotals`]) holds cumulative lost time, and
//! only grows.

use std::{collections::HashMap, time::Duration};

use gaunt_schema::{DeviceClass, FindingKind, GpuState, SanitizedText, UnixMs, catalogue::gpu};

use super::{Engine, view::View};
use gaunt_api::{GpuTime, JobLostTime, JobTime, LossCause, StateCount, UsageReport};
use gaunt_cluster::Cluster;
use gaunt_judge::{AttributedCause, FleetLoss, GpuLoss, LossCauses, gpus_of_parts};
pub(super) use lost_time_totals::LostTimeTotals;
pub use usage_window::UsageWindow;

mod lost_time_totals;
mod usage_window;

/// The longest interval that is counted: after a longer one the states in between are unknown.
const LONGEST_GAP: Duration = Duration::from_secs(10);

/// Maximum number of jobs with states of their own in the answer.
const MAX_JOBS: usize = 1_000;

/// The key of a counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct UsageKey<S> {
    /// The job that held the GPU, if any.
    job: Option<S>,
    /// The GPU model.
    model: Option<S>,
    state: GpuState,
    /// The cause that the lost part of the time is attributed to; none without loss.
    cause: Option<LossCause>,
}

impl UsageKey<&SanitizedText> {
    fn to_owned_key(&self) -> UsageKey<SanitizedText> {
        let Self { job, model, state, cause } = self;
        UsageKey { job: job.cloned(), model: model.cloned(), state: *state, cause: *cause }
    }
}

/// GPU seconds, lost GPU seconds, and joules where known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct UsageAmount {
    seconds: f64,
    lost: f64,
    joules: Option<f64>,
}

impl std::ops::AddAssign for UsageAmount {
    fn add_assign(&mut self, more: Self) {
        self.seconds += more.seconds;
        self.lost += more.lost;
        self.joules = match (self.joules, more.joules) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
    }
}

/// Both tables, and when they were last updated.
#[derive(Clone, Debug, Default)]
pub(super) struct UsageAccounting {
    last: Option<UnixMs>,
    pub(super) window: UsageWindow,
    pub(super) lost_totals: LostTimeTotals,
}

impl UsageAccounting {
    /// Seconds since the last update, if they can be counted.
    fn since_last(&self, now: UnixMs) -> Option<f64> {
        let gap = now.duration_since(self.last?);
        (!gap.is_zero() && gap <= LONGEST_GAP).then_some(gap.as_secs_f64())
    }
}

/// Usage since the last update, not recorded yet.
#[derive(Debug)]
pub(super) struct UsageDelta {
    now: UnixMs,
    /// The seconds and the usage in them; none if they cannot be counted.
    used: Option<(f64, HashMap<UsageKey<SanitizedText>, UsageAmount>)>,
}

impl Engine {
    /// Counts usage since the last update; states and findings must be current. It visits every GPU, which takes
    /// longer than a query may wait: it can run on another thread.
    pub(super) fn count_usage(&self) -> UsageDelta {
        let now = self.cluster.now();
        let used = self.usage.since_last(now).map(|seconds| {
            let used = collect_usage(&self.cluster, &self.loss, seconds);
            (seconds, used.into_iter().map(|(key, used)| (key.to_owned_key(), used)).collect())
        });
        UsageDelta { now, used }
    }

    /// Adds counted usage to both tables.
    pub(super) fn record_usage(&mut self, counted: UsageDelta) {
        self.usage.last = Some(counted.now);
        let Some((seconds, used)) = counted.used else { return };
        self.usage.lost_totals.add_lost_time(counted.now, &used);
        let jobs = self.cluster.gpus_by_job().keys();
        let jobs = jobs.filter_map(|job| Some((job, self.cluster.job_attributes(job)?)));
        self.usage.window.record_jobs(jobs);
        self.usage.window.add_usage(counted.now, seconds, self.options.usage, used);
    }

    /// GPU time of the last `span`; empty in the past, of which no usage is kept.
    pub(super) fn usage_report(&self, view: &View<'_>, span: Duration) -> UsageReport {
        let none = UsageWindow::default();
        let window = if view.past.is_some() { &none } else { &self.usage.window };
        let cluster = self.options.cluster.clone();
        let mut usage = window.usage_report(self.cluster.now(), span);
        self.options.set_usage_prices(&mut usage.rows);
        UsageReport { cluster, ..usage }
    }

    /// Cumulative lost time, as far as it may be reported.
    pub(super) fn reported_lost_time(&self) -> Vec<JobLostTime> {
        let confirmed = self.confirmed_lost_time.clone();
        confirmed.unwrap_or_else(|| self.usage.lost_totals.sorted_rows())
    }
}

impl View<'_> {
    /// The kind of the finding that the loss of a GPU, or most of it, is attributed to.
    pub(super) fn loss_finding(&self, row: u32) -> Option<FindingKind> {
        let causes = lost_by_cause(&self.loss.causes, self.gpu_loss(row));
        match causes.max_by_key(|(_, parts)| *parts)?.0? {
            LossCause::Finding(kind) => Some(kind),
            LossCause::Idle | LossCause::Unexplained => None,
        }
    }

    /// State and lost time of the GPUs of each job, with the cumulative lost time.
    pub(super) fn gpu_time(&self, starved: Vec<JobLostTime>) -> GpuTime {
        let mut jobs: Vec<(&SanitizedText, &Vec<u32>)> =
            self.cluster.gpus_by_job().iter().collect();
        jobs.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then_with(|| a.0.cmp(b.0)));
        let unlisted_jobs = jobs.len().saturating_sub(MAX_JOBS) as u32;
        let jobs = jobs.into_iter().take(MAX_JOBS).map(|(job, gpus)| {
            let mut counts = vec![0_u32; GpuState::ALL.len()];
            for gpu in gpus {
                counts[self.gpu_state(*gpu) as usize] += 1;
            }
            let states = GpuState::ALL.iter().map(|state| (*state, counts[*state as usize]));
            let states = states.filter(|(_, gpus)| *gpus > 0);
            let states = states.map(|(state, gpus)| StateCount { state, gpus }).collect();
            let lost_gpus = self.lost_gpus(gpus);
            JobTime { job: job.clone(), gpus: gpus.len() as u32, states, lost_gpus }
        });
        GpuTime { at: self.cluster.now(), jobs: jobs.collect(), unlisted_jobs, starved }
    }
}

/// Usage of all GPUs in these seconds.
fn collect_usage<'a>(
    cluster: &'a Cluster,
    loss: &FleetLoss,
    seconds: f64,
) -> HashMap<UsageKey<&'a SanitizedText>, UsageAmount> {
    let mut used: HashMap<UsageKey<&SanitizedText>, UsageAmount> = HashMap::new();
    let rows = cluster.sorted_nodes().flat_map(|(_, node)| node.device_rows(DeviceClass::Gpu));
    // The GPUs of a node usually have the same state and job: they are summed before the lookup.
    let mut run: Option<(UsageKey<&SanitizedText>, UsageAmount)> = None;
    for row in rows.copied() {
        let gpu = loss.gpus.get(row as usize).copied().unwrap_or_default();
        // The energy counter misses nothing between two scrapes; a GPU without one uses its power reading.
        let watts = cluster.current_rate(gpu::ENERGY, row);
        let watts = watts.or_else(|| cluster.current_value(gpu::POWER, row));
        for (cause, lost) in lost_by_cause(&loss.causes, gpu) {
            let key = UsageKey {
                job: cluster.job_of_gpu(row),
                model: cluster.gpu_model(row),
                state: gpu.shown_state(),
                cause,
            };
            // Where several causes share its loss, each has its share of its time.
            let share = cause.map_or(1.0, |_| f64::from(lost) / f64::from(gpu.lost_parts()));
            let more = UsageAmount {
                seconds: seconds * share,
                lost: gpus_of_parts(u64::from(lost)) * seconds,
                joules: watts.map(|watts| watts * seconds * share),
            };
            match &mut run {
                Some((same, sum)) if *same == key => *sum += more,
                _ => {
                    if let Some((done, sum)) = run.replace((key, more)) {
                        *used.entry(done).or_default() += sum;
                    }
                }
            }
        }
    }
    if let Some((done, sum)) = run {
        *used.entry(done).or_default() += sum;
    }
    used
}

/// Iterates the causes of a GPU's loss with the ten-thousandths of its time that each has; no cause without loss.
fn lost_by_cause(
    causes: &LossCauses,
    gpu: GpuLoss,
) -> impl Iterator<Item = (Option<LossCause>, u16)> {
    let none = (gpu.lost_parts() == 0).then_some((None, 0));
    let named = causes.attributed_parts(gpu).map(|(cause, parts)| {
        let cause = match cause {
            AttributedCause::Finding(index) => {
                causes.finding_kind(index).map_or(LossCause::Unexplained, LossCause::Finding)
            }
            AttributedCause::Idle => LossCause::Idle,
            AttributedCause::Unexplained => LossCause::Unexplained,
        };
        (Some(cause), parts)
    });
    none.into_iter().chain(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_counts_time_between_two_ticks_but_no_long_gap() {
        let since = |last: Option<i64>, now| {
            UsageAccounting { last: last.map(UnixMs), ..UsageAccounting::default() }
                .since_last(UnixMs(now))
        };
        assert_eq!(since(None, 1_000), None, "nothing is known of the time before");
        assert_eq!(since(Some(1_000), 2_500), Some(1.5));
        assert_eq!(since(Some(2_500), 2_500), None);
        assert_eq!(since(Some(2_500), 300_000), None, "nobody saw the time between");
        assert_eq!(since(Some(300_000), 301_000), Some(1.0));
    }

    #[test]
    fn energy_is_summed_without_absent_values() {
        let sum = |one: Option<f64>, other: Option<f64>| {
            let mut used = UsageAmount { seconds: 1.0, lost: 0.5, joules: one };
            used += UsageAmount { seconds: 1.0, lost: 0.25, joules: other };
            used.joules
        };
        assert_eq!(sum(None, None), None);
        assert_eq!(sum(Some(1.0), None), Some(1.0));
        assert_eq!(sum(Some(1.0), Some(2.0)), Some(3.0));
    }
}
