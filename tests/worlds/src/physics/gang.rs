//! The pace of a gang: how long a step takes when every part of it has a given speed.

use super::{
    board::board_of,
    impairment::Impairment,
    wiring::{Gang, Rank, Wiring},
};
use crate::{
    cluster_plan::ClusterPlan,
    job_plan::{JobKind, JobPlan},
};

/// Share of compute under which collectives can hide.
const HIDING_SHARE: f64 = 0.85;

/// The parts of a step of a gang, in seconds at full speed.
#[derive(Clone, Debug)]
pub(super) struct GangModel {
    /// Its ranks.
    pub(super) gang: Gang,
    /// Duration of a step without any fault.
    pub(super) step_s: f64,
    /// Bytes that a rank sends over the network in a step of the planned work.
    network_bytes: f64,
    /// Compute of a rank of speed 1.
    pub(super) compute_s: f64,
    /// Copies over PCIe.
    pub(super) copy_s: f64,
    /// Collectives inside the node.
    pub(super) collective_s: f64,
    host_s: f64,
    network_s: f64,
    overlap: f64,
    /// Share of the compute by which the slowest of all ranks exceeds the mean.
    spread: f64,
    memory_share: f64,
    stage_work: Vec<f64>,
    /// Speed of the GPU of each rank at its highest clock.
    speeds: Vec<f64>,
    /// Bytes per second that the PCIe link of each rank's GPU carries.
    pcie: Vec<f64>,
    has_nvlink: Vec<bool>,
}

/// Circumstances of a step.
#[derive(Clone, Copy)]
pub(super) struct Conditions<'a> {
    /// Relative clock of each GPU while it computes.
    pub(super) clocks: &'a [f64],
    /// What is wrong.
    pub(super) impairment: &'a Impairment,
    /// Work of a step relative to the plan.
    pub(super) work: f64,
    /// Share by which the host's part of each node is slower.
    pub(super) slow_hosts: &'a [f64],
}

/// The step of one rank, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RankTimes {
    /// Compute.
    pub(super) compute_s: f64,
    /// Copies over PCIe.
    pub(super) copy_s: f64,
    /// The host prepares, and the GPU has nothing to do.
    pub(super) lead_s: f64,
    /// Gaps between kernels for late launches.
    pub(super) gap_s: f64,
    /// Collectives inside the node.
    pub(super) collective_s: f64,
    /// Waiting for other ranks of the tensor group.
    pub(super) group_wait_s: f64,
    /// The port that carries its traffic.
    pub(super) route: Option<usize>,
}

impl RankTimes {
    /// Everything but waiting for the gang.
    pub(super) fn own_s(&self) -> f64 {
        self.lead_s
            + self.copy_s
            + self.compute_s
            + self.gap_s
            + self.collective_s
            + self.group_wait_s
    }
}

/// A step of a gang.
#[derive(Clone, Debug, Default)]
pub(super) struct StepTimes {
    /// The step.
    pub(super) total_s: f64,
    /// The network's part that nothing hides.
    pub(super) exposed_s: f64,
    /// The network's part.
    pub(super) network_s: f64,
    /// Bytes that each rank sends over the network.
    pub(super) network_bytes: f64,
    /// Each rank.
    pub(super) ranks: Vec<RankTimes>,
}

/// Memory for a solution, to be used again.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    loads: Vec<f64>,
    group_s: Vec<f64>,
    group_slow: Vec<f64>,
}

/// The expected maximum of so many normal numbers.
fn expected_maximum(count: usize) -> f64 {
    match count {
        0 | 1 => 0.0,
        2 => 0.564,
        3 => 0.846,
        _ => {
            let root = (2.0 * (count as f64).ln()).sqrt();
            let second = (root * root / 2.0).ln() + (4.0 * std::f64::consts::PI).ln();
            root - second / (2.0 * root)
        }
    }
}

