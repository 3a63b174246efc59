//! Gang evidence: which GPUs of a synchronous job do less, or run slower, than their own past and the rest of the job.
//!
//! While the slowest rank of a job is idle, the others wait for it and keep their engines busy. So a GPU's utilization
//! is compared with its baseline, and the change with the median change on the other nodes: a change that all nodes
//! share says nothing about one of them. The same holds for clocks.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{DeviceClass, UnixMs};

use serde::{Deserialize, Serialize};

use super::{
    Thresholds,
    evidence_sum::LevelEvidence,
    frozen_baselines::FrozenBaselines,
    gpu_signals::LIGHT_LOAD_RATIO,
    gpu_tracker::GpuTracker,
    job_group::{JobGroup, JobGroups, SettledPace},
    job_pauses::Pauses,
    relative_shifts::relative_shifts,
    residual_histogram::ResidualHistogram,
    robust_stats::median,
    round_shifts::{LongShift, MedianShift},
    sample_interval::NEARLY_ALL,
    shift_detector::ShiftDetector,
};

/// The evidence about all jobs, by their group keys.
#[derive(Debug, Default)]
pub(super) struct GangEvidence {
    jobs: BTreeMap<String, JobEvidence>,
    /// That of jobs that ended lately: one that begins again is measured by what it was.
    ended: BTreeMap<String, JobEvidence>,
    /// The evidence from before a restart about jobs that were not seen since.
    restored: JobEvidenceSnapshot,
}

/// The evidence about jobs over a restart, by their group keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct JobEvidenceSnapshot(BTreeMap<String, JobEvidence>);

/// The evidence about one job, sampled in rounds in which each node has a new sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct JobEvidence {
    rounds: u32,
    last_round: UnixMs,
    /// When it was seen first.
    #[serde(default)]
    first_seen: UnixMs,
    /// The last round in which it ran at its usual pace, as far as known.
    #[serde(default)]
    usual_at: UnixMs,
    /// The last such round in which it was not below its baseline either.
    #[serde(default)]
    at_baseline: UnixMs,
    /// Whether the job is slower than its baseline.
    slower: ShiftDetector,
    /// The same by the traffic of its nodes, which is counted, while activity may be known from instants only.
    less_traffic: ShiftDetector,
    /// The same by the median of the last rounds, where evaluations or checkpoints come between.
    #[serde(default)]
    median_traffic: MedianShift,
    /// The same over several rounds at once, which contain steps that are longer than one.
    #[serde(default)]
    long_slower: LongShift,
    /// Whether its GPUs are less busy than usual, all of them together.
    idler: ShiftDetector,
    /// How far utilization and clocks of its GPUs usually fall behind those of the rest.
    usual_idle: ResidualHistogram,
    usual_clock: ResidualHistogram,
    /// Whether rounds are rarer than averages reach back.
    #[serde(default)]
    is_rare: bool,
    /// Whether the last round fell into a pause.
    #[serde(default)]
    in_pause: bool,
    /// How many pauses have begun.
    #[serde(default)]
    pauses: u16,
}

impl GangEvidence {
    /// Returns the evidence about a job.
    pub(super) fn of(&self, group: &JobGroup) -> JobEvidence {
        self.jobs.get(&group.group_key()).copied().unwrap_or_default()
    }

    /// Whether a job is likely slower than its pace usually varies. Before that is known, a slowdown at rare samples is as
    /// likely chance.
    pub(super) fn is_likely_slower(&self, group: &JobGroup, limits: &Thresholds) -> bool {
        let evidence = self.of(group);
        let is_known = evidence.is_learned();
        let is_likely = if is_known {
            evidence.is_slower(group, limits)
        } else {
            !group.interval.is_slow(limits)
        };
        is_likely && !group.may_pause
    }

    /// Forgets a job whose present level was accepted as its baseline.
    pub(super) fn forget_job(&mut self, key: &str) {
        self.jobs.remove(key);
        self.ended.remove(key);
    }

