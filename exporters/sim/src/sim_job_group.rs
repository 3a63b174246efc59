//! Simulated job group: a job whose ranks step together. Each step is load, compute, communicate; the slowest rank sets
//! the pace, and the others busy-wait in the collective until it arrives.

use std::ops::Range;

use self::member_mode::MemberMode;
use crate::{
    gpu_activity::{GpuCondition, GpuMeters, GpuPhase, PhaseActivity},
    job_workload::JobPace,
    noise_key::NoiseKey,
    ring_routes::{RATE_BYTES_PER_S, RingRoutes},
    sim_fault::{FaultEffect, ScheduledFault},
    sim_host::HostUse,
    sim_machine::{GpuFailure, SimGpu, SimMachine},
    sim_port::LinkCondition,
};

mod link_conditions;
mod member_mode;
mod step_plan;

/// Share of the line rate that an undisturbed collective reaches.
const FABRIC_EFFICIENCY: f64 = 0.85;

/// Faults within this many seconds are considered; those that ended longer ago are dropped. No step is longer.
const SOON_S: f64 = 600.0;

/// The spans of a step, in order.
const SPANS: usize = 6;

/// One rank's part of a step: its phases with their duration in seconds.
#[derive(Clone, Copy, Debug)]
struct RankStep {
    spans: [(GpuPhase, f64); SPANS],
    condition: GpuCondition,
}

impl RankStep {
    /// A single phase for the whole step.
    fn with_phase(phase: GpuPhase, seconds: f64) -> Self {
        let mut spans = [(phase, 0.0); SPANS];
        spans[0].1 = seconds;
        Self { spans, condition: GpuCondition::USUAL }
    }
}

/// A job whose ranks step together.
#[derive(Debug)]
pub(crate) struct SimJobGroup {
    noise: NoiseKey,
    nodes: Range<usize>,
    /// GPUs and rails of one node.
    gpus: usize,
    rails: usize,
    /// Compute speed of each node's GPUs relative to the fastest of them: a job's times are those on its own GPUs.
    speeds: Vec<f64>,
    pub(crate) pace: JobPace,
    activities: [PhaseActivity; GpuPhase::ALL.len()],
    /// Faults that are active now or soon.
    current_faults: Vec<ScheduledFault>,
    /// Faults that become active later, the last first.
    later_faults: Vec<ScheduledFault>,
    routes: RingRoutes,
    /// Link condition of each port in the current step, if any is abnormal.
    link_conditions: Option<Vec<LinkCondition>>,
    usual_link: LinkCondition,
    /// The number of the current step, and when it began.
    step: u64,
    step_start: f64,
    /// Each rank's part of the current step.
    rank_steps: Vec<RankStep>,
    /// Seconds from the beginning of the step until the last rank arrives, until each rail has moved its share, and
    /// until all have.
    arrival_s: f64,
    rail_s: Vec<f64>,
    step_s: f64,
}

impl SimJobGroup {
    pub(crate) fn new(
        noise: NoiseKey,
        nodes: Range<usize>,
        machines: &[SimMachine],
        pace: JobPace,
        mut faults: Vec<ScheduledFault>,
    ) -> Self {
        faults.sort_by(|first, second| second.from.total_cmp(&first.from));
        let machines = &machines[nodes.clone()];
        let gpus = machines.first().map_or(0, |machine| machine.gpus.len());
        let rails = machines.first().map_or(0, |machine| machine.ports.len());
        let speed = |machine: &SimMachine| machine.gpus[0].variation.model.speed;
        let fastest = machines.iter().map(speed).fold(0.0, f64::max);
        let mut group = Self {
            noise: noise.child_key(4),
            gpus,
            rails,
            speeds: machines.iter().map(|machine| speed(machine) / fastest).collect(),
            activities: GpuPhase::ALL.map(|phase| phase.phase_activity(&pace.load_profile)),
            pace,
            current_faults: Vec::new(),
            later_faults: faults,
            routes: RingRoutes::new(nodes.len(), rails, gpus),
            link_conditions: None,
            usual_link: LinkCondition::new_healthy(),
            rank_steps: vec![RankStep::with_phase(GpuPhase::Held, 0.0); nodes.len() * gpus],
            rail_s: vec![0.0; rails],
            nodes,
            step: 0,
            step_start: 0.0,
            arrival_s: 0.0,
            step_s: 0.0,
        };
        group.activate_faults(SOON_S);
        group.plan_step();
        group
    }

