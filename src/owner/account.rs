//! The account of GPU time: at each tick one look at what every GPU did since the last, which goes into two books.
//!
//! The one ([`Recent`]) is the last while in full; the other ([`Spent`]) is what was lost ever since, and only grows.

use std::{collections::HashMap, time::Duration};

use gaunt_schema::{Class, FindingKind, GpuState, Safe, UnixMs, catalogue::gpu};

use super::Owner;
use crate::{
    answer::{GpuTime, JobTime, LossCause, StateCount, Usage},
    cluster::Cluster,
    judge::{Cause, GpuLoss, Loss, gpus_of_parts},
};
pub use recent::Recent;
pub(super) use spent::Spent;

mod recent;
mod spent;

/// The longest time between two looks that is counted: after a longer one nobody knows what was between.
const LONGEST_GAP: Duration = Duration::from_secs(10);

/// Jobs whose states are told one by one.
const MAX_JOBS: usize = 1_000;

/// What is counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key<S> {
    /// Who held the GPU, if anybody.
    job: Option<S>,
    /// The model of its board.
    model: Option<S>,
    state: GpuState,
    /// What the lost part of the time is attributed to; none where nothing was lost.
    cause: Option<LossCause>,
}

impl Key<&Safe> {
    fn cloned(&self) -> Key<Safe> {
        let Self { job, model, state, cause } = self;
        Key { job: job.cloned(), model: model.cloned(), state: *state, cause: *cause }
    }
}

/// GPU seconds, how many of them were lost, and joules where they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Used {
    seconds: f64,
    lost: f64,
    joules: Option<f64>,
}

impl std::ops::AddAssign for Used {
    fn add_assign(&mut self, more: Self) {
        self.seconds += more.seconds;
        self.lost += more.lost;
        self.joules = match (self.joules, more.joules) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
    }
}

/// Both books, and when they were last written.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    last: Option<UnixMs>,
    pub(super) recent: Recent,
    pub(super) spent: Spent,
}

impl Account {
    /// Seconds since the last look, if they can be counted.
    fn since_last(&self, now: UnixMs) -> Option<f64> {
        let gap = now.since(self.last?);
        (!gap.is_zero() && gap <= LONGEST_GAP).then_some(gap.as_secs_f64())
    }
}

/// What was counted of the time since the last look, not written yet.
#[derive(Debug)]
pub(super) struct Counted {
    now: UnixMs,
    /// The seconds, and what was used in them; none if they cannot be counted.
    used: Option<(f64, HashMap<Key<Safe>, Used>)>,
}

impl Owner {
    /// Counts the time since the last look; states and findings must be those of now. Every GPU is looked at, which
    /// takes longer than a question may wait: it can be done elsewhere.
    pub(super) fn count_time(&self) -> Counted {
        let now = self.cluster.now();
        let used = self.account.since_last(now).map(|seconds| {
            let used = used(&self.cluster, &self.loss, seconds);
            (seconds, used.into_iter().map(|(key, used)| (key.cloned(), used)).collect())
        });
        Counted { now, used }
    }

    /// Writes what was counted into both books.
    pub(super) fn take_time(&mut self, counted: Counted) {
        self.account.last = Some(counted.now);
        let Some((seconds, used)) = counted.used else { return };
        self.account.spent.add(counted.now, &used);
        let told = self.cluster.jobs().keys();
        let told = told.filter_map(|job| Some((job, self.cluster.job_told(job)?)));
        self.account.recent.tell(told);
        self.account.recent.add(counted.now, seconds, self.options.usage, used);
    }

    /// The kind of the finding that the loss of a GPU is attributed to.
    pub(super) fn loss_finding(&self, row: u32) -> Option<FindingKind> {
        match cause(&self.loss, self.gpu_loss(row))? {
            LossCause::Finding(kind) => Some(kind),
            LossCause::Idle | LossCause::Unexplained => None,
        }
    }

    /// Where GPU time went in the last `span`.
    pub(super) fn usage(&self, span: Duration) -> Usage {
        let cluster = self.options.cluster.clone();
        Usage { cluster, ..self.account.recent.usage(self.cluster.now(), span) }
    }

