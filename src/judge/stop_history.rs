//! Stop histories: how often the GPUs of a job stood still lately, all of them together, and how much of its work that cost.

use std::collections::BTreeMap;

use gaunt_cluster::Cluster;
use gaunt_schema::UnixMs;

use super::{
    Thresholds,
    job_group::{JobGroup, JobGroups},
};

/// A job that stands still does so until it exceeds this share of its usual pace.
const MOVING_PACE: f64 = 0.4;

/// The stops in a row from which a job stops again and again.
const STOPS_IN_A_ROW: usize = 3;

/// Seconds from the begin of one stop to that of the next within which they are in a row.
pub(super) const LONGEST_CYCLE_S: f64 = 300.0;

/// How many times as long as the longest cycle a job worked before: what it does again and again began with it.
const WORKED_TIMES: f32 = 3.0;

/// Seconds of the time before that are remembered: hours.
const REMEMBERED_S: f32 = 14_400.0;

/// The share of the time in which a job must stand still beyond what it did before: evaluations and checkpoints take less.
const LEAST_STOOD: f64 = 0.3;

/// The stops of all jobs that have stopped, by group key.
#[derive(Debug, Default)]
pub(super) struct StopHistories {
    of: BTreeMap<String, StopHistory>,
    /// The last step.
    observed: UnixMs,
}

/// Seconds of a job, how many of them its work lost, and in how many it stood still.
#[derive(Clone, Copy, Debug, Default)]
struct ObservedTime {
    seconds: f32,
    lost: f32,
    stood: f32,
}

/// From the begin of one stop to that of the next, or to now.
#[derive(Clone, Copy, Debug)]
struct StopCycle {
    began: UnixMs,
    time: ObservedTime,
}

/// The last stops of one job, oldest first, and the time before them.
#[derive(Clone, Debug, Default)]
struct StopHistory {
    before: ObservedTime,
    cycles: Vec<StopCycle>,
    stands: bool,
}

/// How often a job stopped lately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RecurringStops {
    /// When it first did.
    pub(super) since: UnixMs,
    /// The share of the time since then in which it stood still.
    pub(super) stood_share: f64,
    /// The share of its work that it lost since then.
    pub(super) lost_share: f64,
}

impl ObservedTime {
    fn add(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.lost += other.lost;
        self.stood += other.stood;
    }

    /// Halves what is remembered, once that is much.
    fn forget_half(&mut self) {
        if self.seconds > REMEMBERED_S {
            for part in [&mut self.seconds, &mut self.lost, &mut self.stood] {
                *part *= 0.5;
            }
        }
    }

    fn lost_share(self) -> f64 {
        f64::from(self.lost / self.seconds.max(1.0))
    }

    fn stood_share(self) -> f64 {
        f64::from(self.stood / self.seconds.max(1.0))
    }
}

impl StopHistories {
    /// Updates every job of several GPUs; `known_since` tells since when a job is watched.
    pub(super) fn observe_groups(
        &mut self,
        cluster: &Cluster,
        groups: &JobGroups,
        known_since: impl Fn(&JobGroup) -> UnixMs,
        limits: &Thresholds,
    ) {
        let now = cluster.now();
        let passed = now.duration_since(self.observed).as_secs_f64().min(LONGEST_CYCLE_S);
        self.observed = now;
        let mut present = BTreeMap::new();
        for group in groups.all_groups().iter().filter(|group| group.gpus.len() > 1) {
            let stands = group.pace.is_some_and(|pace| pace < limits.standstill_ratio);
            if self.of.is_empty() && !stands {
                continue;
            }
            let key = group.group_key();
            let begins = || {
                let seconds = now.duration_since(known_since(group)).as_secs_f32();
                let before = ObservedTime { seconds, ..ObservedTime::default() };
                stands.then(|| StopHistory { before, ..StopHistory::default() })
            };
            if let Some(mut history) = self.of.remove(&key).or_else(begins) {
                if let Some(pace) = group.pace {
                    history.observe_pace(now, passed, pace, limits);
                }
                present.insert(key, history);
            }
        }
        self.of = present;
    }

