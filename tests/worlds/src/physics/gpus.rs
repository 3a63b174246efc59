//! The GPUs of the nodes: their clocks, power and memory at an instant.

use super::{
    activity::{Activity, GpuRates, GpuSetting, capped_clock},
    board::{Board, board_of},
    heat::{GpuHeat, LOWEST_CLOCK},
    impairment::{GpuDamage, GpuImpairment},
    noise::Noise,
};
use crate::{
    cluster_plan::{GpuPlan, HostPlan},
    node_state::GpuState,
    random::RandomKey,
};

/// One GPU.
#[derive(Clone, Debug)]
pub(super) struct GpuRun {
    /// Its board.
    pub(super) board: &'static Board,
    /// Its heat.
    pub(super) heat: GpuHeat,
    /// What it does.
    pub(super) activity: Activity,
    /// The port that carries its traffic.
    pub(super) route: Option<usize>,
    /// Framebuffer in use.
    pub(super) memory_bytes: f64,
    /// Power of its job while it computes at full clock; 0 without a job.
    pub(super) demand_w: f64,
    /// Power limit.
    pub(super) limit_w: f64,
    /// Relative clock within the power limit.
    pub(super) cap_clock: f64,
    /// Whether nothing uses it.
    pub(super) is_free: bool,
    noise: Noise,
    wobble: f64,
    /// Clock within a power limit relative to other chips.
    chip_clock: f64,
    plan: GpuPlan,
    impairment: GpuImpairment,
    heat_energy_j: f64,
    lasting_offset: f64,
}

impl GpuRun {
    /// A GPU at rest and its first state.
    pub(super) fn new(
        plan: &GpuPlan,
        host: &HostPlan,
        impairment: GpuImpairment,
        key: RandomKey,
    ) -> (Self, GpuState) {
        let board = board_of(plan.model);
        let noise = Noise::new(key.child("noise"));
        let heat = GpuHeat::new(plan, host, board, noise);
        let uptime_s = key.child("uptime").log_uniform(1e5, 6e6);
        let used = key.child("used").uniform(0.1, 0.9);
        let state = GpuState {
            is_present: true,
            busy_s: uptime_s * used,
            engine_active_s: uptime_s * used * 0.9,
            sm_active_s: uptime_s * used * 0.5,
            tensor_active_s: uptime_s * used * 0.2,
            dram_active_s: uptime_s * used * 0.2,
            energy_j: uptime_s * board.power_w * (0.2 + 0.4 * used),
            temperature_c: heat.temperature_c,
            memory_temperature_c: heat.memory_c,
            memory_clock_mhz: board.memory_clock_mhz,
            power_violation_s: uptime_s * 0.05 * key.child("capped").unit(),
            pcie_receive_bytes: uptime_s * 1e8,
            pcie_transmit_bytes: uptime_s * 1e8,
            pcie_replays: key.child("replays").uniform(0.0, 12.0).floor(),
            pcie_generation: board.pcie_generation,
            pcie_lanes: 16,
            nvlink_receive_bytes: uptime_s * 1e9,
            nvlink_transmit_bytes: uptime_s * 1e9,
            ecc_corrected: key.child("corrected").uniform(0.0, 3.0).floor(),
            ..GpuState::default()
        };
        let run = Self {
            board,
            heat,
            activity: Activity::default(),
            route: None,
            memory_bytes: 0.0,
            demand_w: 0.0,
            limit_w: plan.power_limit_w,
            cap_clock: 1.0,
            is_free: true,
            noise,
            wobble: 1.0,
            chip_clock: 1.0,
            plan: plan.clone(),
            impairment,
            heat_energy_j: state.energy_j,
            lasting_offset: 1.0 + 0.012 * noise.normal(7),
        };
        (run, state)
    }

    /// Sets the power limit as a share of the planned one.
    pub(super) fn limit_power(&mut self, share: f64) {
        let limit_w = self.plan.power_limit_w * share;
        self.limit_w = limit_w.max(1.2 * self.board.context_w);
        self.cap_clock = capped_clock(self.board, self.demand_w, self.limit_w);
    }