    /// Activates faults that begin before an instant, and drops those that are over: a run of days has hundreds.
    fn activate_faults(&mut self, until: f64) {
        let expired = self.step_start - SOON_S;
        self.current_faults.retain(|fault| fault.until >= expired);
        while self.later_faults.last().is_some_and(|fault| fault.from < until) {
            self.current_faults.extend(self.later_faults.pop());
        }
    }

    /// The nodes of the job group.
    pub(crate) fn node_range(&self) -> Range<usize> {
        self.nodes.clone()
    }

    /// Advances time to `now`. `machines` are those of the whole fleet.
    pub(crate) fn advance_to(&mut self, now: f64, machines: &mut [SimMachine]) {
        let machines = &mut machines[self.nodes.clone()];
        self.activate_faults(now + SOON_S);
        while self.step_start + self.step_s <= now {
            self.update_meters(self.step_s, machines, true);
            let before = self.step_start;
            self.step_start += self.step_s;
            self.reset_counters(before, machines);
            self.step += 1;
            self.plan_step();
        }
        self.update_meters(now - self.step_start, machines, false);
        for (member, machine) in machines.iter_mut().enumerate() {
            machine.working =
                !matches!(self.mode_at(now, member), MemberMode::Gone | MemberMode::Diagnose);
            machine.maintained =
                self.active_effects(member, now).any(|effect| effect == FaultEffect::Maintain);
            machine.host.advance_to(now, |time| self.host_use(member, time));
        }
    }

    /// Schedules the failures of components, and of the peers that they talk to.
    pub(crate) fn schedule_failures(&self, machines: &mut [SimMachine]) {
        let machines = &mut machines[self.nodes.clone()];
        for fault in self.current_faults.iter().chain(&self.later_faults) {
            for member in (0..machines.len()).filter(|member| self.is_affected(fault, *member)) {
                match fault.effect {
                    FaultEffect::PortDown { rail } => {
                        machines[member].ports[rail].outages.push((fault.from, fault.until));
                        let previous = (member + machines.len() - 1) % machines.len();
                        if previous != member {
                            machines[previous].ports[rail].peer_outages.push(fault.from);
                        }
                    }
                    FaultEffect::RateLow { rail, factor } => {
                        let fallback = (fault.from, fault.until, factor);
                        machines[member].ports[rail].reduced_rates.push(fallback);
                    }
                    FaultEffect::GpuLost { gpu, ecc } => {
                        let failure = GpuFailure { from: fault.from, until: fault.until, ecc };
                        machines[member].gpus[gpu].failures.push(failure);
                    }
                    _ => {}
                }
            }
        }
    }

    fn is_affected(&self, fault: &ScheduledFault, member: usize) -> bool {
        fault.affects_node(self.nodes.start + member)
    }

    /// The effects on a member at an instant.
    fn active_effects(&self, member: usize, time: f64) -> impl Iterator<Item = FaultEffect> {
        let active = self.current_faults.iter().filter(move |fault| fault.is_active_at(time));
        let affecting = active.filter(move |fault| self.is_affected(fault, member));
        affecting.map(move |fault| match fault.effect {
            // A GPU that exchanges data with the one that lost its NVLinks is slow, and still has all of its own.
            FaultEffect::NvlinkSlow { factor, .. } if fault.node != self.nodes.start + member => {
                FaultEffect::NvlinkSlow { gpu: usize::MAX, factor }
            }
            effect => effect,
        })
    }

