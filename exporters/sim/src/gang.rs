//! A gang: a job whose ranks step together. Each step is load, compute, communicate; the slowest rank sets the pace,
//! and the others spin in the collective until it comes.

use std::ops::Range;

use self::mode::Mode;
use crate::{
    fabric::{RATE_BYTES_PER_S, Routes},
    fault::{Affliction, Effect},
    gpu::{Activity, Meters, Mood, Phase},
    host::Use,
    machine::{Failure, Gpu, Machine},
    noise::Noise,
    port::Wire,
    work::Pace,
};

mod mode;
mod plan;
mod wires;

/// Share of the line rate that a collective reaches when nothing is in its way.
const FABRIC_EFFICIENCY: f64 = 0.85;

/// What begins within so many seconds is looked at; what was over for as long is forgotten. No step is longer.
const SOON_S: f64 = 600.0;

/// The spans of a step, in order.
const SPANS: usize = 6;

/// One rank's part of a step: what it does for how many seconds.
#[derive(Clone, Copy, Debug)]
struct Turn {
    spans: [(Phase, f64); SPANS],
    mood: Mood,
}

impl Turn {
    /// The same all the time.
    fn still(phase: Phase, seconds: f64) -> Self {
        let mut spans = [(phase, 0.0); SPANS];
        spans[0].1 = seconds;
        Self { spans, mood: Mood::USUAL }
    }
}

/// A job whose ranks step together.
#[derive(Debug)]
pub(crate) struct Gang {
    noise: Noise,
    nodes: Range<usize>,
    /// GPUs and rails of one node.
    gpus: usize,
    rails: usize,
    /// How fast the board of each node computes, against the fastest of them: a job's times are those on its own boards.
    speeds: Vec<f64>,
    pub(crate) pace: Pace,
    activities: [Activity; Phase::ALL.len()],
    /// What strikes it now or soon.
    afflictions: Vec<Affliction>,
    /// What strikes it later, the last first.
    later: Vec<Affliction>,
    routes: Routes,
    /// What the cable of each port does in the current step, if any does anything unusual.
    wires: Option<Vec<Wire>>,
    usual_wire: Wire,
    /// The number of the current step, and when it began.
    step: u64,
    began: f64,
    /// Each rank's part of the current step.
    turns: Vec<Turn>,
    /// Seconds from the beginning of the step until the last rank arrives, until each rail has moved its share, and
    /// until all have.
    gathered: f64,
    moving: Vec<f64>,
    done: f64,
}

impl Gang {
    pub(crate) fn new(
        noise: Noise,
        nodes: Range<usize>,
        machines: &[Machine],
        pace: Pace,
        mut afflictions: Vec<Affliction>,
    ) -> Self {
        afflictions.sort_by(|a, b| b.from.total_cmp(&a.from));
        let machines = &machines[nodes.clone()];
        let gpus = machines.first().map_or(0, |machine| machine.gpus.len());
        let rails = machines.first().map_or(0, |machine| machine.ports.len());
        let speed = |machine: &Machine| machine.gpus[0].board.model.speed;
        let fastest = machines.iter().map(speed).fold(0.0, f64::max);
        let mut gang = Self {
            noise: noise.child(4),
            gpus,
            rails,
            speeds: machines.iter().map(|machine| speed(machine) / fastest).collect(),
            activities: Phase::ALL.map(|phase| phase.activity(&pace.drive)),
            pace,
            afflictions: Vec::new(),
            later: afflictions,
            routes: Routes::new(nodes.len(), rails, gpus),
            wires: None,
            usual_wire: Wire::usual(),
            turns: vec![Turn::still(Phase::Held, 0.0); nodes.len() * gpus],
            moving: vec![0.0; rails],
            nodes,
            step: 0,
            began: 0.0,
            gathered: 0.0,
            done: 0.0,
        };
        gang.expect_until(SOON_S);
        gang.plan();
        gang
    }

    /// Makes what begins before an instant ready to strike, and forgets what is over: a run of days has hundreds.
    fn expect_until(&mut self, soon: f64) {
        let over = self.began - SOON_S;
        self.afflictions.retain(|fault| fault.until >= over);
        while self.later.last().is_some_and(|fault| fault.from < soon) {
            self.afflictions.extend(self.later.pop());
        }
    }

    /// The nodes of the gang.
    pub(crate) fn nodes(&self) -> Range<usize> {
        self.nodes.clone()
    }

    /// Lets time pass until `now`. `machines` are those of the whole fleet.
    pub(crate) fn advance(&mut self, now: f64, machines: &mut [Machine]) {
        let machines = &mut machines[self.nodes.clone()];
        self.expect_until(now + SOON_S);
        while self.began + self.done <= now {
            self.live(self.done, machines, true);
            let before = self.began;
            self.began += self.done;
            self.reset_counters(before, machines);
            self.step += 1;
            self.plan();
        }
        self.live(now - self.began, machines, false);
        for (member, machine) in machines.iter_mut().enumerate() {
            machine.working = !matches!(self.mode(now, member), Mode::Gone | Mode::Diagnose);
            machine.maintained = self.effects(member, now).any(|e| e == Effect::Maintain);
            machine.host.advance(now, |at| self.used(member, at));
        }
    }

