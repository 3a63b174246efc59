//! The ledger of usage: GPU time and energy of the last while, by job, board and state.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use gaunt_schema::{Class, GpuState, Safe, UnixMs, catalogue::gpu};

use super::Owner;
use crate::answer::{Usage, UsageRow};

/// What is told begins and ends with one of these.
const STEP: Duration = Duration::from_secs(10);

/// Rows of one step: more jobs than a cluster runs at once. What is beyond is counted, without its job.
const MAX_ROWS: usize = 20_000;

/// Jobs whose names are remembered after their end.
const MAX_TOLD: usize = 20_000;

/// The longest time between two looks that is counted: after a longer one nobody knows what was between.
const LONGEST_GAP: Duration = Duration::from_mins(1);

/// What is counted together.
type Key = (Option<Safe>, Option<Safe>, GpuState);

/// GPU seconds, and joules where they are known.
type Used = (f64, Option<f64>);

/// One step.
#[derive(Debug, Default)]
struct Bucket {
    step: i64,
    watched: f64,
    used: HashMap<Key, Used>,
}

/// What is known of a job that may be over.
#[derive(Clone, Debug, Default)]
struct Told {
    name: Option<Safe>,
    user: Option<Safe>,
    account: Option<Safe>,
}

/// The last while, step by step.
#[derive(Debug, Default)]
pub(super) struct UsageLedger {
    last: Option<UnixMs>,
    /// Oldest first.
    buckets: VecDeque<Bucket>,
    told: BTreeMap<Safe, Told>,
}

impl UsageLedger {
    /// Seconds since the last look, if they can be counted.
    fn since_last(&mut self, now: UnixMs) -> Option<f64> {
        let last = self.last.replace(now)?;
        let gap = now.since(last);
        (!gap.is_zero() && gap <= LONGEST_GAP).then_some(gap.as_secs_f64())
    }

    /// The step of this instant; what is older than `span` goes.
    fn bucket(&mut self, now: UnixMs, span: Duration) -> &mut Bucket {
        let step = step_of(now);
        if self.buckets.back().is_none_or(|newest| newest.step < step) {
            self.buckets.push_back(Bucket { step, ..Bucket::default() });
        }
        let oldest = step - steps_in(span);
        while self.buckets.front().is_some_and(|bucket| bucket.step < oldest) {
            self.buckets.pop_front();
        }
        self.buckets.back_mut().expect("one was just put there")
    }

    /// What was used in the steps of the last `span`.
    fn told(&self, now: UnixMs, span: Duration) -> (Option<UnixMs>, f64, HashMap<&Key, Used>) {
        let oldest = step_of(now) - steps_in(span);
        let kept = || self.buckets.iter().filter(|bucket| bucket.step > oldest);
        let mut all: HashMap<&Key, Used> = HashMap::new();
        for (key, (seconds, joules)) in kept().flat_map(|bucket| &bucket.used) {
            let sum = all.entry(key).or_insert((0.0, None));
            sum.0 += seconds;
            sum.1 = added(sum.1, *joules);
        }
        let from = kept().next().map(|bucket| UnixMs(bucket.step * STEP.as_millis() as i64));
        (from, kept().map(|bucket| bucket.watched).sum(), all)
    }
}

fn step_of(at: UnixMs) -> i64 {
    at.0.div_euclid(STEP.as_millis() as i64)
}

fn steps_in(span: Duration) -> i64 {
    span.as_secs().div_ceil(STEP.as_secs()).try_into().unwrap_or(i64::MAX / 2)
}

fn added(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    }
}

