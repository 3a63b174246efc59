//! Recent usage in full: GPU time and energy by job, model, state and cause, in steps.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use gaunt_schema::{GpuState, SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

use super::{UsageAmount, UsageKey};
use gaunt_api::{LossCause, UsageReport, UsageRow};
use gaunt_cluster::JobAttributes;

/// Reports begin and end at a multiple of this.
const STEP: Duration = Duration::from_secs(10);

/// Steps that are saved as one: a minute.
const STEPS_KEPT: i64 = 6;

/// Maximum number of rows of one step: more jobs than a cluster runs at once. Usage above it is counted without its
/// job.
const MAX_ROWS: usize = 20_000;

/// Maximum number of saved rows, the newest minutes first: some 20 MB uncompressed.
const MAX_KEPT: usize = 400_000;

/// Maximum number of jobs whose attributes are kept after their end.
const MAX_STORED_JOBS: usize = 20_000;

/// One step.
#[derive(Clone, Debug, Default, PartialEq)]
struct UsageBucket {
    step: i64,
    watched: f64,
    used: HashMap<UsageKey<SanitizedText>, UsageAmount>,
}

impl UsageBucket {
    fn add_usage(&mut self, key: UsageKey<SanitizedText>, more: UsageAmount) {
        let full = self.used.len() >= MAX_ROWS && !self.used.contains_key(&key);
        let key = if full { UsageKey { job: None, model: None, ..key } } else { key };
        *self.used.entry(key).or_default() += more;
    }
}

/// Attributes of a job, which may have ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct StoredJobInfo {
    name: Option<SanitizedText>,
    user: Option<SanitizedText>,
    account: Option<SanitizedText>,
}

/// Recent usage, in steps. A clone is cheap: finished steps are shared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsageWindow {
    /// Oldest first.
    buckets: VecDeque<Arc<UsageBucket>>,
    jobs: Arc<BTreeMap<SanitizedText, StoredJobInfo>>,
}

impl UsageWindow {
    /// Adds the usage of the last seconds and drops steps older than `span`.
    pub(super) fn add_usage(
        &mut self,
        now: UnixMs,
        seconds: f64,
        span: Duration,
        used: HashMap<UsageKey<SanitizedText>, UsageAmount>,
    ) {
        let bucket = self.current_bucket(now, span);
        bucket.watched += seconds;
        #[expect(clippy::iter_over_hash_type, reason = "each key is added to its own amount")]
        for (key, more) in used {
            bucket.add_usage(key, more);
        }
        self.forget_jobs();
    }

    /// Records the attributes of jobs.
    pub(super) fn record_jobs<'a>(
        &mut self,
        jobs: impl Iterator<Item = (&'a SanitizedText, &'a JobAttributes)>,
    ) {
        for (job, attributes) in jobs {
            let same = |stored: &StoredJobInfo| {
                (&stored.name, &stored.user, &stored.account)
                    == (&attributes.name, &attributes.user, &attributes.account)
            };
            let known = self.jobs.get(job);
            if known.is_some_and(same) || (known.is_none() && self.jobs.len() >= MAX_STORED_JOBS) {
                continue;
            }
            let stored = StoredJobInfo {
                name: attributes.name.clone(),
                user: attributes.user.clone(),
                account: attributes.account.clone(),
            };
            Arc::make_mut(&mut self.jobs).insert(job.clone(), stored);
        }
    }

    /// The step of this time.
    fn current_bucket(&mut self, now: UnixMs, span: Duration) -> &mut UsageBucket {
        let step = step_of(now);
        if self.buckets.back().is_none_or(|newest| newest.step < step) {
            self.buckets.push_back(Arc::new(UsageBucket { step, ..UsageBucket::default() }));
        }
        let oldest = step - steps_in(span);
        while self.buckets.front().is_some_and(|bucket| bucket.step < oldest) {
            self.buckets.pop_front();
        }
        Arc::make_mut(self.buckets.back_mut().expect("one was just put there"))
    }

    /// Forgets attributes of jobs without usage, once there are too many.
    fn forget_jobs(&mut self) {
        if self.jobs.len() < MAX_STORED_JOBS {
            return;
        }
        let counted = self.buckets.iter().flat_map(|bucket| bucket.used.keys());
        let counted: HashSet<&SanitizedText> = counted.filter_map(|key| key.job.as_ref()).collect();
        Arc::make_mut(&mut self.jobs).retain(|job, _| counted.contains(job));
    }

    /// Usage in the steps of the last `span`.
    pub(super) fn usage_report(&self, at: UnixMs, span: Duration) -> UsageReport {
        let oldest = step_of(at) - steps_in(span);
        let kept = || self.buckets.iter().filter(|bucket| bucket.step > oldest);
        let mut all: HashMap<&UsageKey<SanitizedText>, UsageAmount> = HashMap::new();
        for (key, used) in kept().flat_map(|bucket| &bucket.used) {
            *all.entry(key).or_default() += *used;
        }
        let from = kept().next().map(|bucket| UnixMs(bucket.step * STEP.as_millis() as i64));
        let mut rows: Vec<UsageRow> =
            all.into_iter().map(|(key, used)| self.usage_row(key, used)).collect();
        rows.sort_by(|one, other| {
            let by_time = other.gpu_seconds.total_cmp(&one.gpu_seconds);
            let named = |row: &UsageRow| (row.job.clone(), row.state, row.cause);
            by_time.then_with(|| named(one).cmp(&named(other)))
        });
        UsageReport {
            cluster: SanitizedText::default(),
            at,
            from: from.unwrap_or(at),
            watched_seconds: kept().map(|bucket| bucket.watched).sum(),
            rows,
        }
    }

    fn usage_row(&self, key: &UsageKey<SanitizedText>, used: UsageAmount) -> UsageRow {
        let stored = key.job.as_ref().and_then(|job| self.jobs.get(job)).cloned();
        let StoredJobInfo { name, user, account } = stored.unwrap_or_default();
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
            ..UsageRow::default()
        }
    }

    /// The minute of the newest step; state is saved when it changes.
    pub fn newest_minute(&self) -> Option<i64> {
        self.buckets.back().map(|bucket| bucket.step.div_euclid(STEPS_KEPT))
    }
}

