//! What a GPU exporter collects at its own instants, between which it repeats itself.

use std::collections::VecDeque;

use crate::node_state::GpuState;

/// How long the states before a collection are kept at least, in seconds: the longest window of NVML's utilization.
const SHORTEST_HISTORY_S: f64 = 1.0;

/// Two states that are closer than this are one, in seconds.
const SAME_INSTANT_S: f64 = 1e-6;

/// How one exporter collects.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "all are seconds, and say so")]
pub(super) struct SamplingPlan {
    /// Seconds between two collections.
    pub(super) period_s: f64,
    /// Instant of one of them.
    pub(super) offset_s: f64,
    /// Gauges are means of so many seconds; 0 for the instant.
    pub(super) gauge_window_s: f64,
    /// Window of NVML's utilization in seconds.
    pub(super) utilization_window_s: f64,
}

/// The collector of one node's GPU values.
#[derive(Clone, Debug)]
pub(super) struct GpuSampler {
    plan: SamplingPlan,
    next_s: f64,
    history: VecDeque<Observation>,
    /// The states at the collection before: profiling values are means since then.
    previous: Option<Observation>,
    latest: Option<GpuCollection>,
    collections: usize,
}

#[derive(Clone, Debug, Default)]
struct Observation {
    t_s: f64,
    gpus: Vec<GpuState>,
}

/// All GPUs of a node at one collection.
#[derive(Clone, Debug)]
pub(super) struct GpuCollection {
    /// Its number, from 0.
    pub(super) number: usize,
    /// The GPUs, in the order of the plan.
    pub(super) gpus: Vec<GpuSample>,
}

/// One GPU at one collection.
#[derive(Clone, Debug)]
pub(super) struct GpuSample {
    /// Counters, and values of the instant.
    pub(super) state: GpuState,
    /// Share of the utilization window in which a kernel ran.
    pub(super) utilization: f64,
    /// Share of the utilization window with memory traffic.
    pub(super) memory_utilization: f64,
    /// Power in watts.
    pub(super) power_w: f64,
    /// Temperature of the chip.
    pub(super) temperature_c: f64,
    /// Temperature of the memory.
    pub(super) memory_temperature_c: f64,
    /// SM clock in MHz.
    pub(super) sm_clock_mhz: f64,
    /// Means since the collection before; none at the first one.
    pub(super) profile: Option<GpuProfile>,
}

/// Means since the collection before: ratios, and bytes per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct GpuProfile {
    pub(super) engine_active: f64,
    pub(super) sm_active: f64,
    pub(super) tensor_active: f64,
    pub(super) dram_active: f64,
    pub(super) pcie_receive: f64,
    pub(super) pcie_transmit: f64,
    pub(super) nvlink_receive: f64,
    pub(super) nvlink_transmit: f64,
}

impl GpuSampler {
    pub(super) fn new(plan: SamplingPlan) -> Self {
        let next_s = plan.offset_s.rem_euclid(plan.period_s) - plan.period_s;
        let (history, latest) = (VecDeque::new(), None);
        Self { plan, next_s, history, previous: None, latest, collections: 0 }
    }

    /// The newest collection.
    pub(super) fn latest(&self) -> Option<&GpuCollection> {
        self.latest.as_ref()
    }

    /// Forgets all that it collected: the exporter starts anew at an instant, at which it collects first.
    pub(super) fn restart(&mut self, t_s: f64) {
        self.previous = None;
        self.latest = None;
        self.next_s = t_s;
    }

    /// Takes note of the GPUs at an instant, and collects if that is due and the exporter does not stand still; returns
    /// whether it was due.
    pub(super) fn observe(&mut self, t_s: f64, gpus: &[GpuState], is_still: bool) -> bool {
        if self.history.back().is_none_or(|last| t_s > last.t_s + SAME_INSTANT_S) {
            self.keep_state(t_s, gpus);
        }
        if t_s < self.next_s {
            return false;
        }
        let passed = ((t_s - self.next_s) / self.plan.period_s).floor() + 1.0;
        self.next_s += passed * self.plan.period_s;
        if !is_still {
            self.collect_values();
        }
        true
    }

    fn keep_state(&mut self, t_s: f64, gpus: &[GpuState]) {
        let oldest = t_s - self.plan.gauge_window_s.max(SHORTEST_HISTORY_S);
        let mut reused = Observation::default();
        // The newest state before the window stays: differences begin there.
        while self.history.get(1).is_some_and(|second| second.t_s <= oldest) {
            reused = self.history.pop_front().unwrap_or_default();
        }
        reused.t_s = t_s;
        reused.gpus.clear();
        reused.gpus.extend_from_slice(gpus);
        self.history.push_back(reused);
    }