impl GangModel {
    /// The model of a gang whose step takes, with these clocks and nothing wrong, as long as its plan says.
    pub(super) fn new(
        gang: &Gang,
        job: &JobPlan,
        plan: &ClusterPlan,
        wiring: &Wiring,
        sound: Conditions<'_>,
    ) -> Self {
        let step = &job.step;
        let gpu_of = |rank: &Rank| {
            let node = &plan.nodes[rank.node];
            &node.gpus[rank.gpu - wiring.first_gpu[rank.node]]
        };
        let rolls_out = job.kind == JobKind::Alternate && gang.half == 0;
        let has_network = gang.nodes.len() > 1 && !rolls_out;
        let mut stage_work = step.stage_work.clone();
        stage_work.resize(step.pipeline_stages.max(1), 1.0);
        let mut model = Self {
            gang: gang.clone(),
            step_s: job.step_s,
            network_bytes: 0.0,
            compute_s: step.compute * job.step_s,
            copy_s: step.host_copy * job.step_s,
            collective_s: step.node_collective * job.step_s,
            host_s: step.host * job.step_s,
            network_s: if has_network { step.network_collective * job.step_s } else { 0.0 },
            overlap: step.overlap,
            spread: step.work_spread * expected_maximum(gang.groups),
            memory_share: 0.4 * step.memory_share,
            stage_work,
            speeds: vec![],
            pcie: vec![],
            has_nvlink: plan.nodes.iter().map(|node| node.has_nvlink).collect(),
        };
        let intensity = step.network_intensity.clamp(0.01, 0.95);
        let per_rank = model.bytes_per_s(intensity, wiring);
        model.network_bytes = per_rank * model.network_s;
        for rank in &gang.ranks {
            let gpu = gpu_of(rank);
            let board = board_of(gpu.model);
            model.speeds.push(gpu.silicon_speed * board.speed);
            model.pcie.push((0.85 * board.pcie_bytes_per_s).max(1.15 * per_rank));
        }
        let raw = model.solve(sound, wiring, &mut Scratch::default());
        let scale = if raw.total_s > 0.0 && raw.total_s.is_finite() {
            job.step_s / raw.total_s
        } else {
            1.0
        };
        for part in [
            &mut model.compute_s,
            &mut model.copy_s,
            &mut model.collective_s,
            &mut model.host_s,
            &mut model.network_s,
            &mut model.network_bytes,
        ] {
            *part *= scale;
        }
        model
    }

    /// Bytes per second of a rank while a collective runs: the slowest port of the gang sets it.
    fn bytes_per_s(&self, intensity: f64, wiring: &Wiring) -> f64 {
        let ranks = &self.gang.ranks;
        let each = ranks.iter().filter_map(|rank| {
            let port = rank.port?;
            let sharing = ranks.iter().filter(|other| other.port == Some(port)).count();
            Some(intensity * wiring.rate[port] / sharing as f64)
        });
        let slowest = each.fold(f64::INFINITY, f64::min);
        if slowest.is_finite() { slowest } else { 0.0 }
    }

    /// Whether its ranks exchange anything over the network.
    pub(super) fn has_network(&self) -> bool {
        self.network_s > 0.0
    }

    /// A step under some circumstances; infinite if a rank cannot reach the others.
    pub(super) fn solve(
        &self,
        conditions: Conditions<'_>,
        wiring: &Wiring,
        scratch: &mut Scratch,
    ) -> StepTimes {
        let network_bytes = self.network_bytes * conditions.work;
        let mut step = StepTimes { network_bytes, ..StepTimes::default() };
        let local_s = self.solve_nodes(conditions, scratch, &mut step.ranks);
        let total: f64 = step.ranks.iter().map(|rank| rank.compute_s).sum();
        let mean_compute_s = total / step.ranks.len().max(1) as f64;
        let skew = conditions.impairment.jobs[self.gang.job].skew;
        let local_s = local_s + skew * mean_compute_s;
        if self.has_network() {
            step.network_s = self.solve_network(conditions, wiring, scratch, &mut step.ranks);
        }
        let hidden_s = (self.overlap * step.network_s).min(HIDING_SHARE * mean_compute_s);
        step.exposed_s = if step.network_s.is_finite() { step.network_s - hidden_s } else { 0.0 };
        step.total_s = local_s + step.network_s - hidden_s;
        step
    }

