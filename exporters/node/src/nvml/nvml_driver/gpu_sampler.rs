//! Samples one GPU across rounds: some values each tick, some periodically, with the state kept in between.

use std::time::{Duration, Instant};

use gaunt_schema::{
    AbsenceReason, MetricId, Reading, SanitizedText,
    catalogue::{gpu, gpu_health as health},
};
use nvml_wrapper::{
    Device,
    enum_wrappers::device::{Clock, TemperatureSensor, TemperatureThreshold},
};

use rustix::time::{ClockId, clock_gettime};

use super::{
    GpuFabricInfo, GpuSamplingRound, NvmlDeviceHandle, NvmlFeatures, NvmlFunctions,
    fast_sampling::{self, FastSamples},
    gpm_sampler::GpmSampler,
    gpu_part_sampler::GpuPartSampler,
    nvlink_sampler::{self, NvlinkSampler},
    nvml_fields,
};
use crate::nvml::{
    driver_call::{Call, CurrentCall},
    worker_pipe::{GpuAttribute, GpuPart},
};

/// Limits, health, identities and throttled times are read every so many rounds: they change rarely, and some cost
/// milliseconds.
pub(super) const SLOW_EVERY: u64 = 10;

/// The CPU time of a call from which it is made as rarely: that for the energy costs 4 ms with the driver of an H200, where
/// the energy is continued with the power in between.
const COSTLY_CALL: Duration = Duration::from_millis(1);

/// The CPU time that this thread has spent, in the driver and in the kernel: its waiting for a CPU costs nothing.
fn spent_cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(spent).unwrap_or_default()
}

/// The state of one GPU between rounds.
#[derive(Default)]
pub(super) struct GpuSampler {
    /// The driver's handle of it, while it is found.
    pub(super) handle: Option<NvmlDeviceHandle>,
    gpm: GpmSampler,
    fast_samples: FastSamples,
    links: NvlinkSampler,
    parts: GpuPartSampler,
    slow: Option<SlowReadings>,
    /// Whether the last call for the energy was costly.
    energy_is_costly: bool,
}

/// The last values of the periodic queries.
#[derive(Default)]
struct SlowReadings {
    readings: Vec<(MetricId, Reading)>,
    words: Vec<(GpuAttribute, SanitizedText)>,
    parts: Vec<GpuPart>,
}

/// What the driver itself measures each tick, without the clock events, and energy.
const METRICS: [MetricId; 15] = [
    gpu::UTILIZATION,
    gpu::MEMORY_ACTIVITY,
    gpu::MEMORY_USED,
    gpu::MEMORY_FREE,
    gpu::MEMORY_TOTAL,
    gpu::POWER,
    gpu::POWER_LIMIT,
    gpu::ENERGY,
    gpu::TEMPERATURE,
    gpu::SM_CLOCK,
    gpu::PROCESSES,
    health::ENCODER,
    health::DECODER,
    health::JPEG,
    health::OFA,
];

impl GpuSampler {
    /// Samples everything that is due in this round.
    pub(super) fn sample_round(
        &mut self,
        round: &mut GpuSamplingRound<'_>,
        functions: NvmlFunctions<'_>,
        device: &Device<'_>,
        features: NvmlFeatures,
        slow_due: bool,
    ) {
        let handle = NvmlFunctions::device_handle(device);
        sample_activity(round, device);
        sample_memory(round, device);
        sample_power(round, device);
        sample_clocks(round, device);
        sample_engines(round, device, functions, handle);
        nvml_fields::sample_quick_fields(round, functions, handle);
        if features.gpm {
            self.gpm.sample_round(
                round,
                functions,
                handle,
                self.links.link_count(),
                &mut self.fast_samples,
            );
        }
        self.fast_samples.record_extremes(Instant::now(), round, features);
        self.parts.sample_processes(round, device, features.processes);
        self.links.sample_traffic(round, functions, handle);
        if !features.gpm || self.gpm.is_unsupported() {
            nvlink_sampler::record_total_traffic(round);
        }
        let slow_due = slow_due || self.slow.is_none();
        if slow_due {
            self.sample_slow(round, functions, device);
        }
        if slow_due || !self.energy_is_costly {
            let before = spent_cpu_time();
            sample_energy(round, device);
            self.energy_is_costly = spent_cpu_time().saturating_sub(before) >= COSTLY_CALL;
        }
        if let Some(slow) = &self.slow {
            round.sampled.readings.extend_from_slice(&slow.readings);
            round.sampled.words.extend_from_slice(&slow.words);
            round.sampled.parts.extend_from_slice(&slow.parts);
        }
        if features.gpm {
            self.parts.sample_mig_activity(round, functions);
        }
    }

