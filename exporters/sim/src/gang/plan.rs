//! How a step will go: who needs how long for what, and for whom the others wait.

use super::{Gang, Turn};
use crate::{
    fault::Effect,
    gpu::{Mood, Phase, TRADED},
    noise::Noise,
};

/// How far the times of a slow loader's batches differ.
const BATCH_SPREAD: f64 = 0.08;

/// Degrees by which the coolant of a board is too warm whose cooling failed.
const HOT_KELVIN: f64 = 38.0;

/// Packets that a bad PCIe link sends again in a second of copying.
const REPLAYS: f64 = 90.0;

/// One rank's share of a step, in seconds, and its mood.
#[derive(Clone, Copy, Debug)]
struct Share {
    gap: f64,
    copy: f64,
    compute: f64,
    mood: Mood,
}

impl Gang {
    /// Decides how the current step will go.
    pub(super) fn plan(&mut self) {
        self.wires = self.wires_at(self.began);
        if self.plan_beside() {
            return;
        }
        let noise = self.noise.child(self.step);
        let steps = self.pace.waveform.factor(noise.child(0), self.pace.step_spread, self.step);
        let mut pace = self.pace.compute_s * steps.max(0.1);
        for fault in self.afflictions.iter().filter(|fault| fault.at(self.began)) {
            if let Effect::LongTail { factor } = fault.effect {
                pace *= 1.0 + (factor - 1.0) * noise.child(3).unit().powi(3);
            }
        }
        let mut shares = Vec::with_capacity(self.turns.len());
        let mut last: f64 = 0.0;
        for member in 0..self.nodes.len() {
            let effects: Vec<Effect> = self.effects(member, self.began).collect();
            for gpu in 0..self.gpus {
                let share = self.share(&effects, member, gpu, pace, noise);
                last = last.max(share.gap + share.copy + share.compute);
                shares.push(share);
            }
        }
        self.gathered = last + self.pace.bubble_s;
        self.route();
        self.done = self.gathered + self.moving.iter().fold(0.0_f64, |a, b| a.max(*b));
        for (rank, share) in shares.into_iter().enumerate() {
            let alone = share.gap + share.copy + share.compute;
            let rail = rank % self.gpus * self.rails / self.gpus;
            let moving = self.moving[rail];
            self.turns[rank] = Turn {
                spans: [
                    (Phase::Gap, share.gap),
                    (Phase::Copy, share.copy),
                    (Phase::Compute, share.compute),
                    (Phase::Wait, (self.gathered - alone).max(0.0)),
                    (Phase::Communicate, moving),
                    (Phase::Wait, (self.done - self.gathered - moving).max(0.0)),
                ],
                mood: Mood { network: (moving / self.pace.communicate_s).max(1.0), ..share.mood },
            };
        }
    }

    /// Lays the flows of this step, and works out how long each rail moves them.
    fn route(&mut self) {
        let start = self.began + self.gathered;
        let until = start + self.pace.communicate_s;
        let down = self.afflictions.iter().filter(|fault| fault.within(start, until));
        let down = down.filter_map(|fault| match fault.effect {
            Effect::PortDown { rail } => {
                let member = (0..self.nodes.len()).find(|member| self.is_struck(fault, *member))?;
                Some((member, rail))
            }
            _ => None,
        });
        let down = down.collect();
        self.routes.avoid(down);
        for rail in 0..self.rails {
            let worst = self.routes.worst(rail, |member| {
                self.wires.as_ref().map_or(1.0, |wires| wires[member * self.rails + rail].slow)
            });
            // Who is alone still spends that time, over NVLink.
            let worst = if self.nodes.len() < 2 { 1.0 } else { worst };
            self.moving[rail] = self.pace.communicate_s * worst;
        }
    }

    /// What one rank has to do in a step that usually takes `pace` to compute.
    fn share(
        &self,
        effects: &[Effect],
        member: usize,
        gpu: usize,
        pace: f64,
        noise: Noise,
    ) -> Share {
        let rank = (member * self.gpus + gpu) as u64;
        let own = noise.child(2).child(rank);
        let usual = self.pace.waveform.factor(own, self.pace.rank_spread, self.step + 7 * rank);
        let compute = pace * usual.max(0.1) / self.speeds[member];
        let mut share = Share { gap: 0.0, copy: self.pace.copy_s, compute, mood: Mood::USUAL };
        for effect in effects {
            match *effect {
                // A loader that is fast enough has the next batch ready before it is wanted.
                Effect::DataStarved { batch_s, .. } => {
                    let batch = batch_s * noise.child(1).child(member as u64).factor(BATCH_SPREAD);
                    share.gap = (batch - self.pace.step_s()).max(0.0);
                }
                Effect::StorageSlow { batch_s } => {
                    let together = noise.child(1).factor(BATCH_SPREAD);
                    let alone = noise.child(4).child(member as u64).factor(BATCH_SPREAD / 8.0);
                    share.gap = (batch_s * together * alone - self.pace.step_s()).max(0.0);
                }
                effect => share.suffer(effect, gpu),
            }
            match *effect {
                Effect::StageImbalance { stage, factor }
                    if member * self.pace.stages / self.nodes.len() == stage =>
                {
                    share.compute *= factor;
                }
                Effect::Skew { factor } => {
                    let heaviest = noise.child(5).below(self.turns.len() as u64);
                    share.compute *= if heaviest == rank { factor } else { 1.0 };
                }
                _ => {}
            }
        }
        share
    }
}

impl Share {
    /// What an effect on a node does to its GPU number `here`.
    fn suffer(&mut self, effect: Effect, here: usize) {
        match effect {
            Effect::SlowGpu { gpu, clock } if gpu == here => self.run_at(clock),
            Effect::Throttled { gpu, clock } if gpu == here => {
                self.run_at(clock);
                self.mood.warm_kelvin = HOT_KELVIN;
            }
            Effect::PowerCap { clock } => {
                self.run_at(clock);
                self.mood.capped = true;
            }
            Effect::LaunchBound { duty, gpu } if gpu.is_none_or(|gpu| gpu == here) => {
                self.compute /= duty;
                self.mood.duty *= duty;
            }
            Effect::PcieSlow { gpu, factor, replays } if gpu == here => {
                self.copy *= factor;
                self.mood.copy *= factor;
                self.mood.replays = if replays { REPLAYS } else { 0.0 };
            }
            // Every GPU of the box trades with the one that lost its links, and is as slow.
            Effect::NvlinkSlow { gpu, factor } => {
                self.compute *= 1.0 + TRADED * (factor - 1.0);
                self.mood.nvlink *= factor;
                self.mood.nvlink_lost = if gpu == here { factor } else { 1.0 };
            }
            _ => {}
        }
    }

    fn run_at(&mut self, clock: f64) {
        self.compute /= clock;
        self.mood.clock *= clock;
    }
}
