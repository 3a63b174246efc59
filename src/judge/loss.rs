//! Lost GPUs: the share of each GPU's time that is lost now, and the one cause that it is attributed to. Every figure of
//! loss (fleet, nodes, jobs, findings, usage, metrics) is a sum of these shares.
//!
//! A share is a whole number of ten-thousandths, so that sums agree to the last digit in whatever order they are made.

use std::{cmp::Ordering, collections::HashMap, sync::Arc};

use gaunt_schema::{Class, Entity, EntityKind, FindingKind, GpuState, Severity};

use super::{Gpu, Judge, Thresholds, gang::Gang};
use crate::cluster::Cluster;

/// Parts of one GPU in which shares are counted.
const PARTS: f64 = 10_000.0;

/// The share of a GPU that does nothing for its job.
const WHOLE: u16 = 10_000;

/// What lost time is attributed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The open finding at this place of [`Loss::findings`].
    Finding(u16),
    /// No finding: a job holds the GPU and does nothing with it.
    Idle,
    /// No finding, and the GPU is not idle.
    Unexplained,
}

/// One GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuLoss {
    state: GpuState,
    /// Ten-thousandths of its time.
    parts: u16,
    /// The place of a finding, [`IDLE`] or [`UNEXPLAINED`]; no meaning without parts.
    cause: u16,
}

/// No open finding has these places: there are at most a thousand.
const IDLE: u16 = u16::MAX;
const UNEXPLAINED: u16 = u16::MAX - 1;

impl Default for GpuLoss {
    fn default() -> Self {
        Self { state: GpuState::Unknown, parts: 0, cause: UNEXPLAINED }
    }
}

impl GpuLoss {
    /// A GPU in a state that loses nothing, or that was kept with these parts.
    pub fn kept(state: GpuState, parts: u16, cause: u16) -> Self {
        Self { state, parts: parts.min(WHOLE), cause }
    }

    /// What the GPU is doing, as it is shown.
    pub fn state(self) -> GpuState {
        self.state
    }

    /// Ten-thousandths of its time that are lost: sums of these are exact.
    pub fn parts(self) -> u16 {
        self.parts
    }

    /// The number by which the cause is kept.
    pub fn cause_code(self) -> u16 {
        self.cause
    }

    /// What its lost time is attributed to; none if nothing is lost.
    pub fn cause(self) -> Option<Cause> {
        (self.parts > 0).then_some(match self.cause {
            IDLE => Cause::Idle,
            UNEXPLAINED => Cause::Unexplained,
            place => Cause::Finding(place),
        })
    }
}

/// GPUs of so many parts.
pub fn gpus(parts: u64) -> f64 {
    parts as f64 / PARTS
}

/// Parts lost by whole groups of causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossTotals {
    /// Attributed to open findings.
    pub findings: u64,
    /// GPUs that a job holds idle, without a finding.
    pub idle: u64,
    /// Attributed to nothing.
    pub unexplained: u64,
}

impl LossTotals {
    /// All of it.
    pub fn all(self) -> u64 {
        self.findings + self.idle + self.unexplained
    }
}

/// What is lost at one step.
#[derive(Clone, Debug, Default)]
pub struct Loss {
    /// Every GPU by row.
    pub gpus: Vec<GpuLoss>,
    /// Findings that were open, by id: what a cause points to.
    pub findings: Arc<[(String, FindingKind)]>,
    /// The sums.
    pub totals: LossTotals,
}

/// Whether a slowdown counts as lost time: it is left under a lower limit than it is entered.
pub(super) fn is_slowed(slowed: Option<f64>, before: bool, limits: &Thresholds) -> bool {
    let slack = if before { limits.leave_share.clamp(0.1, 1.0) } else { 1.0 };
    slowed.is_some_and(|slowed| slowed >= limits.slowed_ratio * slack)
}

/// How well a finding explains loss; the greater one is the cause.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rank {
    /// Whether its detector says that it costs anything.
    costs: bool,
    severity: Severity,
    confidence: f64,
    /// How closely it names the GPU: 3 itself, 2 its node, 1 its job.
    specificity: u8,
    /// The order of the list decides between equals: earlier is greater.
    place: u16,
    kind: FindingKind,
}

impl Rank {
    fn better(self, other: Option<Self>) -> bool {
        let Some(other) = other else { return true };
        let of = |rank: &Self| (rank.costs, rank.severity);
        let order = of(&self).cmp(&of(&other));
        let order = order.then_with(|| self.confidence.total_cmp(&other.confidence));
        let order = order.then_with(|| self.specificity.cmp(&other.specificity));
        order.then_with(|| other.place.cmp(&self.place)) == Ordering::Greater
    }

    /// Whether it explains GPUs that are idle in a job at its usual speed: what slows a job down does not.
    fn explains_idle(self) -> bool {
        use FindingKind::{CollectiveHang, GpuFailed, IdleAllocated};
        self.specificity > 1 || matches!(self.kind, CollectiveHang | GpuFailed | IdleAllocated)
    }
}

