//! The table of states: which signals make which state, with profiling counters and without.

use gaunt_schema::GpuState;

use super::{Signals, Thresholds};

/// The rows of the table, first match wins. A cause comes before what it looks like: heat before all else, useful work
/// before waiting, starving before idling.
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

/// What the signals say, given the state that holds: it is left under lower cuts than it is entered.
pub(super) fn classify(signals: &Signals, held: GpuState, limits: &Thresholds) -> GpuState {
    let strict = Table { signals, limits, slack: 1.0 };
    let lower = Table { slack: limits.leave_share.clamp(0.1, 1.0), ..strict };
    let found = ORDER.into_iter().find(|state| strict.holds(*state));
    found.or_else(|| lower.holds(held).then_some(held)).unwrap_or(GpuState::Unknown)
}

#[derive(Clone, Copy)]
struct Table<'a> {
    signals: &'a Signals,
    limits: &'a Thresholds,
    slack: f64,
}

impl Table<'_> {
    fn holds(&self, state: GpuState) -> bool {
        match state {
            GpuState::Throttled => self.throttled(),
            GpuState::Computing => self.computing(),
            GpuState::MemoryBound => self.memory_bound(),
            GpuState::Communicating => self.communicating(),
            GpuState::Waiting => self.waiting(),
            GpuState::DataStarved => self.data_starved(),
            GpuState::LaunchBound => self.launch_bound(),
            GpuState::IdleAllocated => self.idle() && self.signals.allocated == Some(true),
            GpuState::Idle => self.idle() && self.signals.allocated != Some(true),
            _ => false,
        }
    }

    /// Known, and at least this much.
    fn least(&self, signal: Option<f64>, cut: f64) -> bool {
        signal.is_some_and(|signal| signal >= cut * self.slack)
    }

    /// Known, and below this.
    fn below(&self, signal: Option<f64>, cut: f64) -> bool {
        signal.is_some_and(|signal| signal < cut / self.slack)
    }

    /// Below this, as far as is known: for what only strengthens a verdict.
    fn not_above(&self, signal: Option<f64>, cut: f64) -> bool {
        signal.is_none() || self.below(signal, cut)
    }

    /// Whether the GPU tells profiling counters.
    fn profiled(&self) -> bool {
        self.signals.tensor.is_some() || self.signals.sm.is_some()
    }

    fn throttled(&self) -> bool {
        let (s, l) = (self.signals, self.limits);
        let hot = self.least(s.sw_thermal, l.clock_event_ratio)
            && self.below(s.clock_in_job.or(s.clock), l.clock_throttled_ratio);
        self.least(s.utilization, l.utilization_launch_ratio)
            && (self.least(s.hw_slowdown, l.clock_event_ratio) || hot)
    }

    fn computing(&self) -> bool {
        let (s, l) = (self.signals, self.limits);
        if self.profiled() {
            return self.least(s.tensor, l.tensor_busy_ratio)
                || (self.least(s.sm, l.sm_busy_ratio)
                    && self.not_above(s.dram, l.dram_saturated_ratio));
        }
        self.least(s.utilization, l.utilization_busy_ratio)
            && self.least(s.power, l.power_computing_ratio)
            && (s.clock.is_none() || self.least(s.clock, l.clock_near_max_ratio))
    }

    fn memory_bound(&self) -> bool {
        let (s, l) = (self.signals, self.limits);
        if self.profiled() {
            return self.least(s.dram, l.dram_bound_ratio)
                && self.not_above(s.tensor, l.tensor_busy_ratio);
        }
        self.least(s.utilization, l.utilization_busy_ratio)
            && self.least(s.memory, l.memory_activity_ratio)
            && self.least(s.power, l.power_memory_ratio)
            && self.below(s.power, l.power_computing_ratio)
    }

    fn communicating(&self) -> bool {
        let (s, l) = (self.signals, self.limits);
        if self.profiled() {
            return self.least(s.comm, l.comm_busy_ratio)
                && self.not_above(s.tensor, l.tensor_low_ratio);
        }
        self.least(s.utilization, l.utilization_busy_ratio)
            && self.least(s.comm, l.comm_busy_ratio)
            && self.least(s.power, l.power_comm_ratio)
            && self.below(s.power, l.power_comm_max_ratio)
    }

    fn waiting(&self) -> bool {
        let (s, l) = (self.signals, self.limits);
        let quiet = if self.profiled() {
            self.below(s.tensor, l.tensor_quiet_ratio)
                && self.not_above(s.dram, l.dram_quiet_ratio)
                && self.not_above(s.sm, l.sm_waiting_ratio)
        } else {
            self.below(s.power, l.power_waiting_ratio)
        };
        // Who is alone has nobody to wait for.
        s.gang
            && s.allocated != Some(false)
            && quiet
            && self.least(s.utilization, l.utilization_spinning_ratio)
            && self.not_above(s.comm, l.comm_quiet_ratio)
    }

    fn data_starved(&self) -> bool {
        let (s, l) = (self.signals, self.limits);
        // A server without requests has nothing to starve for; with a full queue its GPUs should work.
        if let Some(waiting) = s.queue {
            return self.least(Some(waiting), l.queue_requests)
                && self.below(s.utilization, l.queue_idle_ratio);
        }
        let alive = self.least(s.active, l.active_samples_ratio)
            || self.below(s.since_active_again, l.active_again_seconds);
        let on_and_off = alive && self.below(s.utilization, l.utilization_starved_ratio);
        let pressed = self.least(s.io_pressure, l.io_pressure_ratio)
            || self.least(s.cpu_pressure, l.cpu_pressure_ratio)
            // Above this utilization one busy core means that launching is the limit.
            || (self.least(s.busiest_cpu, l.busiest_cpu_ratio)
                && self.below(s.utilization, l.utilization_launch_ratio));
        let loading = self.least(s.pcie, l.pcie_loading_bytes_per_second);
        let starves = if self.profiled() {
            self.below(s.tensor, l.tensor_low_ratio)
                && (pressed || (loading && self.below(s.sm, l.sm_loading_ratio)))
        } else {
            self.least(s.power_spread, l.power_switching_ratio) && (pressed || loading)
        };
        s.allocated != Some(false) && on_and_off && starves
    }

    fn launch_bound(&self) -> bool {
        let (s, l) = (self.signals, self.limits);
        let thin = if self.profiled() {
            self.least(s.utilization, l.utilization_launch_ratio)
                && self.below(s.sm, l.sm_launch_ratio)
                && self.not_above(s.tensor, l.tensor_quiet_ratio)
                && self.not_above(s.dram, l.dram_quiet_ratio)
        } else {
            self.least(s.utilization, l.utilization_spinning_ratio)
                && self.below(s.power, l.power_launch_ratio)
        };
        thin && s.allocated != Some(false)
            && self.not_above(s.pcie, l.pcie_loading_bytes_per_second)
            && self.least(s.busiest_cpu, l.busiest_cpu_ratio)
    }

    fn idle(&self) -> bool {
        let (s, l) = (self.signals, self.limits);
        self.below(s.utilization, l.utilization_idle_ratio)
            && self.not_above(s.sm, l.sm_idle_ratio)
            && self.not_above(s.power_over_floor, l.power_idle_share)
    }
}

#[cfg(test)]
mod tests;
