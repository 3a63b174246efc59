//! Model of one GPU: its activity in each phase of a step, and the resulting sensor values.
//!
//! The figures are those of an 80 GB GPU with a limit of 700 W, from public measurements; other models are scaled from
//! it.

use crate::noise_key::NoiseKey;

/// A GPU model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GpuModel {
    pub(crate) name: &'static str,
    pub(crate) memory_bytes: f64,
    /// Enforced power limit.
    pub(crate) limit_watts: f64,
    /// Maximum SM clock.
    pub(crate) clock_max_hertz: f64,
    /// Compute speed relative to the default model.
    pub(crate) speed: f64,
    /// Whether the driver reports profiling counters; for older models only DCGM does.
    pub(crate) profiled: bool,
    /// Number of NVLinks.
    pub(crate) nvlinks: usize,
    /// PCIe link generation.
    pub(crate) pcie_generation: f64,
}

const GIB: f64 = 1_073_741_824.0;

/// The default model.
pub(crate) const USUAL: GpuModel = GpuModel {
    name: "NVIDIA H100 80GB HBM3",
    memory_bytes: 80.0 * GIB,
    limit_watts: 700.0,
    clock_max_hertz: 1_980e6,
    speed: 1.0,
    profiled: true,
    nvlinks: 18,
    pcie_generation: 5.0,
};

/// The same with more memory.
pub(crate) const LARGER: GpuModel =
    GpuModel { name: "NVIDIA H200", memory_bytes: 141.0 * GIB, speed: 1.05, ..USUAL };

/// A newer generation.
pub(crate) const NEWER: GpuModel = GpuModel {
    name: "NVIDIA B200",
    memory_bytes: 180.0 * GIB,
    limit_watts: 1_000.0,
    clock_max_hertz: 1_965e6,
    speed: 1.9,
    ..USUAL
};

/// The model of tray nodes; a rack of them is one NVLink domain.
pub(crate) const TRAY: GpuModel =
    GpuModel { name: "NVIDIA GB200", memory_bytes: 186.0 * GIB, limit_watts: 1_200.0, ..NEWER };

/// An older generation that is used together with the default model.
pub(crate) const OLDER: GpuModel = GpuModel {
    name: "NVIDIA A100-SXM4-80GB",
    memory_bytes: 80.0 * GIB,
    limit_watts: 400.0,
    clock_max_hertz: 1_410e6,
    speed: 0.55,
    profiled: false,
    nvlinks: 12,
    pcie_generation: 4.0,
};

/// Share of the maximum clock while full load keeps the GPU near its power limit.
const CLOCK_LOADED: f64 = 1_755.0 / 1_980.0;
/// SM clock of a GPU without a context.
const CLOCK_IDLE_HERTZ: f64 = 345e6;

/// Time constant of power: the sensor averages and capacitors smooth over about a second.
const POWER_INERTIA_S: f64 = 0.8;
/// Time constant of the die temperature, which follows power.
const HEAT_INERTIA_S: f64 = 12.0;
/// Thermal resistance from the coolant to the die, in kelvin per watt.
const KELVIN_PER_WATT: f64 = 0.052;

/// The phases of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GpuPhase {
    /// Not allocated.
    Free,
    /// A process has a context and launches no kernels.
    Held,
    /// Its job runs and waits for the next batch.
    Gap,
    /// The batch is copied over PCIe.
    Copy,
    /// It computes and exchanges activations with the other GPUs of its node.
    Compute,
    /// It busy-waits in a collective until the last rank arrives.
    Wait,
    /// Gradients are exchanged.
    Communicate,
    /// It evaluates: forward passes only, small batches, mostly memory-bound.
    Evaluate,
    /// It serves inference requests, which mostly reads weights.
    Decode,
}

impl GpuPhase {
    /// All phases, in the order of their numbers.
    pub(crate) const ALL: [Self; 9] = [
        Self::Free,
        Self::Held,
        Self::Gap,
        Self::Copy,
        Self::Compute,
        Self::Wait,
        Self::Communicate,
        Self::Evaluate,
        Self::Decode,
    ];
}

