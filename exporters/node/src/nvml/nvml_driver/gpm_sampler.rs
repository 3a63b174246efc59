//! Activity from the GPU's own counters (GPM): the difference of two samples, one per tick, so that the time between
//! two ticks is measured completely.

use std::time::Instant;

use gaunt_schema::{
    AbsenceReason, DeviceClass, MetricId, Reading,
    catalogue::{gpu, gpu_parts as parts},
};
use nvml_wrapper::error::NvmlError;

use super::{GpuSamplingRound, NvmlDeviceHandle, NvmlFunctions, fast_sampling::FastSamples};
use crate::nvml::{
    driver_call::{Call, CurrentCall},
    nvml_ffi::{GpmSample, MAX_GPM},
    worker_pipe::GpuPart,
};

/// The GPM number of SM activity.
pub(super) const SM: u32 = 2;

/// The GPM numbers that are read each tick; the metric of each is at the same index in [`METRICS`].
const NUMBERS: [u32; 12] = [SM, 3, 5, 10, 1, 11, 12, 13, 21, 20, 60, 61];

/// What each number is.
const METRICS: [MetricId; 12] = [
    gpu::SM_ACTIVE,
    gpu::SM_OCCUPANCY,
    gpu::TENSOR_ACTIVE,
    gpu::DRAM_ACTIVE,
    gpu::GRAPHICS_ACTIVE,
    gpu::FP64_ACTIVE,
    gpu::FP32_ACTIVE,
    gpu::FP16_ACTIVE,
    gpu::PCIE_RECEIVE_RATE,
    gpu::PCIE_TRANSMIT_RATE,
    gpu::NVLINK_RECEIVE_RATE,
    gpu::NVLINK_TRANSMIT_RATE,
];

/// The number of the bytes received over link 0; the transmitted ones are next, and link 1 follows.
const FIRST_LINK: u32 = 62;

/// For how many links there are numbers.
const LINKS: u32 = 18;

const _: () = assert!(NUMBERS.len() + 2 * LINKS as usize <= MAX_GPM);

/// The first number that is a rate in mebibytes a second; those below are percentages.
const FIRST_RATE: u32 = 20;

/// Buffers: the sample of the last tick, that of the last fast sampling, and a free one.
const BUFFERS: usize = 3;

/// The samples of one GPU.
#[derive(Default)]
pub(super) struct GpmSampler {
    /// Whether the GPU supports GPM, once that is known.
    supported: Option<bool>,
    buffers: Vec<GpmSample>,
    tick: Option<GpmSampleSlot>,
    look: Option<GpmSampleSlot>,
}

/// A sample that was taken.
#[derive(Clone, Copy)]
struct GpmSampleSlot {
    /// In which buffer.
    place: usize,
    at: Instant,
}

