//! One round of calls about one GPU: how an answer becomes a reading, and a failure the reason of an absence.

use std::collections::BTreeSet;

use gaunt_schema::{Absent, MetricId, Reading, Safe};
use nvml_wrapper::error::NvmlError;

use crate::nvml::{
    call::{Call, Note},
    pipe::{Readings, Word},
};

/// One round of calls about one GPU.
pub(super) struct Round<'a> {
    note: &'a Note,
    index: u32,
    failures: &'a mut BTreeSet<String>,
    pub(super) sampled: Readings,
}

impl<'a> Round<'a> {
    pub(super) fn new(note: &'a Note, index: u32, failures: &'a mut BTreeSet<String>) -> Self {
        Self { note, index, failures, sampled: Readings::default() }
    }

    /// Makes one call; its failure becomes the reason why its readings are absent.
    pub(super) fn ask<T>(
        &mut self,
        call: Call,
        make: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Result<T, Absent> {
        let answer = self.note.during(call, Some(self.index), make);
        answer.map_err(|error| self.reason(call, &error))
    }

    /// Makes one call that brings one number, and puts it, times `scale`, under `metric`.
    pub(super) fn one<T: Into<f64>>(
        &mut self,
        metric: MetricId,
        scale: f64,
        call: Call,
        make: impl FnOnce() -> Result<T, NvmlError>,
    ) {
        let answer = self.ask(call, make);
        self.put(metric, answer.map(|value| value.into() * scale));
    }

    pub(super) fn put(&mut self, metric: MetricId, value: Result<f64, Absent>) {
        let reading = value.map_or_else(Into::into, Reading::of);
        self.sampled.readings.push((metric, reading));
    }

    pub(super) fn word(&mut self, word: Word, text: impl Into<Safe>) {
        self.sampled.words.push((word, text.into()));
    }

    /// Why a reading is missing when the driver answered so.
    pub(super) fn reason(&mut self, call: Call, error: &NvmlError) -> Absent {
        match error {
            // A function that is not in the library belongs to a newer driver.
            NvmlError::NotSupported
            | NvmlError::FunctionNotFound
            | NvmlError::FailedToLoadSymbol(_) => Absent::Unsupported,
            NvmlError::NoPermission => Absent::NoPermission,
            NvmlError::GpuLost => {
                self.sampled.lost = true;
                Absent::Lost
            }
            other => {
                self.failures.insert(format!("{} of GPU {}: {other}", call.name(), self.index));
                Absent::Error
            }
        }
    }
}
