//! Job pauses: jobs that do nothing for a while and are not starved. They write a checkpoint, or end.

use std::collections::BTreeMap;

use gaunt_cluster::Cluster;
use gaunt_schema::{GpuState, UnixMs};

use super::{
    Thresholds,
    gpu_tracker::{self, GpuTracker},
    host_averages::HostAverages,
    job_group::{JobGroup, JobGroups},
    node_table::NodeTable,
    past_pauses::{PastPause, PastPauses},
    sample_interval::SampleInterval,
};

/// Jobs that pause now, or did a moment ago.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    of: BTreeMap<String, Pause>,
    /// Jobs that nearly stand still, or did a moment ago: most likely a pause that is too short to be seen as one.
    dips: BTreeMap<String, Dip>,
    /// When each job was last seen to begin to stand still, and whether it does.
    stops: BTreeMap<String, Stops>,
    /// The pauses of each job that have ended.
    past: BTreeMap<String, PastPauses>,
}

/// One pause: its first and its last instant.
#[derive(Clone, Copy, Debug)]
struct Pause {
    began: UnixMs,
    seen: UnixMs,
    /// The least traffic of the job meanwhile, relative to its baseline; infinite where that is not known.
    least: f64,
    /// Whether most of its hosts wait for IO, or write much, at some time meanwhile.
    io: bool,
}

/// A time at which a job nearly stands still.
#[derive(Clone, Copy, Debug)]
struct Dip {
    pause: Pause,
    /// Whether it stood still altogether, as far as averages show it.
    is_still: bool,
}

/// The last instants at which a job began to stand still, and those at which it was last seen to.
#[derive(Clone, Copy, Debug, Default)]
struct Stops {
    began: [UnixMs; 3],
    seen: [UnixMs; 3],
    stands: bool,
}

/// A job below this share of its usual pace nearly stands still.
const NEARLY_STILL: f64 = 0.25;

/// A job whose traffic stays above this share of its baseline goes on; that of one that pauses falls to nothing.
const CREEPING: f64 = 0.03;

/// How many times as long as averages need to settle it must have done so.
const LONG_PAUSES: f64 = 2.0;

/// A job that stops three times in this many times as long, and stands still for this share of it, does not pause: it
/// starts anew again and again.
const STOPS_TIMES: f64 = 4.0;
const STOPS_SHARE: f64 = 0.5;

impl Stops {
    /// Adds an observation; returns whether it stands still again and again, before averages have recovered or for most of
    /// the time: it then has long steps, or starts anew each time, and does not pause.
    fn recur(&mut self, stands: bool, now: UnixMs, limits: &Thresholds) -> bool {
        if stands && !self.stands {
            self.began.rotate_left(1);
            self.seen.rotate_left(1);
            self.began[2] = now;
        }
        if stands {
            self.seen[2] = now;
        }
        self.stands = stands;
        let [first, second, last] = self.began;
        if first == UnixMs::default() {
            return false;
        }
        let seconds = |from: UnixMs, to: UnixMs| to.duration_since(from).as_secs_f64();
        let (recent, since) = (limits.pause_settle_seconds, seconds(last, now));
        let spans = seconds(first, last);
        let is_long_step = spans <= 2.0 * recent && since <= recent;
        let stood = seconds(first, self.seen[0]) + seconds(second, self.seen[1]);
        let starts_anew = spans <= STOPS_TIMES * recent && since <= spans;
        is_long_step || (starts_anew && stood >= STOPS_SHARE * spans)
    }
}