    /// Samples the periodic values; the earlier ones are dropped.
    fn sample_slow(
        &mut self,
        round: &mut GpuSamplingRound<'_>,
        functions: NvmlFunctions<'_>,
        device: &Device<'_>,
    ) {
        let before = std::mem::take(&mut round.sampled);
        let handle = NvmlFunctions::device_handle(device);
        sample_limits(round, device, functions, handle);
        sample_pcie(round, device);
        sample_modes(round, device, functions, handle);
        nvml_fields::sample_slow_fields(round, functions, handle);
        self.links.sample_link_states(round, functions, device);
        self.parts.sample_mig_instances(round, functions, device);
        let sampled = std::mem::replace(&mut round.sampled, before);
        round.sampled.lost |= sampled.lost;
        let slow =
            SlowReadings { readings: sampled.readings, words: sampled.words, parts: sampled.parts };
        // Values of a GPU that is being lost are read again at once.
        self.slow = (!sampled.lost).then_some(slow);
        if sampled.lost {
            let metrics = RARE.iter().chain(nvml_fields::slow_metrics());
            let lost = metrics.map(|metric| (*metric, AbsenceReason::Lost.into()));
            round.sampled.readings.extend(lost);
        }
    }

    /// Records all readings as absent, because the GPU is not available.
    pub(super) fn record_all_absent(
        &mut self,
        round: &mut GpuSamplingRound<'_>,
        features: NvmlFeatures,
        reason: AbsenceReason,
    ) {
        self.slow = None;
        let gpm = if features.gpm { GpmSampler::all_metrics() } else { &[] };
        let events = gpu::CLOCK_EVENTS.iter().map(|(_, metric)| metric);
        let metrics = METRICS
            .iter()
            .chain(events)
            .chain(nvml_fields::all_metrics())
            .chain(RARE)
            .chain(gpm)
            .chain(fast_sampling::enabled_metrics(features));
        round.sampled.readings.extend(metrics.map(|metric| (*metric, reason.into())));
    }

    /// One fast sample between two rounds.
    pub(super) fn sample_fast(
        &mut self,
        current_call: &CurrentCall,
        functions: NvmlFunctions<'_>,
        index: u32,
        now: Instant,
    ) {
        let Some(handle) = self.handle else { return };
        let instant = nvml_fields::query_power_instant(current_call, functions, handle, index);
        // Boards whose driver lacks the field report the present power, or its mean over a second, as their power.
        let watts = instant.or_else(|| {
            let device = functions.device_of_handle(handle);
            let power =
                current_call.run_call(Call::PowerUsage, Some(index), || device.power_usage());
            power.ok().map(|milliwatts| f64::from(milliwatts) / 1e3)
        });
        if let Some(watts) = watts {
            self.fast_samples.observe_power(now, watts);
        }
        self.gpm.sample_fast(current_call, functions, handle, index, &mut self.fast_samples);
    }

    /// Frees its buffers.
    pub(super) fn free_buffers(
        &mut self,
        current_call: &CurrentCall,
        functions: NvmlFunctions<'_>,
        index: u32,
    ) {
        self.gpm.free_buffers(current_call, functions, index);
        self.parts.free_buffers(current_call, functions, index);
    }
}

/// Periodic metrics with one call each.
const RARE: &[MetricId] = &[
    health::BAR1_USED,
    health::BAR1_TOTAL,
    health::SLOWDOWN_TEMPERATURE,
    health::SHUTDOWN_TEMPERATURE,
    health::TEMPERATURE_MARGIN,
    gpu::SM_CLOCK_MAX,
    health::MEMORY_CLOCK_MAX,
    health::PCIE_GENERATION,
    health::PCIE_GENERATION_MAX,
    health::PCIE_WIDTH,
    health::PCIE_WIDTH_MAX,
    health::FABRIC_STATE,
    health::FABRIC_HEALTH_MASK,
    health::FABRIC_HEALTH_SUMMARY,
    health::MIG_MODE,
];

