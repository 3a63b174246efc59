//! One node: its GPUs, ports and host, each with what it had counted at the last look.

use crate::{
    gpu::{Board, Drive, Meters, Model, Mood, Phase},
    host::{Host, Use},
    noise::Noise,
    port::Port,
};

/// Nodes were booted between two and forty days ago.
const UPTIME_S: (f64, f64) = (2.0 * 86_400.0, 40.0 * 86_400.0);

/// What a node is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nobody has it.
    Free,
    /// A job holds it and does nothing.
    Held,
    /// It is this member of this gang.
    Member {
        /// The gang's position in the fleet.
        gang: usize,
        /// The node's position in the gang.
        member: usize,
    },
}

/// One GPU and the instants at which it was looked at.
#[derive(Clone, Debug)]
pub(crate) struct Gpu {
    pub(crate) board: Board,
    /// Meters when the current step began.
    pub(crate) base: Meters,
    /// Meters at the instant that is shown.
    pub(crate) shown: Meters,
    /// Meters at the look before.
    pub(crate) before: Meters,
    /// Meters when the page was last written that is told for a while.
    pub(crate) collected: Meters,
    /// What it does at the instant that is shown.
    pub(crate) phase: Phase,
    /// What is different about it in the current step.
    pub(crate) mood: Mood,
    /// When and how it fails, if it does.
    pub(crate) failures: Vec<Failure>,
    /// Errors that its memory corrected since the driver was loaded.
    pub(crate) corrected: f64,
}

/// How a GPU fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Failure {
    /// In seconds since the origin.
    pub(crate) from: f64,
    /// When it is replaced or reset; never if it is not.
    pub(crate) until: f64,
    /// Its memory has an error that it cannot correct; else it is gone from the bus.
    pub(crate) ecc: bool,
}

impl Gpu {
    /// How it has failed at an instant, if it has.
    pub(crate) fn failed(&self, now: f64) -> Option<Failure> {
        self.failures.iter().find(|failure| failure.from <= now && now < failure.until).copied()
    }

    pub(crate) fn is_gone(&self, now: f64) -> bool {
        self.failed(now).is_some_and(|failure| !failure.ecc)
    }
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) role: Role,
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) ports: Vec<Port>,
    pub(crate) host: Host,
    /// Whether its job is there at the instant that is shown.
    pub(crate) working: bool,
    /// Whether it is held for maintenance at the instant that is shown.
    pub(crate) maintained: bool,
    /// When the page was last written that is told for a while, in seconds since the origin.
    pub(crate) collected: f64,
}

impl Machine {
    pub(crate) fn new(noise: Noise, role: Role, gpus: usize, rails: usize, model: Model) -> Self {
        let uptime = noise.child(0).between(UPTIME_S.0, UPTIME_S.1);
        let gpu = |position: usize| {
            let noise = noise.child(1).child(position as u64);
            let board = Board::new(noise, position, model);
            let meters = Meters::after_boot(noise, &board, uptime);
            Gpu {
                board,
                base: meters,
                shown: meters,
                before: meters,
                collected: meters,
                phase: if role == Role::Free { Phase::Free } else { Phase::Held },
                mood: Mood::USUAL,
                failures: Vec::new(),
                // Now and then a bit flips and is put right.
                corrected: noise.child(9).below(12).saturating_sub(8) as f64,
            }
        };
        let port = |rail: usize| Port::after_boot(noise.child(2).child(rail as u64), uptime);
        Self {
            role,
            gpus: (0..gpus).map(gpu).collect(),
            ports: (0..rails).map(port).collect(),
            host: Host::after_boot(noise.child(3), uptime, Use::Idle),
            working: role != Role::Free,
            maintained: false,
            collected: 0.0,
        }
    }

    /// Lets a node without work be idle until `now`.
    pub(crate) fn rest(&mut self, now: f64) {
        // Nothing drives an idle GPU.
        let idle = Drive { tensor: 0.0, copy_rate: 0.0, gradient_rate: 0.0 };
        for gpu in &mut self.gpus {
            let doing = gpu.phase.activity(&idle);
            gpu.shown = gpu.base;
            gpu.shown.run(&doing, &gpu.board, now);
        }
        self.host.advance(now, |_| Use::Idle);
    }
}
