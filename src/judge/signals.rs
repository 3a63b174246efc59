//! The signals of one GPU: averages of what its columns say, ready for the table of states.

use std::time::Duration;

use gaunt_schema::{
    Class, MetricId, UnixMs,
    catalogue::{gpu, gpu_health, port},
};

use super::{
    Thresholds,
    average::{Average, Stamp, Tick},
    baseline::{Baseline, Moment, Worse},
    boards,
};
use crate::cluster::{Cluster, Node};

/// What the table of states looks at; none where it is not known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signals {
    /// Whether somebody holds the GPU.
    pub(super) allocated: Option<bool>,
    /// Whether its job has other GPUs that it could wait for.
    pub(super) gang: bool,
    pub(super) utilization: Option<f64>,
    /// Share of samples in which it did something.
    pub(super) active: Option<f64>,
    /// Seconds since it last began to do something after a sample in which it did nothing.
    pub(super) since_active_again: Option<f64>,
    pub(super) tensor: Option<f64>,
    pub(super) sm: Option<f64>,
    pub(super) dram: Option<f64>,
    pub(super) memory: Option<f64>,
    /// Power over the enforced limit.
    pub(super) power: Option<f64>,
    /// Standard deviation of power over its mean.
    pub(super) power_spread: Option<f64>,
    /// Power over the lowest power that was seen.
    pub(super) power_over_floor: Option<f64>,
    /// The larger share of the nominal NVLink and network rates.
    pub(super) comm: Option<f64>,
    pub(super) pcie: Option<f64>,
    /// Clock over its maximum.
    pub(super) clock: Option<f64>,
    /// Clock over the median of the job, where heat is in question.
    pub(super) clock_in_job: Option<f64>,
    /// Share of the time in which hardware held the clock down.
    pub(super) hw_slowdown: Option<f64>,
    pub(super) sw_thermal: Option<f64>,
    pub(super) io_pressure: Option<f64>,
    pub(super) cpu_pressure: Option<f64>,
    pub(super) busiest_cpu: Option<f64>,
    /// Requests that wait at the model servers of its node, if it has any.
    pub(super) queue: Option<f64>,
}

/// The averages behind them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Averages {
    utilization: Average,
    active: Average,
    last_utilization: Option<f32>,
    active_again: Stamp,
    /// When it last did less than usual, and something.
    low: Stamp,
    tensor: Average,
    sm: Average,
    dram: Average,
    memory: Average,
    power: Average,
    power_squared: Average,
    power_floor: Option<f32>,
    last_power: Option<f32>,
    nvlink: Average,
    pcie: Average,
    /// The highest clock that the board can have.
    clock_max: Option<f32>,
    clock_hertz: Average,
    hw_slowdown: Average,
    sw_thermal: Average,
    pcie_replays: Average,
    usual_utilization: Baseline,
    usual_tensor: Baseline,
    usual_power: Baseline,
    usual_clock: Baseline,
}