impl GpmSampler {
    /// Every metric that comes from here.
    pub(super) fn all_metrics() -> &'static [MetricId] {
        &METRICS
    }

    /// Whether the GPU is known not to support GPM.
    pub(super) fn is_unsupported(&self) -> bool {
        self.supported == Some(false)
    }

    /// The activity since the last tick.
    pub(super) fn sample_round(
        &mut self,
        round: &mut GpuSamplingRound<'_>,
        door: NvmlFunctions<'_>,
        handle: NvmlDeviceHandle,
        links: u32,
        looks: &mut FastSamples,
    ) {
        if let Err(reason) = self.sample_metrics(round, door, handle, links.min(LINKS), looks) {
            for metric in METRICS {
                round.record_reading(metric, Err(reason));
            }
        }
    }

    fn sample_metrics(
        &mut self,
        round: &mut GpuSamplingRound<'_>,
        door: NvmlFunctions<'_>,
        handle: NvmlDeviceHandle,
        links: u32,
        looks: &mut FastSamples,
    ) -> Result<(), AbsenceReason> {
        if self.supported.is_none() {
            self.supported =
                match round.call_driver(Call::GpmSupport, || door.query_gpm_support(handle)) {
                    Ok(supported) => Some(supported),
                    Err(AbsenceReason::Unsupported) => Some(false),
                    Err(reason) => return Err(reason),
                };
        }
        if self.is_unsupported() {
            return Err(AbsenceReason::Unsupported);
        }
        while self.buffers.len() < BUFFERS {
            self.buffers.push(round.call_driver(Call::GpmAllocate, || door.allocate_sample())?);
        }
        let place = self.free_buffer_index();
        let buffer = &mut self.buffers[place];
        round.call_driver(Call::GpmTake, || door.take_sample(handle, None, buffer))?;
        let now = GpmSampleSlot { place, at: Instant::now() };
        let (tick, look) = (self.tick, self.look);
        if let Some(tick) = tick {
            let pair = (&self.buffers[tick.place], &self.buffers[place]);
            let of_links = FIRST_LINK..FIRST_LINK + 2 * links;
            let numbers: Vec<u32> = NUMBERS.into_iter().chain(of_links).collect();
            let values =
                round.call_driver(Call::GpmMetrics, || door.query_gpm_metrics(pair, &numbers))?;
            round.sampled.span = (now.at - tick.at).as_secs_f64();
            let mut values = numbers.iter().zip(values).map(|(number, value)| {
                let value = value.map(|value| to_catalogue_unit(*number, value));
                value.map_err(|error| round.absent_reason(Call::GpmMetrics, &error))
            });
            let whole: Vec<_> = values.by_ref().take(METRICS.len()).collect();
            let each: Vec<_> = values.collect();
            for (metric, value) in METRICS.into_iter().zip(whole) {
                round.record_reading(metric, value);
            }
            record_link_rates(round, &each);
        }
        if let Some(look) = look {
            let pair = (&self.buffers[look.place], &self.buffers[place]);
            let values =
                round.call_driver(Call::GpmMetrics, || door.query_gpm_metrics(pair, &[SM]));
            if let Ok(values) = values {
                record_sm_activity(&values, look.at, now.at, looks);
            }
        }
        (self.tick, self.look) = (Some(now), Some(now));
        Ok(())
    }

    /// The activity of the multiprocessors since the last fast sample.
    pub(super) fn sample_fast(
        &mut self,
        note: &CurrentCall,
        door: NvmlFunctions<'_>,
        handle: NvmlDeviceHandle,
        index: u32,
        looks: &mut FastSamples,
    ) {
        let Some(look) = self.look else { return };
        let place = self.free_buffer_index();
        let buffer = &mut self.buffers[place];
        let taken =
            note.run_call(Call::GpmTake, Some(index), || door.take_sample(handle, None, buffer));
        if taken.is_err() {
            return;
        }
        let at = Instant::now();
        let pair = (&self.buffers[look.place], &self.buffers[place]);
        let ask = || door.query_gpm_metrics(pair, &[SM]);
        if let Ok(values) = note.run_call(Call::GpmMetrics, Some(index), ask) {
            record_sm_activity(&values, look.at, at, looks);
            self.look = Some(GpmSampleSlot { place, at });
        }
    }

    /// The index of a buffer that holds neither of the two samples.
    fn free_buffer_index(&self) -> usize {
        let taken = [self.tick, self.look].map(|taken| taken.map(|taken| taken.place));
        (0..BUFFERS).find(|place| !taken.contains(&Some(*place))).unwrap_or(0)
    }

    /// Frees the buffers.
    pub(super) fn free_buffers(&mut self, note: &CurrentCall, door: NvmlFunctions<'_>, index: u32) {
        for buffer in self.buffers.drain(..) {
            // A buffer that the driver does not free is already lost to it.
            _ = note.run_call(Call::GpmFree, Some(index), || door.free_sample(buffer));
        }
        (self.tick, self.look) = (None, None);
    }
}

/// From the driver's unit to ours: per cent to a ratio, mebibytes to bytes.
pub(super) fn to_catalogue_unit(number: u32, value: f64) -> f64 {
    if number < FIRST_RATE { value / 100.0 } else { value * 1_048_576.0 }
}

/// Records the traffic of each link: received and transmitted, one link after the other.
fn record_link_rates(round: &mut GpuSamplingRound<'_>, values: &[Result<f64, AbsenceReason>]) {
    for (link, both) in (0..).zip(values.chunks_exact(2)) {
        // A missing link rate is not reported as absent: the link's counters give the reason, or work without it.
        let rates = [parts::NVLINK_RECEIVE_RATE, parts::NVLINK_TRANSMIT_RATE].into_iter().zip(both);
        let rates = rates.filter_map(|(metric, rate)| Some((metric, Reading::of((*rate).ok()?))));
        let rates: Vec<_> = rates.collect();
        if !rates.is_empty() {
            let span = round.sampled.span;
            round
                .sampled
                .parts
                .push(GpuPart { span, ..GpuPart::of(DeviceClass::Nvlink, link, rates) });
        }
    }
}

fn record_sm_activity(
    values: &[Result<f64, NvmlError>],
    from: Instant,
    to: Instant,
    looks: &mut FastSamples,
) {
    if let Some(Ok(percent)) = values.first() {
        looks.observe_sm_active(from, to, to_catalogue_unit(SM, *percent));
    }
}
