//! The signals of one GPU: averages of its metrics, as input of the state rules.

use std::time::Duration;

use gaunt_schema::{
    MetricId, UnixMs,
    catalogue::{gpu, gpu_health},
};

use super::{
    Thresholds,
    baseline::{Baseline, SampleMoment, WorseDirection},
    busy_clock::BusyClock,
    compact_value::CompactValue,
    gpu_ratings,
    gpu_start::UsedMemory,
    moving_average::{CompactTimestamp, MovingAverage, SampleTiming},
    rare_events::RareEvents,
};
use gaunt_cluster::Cluster;

/// Utilization from which a GPU has the clock of a light load, which is no lower than that of a heavy one.
pub(super) const LIGHT_LOAD_RATIO: f64 = 0.1;

/// The share of the highest memory activity of its work from which a GPU works.
const USED_MEMORY_SHARE: f64 = 0.5;

/// The input of the state rules; none where a signal is unknown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GpuSignals {
    /// Whether a job or process holds the GPU.
    pub(super) allocated: Option<bool>,
    /// Whether its job has other GPUs that it could wait for.
    pub(super) has_peers: bool,
    pub(super) utilization: Option<f64>,
    /// Share of samples in which it was active.
    pub(super) active: Option<f64>,
    /// Seconds since it last became active after an inactive sample.
    pub(super) since_active_again: Option<f64>,
    pub(super) tensor: Option<f64>,
    pub(super) sm: Option<f64>,
    pub(super) dram: Option<f64>,
    pub(super) memory: Option<f64>,
    /// Power / enforced limit.
    pub(super) power: Option<f64>,
    /// Standard deviation of power / its mean.
    pub(super) power_spread: Option<f64>,
    /// Power / the lowest power that was seen.
    pub(super) power_over_floor: Option<f64>,
    /// The larger share of the nominal NVLink and network rates.
    pub(super) comm: Option<f64>,
    pub(super) pcie: Option<f64>,
    /// Clock / maximum clock.
    pub(super) clock: Option<f64>,
    /// Clock / job median, for the check of thermal throttling.
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

/// The averages behind the signals.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GpuAverages {
    utilization: MovingAverage,
    active: MovingAverage,
    last_utilization: CompactValue,
    active_again: CompactTimestamp,
    /// When it was last active below its baseline.
    low: CompactTimestamp,
    tensor: MovingAverage,
    sm: MovingAverage,
    dram: MovingAverage,
    memory: MovingAverage,
    /// The highest memory activity of its present work.
    most_memory: CompactValue,
    power: MovingAverage,
    power_squared: MovingAverage,
    power_floor: CompactValue,
    last_power: CompactValue,
    nvlink: MovingAverage,
    pcie: MovingAverage,
    /// The maximum clock of the GPU.
    clock_max: CompactValue,
    clock_hertz: MovingAverage,
    last_clock: CompactValue,
    busy_clock: BusyClock,
    hw_slowdown: MovingAverage,
    sw_thermal: MovingAverage,
    replay_events: RareEvents,
    usual_utilization: Baseline,
    usual_tensor: Baseline,
    usual_power: Baseline,
    usual_clock: Baseline,
}

