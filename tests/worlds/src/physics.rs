//! The physics of a cluster as coupled rate equations: a plan and its faults give the state of every node.
//!
//! Nothing here follows single steps of a job. A job has a pace, the fixed point of what its slowest rank computes,
//! what its host prepares, what PCIe, NVLink and the network carry, and what its data loaders deliver; everybody else
//! waits. Paces hold for half a second on a grid that does not depend on how often anybody looks; in between,
//! counters are exact integrals over the parts of the step, however short the interval.

mod activity;
mod board;
mod gang;
mod gang_run;
mod gpus;
mod heat;
mod hosts;
mod impairment;
mod loader;
mod noise;
mod ports;
mod refresh;
mod setup;
mod sizing;
#[cfg(test)]
mod tests;
mod wiring;

use self::{
    activity::JobHabits,
    gang::Scratch,
    gang_run::{GangRun, Mode},
    gpus::GpuRun,
    hosts::HostRun,
    impairment::{Impairment, SizedFault},
    ports::PortBank,
    wiring::Wiring,
};
use crate::{
    cluster_plan::ClusterPlan, fault_plan::FaultPlan, node_state::NodeState, random::RandomKey,
};

/// Seconds between two refreshes of all rates.
const GRID_S: f64 = 0.5;

/// A cluster that runs.
#[derive(Clone, Debug)]
pub struct RatePhysics {
    plan: ClusterPlan,
    wiring: Wiring,
    habits: Vec<JobHabits>,
    faults: Vec<SizedFault>,
    gangs: Vec<GangRun>,
    gpus: Vec<GpuRun>,
    hosts: Vec<HostRun>,
    ports: PortBank,
    storage_ports: Vec<Option<usize>>,
    nodes: Vec<NodeState>,
    impairment: Impairment,
    soundness: Impairment,
    clocks: Vec<f64>,
    slow_hosts: Vec<f64>,
    scratch: Scratch,
    /// Power limit of all GPUs as a share of the planned one.
    power_share: f64,
    duration_s: f64,
    now_s: f64,
    /// Number of the next refresh on the grid.
    next_refresh: i64,
    last_refresh_s: f64,
}

impl RatePhysics {
    /// A cluster at the start of its run, with every fault as severe as its loss says; an error says why the cluster
    /// cannot have a fault.
    pub fn new(plan: &ClusterPlan, faults: &[FaultPlan], key: RandomKey) -> Result<Self, String> {
        setup::new_physics(plan, faults, key)
    }

    /// Sets the duration of the run, over which slow changes of work go on; an hour otherwise.
    #[must_use]
    pub fn with_duration_s(mut self, duration_s: f64) -> Self {
        self.duration_s = duration_s;
        self
    }

    /// Goes on until an instant, in seconds since the start of the run. It never goes back.
    pub fn advance_to(&mut self, t_s: f64) {
        while self.now_s < t_s {
            let refresh_s = self.next_refresh as f64 * GRID_S;
            if self.now_s >= refresh_s {
                self.refresh(self.now_s, GRID_S);
                self.next_refresh += 1;
                continue;
            }
            let until_s = refresh_s.min(t_s);
            self.integrate(until_s - self.now_s);
            self.now_s = until_s;
        }
    }

    /// The instant that was reached, in seconds since the start of the run.
    pub fn now_s(&self) -> f64 {
        self.now_s
    }

    /// The state of a node at the instant that was reached.
    pub fn node_state(&self, node: usize) -> &NodeState {
        &self.nodes[node]
    }

    /// Steps per second of a job at the instant that was reached: 0 while it pauses or does not run. Of servers: the
    /// share of their capacity that requests use, per step.
    pub fn job_pace(&self, job: usize) -> f64 {
        let gangs = self.wiring.gangs_of(job).map(|gang| self.gangs[gang].pace);
        gangs.fold(0.0, f64::max)
    }

    /// Whether a job trains at the instant that was reached: it neither starts, pauses, evaluates, hangs nor idles.
    pub fn is_job_training(&self, job: usize) -> bool {
        self.wiring.gangs_of(job).any(|gang| self.gangs[gang].mode == Mode::Training)
    }

    /// When a fault first limited its job or could first be seen, if that has happened: after its onset, when queues
    /// are empty, chips are hot or a pause is over. Negative values mean before the run.
    pub fn shown_from_s(&self, fault: usize) -> Option<f64> {
        self.faults.get(fault)?.shown_s
    }

    /// By how much more than 1 the time of the broken part is multiplied at a fault's full size.
    pub fn severity(&self, fault: usize) -> Option<f64> {
        Some(self.faults.get(fault)?.severity)
    }

    /// Adds what happens in some seconds without a refresh.
    fn integrate(&mut self, seconds: f64) {
        for (node, state) in self.nodes.iter_mut().enumerate() {
            let first = self.wiring.first_gpu[node];
            for (gpu, state) in state.gpus.iter_mut().enumerate() {
                let run = &self.gpus[first + gpu];
                let place = run.activity.gang.map_or((0.0, 0.0), |gang| {
                    let gang = &self.gangs[gang];
                    (gang.place, gang.place + gang.cycles_per_s * seconds)
                });
                let bytes = run.integrate(state, place, seconds);
                run.show_application_xid(state, self.now_s);
                if let Some(port) = run.route {
                    self.ports.job_bytes[port] += bytes;
                }
            }
            self.hosts[node].integrate(&mut state.host, seconds);
        }
        for gang in &mut self.gangs {
            gang.place += gang.cycles_per_s * seconds;
        }
        self.ports.integrate(seconds, &self.wiring, &mut self.nodes);
    }
}
