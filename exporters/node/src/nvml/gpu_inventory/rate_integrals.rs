//! Integrals of GPU rates: counters that lose nothing, whatever the period of a scraper is.

use std::collections::BTreeMap;

use gaunt_schema::{
    MetricId, Reading,
    catalogue::{gpu, gpu_health as health, gpu_parts as parts},
};

use crate::nvml::worker_pipe::{GpuPart, GpuRoundReadings};

/// Each integrated rate, and the counter that holds its integral.
const INTEGRALS: [(MetricId, MetricId, IntegrationSpan); 18] = [
    (gpu::UTILIZATION, gpu::UTILIZATION_SECONDS, IntegrationSpan::Tick),
    (gpu::MEMORY_ACTIVITY, gpu::MEMORY_ACTIVITY_SECONDS, IntegrationSpan::Tick),
    (health::ENCODER, health::ENCODER_SECONDS, IntegrationSpan::Tick),
    (health::DECODER, health::DECODER_SECONDS, IntegrationSpan::Tick),
    (health::JPEG, health::JPEG_SECONDS, IntegrationSpan::Tick),
    (health::OFA, health::OFA_SECONDS, IntegrationSpan::Tick),
    (gpu::SM_ACTIVE, gpu::SM_ACTIVE_SECONDS, IntegrationSpan::Samples),
    (gpu::SM_OCCUPANCY, gpu::SM_OCCUPANCY_SECONDS, IntegrationSpan::Samples),
    (gpu::TENSOR_ACTIVE, gpu::TENSOR_ACTIVE_SECONDS, IntegrationSpan::Samples),
    (gpu::DRAM_ACTIVE, gpu::DRAM_ACTIVE_SECONDS, IntegrationSpan::Samples),
    (gpu::GRAPHICS_ACTIVE, gpu::GRAPHICS_ACTIVE_SECONDS, IntegrationSpan::Samples),
    (gpu::FP64_ACTIVE, gpu::FP64_ACTIVE_SECONDS, IntegrationSpan::Samples),
    (gpu::FP32_ACTIVE, gpu::FP32_ACTIVE_SECONDS, IntegrationSpan::Samples),
    (gpu::FP16_ACTIVE, gpu::FP16_ACTIVE_SECONDS, IntegrationSpan::Samples),
    (gpu::PCIE_RECEIVE_RATE, gpu::PCIE_RECEIVE, IntegrationSpan::Samples),
    (gpu::PCIE_TRANSMIT_RATE, gpu::PCIE_TRANSMIT, IntegrationSpan::Samples),
    (gpu::NVLINK_RECEIVE_RATE, gpu::NVLINK_RECEIVE, IntegrationSpan::Samples),
    (gpu::NVLINK_TRANSMIT_RATE, gpu::NVLINK_TRANSMIT, IntegrationSpan::Samples),
];

/// The same of a GPU's parts, over the time between their samples.
const OF_PARTS: [(MetricId, MetricId); 5] = [
    (parts::NVLINK_RECEIVE_RATE, parts::NVLINK_RECEIVE),
    (parts::NVLINK_TRANSMIT_RATE, parts::NVLINK_TRANSMIT),
    (parts::MIG_SM_ACTIVE, parts::MIG_SM_ACTIVE_SECONDS),
    (parts::MIG_TENSOR_ACTIVE, parts::MIG_TENSOR_ACTIVE_SECONDS),
    (parts::MIG_DRAM_ACTIVE, parts::MIG_DRAM_ACTIVE_SECONDS),
];

/// The time over which a rate is a mean.
#[derive(Clone, Copy, PartialEq)]
enum IntegrationSpan {
    /// The driver's own window, used as the time since the last tick.
    Tick,
    /// Exactly the time between the two samples that it was made of.
    Samples,
}

/// The longest time between two ticks over which the driver's own rates are integrated, in seconds. Over a longer one
/// its last window is not representative.
const LONGEST_STEP: f64 = 10.0;

/// Below this a GPU counts as idle.
const ALMOST_NOTHING: f64 = 0.05;

/// The sums of one GPU.
#[derive(Default)]
pub(super) struct RateIntegrals {
    sums: [f64; INTEGRALS.len()],
    utilization_below: f64,
    sm_below: f64,
    /// By metric and number of the part; those of removed parts are dropped.
    part_sums: BTreeMap<(MetricId, u32), f64>,
}