impl GpuAverages {
    /// Ingests the newest sample of the GPU at `row`.
    pub(super) fn add_sample(
        &mut self,
        cluster: &Cluster,
        row: u32,
        at: UnixMs,
        tick: &mut SampleTiming,
        limits: &Thresholds,
    ) {
        let value = |metric| cluster.current_value(metric, row);
        // The integral covers the time between two samples; the gauge only the driver's window.
        let share = |gauge: MetricId, integral| {
            cluster.current_rate(integral, row).or_else(|| value(gauge))
        };
        // Counted time says more than the driver's samples: between these a GPU works that is busy for 50 ms each second.
        let utilization = share(gpu::GRAPHICS_ACTIVE, gpu::GRAPHICS_ACTIVE_SECONDS)
            .or_else(|| share(gpu::UTILIZATION, gpu::UTILIZATION_SECONDS));
        self.utilization.add_sample(utilization, tick);
        let active = utilization.map(|share| share >= limits.utilization_idle_ratio);
        self.active.add_sample(active.map(f64::from), tick);
        let was_active = self.utilization_now().map(|share| share >= limits.utilization_idle_ratio);
        if was_active == Some(false) && active == Some(true) {
            self.active_again = tick.sampled_at();
        }
        self.last_utilization = utilization.into();
        self.tensor.add_sample(share(gpu::TENSOR_ACTIVE, gpu::TENSOR_ACTIVE_SECONDS), tick);
        self.sm.add_sample(share(gpu::SM_ACTIVE, gpu::SM_ACTIVE_SECONDS), tick);
        self.dram.add_sample(share(gpu::DRAM_ACTIVE, gpu::DRAM_ACTIVE_SECONDS), tick);
        self.memory.add_sample(share(gpu::MEMORY_ACTIVITY, gpu::MEMORY_ACTIVITY_SECONDS), tick);
        let memory = self.memory.value_at(at, cluster.freshness_window());
        self.most_memory = self.most_memory.max(memory.into());
        let power_share =
            value(gpu::POWER).map(|power| gpu_ratings::scale_power(cluster, row, power));
        self.forget_other_scale(power_share);
        self.power.add_sample(power_share, tick);
        self.last_power = power_share.into();
        self.power_squared.add_sample(power_share.map(|share| share * share), tick);
        self.power_floor = self.power_floor.min(self.last_power);
        let receive = cluster.current_rate(gpu::NVLINK_RECEIVE, row);
        let transmit = cluster.current_rate(gpu::NVLINK_TRANSMIT, row);
        self.nvlink.add_sample(max_known(receive, transmit), tick);
        self.pcie.add_sample(cluster.current_rate(gpu::PCIE_RECEIVE, row), tick);
        let clock = value(gpu::SM_CLOCK);
        let max = value(gpu::SM_CLOCK_MAX).filter(|max| *max > 0.0);
        self.clock_max = max.map(|max| max as f32).or(self.clock_max.known()).into();
        // A clock is one instant: that of a GPU which is idle at the time is no clock under load.
        let instant = value(gpu::UTILIZATION).or(utilization);
        let clock = clock.filter(|_| instant.is_none_or(|busy| busy >= LIGHT_LOAD_RATIO));
        self.last_clock = clock.into();
        self.clock_hertz.add_sample(clock, tick);
        let hardware = [
            gpu::CLOCK_EVENT_HW_SLOWDOWN,
            gpu::CLOCK_EVENT_HW_THERMAL,
            gpu::CLOCK_EVENT_HW_POWER_BRAKE,
        ];
        let hardware = hardware.into_iter().filter_map(value).reduce(f64::max);
        self.hw_slowdown.add_sample(hardware, tick);
        self.sw_thermal.add_sample(value(gpu::CLOCK_EVENT_SW_THERMAL), tick);
        let baseline = self.usual_utilization.usual_value();
        let low = |(now, baseline): (f64, f64)| {
            now >= limits.standstill_ratio && now < baseline * limits.hungry_slow_ratio
        };
        if self.utilization.value_at(at, cluster.freshness_window()).zip(baseline).is_some_and(low)
        {
            self.low = tick.sampled_at();
        }
    }

    /// Learns the baselines from the averages; not while an open finding names the GPU.
    pub(super) fn learn_baselines(
        &mut self,
        at: UnixMs,
        moment: SampleMoment,
        limits: &Thresholds,
    ) {
        let SampleMoment { gap, frozen, .. } = moment;
        for (baseline, average) in [
            (&mut self.usual_utilization, &self.utilization),
            (&mut self.usual_tensor, &self.tensor),
            (&mut self.usual_power, &self.power),
        ] {
            baseline.learn_value(
                average.value_at(at, gap),
                moment,
                WorseDirection::Lower,
                limits.utilization_idle_ratio,
                limits,
            );
        }
        if let Some(clock) = self.last_clock.take().filter(|_| !frozen) {
            self.busy_clock.learn_clock(clock);
        }
        // The clock of an idle GPU is no baseline for a busy one.
        let busy = self
            .utilization
            .value_at(at, gap)
            .is_some_and(|it| it >= limits.utilization_launch_ratio);
        self.usual_clock.learn_value(
            self.clock_hertz.value_at(at, gap).filter(|_| busy),
            moment,
            WorseDirection::Lower,
            1.0,
            limits,
        );
    }

