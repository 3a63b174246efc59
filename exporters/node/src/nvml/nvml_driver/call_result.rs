//! Converts results of driver calls for one GPU: a value becomes a reading, an error the reason of its absence.

use std::collections::BTreeSet;

use gaunt_schema::{
    AbsenceReason, MetricId, Reading, SanitizedText,
    catalogue::{gpu, gpu_health},
};
use nvml_wrapper::error::NvmlError;

use crate::nvml::{
    driver_call::{Call, CurrentCall},
    worker_pipe::{GpuAttribute, GpuRoundReadings},
};

/// One round of calls about one GPU.
pub(super) struct GpuSamplingRound<'a> {
    current_call: &'a CurrentCall,
    index: u32,
    failures: &'a mut BTreeSet<String>,
    pub(super) sampled: GpuRoundReadings,
}

impl<'a> GpuSamplingRound<'a> {
    pub(super) fn new(
        current_call: &'a CurrentCall,
        index: u32,
        failures: &'a mut BTreeSet<String>,
    ) -> Self {
        Self { current_call, index, failures, sampled: GpuRoundReadings::default() }
    }

    /// Makes one call; its error becomes the reason why its readings are absent.
    pub(super) fn call_driver<T>(
        &mut self,
        call: Call,
        function: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Result<T, AbsenceReason> {
        let answer = self.current_call.run_call(call, Some(self.index), function);
        answer.map_err(|error| self.absent_reason(call, &error))
    }

    /// Makes one call that returns one number, and stores it, times `scale`, under `metric`.
    pub(super) fn sample_metric<T: Into<f64>>(
        &mut self,
        metric: MetricId,
        scale: f64,
        call: Call,
        function: impl FnOnce() -> Result<T, NvmlError>,
    ) {
        let answer = self.call_driver(call, function);
        self.record_reading(metric, answer.map(|value| value.into() * scale));
    }

    pub(super) fn record_reading(&mut self, metric: MetricId, value: Result<f64, AbsenceReason>) {
        let reading = value.map_or_else(Into::into, Reading::of);
        self.sampled.readings.push((metric, reading));
    }

    /// The board's present power in watts, as this round has read it: without it, what the driver states as its power.
    pub(super) fn present_power(&self) -> Option<f64> {
        let value_of = |metric| {
            let mut readings = self.sampled.readings.iter();
            readings.find(|(read, _)| *read == metric)?.1.value()
        };
        value_of(gpu_health::POWER_INSTANT).or_else(|| value_of(gpu::POWER))
    }

    pub(super) fn record_attribute(
        &mut self,
        attribute: GpuAttribute,
        text: impl Into<SanitizedText>,
    ) {
        self.sampled.words.push((attribute, text.into()));
    }

    /// The reason for a missing reading after this error of the driver.
    pub(super) fn absent_reason(&mut self, call: Call, error: &NvmlError) -> AbsenceReason {
        match error {
            // A function that is missing in the library belongs to a newer driver.
            NvmlError::NotSupported
            | NvmlError::FunctionNotFound
            | NvmlError::FailedToLoadSymbol(_) => AbsenceReason::Unsupported,
            NvmlError::NoPermission => AbsenceReason::NoPermission,
            NvmlError::GpuLost => {
                self.sampled.lost = true;
                AbsenceReason::Lost
            }
            other => {
                self.failures.insert(format!("{} of GPU {}: {other}", call.name(), self.index));
                AbsenceReason::Error
            }
        }
    }
}
