//! Job restarts: when the processes of a job ended on all its GPUs and began again, and how much of its time that took.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_cluster::Cluster;
use gaunt_schema::UnixMs;

use super::{
    gpu_tracker::GpuTracker,
    job_group::{JobGroup, JobGroups},
    moving_average::CompactTimestamp,
};

/// The last ends of a job's processes that are remembered.
const REMEMBERED: usize = 3;

/// Seconds from one end of a job's processes to the next within which they restart again and again: a job that fails runs
/// for minutes, and the kubelet waits for at most five of them before it starts a container again.
pub(super) const LONGEST_CYCLE_S: f64 = 900.0;

/// The share of a job's GPUs that decides whether its processes have ended, and whether they are back: those of one job do
/// neither at one instant, and not all nodes are sampled at the same time.
const MOST_GPUS: f64 = 0.75;

/// The share of them on which processes must have ended or begun anew: samples of the others may be too rare to show it.
const NEW_GPUS: f64 = 0.6;

/// The least share of all GPUs of a job that show an end where the others are free since an earlier one: processes that fail
/// at once may never be seen on them.
const LEAST_GPUS: f64 = 0.25;

/// The sample intervals within which the processes of one job are seen to end on its GPUs.
const END_INTERVALS: f64 = 2.0;

/// How many times as long as each run since its first end a job without a name worked before.
const LONGER_TIMES: f64 = 2.0;

/// The GPUs of a job that are watched: those of larger jobs end and begin together, too.
const MOST_WATCHED: usize = 64;

/// A GPU is watched for this many seconds and for so many sample intervals after the last sample with its job's name while
/// other GPUs bear it: the nodes of a job are not sampled at one instant, and its processes do not end at one, so its GPUs
/// lose the name, and get it back, one after the other.
const WATCHED_SECONDS: f64 = 60.0;
const WATCHED_INTERVALS: f64 = 2.0;

/// The restarts of all jobs, by group key.
#[derive(Debug, Default)]
pub(super) struct JobRestarts {
    of: BTreeMap<String, ProcessHistory>,
    /// The last step.
    observed: UnixMs,
}

/// One end of a job's processes.
#[derive(Clone, Copy, Debug)]
struct ProcessEnd {
    at: UnixMs,
    /// Seconds until the job worked again, or until now.
    lost: f64,
    /// Seconds in which no GPU bore its name and nobody held its GPUs: schedulers may name a job later than it begins.
    unnamed: f64,
    has_worked_since: bool,
}

/// The ends of one job's processes, oldest first, and whether it has any now.
#[derive(Clone, Debug, Default)]
struct ProcessHistory {
    ends: Vec<ProcessEnd>,
    is_held: bool,
    /// Seconds for which its present processes have worked, those before the first end did, and the longest later ones.
    worked: f64,
    worked_before: f64,
    worked_since: f64,
    is_named: bool,
    /// GPUs of the job, at most [`MOST_WATCHED`]: without processes it may have none.
    watched: Vec<WatchedGpu>,
    /// Seconds within which samples of all of them show that they ended.
    end_seconds: f64,
    /// When the job was last seen.
    seen: UnixMs,
}

/// A GPU that is or was part of a job: eight bytes.
#[derive(Clone, Copy, Debug)]
struct WatchedGpu {
    row: u32,
    /// When it last was.
    seen: CompactTimestamp,
}

/// How often a job restarted lately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RestartCount {
    /// How often its processes ended.
    pub(super) ends: usize,
    /// How often they began again.
    pub(super) restarts: usize,
    /// When they first ended.
    pub(super) since: UnixMs,
    /// Whether it worked far longer before that than ever since.
    pub(super) ends_sooner: bool,
    /// The share of the time since then in which the job had no processes, or these had not worked yet.
    pub(super) lost_share: f64,
}