    /// Returns the evidence to be saved; jobs that were not seen since a restart are kept for the next one.
    pub(super) fn snapshot_jobs(&self, now: UnixMs) -> JobEvidenceSnapshot {
        let mut saved = self.restored.clone();
        saved.0.extend(self.ended.iter().chain(&self.jobs).map(|(key, job)| (key.clone(), *job)));
        saved.0.retain(|_, job| job.rounds > 0 && now.duration_since(job.last_round) <= KEPT);
        saved
    }

    /// Restores the evidence of each job for when it is seen again.
    pub(super) fn restore_jobs(&mut self, saved: JobEvidenceSnapshot) {
        self.restored = saved;
    }

    /// Adds a round of every job of which each node has a new sample.
    pub(super) fn observe_groups(
        &mut self,
        cluster: &Cluster,
        groups: &JobGroups,
        pauses: &Pauses,
        frozen: &FrozenBaselines,
        gpus: &mut [GpuTracker],
        limits: &Thresholds,
    ) {
        let now = cluster.now();
        let keys: Vec<String> = groups.all_groups().iter().map(JobGroup::group_key).collect();
        let known: HashSet<&String> = keys.iter().collect();
        let is_recent = |job: &JobEvidence| now.duration_since(job.last_round) <= ENDED;
        self.ended.retain(|_, job| is_recent(job));
        let ended = self.jobs.extract_if(.., |key, _| !known.contains(key));
        // Names that hardly last leave nothing behind: a target may invent any number of them.
        self.ended.extend(ended.filter(|(_, job)| job.is_learned() && is_recent(job)));
        for (group, key) in groups.all_groups().iter().zip(&keys) {
            let (ended, restored) = (&mut self.ended, &mut self.restored.0);
            let job = self.jobs.entry(key.clone()).or_insert_with(|| {
                ended.remove(key).or_else(|| restored.remove(key)).unwrap_or_default()
            });
            if job.first_seen == UnixMs::default() {
                job.first_seen = now;
            }
            if job.last_round > now {
                // The clock was set back.
                job.last_round = UnixMs::default();
            }
            let round_s = group.interval.seconds().max(limits.average_seconds);
            let passed = now.duration_since(job.last_round).as_secs_f64();
            if passed < round_s || !are_renewed(cluster, group, job.last_round) {
                continue;
            }
            // What is usual is not learned of a job that loses work to what a finding blames, such as one from before a
            // restart.
            if !job.is_learned() && group.gpus.iter().any(|row| frozen.is_slowed(*row)) {
                continue;
            }
            job.last_round = now;
            job.is_rare = round_s > limits.average_seconds;
            if pauses.distort_averages(group, now, limits) {
                job.begin_pause();
                continue;
            }
            job.in_pause = false;
            if !group.is_progressing() {
                continue;
            }
            job.add_round(cluster, group, gpus, limits);
            if job.runs_as_usual(group, limits) {
                job.usual_at = now;
                if group.lost_share().is_none_or(|lost| lost <= 0.0) {
                    job.at_baseline = now;
                }
            }
        }
    }
}

/// Whether nearly all nodes of a job that still report have new samples since an instant, and at least half of all report.
fn are_renewed(cluster: &Cluster, group: &JobGroup, since: UnixMs) -> bool {
    let silent_s = group.interval.seconds() * SILENT_INTERVALS;
    let newest = |id: &NodeId| cluster.node_by_id(*id)?.renewals(DeviceClass::Gpu).last();
    let is_reporting = |last: &UnixMs| cluster.now().duration_since(*last).as_secs_f64() < silent_s;
    let reporting: Vec<UnixMs> =
        group.nodes.iter().filter_map(newest).filter(is_reporting).collect();
    let renewed = reporting.iter().filter(|last| **last > since).count();
    reporting.len() * 2 >= group.nodes.len()
        && renewed as f64 >= reporting.len() as f64 * NEARLY_ALL
}