/// The best finding by what it names.
#[derive(Default)]
struct Named {
    gpus: HashMap<u32, Rank>,
    gangs: Vec<Option<Rank>>,
    /// The best of those that explain GPUs that are idle in a job at its usual speed.
    idle: Vec<Option<Rank>>,
}

impl Named {
    fn of(judge: &Judge, cluster: &Cluster) -> (Self, Vec<(String, FindingKind)>) {
        let all = judge.gangs.all();
        let mut named =
            Self { gangs: vec![None; all.len()], idle: vec![None; all.len()], ..Self::default() };
        let mut findings = Vec::new();
        let mut by_name: HashMap<String, usize> = HashMap::new();
        for (told, estimate) in judge.life.open_with_estimates() {
            if by_name.is_empty() {
                by_name.extend(all.iter().enumerate().map(|(at, gang)| (gang.name(), at)));
            }
            let finding = &told.finding;
            let place = findings.len().min(usize::from(UNEXPLAINED) - 1) as u16;
            findings.push((finding.id.clone(), finding.kind));
            if explains_nothing(finding.kind) {
                continue;
            }
            let rank = |specificity| Rank {
                costs: estimate > 0.0,
                severity: finding.severity,
                confidence: finding.confidence,
                specificity,
                place,
                kind: finding.kind,
            };
            named.culprit(cluster, &finding.entity, rank);
            let whole = Some(&finding.entity).filter(|entity| entity.kind == EntityKind::Job);
            let victims = finding.victims.iter().chain(whole);
            let of_victims = victims.filter_map(|entity| gang_of(judge, cluster, &by_name, entity));
            let of_jobs = finding.jobs.iter().filter_map(|job| by_name.get(job.as_str()).copied());
            for gang in of_victims.chain(of_jobs) {
                offer(&mut named.gangs[gang], rank(1));
                if rank(1).explains_idle() {
                    offer(&mut named.idle[gang], rank(1));
                }
            }
        }
        (named, findings)
    }

    /// GPUs that are blamed themselves, or are on a blamed node.
    fn culprit(&mut self, cluster: &Cluster, entity: &Entity, rank: impl Fn(u8) -> Rank) {
        let Some((_, node)) = entity.node.as_ref().and_then(|name| cluster.named(name)) else {
            return;
        };
        let (specificity, gpu) = match (entity.kind, &entity.gpu) {
            (EntityKind::Gpu, Some(gpu)) => (3, Some(gpu)),
            (EntityKind::Node, _) => (2, None),
            _ => return,
        };
        for row in node.rows(Class::Gpu) {
            let key = || cluster.device(Class::Gpu, *row)?.device.key.first();
            if gpu.is_some() && key() != gpu {
                continue;
            }
            let rank = rank(specificity);
            let known = self.gpus.entry(*row).or_insert(rank);
            if rank.better(Some(*known)) {
                *known = rank;
            }
        }
    }

    /// The cause of what a GPU has lost.
    fn cause(&self, row: u32, gang: Option<usize>, idle: bool) -> Option<Rank> {
        let own = self.gpus.get(&row).copied();
        let of = if idle { &self.idle } else { &self.gangs };
        let gang = gang.and_then(|gang| of.get(gang).copied().flatten());
        match (own, gang) {
            (Some(own), Some(gang)) if gang.better(Some(own)) => Some(gang),
            (own, gang) => own.or(gang),
        }
    }
}

fn offer(known: &mut Option<Rank>, rank: Rank) {
    if rank.better(*known) {
        *known = Some(rank);
    }
}

/// Findings about telemetry explain what is not known, and no time that is lost; what stands for other findings has no
/// loss of its own.
fn explains_nothing(kind: FindingKind) -> bool {
    use FindingKind::{AggregatorLate, DataStale, DriverHung, FindingsOverLimit, TargetDown};
    matches!(kind, TargetDown | DataStale | DriverHung | AggregatorLate | FindingsOverLimit)
}

/// The gang that an entity stands for: its job; where nobody names jobs, the gang of a node that suffers.
fn gang_of(
    judge: &Judge,
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
    let (_, node) = cluster.named(entity.node.as_ref()?)?;
    let gang = node.rows(Class::Gpu).iter().find_map(|row| judge.gangs.position(*row))?;
    judge.gangs.all()[gang].job.is_none().then_some(gang)
}