    /// The clock while it computes at some temperature and impairment.
    pub(super) fn compute_clock(&self, impairment: &GpuImpairment) -> f64 {
        self.cap_clock.min(self.heat.clock).min(impairment.clock).max(LOWEST_CLOCK)
    }

    /// What an activity needs to know.
    pub(super) fn setting(&self, has_nvlink: bool, impairment: &GpuImpairment) -> GpuSetting {
        let top_clock = self.heat.clock.min(impairment.clock).max(LOWEST_CLOCK);
        GpuSetting {
            board: self.board,
            limit_w: self.limit_w,
            top_clock,
            compute_clock: top_clock.min(self.cap_clock),
            is_capped: self.cap_clock < top_clock,
            demand_w: self.demand_w,
            has_nvlink,
        }
    }

    /// Lets the heat follow the power since the last refresh, and forgets what it did.
    pub(super) fn begin(
        &mut self,
        state: &GpuState,
        impairment: GpuImpairment,
        (t_s, seconds): (f64, f64),
        inlet_k: f64,
    ) {
        if seconds > 0.0 {
            let power_w = (state.energy_j - self.heat_energy_j) / seconds;
            self.heat_energy_j = state.energy_j;
            self.heat.advance(seconds, power_w, inlet_k, impairment.resistance);
        }
        self.impairment = impairment;
        self.wobble = self.lasting_offset * (1.0 + 0.025 * self.noise.wave(t_s, 6.0));
        let hum = 0.008 * self.noise.of(1).wave(t_s, 3.0);
        self.chip_clock = self.plan.silicon_speed.min(1.02) * (1.0 + hum);
        self.route = None;
        self.is_free = true;
        self.memory_bytes = 0.0;
        let light = if self.plan.has_mig { 0.25 + 0.1 * self.noise.wave(t_s, 30.0) } else { 0.0 };
        let light = light.clamp(0.0, 0.6);
        let power_w = self.board.idle_w + light * 0.5 * (self.limit_w - self.board.idle_w);
        self.activity = Activity::constant(GpuRates {
            busy: light.sqrt(),
            engine: light,
            sm: 0.6 * light,
            tensor: 0.1 * light,
            dram: 0.3 * light,
            power_w,
            clock: if light > 0.0 { 1.0 } else { self.idle_clock() },
            ..GpuRates::default()
        });
        if self.plan.has_mig {
            self.memory_bytes = 0.4 * self.board.memory_bytes;
            self.is_free = false;
        }
    }

    fn idle_clock(&self) -> f64 {
        self.board.idle_clock_mhz / self.board.max_clock_mhz
    }

    /// Adds what happened in some seconds, in which the step goes on from one place to another; the bytes that went
    /// over the network.
    pub(super) fn integrate(
        &self,
        state: &mut GpuState,
        (from, to): (f64, f64),
        seconds: f64,
    ) -> f64 {
        if self.impairment.damage == Some(GpuDamage::Lost) {
            state.is_present = false;
            state.last_xid = 79;
            return 0.0;
        }
        state.is_present = true;
        let sum = self.activity.integrate(from, to, seconds);
        let wobble = self.wobble;
        state.busy_s += sum.busy.min(seconds);
        state.engine_active_s += sum.engine.min(seconds);
        state.sm_active_s += (sum.sm * wobble).min(0.99 * seconds);
        state.tensor_active_s += (sum.tensor * wobble).min(0.97 * seconds);
        state.dram_active_s += (sum.dram * wobble).min(0.97 * seconds);
        state.energy_j += sum.power_w * wobble.min(1.02);
        state.power_violation_s += sum.capped;
        if self.impairment.is_braked {
            state.power_violation_s += seconds - sum.capped;
        }
        if self.heat.is_throttling && self.heat.clock < 0.999 {
            state.thermal_violation_s += seconds;
        }
        state.pcie_receive_bytes += sum.pcie_in;
        state.pcie_transmit_bytes += sum.pcie_out;
        state.nvlink_receive_bytes += sum.link;
        state.nvlink_transmit_bytes += sum.link;
        state.temperature_c = self.heat.temperature_c;
        state.memory_temperature_c = self.heat.memory_c;
        state.memory_used_bytes = self.memory_bytes + 5.2e8;
        state.ecc_corrected += self.plan.corrected_errors_per_hour * seconds / 3_600.0;
        self.add_errors(state, &sum, seconds);
        let place = if to - from > 0.5 { None } else { Some(to.fract()) };
        self.show_instant(state, place);
        sum.network
    }

