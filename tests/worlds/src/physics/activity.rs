//! What a GPU does within a step: rates of its counters from one part of the step to the next.

use super::{
    board::Board,
    gang::{GangModel, RankTimes, StepTimes},
};
use crate::job_plan::StepPlan;

/// Rates of the counters of a GPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GpuRates {
    /// A kernel runs.
    pub(super) busy: f64,
    /// The compute engine is active.
    pub(super) engine: f64,
    /// SMs have warps.
    pub(super) sm: f64,
    /// The tensor pipe works.
    pub(super) tensor: f64,
    /// The memory interface works.
    pub(super) dram: f64,
    /// Power in watts.
    pub(super) power_w: f64,
    /// Bytes per second over PCIe to the GPU.
    pub(super) pcie_in: f64,
    /// Bytes per second over PCIe from the GPU.
    pub(super) pcie_out: f64,
    /// Bytes per second over NVLink, each direction.
    pub(super) link: f64,
    /// Bytes per second over the network, each direction.
    pub(super) network: f64,
    /// Relative clock.
    pub(super) clock: f64,
    /// Share of time limited by power.
    pub(super) capped: f64,
}

impl GpuRates {
    /// Adds other rates for some share of the time.
    pub(super) fn add(&mut self, other: &Self, share: f64) {
        self.busy += other.busy * share;
        self.engine += other.engine * share;
        self.sm += other.sm * share;
        self.tensor += other.tensor * share;
        self.dram += other.dram * share;
        self.power_w += other.power_w * share;
        self.pcie_in += other.pcie_in * share;
        self.pcie_out += other.pcie_out * share;
        self.link += other.link * share;
        self.network += other.network * share;
        self.clock += other.clock * share;
        self.capped += other.capped * share;
    }
}

/// Parts of a step: waiting for input, preparing, working, waiting for others, exchanging.
pub(super) const PARTS: usize = 5;

/// What a GPU does within a step, or all the time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Activity {
    /// Share of the step at which each part ends.
    pub(super) ends: [f64; PARTS],
    /// Rates in each part.
    pub(super) rates: [GpuRates; PARTS],
    /// Mean rates.
    pub(super) mean: GpuRates,
    /// The gang whose steps it follows.
    pub(super) gang: Option<usize>,
}

impl Activity {
    /// The same all the time.
    pub(super) fn constant(rates: GpuRates) -> Self {
        Self { mean: rates, ..Self::default() }
    }

    /// Parts of a step with their durations.
    fn of_parts(durations: [f64; PARTS], rates: &[GpuRates; PARTS], gang: usize) -> Self {
        let total: f64 = durations.iter().sum();
        let mut activity = Self { rates: *rates, gang: Some(gang), ..Self::default() };
        let mut end = 0.0;
        for (part, duration) in durations.into_iter().enumerate() {
            end += duration / total;
            activity.ends[part] = end;
            activity.mean.add(&rates[part], duration / total);
        }
        activity.ends[PARTS - 1] = 1.0;
        activity
    }

    /// The rates at some place of a step.
    pub(super) fn at(&self, place: f64) -> &GpuRates {
        if self.gang.is_none() {
            return &self.mean;
        }
        let part = self.ends.iter().position(|end| place < *end).unwrap_or(PARTS - 1);
        &self.rates[part]
    }

    /// The integral of the rates over so many seconds, in which the step goes on from one place to another.
    pub(super) fn integrate(&self, from: f64, to: f64, seconds: f64) -> GpuRates {
        let mut sum = GpuRates::default();
        let steps = to - from;
        if self.gang.is_none() || steps > 8.0 {
            sum.add(&self.mean, seconds);
            return sum;
        }
        if steps <= 1e-12 {
            sum.add(self.at(from.fract()), seconds);
            return sum;
        }
        let mut step = from.floor();
        while step < to {
            let mut begin = 0.0;
            for (end, rates) in self.ends.iter().zip(&self.rates) {
                let share = (step + end).min(to) - (step + begin).max(from);
                if share > 0.0 {
                    sum.add(rates, seconds * share / steps);
                }
                begin = *end;
            }
            step += 1.0;
        }
        sum
    }
}