/// What differs from normal operation on a GPU for one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GpuCondition {
    /// Factor on the normal SM clock.
    pub(crate) clock: f64,
    /// Share of the time in which it has work.
    pub(crate) duty: f64,
    /// Factor on the normal copy time.
    pub(crate) copy: f64,
    /// Factor on the normal time of exchanges over NVLink.
    pub(crate) nvlink: f64,
    /// Factor by which its number of NVLinks is lower.
    pub(crate) nvlink_lost: f64,
    /// PCIe replays per second of copying.
    pub(crate) replays: f64,
    /// Factor on the normal time of gradient exchange.
    pub(crate) network: f64,
    /// Degrees by which its coolant is too warm.
    pub(crate) warm_kelvin: f64,
    /// Whether an administrator has set a power cap.
    pub(crate) capped: bool,
}

impl GpuCondition {
    pub(crate) const USUAL: Self = Self {
        clock: 1.0,
        duty: 1.0,
        copy: 1.0,
        nvlink: 1.0,
        nvlink_lost: 1.0,
        replays: 0.0,
        network: 1.0,
        warm_kelvin: 0.0,
        capped: false,
    };
}

/// Hardware activity in a phase: shares of time, bytes per second, watts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PhaseActivity {
    pub(crate) utilization: f64,
    pub(crate) memory: f64,
    pub(crate) sm: f64,
    pub(crate) tensor: f64,
    pub(crate) dram: f64,
    pub(crate) nvlink: f64,
    pub(crate) pcie_receive: f64,
    pub(crate) pcie_transmit: f64,
    /// PCIe replays, NVLink replays and thermal slowdown time, each per second.
    pub(crate) pcie_replays: f64,
    pub(crate) nvlink_replays: f64,
    pub(crate) thermal: f64,
    pub(crate) watts: f64,
}

/// The load that a job puts on a GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuLoadProfile {
    /// Share of tensor cycles while it computes.
    pub(crate) tensor: f64,
    /// Bytes per second over PCIe while a batch is copied.
    pub(crate) copy_rate: f64,
    /// Bytes per second over NVLink, in each direction, while gradients are exchanged.
    pub(crate) gradient_rate: f64,
}

impl GpuPhase {
    #[rustfmt::skip]
    pub(crate) fn phase_activity(self, drive: &GpuLoadProfile) -> PhaseActivity {
        let base = PhaseActivity::default();
        match self {
            Self::Free => PhaseActivity { watts: 68.0, ..base },
            Self::Held => PhaseActivity { watts: 76.0, ..base },
            Self::Gap => PhaseActivity { watts: 118.0, ..base },
            Self::Copy => PhaseActivity {
                memory: 0.3, dram: 0.02, pcie_receive: drive.copy_rate, pcie_transmit: 40e6, watts: 130.0, ..base
            },
            Self::Compute => PhaseActivity {
                utilization: 1.0, memory: 0.52, sm: 0.86, tensor: drive.tensor, dram: 0.38,
                nvlink: 60e9, pcie_receive: 90e6, pcie_transmit: 60e6, watts: 655.0, ..base
            },
            // A waiting collective keeps a few of the 132 SMs busy-waiting and reports 100 % utilization.
            Self::Wait => PhaseActivity {
                utilization: 1.0, memory: 0.02, sm: SPINNING_SM, dram: 0.012,
                pcie_receive: 4e6, pcie_transmit: 4e6, watts: SPINNING_WATTS, ..base
            },
            Self::Communicate => PhaseActivity {
                utilization: 1.0, memory: 0.33, sm: 0.19, dram: 0.21,
                nvlink: drive.gradient_rate, pcie_receive: 60e6, pcie_transmit: 60e6, watts: 370.0, ..base
            },
            Self::Evaluate => PhaseActivity {
                utilization: 0.97, memory: 0.44, sm: 0.58, tensor: 0.12 * drive.tensor, dram: 0.36,
                nvlink: 12e9, pcie_receive: 70e6, pcie_transmit: 50e6, watts: 390.0, ..base
            },
            Self::Decode => PhaseActivity {
                utilization: 1.0, memory: 0.55, sm: 0.42, tensor: 0.05, dram: 0.58,
                nvlink: 9e9, pcie_receive: 20e6, pcie_transmit: 20e6, watts: 340.0, ..base
            },
        }
    }

