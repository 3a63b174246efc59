//! Model of one node: its GPUs, ports and host, each with its counters at the last sample.

use crate::{
    gpu_activity::{GpuCondition, GpuLoadProfile, GpuMeters, GpuModel, GpuPhase, GpuVariation},
    noise_key::NoiseKey,
    sim_host::{HostUse, SimHost},
    sim_port::SimPort,
};

/// Nodes were booted between two and forty days ago.
const UPTIME_S: (f64, f64) = (2.0 * 86_400.0, 40.0 * 86_400.0);

/// The role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeRole {
    /// Not allocated.
    Free,
    /// Allocated to a job that does nothing.
    Held,
    /// Member of a job group.
    JobMember {
        /// The job group's position in the fleet.
        job_index: usize,
        /// The node's position in the job group.
        member: usize,
    },
}

/// One GPU with its counters at several instants.
#[derive(Clone, Debug)]
pub(crate) struct SimGpu {
    pub(crate) variation: GpuVariation,
    /// Counters when the current step began.
    pub(crate) base: GpuMeters,
    /// Counters at the current instant.
    pub(crate) shown: GpuMeters,
    /// Counters at the sample before.
    pub(crate) before: GpuMeters,
    /// Counters when the page that is served repeatedly was last written.
    pub(crate) collected: GpuMeters,
    /// Its phase at the current instant.
    pub(crate) phase: GpuPhase,
    /// Its condition in the current step.
    pub(crate) condition: GpuCondition,
    /// Its scheduled failures.
    pub(crate) failures: Vec<GpuFailure>,
    /// Memory errors corrected since the driver was loaded.
    pub(crate) corrected: f64,
}

/// How a GPU fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GpuFailure {
    /// In seconds since the origin.
    pub(crate) from: f64,
    /// When it is replaced or reset; infinite if it is not.
    pub(crate) until: f64,
    /// Whether it has an uncorrectable memory error; otherwise it has fallen off the bus.
    pub(crate) ecc: bool,
}

impl SimGpu {
    /// Its failure at an instant, if any.
    pub(crate) fn failure_at(&self, now: f64) -> Option<GpuFailure> {
        self.failures.iter().find(|failure| failure.from <= now && now < failure.until).copied()
    }

    pub(crate) fn is_gone(&self, now: f64) -> bool {
        self.failure_at(now).is_some_and(|failure| !failure.ecc)
    }
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct SimMachine {
    pub(crate) role: NodeRole,
    pub(crate) gpus: Vec<SimGpu>,
    pub(crate) ports: Vec<SimPort>,
    pub(crate) host: SimHost,
    /// Whether its job runs at the current instant.
    pub(crate) working: bool,
    /// Whether it is reserved for maintenance at the current instant.
    pub(crate) maintained: bool,
    /// When the page that is served repeatedly was last written, in seconds since the origin.
    pub(crate) collected: f64,
}

impl SimMachine {
    pub(crate) fn new(
        noise: NoiseKey,
        role: NodeRole,
        gpus: usize,
        rails: usize,
        model: GpuModel,
    ) -> Self {
        let uptime = noise.child_key(0).random_between(UPTIME_S.0, UPTIME_S.1);
        let gpu = |position: usize| {
            let noise = noise.child_key(1).child_key(position as u64);
            let variation = GpuVariation::new(noise, position, model);
            let meters = GpuMeters::after_boot(noise, &variation, uptime);
            SimGpu {
                variation,
                base: meters,
                shown: meters,
                before: meters,
                collected: meters,
                phase: if role == NodeRole::Free { GpuPhase::Free } else { GpuPhase::Held },
                condition: GpuCondition::USUAL,
                failures: Vec::new(),
                // Single bit errors are corrected at a low rate.
                corrected: noise.child_key(9).random_below(12).saturating_sub(8) as f64,
            }
        };
        let port =
            |rail: usize| SimPort::after_boot(noise.child_key(2).child_key(rail as u64), uptime);
        Self {
            role,
            gpus: (0..gpus).map(gpu).collect(),
            ports: (0..rails).map(port).collect(),
            host: SimHost::after_boot(noise.child_key(3), uptime, HostUse::Idle),
            working: role != NodeRole::Free,
            maintained: false,
            collected: 0.0,
        }
    }

    /// Advances an idle node to `now`.
    pub(crate) fn idle_until(&mut self, now: f64) {
        // An idle GPU has no load.
        let idle = GpuLoadProfile { tensor: 0.0, copy_rate: 0.0, gradient_rate: 0.0 };
        for gpu in &mut self.gpus {
            let activity = gpu.phase.phase_activity(&idle);
            gpu.shown = gpu.base;
            gpu.shown.run(&activity, &gpu.variation, now);
        }
        self.host.advance_to(now, |_| HostUse::Idle);
    }
}
