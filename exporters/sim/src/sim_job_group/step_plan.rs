//! Step plan: how long each rank needs for each part of a step, and which rank the others wait for.

use super::{RankStep, SimJobGroup};
use crate::{
    gpu_activity::{GpuCondition, GpuPhase, TRADED},
    noise_key::NoiseKey,
    sim_fault::FaultEffect,
};

/// Relative spread of a slow loader's batch times.
const BATCH_SPREAD: f64 = 0.08;

/// Degrees by which the coolant is too warm after a cooling failure.
const HOT_KELVIN: f64 = 38.0;

/// PCIe replays per second of copying on a bad PCIe link.
const REPLAYS: f64 = 90.0;

/// One rank's share of a step, in seconds, and its GPU condition.
#[derive(Clone, Copy, Debug)]
struct RankShare {
    gap: f64,
    copy: f64,
    compute: f64,
    condition: GpuCondition,
}

impl SimJobGroup {
    /// Plans the current step.
    pub(super) fn plan_step(&mut self) {
        self.link_conditions = self.link_conditions_at(self.step_start);
        if self.plan_outside_steps() {
            return;
        }
        let noise = self.noise.child_key(self.step);
        let step_factor =
            self.pace.waveform.random_factor(noise.child_key(0), self.pace.step_spread, self.step);
        let mut compute_s = self.pace.compute_s * step_factor.max(0.1);
        for fault in self.current_faults.iter().filter(|fault| fault.is_active_at(self.step_start))
        {
            if let FaultEffect::LongTail { factor } = fault.effect {
                compute_s *= 1.0 + (factor - 1.0) * noise.child_key(3).random_unit().powi(3);
            }
        }
        let mut shares = Vec::with_capacity(self.rank_steps.len());
        let mut last: f64 = 0.0;
        for member in 0..self.nodes.len() {
            let effects: Vec<FaultEffect> = self.active_effects(member, self.step_start).collect();
            for gpu in 0..self.gpus {
                let share = self.rank_share(&effects, member, gpu, compute_s, noise);
                last = last.max(share.gap + share.copy + share.compute);
                shares.push(share);
            }
        }
        self.arrival_s = last + self.pace.bubble_s;
        self.route_flows();
        self.step_s = self.arrival_s
            + self.rail_s.iter().fold(0.0_f64, |longest, rail_s| longest.max(*rail_s));
        for (rank, share) in shares.into_iter().enumerate() {
            let own_work = share.gap + share.copy + share.compute;
            let rail = rank % self.gpus * self.rails / self.gpus;
            let moving_s = self.rail_s[rail];
            self.rank_steps[rank] = RankStep {
                spans: [
                    (GpuPhase::Gap, share.gap),
                    (GpuPhase::Copy, share.copy),
                    (GpuPhase::Compute, share.compute),
                    (GpuPhase::Wait, (self.arrival_s - own_work).max(0.0)),
                    (GpuPhase::Communicate, moving_s),
                    (GpuPhase::Wait, (self.step_s - self.arrival_s - moving_s).max(0.0)),
                ],
                condition: GpuCondition {
                    network: (moving_s / self.pace.communicate_s).max(1.0),
                    ..share.condition
                },
            };
        }
    }

    /// Routes the flows of this step, and computes how long each rail needs.
    fn route_flows(&mut self) {
        let start = self.step_start + self.arrival_s;
        let until = start + self.pace.communicate_s;
        let down_ports =
            self.current_faults.iter().filter(|fault| fault.is_active_between(start, until));
        let down_ports = down_ports.filter_map(|fault| match fault.effect {
            FaultEffect::PortDown { rail } => {
                let member =
                    (0..self.nodes.len()).find(|member| self.is_affected(fault, *member))?;
                Some((member, rail))
            }
            _ => None,
        });
        let down_ports = down_ports.collect();
        self.routes.avoid_ports(down_ports);
        for rail in 0..self.rails {
            let slowdown = self.routes.worst_load(rail, |member| {
                self.link_conditions
                    .as_ref()
                    .map_or(1.0, |conditions| conditions[member * self.rails + rail].slow)
            });
            // A single-node job still spends that time, over NVLink.
            let slowdown = if self.nodes.len() < 2 { 1.0 } else { slowdown };
            self.rail_s[rail] = self.pace.communicate_s * slowdown;
        }
    }