    /// Errors of links and memory.
    fn add_errors(&self, state: &mut GpuState, sum: &GpuRates, seconds: f64) {
        let wrong = &self.impairment;
        state.pcie_generation = self.board.pcie_generation;
        state.pcie_lanes = 16;
        if wrong.copy > 1.0 && wrong.replays {
            state.pcie_replays += 40.0 * (wrong.copy - 1.0).min(30.0) * seconds;
        } else if wrong.copy > 1.01 {
            // The lanes that remain, and a lower generation where even one of them is too much.
            let lanes =
                [8, 4, 2, 1].into_iter().find(|lanes| 16.0 / f64::from(*lanes) >= wrong.copy);
            state.pcie_lanes = lanes.unwrap_or(1);
            if lanes.is_none() {
                state.pcie_generation = 1;
            }
        }
        if wrong.has_link_errors {
            let gigabytes = sum.link / 1e9;
            state.nvlink_crc_errors +=
                (0.5 * seconds + 0.4 * gigabytes) * wrong.collective.min(20.0);
            state.nvlink_replays += (0.2 * seconds + 0.15 * gigabytes) * wrong.collective.min(20.0);
        }
        if wrong.damage == Some(GpuDamage::Memory) {
            if state.remapped_rows < 1.0 {
                state.remapped_rows += 1.0;
                state.ecc_uncorrected += 1.0;
                state.last_xid = if self.noise.unit(21) < 0.5 { 94 } else { 48 };
            }
            state.ecc_uncorrected += seconds / 90.0;
            state.ecc_corrected += seconds / 4.0;
        }
    }

    /// Shows an XID that an application caused.
    pub(super) fn show_application_xid(&self, state: &mut GpuState, t_s: f64) {
        if let Some((at_s, xid)) = self.plan.application_xid
            && t_s >= at_s
            && state.last_xid == 0
        {
            state.last_xid = xid;
        }
    }

    /// Clock and its reasons, at a place of the step or over many steps.
    fn show_instant(&self, state: &mut GpuState, place: Option<f64>) {
        let rates = place.map_or(&self.activity.mean, |place| self.activity.at(place));
        let clock_mhz = rates.clock * self.board.max_clock_mhz;
        let idle_mhz = self.board.idle_clock_mhz;
        // Slower chips need more voltage for a clock and get less of it within the same power.
        let chip = if rates.capped > 0.0 { self.chip_clock } else { 1.0 };
        let highest_mhz = self.board.max_clock_mhz;
        state.sm_clock_mhz =
            ((clock_mhz * chip / 15.0).round() * 15.0).clamp(idle_mhz, highest_mhz);
        state.memory_clock_mhz = self.board.memory_clock_mhz;
        let mut bits = 0;
        if self.is_free || rates.busy < 0.005 {
            bits |= 0x1;
        }
        if rates.capped > 0.25 {
            bits |= 0x4;
        }
        if self.heat.is_throttling && self.heat.clock < 0.999 {
            bits |= 0x20;
            if self.heat.is_slowed_by_hardware() {
                bits |= 0x48;
            }
        }
        if self.impairment.is_braked {
            bits |= 0x88;
        }
        state.clock_event_bits = bits;
    }
}