/// What the GPUs of a job show at one step.
#[derive(Clone, Copy, Debug)]
struct ProcessState {
    /// Whether processes hold its GPUs; none while some do and others do not.
    is_held: Option<bool>,
    /// Whether they have ended or begun anew, and not worked since: samples of its nodes may never show all GPUs free at
    /// one time.
    is_new: bool,
    /// The share of GPUs on which they are past their start.
    working_share: f64,
    /// Whether most GPUs were freed within a few samples of each: the others may be sampled while they work, each time.
    is_freed: bool,
    /// Whether they work on with less memory than before: they had not ended.
    needs_less: bool,
}

impl JobRestarts {
    /// Updates every job.
    pub(super) fn observe_groups(
        &mut self,
        cluster: &Cluster,
        groups: &JobGroups,
        gpus: &[GpuTracker],
    ) {
        let now = cluster.now();
        let passed = now.duration_since(self.observed).as_secs_f64().min(LONGEST_CYCLE_S);
        self.observed = now;
        // Where jobs are named, GPUs without a name are those of a job whose processes have just ended.
        let was_named =
            |row: &u32| gpus.get(*row as usize).is_some_and(|gpu| gpu.allocation.was_named());
        let counts = |group: &JobGroup| group.job.is_some() || !group.gpus.iter().any(was_named);
        for (at, group) in groups.all_groups().iter().enumerate().filter(|(_, group)| counts(group))
        {
            let of_job = self.of.entry(group.group_key()).or_default();
            of_job.seen = now;
            of_job.is_named = group.job.is_some();
            of_job.watch_gpus(groups, at, now);
            let state = of_job.process_state(gpus, now);
            of_job.observe_state(now, passed, state);
        }
        // A job whose name is read from its processes has none without them; the group of an unnamed one changes.
        self.of.retain(|_, of_job| {
            if of_job.seen != now && of_job.is_named {
                if of_job.watched.iter().any(|gpu| cluster.job_of_gpu(gpu.row).is_some()) {
                    return false;
                }
                let state = of_job.process_state(gpus, now);
                of_job.observe_state(now, passed, state);
                if let Some(last) = of_job.ends.last_mut().filter(|_| !of_job.is_held) {
                    last.unnamed += passed;
                }
            }
            now.duration_since(of_job.seen).as_secs_f64() < LONGEST_CYCLE_S
        });
    }

    /// Returns how often a job restarted lately; none if its processes have not ended for longer than they did before.
    pub(super) fn count_of(&self, group: &JobGroup, now: UnixMs) -> Option<RestartCount> {
        self.of.get(&group.group_key())?.count_restarts(now)
    }

    /// Whether no GPU bears the name of a job that restarted lately: it is about to be started again, or has ended.
    pub(super) fn is_away(&self, job: &str) -> bool {
        self.of.get(job).is_some_and(|of_job| {
            of_job.is_named
                && of_job.seen != self.observed
                && of_job.count_restarts(self.observed).is_some()
        })
    }
}

impl ProcessState {
    /// Whether most processes are past their start.
    fn works(&self) -> bool {
        self.working_share >= MOST_GPUS
    }

    /// Returns what these GPUs show, and which were freed for fewer than `lately` seconds, besides those that have been free
    /// since an end before if there `was_end`; what a page does not say now is as it was before.
    fn of(
        watched: &[WatchedGpu],
        gpus: &[GpuTracker],
        now: UnixMs,
        (lately, was_end): (f64, bool),
    ) -> Self {
        let (mut empty, mut starting, mut working, mut less, mut freed) = (0, 0, 0, 0, 0);
        let mut free_before = 0_u32;
        for start in watched.iter().filter_map(|gpu| Some(gpus.get(gpu.row as usize)?.start)) {
            empty += usize::from(start.has_ended());
            let starts = !start.has_ended() && start.is_starting(now);
            starting += usize::from(starts);
            working += usize::from(!start.has_ended() && !starts);
            less += usize::from(start.needs_less());
            let free_for = start.free_seconds(now);
            freed += usize::from(free_for.is_some_and(|seconds| seconds < lately));
            let is_before = free_for.is_some_and(|seconds| seconds >= lately);
            free_before += u32::from(was_end && is_before);
        }
        let all = watched.len() as f64;
        let is_freed = freed as f64 >= (all - f64::from(free_before)) * NEW_GPUS
            && freed as f64 >= all * LEAST_GPUS;
        let is_most = |count: usize| count as f64 >= watched.len() as f64 * MOST_GPUS;
        let is_enough = |count: usize| count as f64 >= watched.len() as f64 * NEW_GPUS;
        let is_held = match (is_most(empty), is_most(watched.len() - empty)) {
            (true, _) => Some(false),
            (_, true) => Some(true),
            _ => None,
        };
        Self {
            is_held,
            is_new: is_enough(empty + starting),
            is_freed: freed > 0 && is_freed,
            working_share: working as f64 / watched.len().max(1) as f64,
            needs_less: is_most(less),
        }
    }
}