impl JobEvidence {
    /// Whether it runs at its usual pace now, as far as samples show: if its pace and the usual one are known.
    fn runs_as_usual(&self, group: &JobGroup, limits: &Thresholds) -> bool {
        let is_known = self.is_learned() && group.pace.is_some();
        is_known && !self.slowdown(group).is_suspected() && !self.may_be_slower(group, limits)
    }

    /// Whether it stood still before the pause in which it is now, and went on.
    pub(super) fn has_paused(&self) -> bool {
        self.pauses > 1
    }

    /// Returns when it was seen first.
    pub(super) fn first_seen(&self) -> UnixMs {
        self.first_seen
    }

    /// Returns when it ran at its usual pace last; the epoch if it never did.
    pub(super) fn last_usual(&self) -> UnixMs {
        self.usual_at
    }

    /// Returns when it ran at its usual pace and was not below its baseline last; the epoch if it never did.
    pub(super) fn last_at_baseline(&self) -> UnixMs {
        self.at_baseline
    }

    /// Whether enough rounds were seen to know what is usual.
    pub(super) fn is_learned(&self) -> bool {
        self.rounds >= if self.is_rare { LEARNED_RARE_ROUNDS } else { LEARNED_ROUNDS }
    }

    /// Whether enough rounds were seen to know how much its pace varies, also where they are rare.
    pub(super) fn knows_its_pace(&self) -> bool {
        self.rounds >= LEARNED_ROUNDS
    }

    /// Whether enough rounds were seen to know how far its ranks differ by chance.
    pub(super) fn knows_its_ranks(&self) -> bool {
        self.rounds >= KNOWN_ROUNDS
    }

    /// Whether the traffic of a job tells its pace better than the activity of its GPUs: it varies less.
    pub(super) fn is_paced_by_traffic(&self, group: &JobGroup) -> bool {
        self.calmer_traffic(group, self.traffic_shift()).is_some()
    }

    /// Returns the evidence of its traffic: that of the median, where only pauses hide its shift.
    fn traffic_shift(&self) -> ShiftDetector {
        self.median_traffic.likely_shift(self.less_traffic).unwrap_or(self.less_traffic)
    }

    /// Returns evidence of its traffic, if that varies less than the activity of its GPUs.
    fn calmer_traffic(&self, group: &JobGroup, traffic: ShiftDetector) -> Option<ShiftDetector> {
        let is_known =
            self.is_learned() && group.traffic.is_some() && traffic.is_learned(self.is_rare);
        (is_known && traffic.usual_spread() < self.slower.usual_spread()).then_some(traffic)
    }

    /// Returns the better known evidence for a slowdown.
    pub(super) fn slowdown(&self, group: &JobGroup) -> ShiftDetector {
        self.calmer_traffic(group, self.traffic_shift()).unwrap_or(self.slower)
    }

    /// Returns how much its pace usually varies from one round to the next.
    fn usual_spread(&self, group: &JobGroup) -> f32 {
        self.calmer_traffic(group, self.less_traffic).unwrap_or(self.slower).usual_spread()
    }

    /// Whether the job is likely slower than its baseline, by enough to matter.
    pub(super) fn is_slower(&self, group: &JobGroup, limits: &Thresholds) -> bool {
        let is_likely = self.slowdown(group).is_likely() && self.may_be_slower(group, limits);
        (is_likely || self.is_slower_for_long(group, limits))
            && !self.is_denied_by_traffic(group, limits)
    }

    /// Returns the share of its baseline speed that it has lost lately: of a job whose pace swings over several rounds.
    pub(super) fn present_slowdown(&self, group: &JobGroup, limits: &Thresholds) -> Option<f64> {
        if self.is_slower_for_long(group, limits) {
            return Some(self.long_slower.last_mean());
        }
        group.slowdown_ratio()
    }

