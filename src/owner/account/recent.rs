//! The last while in full: GPU time and energy by job, board, state and cause, step by step.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use gaunt_schema::{GpuState, Safe, UnixMs};
use serde::{Deserialize, Serialize};

use super::{Key, Used};
use crate::{
    answer::{LossCause, Usage, UsageRow},
    cluster::JobTold,
};

/// What is told begins and ends with one of these.
const STEP: Duration = Duration::from_secs(10);

/// Steps that are kept on the disk as one: a minute.
const STEPS_KEPT: i64 = 6;

/// Rows of one step: more jobs than a cluster runs at once. What is beyond is counted, without its job.
const MAX_ROWS: usize = 20_000;

/// Rows that are kept on the disk, the newest minutes first: some 20 MB before they are packed.
const MAX_KEPT: usize = 400_000;

/// Jobs whose names are remembered after their end.
const MAX_TOLD: usize = 20_000;

/// One step.
#[derive(Clone, Debug, Default, PartialEq)]
struct Bucket {
    step: i64,
    watched: f64,
    used: HashMap<Key<Safe>, Used>,
}

impl Bucket {
    fn add(&mut self, key: Key<Safe>, more: Used) {
        let full = self.used.len() >= MAX_ROWS && !self.used.contains_key(&key);
        let key = if full { Key { job: None, model: None, ..key } } else { key };
        *self.used.entry(key).or_default() += more;
    }
}

/// What is known of a job that may be over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Told {
    name: Option<Safe>,
    user: Option<Safe>,
    account: Option<Safe>,
}

/// The last while, step by step. A copy is cheap: what is over is shared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recent {
    /// Oldest first.
    buckets: VecDeque<Arc<Bucket>>,
    told: Arc<BTreeMap<Safe, Told>>,
}

impl Recent {
    /// Adds what was used in the last seconds; what is older than `span` goes.
    pub(super) fn add(
        &mut self,
        now: UnixMs,
        seconds: f64,
        span: Duration,
        used: HashMap<Key<Safe>, Used>,
    ) {
        let bucket = self.bucket(now, span);
        bucket.watched += seconds;
        for (key, more) in used {
            bucket.add(key, more);
        }
        self.forget_jobs();
    }