    /// The SM clock in this phase.
    pub(crate) fn clock_hertz(self, model: &GpuModel, condition: &GpuCondition) -> f64 {
        let loaded = model.clock_max_hertz * CLOCK_LOADED;
        let clock = match self {
            Self::Free => CLOCK_IDLE_HERTZ,
            Self::Compute => loaded,
            _ => model.clock_max_hertz,
        };
        if condition.clock < 1.0 { clock.min(loaded * condition.clock) } else { clock }
    }
}

impl PhaseActivity {
    /// The same activity under this condition. Cycles are counted by the actual clock, so a slow clock leaves shares
    /// unchanged and lowers power; a GPU that gets less work is active for part of the time.
    pub(crate) fn under_condition(mut self, phase: GpuPhase, condition: &GpuCondition) -> Self {
        self.thermal = f64::from(condition.warm_kelvin > 0.0);
        match phase {
            GpuPhase::Compute => {
                let traded = 1.0 / (1.0 + TRADED * (condition.nvlink - 1.0));
                let work_share = condition.duty * traded;
                self.utilization *= (0.3 + 0.7 * condition.duty).min(1.0);
                for share in [&mut self.memory, &mut self.sm, &mut self.tensor, &mut self.dram] {
                    *share *= work_share;
                }
                self.nvlink *= work_share;
                // A rank that waits for an exchange busy-waits.
                self.sm += SPINNING_SM * condition.duty * (1.0 - traded);
                if condition.nvlink_lost > 1.0 {
                    self.nvlink_replays = NVLINK_REPLAYS;
                }
                let floor_watts = 190.0_f64.min(self.watts);
                self.watts = floor_watts
                    + (self.watts - floor_watts) * work_share * condition.clock.powf(1.4);
            }
            GpuPhase::Copy => {
                self.pcie_receive /= condition.copy;
                self.pcie_replays = condition.replays;
                self.memory /= condition.copy;
                self.dram /= condition.copy;
            }
            // The same bytes in more time; in between the collective busy-waits.
            GpuPhase::Communicate => {
                let share_moved = 1.0 / condition.network;
                for share in [&mut self.memory, &mut self.dram, &mut self.nvlink] {
                    *share *= share_moved;
                }
                self.watts = SPINNING_WATTS + (self.watts - SPINNING_WATTS) * share_moved;
            }
            _ => {}
        }
        self
    }
}

/// Power of a collective that only busy-waits, and the share of SMs that it keeps busy.
const SPINNING_WATTS: f64 = 232.0;
const SPINNING_SM: f64 = 0.16;

/// NVLink replays per second of computing on a GPU with faulty NVLinks.
const NVLINK_REPLAYS: f64 = 35.0;

/// Share of the computing time in which the GPUs of a node exchange activations.
pub(crate) const TRADED: f64 = 0.2;

/// Manufacturing and cooling differences between a GPU and its neighbours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuVariation {
    pub(crate) model: GpuModel,
    /// Factor on the default model's average power for the same work.
    pub(crate) power: f64,
    /// Coolant temperature at this GPU, in degrees Celsius.
    pub(crate) coolant_celsius: f64,
}

impl GpuVariation {
    pub(crate) fn new(noise: NoiseKey, position: usize, model: GpuModel) -> Self {
        let warmed = position as f64 * 0.4;
        Self {
            model,
            power: noise.child_key(0).random_factor(0.03) * model.limit_watts / USUAL.limit_watts,
            coolant_celsius: noise.child_key(1).random_between(27.0, 29.0) + warmed,
        }
    }
}

/// All counters of a GPU, and the two sensors with inertia.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct GpuMeters {
    pub(crate) utilization_s: f64,
    pub(crate) memory_s: f64,
    pub(crate) sm_s: f64,
    pub(crate) tensor_s: f64,
    pub(crate) dram_s: f64,
    pub(crate) energy_joules: f64,
    pub(crate) pcie_receive_bytes: f64,
    pub(crate) pcie_transmit_bytes: f64,
    pub(crate) nvlink_bytes: f64,
    pub(crate) pcie_replays: f64,
    pub(crate) nvlink_replays: f64,
    /// Thermal slowdown time.
    pub(crate) thermal_s: f64,
    pub(crate) power_watts: f64,
    pub(crate) temperature_celsius: f64,
}