fn step_of(at: UnixMs) -> i64 {
    at.0.div_euclid(STEP.as_millis() as i64)
}

fn steps_in(span: Duration) -> i64 {
    span.as_secs().div_ceil(STEP.as_secs()).try_into().unwrap_or(i64::MAX / 2)
}

/// The saved form: minutes, and each text once.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredUsage {
    texts: Vec<SanitizedText>,
    minutes: Vec<StoredMinute>,
    told: Arc<BTreeMap<SanitizedText, StoredJobInfo>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredMinute {
    step: i64,
    watched: f64,
    used: Vec<StoredUsageRow>,
    /// The lost seconds of each row; older files lack it and derive it from the state.
    #[serde(default)]
    lost: Vec<f64>,
}

/// Job and model by the index of their text, state, cause, seconds, joules.
type StoredUsageRow = (Option<usize>, Option<usize>, GpuState, Option<LossCause>, f64, Option<f64>);

impl Serialize for UsageWindow {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut minutes: Vec<UsageBucket> = Vec::new();
        let mut rows = 0;
        for bucket in self.buckets.iter().rev() {
            let step = bucket.step.div_euclid(STEPS_KEPT) * STEPS_KEPT;
            if minutes.last().is_none_or(|newest| newest.step != step) {
                rows += minutes.last().map_or(0, |minute| minute.used.len());
                if rows + bucket.used.len() > MAX_KEPT {
                    break;
                }
                minutes.push(UsageBucket { step, ..UsageBucket::default() });
            }
            if let Some(minute) = minutes.last_mut() {
                minute.watched += bucket.watched;
                bucket.used.iter().for_each(|(key, used)| minute.add_usage(key.clone(), *used));
            }
        }
        let mut stored = StoredUsage { told: self.jobs.clone(), ..StoredUsage::default() };
        let mut indices: HashMap<SanitizedText, usize> = HashMap::new();
        let mut index = |text: SanitizedText| {
            *indices.entry(text).or_insert_with_key(|text| {
                stored.texts.push(text.clone());
                stored.texts.len() - 1
            })
        };
        for minute in minutes.into_iter().rev() {
            let row = |(key, used): (UsageKey<SanitizedText>, UsageAmount)| {
                let (job, model) = (key.job.map(&mut index), key.model.map(&mut index));
                (job, model, key.state, key.cause, used.seconds, used.joules)
            };
            // The same usage is saved as the same bytes.
            let mut sorted: Vec<_> = minute.used.into_iter().collect();
            sorted.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            let lost = sorted.iter().map(|(_, used)| used.lost).collect();
            let used = sorted.into_iter().map(row).collect();
            stored.minutes.push(StoredMinute {
                step: minute.step,
                watched: minute.watched,
                used,
                lost,
            });
        }
        stored.serialize(to)
    }
}