    /// Notes what is known of jobs.
    pub(super) fn tell<'a>(&mut self, jobs: impl Iterator<Item = (&'a Safe, &'a JobTold)>) {
        for (job, said) in jobs {
            let same = |told: &Told| {
                (&told.name, &told.user, &told.account) == (&said.name, &said.user, &said.account)
            };
            let known = self.told.get(job);
            if known.is_some_and(same) || (known.is_none() && self.told.len() >= MAX_TOLD) {
                continue;
            }
            let told = Told {
                name: said.name.clone(),
                user: said.user.clone(),
                account: said.account.clone(),
            };
            Arc::make_mut(&mut self.told).insert(job.clone(), told);
        }
    }

    /// The step of this instant.
    fn bucket(&mut self, now: UnixMs, span: Duration) -> &mut Bucket {
        let step = step_of(now);
        if self.buckets.back().is_none_or(|newest| newest.step < step) {
            self.buckets.push_back(Arc::new(Bucket { step, ..Bucket::default() }));
        }
        let oldest = step - steps_in(span);
        while self.buckets.front().is_some_and(|bucket| bucket.step < oldest) {
            self.buckets.pop_front();
        }
        Arc::make_mut(self.buckets.back_mut().expect("one was just put there"))
    }

    /// Forgets the names of jobs of which nothing is counted any more, once there are too many.
    fn forget_jobs(&mut self) {
        if self.told.len() < MAX_TOLD {
            return;
        }
        let counted = self.buckets.iter().flat_map(|bucket| bucket.used.keys());
        let counted: HashSet<&Safe> = counted.filter_map(|key| key.job.as_ref()).collect();
        Arc::make_mut(&mut self.told).retain(|job, _| counted.contains(job));
    }

    /// What was used in the steps of the last `span`.
    pub(super) fn usage(&self, at: UnixMs, span: Duration) -> Usage {
        let oldest = step_of(at) - steps_in(span);
        let kept = || self.buckets.iter().filter(|bucket| bucket.step > oldest);
        let mut all: HashMap<&Key<Safe>, Used> = HashMap::new();
        for (key, used) in kept().flat_map(|bucket| &bucket.used) {
            *all.entry(key).or_default() += *used;
        }
        let from = kept().next().map(|bucket| UnixMs(bucket.step * STEP.as_millis() as i64));
        let mut rows: Vec<UsageRow> =
            all.into_iter().map(|(key, used)| self.row(key, used)).collect();
        rows.sort_by(|one, other| {
            let by_time = other.gpu_seconds.total_cmp(&one.gpu_seconds);
            let named = |row: &UsageRow| (row.job.clone(), row.state, row.cause);
            by_time.then_with(|| named(one).cmp(&named(other)))
        });
        Usage {
            cluster: Safe::default(),
            at,
            from: from.unwrap_or(at),
            watched_seconds: kept().map(|bucket| bucket.watched).sum(),
            rows,
        }
    }

    fn row(&self, key: &Key<Safe>, used: Used) -> UsageRow {
        let told = key.job.as_ref().and_then(|job| self.told.get(job)).cloned();
        let Told { name, user, account } = told.unwrap_or_default();
        UsageRow {
            job: key.job.clone(),
            name,
            user,
            account,
            model: key.model.clone(),
            state: Some(key.state),
            cause: key.cause,
            gpu_seconds: used.seconds,
            lost_gpu_seconds: used.lost,
            joules: used.joules,
        }
    }

    /// The minute of the newest step; whoever keeps it writes when that changes.
    pub fn minute(&self) -> Option<i64> {
        self.buckets.back().map(|bucket| bucket.step.div_euclid(STEPS_KEPT))
    }
}

fn step_of(at: UnixMs) -> i64 {
    at.0.div_euclid(STEP.as_millis() as i64)
}

fn steps_in(span: Duration) -> i64 {
    span.as_secs().div_ceil(STEP.as_secs()).try_into().unwrap_or(i64::MAX / 2)
}

/// How it lies on the disk: minutes, and each text once.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    texts: Vec<Safe>,
    minutes: Vec<Minute>,
    told: Arc<BTreeMap<Safe, Told>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Minute {
    step: i64,
    watched: f64,
    used: Vec<Row>,
    /// The lost seconds of each row; files that were written without it say it by the state.
    #[serde(default)]
    lost: Vec<f64>,
}

/// Job and model by the place of their text, state, cause, seconds, joules.
type Row = (Option<usize>, Option<usize>, GpuState, Option<LossCause>, f64, Option<f64>);

impl Serialize for Recent {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut minutes: Vec<Bucket> = Vec::new();
        let mut rows = 0;
        for bucket in self.buckets.iter().rev() {
            let step = bucket.step.div_euclid(STEPS_KEPT) * STEPS_KEPT;
            if minutes.last().is_none_or(|newest| newest.step != step) {
                rows += minutes.last().map_or(0, |minute| minute.used.len());
                if rows + bucket.used.len() > MAX_KEPT {
                    break;
                }
                minutes.push(Bucket { step, ..Bucket::default() });
            }
            if let Some(minute) = minutes.last_mut() {
                minute.watched += bucket.watched;
                bucket.used.iter().for_each(|(key, used)| minute.add(key.clone(), *used));
            }
        }
        let mut kept = Kept { told: self.told.clone(), ..Kept::default() };
        let mut places: HashMap<Safe, usize> = HashMap::new();
        let mut place = |text: Safe| {
            *places.entry(text).or_insert_with_key(|text| {
                kept.texts.push(text.clone());
                kept.texts.len() - 1
            })
        };
        for minute in minutes.into_iter().rev() {
            let row = |(key, used): (Key<Safe>, Used)| {
                let (job, model) = (key.job.map(&mut place), key.model.map(&mut place));
                (job, model, key.state, key.cause, used.seconds, used.joules)
            };
            let lost = minute.used.values().map(|used| used.lost).collect();
            let used = minute.used.into_iter().map(row).collect();
            kept.minutes.push(Minute { step: minute.step, watched: minute.watched, used, lost });
        }
        kept.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Recent {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Kept { texts, minutes, told } = Kept::deserialize(from)?;
        let buckets = minutes.into_iter().map(|minute| {
            let text = |place: Option<usize>| place.and_then(|place| texts.get(place)).cloned();
            let mut lost = minute.lost.into_iter();
            let used =
                minute.used.into_iter().map(|(job, model, state, cause, seconds, joules)| {
                    let by_state = || if state.is_lost_time() { seconds } else { 0.0 };
                    let lost = lost.next().unwrap_or_else(by_state);
                    let cause = cause.or_else(|| cause_of(state).filter(|_| lost > 0.0));
                    let key = Key { job: text(job), model: text(model), state, cause };
                    (key, Used { seconds, lost, joules })
                });
            let used = used.collect();
            Arc::new(Bucket { step: minute.step, watched: minute.watched, used })
        });
        Ok(Self { buckets: buckets.collect(), told })
    }
}