    /// Whether several rounds at once are slower, of a job whose pace swings: its steps take longer than a round.
    fn is_slower_for_long(&self, group: &JobGroup, limits: &Thresholds) -> bool {
        !self.is_steady(group) && self.long_slower.is_likely(limits.least_slowdown_ratio)
    }

    /// Whether its nodes send as much as usual, although its GPUs do so much less that the traffic would show it: a
    /// slower job makes fewer steps, and each sends the same.
    fn is_denied_by_traffic(&self, group: &JobGroup, limits: &Thresholds) -> bool {
        let traffic = group.traffic.filter(|_| self.less_traffic.is_learned(self.is_rare));
        let rises = self.slowdown_rise(group).zip(traffic);
        rises.is_some_and(|(rise, traffic)| {
            let shown = self.less_traffic.rise_of(1.0 - traffic);
            let spread = f64::from(self.less_traffic.usual_spread());
            shown < limits.least_slowdown_ratio && rise - shown > DENIED_SPREADS * spread
        })
    }

    /// Whether its pace is steady. That of a job which waits for requests follows their number.
    pub(super) fn is_steady(&self, group: &JobGroup) -> bool {
        self.usual_spread(group) <= STEADY_SPREAD
    }

    /// Whether its pace hardly varies, or very much less than it is slowed down by now: nothing that comes from outside
    /// decides it.
    pub(super) fn hardly_varies(&self, group: &JobGroup, slowed: f64) -> bool {
        let spread = self.usual_spread(group);
        spread <= STEADIEST_SPREAD || f64::from(spread) * CERTAIN_SPREADS <= slowed
    }

    /// Returns which pace is known better, and whether its slowdown is more than that varies by chance, as far as known.
    pub(super) fn settle_pace(&self, group: &JobGroup, may_pause: bool) -> SettledPace {
        SettledPace {
            is_traffic: self.is_paced_by_traffic(group),
            confirms_slowdown: !self.is_learned() || self.slowdown(group).is_suspected(),
            may_pause,
        }
    }

    /// Whether the job is below its usual pace now, by enough to matter.
    pub(super) fn may_be_slower(&self, group: &JobGroup, limits: &Thresholds) -> bool {
        self.slowdown_rise(group).is_some_and(|rise| rise >= limits.least_slowdown_ratio)
    }

    /// Returns how far its slowdown is above the usual one.
    pub(super) fn slowdown_rise(&self, group: &JobGroup) -> Option<f64> {
        group.pace.map(|pace| self.slowdown(group).rise_of(1.0 - pace))
    }

    /// Returns the usual slowdown: far above zero where its pace became known while it was slow.
    pub(super) fn usual_slowdown(&self, group: &JobGroup) -> f64 {
        self.slowdown(group).usual_level()
    }

    /// Takes back what the round before a pause added: it began in it.
    fn begin_pause(&mut self) {
        if !self.in_pause {
            self.in_pause = true;
            self.pauses = self.pauses.saturating_add(1);
            for detector in [&mut self.slower, &mut self.less_traffic, &mut self.idler] {
                detector.take_back();
            }
            self.long_slower.begin_pause();
        }
    }

