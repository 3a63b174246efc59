//! GPU state rules: which signals lead to which state, with profiling counters and without.

use gaunt_schema::GpuState;

use super::{Thresholds, gpu_signals::GpuSignals};

/// The order of the rules, first match wins. A cause comes before states with similar symptoms: thermal throttling
/// before all else, useful work before waiting, starvation before idling.
const ORDER: [GpuState; 9] = [
    GpuState::Throttled,
    GpuState::Computing,
    GpuState::MemoryBound,
    GpuState::Communicating,
    GpuState::Waiting,
    GpuState::DataStarved,
    GpuState::LaunchBound,
    GpuState::IdleAllocated,
    GpuState::Idle,
];

/// Returns the state for these signals, given the present state: the cuts to leave it are lower than those to enter
/// (hysteresis).
pub(super) fn classify_state(
    signals: &GpuSignals,
    held: GpuState,
    limits: &Thresholds,
) -> GpuState {
    let strict = StateRules { signals, limits, slack: 1.0 };
    let lower = StateRules { slack: limits.leave_share.clamp(0.1, 1.0), ..strict };
    let found = ORDER.into_iter().find(|state| strict.matches_state(*state));
    found.or_else(|| lower.matches_state(held).then_some(held)).unwrap_or(GpuState::Unknown)
}

/// Whether a GPU computes next to nothing, as far as its signals show: it may still run a kernel that busy-waits.
pub(super) fn is_quiet(signals: &GpuSignals, limits: &Thresholds) -> bool {
    StateRules { signals, limits, slack: 1.0 }.is_quiet()
}

#[derive(Clone, Copy)]
struct StateRules<'a> {
    signals: &'a GpuSignals,
    limits: &'a Thresholds,
    slack: f64,
}