impl Averages {
    /// Takes in the newest sample of the GPU at `row`.
    pub(super) fn add(
        &mut self,
        cluster: &Cluster,
        row: u32,
        at: UnixMs,
        tick: &mut Tick,
        limits: &Thresholds,
    ) {
        let value = |metric| cluster.value(metric, row);
        // The integral says what happened between two samples; the gauge only what the driver's window saw.
        let share =
            |gauge: MetricId, integral| cluster.rate(integral, row).or_else(|| value(gauge));
        let utilization = share(gpu::UTILIZATION, gpu::UTILIZATION_SECONDS);
        self.utilization.add(utilization, tick);
        let active = utilization.map(|share| share >= limits.active_ratio);
        self.active.add(active.map(f64::from), tick);
        let was_active = self.utilization_now().map(|share| share >= limits.active_ratio);
        if was_active == Some(false) && active == Some(true) {
            self.active_again = tick.at();
        }
        self.last_utilization = utilization.map(|share| share as f32);
        self.tensor.add(share(gpu::TENSOR_ACTIVE, gpu::TENSOR_ACTIVE_SECONDS), tick);
        self.sm.add(share(gpu::SM_ACTIVE, gpu::SM_ACTIVE_SECONDS), tick);
        self.dram.add(share(gpu::DRAM_ACTIVE, gpu::DRAM_ACTIVE_SECONDS), tick);
        self.memory.add(share(gpu::MEMORY_ACTIVITY, gpu::MEMORY_ACTIVITY_SECONDS), tick);
        let power = value(gpu::POWER);
        let limit = power.and_then(|_| power_limit(cluster, row));
        let power_share = power.zip(limit).map(|(power, limit)| power / limit);
        self.power.add(power_share, tick);
        self.last_power = power_share.map(|share| share as f32);
        self.power_squared.add(power_share.map(|share| share * share), tick);
        self.power_floor = self.power_floor.into_iter().chain(self.last_power).reduce(f32::min);
        let receive = cluster.rate(gpu::NVLINK_RECEIVE, row);
        let transmit = cluster.rate(gpu::NVLINK_TRANSMIT, row);
        self.nvlink.add(larger(receive, transmit), tick);
        self.pcie.add(cluster.rate(gpu::PCIE_RECEIVE, row), tick);
        let clock = value(gpu::SM_CLOCK);
        let max = value(gpu::SM_CLOCK_MAX).filter(|max| *max > 0.0);
        self.clock_max = max.map(|max| max as f32).or(self.clock_max);
        self.clock_hertz.add(clock, tick);
        let hardware = [
            gpu::CLOCK_EVENT_HW_SLOWDOWN,
            gpu::CLOCK_EVENT_HW_THERMAL,
            gpu::CLOCK_EVENT_HW_POWER_BRAKE,
        ];
        let hardware = hardware.into_iter().filter_map(value).reduce(f64::max);
        self.hw_slowdown.add(hardware, tick);
        self.sw_thermal.add(value(gpu::CLOCK_EVENT_SW_THERMAL), tick);
        self.pcie_replays.add(cluster.rate(gpu_health::PCIE_REPLAYS, row), tick);
        let usual = self.usual_utilization.usual();
        let low = |(now, usual): (f64, f64)| {
            now >= limits.standstill_ratio && now < usual * limits.hungry_slow_ratio
        };
        if self.utilization.at(at, cluster.fresh_for()).zip(usual).is_some_and(low) {
            self.low = tick.at();
        }
    }

    /// Learns what is usual from the averages; not while an open finding names it.
    pub(super) fn learn(&mut self, at: UnixMs, gap: Duration, frozen: bool, limits: &Thresholds) {
        let moment = Moment { at: Stamp::of(at), frozen };
        for (usual, average) in [
            (&mut self.usual_utilization, &self.utilization),
            (&mut self.usual_tensor, &self.tensor),
            (&mut self.usual_power, &self.power),
        ] {
            usual.learn(average.at(at, gap), moment, Worse::Lower, limits.active_ratio, limits);
        }
        // What a board that does nothing is clocked at says nothing about one that works.
        let busy =
            self.utilization.at(at, gap).is_some_and(|it| it >= limits.utilization_launch_ratio);
        self.usual_clock.learn(
            self.clock_hertz.at(at, gap).filter(|_| busy),
            moment,
            Worse::Lower,
            1.0,
            limits,
        );
    }

    /// Another job does something else: what is usual is learned anew.
    pub(super) fn forget_usual(&mut self) {
        self.usual_utilization = Baseline::default();
        self.usual_tensor = Baseline::default();
        self.usual_power = Baseline::default();
        self.usual_clock = Baseline::default();
    }

    /// What it does now is usual from now on.
    pub(super) fn accept(&mut self, now: UnixMs, gap: Duration, limits: &Thresholds) {
        for (usual, average) in [
            (&mut self.usual_utilization, &self.utilization),
            (&mut self.usual_tensor, &self.tensor),
            (&mut self.usual_power, &self.power),
            (&mut self.usual_clock, &self.clock_hertz),
        ] {
            *usual = usual.accepting(average.at(now, gap), limits);
        }
        self.low = Stamp::NEVER;
    }

