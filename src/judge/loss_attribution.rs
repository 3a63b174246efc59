//! Lost GPUs: the share of each GPU's time that is lost now, and the one cause that it is attributed to. Every loss
//! figure (fleet, nodes, jobs, findings, usage, metrics) is a sum of these shares.
//!
//! A share is a whole number of ten-thousandths, so that sums are exact in any order.

use std::{cmp::Ordering, collections::HashMap, sync::Arc};

use gaunt_schema::{DeviceClass, Entity, EntityKind, FindingKind, GpuState, Severity};

use super::{
    JudgeState, Thresholds,
    gpu_tracker::GpuTracker,
    job_group::{JobGroup, is_slowed},
};
use gaunt_cluster::Cluster;

/// Parts of one GPU in which shares are counted.
const PARTS: f64 = 10_000.0;

/// The share of a GPU that does nothing for its job.
const WHOLE: u16 = 10_000;

/// The cause of lost time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttributedCause {
    /// The open finding at this index of [`FleetLoss::findings`].
    Finding(u16),
    /// No finding: a job holds the GPU and does not use it.
    Idle,
    /// No finding, and the GPU is not idle.
    Unexplained,
}

/// The state and loss of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuLoss {
    state: GpuState,
    /// Ten-thousandths of its time.
    parts: u16,
    /// The index of a finding, [`IDLE`] or [`UNEXPLAINED`]; meaningless without parts.
    cause: u16,
}

/// No open finding has these indexes: there are at most a thousand.
const IDLE: u16 = u16::MAX;
const UNEXPLAINED: u16 = u16::MAX - 1;

impl Default for GpuLoss {
    fn default() -> Self {
        Self { state: GpuState::Unknown, parts: 0, cause: UNEXPLAINED }
    }
}

impl GpuLoss {
    /// Creates the loss of a GPU in a state that loses nothing, or from saved parts.
    pub fn from_parts(state: GpuState, parts: u16, cause: u16) -> Self {
        Self { state, parts: parts.min(WHOLE), cause }
    }

    /// Returns the displayed state of the GPU.
    pub fn shown_state(self) -> GpuState {
        self.state
    }

    /// Returns the ten-thousandths of its time that are lost: sums of these are exact.
    pub fn lost_parts(self) -> u16 {
        self.parts
    }

    /// Returns the number that encodes the cause.
    pub fn cause_code(self) -> u16 {
        self.cause
    }

    /// Returns the cause of its lost time; none if nothing is lost.
    pub fn attributed_cause(self) -> Option<AttributedCause> {
        (self.parts > 0).then_some(match self.cause {
            IDLE => AttributedCause::Idle,
            UNEXPLAINED => AttributedCause::Unexplained,
            index => AttributedCause::Finding(index),
        })
    }
}

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
    /// Findings that were open, by id: the targets of causes.
    pub findings: Arc<[(String, FindingKind)]>,
    /// The sums.
    pub totals: LossTotals,
}

/// How well a finding explains loss; the greatest is the cause.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CauseRank {
    /// Whether its detector estimates a cost.
    costs: bool,
    severity: Severity,
    confidence: f64,
    /// How closely it names the GPU: 3 itself, 2 its node, 1 its job.
    specificity: u8,
    /// The order of the list decides between equals: earlier is greater.
    index: u16,
    kind: FindingKind,
}

impl CauseRank {
    fn is_better_than(self, other: Option<Self>) -> bool {
        let Some(other) = other else { return true };
        let of = |rank: &Self| (rank.costs, rank.severity);
        let order = of(&self).cmp(&of(&other));
        let order = order.then_with(|| self.confidence.total_cmp(&other.confidence));
        let order = order.then_with(|| self.specificity.cmp(&other.specificity));
        order.then_with(|| other.index.cmp(&self.index)) == Ordering::Greater
    }

    /// Whether it explains idle GPUs in a job at its baseline speed: what slows a job down does not.
    fn explains_idle(self) -> bool {
        use FindingKind::{CollectiveHang, GpuFailed, IdleAllocated};
        self.specificity > 1 || matches!(self.kind, CollectiveHang | GpuFailed | IdleAllocated)
    }
}