    fn collect_values(&mut self) {
        let Some(now) = self.history.back() else { return };
        let mut gpus = Vec::with_capacity(now.gpus.len());
        for (index, state) in now.gpus.iter().enumerate() {
            gpus.push(self.sample_gpu(index, state, now.t_s));
        }
        let collection = GpuCollection { number: self.collections, gpus };
        self.previous = Some(now.clone());
        self.latest = Some(collection);
        self.collections += 1;
    }

    fn sample_gpu(&self, index: usize, state: &GpuState, t_s: f64) -> GpuSample {
        let (utilization, memory_utilization) = self.utilization_of(index, state, t_s);
        let profile = self.previous.as_ref().and_then(|previous| {
            GpuProfile::between(previous.gpus.get(index)?, state, t_s - previous.t_s)
        });
        let mean = |value: fn(&GpuState) -> f64| self.mean_of_window(index, t_s, value);
        GpuSample {
            utilization,
            memory_utilization,
            power_w: self.power_of(index, state, t_s),
            temperature_c: mean(|gpu| gpu.temperature_c),
            memory_temperature_c: mean(|gpu| gpu.memory_temperature_c),
            sm_clock_mhz: mean(|gpu| gpu.sm_clock_mhz),
            profile,
            state: state.clone(),
        }
    }

    /// The newest state that is at least this old, else the oldest one before now.
    fn state_before(&self, index: usize, t_s: f64, age_s: f64) -> Option<(f64, &GpuState)> {
        let earlier = self.history.iter().rev().skip(1);
        let found = earlier.clone().find(|state| state.t_s <= t_s - age_s + SAME_INSTANT_S);
        let found = found.or_else(|| earlier.last())?;
        Some((t_s - found.t_s, found.gpus.get(index)?))
    }

    fn utilization_of(&self, index: usize, state: &GpuState, t_s: f64) -> (f64, f64) {
        let window = self.plan.utilization_window_s;
        let Some((seconds, before)) = self.state_before(index, t_s, window) else {
            return (0.0, 0.0);
        };
        let busy = ratio_between(before.busy_s, state.busy_s, seconds);
        let dram = ratio_between(before.dram_active_s, state.dram_active_s, seconds);
        // NVML counts the time with any traffic, which is more than the share of the bandwidth.
        (busy, busy.min(dram * 1.4))
    }

    fn power_of(&self, index: usize, state: &GpuState, t_s: f64) -> f64 {
        let before = self.state_before(index, t_s, self.plan.gauge_window_s);
        before.map_or(0.0, |(seconds, before)| {
            ((state.energy_j - before.energy_j) / seconds).max(0.0)
        })
    }

    fn mean_of_window(&self, index: usize, t_s: f64, value: fn(&GpuState) -> f64) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for state in self.history.iter().rev() {
            if count > 0.0 && state.t_s <= t_s - self.plan.gauge_window_s {
                break;
            }
            if let Some(gpu) = state.gpus.get(index) {
                sum += value(gpu);
                count += 1.0;
            }
        }
        if count > 0.0 { sum / count } else { 0.0 }
    }
}

impl GpuProfile {
    /// The means between two states, if there is time between them.
    fn between(before: &GpuState, now: &GpuState, seconds: f64) -> Option<Self> {
        let rate = |before: f64, now: f64| ((now - before) / seconds).max(0.0);
        (seconds > SAME_INSTANT_S && before.is_present).then(|| Self {
            engine_active: ratio_between(before.engine_active_s, now.engine_active_s, seconds),
            sm_active: ratio_between(before.sm_active_s, now.sm_active_s, seconds),
            tensor_active: ratio_between(before.tensor_active_s, now.tensor_active_s, seconds),
            dram_active: ratio_between(before.dram_active_s, now.dram_active_s, seconds),
            pcie_receive: rate(before.pcie_receive_bytes, now.pcie_receive_bytes),
            pcie_transmit: rate(before.pcie_transmit_bytes, now.pcie_transmit_bytes),
            nvlink_receive: rate(before.nvlink_receive_bytes, now.nvlink_receive_bytes),
            nvlink_transmit: rate(before.nvlink_transmit_bytes, now.nvlink_transmit_bytes),
        })
    }
}

fn ratio_between(before_s: f64, now_s: f64, seconds: f64) -> f64 {
    ((now_s - before_s) / seconds).clamp(0.0, 1.0)
}