    fn add_round(
        &mut self,
        cluster: &Cluster,
        group: &JobGroup,
        gpus: &mut [GpuTracker],
        limits: &Thresholds,
    ) {
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let Some(slowdown) = group.pace.map(|pace| 1.0 - pace) else { return };
        let earlier = self.rounds;
        self.rounds = earlier.saturating_add(1);
        let Some(samples) = earlier.checked_sub(SETTLING_ROUNDS) else { return };
        // What a job that does nothing draws and sends is no pace.
        let works = group.utilization.is_none_or(|busy| busy >= limits.utilization_idle_ratio);
        if works {
            self.slower.add_value(slowdown, limits.shift_floor_ratio, self.is_rare);
            self.long_slower.add_value(slowdown, limits.shift_floor_ratio);
        }
        if let Some(traffic) = group.traffic.filter(|_| works) {
            self.less_traffic.add_value(1.0 - traffic, limits.shift_floor_ratio, self.is_rare);
            self.median_traffic.add_value(1.0 - traffic, limits.shift_floor_ratio, self.is_rare);
        }
        // What is usual is learned while the job runs at its usual speed.
        let learns = samples > 1
            && !self.slowdown(group).is_likely()
            && !self.is_slower_for_long(group, limits);
        let floor = limits.shift_floor_ratio;
        let idle = |gpu: &GpuTracker| {
            let averages = &gpu.averages;
            Some(averages.usual_utilization()? - averages.utilization_at(now, gap)?)
        };
        let idle_times = group.gpus.iter().filter_map(|row| idle(gpus.get(*row as usize)?));
        if let Some(idle_time) = median(idle_times) {
            self.idler.add_value(idle_time, limits.shift_floor_ratio, self.is_rare);
        }
        for shifted in relative_shifts(cluster, group, gpus, idle) {
            let evidence = &mut gpus[shifted.row as usize].idler;
            add_shift(evidence, &mut self.usual_idle, shifted.shift, (samples, learns, floor));
        }
        let slower_clock = |gpu: &GpuTracker| {
            let averages = &gpu.averages;
            let busy = averages.usual_utilization()? * limits.hungry_slow_ratio;
            let is_busy = averages.utilization_at(now, gap)? >= busy
                && averages.utilization_now()? >= LIGHT_LOAD_RATIO;
            let usual = averages.lowest_clock().filter(|_| is_busy)?;
            Some(1.0 - averages.clock_hertz(now, limits)? / usual)
        };
        for shifted in relative_shifts(cluster, group, gpus, slower_clock) {
            let evidence = &mut gpus[shifted.row as usize].slower_clock;
            add_shift(evidence, &mut self.usual_clock, shifted.shift, (samples, learns, floor));
        }
    }
}

/// Adds a shift to the evidence about one GPU, and to what is usual in its job unless that is suspected to have changed.
fn add_shift(
    evidence: &mut LevelEvidence,
    usual: &mut ResidualHistogram,
    shift: f64,
    (samples, learns, floor): (u32, bool, f64),
) {
    let rise = evidence.rise_of(shift);
    evidence.add_value(shift, usual.probability(rise), samples, floor);
    if learns && !evidence.is_likely() {
        usual.count(rise);
    }
}

/// Retention of the evidence about a job that is not seen any more.
const KEPT: Duration = Duration::from_hours(24);

/// The same while no restart of gaunt explains that: jobs begin again within minutes after a failure.
const ENDED: Duration = Duration::from_mins(15);

/// Traffic denies a slowdown that is larger than its own by so many of its usual spreads.
const DENIED_SPREADS: f64 = 3.0;

/// The usual spread up to which the pace of a job is steady.
const STEADY_SPREAD: f32 = 0.05;
/// The same of a pace that hardly varies.
const STEADIEST_SPREAD: f32 = 0.02;
/// A slowdown of so many usual spreads is none that a changing load explains.
const CERTAIN_SPREADS: f64 = 16.0;

/// The first rounds of a job: it starts, and its baselines with it. Nothing is learned of them.
const SETTLING_ROUNDS: u32 = 3;

/// Rounds from which what is usual in a job is known, and the same of rare ones.
const LEARNED_ROUNDS: u32 = 10;
const LEARNED_RARE_ROUNDS: u32 = 6;

/// Rounds from which it is known how far its ranks differ by chance.
const KNOWN_ROUNDS: u32 = 12;

/// A node without a new sample for so many intervals does not report any more: the others of its job go on without it.
const SILENT_INTERVALS: f64 = 3.0;