    /// Tells the parts that will fail, and those that talk to them, when that will be.
    pub(crate) fn strike(&self, machines: &mut [Machine]) {
        let machines = &mut machines[self.nodes.clone()];
        for fault in self.afflictions.iter().chain(&self.later) {
            for member in (0..machines.len()).filter(|member| self.is_struck(fault, *member)) {
                match fault.effect {
                    Effect::PortDown { rail } => {
                        machines[member].ports[rail].outages.push((fault.from, fault.until));
                        let before = (member + machines.len() - 1) % machines.len();
                        if before != member {
                            machines[before].ports[rail].peer_outages.push(fault.from);
                        }
                    }
                    Effect::RateLow { rail, factor } => {
                        let fallback = (fault.from, fault.until, factor);
                        machines[member].ports[rail].fallbacks.push(fallback);
                    }
                    Effect::GpuLost { gpu, ecc } => {
                        let failure = Failure { from: fault.from, until: fault.until, ecc };
                        machines[member].gpus[gpu].failures.push(failure);
                    }
                    _ => {}
                }
            }
        }
    }

    fn is_struck(&self, fault: &Affliction, member: usize) -> bool {
        fault.strikes(self.nodes.start + member)
    }

    /// The effects that strike a member at an instant.
    fn effects(&self, member: usize, at: f64) -> impl Iterator<Item = Effect> {
        let here = self.afflictions.iter().filter(move |fault| fault.at(at));
        let struck = here.filter(move |fault| self.is_struck(fault, member));
        struck.map(move |fault| match fault.effect {
            // Who trades with the board that lost its links is slow, and has all of its own.
            Effect::NvlinkSlow { factor, .. } if fault.node != self.nodes.start + member => {
                Effect::NvlinkSlow { gpu: usize::MAX, factor }
            }
            effect => effect,
        })
    }

    /// What the host of a member is used for.
    pub(crate) fn used(&self, member: usize, at: f64) -> Use {
        let mode = self.mode(at, member);
        if mode != Mode::Step {
            return self.used_beside(mode, member, at);
        }
        let usual = self.pace.step_s();
        let batch = self.pace.batch_bytes * self.gpus as f64;
        let starving = |batch_s: f64, by_cpu| Use::Starving {
            bytes: batch / batch_s,
            share: (1.0 - usual / batch_s).max(0.0),
            by_cpu,
        };
        let mut used = Use::Feeding { bytes: batch / usual, spins: self.pace.spins };
        for effect in self.effects(member, at) {
            used = match effect {
                Effect::DataStarved { batch_s, by_cpu } => starving(batch_s, by_cpu),
                Effect::StorageSlow { batch_s } => starving(batch_s, false),
                Effect::LaunchBound { .. } => Use::Launching(batch / usual),
                _ => continue,
            };
        }
        used
    }

    /// Brings all meters to `elapsed` seconds into the step, and makes that the new base if the step is over.
    fn live(&self, elapsed: f64, machines: &mut [Machine], over: bool) {
        let usual = f64::from(self.routes.usual());
        let whole = self.pace.communicate_s * RATE_BYTES_PER_S * FABRIC_EFFICIENCY / usual;
        for (member, machine) in machines.iter_mut().enumerate() {
            for (position, gpu) in machine.gpus.iter_mut().enumerate() {
                self.run(&self.turns[member * self.gpus + position], gpu, elapsed, over);
            }
            for (rail, port) in machine.ports.iter_mut().enumerate() {
                let moving = self.moving[rail];
                let moved = if moving > 0.0 {
                    ((elapsed - self.gathered) / moving).clamp(0.0, 1.0)
                } else {
                    0.0
                };
                let wire = self
                    .wires
                    .as_ref()
                    .map_or(&self.usual_wire, |wires| &wires[member * self.rails + rail]);
                port.carry(self.routes.load(member, rail), whole * moved, wire, elapsed, over);
            }
        }
    }

    fn run(&self, turn: &Turn, gpu: &mut Gpu, elapsed: f64, over: bool) {
        let mut meters = gpu.base;
        let mut left = elapsed;
        let mut board = gpu.board;
        board.coolant_celsius += turn.mood.warm_kelvin;
        for (phase, span) in turn.spans {
            if left > 0.0 && span > 0.0 {
                let mut doing = self.activities[phase as usize];
                if turn.mood != Mood::USUAL {
                    doing = doing.in_mood(phase, &turn.mood);
                }
                meters.run(&doing, &board, span.min(left));
                gpu.phase = phase;
            }
            left -= span;
        }
        gpu.mood = turn.mood;
        gpu.shown = meters;
        if over {
            gpu.base = meters;
        }
    }

    /// Sets what GPUs have counted to zero where a driver was loaded anew in the step that is over.
    fn reset_counters(&self, before: f64, machines: &mut [Machine]) {
        for fault in &self.afflictions {
            let now = before < fault.from && fault.from <= self.began;
            if !matches!(fault.effect, Effect::CounterReset | Effect::Reboot) || !now {
                continue;
            }
            for (member, machine) in machines.iter_mut().enumerate() {
                for gpu in machine.gpus.iter_mut().filter(|_| self.is_struck(fault, member)) {
                    let (watts, celsius) = (gpu.base.power_watts, gpu.base.temperature_celsius);
                    let zero = Meters::default();
                    gpu.base = Meters { power_watts: watts, temperature_celsius: celsius, ..zero };
                }
            }
        }
    }
}