    /// Forgets its power in watts once its limit is known, and its shares once it no longer is.
    fn forget_other_scale(&mut self, power: Option<f64>) {
        let is_share = |power: f64| gpu_ratings::is_share_of_limit(power);
        let last = self.last_power.known().map(f64::from);
        if last.zip(power).is_some_and(|(last, now)| is_share(last) != is_share(now)) {
            self.power = MovingAverage::default();
            self.power_squared = MovingAverage::default();
            self.power_floor = CompactValue::default();
            self.usual_power = Baseline::default();
        }
    }

    /// Resets the baselines: another job does something else.
    pub(super) fn reset_baselines(&mut self) {
        self.usual_utilization = Baseline::default();
        self.usual_tensor = Baseline::default();
        self.usual_power = Baseline::default();
        self.usual_clock = Baseline::default();
        self.busy_clock = BusyClock::default();
        self.most_memory = CompactValue::default();
    }

    /// Accepts the present values as baselines.
    pub(super) fn accept_baselines(&mut self, now: UnixMs, gap: Duration, limits: &Thresholds) {
        for (baseline, average) in [
            (&mut self.usual_utilization, &self.utilization),
            (&mut self.usual_tensor, &self.tensor),
            (&mut self.usual_power, &self.power),
            (&mut self.usual_clock, &self.clock_hertz),
        ] {
            *baseline = baseline.with_accepted(average.value_at(now, gap), limits);
        }
        self.low = CompactTimestamp::NEVER;
    }

    /// Returns its baselines, and the lowest power that was seen.
    pub(super) fn learned_baselines(&self) -> ([Baseline; 4], Option<f32>) {
        let baselines =
            [self.usual_utilization, self.usual_tensor, self.usual_power, self.usual_clock];
        (baselines, self.power_floor.known())
    }

    /// Creates empty averages with restored baselines.
    pub(super) fn from_baselines((baselines, power_floor): ([Baseline; 4], Option<f32>)) -> Self {
        let [usual_utilization, usual_tensor, usual_power, usual_clock] = baselines;
        Self {
            power_floor: power_floor.into(),
            busy_clock: BusyClock::of_restored(),
            usual_utilization,
            usual_tensor,
            usual_power,
            usual_clock,
            ..Self::default()
        }
    }

    /// Returns the lowest clock at which it usually works, if that is known for sure.
    pub(super) fn learned_clock(&self) -> Option<f32> {
        self.busy_clock.learned_hertz()
    }

    /// Restores that clock.
    pub(super) fn restore_clock(&mut self, hertz: f32) {
        self.busy_clock = BusyClock::of_known(hertz);
    }

    /// Returns the average utilization.
    pub(super) fn utilization_at(&self, now: UnixMs, gap: Duration) -> Option<f64> {
        self.utilization.value_at(now, gap)
    }

    /// Returns the utilization of its last sample.
    pub(super) fn utilization_now(&self) -> Option<f64> {
        self.last_utilization.known().map(f64::from)
    }

    /// Returns the seconds since it last became active after an inactive sample.
    pub(super) fn since_active_again(&self, now: UnixMs) -> Option<f64> {
        let again = self.active_again.is_set();
        again.then(|| CompactTimestamp::of(now).seconds_since(self.active_again))
    }

    /// Returns the seconds since it was last active far below its baseline.
    pub(super) fn since_low(&self, now: UnixMs) -> Option<f64> {
        self.low.is_set().then(|| CompactTimestamp::of(now).seconds_since(self.low))
    }

    /// Returns the baseline of utilization.
    pub(super) fn usual_utilization(&self) -> Option<f64> {
        self.usual_utilization.usual_value()
    }

    /// Whether profiling counters are reported.
    pub(super) fn is_profiled(&self, now: UnixMs, gap: Duration) -> bool {
        self.tensor.value_at(now, gap).is_some()
    }

    /// Returns the average share of the power limit; watts where the limit is not known.
    pub(super) fn power_at(&self, now: UnixMs, gap: Duration) -> Option<f64> {
        self.power.value_at(now, gap)
    }

    /// Whether data goes over its NVLinks: then it makes progress, however little power it draws. None if its NVLinks
    /// are not counted.
    pub(super) fn has_nvlink_traffic(
        &self,
        now: UnixMs,
        gap: Duration,
        limits: &Thresholds,
    ) -> Option<bool> {
        let rate = self.nvlink.value_at(now, gap)?;
        Some(rate >= limits.nvlink_bytes_per_second * limits.silent_network_ratio)
    }

