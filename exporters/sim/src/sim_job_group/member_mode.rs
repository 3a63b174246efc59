//! Modes of a job group outside of steps: it starts, writes, evaluates, hangs, ends, or serves requests.

use super::{RankStep, SPANS, SimJobGroup};
use crate::{
    gpu_activity::{GpuCondition, GpuPhase},
    job_workload::JobWorkload,
    sim_fault::{FaultEffect, ScheduledFault},
    sim_host::HostUse,
};

/// Modes other than stepping are planned for this many seconds at a time.
const CHUNK_S: f64 = 0.5;

/// The nodes of a job that ends are released within so many seconds; those of a crashed job later.
const LEAVING_S: f64 = 7.0;
const CRASHED_S: f64 = 25.0;

/// Requests come in bursts of so many seconds, and this share of intervals has any.
const BOUT_S: f64 = 40.0;
const BOUTS_ANSWERED: f64 = 0.18;

/// What a node of a job group does at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberMode {
    /// It takes part in steps.
    Step,
    /// It has left, or has not joined yet.
    Gone,
    /// Its processes exist and are idle.
    Rest,
    /// It reads a model.
    Load,
    /// It writes a checkpoint and is idle.
    Write,
    /// It waits in a barrier for a checkpoint to be written.
    WriteBarrier,
    /// It evaluates.
    Evaluate,
    /// It busy-waits in a collective that does not end.
    Spin,
    /// It serves inference requests.
    Serve,
    /// No job runs, and its GPUs are tested.
    Diagnose,
}

impl SimJobGroup {
    /// The mode of a member at an instant.
    pub(super) fn mode_at(&self, time: f64, member: usize) -> MemberMode {
        let normal =
            if self.pace.work == JobWorkload::Train { MemberMode::Step } else { MemberMode::Serve };
        let active = self.current_faults.iter().filter(|fault| fault.is_active_at(time));
        active
            .map(|fault| self.mode_under_fault(fault, time, member))
            .max_by_key(|mode| mode_priority(*mode))
            .map_or(normal, |mode| if mode == MemberMode::Step { normal } else { mode })
    }

    fn mode_under_fault(&self, fault: &ScheduledFault, time: f64, member: usize) -> MemberMode {
        let delay_share = self.noise.child_key(5).child_key(member as u64).random_unit();
        let leave_after = |delay: f64| {
            if time >= fault.from + delay { MemberMode::Gone } else { MemberMode::Spin }
        };
        match fault.effect {
            FaultEffect::Absent => MemberMode::Gone,
            FaultEffect::End => leave_after(LEAVING_S * delay_share),
            FaultEffect::Crash => leave_after(CRASHED_S + LEAVING_S * delay_share),
            FaultEffect::Hang { .. } | FaultEffect::GpuLost { .. } => MemberMode::Spin,
            // With a single rail no other port can carry the traffic.
            FaultEffect::PortDown { .. } if self.rails == 1 && self.nodes.len() > 1 => {
                MemberMode::Spin
            }
            FaultEffect::Diagnose => MemberMode::Diagnose,
            FaultEffect::Idle => MemberMode::Rest,
            FaultEffect::CrashLoop { every_s, lost_share } => {
                let passed = (time - fault.from - LEAVING_S * delay_share).max(0.0);
                match (passed / every_s).fract() / lost_share {
                    ..0.5 => MemberMode::Gone,
                    0.5..1.0 => MemberMode::Load,
                    _ => MemberMode::Step,
                }
            }
            FaultEffect::Start => {
                match (time - fault.from) / (fault.until - fault.from) + 0.1 * delay_share {
                    ..0.4 => MemberMode::Load,
                    0.4..0.7 => MemberMode::Rest,
                    _ => MemberMode::Spin,
                }
            }
            FaultEffect::Checkpoint { spin: true } if member > 0 => MemberMode::WriteBarrier,
            FaultEffect::Checkpoint { .. } => MemberMode::Write,
            FaultEffect::Evaluate => MemberMode::Evaluate,
            _ => MemberMode::Step,
        }
    }