    /// What the GPUs of each job do, and what was lost.
    pub(super) fn gpu_time(&self) -> GpuTime {
        let mut jobs: Vec<(&Safe, &Vec<u32>)> = self.cluster.jobs().iter().collect();
        jobs.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then_with(|| a.0.cmp(b.0)));
        let unlisted_jobs = jobs.len().saturating_sub(MAX_JOBS) as u32;
        let jobs = jobs.into_iter().take(MAX_JOBS).map(|(job, gpus)| {
            let mut counts = vec![0_u32; GpuState::ALL.len()];
            for gpu in gpus {
                counts[self.state_of(*gpu) as usize] += 1;
            }
            let states = GpuState::ALL.iter().map(|state| (*state, counts[*state as usize]));
            let states = states.filter(|(_, gpus)| *gpus > 0);
            let states = states.map(|(state, gpus)| StateCount { state, gpus }).collect();
            let lost_gpus = self.lost_gpus(gpus);
            JobTime { job: job.clone(), gpus: gpus.len() as u32, states, lost_gpus }
        });
        GpuTime {
            at: self.cluster.now(),
            jobs: jobs.collect(),
            unlisted_jobs,
            starved: self.told_spent.clone().unwrap_or_else(|| self.account.spent.told()),
        }
    }
}

/// What all GPUs did in these seconds.
fn used<'a>(cluster: &'a Cluster, loss: &Loss, seconds: f64) -> HashMap<Key<&'a Safe>, Used> {
    let mut used: HashMap<Key<&Safe>, Used> = HashMap::new();
    let rows = cluster.nodes().flat_map(|(_, node)| node.rows(Class::Gpu));
    // The GPUs of a node mostly do the same for the same job: they are added up before they are looked up.
    let mut run: Option<(Key<&Safe>, Used)> = None;
    for row in rows.copied() {
        let gpu = loss.gpus.get(row as usize).copied().unwrap_or_default();
        let key = Key {
            job: cluster.job(row),
            model: cluster.model(row),
            state: gpu.state(),
            cause: cause(loss, gpu),
        };
        // The counter loses nothing between two looks; a board without one is taken at its word.
        let watts = cluster.rate(gpu::ENERGY, row);
        let watts = watts.or_else(|| cluster.value(gpu::POWER, row));
        let joules = watts.map(|watts| watts * seconds);
        let lost = gpus_of_parts(u64::from(gpu.parts())) * seconds;
        let more = Used { seconds, lost, joules };
        match &mut run {
            Some((same, sum)) if *same == key => *sum += more,
            _ => {
                if let Some((done, sum)) = run.replace((key, more)) {
                    *used.entry(done).or_default() += sum;
                }
            }
        }
    }
    if let Some((done, sum)) = run {
        *used.entry(done).or_default() += sum;
    }
    used
}

/// What the loss of a GPU is attributed to; none if it loses nothing.
fn cause(loss: &Loss, gpu: GpuLoss) -> Option<LossCause> {
    Some(match gpu.cause()? {
        Cause::Finding(place) => loss
            .findings
            .get(usize::from(place))
            .map_or(LossCause::Unexplained, |(_, kind)| LossCause::Finding(*kind)),
        Cause::Idle => LossCause::Idle,
        Cause::Unexplained => LossCause::Unexplained,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_counted_between_two_looks_and_a_long_gap_is_not() {
        let since = |last: Option<i64>, now| {
            Account { last: last.map(UnixMs), ..Account::default() }.since_last(UnixMs(now))
        };
        assert_eq!(since(None, 1_000), None, "nothing is known of the time before");
        assert_eq!(since(Some(1_000), 2_500), Some(1.5));
        assert_eq!(since(Some(2_500), 2_500), None);
        assert_eq!(since(Some(2_500), 300_000), None, "nobody saw the time between");
        assert_eq!(since(Some(300_000), 301_000), Some(1.0));
    }

    #[test]
    fn what_is_not_told_adds_nothing_and_takes_nothing() {
        let sum = |one: Option<f64>, other: Option<f64>| {
            let mut used = Used { seconds: 1.0, lost: 0.5, joules: one };
            used += Used { seconds: 1.0, lost: 0.25, joules: other };
            used.joules
        };
        assert_eq!(sum(None, None), None);
        assert_eq!(sum(Some(1.0), None), Some(1.0));
        assert_eq!(sum(Some(1.0), Some(2.0)), Some(3.0));
    }
}