impl RateIntegrals {
    /// Integrates the readings over the time since the last tick, `step` seconds ago, and adds the sums to them.
    pub(super) fn integrate_readings(&mut self, step: f64, readings: &mut GpuRoundReadings) {
        let step = if (0.0..=LONGEST_STEP).contains(&step) { step } else { 0.0 };
        for ((rate, counter, span), sum) in INTEGRALS.iter().zip(&mut self.sums) {
            // The GPU's own counter takes precedence over our sum.
            let (Some(reading), None) =
                (readings.find_reading(*rate), readings.find_reading(*counter))
            else {
                continue;
            };
            let seconds = if *span == IntegrationSpan::Tick { step } else { readings.span };
            *sum += reading.value().unwrap_or(0.0) * seconds;
            readings.readings.push((*counter, sum_or_absent(reading, *sum)));
        }
        if let Some(reading) = readings.find_reading(gpu::UTILIZATION) {
            let below = reading.value().is_some_and(|ratio| ratio < ALMOST_NOTHING);
            self.utilization_below += if below { step } else { 0.0 };
            let sum = sum_or_absent(reading, self.utilization_below);
            readings.readings.push((gpu::UTILIZATION_BELOW_5, sum));
        }
        if let Some(reading) = readings.find_reading(gpu::SM_ACTIVE) {
            self.sm_below += readings.below;
            readings.readings.push((gpu::SM_BELOW_5, sum_or_absent(reading, self.sm_below)));
        }
        self.integrate_parts(&mut readings.parts);
    }

    /// Integrates the readings of the parts since their last samples, and adds the sums to them.
    fn integrate_parts(&mut self, parts: &mut [GpuPart]) {
        for index in 0..parts.len() {
            for (rate, counter) in OF_PARTS {
                let Some(reading) = parts[index].find_reading(rate) else { continue };
                let (class, number, span) =
                    (parts[index].class, parts[index].number, parts[index].span);
                let is_same_part =
                    |part: &&mut GpuPart| (part.class, part.number) == (class, number);
                let readings =
                    parts.iter_mut().filter(is_same_part).flat_map(|part| &mut part.readings);
                let mut counters =
                    readings.filter(|(metric, _)| *metric == counter).map(|(_, counters)| counters);
                let driver_counter = counters.next();
                // The driver's own counter takes precedence over our sum.
                if driver_counter.as_ref().is_some_and(|reading| reading.value().is_some()) {
                    continue;
                }
                let sum = self.part_sums.entry((counter, number)).or_default();
                *sum += reading.value().unwrap_or(0.0) * span;
                let sum = sum_or_absent(reading, *sum);
                match driver_counter {
                    Some(reading) => *reading = sum,
                    None => parts[index].readings.push((counter, sum)),
                }
            }
        }
        let has_part = |counter: MetricId, number| {
            parts
                .iter()
                .any(|part| (part.class, part.number) == (counter.catalogue_row().class, number))
        };
        // If a GPU does not answer, its parts are not known to be removed.
        self.part_sums
            .retain(|(counter, number), _| parts.is_empty() || has_part(*counter, *number));
    }
}

/// The sum, or the reason for its absent rate.
fn sum_or_absent(rate: Reading, sum: f64) -> Reading {
    rate.absence_reason().map_or(Reading::of(sum), Reading::new_absent)
}

#[cfg(test)]
mod tests {
    use gaunt_schema::AbsenceReason;

    use super::*;

    fn test_readings(readings: &[(MetricId, Reading)], span: f64) -> GpuRoundReadings {
        GpuRoundReadings {
            readings: readings.to_vec(),
            span,
            below: 0.25,
            ..GpuRoundReadings::default()
        }
    }

    #[test]
    fn samples_are_integrated_over_their_span_and_windows_over_the_tick() {
        let mut sums = RateIntegrals::default();
        let rates = [
            (gpu::UTILIZATION, Reading::of(0.5)),
            (gpu::SM_ACTIVE, Reading::of(0.25)),
            (gpu::PCIE_RECEIVE_RATE, Reading::of(1e9)),
        ];
        sums.integrate_readings(2.0, &mut test_readings(&rates, 1.0));
        let mut second = test_readings(&rates, 1.0);
        sums.integrate_readings(2.0, &mut second);
        let value = |metric| second.find_reading(metric).unwrap().value().unwrap();
        assert_eq!(value(gpu::UTILIZATION_SECONDS).to_string(), "2");
        assert_eq!(value(gpu::SM_ACTIVE_SECONDS).to_string(), "0.5");
        assert_eq!(value(gpu::PCIE_RECEIVE).to_string(), "2000000000");
        assert_eq!(value(gpu::SM_BELOW_5).to_string(), "0.5");
        assert_eq!(value(gpu::UTILIZATION_BELOW_5).to_string(), "0");
    }

    #[test]
    fn gpu_counter_takes_precedence_and_absent_rate_has_absent_sum() {
        let mut readings = test_readings(
            &[
                (gpu::NVLINK_RECEIVE_RATE, AbsenceReason::Unsupported.into()),
                (gpu::NVLINK_RECEIVE, Reading::of(77.0)),
                (gpu::SM_ACTIVE, AbsenceReason::Unsupported.into()),
            ],
            0.0,
        );
        RateIntegrals::default().integrate_readings(1.0, &mut readings);
        assert_eq!(readings.find_reading(gpu::NVLINK_RECEIVE), Some(Reading::of(77.0)));
        assert_eq!(
            readings.find_reading(gpu::SM_ACTIVE_SECONDS),
            Some(AbsenceReason::Unsupported.into())
        );
        assert_eq!(
            readings.readings.iter().filter(|(id, _)| *id == gpu::NVLINK_RECEIVE).count(),
            1
        );
    }
}
