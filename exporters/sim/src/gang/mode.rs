//! What a gang does when it does not step: it starts, writes, evaluates, hangs, leaves, or answers requests.

use super::{Gang, SPANS, Turn};
use crate::{
    fault::{Affliction, Effect},
    gpu::{Mood, Phase},
    host::Use,
    work::Work,
};

/// What does not step is planned for so many seconds at a time.
const CHUNK_S: f64 = 0.5;

/// The nodes of a job that ends leave within so many seconds; those of one that crashed hang about for longer.
const LEAVING_S: f64 = 7.0;
const CRASHED_S: f64 = 25.0;

/// Requests come in bouts of so many seconds, and this share of bouts has any.
const BOUT_S: f64 = 40.0;
const BOUTS_ANSWERED: f64 = 0.18;

/// What a node of a gang does at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// It takes part in steps.
    Step,
    /// It has left, or not come yet.
    Gone,
    /// Its processes are there and rest.
    Rest,
    /// It reads a model.
    Load,
    /// It writes a checkpoint and rests.
    Write,
    /// It waits in a barrier for a checkpoint to be written.
    WriteBarrier,
    /// It evaluates.
    Evaluate,
    /// It spins in a collective that does not end.
    Spin,
    /// It answers requests.
    Serve,
    /// Nobody's job runs, and its GPUs are tested.
    Diagnose,
}

impl Gang {
    /// What a member does at an instant.
    pub(super) fn mode(&self, at: f64, member: usize) -> Mode {
        let usual = if self.pace.work == Work::Train { Mode::Step } else { Mode::Serve };
        let here = self.afflictions.iter().filter(|fault| fault.at(at));
        here.map(|fault| self.mode_of(fault, at, member))
            .max_by_key(|mode| weight(*mode))
            .map_or(usual, |mode| if mode == Mode::Step { usual } else { mode })
    }

    fn mode_of(&self, fault: &Affliction, at: f64, member: usize) -> Mode {
        let luck = self.noise.child(5).child(member as u64).unit();
        let leaves = |after: f64| {
            if at >= fault.from + after { Mode::Gone } else { Mode::Spin }
        };
        match fault.effect {
            Effect::Absent => Mode::Gone,
            Effect::End => leaves(LEAVING_S * luck),
            Effect::Crash => leaves(CRASHED_S + LEAVING_S * luck),
            Effect::Hang { .. } | Effect::GpuLost { .. } => Mode::Spin,
            // Nothing else carries what the only rail does not.
            Effect::PortDown { .. } if self.rails == 1 && self.nodes.len() > 1 => Mode::Spin,
            Effect::Diagnose => Mode::Diagnose,
            Effect::Idle => Mode::Rest,
            Effect::Start => match (at - fault.from) / (fault.until - fault.from) + 0.1 * luck {
                ..0.4 => Mode::Load,
                0.4..0.7 => Mode::Rest,
                _ => Mode::Spin,
            },
            Effect::Checkpoint { spin: true } if member > 0 => Mode::WriteBarrier,
            Effect::Checkpoint { .. } => Mode::Write,
            Effect::Evaluate => Mode::Evaluate,
            _ => Mode::Step,
        }
    }

    /// What the host of a member that does not step is used for.
    pub(super) fn used_beside(&self, mode: Mode, member: usize, at: f64) -> Use {
        match mode {
            Mode::Load => Use::Reading,
            Mode::Write => Use::Writing,
            Mode::Evaluate => {
                Use::Feeding { bytes: self.pace.batch_bytes * 0.2, spins: self.pace.spins }
            }
            Mode::Serve => Use::Serving(self.load(member, 0, at)),
            // Who polls for an answer keeps a processor as busy as who feeds.
            Mode::Spin | Mode::WriteBarrier => Use::Feeding { bytes: 0.0, spins: self.pace.spins },
            Mode::Step | Mode::Gone | Mode::Rest | Mode::Diagnose => Use::Idle,
        }
    }

    /// Decides what every rank does in the next moment, if any of them does not step.
    pub(super) fn plan_beside(&mut self) -> bool {
        let modes: Vec<Mode> =
            (0..self.nodes.len()).map(|member| self.mode(self.began, member)).collect();
        if modes.iter().all(|mode| *mode == Mode::Step) {
            return false;
        }
        self.gathered = 0.0;
        self.moving.fill(0.0);
        self.done = CHUNK_S;
        for (member, mode) in modes.into_iter().enumerate() {
            for gpu in 0..self.gpus {
                self.turns[member * self.gpus + gpu] = self.turn_beside(mode, member, gpu);
            }
        }
        true
    }

    fn turn_beside(&self, mode: Mode, member: usize, gpu: usize) -> Turn {
        let phase = match mode {
            Mode::Gone => Phase::Free,
            Mode::Rest | Mode::Load | Mode::Write => Phase::Gap,
            Mode::Evaluate => Phase::Evaluate,
            Mode::Diagnose => Phase::Compute,
            Mode::Serve => {
                let load = self.load(member, gpu, self.began);
                let mut spans = [(Phase::Held, 0.0); SPANS];
                spans[0] = (Phase::Decode, CHUNK_S * load);
                spans[1].1 = CHUNK_S * (1.0 - load);
                return Turn { spans, mood: Mood::USUAL };
            }
            Mode::Spin if self.is_odd(member, gpu) => Phase::Gap,
            // Who would step finds that somebody is missing.
            Mode::Step | Mode::Spin | Mode::WriteBarrier => Phase::Wait,
        };
        // An idle job's context draws less than one between two steps.
        let idle = self.effects(member, self.began).any(|effect| effect == Effect::Idle);
        Turn::still(if idle && phase == Phase::Gap { Phase::Held } else { phase }, CHUNK_S)
    }

    /// Whether this is the rank that the others wait for, and it does not even wait itself.
    fn is_odd(&self, member: usize, gpu: usize) -> bool {
        self.afflictions.iter().any(|fault| {
            let here = fault.at(self.began) && self.is_struck(fault, member);
            here && match fault.effect {
                Effect::Hang { odd } => odd && gpu == 0,
                Effect::GpuLost { gpu: lost, .. } => lost == gpu,
                _ => false,
            }
        })
    }

    /// How busy the requests keep one GPU at an instant: in bouts, and mostly not at all.
    fn load(&self, member: usize, gpu: usize, at: f64) -> f64 {
        let noise = self.noise.child(6).child((member * self.gpus + gpu) as u64);
        let bout = (at / BOUT_S + noise.child(0).unit()).floor();
        let noise = noise.child(1).child(bout as u64);
        if noise.child(0).unit() >= BOUTS_ANSWERED {
            return 0.0;
        }
        let level = noise.child(1).between(0.1, 0.8);
        (level * noise.child(2).child((at * 2.0) as u64).factor(0.4)).min(1.0)
    }
}

/// Which of several modes wins: what is gone does nothing else.
fn weight(mode: Mode) -> u8 {
    match mode {
        Mode::Step | Mode::Serve => 0,
        Mode::Evaluate => 1,
        Mode::Write | Mode::WriteBarrier => 2,
        Mode::Load | Mode::Rest => 3,
        Mode::Spin => 4,
        Mode::Gone => 5,
        Mode::Diagnose => 6,
    }
}