impl GpuMeters {
    /// The counters of a GPU that has been idle since its node booted `uptime` seconds ago.
    pub(crate) fn after_boot(noise: NoiseKey, variation: &GpuVariation, uptime: f64) -> Self {
        let used = uptime * noise.child_key(2).random_between(0.4, 0.8);
        let watts = 68.0 * variation.power;
        Self {
            utilization_s: used,
            memory_s: used * 0.41,
            sm_s: used * 0.66,
            tensor_s: used * 0.31,
            dram_s: used * 0.30,
            energy_joules: used * 520.0,
            pcie_receive_bytes: used * 2.1e8,
            pcie_transmit_bytes: used * 6.0e7,
            nvlink_bytes: used * 1.1e9,
            pcie_replays: noise.child_key(3).random_below(30) as f64,
            nvlink_replays: noise.child_key(4).random_below(9).saturating_sub(6) as f64,
            thermal_s: 0.0,
            power_watts: watts,
            temperature_celsius: variation.coolant_celsius + KELVIN_PER_WATT * watts,
        }
    }

    /// Advances by `span` seconds of one activity.
    pub(crate) fn run(&mut self, activity: &PhaseActivity, variation: &GpuVariation, span: f64) {
        if span <= 0.0 {
            return;
        }
        self.utilization_s += activity.utilization * span;
        self.memory_s += activity.memory * span;
        self.sm_s += activity.sm * span;
        self.tensor_s += activity.tensor * span;
        self.dram_s += activity.dram * span;
        self.pcie_receive_bytes += activity.pcie_receive * span;
        self.pcie_transmit_bytes += activity.pcie_transmit * span;
        self.nvlink_bytes += activity.nvlink * span;
        self.pcie_replays += activity.pcie_replays * span;
        self.nvlink_replays += activity.nvlink_replays * span;
        self.thermal_s += activity.thermal * span;
        self.update_sensors(activity.watts * variation.power, variation, span);
    }

    /// Power approaches `target` exponentially and the die temperature follows power. Both are solved exactly, so that
    /// the result does not depend on how time is divided into steps.
    fn update_sensors(&mut self, target: f64, variation: &GpuVariation, span: f64) {
        let excess = self.power_watts - target;
        let power_decay = (-span / POWER_INERTIA_S).exp();
        let heat_decay = (-span / HEAT_INERTIA_S).exp();
        let settled = variation.coolant_celsius + KELVIN_PER_WATT * target;
        let power_term = KELVIN_PER_WATT * excess / (1.0 - HEAT_INERTIA_S / POWER_INERTIA_S);
        self.energy_joules += target * span + excess * POWER_INERTIA_S * (1.0 - power_decay);
        self.temperature_celsius = settled
            + power_term * power_decay
            + (self.temperature_celsius - settled - power_term) * heat_decay;
        self.power_watts = target + excess * power_decay;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensors_do_not_depend_on_where_time_is_cut() {
        let variation = GpuVariation { model: USUAL, power: 1.0, coolant_celsius: 30.0 };
        let drive = GpuLoadProfile { tensor: 0.5, copy_rate: 5e9, gradient_rate: 2e11 };
        let busy = GpuPhase::Compute.phase_activity(&drive);
        let start =
            GpuMeters { power_watts: 70.0, temperature_celsius: 34.0, ..GpuMeters::default() };
        let (mut once, mut in_parts) = (start, start);
        once.run(&busy, &variation, 8.0);
        for _ in 0..80 {
            in_parts.run(&busy, &variation, 0.1);
        }
        let close = |left: f64, right: f64| (left - right).abs() < 1e-6 * left.abs().max(1.0);
        assert!(close(once.temperature_celsius, in_parts.temperature_celsius));
        assert!(close(once.power_watts, in_parts.power_watts));
        assert!(close(once.energy_joules, in_parts.energy_joules));
        assert!(once.power_watts > 650.0 && once.temperature_celsius < 55.0, "{once:?}");
    }
}