fn sample_activity(round: &mut GpuSamplingRound<'_>, device: &Device<'_>) {
    let used = round.call_driver(Call::Utilization, || device.utilization_rates());
    round.record_reading(
        gpu::UTILIZATION,
        used.as_ref().map(|used| f64::from(used.gpu) / 100.0).map_err(|r| *r),
    );
    round.record_reading(gpu::MEMORY_ACTIVITY, used.map(|used| f64::from(used.memory) / 100.0));
}

fn sample_memory(round: &mut GpuSamplingRound<'_>, device: &Device<'_>) {
    let memory = round.call_driver(Call::MemoryInfo, || device.memory_info());
    let mut record =
        |metric, field: fn(&nvml_wrapper::struct_wrappers::device::MemoryInfo) -> u64| {
            round.record_reading(
                metric,
                memory.as_ref().map(|memory| field(memory) as f64).map_err(|why| *why),
            );
        };
    record(gpu::MEMORY_USED, |memory| memory.used);
    record(gpu::MEMORY_FREE, |memory| memory.free);
    record(gpu::MEMORY_TOTAL, |memory| memory.total);
    record(health::MEMORY_RESERVED, |memory| memory.reserved);
}

fn sample_power(round: &mut GpuSamplingRound<'_>, device: &Device<'_>) {
    let milliwatts = round.call_driver(Call::PowerUsage, || device.power_usage());
    round.record_reading(gpu::POWER, milliwatts.map(|milliwatts| f64::from(milliwatts) / 1e3));
    let limit = round.call_driver(Call::PowerLimit, || device.enforced_power_limit());
    round.record_reading(gpu::POWER_LIMIT, limit.map(|milliwatts| f64::from(milliwatts) / 1e3));
}

fn sample_energy(round: &mut GpuSamplingRound<'_>, device: &Device<'_>) {
    let energy = round.call_driver(Call::Energy, || device.total_energy_consumption());
    round.record_reading(gpu::ENERGY, energy.map(|millijoules| millijoules as f64 / 1e3));
}

fn sample_clocks(round: &mut GpuSamplingRound<'_>, device: &Device<'_>) {
    let gpu_sensor = TemperatureSensor::Gpu;
    round
        .sample_metric(gpu::TEMPERATURE, 1.0, Call::Temperature, || device.temperature(gpu_sensor));
    round.sample_metric(gpu::SM_CLOCK, 1e6, Call::Clock, || device.clock_info(Clock::SM));
    round
        .sample_metric(health::MEMORY_CLOCK, 1e6, Call::Clock, || device.clock_info(Clock::Memory));
    let state = round.call_driver(Call::PerformanceState, || device.performance_state());
    round.record_reading(health::PERFORMANCE_STATE, state.map(|state| f64::from(state.as_c())));
    let events = round.call_driver(Call::ClockEvents, || device.current_throttle_reasons());
    for &(bit, metric) in gpu::CLOCK_EVENTS {
        round.record_reading(
            metric,
            events.map(|events| f64::from(u8::from(events.bits() & bit != 0))),
        );
    }
}

fn sample_limits(
    round: &mut GpuSamplingRound<'_>,
    device: &Device<'_>,
    functions: NvmlFunctions<'_>,
    handle: NvmlDeviceHandle,
) {
    for (metric, threshold) in [
        (health::SLOWDOWN_TEMPERATURE, TemperatureThreshold::Slowdown),
        (health::SHUTDOWN_TEMPERATURE, TemperatureThreshold::Shutdown),
    ] {
        let query = || device.temperature_threshold(threshold);
        round.sample_metric(metric, 1.0, Call::TemperatureThreshold, query);
    }
    round.sample_metric(health::TEMPERATURE_MARGIN, 1.0, Call::Margin, || {
        functions.query_temperature_margin(handle)
    });
    for (metric, clock) in
        [(gpu::SM_CLOCK_MAX, Clock::SM), (health::MEMORY_CLOCK_MAX, Clock::Memory)]
    {
        round.sample_metric(metric, 1e6, Call::MaxClock, || device.max_clock_info(clock));
    }
    let window = round.call_driver(Call::Bar1, || device.bar1_memory_info());
    round.record_reading(
        health::BAR1_USED,
        window.as_ref().map(|bar1| bar1.used as f64).map_err(|why| *why),
    );
    round.record_reading(health::BAR1_TOTAL, window.map(|bar1| bar1.total as f64));
}