impl StateRules<'_> {
    fn matches_state(&self, state: GpuState) -> bool {
        match state {
            GpuState::Throttled => self.is_throttled(),
            GpuState::Computing => self.is_computing(),
            GpuState::MemoryBound => self.is_memory_bound(),
            GpuState::Communicating => self.is_communicating(),
            GpuState::Waiting => self.is_waiting(),
            GpuState::DataStarved => self.is_data_starved(),
            GpuState::LaunchBound => self.is_launch_bound(),
            GpuState::IdleAllocated => self.is_idle() && self.signals.allocated == Some(true),
            GpuState::Idle => self.is_idle() && self.signals.allocated != Some(true),
            _ => false,
        }
    }

    /// Known, and at least this much.
    fn is_at_least(&self, signal: Option<f64>, cut: f64) -> bool {
        signal.is_some_and(|signal| signal >= cut * self.slack)
    }

    /// Known, and below this.
    fn is_below(&self, signal: Option<f64>, cut: f64) -> bool {
        signal.is_some_and(|signal| signal < cut / self.slack)
    }

    /// Below this or unknown: for signals that only strengthen a verdict.
    fn is_not_above(&self, signal: Option<f64>, cut: f64) -> bool {
        signal.is_none() || self.is_below(signal, cut)
    }

    /// Whether the GPU reports profiling counters.
    fn has_profiling(&self) -> bool {
        self.signals.tensor.is_some() || self.signals.sm.is_some()
    }

    fn is_throttled(&self) -> bool {
        let (s, l) = (self.signals, self.limits);
        let hot = self.is_at_least(s.sw_thermal, l.clock_event_ratio)
            && self.is_below(s.clock_in_job.or(s.clock), l.slow_clock_ratio);
        self.is_at_least(s.utilization, l.utilization_launch_ratio)
            && (self.is_at_least(s.hw_slowdown, l.clock_event_ratio) || hot)
    }

    fn is_computing(&self) -> bool {
        let (s, l) = (self.signals, self.limits);
        if self.has_profiling() {
            return self.is_at_least(s.tensor, l.tensor_busy_ratio)
                || (self.is_at_least(s.sm, l.sm_busy_ratio)
                    && self.is_not_above(s.dram, l.dram_saturated_ratio));
        }
        self.is_at_least(s.utilization, l.utilization_busy_ratio)
            && self.is_at_least(s.power, l.power_computing_ratio)
            && (s.clock.is_none() || self.is_at_least(s.clock, l.clock_near_max_ratio))
    }

    fn is_memory_bound(&self) -> bool {
        let (s, l) = (self.signals, self.limits);
        if self.has_profiling() {
            return self.is_at_least(s.dram, l.dram_bound_ratio)
                && self.is_not_above(s.tensor, l.tensor_busy_ratio);
        }
        self.is_at_least(s.utilization, l.utilization_busy_ratio)
            && self.is_at_least(s.memory, l.memory_activity_ratio)
            && self.is_at_least(s.power, l.power_memory_ratio)
            && self.is_below(s.power, l.power_computing_ratio)
    }

    fn is_communicating(&self) -> bool {
        let (s, l) = (self.signals, self.limits);
        // What the ports of its node send may be of other GPUs.
        if self.is_idle() {
            return false;
        }
        if self.has_profiling() {
            return self.is_at_least(s.comm, l.comm_busy_ratio)
                && self.is_not_above(s.tensor, l.tensor_low_ratio);
        }
        self.is_at_least(s.utilization, l.utilization_busy_ratio)
            && self.is_at_least(s.comm, l.comm_busy_ratio)
            && self.is_at_least(s.power, l.power_comm_ratio)
            && self.is_below(s.power, l.power_comm_max_ratio)
    }

    fn is_quiet(&self) -> bool {
        let (s, l) = (self.signals, self.limits);
        if self.has_profiling() {
            return self.is_below(s.tensor, l.tensor_quiet_ratio)
                && self.is_not_above(s.dram, l.dram_quiet_ratio)
                && self.is_not_above(s.sm, l.sm_waiting_ratio);
        }
        self.is_below(s.power, l.power_waiting_ratio)
    }

    fn is_waiting(&self) -> bool {
        let (s, l) = (self.signals, self.limits);
        // A single GPU has no peers to wait for.
        s.has_peers
            && s.allocated != Some(false)
            && self.is_quiet()
            && self.is_at_least(s.utilization, l.utilization_spinning_ratio)
            && self.is_not_above(s.comm, l.comm_quiet_ratio)
    }

    fn is_data_starved(&self) -> bool {
        let (s, l) = (self.signals, self.limits);
        // A server without requests is not starved; with a full queue its GPUs should work.
        if let Some(waiting) = s.queue {
            return self.is_at_least(Some(waiting), l.queue_requests)
                && self.is_below(s.utilization, l.queue_idle_ratio);
        }
        let alive = self.is_at_least(s.active, l.active_samples_ratio)
            || self.is_below(s.since_active_again, l.active_again_seconds);
        let on_and_off = alive && self.is_below(s.utilization, l.utilization_starved_ratio);
        let pressed = self.is_at_least(s.io_pressure, l.io_pressure_ratio)
            || self.is_at_least(s.cpu_pressure, l.cpu_pressure_ratio)
            // Above this utilization one busy CPU means that kernel launches are the limit.
            || (self.is_at_least(s.busiest_cpu, l.busiest_cpu_ratio)
                && self.is_below(s.utilization, l.utilization_launch_ratio));
        let loading = self.is_at_least(s.pcie, l.pcie_loading_bytes_per_second);
        let starves = if self.has_profiling() {
            self.is_below(s.tensor, l.tensor_low_ratio)
                && (pressed || (loading && self.is_below(s.sm, l.sm_loading_ratio)))
        } else {
            self.is_at_least(s.power_spread, l.power_switching_ratio) && (pressed || loading)
        };
        s.allocated != Some(false) && on_and_off && starves
    }

    fn is_launch_bound(&self) -> bool {
        let (s, l) = (self.signals, self.limits);
        let thin = if self.has_profiling() {
            self.is_at_least(s.utilization, l.utilization_launch_ratio)
                && self.is_below(s.sm, l.sm_launch_ratio)
                && self.is_not_above(s.tensor, l.tensor_quiet_ratio)
                && self.is_not_above(s.dram, l.dram_quiet_ratio)
        } else {
            self.is_at_least(s.utilization, l.utilization_spinning_ratio)
                && self.is_below(s.power, l.power_launch_ratio)
        };
        thin && s.allocated != Some(false)
            && self.is_not_above(s.pcie, l.pcie_loading_bytes_per_second)
            && self.is_at_least(s.busiest_cpu, l.busiest_cpu_ratio)
    }

    fn is_idle(&self) -> bool {
        let (s, l) = (self.signals, self.limits);
        self.is_below(s.utilization, l.utilization_idle_ratio)
            && self.is_not_above(s.sm, l.sm_idle_ratio)
            && self.is_not_above(s.power_over_floor, l.power_idle_share)
    }
}

#[cfg(test)]
mod tests;