    /// Returns its memory activity, and the highest of its present work; none unless its work used the memory before. A
    /// kernel that only waits for other GPUs neither reads nor writes it.
    pub(super) fn memory_activity(
        &self,
        now: UnixMs,
        gap: Duration,
        limits: &Thresholds,
    ) -> Option<(f64, f64)> {
        let most = f64::from(self.most_memory.known()?);
        let activity = self.memory.value_at(now, gap)?;
        (most > limits.least_work_ratio).then_some((activity, most))
    }

    /// Returns the standard deviation of power / its mean.
    pub(super) fn power_spread(&self, now: UnixMs, gap: Duration) -> Option<f64> {
        let mean = self.power.value_at(now, gap).filter(|mean| *mean > 0.0)?;
        let squared = self.power_squared.value_at(now, gap)?;
        Some((squared - mean * mean).max(0.0).sqrt() / mean)
    }

    /// Returns the baseline of the share of the power limit; watts where the limit is not known.
    pub(super) fn usual_power(&self) -> Option<f64> {
        self.usual_power.usual_value()
    }

    /// Returns the activity of its last sample / baseline, by the power above that of an idle GPU.
    pub(super) fn effort_now(&self, limits: &Thresholds) -> Option<f64> {
        let idle = self.idle_power(limits);
        let baseline = self.usual_power()? - idle;
        (baseline > limits.least_work_ratio)
            .then_some((f64::from(self.last_power.known()?) - idle) / baseline)
    }

    fn idle_power(&self, limits: &Thresholds) -> f64 {
        let usual = self.usual_power().filter(|usual| !gpu_ratings::is_share_of_limit(*usual));
        let most = limits.idle_power_ratio * usual.unwrap_or(1.0);
        self.power_floor.known().map_or(most, f64::from).min(most)
    }

    /// Returns the baseline of the clock under load.
    pub(super) fn usual_clock(&self) -> Option<f64> {
        self.usual_clock.usual_value()
    }

    /// Returns the clock below which it does not work usually.
    pub(super) fn lowest_clock(&self) -> Option<f64> {
        self.busy_clock.lowest_hertz(self.usual_clock())
    }

    /// Counts its PCIe replays, and learns how many are usual unless it is frozen.
    pub(super) fn count_replays(&mut self, cluster: &Cluster, row: u32, at: UnixMs, frozen: bool) {
        let rate = cluster.current_rate(gpu_health::PCIE_REPLAYS, row);
        self.replay_events.add_rate(rate, CompactTimestamp::of(at), !frozen);
    }

    /// Returns its recent PCIe replays.
    pub(super) fn replay_events(&self) -> RareEvents {
        self.replay_events
    }

    /// Whether it uses its memory nearly as much as its work ever did: it computes, whatever it no longer does.
    pub(super) fn uses_memory(&self, now: UnixMs, gap: Duration, limits: &Thresholds) -> bool {
        self.memory_activity(now, gap, limits)
            .is_some_and(|(activity, most)| activity >= most * USED_MEMORY_SHARE)
    }

    /// Returns its activity / baseline: 1 is the baseline. Computed from tensor core activity where that is reported
    /// and used, else from the power above that of an idle GPU. Where its memory is saturated, not less than that: who does
    /// the same work slower uses the memory less in the same proportion, so a saturated memory is other work.
    pub(super) fn activity_ratio(
        &self,
        now: UnixMs,
        gap: Duration,
        limits: &Thresholds,
    ) -> Option<f64> {
        let of = |average: &MovingAverage, baseline: &Baseline, idle: f64| {
            let baseline = baseline.usual_value()? - idle;
            let now = average.value_at(now, gap)? - idle;
            (baseline > limits.least_work_ratio).then(|| (now / baseline).max(0.0))
        };
        let idle = self.idle_power(limits);
        let pace = of(&self.tensor, &self.usual_tensor, 0.0)
            .or_else(|| of(&self.power, &self.usual_power, idle))?;
        // A memory that is less busy says nothing: a kernel that waits for other GPUs reads memory as well.
        let memory = match self.dram.value_at(now, gap) {
            Some(memory) if memory >= limits.dram_peak_ratio => 1.0,
            Some(memory) if memory >= limits.dram_saturated_ratio => memory,
            _ => 0.0,
        };
        Some(pace.max(memory))
    }