fn sample_engines(
    round: &mut GpuSamplingRound<'_>,
    device: &Device<'_>,
    functions: NvmlFunctions<'_>,
    handle: NvmlDeviceHandle,
) {
    let encoder = round.call_driver(Call::Encoder, || device.encoder_utilization());
    round.record_reading(health::ENCODER, encoder.map(|used| f64::from(used.utilization) / 100.0));
    let decoder = round.call_driver(Call::Decoder, || device.decoder_utilization());
    round.record_reading(health::DECODER, decoder.map(|used| f64::from(used.utilization) / 100.0));
    let jpeg = round.call_driver(Call::Jpeg, || functions.query_jpeg_utilization(handle));
    round.record_reading(health::JPEG, jpeg.map(|percent| f64::from(percent) / 100.0));
    let ofa = round.call_driver(Call::Ofa, || functions.query_ofa_utilization(handle));
    round.record_reading(health::OFA, ofa.map(|percent| f64::from(percent) / 100.0));
}

fn sample_pcie(round: &mut GpuSamplingRound<'_>, device: &Device<'_>) {
    let generation = || device.current_pcie_link_gen();
    round.sample_metric(health::PCIE_GENERATION, 1.0, Call::PcieGeneration, generation);
    let max_generation = || device.max_pcie_link_gen();
    round.sample_metric(health::PCIE_GENERATION_MAX, 1.0, Call::PcieGenerationMax, max_generation);
    round.sample_metric(health::PCIE_WIDTH, 1.0, Call::PcieWidth, || {
        device.current_pcie_link_width()
    });
    round.sample_metric(health::PCIE_WIDTH_MAX, 1.0, Call::PcieWidthMax, || {
        device.max_pcie_link_width()
    });
}

/// Samples modes, and the position in the NVLink fabric, as text attributes.
fn sample_modes(
    round: &mut GpuSamplingRound<'_>,
    device: &Device<'_>,
    functions: NvmlFunctions<'_>,
    handle: NvmlDeviceHandle,
) {
    if let Ok(mode) = round.call_driver(Call::ComputeMode, || device.compute_mode()) {
        round.record_attribute(GpuAttribute::ComputeMode, format!("{mode:?}").to_lowercase());
    }
    if let Ok(persistent) = round.call_driver(Call::Persistence, || device.is_in_persistent_mode())
    {
        round.record_attribute(GpuAttribute::Persistence, if persistent { "on" } else { "off" });
    }
    let fabric = round.call_driver(Call::Fabric, || functions.query_fabric(handle));
    if let Ok(fabric) = &fabric
        && fabric.cluster != [0; 16]
    {
        round.record_attribute(GpuAttribute::ClusterUuid, format_uuid(fabric.cluster));
        round.record_attribute(GpuAttribute::Clique, fabric.clique.to_string());
    }
    round.record_reading(health::FABRIC_STATE, fabric.map(|fabric| f64::from(fabric.state)));
    let mut record_health = |metric, field: fn(&GpuFabricInfo) -> Option<u32>| {
        let value = |fabric| field(&fabric).map(f64::from).ok_or(AbsenceReason::Unsupported);
        round.record_reading(metric, fabric.and_then(value));
    };
    record_health(health::FABRIC_HEALTH_MASK, |fabric| fabric.health_mask);
    record_health(health::FABRIC_HEALTH_SUMMARY, |fabric| fabric.health_summary);
}

/// A UUID in its standard text form.
fn format_uuid(bytes: [u8; 16]) -> String {
    use std::fmt::Write;
    bytes.iter().enumerate().fold(String::with_capacity(36), |mut text, (index, byte)| {
        let dash = if [4, 6, 8, 10].contains(&index) { "-" } else { "" };
        _ = write!(text, "{dash}{byte:02x}");
        text
    })
}