impl ProcessHistory {
    /// Updates the GPUs that are watched from those that the job has now.
    fn watch_gpus(&mut self, groups: &JobGroups, own: usize, now: UnixMs) {
        let group = &groups.all_groups()[own];
        let longest = WATCHED_SECONDS.max(group.interval.seconds() * WATCHED_INTERVALS);
        self.end_seconds = group.interval.seconds() * END_INTERVALS;
        let stamp = CompactTimestamp::of(now);
        self.watched.retain_mut(|gpu| match groups.group_index(gpu.row) {
            Some(at) if at == own => {
                gpu.seen = stamp;
                true
            }
            Some(other) if groups.all_groups()[other].job.is_some() => false,
            _ => stamp.seconds_since(gpu.seen) <= longest,
        });
        if self.watched.len() < MOST_WATCHED.min(group.gpus.len()) {
            let known: BTreeSet<u32> = self.watched.iter().map(|gpu| gpu.row).collect();
            let new = group.gpus.iter().filter(|row| !known.contains(*row));
            let new = new.take(MOST_WATCHED - known.len());
            self.watched.extend(new.map(|row| WatchedGpu { row: *row, seen: stamp }));
        }
    }

    /// Returns what its GPUs show now. Memory that is freed shortly after an end belongs to that one.
    fn process_state(&self, gpus: &[GpuTracker], now: UnixMs) -> ProcessState {
        let last_end = self.ends.last().map_or(f64::INFINITY, |last| seconds_between(last.at, now));
        let lately = if last_end > self.end_seconds { self.end_seconds } else { 0.0 };
        ProcessState::of(&self.watched, gpus, now, (lately, last_end.is_finite()))
    }

    fn observe_state(&mut self, now: UnixMs, passed: f64, state: ProcessState) {
        if state.needs_less && self.ends.last().is_some_and(|last| !last.has_worked_since) {
            self.ends.pop();
        }
        if let Some(last) = self.ends.last_mut().filter(|last| !last.has_worked_since) {
            last.lost += passed * (1.0 - state.working_share);
            last.has_worked_since = state.works();
        }
        if state.works() {
            self.worked += passed;
        }
        let has_worked = self.ends.last().map_or(self.worked > 0.0, |last| last.has_worked_since);
        let has_ended = state.is_held == Some(false) || state.is_new && has_worked;
        let runs = self.is_held || !self.ends.is_empty();
        if has_ended && self.is_held || state.is_freed && runs {
            self.add_end(now);
        } else if state.is_held == Some(true) {
            self.is_held = true;
        }
    }

    fn add_end(&mut self, now: UnixMs) {
        self.is_held = false;
        // A test of a few seconds that is run now and then is no job that restarts: between two runs nobody holds the GPUs.
        let is_same_run = |last: &ProcessEnd| {
            let cycle = seconds_between(last.at, now);
            cycle <= LONGEST_CYCLE_S && last.unnamed * 2.0 < cycle
        };
        if self.ends.last().is_some_and(is_same_run) {
            self.worked_since = self.worked_since.max(self.worked);
        } else {
            self.ends.clear();
            (self.worked_before, self.worked_since) = (self.worked, 0.0);
        }
        self.worked = 0.0;
        if self.ends.len() == REMEMBERED {
            self.ends.remove(0);
        }
        self.ends.push(ProcessEnd { at: now, lost: 0.0, unnamed: 0.0, has_worked_since: false });
    }