    /// Whether it works at its baseline pace, or better.
    pub(super) fn works_as_usual(&self, now: UnixMs, gap: Duration, limits: &Thresholds) -> bool {
        let busy = self.utilization.value_at(now, gap);
        busy.is_some_and(|it| it >= limits.utilization_launch_ratio)
            && self
                .activity_ratio(now, gap, limits)
                .is_some_and(|pace| pace >= 1.0 - limits.slowed_ratio)
    }

    /// Returns the GPU's own signals at `now`; the caller adds those of its host and its job.
    pub(super) fn signals_at(&self, now: UnixMs, gap: Duration, limits: &Thresholds) -> GpuSignals {
        let of = |average: &MovingAverage| average.value_at(now, gap);
        let power = of(&self.power);
        GpuSignals {
            utilization: of(&self.utilization),
            active: of(&self.active),
            since_active_again: self.since_active_again(now),
            tensor: of(&self.tensor),
            sm: of(&self.sm),
            dram: of(&self.dram),
            memory: of(&self.memory),
            power: power.filter(|power| gpu_ratings::is_share_of_limit(*power)),
            power_spread: self.power_spread(now, gap),
            power_over_floor: power
                .zip(self.power_floor.known().filter(|floor| *floor > 0.0))
                .map(|(power, floor)| power / f64::from(floor)),
            comm: of(&self.nvlink).map(|rate| rate / limits.nvlink_bytes_per_second),
            pcie: of(&self.pcie),
            clock: of(&self.clock_hertz)
                .zip(self.clock_max.known())
                .map(|(is, max)| is / f64::from(max)),
            hw_slowdown: of(&self.hw_slowdown),
            sw_thermal: of(&self.sw_thermal),
            ..GpuSignals::default()
        }
    }

    /// Returns the SM activity and the tensor activity.
    pub(super) fn pipe_activity(&self, now: UnixMs, gap: Duration) -> (Option<f64>, Option<f64>) {
        (self.sm.value_at(now, gap), self.tensor.value_at(now, gap))
    }

    /// Returns the average clock, also some time after its last sample.
    pub(super) fn clock_hertz(&self, now: UnixMs, limits: &Thresholds) -> Option<f64> {
        self.clock_hertz.value_at(now, Duration::from_secs_f64(limits.clock_stands_seconds))
    }
}

/// Bytes of memory of the smallest GPUs that jobs of several GPUs run on, such as L4 and A10, where a page does not tell.
const LEAST_MEMORY: f64 = 24e9;

/// Whether the GPU is held: by a job, by processes, or by used memory; none if nothing is known.
pub(super) fn is_allocated(cluster: &Cluster, row: u32, limits: &Thresholds) -> Option<bool> {
    if cluster.job_size(row).is_some() {
        return Some(true);
    }
    is_held(cluster, row, limits)
}

/// Whether processes hold a GPU: as NVML lists them, or by the memory in use. None if that is not known.
pub(super) fn is_held(cluster: &Cluster, row: u32, limits: &Thresholds) -> Option<bool> {
    if let Some(processes) = cluster.current_value(gpu::PROCESSES, row) {
        return Some(processes > 0.0);
    }
    // A process may hold the GPU with little memory.
    used_memory(cluster, row, limits)?.is_held.then_some(true)
}

/// Returns the memory of a GPU that is used, and whether that is more than its driver needs.
pub(super) fn used_memory(cluster: &Cluster, row: u32, limits: &Thresholds) -> Option<UsedMemory> {
    let used = cluster.current_value(gpu::MEMORY_USED, row)?;
    // dcgm-exporter reports used and free memory, and not the sum; some lists of metrics have used memory alone.
    let free = cluster.current_value(gpu::MEMORY_FREE, row);
    let total = cluster.current_value(gpu::MEMORY_TOTAL, row).or(free.map(|free| used + free));
    let total = total.unwrap_or(LEAST_MEMORY);
    Some(UsedMemory { bytes: used, is_held: used >= total * limits.held_memory_ratio })
}

fn max_known(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}
