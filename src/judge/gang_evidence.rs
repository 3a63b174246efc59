//! Gang evidence: which GPUs of a synchronous job do less, or run slower, than their own past and the rest of the job.
//!
//! While the slowest rank of a job is idle, the others wait for it and keep their engines busy. So a GPU's utilization
//! is compared with its baseline, and the change with the median change on the other nodes: a change that all nodes
//! share says nothing about one of them. The same holds for clocks.

use std::collections::{BTreeMap, HashSet};

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{DeviceClass, UnixMs};

use super::{
    Thresholds,
    gpu_tracker::GpuTracker,
    job_group::{JobGroup, JobGroups},
    job_pauses::Pauses,
    residual_histogram::ResidualHistogram,
    robust_stats::median,
    shift_detector::ShiftDetector,
};

/// The evidence about all jobs, by their group keys.
#[derive(Debug, Default)]
pub(super) struct GangEvidence {
    jobs: BTreeMap<String, JobEvidence>,
}

/// The evidence about one job, sampled in rounds in which each node has a new sample.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JobEvidence {
    rounds: u32,
    last_round: UnixMs,
    /// Whether the job is slower than its baseline.
    slower: ShiftDetector,
    /// How far utilization and clocks of its GPUs usually fall behind those of the rest.
    usual_idle: ResidualHistogram,
    usual_clock: ResidualHistogram,
}

/// The change of one GPU relative to the rest of its job.
#[derive(Clone, Copy, Debug)]
struct RelativeShift {
    row: u32,
    node: NodeId,
    shift: f64,
}

impl GangEvidence {
    /// Returns the evidence about a job.
    pub(super) fn of(&self, group: &JobGroup) -> JobEvidence {
        self.jobs.get(&group.group_key()).copied().unwrap_or_default()
    }

    /// Adds a round of every job of which each node has a new sample.
    pub(super) fn observe_groups(
        &mut self,
        cluster: &Cluster,
        groups: &JobGroups,
        pauses: &Pauses,
        gpus: &mut [GpuTracker],
        limits: &Thresholds,
    ) {
        let now = cluster.now();
        let keys: Vec<String> = groups.all_groups().iter().map(JobGroup::group_key).collect();
        let known: HashSet<&String> = keys.iter().collect();
        self.jobs.retain(|key, _| known.contains(key));
        for (group, key) in groups.all_groups().iter().zip(&keys) {
            let job = self.jobs.entry(key.clone()).or_default();
            let round_s = group.interval.seconds().max(limits.average_seconds);
            let passed = now.duration_since(job.last_round).as_secs_f64();
            if passed < round_s || !are_renewed(cluster, group, job.last_round) {
                continue;
            }
            job.last_round = now;
            if pauses.has(group, now, limits) || !group.is_progressing() {
                continue;
            }
            job.add_round(cluster, group, gpus, limits);
        }
    }
}

/// Whether nearly all nodes of a job have new samples since an instant.
fn are_renewed(cluster: &Cluster, group: &JobGroup, since: UnixMs) -> bool {
    let nodes = group.nodes.iter().filter_map(|id| cluster.node_by_id(*id));
    let renewed = nodes.filter(|node| {
        node.renewals(DeviceClass::Gpu).last().is_some_and(|renewed| renewed > since)
    });
    renewed.count() * 5 >= group.nodes.len() * 4
}

impl JobEvidence {
    /// Whether enough rounds were seen to know what is usual.
    pub(super) fn is_learned(&self) -> bool {
        self.rounds >= LEARNED_ROUNDS
    }

    /// Whether the job is likely slower than its baseline, by enough to matter.
    pub(super) fn is_slower(&self, group: &JobGroup, limits: &Thresholds) -> bool {
        let slowdown = group.slowdown_ratio();
        self.slower.is_likely()
            && slowdown.is_some_and(|slowdown| slowdown >= limits.least_slowdown_ratio)
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
        // What is usual is learned while the job runs at its usual speed.
        let learns = slowdown < limits.slowed_ratio;
        self.slower.add_deviation(slowdown, limits.shift_floor_ratio, learns, self.rounds);
        let idle = |gpu: &GpuTracker| {
            let averages = &gpu.averages;
            Some(averages.usual_utilization()? - averages.utilization_at(now, gap)?)
        };
        for shifted in relative_shifts(cluster, group, gpus, idle) {
            let sum = &mut gpus[shifted.row as usize].idler;
            sum.add_probability(self.usual_idle.probability(shifted.shift));
            if learns && !sum.is_likely() {
                self.usual_idle.count(shifted.shift);
            }
        }
        let slower_clock = |gpu: &GpuTracker| {
            let averages = &gpu.averages;
            let busy = averages.usual_utilization()? * limits.hungry_slow_ratio;
            let is_busy = averages.utilization_at(now, gap)? >= busy
                && averages.utilization_now()? >= limits.utilization_launch_ratio;
            let usual = averages.lowest_clock().filter(|_| is_busy)?;
            Some(1.0 - averages.clock_hertz(now, limits)? / usual)
        };
        for shifted in relative_shifts(cluster, group, gpus, slower_clock) {
            let sum = &mut gpus[shifted.row as usize].slower_clock;
            sum.add_probability(self.usual_clock.probability(shifted.shift));
            if learns && !sum.is_likely() {
                self.usual_clock.count(shifted.shift);
            }
        }
        self.rounds = self.rounds.saturating_add(1);
    }
}

/// Returns the change of each GPU less the median change of the other nodes of its job, or of the other GPUs of its
/// node where the job has no other node.
fn relative_shifts(
    cluster: &Cluster,
    group: &JobGroup,
    gpus: &[GpuTracker],
    shift_of: impl Fn(&GpuTracker) -> Option<f64>,
) -> Vec<RelativeShift> {
    let own = |row: &u32| {
        let node = cluster.device_at(DeviceClass::Gpu, *row)?.node;
        Some(RelativeShift { row: *row, node, shift: shift_of(gpus.get(*row as usize)?)? })
    };
    let mut shifts: Vec<RelativeShift> = group.gpus.iter().filter_map(own).collect();
    let mut nodes: BTreeMap<NodeId, Vec<f64>> = BTreeMap::new();
    for shifted in &shifts {
        nodes.entry(shifted.node).or_default().push(shifted.shift);
    }
    if nodes.len() < 2 {
        let all: Vec<f64> = shifts.iter().map(|shifted| shifted.shift).collect();
        let Some(middle) = median(all).filter(|_| shifts.len() >= FEW_NODES) else {
            return Vec::new();
        };
        shifts.iter_mut().for_each(|shifted| shifted.shift -= middle);
        return shifts;
    }
    let means: BTreeMap<NodeId, f64> = nodes
        .into_iter()
        .map(|(id, shifts)| (id, shifts.iter().sum::<f64>() / shifts.len() as f64))
        .collect();
    let all = median(means.values().copied());
    let rest = |node: NodeId| match means.len() {
        // Of a few nodes one moves the median.
        0..FEW_NODES => median(means.iter().filter(|(id, _)| **id != node).map(|(_, mean)| *mean)),
        _ => all,
    };
    let rests: BTreeMap<NodeId, f64> =
        means.keys().filter_map(|id| Some((*id, rest(*id)?))).collect();
    shifts.retain_mut(|shifted| {
        let Some(rest) = rests.get(&shifted.node) else { return false };
        shifted.shift -= rest;
        true
    });
    shifts
}

/// Rounds from which what is usual in a job is known.
const LEARNED_ROUNDS: u32 = 8;

/// Below this number of nodes a node is left out of the median that it is compared with.
const FEW_NODES: usize = 4;
