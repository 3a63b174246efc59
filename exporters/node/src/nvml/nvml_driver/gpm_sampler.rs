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
    tick_sample: Option<GpmSampleSlot>,
    fast_sample: Option<GpmSampleSlot>,
}

/// A sample that was taken.
#[derive(Clone, Copy)]
struct GpmSampleSlot {
    /// In which buffer.
    buffer: usize,
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
        functions: NvmlFunctions<'_>,
        handle: NvmlDeviceHandle,
        links: u32,
        fast_samples: &mut FastSamples,
    ) {
        if let Err(reason) =
            self.sample_metrics(round, functions, handle, links.min(LINKS), fast_samples)
        {
            for metric in METRICS {
                round.record_reading(metric, Err(reason));
            }
        }
    }

    fn sample_metrics(
        &mut self,
        round: &mut GpuSamplingRound<'_>,
        functions: NvmlFunctions<'_>,
        handle: NvmlDeviceHandle,
        links: u32,
        fast_samples: &mut FastSamples,
    ) -> Result<(), AbsenceReason> {
        if self.supported.is_none() {
            self.supported =
                match round.call_driver(Call::GpmSupport, || functions.query_gpm_support(handle)) {
                    Ok(supported) => Some(supported),
                    Err(AbsenceReason::Unsupported) => Some(false),
                    Err(reason) => return Err(reason),
                };
        }
        if self.is_unsupported() {
            return Err(AbsenceReason::Unsupported);
        }
        while self.buffers.len() < BUFFERS {
            self.buffers
                .push(round.call_driver(Call::GpmAllocate, || functions.allocate_sample())?);
        }
        let buffer_index = self.free_buffer_index();
        let buffer = &mut self.buffers[buffer_index];
        round.call_driver(Call::GpmTake, || functions.take_sample(handle, None, buffer))?;
        let now = GpmSampleSlot { buffer: buffer_index, at: Instant::now() };
        let (tick, fast) = (self.tick_sample, self.fast_sample);
        if let Some(tick) = tick {
            let pair = (&self.buffers[tick.buffer], &self.buffers[buffer_index]);
            let link_numbers = FIRST_LINK..FIRST_LINK + 2 * links;
            let numbers: Vec<u32> = NUMBERS.into_iter().chain(link_numbers).collect();
            let values = round
                .call_driver(Call::GpmMetrics, || functions.query_gpm_metrics(pair, &numbers))?;
            round.sampled.span = (now.at - tick.at).as_secs_f64();
            let mut values = numbers.iter().zip(values).map(|(number, value)| {
                let value = value.map(|value| to_catalogue_unit(*number, value));
                value.map_err(|error| round.absent_reason(Call::GpmMetrics, &error))
            });
            let gpu_values: Vec<_> = values.by_ref().take(METRICS.len()).collect();
            let link_values: Vec<_> = values.collect();
            for (metric, value) in METRICS.into_iter().zip(gpu_values) {
                round.record_reading(metric, value);
            }
            record_link_rates(round, &link_values);
        }
        if let Some(fast) = fast {
            let pair = (&self.buffers[fast.buffer], &self.buffers[buffer_index]);
            let values =
                round.call_driver(Call::GpmMetrics, || functions.query_gpm_metrics(pair, &[SM]));
            if let Ok(values) = values {
                record_sm_activity(&values, fast.at, now.at, fast_samples);
            }
        }
        (self.tick_sample, self.fast_sample) = (Some(now), Some(now));
        Ok(())
    }

    /// The activity of the multiprocessors since the last fast sample.
    pub(super) fn sample_fast(
        &mut self,
        current_call: &CurrentCall,
        functions: NvmlFunctions<'_>,
        handle: NvmlDeviceHandle,
        index: u32,
        fast_samples: &mut FastSamples,
    ) {
        let Some(last) = self.fast_sample else { return };
        let buffer_index = self.free_buffer_index();
        let buffer = &mut self.buffers[buffer_index];
        let result = current_call
            .run_call(Call::GpmTake, Some(index), || functions.take_sample(handle, None, buffer));
        if result.is_err() {
            return;
        }
        let now = Instant::now();
        let pair = (&self.buffers[last.buffer], &self.buffers[buffer_index]);
        let query = || functions.query_gpm_metrics(pair, &[SM]);
        if let Ok(values) = current_call.run_call(Call::GpmMetrics, Some(index), query) {
            record_sm_activity(&values, last.at, now, fast_samples);
            self.fast_sample = Some(GpmSampleSlot { buffer: buffer_index, at: now });
        }
    }

    /// The index of a buffer that holds neither of the two samples.
    fn free_buffer_index(&self) -> usize {
        let used = [self.tick_sample, self.fast_sample].map(|used| used.map(|used| used.buffer));
        (0..BUFFERS).find(|buffer_index| !used.contains(&Some(*buffer_index))).unwrap_or(0)
    }

    /// Frees the buffers.
    pub(super) fn free_buffers(
        &mut self,
        current_call: &CurrentCall,
        functions: NvmlFunctions<'_>,
        index: u32,
    ) {
        for buffer in self.buffers.drain(..) {
            // A buffer that the driver does not free is already lost to it.
            _ = current_call.run_call(Call::GpmFree, Some(index), || functions.free_sample(buffer));
        }
        (self.tick_sample, self.fast_sample) = (None, None);
    }
}

/// From the driver's unit to ours: per cent to a ratio, mebibytes to bytes.
pub(super) fn to_catalogue_unit(number: u32, value: f64) -> f64 {
    if number < FIRST_RATE { value / 100.0 } else { value * 1_048_576.0 }
}

/// Records the traffic of each link: received and transmitted, one link after the other.
fn record_link_rates(round: &mut GpuSamplingRound<'_>, values: &[Result<f64, AbsenceReason>]) {
    for (link, pair) in (0..).zip(values.chunks_exact(2)) {
        // A missing link rate is not reported as absent: the link's counters give the reason, or work without it.
        let rates = [parts::NVLINK_RECEIVE_RATE, parts::NVLINK_TRANSMIT_RATE].into_iter().zip(pair);
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
    fast_samples: &mut FastSamples,
) {
    if let Some(Ok(percent)) = values.first() {
        fast_samples.observe_sm_active(from, to, to_catalogue_unit(SM, *percent));
    }
}