    /// The host use of a member that does not step.
    pub(super) fn host_use_in_mode(&self, mode: MemberMode, member: usize, time: f64) -> HostUse {
        match mode {
            MemberMode::Load => HostUse::Reading,
            MemberMode::Write => HostUse::Writing,
            MemberMode::Evaluate => {
                HostUse::Feeding { bytes: self.pace.batch_bytes * 0.2, spins: self.pace.spins }
            }
            MemberMode::Serve => HostUse::Serving(self.request_load(member, 0, time)),
            // Polling for a response keeps a CPU as busy as feeding GPUs does.
            MemberMode::Spin | MemberMode::WriteBarrier => {
                HostUse::Feeding { bytes: 0.0, spins: self.pace.spins }
            }
            MemberMode::Step | MemberMode::Gone | MemberMode::Rest | MemberMode::Diagnose => {
                HostUse::Idle
            }
        }
    }

    /// Plans the next interval of every rank, if any of them does not step.
    pub(super) fn plan_outside_steps(&mut self) -> bool {
        let modes: Vec<MemberMode> =
            (0..self.nodes.len()).map(|member| self.mode_at(self.step_start, member)).collect();
        if modes.iter().all(|mode| *mode == MemberMode::Step) {
            return false;
        }
        self.arrival_s = 0.0;
        self.rail_s.fill(0.0);
        self.step_s = CHUNK_S;
        for (member, mode) in modes.into_iter().enumerate() {
            for gpu in 0..self.gpus {
                self.rank_steps[member * self.gpus + gpu] =
                    self.rank_step_in_mode(mode, member, gpu);
            }
        }
        true
    }

    fn rank_step_in_mode(&self, mode: MemberMode, member: usize, gpu: usize) -> RankStep {
        let phase = match mode {
            MemberMode::Gone => GpuPhase::Free,
            MemberMode::Rest | MemberMode::Load | MemberMode::Write => GpuPhase::Gap,
            MemberMode::Evaluate => GpuPhase::Evaluate,
            MemberMode::Diagnose => GpuPhase::Compute,
            MemberMode::Serve => {
                let load = self.request_load(member, gpu, self.step_start);
                let mut spans = [(GpuPhase::Held, 0.0); SPANS];
                spans[0] = (GpuPhase::Decode, CHUNK_S * load);
                spans[1].1 = CHUNK_S * (1.0 - load);
                return RankStep { spans, condition: GpuCondition::USUAL };
            }
            MemberMode::Spin if self.is_missing_rank(member, gpu) => GpuPhase::Gap,
            // A rank that would step waits for the missing one.
            MemberMode::Step | MemberMode::Spin | MemberMode::WriteBarrier => GpuPhase::Wait,
        };
        // An idle job's context draws less power than one between two steps.
        let idle =
            self.active_effects(member, self.step_start).any(|effect| effect == FaultEffect::Idle);
        RankStep::with_phase(
            if idle && phase == GpuPhase::Gap { GpuPhase::Held } else { phase },
            CHUNK_S,
        )
    }

    /// Whether this is the rank that the others wait for, and which does not wait itself.
    fn is_missing_rank(&self, member: usize, gpu: usize) -> bool {
        self.current_faults.iter().any(|fault| {
            let is_affected =
                fault.is_active_at(self.step_start) && self.is_affected(fault, member);
            is_affected
                && match fault.effect {
                    FaultEffect::Hang { odd } => odd && gpu == 0,
                    FaultEffect::GpuLost { gpu: lost, .. } => lost == gpu,
                    _ => false,
                }
        })
    }

    /// GPU load by requests at an instant: in bursts, and mostly zero.
    fn request_load(&self, member: usize, gpu: usize, time: f64) -> f64 {
        let noise = self.noise.child_key(6).child_key((member * self.gpus + gpu) as u64);
        let burst = (time / BOUT_S + noise.child_key(0).random_unit()).floor();
        let noise = noise.child_key(1).child_key(burst as u64);
        if noise.child_key(0).random_unit() >= BOUTS_ANSWERED {
            return 0.0;
        }
        let level = noise.child_key(1).random_between(0.1, 0.8);
        (level * noise.child_key(2).child_key((time * 2.0) as u64).random_factor(0.4)).min(1.0)
    }
}

/// Priority of modes: an absent node does nothing else.
fn mode_priority(mode: MemberMode) -> u8 {
    match mode {
        MemberMode::Step | MemberMode::Serve => 0,
        MemberMode::Evaluate => 1,
        MemberMode::Write | MemberMode::WriteBarrier => 2,
        MemberMode::Load | MemberMode::Rest => 3,
        MemberMode::Spin => 4,
        MemberMode::Gone => 5,
        MemberMode::Diagnose => 6,
    }
}