impl<'de> Deserialize<'de> for UsageWindow {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let StoredUsage { texts, minutes, told } = StoredUsage::deserialize(from)?;
        let buckets = minutes.into_iter().map(|minute| {
            let text = |index: Option<usize>| index.and_then(|index| texts.get(index)).cloned();
            let mut lost = minute.lost.into_iter();
            let used =
                minute.used.into_iter().map(|(job, model, state, cause, seconds, joules)| {
                    let by_state = || if state.is_lost_time() { seconds } else { 0.0 };
                    let lost = lost.next().unwrap_or_else(by_state);
                    let cause = cause.or_else(|| (lost > 0.0).then(|| default_cause(state)));
                    let key = UsageKey { job: text(job), model: text(model), state, cause };
                    (key, UsageAmount { seconds, lost, joules })
                });
            let used = used.collect();
            Arc::new(UsageBucket { step: minute.step, watched: minute.watched, used })
        });
        Ok(Self { buckets: buckets.collect(), jobs: told })
    }
}

/// The cause of lost time that was saved without one.
fn default_cause(state: GpuState) -> LossCause {
    match state {
        GpuState::IdleAllocated => LossCause::Idle,
        _ => LossCause::Unexplained,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_mins(10);

    fn add_second(window: &mut UsageWindow, job: &str, second: i64) {
        let job = SanitizedText::new(job);
        let cause = Some(LossCause::Unexplained);
        let key = UsageKey { job: Some(&job), model: None, state: GpuState::Slowed, cause };
        let used = UsageAmount { seconds: 1.0, lost: 0.25, joules: Some(700.0) };
        window.add_usage(
            UnixMs(second * 1_000),
            1.0,
            SPAN,
            HashMap::from([(key.to_owned_key(), used)]),
        );
    }

    #[test]
    fn window_drops_old_steps() {
        let mut window = UsageWindow::default();
        (1..=1_000).for_each(|second| add_second(&mut window, "7", second));
        let usage = window.usage_report(UnixMs(1_000_000), Duration::from_mins(1));
        assert_eq!((usage.from, usage.watched_seconds), (UnixMs(950_000), 51.0));
        assert_eq!((usage.rows[0].gpu_seconds, usage.rows[0].joules), (51.0, Some(35_700.0)));
        assert_eq!(window.buckets.len(), 61);
    }

    #[test]
    fn window_is_saved_by_the_minute_and_continues() {
        let mut window = UsageWindow::default();
        (0..300).for_each(|second| {
            add_second(&mut window, if second < 90 { "6" } else { "7" }, second);
        });
        let attributes =
            JobAttributes { user: Some(SanitizedText::new("mira")), ..Default::default() };
        window.record_jobs(std::iter::once((&SanitizedText::new("6"), &attributes)));
        let text = serde_json::to_string(&window).unwrap();
        let mut restored: UsageWindow = serde_json::from_str(&text).unwrap();
        assert_eq!(restored.buckets.len(), 5);
        let at = UnixMs(299_000);
        assert_eq!(restored.usage_report(at, SPAN), window.usage_report(at, SPAN));
        assert_eq!(restored.usage_report(at, SPAN).rows[1].user.as_deref(), Some("mira"));
        assert_eq!(restored.newest_minute(), Some(4));
        add_second(&mut restored, "7", 301);
        assert_eq!(restored.usage_report(UnixMs(301_000), SPAN).watched_seconds.to_string(), "301");
    }

    #[test]
    fn jobs_beyond_the_limit_are_counted_without_names() {
        let mut bucket = UsageBucket::default();
        for job in 0..MAX_ROWS + 10 {
            let job = Some(SanitizedText::new(&job.to_string()));
            let key = UsageKey { job, model: None, state: GpuState::Idle, cause: None };
            bucket.add_usage(key, UsageAmount { seconds: 1.0, lost: 0.0, joules: None });
        }
        assert_eq!(bucket.used.len(), MAX_ROWS + 1);
        let nobody = UsageKey { job: None, model: None, state: GpuState::Idle, cause: None };
        assert_eq!(bucket.used[&nobody].seconds.to_string(), "10");
    }
}
