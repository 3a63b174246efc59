//! Store step: the samples of one instant, with the labels that a scrape would add.

use gaunt_schema::UnixMs;

use crate::{
    request_batch::RequestBatch, series_window::SeriesWindow, window_file::WindowRecord,
};

/// Samples of one instant. Filled by [`Self::push_sample`], then handed over with [`crate::StoreWriter::send_step`].
#[derive(Debug)]
pub struct StoreStep {
    /// The instant, on the grid.
    pub(crate) at: UnixMs,
    pub(crate) window: SeriesWindow,
    /// Whether the step is kept on disk until its window is full.
    pub(crate) is_recorded: bool,
}

/// A step as bytes for the disk and the store.
#[derive(Debug)]
pub struct EncodedStep {
    pub(crate) window: SeriesWindow,
    pub(crate) output: StepOutput,
}

/// What the thread of the store receives of a step.
#[derive(Debug, Default)]
pub(crate) struct StepOutput {
    /// The step for the disk, unless its window is full.
    pub(crate) record: Option<WindowRecord>,
    /// The requests of a full window.
    pub(crate) requests: Vec<RequestBatch>,
    /// Number of series.
    pub(crate) series: usize,
    /// Samples beyond the limits.
    pub(crate) left_out: u64,
}

impl StoreStep {
    /// Adds a sample; the label `job` becomes `exported_job`.
    pub fn push_sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.window.push_sample(name, labels, value);
    }

    /// The instant of the samples.
    pub fn instant(&self) -> UnixMs {
        self.at
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.window.pushed_count()
    }

    /// Whether it has no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Encodes what is due: every fourth step makes requests, which takes a tenth of a second with 100,000 GPUs.
    pub fn encode(mut self) -> EncodedStep {
        let mut output = StepOutput::default();
        if self.window.is_last_step() {
            self.window.finish_step(self.at, None);
            output.requests = self.window.take_requests();
        } else {
            let mut record = self.is_recorded.then(|| WindowRecord::new(self.at));
            self.window.finish_step(self.at, record.as_mut());
            output.record = record;
        }
        output.series = self.window.series_count();
        output.left_out = self.window.take_left_out();
        EncodedStep { window: self.window, output }
    }
}
