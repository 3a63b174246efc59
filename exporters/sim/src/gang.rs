//! A gang: a job whose ranks step together. Each step is load, compute, communicate; the slowest rank sets the pace,
//! and the others spin in the collective until it comes.

use std::ops::Range;

use crate::{
    GPUS_PER_NODE,
    fabric::{RATE_BYTES_PER_S, Routes},
    fault::{Affliction, Effect},
    gpu::{Activity, Drive, Phase},
    host::Use,
    machine::{Gpu, Machine},
    noise::Noise,
};

/// Share of the line rate that a collective reaches when nothing is in its way.
const FABRIC_EFFICIENCY: f64 = 0.85;
/// Time in which a batch is copied to the GPUs.
const COPY_S: f64 = 0.012;
/// How far steps of a gang, and ranks within a step, differ from the usual: both as a share.
const STEP_SPREAD: f64 = 0.03;
const RANK_SPREAD: f64 = 0.015;
/// How far the times of a slow loader's batches differ.
const BATCH_SPREAD: f64 = 0.08;

/// The phases of a step, in order.
const PHASES: [Phase; 5] =
    [Phase::Gap, Phase::Copy, Phase::Compute, Phase::Wait, Phase::Communicate];

/// How a job works, drawn once.
#[derive(Clone, Copy, Debug)]
struct Pace {
    compute_s: f64,
    communicate_s: f64,
    /// Input of one GPU for one step.
    batch_bytes: f64,
    drive: Drive,
}

/// One rank's part of a step, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    gap: f64,
    compute: f64,
}

/// A job whose ranks step together.
#[derive(Debug)]
pub(crate) struct Gang {
    noise: Noise,
    nodes: Range<usize>,
    pace: Pace,
    activities: [Activity; PHASES.len()],
    afflictions: Vec<Affliction>,
    routes: Routes,
    /// The number of the current step, and when it began.
    step: u64,
    began: f64,
    /// Each rank's part of the current step.
    turns: Vec<Turn>,
    /// Seconds from the beginning of the step until the last rank arrives, and until the gradients have moved.
    gathered: f64,
    done: f64,
}

impl Gang {
    pub(crate) fn new(noise: Noise, nodes: Range<usize>, afflictions: Vec<Affliction>) -> Self {
        let batch_bytes = noise.child(0).between(14e6, 24e6);
        let communicate_s = noise.child(1).between(0.055, 0.075);
        let pace = Pace {
            compute_s: noise.child(2).between(0.24, 0.33),
            communicate_s,
            batch_bytes,
            drive: Drive {
                tensor: noise.child(3).between(0.47, 0.53),
                copy_rate: batch_bytes / COPY_S,
                gradient_rate: 2.2e11,
            },
        };
        let mut gang = Self {
            noise: noise.child(4),
            activities: PHASES.map(|phase| phase.activity(&pace.drive)),
            pace,
            afflictions,
            routes: Routes::new(nodes.len()),
            turns: vec![Turn::default(); nodes.len() * GPUS_PER_NODE],
            nodes,
            step: 0,
            began: 0.0,
            gathered: 0.0,
            done: 0.0,
        };
        gang.plan();
        gang
    }

    /// The nodes of the gang.
    pub(crate) fn nodes(&self) -> Range<usize> {
        self.nodes.clone()
    }

    /// Lets time pass until `now`. `machines` are those of the whole fleet.
    pub(crate) fn advance(&mut self, now: f64, machines: &mut [Machine]) {
        let machines = &mut machines[self.nodes.clone()];
        while self.began + self.done <= now {
            self.live(self.done, machines, true);
            self.began += self.done;
            self.step += 1;
            self.plan();
        }
        self.live(now - self.began, machines, false);
        for (member, machine) in machines.iter_mut().enumerate() {
            machine.host.advance(now, |at| self.used(member, at));
        }
    }

    /// Tells the ports that will fail, and those that talk to them, when that will be.
    pub(crate) fn strike_ports(&self, machines: &mut [Machine]) {
        let machines = &mut machines[self.nodes.clone()];
        for fault in &self.afflictions {
            let Effect::PortDown { rail } = fault.effect else { continue };
            machines[fault.member].ports[rail].outages.push((fault.from, fault.until));
            let before = (fault.member + machines.len() - 1) % machines.len();
            if before != fault.member {
                machines[before].ports[rail].peer_outages.push(fault.from);
            }
        }
    }