impl Pauses {
    /// Updates every job: it pauses if most of its nodes have sent next to nothing of their baseline for a while or,
    /// where traffic is not reported, if its GPUs stand still and are not starved.
    pub(super) fn observe_pauses(
        &mut self,
        cluster: &Cluster,
        groups: &JobGroups,
        gpus: &[GpuTracker],
        hosts: &NodeTable<HostAverages>,
        limits: &Thresholds,
    ) {
        let now = cluster.now();
        // Until then averages do not show the job's pace again.
        let intervals: BTreeMap<String, SampleInterval> =
            groups.all_groups().iter().map(|group| (group.group_key(), group.interval)).collect();
        self.of.retain(|name, pause| {
            let interval = intervals.get(name).copied().unwrap_or_default();
            let settles = limits.pause_settle_seconds + interval.two_sample_seconds_of_all(limits);
            now.duration_since(pause.seen).as_secs_f64() < settles
        });
        self.past.retain(|name, _| intervals.contains_key(name));
        self.stops.retain(|name, _| intervals.contains_key(name));
        self.dips.retain(|_, dip| {
            now.duration_since(dip.pause.seen).as_secs_f64() < limits.pause_settle_seconds
        });
        for group in groups.all_groups() {
            let pace = group.traffic.or(group.pace);
            // At short intervals a pause is seen as it is.
            let is_rare = group.interval.is_slow(limits);
            if is_rare && pace.is_some_and(|pace| pace < NEARLY_STILL) {
                let pause = Pause { began: now, seen: now, least: f64::INFINITY, io: false };
                let dip = Dip { pause, is_still: false };
                let dip = self.dips.entry(group.group_key()).or_insert(dip);
                dip.pause.seen = now;
                dip.is_still |= pace.is_some_and(|pace| pace < limits.standstill_ratio);
            }
            let silent = group.nodes.iter().filter_map(|id| hosts.get(*id));
            let silent: Vec<bool> =
                silent.filter_map(|host| host.is_silent(cluster, limits)).collect();
            let pauses = if silent.len() * 2 > group.nodes.len() {
                silent.iter().filter(|silent| **silent).count() * 2 > group.nodes.len()
            } else {
                let starves =
                    |row: &u32| gpu_tracker::state_at_row(gpus, *row) == GpuState::DataStarved;
                !group.is_progressing() && !group.gpus.iter().any(starves)
            };
            let key = group.group_key();
            let recur = match self.stops.get_mut(&key) {
                Some(stops) => stops.recur(pauses, now, limits),
                None if pauses => {
                    let stops = self.stops.entry(key.clone()).or_default();
                    stops.recur(pauses, now, limits)
                }
                None => false,
            };
            if recur {
                self.of.remove(&key);
                continue;
            }
            let most = limits.pause_seconds + 2.0 * cluster.scrape_period().as_secs_f64();
            let has_ended = |pause: &&Pause| now.duration_since(pause.seen).as_secs_f64() > most;
            let ended = self.of.get(&key).filter(has_ended).copied();
            if let Some(ended) = ended {
                self.past.entry(key.clone()).or_default().add_pause(ended.to_past());
            }
            if !pauses {
                continue;
            }
            let begins = Pause { began: now, seen: now, least: f64::INFINITY, io: false };
            let pause = self.of.entry(key).or_insert(begins);
            if ended.is_some() {
                *pause = begins;
            }
            pause.seen = now;
            pause.io |= wait_for_io(cluster, group, hosts, limits);
            pause.least = pause.least.min(group.traffic.unwrap_or_default());
        }
    }

    /// Returns the pauses of a job that have ended.
    pub(super) fn past_of(&self, group: &JobGroup) -> Option<&PastPauses> {
        self.past.get(&group.group_key())
    }

    /// Returns the seconds for which a job that pauses now has done so.
    pub(super) fn lasting_seconds(
        &self,
        group: &JobGroup,
        now: UnixMs,
        limits: &Thresholds,
    ) -> Option<f64> {
        let pause = self.pause_of(group, now, limits)?;
        let recent = group.interval.two_sample_seconds_of_all(limits).max(limits.pause_seconds);
        let is_present = now.duration_since(pause.seen).as_secs_f64() <= recent;
        is_present.then(|| pause.seen.duration_since(pause.began).as_secs_f64())
    }

    /// Whether a job pauses or did so a moment ago, so that averages of its work are not valid. A long pause is
    /// reported as idle or hung instead, and an earlier slowdown is over.
    pub(super) fn has(&self, group: &JobGroup, now: UnixMs, limits: &Thresholds) -> bool {
        self.pause_of(group, now, limits).is_some()
    }

    fn pause_of(&self, group: &JobGroup, now: UnixMs, limits: &Thresholds) -> Option<&Pause> {
        let pause = (!self.of.is_empty()).then(|| self.of.get(&group.group_key())).flatten();
        pause.filter(|pause| {
            now.duration_since(pause.began).as_secs_f64() < limits.idle_seconds
                && !pause.creeps(limits)
        })
    }

    /// Whether a job that nearly stands still is slow and does not pause: it has gone on sending for longer than a pause
    /// lasts.
    pub(super) fn creeps(&self, group: &JobGroup, limits: &Thresholds) -> bool {
        self.of.get(&group.group_key()).is_some_and(|pause| pause.creeps(limits))
    }