/// How a job uses its GPUs, beyond its plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobHabits {
    /// SMs with warps while it computes.
    pub(super) compute_sm: f64,
    /// SMs with warps while it waits or exchanges.
    pub(super) collective_sm: f64,
    /// Power of spinning above that of an idle program, as a share of the rest.
    pub(super) spin_power: f64,
    /// Whether waiting ranks spin.
    pub(super) spins: bool,
    /// Processor time of a rank's main thread while its GPU is busy.
    pub(super) thread_busy: f64,
    /// Share of the processors that its loaders use at full pace.
    pub(super) loader_cpus: f64,
    /// Used share of the framebuffer.
    pub(super) memory_share: f64,
    /// Seconds from its start to its first step.
    pub(super) startup_s: f64,
    /// Speed of its loaders relative to its pace.
    pub(super) loader_headroom: f64,
    /// Speed of its storage relative to its pace.
    pub(super) storage_headroom: f64,
    /// Seconds of a turn of an alternating job.
    pub(super) turn_s: f64,
}

/// A GPU as an activity needs it.
#[derive(Clone, Copy)]
pub(super) struct GpuSetting {
    /// Its board.
    pub(super) board: &'static Board,
    /// Power limit.
    pub(super) limit_w: f64,
    /// Highest relative clock, whatever limits it but power.
    pub(super) top_clock: f64,
    /// Relative clock while it computes.
    pub(super) compute_clock: f64,
    /// Whether power limits that clock.
    pub(super) is_capped: bool,
    /// Power while it computes at full clock.
    pub(super) demand_w: f64,
    /// Whether NVLink joins the node's GPUs.
    pub(super) has_nvlink: bool,
}

impl GpuSetting {
    /// Power while it computes.
    pub(super) fn compute_w(&self) -> f64 {
        let context_w = self.board.context_w;
        let power_w = context_w + (self.demand_w - context_w) * self.compute_clock.powf(2.2);
        power_w.clamp(context_w, self.limit_w.max(context_w))
    }

    /// Power at a share of what is above an idle program.
    pub(super) fn partial_w(&self, share: f64) -> f64 {
        let context_w = self.board.context_w;
        let full_w = self.limit_w.max(context_w) - context_w;
        context_w + full_w * share * self.top_clock.sqrt()
    }

    /// A program is loaded and nothing runs.
    pub(super) fn resting(&self) -> GpuRates {
        GpuRates { power_w: self.board.context_w, clock: self.top_clock, ..GpuRates::default() }
    }

    /// Waiting for others.
    pub(super) fn waiting(&self, habits: &JobHabits) -> GpuRates {
        if !habits.spins {
            return GpuRates { power_w: self.partial_w(0.02), ..self.resting() };
        }
        GpuRates {
            busy: 1.0,
            engine: 0.99,
            sm: habits.collective_sm,
            dram: 0.004,
            power_w: self.partial_w(habits.spin_power),
            clock: self.top_clock,
            ..GpuRates::default()
        }
    }
}

/// The clock at which a load of so much power at full clock stays within a limit.
pub(super) fn capped_clock(board: &Board, demand_w: f64, limit_w: f64) -> f64 {
    if demand_w <= limit_w {
        return 1.0;
    }
    let share = (limit_w - board.context_w).max(1.0) / (demand_w - board.context_w).max(1.0);
    share.powf(1.0 / 2.2).clamp(0.1, 1.0)
}

/// A step as one rank lives it.
pub(super) struct RankStep<'a> {
    /// The gang's number.
    pub(super) gang: usize,
    /// The gang.
    pub(super) model: &'a GangModel,
    /// Its plan.
    pub(super) plan: &'a StepPlan,
    /// Its habits.
    pub(super) habits: &'a JobHabits,
    /// The step of the gang, before it waits for input.
    pub(super) step: &'a StepTimes,
    /// Duration of the step.
    pub(super) total_s: f64,
    /// Part of it in which this rank waits for input.
    pub(super) starved_s: f64,
    /// Whether it only generates, without learning.
    pub(super) rolls_out: bool,
}