impl Loss {
    /// Works out what every GPU loses now, and what each open finding costs.
    pub(super) fn look(judge: &mut Judge, cluster: &Cluster) {
        let mut loss = std::mem::take(&mut judge.loss);
        loss.gpus.clear();
        loss.gpus.resize(cluster.rows(Class::Gpu), GpuLoss::default());
        loss.totals = LossTotals::default();
        let (named, findings) = Named::of(judge, cluster);
        let mut costs = vec![0_u64; findings.len()];
        let (now, gap) = (cluster.now(), cluster.fresh_for());
        for (id, node) in cluster.nodes() {
            let serves = judge.hosts.get(&id).is_some_and(|host| host.queue.is_some());
            for row in node.rows(Class::Gpu) {
                let Some(gpu) = judge.gpus.get(*row as usize) else { continue };
                let position = judge.gangs.position(*row);
                let gang = position.map(|position| &judge.gangs.all()[position]);
                let one = One { gpu, gang, serves, now, gap, limits: &judge.limits };
                let slowdown = one.slowdown();
                let mut share = one.share(slowdown);
                let state = one.state();
                let idle = state == GpuState::IdleAllocated;
                let usual = slowdown.is_some_and(|slowdown| slowdown <= 0.0);
                let cause = named.cause(*row, position, idle && (usual || serves));
                if cause.is_some_and(|cause| cause.kind == FindingKind::CollectiveHang)
                    && matches!(state, GpuState::Waiting | GpuState::Hung)
                {
                    share = 1.0;
                }
                let parts = (share.clamp(0.0, 1.0) * PARTS).round() as u16;
                let code = match cause {
                    Some(cause) => cause.place,
                    None if idle => IDLE,
                    None => UNEXPLAINED,
                };
                match (code, costs.get_mut(usize::from(code))) {
                    (_, Some(cost)) => {
                        *cost += u64::from(parts);
                        loss.totals.findings += u64::from(parts);
                    }
                    (IDLE, None) => loss.totals.idle += u64::from(parts),
                    (_, None) => loss.totals.unexplained += u64::from(parts),
                }
                loss.gpus[*row as usize] = GpuLoss { state: one.shown(parts), parts, cause: code };
            }
        }
        judge
            .life
            .charge(now, findings.iter().zip(&costs).map(|((id, _), cost)| (id, gpus(*cost))));
        loss.findings = findings.into();
        judge.loss = loss;
    }
}

/// One GPU, its job and its host.
struct One<'a> {
    gpu: &'a Gpu,
    gang: Option<&'a Gang>,
    /// Whether its host serves requests: then what it does follows the requests, and has no usual speed.
    serves: bool,
    now: gaunt_schema::UnixMs,
    gap: std::time::Duration,
    limits: &'a Thresholds,
}

impl One<'_> {
    /// What it does. Where signals do not decide, one on which nothing runs is idle.
    fn state(&self) -> GpuState {
        let state = self.gpu.held.state();
        let unused = |share: f64| share < self.limits.utilization_idle_ratio;
        match (state, self.utilization(), self.gpu.allocated) {
            (GpuState::Unknown, Some(share), allocated) if unused(share) => match allocated {
                Some(true) => GpuState::IdleAllocated,
                _ => GpuState::Idle,
            },
            _ => state,
        }
    }

    /// The share of its usual speed that its job has lost, or it alone where it has none; 0 at its usual speed.
    fn slowdown(&self) -> Option<f64> {
        if self.serves {
            return None;
        }
        let of_gang = self.gang.and_then(Gang::lost_share);
        of_gang.or_else(|| self.own_slowdown().filter(|_| self.gang.is_none()))
    }

    fn own_slowdown(&self) -> Option<f64> {
        let pace = self.gpu.averages.pace(self.now, self.gap, self.limits)?;
        let slowed = (1.0 - pace).max(0.0);
        Some(if is_slowed(Some(slowed), false, self.limits) { slowed } else { 0.0 })
    }

    fn utilization(&self) -> Option<f64> {
        self.gpu.averages.utilization_at(self.now, self.gap)
    }

    /// The share of its time that is lost, from 0 to 1.
    fn share(&self, slowdown: Option<f64>) -> f64 {
        let unused = || 1.0 - self.utilization().unwrap_or(0.0);
        match self.state() {
            // What no job holds is not lost.
            _ if self.gpu.allocated == Some(false) => 0.0,
            GpuState::Idle | GpuState::Stale => 0.0,
            GpuState::Lost | GpuState::Hung | GpuState::IdleAllocated => 1.0,
            // To wait for peers is usual in a job at its usual speed.
            GpuState::Waiting => slowdown.unwrap_or(if self.serves { 0.0 } else { 1.0 }),
            GpuState::DataStarved | GpuState::LaunchBound => match slowdown {
                Some(slowdown) if slowdown > 0.0 => slowdown,
                known => self.own_slowdown().or(known).unwrap_or_else(unused),
            },
            GpuState::Throttled => match slowdown {
                Some(slowdown) if slowdown > 0.0 => slowdown,
                known => self.own_slowdown().or(known).unwrap_or_else(|| self.clock_held_down()),
            },
            GpuState::Unknown if self.utilization().is_none() => 0.0,
            _ => slowdown.unwrap_or(0.0),
        }
    }

    /// The share of its highest clock that it is held below.
    fn clock_held_down(&self) -> f64 {
        let signals = self.gpu.averages.signals(self.now, self.gap, self.limits);
        signals.clock.map_or(0.0, |clock| 1.0 - clock)
    }

    /// The state as it is shown: one that works in a job below its usual speed is slowed, and one of which the counters do
    /// not say what it works on is busy. Unknown is only what nothing is told of.
    fn shown(&self, parts: u16) -> GpuState {
        use GpuState::{Busy, Communicating, Computing, MemoryBound, Slowed, Unknown};
        match self.state() {
            Computing | MemoryBound | Communicating | Unknown if parts > 0 => Slowed,
            Unknown if self.utilization().is_some() => Busy,
            state => state,
        }
    }
}