    /// What the host of a member is used for.
    pub(crate) fn used(&self, member: usize, at: f64) -> Use {
        let batch = self.pace.batch_bytes * GPUS_PER_NODE as f64;
        match self.slow_batch(member, at) {
            Some(seconds) => Use::Starving(batch / seconds),
            None => Use::Feeding(batch / (COPY_S + self.pace.compute_s + self.pace.communicate_s)),
        }
    }

    /// How long the loader of a member needs for a batch, if it is slow.
    fn slow_batch(&self, member: usize, at: f64) -> Option<f64> {
        let here = self.afflictions.iter().filter(|fault| fault.member == member && fault.at(at));
        let batches = here.filter_map(|fault| match fault.effect {
            Effect::DataStarved { batch_s } => Some(batch_s),
            Effect::PortDown { .. } => None,
        });
        batches.reduce(f64::max)
    }

    /// Decides how the current step will go.
    fn plan(&mut self) {
        let noise = self.noise.child(self.step);
        let pace = self.pace.compute_s * noise.child(0).factor(STEP_SPREAD);
        let usual = COPY_S + self.pace.compute_s + self.pace.communicate_s;
        self.gathered = 0.0;
        for member in 0..self.nodes.len() {
            // A loader that is fast enough has the next batch ready before it is wanted.
            let gap = self.slow_batch(member, self.began).map_or(0.0, |seconds| {
                let batch = seconds * noise.child(1).child(member as u64).factor(BATCH_SPREAD);
                (batch - usual).max(0.0)
            });
            for gpu in 0..GPUS_PER_NODE {
                let rank = member * GPUS_PER_NODE + gpu;
                let compute = pace * noise.child(2).child(rank as u64).factor(RANK_SPREAD);
                self.turns[rank] = Turn { gap, compute };
                self.gathered = self.gathered.max(gap + COPY_S + compute);
            }
        }
        let start = self.began + self.gathered;
        let down = self.afflictions.iter().filter_map(|fault| match fault.effect {
            Effect::PortDown { rail } if fault.within(start, start + self.pace.communicate_s) => {
                Some((fault.member, rail))
            }
            Effect::PortDown { .. } | Effect::DataStarved { .. } => None,
        });
        self.routes.avoid(down.collect());
        let slower = f64::from(self.routes.worst().max(1));
        self.done = self.gathered + self.pace.communicate_s * slower;
    }

    /// Brings all meters to `elapsed` seconds into the step, and makes that the new base if the step is over.
    fn live(&self, elapsed: f64, machines: &mut [Machine], over: bool) {
        let moved = ((elapsed - self.gathered) / (self.done - self.gathered)).clamp(0.0, 1.0);
        let whole = self.pace.communicate_s * RATE_BYTES_PER_S * FABRIC_EFFICIENCY;
        for (member, machine) in machines.iter_mut().enumerate() {
            for (position, gpu) in machine.gpus.iter_mut().enumerate() {
                self.run(&self.turns[member * GPUS_PER_NODE + position], gpu, elapsed, over);
            }
            for (port, &load) in machine.ports.iter_mut().zip(&self.routes.loads[member]) {
                port.shown = port.base.plus(load, whole * moved);
                if over {
                    port.base = port.shown;
                }
            }
        }
    }

    fn run(&self, turn: &Turn, gpu: &mut Gpu, elapsed: f64, over: bool) {
        let alone = turn.gap + COPY_S + turn.compute;
        let spans = [
            turn.gap,
            COPY_S,
            turn.compute,
            (self.gathered - alone).max(0.0),
            self.done - self.gathered,
        ];
        let mut meters = gpu.base;
        let mut left = elapsed;
        for ((span, doing), phase) in spans.into_iter().zip(&self.activities).zip(PHASES) {
            if left > 0.0 {
                meters.run(doing, &gpu.board, span.min(left));
                gpu.phase = phase;
            }
            left -= span;
        }
        gpu.shown = meters;
        if over {
            gpu.base = meters;
        }
    }
}
