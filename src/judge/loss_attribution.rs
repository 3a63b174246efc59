//! Lost GPUs: the share of each GPU's time that is lost now, and the cause that it is attributed to. Every loss figure
//! (fleet, nodes, jobs, findings, usage, metrics) is a sum of these shares.
//!
//! A share is a whole number of ten-thousandths, so that sums are exact in any order.

use std::{collections::BTreeMap, sync::Arc};

use gaunt_schema::{DeviceClass, GpuState};

use super::{
    JudgeState, Thresholds, crash_loop,
    gpu_loss::{AttributedCause, GpuLoss},
    gpu_tracker::GpuTracker,
    job_group::{JobGroup, is_slowed},
    loss_causes::{CauseCandidates, LossCauses},
    waited_for_node::told_losses,
};
use gaunt_cluster::Cluster;

/// Parts of one GPU in which shares are counted.
const PARTS: f64 = 10_000.0;

/// Converts parts to GPUs.
pub fn gpus_of_parts(parts: u64) -> f64 {
    parts as f64 / PARTS
}

/// Lost parts by group of causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossTotals {
    /// Attributed to open findings.
    pub findings: u64,
    /// GPUs that a job holds idle, without a finding.
    pub idle: u64,
    /// Without a cause.
    pub unexplained: u64,
}

impl LossTotals {
    /// Returns the sum of all.
    pub fn total_parts(self) -> u64 {
        self.findings + self.idle + self.unexplained
    }
}

/// The loss at one step.
#[derive(Clone, Debug, Default)]
pub struct FleetLoss {
    /// Every GPU by row.
    pub gpus: Vec<GpuLoss>,
    /// What the causes of GPUs refer to.
    pub causes: Arc<LossCauses>,
    /// The sums.
    pub totals: LossTotals,
}

impl FleetLoss {
    /// Computes the loss of every GPU and the cost of every open finding.
    pub(super) fn compute_losses(&mut self, judge: &mut JudgeState, cluster: &Cluster) {
        self.gpus.clear();
        self.gpus.resize(cluster.row_count(DeviceClass::Gpu), GpuLoss::default());
        self.totals = LossTotals::default();
        let mut candidates = CauseCandidates::of(judge, cluster);
        let mut lost_by_code: BTreeMap<u16, u64> = BTreeMap::new();
        let waited = told_losses(judge, cluster);
        let restarts = crash_loop::told_losses(judge, cluster);
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        for (id, node) in cluster.sorted_nodes() {
            let serves = judge.hosts.get(id).is_some_and(|host| host.queue.is_some());
            for row in node.device_rows(DeviceClass::Gpu) {
                let Some(gpu) = judge.gpus.get(*row as usize) else { continue };
                let position = judge.job_groups.group_index(*row);
                let group = position.map(|position| &judge.job_groups.all_groups()[position]);
                let waited = position.and_then(|position| waited.get(&position)).copied();
                let restarts = position.and_then(|position| restarts.get(&position)).copied();
                let limits = &judge.limits;
                let one = GpuLossInput { gpu, group, waited, restarts, serves, now, gap, limits };
                let slowdown = one.job_slowdown();
                let mut share = one.lost_share(slowdown);
                let state = one.effective_state();
                let idle = state == GpuState::IdleAllocated;
                let baseline = slowdown.is_some_and(|slowdown| slowdown <= 0.0);
                let (cause, hangs) =
                    candidates.find_cause(*row, position, idle && (baseline || serves));
                if hangs && matches!(state, GpuState::Waiting | GpuState::Hung) {
                    share = 1.0;
                }
                let parts = (share.clamp(0.0, 1.0) * PARTS).round() as u16;
                let unnamed =
                    if idle { AttributedCause::Idle } else { AttributedCause::Unexplained };
                let cause = cause.unwrap_or(unnamed.code());
                self.gpus[*row as usize] =
                    GpuLoss::from_parts(one.shown_state(parts), parts, cause);
                if parts > 0 {
                    *lost_by_code.entry(cause).or_default() += u64::from(parts);
                }
            }
        }
        let causes = Arc::new(candidates.causes);
        let costs = self.sum_costs(&causes);
        let shares = causes.undecided_shares(&lost_by_code);
        let costs = costs.into_iter().map(gpus_of_parts);
        judge.tracker.set_costs(now, causes.finding_ids().zip(costs).zip(shares));
        self.causes = causes;
    }