    /// Returns how often a job stopped lately; none if it does not do so again and again, or did so before.
    pub(super) fn recurring_stops(&self, group: &JobGroup) -> Option<RecurringStops> {
        self.of.get(&group.group_key())?.recurring_stops()
    }

    /// Whether a job has stopped lately, and may do so again.
    pub(super) fn has_stopped(&self, group: &JobGroup) -> bool {
        self.of.get(&group.group_key()).is_some_and(|history| !history.cycles.is_empty())
    }
}

impl StopHistory {
    fn observe_pace(&mut self, now: UnixMs, passed: f64, pace: f64, limits: &Thresholds) {
        let stood = self.stands;
        self.stands = pace < if stood { MOVING_PACE } else { limits.standstill_ratio };
        if self.stands && !stood {
            // While it goes on, it does not become what the job always did.
            let recurs = self.recurring_stops().is_some();
            self.cycles.push(StopCycle { began: now, time: ObservedTime::default() });
            if self.cycles.len() > STOPS_IN_A_ROW {
                let oldest = self.cycles.remove(0).time;
                if !recurs {
                    self.before.add(oldest);
                }
            }
        }
        let seconds = passed as f32;
        let lost = seconds * (1.0 - pace).clamp(0.0, 1.0) as f32;
        let stood = if self.stands { seconds } else { 0.0 };
        let time = self.cycles.last_mut().map_or(&mut self.before, |cycle| &mut cycle.time);
        time.add(ObservedTime { seconds, lost, stood });
        // It goes on, or stands still for good.
        if f64::from(time.seconds) > LONGEST_CYCLE_S {
            for cycle in std::mem::take(&mut self.cycles) {
                self.before.add(cycle.time);
            }
        }
        self.before.forget_half();
    }

    fn recurring_stops(&self) -> Option<RecurringStops> {
        let [first, second, last] = self.cycles.as_slice() else { return None };
        let longest = first.time.seconds.max(second.time.seconds);
        if self.before.seconds < longest * WORKED_TIMES || last.time.seconds > longest * 2.0 {
            return None;
        }
        let mut since = first.time;
        since.add(second.time);
        since.add(last.time);
        let (stood_share, lost_share) = (since.stood_share(), since.lost_share());
        let is_new = stood_share - self.before.stood_share() >= LEAST_STOOD;
        is_new.then_some(RecurringStops { since: first.began, stood_share, lost_share })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recurring stops of a job with this pace each second, for so many seconds.
    fn stops(seconds: u32, pace: impl Fn(u32) -> f64) -> Vec<Option<RecurringStops>> {
        let (mut history, limits) = (StopHistory::default(), Thresholds::default());
        let at = |second: u32| UnixMs(1_800_000_000_000 + i64::from(second) * 1_000);
        let each = (0..seconds).map(|second| {
            history.observe_pace(at(second), 1.0, pace(second), &limits);
            history.recurring_stops()
        });
        each.collect()
    }

    #[test]
    fn job_that_begins_to_stop_again_and_again_is_known_at_the_third_stop() {
        let stopping = |second: u32| f64::from(!(second >= 300 && second % 60 < 25));
        let known = stops(900, stopping);
        assert_eq!(known.iter().position(Option::is_some), Some(420));
        let last = known[899].unwrap();
        assert!((last.stood_share - 25.0 / 60.0).abs() < 0.05, "{last:?}");
        assert!((last.lost_share - last.stood_share).abs() < 0.1, "{last:?}");
        let healed = stops(1_200, |second| if second < 900 { stopping(second) } else { 1.0 });
        assert!(healed[900].is_some() && healed[1_000].is_none());
    }

    #[test]
    fn what_a_job_always_did_is_no_stop_that_recurs() {
        let checkpoints = stops(2_000, |second| f64::from(second % 200 < 140));
        assert!(checkpoints.iter().all(Option::is_none));
        let hang = stops(900, |second| f64::from(second < 400));
        assert!(hang.iter().all(Option::is_none));
    }
}
