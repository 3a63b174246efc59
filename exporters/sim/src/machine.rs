//! One node: its GPUs, ports and host, each with what it had counted at the last look.

use crate::{
    GPUS_PER_NODE,
    fabric::Port,
    gpu::{Activity, Board, Drive, Meters, Phase},
    host::{Host, Use},
    noise::Noise,
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
    /// What it does at the instant that is shown.
    pub(crate) phase: Phase,
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) role: Role,
    pub(crate) gpus: [Gpu; GPUS_PER_NODE],
    pub(crate) ports: [Port; GPUS_PER_NODE],
    pub(crate) host: Host,
}

impl Machine {
    pub(crate) fn new(noise: Noise, role: Role, first: Use) -> Self {
        let uptime = noise.child(0).between(UPTIME_S.0, UPTIME_S.1);
        let gpu = |position: usize| {
            let noise = noise.child(1).child(position as u64);
            let board = Board::new(noise, position);
            let meters = Meters::after_boot(noise, &board, uptime);
            let phase = if role == Role::Free { Phase::Free } else { Phase::Held };
            Gpu { board, base: meters, shown: meters, before: meters, phase }
        };
        let port = |rail: usize| Port::after_boot(noise.child(2).child(rail as u64), uptime);
        Self {
            role,
            gpus: std::array::from_fn(gpu),
            ports: std::array::from_fn(port),
            host: Host::after_boot(noise.child(3), uptime, first),
        }
    }

    /// Lets a node without work be idle until `now`.
    pub(crate) fn rest(&mut self, now: f64) {
        // Nothing drives an idle GPU.
        let idle = Drive { tensor: 0.0, copy_rate: 0.0, gradient_rate: 0.0 };
        for gpu in &mut self.gpus {
            let doing: Activity = gpu.phase.activity(&idle);
            gpu.shown = gpu.base;
            gpu.shown.run(&doing, &gpu.board, now);
        }
        self.host.advance(now, |_| Use::Idle);
    }
}