/// The cause of lost time that was kept without one.
fn cause_of(state: GpuState) -> Option<LossCause> {
    Some(match state {
        GpuState::IdleAllocated => LossCause::Idle,
        _ => LossCause::Unexplained,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_mins(10);

    fn spend(recent: &mut Recent, job: &str, second: i64) {
        let job = Safe::new(job);
        let cause = Some(LossCause::Unexplained);
        let key = Key { job: Some(&job), model: None, state: GpuState::Slowed, cause };
        let used = Used { seconds: 1.0, lost: 0.25, joules: Some(700.0) };
        recent.add(UnixMs(second * 1_000), 1.0, SPAN, HashMap::from([(key.cloned(), used)]));
    }

    #[test]
    fn old_steps_go() {
        let mut recent = Recent::default();
        (1..=1_000).for_each(|second| spend(&mut recent, "7", second));
        let usage = recent.usage(UnixMs(1_000_000), Duration::from_mins(1));
        assert_eq!((usage.from, usage.watched_seconds), (UnixMs(950_000), 51.0));
        assert_eq!((usage.rows[0].gpu_seconds, usage.rows[0].joules), (51.0, Some(35_700.0)));
        assert_eq!(recent.buckets.len(), 61);
    }

    #[test]
    fn it_is_kept_by_the_minute_and_goes_on() {
        let mut recent = Recent::default();
        (0..300).for_each(|second| spend(&mut recent, if second < 90 { "6" } else { "7" }, second));
        let said = JobTold { user: Some(Safe::new("mira")), ..Default::default() };
        recent.tell(std::iter::once((&Safe::new("6"), &said)));
        let text = serde_json::to_string(&recent).unwrap();
        let mut again: Recent = serde_json::from_str(&text).unwrap();
        assert_eq!(again.buckets.len(), 5);
        let at = UnixMs(299_000);
        assert_eq!(again.usage(at, SPAN), recent.usage(at, SPAN));
        assert_eq!(again.usage(at, SPAN).rows[1].user.as_deref(), Some("mira"));
        assert_eq!(again.minute(), Some(4));
        spend(&mut again, "7", 301);
        assert_eq!(again.usage(UnixMs(301_000), SPAN).watched_seconds.to_string(), "301");
    }

    #[test]
    fn more_jobs_than_there_is_room_for_are_counted_without_their_names() {
        let mut bucket = Bucket::default();
        for job in 0..MAX_ROWS + 10 {
            let job = Some(Safe::new(&job.to_string()));
            let key = Key { job, model: None, state: GpuState::Idle, cause: None };
            bucket.add(key, Used { seconds: 1.0, lost: 0.0, joules: None });
        }
        assert_eq!(bucket.used.len(), MAX_ROWS + 1);
        let nobody = Key { job: None, model: None, state: GpuState::Idle, cause: None };
        assert_eq!(bucket.used[&nobody].seconds.to_string(), "10");
    }
}