    fn count_restarts(&self, now: UnixMs) -> Option<RestartCount> {
        // Without a name nobody knows whether it is one job: short tests of idle nodes come one after the other, too. A job
        // that fails worked longer before.
        let ends_sooner = self.worked_before > self.worked_since.max(self.worked) * LONGER_TIMES;
        if !self.is_named && !ends_sooner {
            return None;
        }
        let (first, last) = (self.ends.first()?, self.ends.last()?);
        let cycles = self.ends.windows(2).map(|pair| seconds_between(pair[0].at, pair[1].at));
        let longest = cycles.reduce(f64::max).unwrap_or(LONGEST_CYCLE_S);
        if seconds_between(last.at, now) > longest + longest {
            return None;
        }
        let unused: f64 = self.ends.iter().map(|end| end.lost).sum();
        Some(RestartCount {
            ends: self.ends.len(),
            restarts: self.ends.len() - usize::from(!self.is_held),
            since: first.at,
            ends_sooner,
            lost_share: (unused / seconds_between(first.at, now).max(1.0)).min(1.0),
        })
    }
}

fn seconds_between(earlier: UnixMs, later: UnixMs) -> f64 {
    later.duration_since(earlier).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::{super::gpu_start::UsedMemory, *};

    /// Observes for so many seconds whether processes hold the GPUs, and whether they work.
    fn observe(history: &mut ProcessHistory, now: &mut i64, seconds: i64, held: bool, works: bool) {
        for _ in 0..seconds {
            *now += 1;
            let state = ProcessState {
                is_held: Some(held),
                is_new: !held,
                working_share: f64::from(works),
                is_freed: false,
                needs_less: false,
            };
            history.observe_state(UnixMs(*now * 1_000), 1.0, state);
        }
    }

    #[test]
    fn ends_are_counted_with_the_time_that_they_cost() {
        let mut history = ProcessHistory { is_named: true, ..ProcessHistory::default() };
        let mut now = 1_000_000;
        observe(&mut history, &mut now, 60, false, false);
        assert!(history.ends.is_empty(), "nothing held it before");
        observe(&mut history, &mut now, 600, true, true);
        for _ in 0..2 {
            observe(&mut history, &mut now, 20, false, false);
            observe(&mut history, &mut now, 20, true, false);
            observe(&mut history, &mut now, 60, true, true);
        }
        let count = history.count_restarts(UnixMs(now * 1_000)).unwrap();
        assert_eq!((count.ends, count.restarts), (2, 2));
        assert!((count.lost_share - 0.4).abs() < 0.02, "{count:?}");
        observe(&mut history, &mut now, 10, false, false);
        let count = history.count_restarts(UnixMs(now * 1_000)).unwrap();
        assert_eq!((count.ends, count.restarts), (3, 2), "it has not begun again");
        observe(&mut history, &mut now, 250, true, true);
        assert_eq!(history.count_restarts(UnixMs(now * 1_000)), None, "it works for longer");
    }

    #[test]
    fn job_ends_on_one_gpu_after_the_other() {
        let mut history = ProcessHistory { is_named: true, ..ProcessHistory::default() };
        let state = |is_freed| ProcessState {
            is_held: None,
            is_new: true,
            working_share: 0.4,
            is_freed,
            needs_less: false,
        };
        let at = |second: i64| UnixMs(second * 1_000);
        history.observe_state(at(10), 1.0, state(true));
        assert!(history.ends.is_empty(), "nothing is known to have run");
        let mut now = 1_000_000;
        observe(&mut history, &mut now, 600, true, true);
        observe(&mut history, &mut now, 20, false, false);
        for _ in 0..60 {
            now += 1;
            history.observe_state(at(now), 1.0, state(false));
        }
        assert_eq!(history.ends.len(), 1);
        history.observe_state(at(now), 1.0, state(true));
        assert_eq!(history.ends.len(), 2);
        let lost = history.ends[0].lost;
        assert!((lost - 20.0 - 0.6 * 60.0).abs() < 3.0, "{lost}: two of five GPUs worked");
    }

    #[test]
    fn job_has_ended_although_its_nodes_are_never_seen_free_at_one_time() {
        let mut history = ProcessHistory { is_named: true, ..ProcessHistory::default() };
        let mut now = 0;
        let mut observe = |seconds: i64, is_held: Option<bool>, is_new: bool, works: bool| {
            for _ in 0..seconds {
                now += 1;
                let working_share = f64::from(works);
                let (is_freed, needs_less) = (false, false);
                let state = ProcessState { is_held, is_new, working_share, is_freed, needs_less };
                history.observe_state(UnixMs(now * 1_000), 1.0, state);
            }
            history.ends.len()
        };
        assert_eq!(observe(600, Some(true), false, true), 0);
        // Some are free, then others, and the first ones start: one end.
        assert_eq!(observe(10, None, false, false), 0);
        assert_eq!(observe(10, None, true, false), 1);
        assert_eq!(observe(30, Some(true), true, false), 1);
        assert_eq!(observe(30, Some(true), false, true), 1);
        assert_eq!(observe(10, None, true, false), 2);
    }

    #[test]
    fn one_without_a_name_fails_only_after_it_has_worked_for_longer() {
        let restarts = |before: i64, works: bool| {
            let (mut history, mut now) = (ProcessHistory::default(), 1_000_000);
            observe(&mut history, &mut now, before, true, works);
            for _ in 0..3 {
                observe(&mut history, &mut now, 20, false, false);
                observe(&mut history, &mut now, 40, true, works);
            }
            let unnamed = history.count_restarts(UnixMs(now * 1_000)).map(|count| count.restarts);
            history.is_named = true;
            (unnamed, history.count_restarts(UnixMs(now * 1_000)).map(|count| count.restarts))
        };
        assert_eq!(restarts(600, true), (Some(3), Some(3)));
        assert_eq!(restarts(40, true), (None, Some(3)), "tests, one after the other");
        assert_eq!(restarts(40, false), (None, Some(3)), "too short to show any work");
    }

    #[test]
    fn gpus_that_are_free_since_an_earlier_end_deny_no_later_one() {
        let at = |second: i64| UnixMs(1_800_000_000_000 + second * 1_000);
        let freed = |second: i64| {
            let mut gpu = GpuTracker::default();
            for (at_second, bytes, works) in [(0, 60e9, true), (second, 1e6, false)] {
                let used = UsedMemory { bytes, is_held: bytes > 1e9 };
                gpu.start.observe_memory(at(at_second), Some(used), [works; 2]);
            }
            gpu
        };
        // Half of the GPUs were freed ten seconds ago, and the others five minutes ago.
        let gpus: Vec<GpuTracker> = (0..8).map(|row| freed([300, 590][row / 4])).collect();
        let seen = CompactTimestamp::of(at(600));
        let watched: Vec<WatchedGpu> = (0..8).map(|row| WatchedGpu { row, seen }).collect();
        let is_freed = |count: usize, was_end: bool| {
            ProcessState::of(&watched[8 - count..], &gpus, at(600), (60.0, was_end)).is_freed
        };
        assert!(is_freed(8, true) && !is_freed(8, false));
        let few = ProcessState::of(&watched[..5], &gpus, at(600), (60.0, true));
        assert!(!few.is_freed, "one GPU of five says little about the job");
    }

    #[test]
    fn rare_ends_are_no_restarts_in_a_row() {
        let mut history = ProcessHistory { is_named: true, ..ProcessHistory::default() };
        let mut now = 1_000_000;
        for _ in 0..3 {
            observe(&mut history, &mut now, 1_200, true, true);
            observe(&mut history, &mut now, 10, false, false);
        }
        let count = history.count_restarts(UnixMs(now * 1_000)).unwrap();
        assert_eq!((count.ends, count.restarts), (1, 0));
    }
}