    /// What it learned of itself, and the least power that it was seen to draw.
    pub(super) fn learned(&self) -> ([Baseline; 4], Option<f32>) {
        let usual = [self.usual_utilization, self.usual_tensor, self.usual_power, self.usual_clock];
        (usual, self.power_floor)
    }

    /// Averages that begin anew, of a GPU of which this was learned before.
    pub(super) fn recalling((usual, power_floor): ([Baseline; 4], Option<f32>)) -> Self {
        let [usual_utilization, usual_tensor, usual_power, usual_clock] = usual;
        Self {
            power_floor,
            usual_utilization,
            usual_tensor,
            usual_power,
            usual_clock,
            ..Self::default()
        }
    }

    /// The average utilization.
    pub(super) fn utilization_at(&self, now: UnixMs, gap: Duration) -> Option<f64> {
        self.utilization.at(now, gap)
    }

    /// The utilization of its last sample.
    pub(super) fn utilization_now(&self) -> Option<f64> {
        self.last_utilization.map(f64::from)
    }

    /// Seconds since it last began to do something after a sample in which it did nothing.
    pub(super) fn since_active_again(&self, now: UnixMs) -> Option<f64> {
        let again = self.active_again.is_set();
        again.then(|| Stamp::of(now).seconds_since(self.active_again))
    }

    /// Seconds since it last did much less than usual, and something.
    pub(super) fn since_low(&self, now: UnixMs) -> Option<f64> {
        self.low.is_set().then(|| Stamp::of(now).seconds_since(self.low))
    }

    /// The utilization that is usual.
    pub(super) fn usual_utilization(&self) -> Option<f64> {
        self.usual_utilization.usual()
    }

    /// Whether profiling counters are told.
    pub(super) fn is_profiled(&self, now: UnixMs, gap: Duration) -> bool {
        self.tensor.at(now, gap).is_some()
    }

    /// The average share of the power limit.
    pub(super) fn power_at(&self, now: UnixMs, gap: Duration) -> Option<f64> {
        self.power.at(now, gap)
    }

    /// Standard deviation of power over its mean.
    pub(super) fn power_spread(&self, now: UnixMs, gap: Duration) -> Option<f64> {
        let mean = self.power.at(now, gap).filter(|mean| *mean > 0.0)?;
        let squared = self.power_squared.at(now, gap)?;
        Some((squared - mean * mean).max(0.0).sqrt() / mean)
    }

    /// The share of the power limit that is usual.
    pub(super) fn usual_power(&self) -> Option<f64> {
        self.usual_power.usual()
    }

    /// How much it does at its last sample against what is usual, by the power above that of a board that does nothing.
    pub(super) fn effort_now(&self, limits: &Thresholds) -> Option<f64> {
        let idle = self.idle_power(limits);
        let usual = self.usual_power()? - idle;
        (usual > limits.least_work_ratio).then_some((f64::from(self.last_power?) - idle) / usual)
    }

    fn idle_power(&self, limits: &Thresholds) -> f64 {
        self.power_floor.map_or(limits.idle_power_ratio, f64::from).min(limits.idle_power_ratio)
    }

    /// The clock that is usual while it works.
    pub(super) fn usual_clock(&self) -> Option<f64> {
        self.usual_clock.usual()
    }

    /// Packets that its PCIe link sends again in a second.
    pub(super) fn pcie_replays(&self, now: UnixMs, gap: Duration) -> Option<f64> {
        self.pcie_replays.at(now, gap)
    }

    /// How much it works against what is usual for it: 1 is as usual. By its tensor cores where they are told and
    /// used, else by its power above that of a board that does nothing.
    pub(super) fn pace(&self, now: UnixMs, gap: Duration, limits: &Thresholds) -> Option<f64> {
        let of = |average: &Average, usual: &Baseline, idle: f64| {
            let usual = usual.usual()? - idle;
            let now = average.at(now, gap)? - idle;
            (usual > limits.least_work_ratio).then(|| (now / usual).max(0.0))
        };
        let idle = self.idle_power(limits);
        of(&self.tensor, &self.usual_tensor, 0.0)
            .or_else(|| of(&self.power, &self.usual_power, idle))
    }