impl RankStep<'_> {
    /// What the GPU of this rank does.
    pub(super) fn activity(&self, times: &RankTimes, gpu: &GpuSetting) -> Activity {
        let exposed_s = self.step.exposed_s;
        let own_s = times.own_s();
        let wait_s = (self.total_s - self.starved_s - own_s - exposed_s).max(0.0);
        let lead_s = times.lead_s + times.copy_s;
        let work_s = own_s - lead_s;
        let hidden_share =
            if self.step.network_s > 0.0 { 1.0 - exposed_s / self.step.network_s } else { 0.0 };
        let bytes = if times.route.is_some() { self.step.network_bytes } else { 0.0 };
        let hidden = bytes * hidden_share / work_s.max(1e-9);
        let exposed = bytes * (1.0 - hidden_share) / exposed_s.max(1e-9);
        let rates = [
            gpu.resting(),
            self.preparing(times, gpu, lead_s),
            self.working(times, gpu, work_s, hidden),
            gpu.waiting(self.habits),
            self.exchanging(gpu, if exposed_s > 0.0 { exposed } else { 0.0 }),
        ];
        let durations = [self.starved_s, lead_s, work_s, wait_s, exposed_s];
        Activity::of_parts(durations, &rates, self.gang)
    }

    /// Copies and the host's preparations.
    fn preparing(&self, times: &RankTimes, gpu: &GpuSetting, lead_s: f64) -> GpuRates {
        let bytes = self.model.copy_s * 0.7 * gpu.board.pcie_bytes_per_s;
        let copy_share = times.copy_s / lead_s.max(1e-9);
        GpuRates {
            busy: 0.03,
            engine: 0.02,
            sm: 0.005,
            dram: 0.02 * copy_share,
            power_w: gpu.partial_w(0.03 + 0.03 * copy_share),
            pcie_in: 0.85 * bytes / lead_s.max(1e-9),
            pcie_out: 0.15 * bytes / lead_s.max(1e-9),
            ..gpu.resting()
        }
    }

    /// Compute, collectives inside the node, gaps between kernels.
    fn working(&self, times: &RankTimes, gpu: &GpuSetting, work_s: f64, hidden: f64) -> GpuRates {
        let share = |seconds: f64| seconds / work_s.max(1e-9);
        let slowed = (self.model.compute_s / times.compute_s.max(1e-9)).min(1.0);
        let (tensor, dram) = if self.rolls_out {
            (0.15 * self.plan.tensor_share, self.plan.memory_share.max(0.55))
        } else {
            (self.plan.tensor_share, self.plan.memory_share)
        };
        let mut sum = GpuRates::default();
        let compute = GpuRates {
            busy: 1.0,
            engine: 0.995,
            sm: self.habits.compute_sm,
            tensor,
            dram: dram * slowed.sqrt(),
            power_w: gpu.compute_w() * if self.rolls_out { 0.8 } else { 1.0 },
            clock: gpu.compute_clock,
            capped: f64::from(u8::from(gpu.is_capped)),
            ..GpuRates::default()
        };
        sum.add(&compute, share(times.compute_s));
        let moving = self.model.collective_s / times.collective_s.max(1e-9);
        let collective = GpuRates {
            busy: 1.0,
            engine: 0.99,
            sm: self.habits.collective_sm + 0.08 * moving,
            dram: 0.18 * moving,
            power_w: gpu.partial_w(0.22 + 0.14 * moving),
            clock: gpu.top_clock,
            ..GpuRates::default()
        };
        sum.add(&collective, share(times.collective_s));
        let gap = GpuRates {
            busy: 0.35,
            engine: 0.3,
            sm: 0.03,
            power_w: gpu.partial_w(0.08),
            clock: gpu.top_clock,
            ..GpuRates::default()
        };
        sum.add(&gap, share(times.gap_s));
        sum.add(&gpu.waiting(self.habits), share(times.group_wait_s));
        add_links(&mut sum, gpu, share(self.model.collective_s));
        sum.network = hidden;
        sum.pcie_in += hidden + 12e6;
        sum.pcie_out += hidden + 8e6;
        sum
    }

    /// Collectives over the network that nothing hides.
    fn exchanging(&self, gpu: &GpuSetting, bytes_per_s: f64) -> GpuRates {
        let moving = (bytes_per_s / 50e9).min(1.0);
        GpuRates {
            busy: 1.0,
            engine: 0.99,
            sm: self.habits.collective_sm + 0.03 * moving,
            dram: 0.01 + 0.12 * moving,
            power_w: gpu.partial_w(self.habits.spin_power.max(0.12) + 0.12 * moving),
            pcie_in: bytes_per_s,
            pcie_out: bytes_per_s,
            network: bytes_per_s,
            clock: gpu.top_clock,
            ..GpuRates::default()
        }
    }
}

/// Adds the bytes of collectives inside the node, which take a share of the time.
fn add_links(rates: &mut GpuRates, gpu: &GpuSetting, share: f64) {
    if gpu.has_nvlink && gpu.board.link_bytes_per_s > 0.0 {
        rates.link = share * 0.65 * gpu.board.link_bytes_per_s;
    } else {
        rates.pcie_in = share * 0.5 * gpu.board.pcie_bytes_per_s;
        rates.pcie_out = rates.pcie_in;
    }
}