    /// Whether a job pauses, nearly stands still, or did so a moment ago, so that averages of its work still contain it.
    pub(super) fn distort_averages(
        &self,
        group: &JobGroup,
        now: UnixMs,
        limits: &Thresholds,
    ) -> bool {
        self.has_paused(group, now, limits) || self.nearly_stands_still(group, now, limits)
    }

    /// Whether a job pauses or did so a moment ago.
    pub(super) fn has_paused(&self, group: &JobGroup, now: UnixMs, limits: &Thresholds) -> bool {
        let pause = self.pause_of(group, now, limits);
        pause.is_some_and(|pause| pause.is_averaged(group, now, limits))
    }

    /// Whether a job nearly stands still or did so a moment ago, and not for longer than a pause: after that it is slow.
    pub(super) fn nearly_stands_still(
        &self,
        group: &JobGroup,
        now: UnixMs,
        limits: &Thresholds,
    ) -> bool {
        let dip = (!self.dips.is_empty()).then(|| self.dips.get(&group.group_key())).flatten();
        dip.is_some_and(|Dip { pause, is_still }| {
            // The average of a job that stopped falls to nothing; one that stays above that is slow.
            let most = if *is_still {
                limits.pause_settle_seconds
            } else {
                averaged_seconds(group, limits)
            };
            let lasted = pause.seen.duration_since(pause.began).as_secs_f64();
            lasted < most && pause.is_averaged(group, now, limits)
        })
    }
}

impl Pause {
    fn to_past(self) -> PastPause {
        PastPause { began: self.began, ended: self.seen, io: self.io }
    }

    fn creeps(&self, limits: &Thresholds) -> bool {
        let lasted = self.seen.duration_since(self.began).as_secs_f64();
        lasted >= LONG_PAUSES * limits.pause_settle_seconds && self.least >= CREEPING
    }

    /// Whether averages still contain it.
    fn is_averaged(&self, group: &JobGroup, now: UnixMs, limits: &Thresholds) -> bool {
        now.duration_since(self.seen).as_secs_f64() <= averaged_seconds(group, limits)
    }
}

/// Whether most hosts of a job wait for IO, by half of what starves a host, or write much.
fn wait_for_io(
    cluster: &Cluster,
    group: &JobGroup,
    hosts: &NodeTable<HostAverages>,
    limits: &Thresholds,
) -> bool {
    let waits = |host: &&HostAverages| {
        host.mostly_writes(cluster)
            || host
                .compare_io_pressure(cluster)
                .is_some_and(|io| io.exceeds_limit(limits.io_pressure_ratio / 2.0, limits))
    };
    let of_group = group.nodes.iter().filter_map(|id| hosts.get(*id));
    of_group.filter(waits).count() * 2 > group.nodes.len()
}

/// Returns the seconds for which averages of a job contain what was.
fn averaged_seconds(group: &JobGroup, limits: &Thresholds) -> f64 {
    group.interval.average_seconds(limits) + group.interval.seconds()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it recurs, each second for ten minutes.
    fn recurs(stands: impl Fn(u32) -> bool) -> Vec<bool> {
        let (mut stops, limits) = (Stops::default(), Thresholds::default());
        let at = |second: u32| UnixMs(1_800_000_000_000 + i64::from(second) * 1_000);
        (0..600).map(|second| stops.recur(stands(second), at(second), &limits)).collect()
    }

    #[test]
    fn long_steps_are_no_pause_and_checkpoints_are() {
        // A step of 20 s that sends only in its last 8 s: known at the third.
        let steps = recurs(|second| second % 20 < 12);
        assert_eq!(steps.iter().position(|recurs| *recurs), Some(40));
        assert!(steps[40..].iter().all(|recurs| *recurs));
        let checkpoints = recurs(|second| second % 180 > 150);
        assert!(!checkpoints.contains(&true));
        // A hang that begins among long steps stands still for good.
        let hang = recurs(|second| second % 20 < 12 || second > 300);
        assert!(hang[300] && !hang[400]);
    }

    #[test]
    fn job_that_starts_anew_for_most_of_the_time_does_not_pause() {
        let restarts = recurs(|second| second > 120 && second % 90 < 60);
        assert_eq!(restarts.iter().position(|recurs| *recurs), Some(270));
        let evaluations = recurs(|second| second > 120 && second % 110 < 50);
        assert!(!evaluations.contains(&true));
    }
}