    /// Whether it works at its usual pace, or better.
    pub(super) fn works_as_usual(&self, now: UnixMs, gap: Duration, limits: &Thresholds) -> bool {
        let busy = self.utilization.at(now, gap);
        busy.is_some_and(|it| it >= limits.utilization_launch_ratio)
            && self.pace(now, gap, limits).is_some_and(|pace| pace >= 1.0 - limits.slowed_ratio)
    }

    /// The GPU's own signals at `now`; the caller adds those of its host and its job.
    pub(super) fn signals(&self, now: UnixMs, gap: Duration, limits: &Thresholds) -> Signals {
        let of = |average: &Average| average.at(now, gap);
        let power = of(&self.power);
        Signals {
            utilization: of(&self.utilization),
            active: of(&self.active),
            since_active_again: self.since_active_again(now),
            tensor: of(&self.tensor),
            sm: of(&self.sm),
            dram: of(&self.dram),
            memory: of(&self.memory),
            power,
            power_spread: self.power_spread(now, gap),
            power_over_floor: power
                .zip(self.power_floor.filter(|floor| *floor > 0.0))
                .map(|(power, floor)| power / f64::from(floor)),
            comm: of(&self.nvlink).map(|rate| rate / limits.nvlink_bytes_per_second),
            pcie: of(&self.pcie),
            clock: of(&self.clock_hertz).zip(self.clock_max).map(|(is, max)| is / f64::from(max)),
            hw_slowdown: of(&self.hw_slowdown),
            sw_thermal: of(&self.sw_thermal),
            ..Signals::default()
        }
    }

    /// The average clock, also some time after its last sample.
    pub(super) fn clock_hertz(&self, now: UnixMs, limits: &Thresholds) -> Option<f64> {
        self.clock_hertz.at(now, Duration::from_secs_f64(limits.clock_stands_seconds))
    }
}

/// Whether somebody holds the GPU: a job says so, or processes do, or memory that is in use; none if nothing is known.
pub(super) fn allocated(cluster: &Cluster, row: u32, limits: &Thresholds) -> Option<bool> {
    if cluster.job_size(row).is_some() {
        return Some(true);
    }
    if let Some(processes) = cluster.value(gpu::PROCESSES, row) {
        return Some(processes > 0.0);
    }
    let used = cluster.value(gpu::MEMORY_USED, row)?;
    // dcgm-exporter tells what is used and what is free, and not the sum.
    let total = cluster
        .value(gpu::MEMORY_TOTAL, row)
        .or_else(|| Some(used + cluster.value(gpu::MEMORY_FREE, row)?))?;
    // Little memory may still be somebody's.
    (used >= total * limits.held_memory_ratio).then_some(true)
}

/// The power limit that is enforced, else that of its model as it is sold.
fn power_limit(cluster: &Cluster, row: u32) -> Option<f64> {
    let told = cluster.value(gpu::POWER_LIMIT, row).filter(|limit| *limit > 0.0);
    told.or_else(|| boards::power_limit(cluster.model(row)?))
}

/// The larger direction of all the node's ports together, as a share of their line rates.
pub(super) fn network_share(cluster: &Cluster, node: &Node) -> Option<f64> {
    let (mut receive, mut transmit, mut rate) = (0.0, 0.0, 0.0);
    for row in node.rows(Class::Port) {
        let traffic = cluster.rate(port::RECEIVE_BYTES, *row);
        let traffic = traffic.zip(cluster.rate(port::TRANSMIT_BYTES, *row));
        if let (Some((r, t)), Some(line)) = (traffic, cluster.value(port::RATE, *row)) {
            receive += r;
            transmit += t;
            rate += line;
        }
    }
    (rate > 0.0).then(|| f64::max(receive, transmit) / rate)
}

fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}
