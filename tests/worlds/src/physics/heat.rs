//! Heat: a first-order lag from power to temperature, and a clock that falls when a chip is too hot.

use super::{board::Board, noise::Noise};
use crate::cluster_plan::{GpuPlan, HostPlan};

/// Relative clock lost for each kelvin above the limit.
const CLOCK_PER_K: f64 = 0.1;
/// Kelvins below the limit at which throttling ends.
const HYSTERESIS_K: f64 = 2.0;
/// Kelvins above the limit at which the hardware takes over from the driver.
const HARDWARE_K: f64 = 5.0;
/// Seconds in which a healthy chip follows its power.
const HEALTHY_LAG_S: f64 = 28.0;
/// Lowest relative clock.
pub(super) const LOWEST_CLOCK: f64 = 0.05;

/// The heat of one GPU.
#[derive(Clone, Debug)]
pub(super) struct GpuHeat {
    /// Temperature in °C.
    pub(super) temperature_c: f64,
    /// Memory temperature in °C.
    pub(super) memory_c: f64,
    /// Highest relative clock at this temperature.
    pub(super) clock: f64,
    /// Whether it throttles.
    pub(super) is_throttling: bool,
    /// Temperature at which it begins to throttle.
    limit_c: f64,
    /// Temperature of the air at its slot, with the inlet at its mean.
    slot_c: f64,
    resistance: f64,
    memory_extra_c: f64,
}

impl GpuHeat {
    /// A GPU at rest. A slot is never so hot that a healthy GPU throttles.
    pub(super) fn new(plan: &GpuPlan, host: &HostPlan, board: &Board, noise: Noise) -> Self {
        let rise_k = 41.0 + 3.5 * noise.normal(1);
        let limit_c = board.throttle_c;
        let highest_c = limit_c - 5.0 - rise_k - host.inlet_wave.0.abs();
        let slot_c = (host.inlet_c + plan.hotter_c).min(highest_c);
        let resistance = rise_k / board.power_w;
        let temperature_c = slot_c + resistance * board.context_w;
        let memory_extra_c = 6.0 + 5.0 * noise.unit(2);
        let memory_c = temperature_c + memory_extra_c;
        let clock = 1.0;
        Self {
            temperature_c,
            memory_c,
            clock,
            is_throttling: false,
            limit_c,
            slot_c,
            resistance,
            memory_extra_c,
        }
    }

    /// The thermal resistance at which a chip of so much mean power settles at a relative clock.
    pub(super) fn resistance_for(&self, clock: f64, mean_power_w: f64) -> f64 {
        let settled_c = self.limit_c + (1.0 - clock) / CLOCK_PER_K;
        (settled_c - self.slot_c) / mean_power_w.max(1.0)
    }

    /// Sets the temperature that a chip of so much power has after a long time.
    pub(super) fn settle(&mut self, power_w: f64) {
        self.temperature_c = self.slot_c + self.resistance * power_w;
        self.memory_c = self.temperature_c + self.memory_extra_c;
    }

    /// Goes on for some seconds at a mean power, with the inlet so much above its mean.
    pub(super) fn advance(
        &mut self,
        seconds: f64,
        power_w: f64,
        inlet_k: f64,
        broken: Option<f64>,
    ) {
        let resistance = broken.map_or(self.resistance, |broken| broken.max(self.resistance));
        let lag_s = HEALTHY_LAG_S * resistance / self.resistance;
        let target_c = self.slot_c + inlet_k + resistance * power_w;
        let follow = 1.0 - (-seconds / lag_s).exp();
        self.temperature_c += (target_c - self.temperature_c) * follow;
        let memory_c = self.temperature_c + self.memory_extra_c;
        self.memory_c += (memory_c - self.memory_c) * (1.0 - (-seconds / 12.0).exp());
        if self.temperature_c > self.limit_c {
            self.is_throttling = true;
        } else if self.temperature_c < self.limit_c - HYSTERESIS_K {
            self.is_throttling = false;
        }
        let above_k = (self.temperature_c - self.limit_c).max(0.0);
        let clock = (1.0 - CLOCK_PER_K * above_k).max(LOWEST_CLOCK);
        self.clock += (clock - self.clock) * (1.0 - (-seconds / 2.0).exp());
        if !self.is_throttling {
            self.clock = 1.0;
        }
    }

    /// Whether the hardware itself slows the chip down.
    pub(super) fn is_slowed_by_hardware(&self) -> bool {
        self.temperature_c > self.limit_c + HARDWARE_K
    }
}