/// The best finding for each entity that findings name.
#[derive(Default)]
struct CauseCandidates {
    gpus: HashMap<u32, CauseRank>,
    groups: Vec<Option<CauseRank>>,
    /// The best of those that explain idle GPUs in a job at its baseline speed.
    idle: Vec<Option<CauseRank>>,
}

impl CauseCandidates {
    fn of(judge: &JudgeState, cluster: &Cluster) -> (Self, Vec<(String, FindingKind)>) {
        let all = judge.job_groups.all_groups();
        let mut named =
            Self { groups: vec![None; all.len()], idle: vec![None; all.len()], ..Self::default() };
        let mut findings = Vec::new();
        let mut by_name: HashMap<String, usize> = HashMap::new();
        for (record, estimate) in judge.tracker.open_with_estimates() {
            if by_name.is_empty() {
                by_name.extend(all.iter().enumerate().map(|(at, group)| (group.group_key(), at)));
            }
            let finding = &record.finding;
            let index = findings.len().min(usize::from(UNEXPLAINED) - 1) as u16;
            findings.push((finding.id.clone(), finding.kind));
            if explains_nothing(finding.kind) {
                continue;
            }
            let rank = |specificity| CauseRank {
                // Whatever explains the loss is a better cause than a finding that says that nothing does.
                costs: estimate > 0.0 && finding.kind != FindingKind::UnexplainedSlowdown,
                severity: finding.severity,
                confidence: finding.confidence,
                specificity,
                index,
                kind: finding.kind,
            };
            named.rank_culprit(cluster, &finding.entity, rank);
            let whole = Some(&finding.entity).filter(|entity| entity.kind == EntityKind::Job);
            let victims = finding.victims.iter().chain(whole);
            let of_victims =
                victims.filter_map(|entity| group_of_entity(judge, cluster, &by_name, entity));
            let of_jobs = record.jobs.iter().filter_map(|job| by_name.get(job.as_str()).copied());
            for group in of_victims.chain(of_jobs) {
                keep_better(&mut named.groups[group], rank(1));
                if rank(1).explains_idle() {
                    keep_better(&mut named.idle[group], rank(1));
                }
            }
        }
        (named, findings)
    }

    /// Ranks a cause for GPUs that are blamed themselves, or are on a blamed node.
    fn rank_culprit(&mut self, cluster: &Cluster, entity: &Entity, rank: impl Fn(u8) -> CauseRank) {
        let Some((_, node)) = entity.node.as_ref().and_then(|name| cluster.node_by_name(name))
        else {
            return;
        };
        let (specificity, gpu) = match (entity.kind, &entity.gpu) {
            (EntityKind::Gpu, Some(gpu)) => (3, Some(gpu)),
            (EntityKind::Node, _) => (2, None),
            _ => return,
        };
        for row in node.device_rows(DeviceClass::Gpu) {
            let key = || cluster.device_at(DeviceClass::Gpu, *row)?.device.key.first();
            if gpu.is_some() && key() != gpu {
                continue;
            }
            let rank = rank(specificity);
            let known = self.gpus.entry(*row).or_insert(rank);
            if rank.is_better_than(Some(*known)) {
                *known = rank;
            }
        }
    }

    /// Returns the cause of a GPU's loss.
    fn best_cause(&self, row: u32, group: Option<usize>, idle: bool) -> Option<CauseRank> {
        let own = self.gpus.get(&row).copied();
        let of = if idle { &self.idle } else { &self.groups };
        let group = group.and_then(|group| of.get(group).copied().flatten());
        match (own, group) {
            (Some(own), Some(group)) if group.is_better_than(Some(own)) => Some(group),
            (own, group) => own.or(group),
        }
    }
}

fn keep_better(known: &mut Option<CauseRank>, rank: CauseRank) {
    if rank.is_better_than(*known) {
        *known = Some(rank);
    }
}