impl Owner {
    /// Counts the time since the last tick under what was just judged.
    pub(super) fn note_usage(&mut self) {
        let now = self.cluster.now();
        let Some(seconds) = self.usage.since_last(now) else { return };
        let mut used: HashMap<(Option<&Safe>, Option<&Safe>, GpuState), Used> = HashMap::new();
        let rows = self.cluster.nodes().flat_map(|(_, node)| node.rows(Class::Gpu));
        for row in rows.copied() {
            let entry = self.cluster.device(Class::Gpu, row);
            let model = entry.and_then(|entry| entry.info(gpu::INFO, "model"));
            let key = (self.cluster.job(row), model, self.state_of(row));
            // The counter loses nothing between two looks; a board without one is taken at its word.
            let watts = self.cluster.rate(gpu::ENERGY, row);
            let watts = watts.or_else(|| self.cluster.value(gpu::POWER, row));
            let sum = used.entry(key).or_insert((0.0, None));
            sum.0 += seconds;
            sum.1 = added(sum.1, watts.map(|watts| watts * seconds));
        }
        for job in self.cluster.jobs().keys() {
            let Some(told) = self.cluster.job_told(job) else { continue };
            if self.usage.told.len() < MAX_TOLD || self.usage.told.contains_key(job) {
                let told = Told {
                    name: told.name.clone(),
                    user: told.user.clone(),
                    account: told.account.clone(),
                };
                self.usage.told.insert(job.clone(), told);
            }
        }
        let bucket = self.usage.bucket(now, self.options.usage);
        bucket.watched += seconds;
        for ((job, model, state), (seconds, joules)) in used {
            let mut key = (job.cloned(), model.cloned(), state);
            if bucket.used.len() >= MAX_ROWS && !bucket.used.contains_key(&key) {
                key = (None, None, state);
            }
            let sum = bucket.used.entry(key).or_insert((0.0, None));
            sum.0 += seconds;
            sum.1 = added(sum.1, joules);
        }
        self.forget_jobs();
    }

    /// Forgets the names of jobs of which nothing is counted any more, once there are too many.
    fn forget_jobs(&mut self) {
        let ledger = &mut self.usage;
        if ledger.told.len() < MAX_TOLD {
            return;
        }
        let counted: std::collections::HashSet<Safe> = ledger
            .buckets
            .iter()
            .flat_map(|bucket| bucket.used.keys().filter_map(|key| key.0.clone()))
            .collect();
        ledger.told.retain(|job, _| counted.contains(job));
    }

    /// Where GPU time went in the last `span`.
    pub(super) fn usage(&self, span: Duration) -> Usage {
        let at = self.cluster.now();
        let (from, watched_seconds, used) = self.usage.told(at, span);
        let mut rows: Vec<UsageRow> = used
            .into_iter()
            .map(|((job, model, state), (gpu_seconds, joules))| {
                let told = job.as_ref().and_then(|job| self.usage.told.get(job)).cloned();
                let Told { name, user, account } = told.unwrap_or_default();
                let (job, model) = (job.clone(), model.clone());
                UsageRow {
                    job,
                    name,
                    user,
                    account,
                    model,
                    state: Some(*state),
                    gpu_seconds,
                    joules,
                }
            })
            .collect();
        rows.sort_by(|one, other| {
            let by_time = other.gpu_seconds.total_cmp(&one.gpu_seconds);
            by_time.then_with(|| (&one.job, one.state).cmp(&(&other.job, other.state)))
        });
        let cluster = self.options.cluster.clone();
        Usage { cluster, at, from: from.unwrap_or(at), watched_seconds, rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_steps_go_and_a_long_gap_is_not_counted() {
        let mut ledger = UsageLedger::default();
        let span = Duration::from_mins(1);
        assert_eq!(ledger.since_last(UnixMs(0)), None, "nothing is known of the time before");
        for second in 1..=100 {
            let now = UnixMs(second * 1_000);
            let seconds = ledger.since_last(now).unwrap();
            let bucket = ledger.bucket(now, span);
            bucket.watched += seconds;
            let key = (Some(Safe::new("7")), None, GpuState::Computing);
            let sum = bucket.used.entry(key).or_insert((0.0, None));
            *sum = (sum.0 + seconds, added(sum.1, Some(700.0 * seconds)));
        }
        let (from, watched, used) = ledger.told(UnixMs(100_000), span);
        assert_eq!((from, watched), (Some(UnixMs(50_000)), 51.0));
        assert_eq!(used.values().next(), Some(&(51.0, Some(35_700.0))));
        assert!(ledger.buckets.len() <= 7);
        assert_eq!(ledger.since_last(UnixMs(300_000)), None, "nobody saw the time between");
        assert_eq!(ledger.told(UnixMs(300_000), span).0, None);
    }

    #[test]
    fn what_is_not_told_adds_nothing_and_takes_nothing() {
        assert_eq!(added(None, None), None);
        assert_eq!(added(Some(1.0), None), Some(1.0));
        assert_eq!(added(Some(1.0), Some(2.0)), Some(3.0));
    }
}