    /// Sums the totals, and returns the cost of each finding by index.
    fn sum_costs(&mut self, causes: &LossCauses) -> Vec<u64> {
        let mut costs = vec![0_u64; causes.finding_ids().count()];
        for gpu in &self.gpus {
            for (cause, parts) in causes.attributed_parts(*gpu) {
                let parts = u64::from(parts);
                match cause {
                    AttributedCause::Idle => self.totals.idle += parts,
                    AttributedCause::Unexplained => self.totals.unexplained += parts,
                    AttributedCause::Finding(index) => {
                        self.totals.findings += parts;
                        if let Some(cost) = costs.get_mut(usize::from(index)) {
                            *cost += parts;
                        }
                    }
                }
            }
        }
        costs
    }
}

/// One GPU, its job and its host.
struct GpuLossInput<'a> {
    gpu: &'a GpuTracker,
    group: Option<&'a JobGroup>,
    /// The share of its time for which its job waits for one of its nodes.
    waited: Option<f64>,
    /// The share of its time that its job loses to restarts. It is the loss of each moment, also while the job works: then
    /// nothing else shows what the restarts cost.
    restarts: Option<f64>,
    /// Whether its host serves requests: then its activity follows the requests, and has no baseline.
    serves: bool,
    now: gaunt_schema::UnixMs,
    gap: std::time::Duration,
    limits: &'a Thresholds,
}

impl GpuLossInput<'_> {
    /// Returns its state. Where signals do not decide, a GPU without processes is idle.
    fn effective_state(&self) -> GpuState {
        let state = self.gpu.hysteresis.current_state();
        let unused = |share: f64| share < self.limits.utilization_idle_ratio;
        match (state, self.average_utilization(), self.gpu.allocated) {
            (GpuState::Unknown, Some(share), allocated) if unused(share) => match allocated {
                Some(true) => GpuState::IdleAllocated,
                _ => GpuState::Idle,
            },
            _ => state,
        }
    }

    /// Returns the share of its baseline speed that its job has lost, or the GPU alone where it has no job; 0 at the
    /// baseline.
    fn job_slowdown(&self) -> Option<f64> {
        if self.serves {
            return None;
        }
        let of_group = self.group.and_then(JobGroup::lost_share);
        let of_group =
            self.waited.map_or(of_group, |waited| Some(waited.max(of_group.unwrap_or_default())));
        of_group.or_else(|| self.own_slowdown().filter(|_| self.group.is_none()))
    }

    fn own_slowdown(&self) -> Option<f64> {
        let pace = self.gpu.averages.activity_ratio(self.now, self.gap, self.limits)?;
        let slowed = (1.0 - pace).max(0.0);
        Some(if is_slowed(Some(slowed), false, self.limits) { slowed } else { 0.0 })
    }

    fn average_utilization(&self) -> Option<f64> {
        self.gpu.averages.utilization_at(self.now, self.gap)
    }

    /// Returns the share of its time that is lost, from 0 to 1.
    fn lost_share(&self, slowdown: Option<f64>) -> f64 {
        let unused = || 1.0 - self.average_utilization().unwrap_or(0.0);
        match self.effective_state() {
            // A GPU that no job holds is not lost.
            _ if self.gpu.allocated == Some(false) => 0.0,
            GpuState::Idle | GpuState::Stale => 0.0,
            GpuState::Lost | GpuState::Hung => 1.0,
            _ if self.restarts.is_some() => self.restarts.unwrap_or_default(),
            GpuState::IdleAllocated => 1.0,
            // Waiting for peers is normal in a job at its baseline speed.
            GpuState::Waiting => slowdown.unwrap_or(if self.serves { 0.0 } else { 1.0 }),
            GpuState::DataStarved | GpuState::LaunchBound => match slowdown {
                Some(slowdown) if slowdown > 0.0 => slowdown,
                known => self.own_slowdown().or(known).unwrap_or_else(unused),
            },
            GpuState::Throttled => match slowdown {
                Some(slowdown) if slowdown > 0.0 => slowdown,
                known => self.own_slowdown().or(known).unwrap_or_else(|| self.clock_held_down()),
            },
            GpuState::Unknown if self.average_utilization().is_none() => 0.0,
            _ => slowdown.unwrap_or(0.0),
        }
    }

    /// Returns the share of its maximum clock that throttling takes away.
    fn clock_held_down(&self) -> f64 {
        let signals = self.gpu.averages.signals_at(self.now, self.gap, self.limits);
        signals.clock.map_or(0.0, |clock| 1.0 - clock)
    }

    /// Returns the displayed state: a GPU that works in a job below its baseline speed is slowed, and one whose
    /// counters do not tell its kind of work is busy. Only a GPU without any signals is unknown.
    fn shown_state(&self, parts: u16) -> GpuState {
        use GpuState::{Busy, Communicating, Computing, MemoryBound, Slowed, Unknown};
        match self.effective_state() {
            Computing | MemoryBound | Communicating | Unknown
                if parts > 0 && self.restarts.is_none() =>
            {
                Slowed
            }
            Unknown if self.average_utilization().is_some() => Busy,
            state => state,
        }
    }
}