    /// Everything before the network: the time of the slowest tensor group.
    fn solve_nodes(
        &self,
        conditions: Conditions<'_>,
        scratch: &mut Scratch,
        times: &mut Vec<RankTimes>,
    ) -> f64 {
        let Conditions { clocks, impairment, work, slow_hosts } = conditions;
        let job = &impairment.jobs[self.gang.job];
        scratch.group_s.clear();
        scratch.group_s.resize(self.gang.groups, 0.0);
        scratch.group_slow.clear();
        scratch.group_slow.resize(self.gang.groups, 1.0);
        for (rank, speed) in self.gang.ranks.iter().zip(&self.speeds) {
            let gpu = &impairment.gpus[rank.gpu];
            let stage = job.stage.filter(|(stage, _)| *stage == rank.stage);
            let stage_work = self.stage_work[rank.stage] * (1.0 + stage.map_or(0.0, |(_, u)| u));
            let clock = clocks[rank.gpu];
            let slow = (1.0 - self.memory_share) / (clock * speed) + self.memory_share / speed;
            let host_s = self.host_s * (1.0 + slow_hosts[rank.node]);
            let own = RankTimes {
                compute_s: self.compute_s * work * stage_work * slow,
                copy_s: self.copy_s * gpu.copy,
                lead_s: 0.5 * host_s,
                gap_s: 0.5 * host_s + gpu.launch * self.step_s,
                ..RankTimes::default()
            };
            let own_s = own.own_s() + self.spread * own.compute_s;
            let slowest_s = &mut scratch.group_s[rank.group];
            *slowest_s = slowest_s.max(own_s);
            let over_pcie = if self.has_nvlink[rank.node] { 1.0 } else { gpu.copy };
            let group_slow = &mut scratch.group_slow[rank.group];
            *group_slow = group_slow.max(gpu.collective * over_pcie);
            times.push(own);
        }
        let mut local_s = 0.0_f64;
        for (rank, time) in self.gang.ranks.iter().zip(times) {
            let group_s = scratch.group_s[rank.group];
            let own_s = time.own_s() * (1.0 + 1e-12);
            time.group_wait_s = (group_s - self.spread * time.compute_s - own_s).max(0.0);
            time.collective_s = self.collective_s * scratch.group_slow[rank.group];
            local_s = local_s.max(group_s + time.collective_s);
        }
        local_s
    }

    /// The network's part: the time of the slowest port or PCIe link.
    fn solve_network(
        &self,
        conditions: Conditions<'_>,
        wiring: &Wiring,
        scratch: &mut Scratch,
        times: &mut [RankTimes],
    ) -> f64 {
        let impairment = conditions.impairment;
        let nominal_s = self.network_s * conditions.work;
        let bytes = self.network_bytes * conditions.work;
        scratch.loads.clear();
        scratch.loads.resize(wiring.rate.len(), 0.0);
        for (rank, time) in self.gang.ranks.iter().zip(times.iter_mut()) {
            time.route = find_route(rank, impairment, wiring);
            match time.route {
                Some(port) => scratch.loads[port] += bytes,
                None => return f64::INFINITY,
            }
        }
        let mut network_s = nominal_s;
        for ((rank, time), pcie) in self.gang.ranks.iter().zip(times.iter()).zip(&self.pcie) {
            let Some(port) = time.route else { continue };
            let state = &impairment.ports[port];
            let rate = wiring.rate[port] * (1.0 - state.lost_rate);
            let capacity = wiring.capacity[port].min(0.95 * rate);
            let port_s = (scratch.loads[port] / capacity).max(nominal_s) * state.slowdown();
            let pcie_s = bytes / pcie * impairment.gpus[rank.gpu].copy;
            network_s = network_s.max(port_s).max(pcie_s);
        }
        network_s
    }
}

/// The port that carries a rank's traffic: its own, or the next one of the node that is up.
fn find_route(rank: &Rank, impairment: &Impairment, wiring: &Wiring) -> Option<usize> {
    let own = rank.port?;
    if !impairment.ports[own].is_down {
        return Some(own);
    }
    let rails = &wiring.rails[rank.node];
    let place = rails.iter().position(|port| *port == own)?;
    let others = (1..rails.len()).map(|step| rails[(place + step) % rails.len()]);
    others.into_iter().find(|port| !impairment.ports[*port].is_down)
}