    /// The work of one rank in a step whose normal compute time is `compute_s`.
    fn rank_share(
        &self,
        effects: &[FaultEffect],
        member: usize,
        gpu: usize,
        compute_s: f64,
        noise: NoiseKey,
    ) -> RankShare {
        let rank = (member * self.gpus + gpu) as u64;
        let rank_noise = noise.child_key(2).child_key(rank);
        let variation = self.pace.waveform.random_factor(
            rank_noise,
            self.pace.rank_spread,
            self.step + 7 * rank,
        );
        let compute = compute_s * variation.max(0.1) / self.speeds[member];
        let mut share =
            RankShare { gap: 0.0, copy: self.pace.copy_s, compute, condition: GpuCondition::USUAL };
        for effect in effects {
            match *effect {
                // A loader that is fast enough has the next batch ready in time.
                FaultEffect::DataStarved { batch_s, .. } => {
                    let batch = batch_s
                        * noise.child_key(1).child_key(member as u64).random_factor(BATCH_SPREAD);
                    share.gap = (batch - self.pace.step_s()).max(0.0);
                }
                FaultEffect::StorageSlow { batch_s } => {
                    let job_factor = noise.child_key(1).random_factor(BATCH_SPREAD);
                    let member_factor = noise
                        .child_key(4)
                        .child_key(member as u64)
                        .random_factor(BATCH_SPREAD / 8.0);
                    share.gap =
                        (batch_s * job_factor * member_factor - self.pace.step_s()).max(0.0);
                }
                effect => share.apply_effect(effect, gpu),
            }
            match *effect {
                FaultEffect::StageImbalance { stage, factor }
                    if member * self.pace.stages / self.nodes.len() == stage =>
                {
                    share.compute *= factor;
                }
                FaultEffect::Skew { factor } => {
                    let heaviest_rank =
                        noise.child_key(5).random_below(self.rank_steps.len() as u64);
                    share.compute *= if heaviest_rank == rank { factor } else { 1.0 };
                }
                _ => {}
            }
        }
        share
    }
}

impl RankShare {
    /// Applies an effect on a node to its GPU number `own_gpu`.
    fn apply_effect(&mut self, effect: FaultEffect, own_gpu: usize) {
        match effect {
            FaultEffect::SlowGpu { gpu, clock } if gpu == own_gpu => self.scale_clock(clock),
            FaultEffect::Throttled { gpu, clock } if gpu == own_gpu => {
                self.scale_clock(clock);
                self.condition.warm_kelvin = HOT_KELVIN;
            }
            FaultEffect::PowerCap { clock } => {
                self.scale_clock(clock);
                self.condition.capped = true;
            }
            FaultEffect::LaunchBound { duty, gpu } if gpu.is_none_or(|gpu| gpu == own_gpu) => {
                self.compute /= duty;
                self.condition.duty *= duty;
            }
            FaultEffect::PcieSlow { gpu, factor, replays } if gpu == own_gpu => {
                self.copy *= factor;
                self.condition.copy *= factor;
                self.condition.replays = if replays { REPLAYS } else { 0.0 };
            }
            // Every GPU of the node exchanges data with the one that lost its NVLinks, and is as slow.
            FaultEffect::NvlinkSlow { gpu, factor } => {
                self.compute *= 1.0 + TRADED * (factor - 1.0);
                self.condition.nvlink *= factor;
                self.condition.nvlink_lost = if gpu == own_gpu { factor } else { 1.0 };
            }
            _ => {}
        }
    }

    fn scale_clock(&mut self, clock: f64) {
        self.compute /= clock;
        self.condition.clock *= clock;
    }
}