/// Findings about telemetry explain unknown states, not lost time; a finding that summarises others has no loss of its
/// own.
fn explains_nothing(kind: FindingKind) -> bool {
    use FindingKind::{AggregatorLate, DataStale, DriverHung, FindingsOverLimit, TargetDown};
    matches!(kind, TargetDown | DataStale | DriverHung | AggregatorLate | FindingsOverLimit)
}

/// Returns the job group of an entity: its job; without job labels, the group of an affected node.
fn group_of_entity(
    judge: &JudgeState,
    cluster: &Cluster,
    by_name: &HashMap<String, usize>,
    entity: &Entity,
) -> Option<usize> {
    if let Some(job) = &entity.job {
        return by_name.get(job.as_str()).copied();
    }
    if entity.gpu.is_some() || entity.device.is_some() {
        return None;
    }
    let (_, node) = cluster.node_by_name(entity.node.as_ref()?)?;
    let group = node
        .device_rows(DeviceClass::Gpu)
        .iter()
        .find_map(|row| judge.job_groups.group_index(*row))?;
    judge.job_groups.all_groups()[group].job.is_none().then_some(group)
}

impl FleetLoss {
    /// Computes the loss of every GPU and the cost of every open finding.
    pub(super) fn compute_losses(&mut self, judge: &mut JudgeState, cluster: &Cluster) {
        self.gpus.clear();
        self.gpus.resize(cluster.row_count(DeviceClass::Gpu), GpuLoss::default());
        self.totals = LossTotals::default();
        let (named, findings) = CauseCandidates::of(judge, cluster);
        let mut costs = vec![0_u64; findings.len()];
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        for (id, node) in cluster.sorted_nodes() {
            let serves = judge.hosts.get(&id).is_some_and(|host| host.queue.is_some());
            for row in node.device_rows(DeviceClass::Gpu) {
                let Some(gpu) = judge.gpus.get(*row as usize) else { continue };
                let position = judge.job_groups.group_index(*row);
                let group = position.map(|position| &judge.job_groups.all_groups()[position]);
                let one = GpuLossInput { gpu, group, serves, now, gap, limits: &judge.limits };
                let slowdown = one.job_slowdown();
                let mut share = one.lost_share(slowdown);
                let state = one.effective_state();
                let idle = state == GpuState::IdleAllocated;
                let baseline = slowdown.is_some_and(|slowdown| slowdown <= 0.0);
                let cause = named.best_cause(*row, position, idle && (baseline || serves));
                if cause.is_some_and(|cause| cause.kind == FindingKind::CollectiveHang)
                    && matches!(state, GpuState::Waiting | GpuState::Hung)
                {
                    share = 1.0;
                }
                let parts = (share.clamp(0.0, 1.0) * PARTS).round() as u16;
                let code = match cause {
                    Some(cause) => cause.index,
                    None if idle => IDLE,
                    None => UNEXPLAINED,
                };
                match (code, costs.get_mut(usize::from(code))) {
                    (_, Some(cost)) => {
                        *cost += u64::from(parts);
                        self.totals.findings += u64::from(parts);
                    }
                    (IDLE, None) => self.totals.idle += u64::from(parts),
                    (_, None) => self.totals.unexplained += u64::from(parts),
                }
                self.gpus[*row as usize] =
                    GpuLoss { state: one.shown_state(parts), parts, cause: code };
            }
        }
        judge.tracker.set_costs(
            now,
            findings.iter().zip(&costs).map(|((id, _), cost)| (id, gpus_of_parts(*cost))),
        );
        self.findings = findings.into();
    }
}

/// One GPU, its job and its host.
struct GpuLossInput<'a> {
    gpu: &'a GpuTracker,
    group: Option<&'a JobGroup>,
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
            GpuState::Lost | GpuState::Hung | GpuState::IdleAllocated => 1.0,
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
            Computing | MemoryBound | Communicating | Unknown if parts > 0 => Slowed,
            Unknown if self.average_utilization().is_some() => Busy,
            state => state,
        }
    }
}