    /// The host use of a member.
    pub(crate) fn host_use(&self, member: usize, time: f64) -> HostUse {
        let mode = self.mode_at(time, member);
        if mode != MemberMode::Step {
            return self.host_use_in_mode(mode, member, time);
        }
        let step_s = self.pace.step_s();
        let batch = self.pace.batch_bytes * self.gpus as f64;
        let starving_use = |batch_s: f64, by_cpu| HostUse::Starving {
            bytes: batch / batch_s,
            share: (1.0 - step_s / batch_s).max(0.0),
            by_cpu,
        };
        let mut used = HostUse::Feeding { bytes: batch / step_s, spins: self.pace.spins };
        for effect in self.active_effects(member, time) {
            used = match effect {
                FaultEffect::DataStarved { batch_s, by_cpu } => starving_use(batch_s, by_cpu),
                FaultEffect::StorageSlow { batch_s } => starving_use(batch_s, false),
                FaultEffect::LaunchBound { .. } => HostUse::Launching(batch / step_s),
                _ => continue,
            };
        }
        used
    }

    /// Advances all counters to `elapsed` seconds into the step, and makes that the new base if the step is over.
    fn update_meters(&self, elapsed: f64, machines: &mut [SimMachine], step_over: bool) {
        let load = f64::from(self.routes.usual_load());
        let share_bytes = self.pace.communicate_s * RATE_BYTES_PER_S * FABRIC_EFFICIENCY / load;
        for (member, machine) in machines.iter_mut().enumerate() {
            for (position, gpu) in machine.gpus.iter_mut().enumerate() {
                self.run(&self.rank_steps[member * self.gpus + position], gpu, elapsed, step_over);
            }
            for (rail, port) in machine.ports.iter_mut().enumerate() {
                let moving_s = self.rail_s[rail];
                let share_moved = if moving_s > 0.0 {
                    ((elapsed - self.arrival_s) / moving_s).clamp(0.0, 1.0)
                } else {
                    0.0
                };
                let condition = self
                    .link_conditions
                    .as_ref()
                    .map_or(&self.usual_link, |conditions| &conditions[member * self.rails + rail]);
                port.carry_load(
                    self.routes.port_load(member, rail),
                    share_bytes * share_moved,
                    condition,
                    elapsed,
                    step_over,
                );
            }
        }
    }

    fn run(&self, rank_step: &RankStep, gpu: &mut SimGpu, elapsed: f64, step_over: bool) {
        let mut meters = gpu.base;
        let mut remaining = elapsed;
        let mut variation = gpu.variation;
        variation.coolant_celsius += rank_step.condition.warm_kelvin;
        for (phase, span) in rank_step.spans {
            if remaining > 0.0 && span > 0.0 {
                let mut activity = self.activities[phase as usize];
                if rank_step.condition != GpuCondition::USUAL {
                    activity = activity.under_condition(phase, &rank_step.condition);
                }
                meters.run(&activity, &variation, span.min(remaining));
                gpu.phase = phase;
            }
            remaining -= span;
        }
        gpu.condition = rank_step.condition;
        gpu.shown = meters;
        if step_over {
            gpu.base = meters;
        }
    }

    /// Resets GPU counters where a driver was reloaded in the step that is over.
    fn reset_counters(&self, before: f64, machines: &mut [SimMachine]) {
        for fault in &self.current_faults {
            let in_step = before < fault.from && fault.from <= self.step_start;
            if !matches!(fault.effect, FaultEffect::CounterReset | FaultEffect::Reboot) || !in_step
            {
                continue;
            }
            for (member, machine) in machines.iter_mut().enumerate() {
                for gpu in machine.gpus.iter_mut().filter(|_| self.is_affected(fault, member)) {
                    let (watts, celsius) = (gpu.base.power_watts, gpu.base.temperature_celsius);
                    let zero = GpuMeters::default();
                    gpu.base =
                        GpuMeters { power_watts: watts, temperature_celsius: celsius, ..zero };
                }
            }
        }
    }
}
