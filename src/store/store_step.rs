//! Store step: the samples of one instant, with the labels that a scrape would add.

use gaunt_schema::UnixMs;

use crate::{request_batch::RequestBatch, series_window::SeriesWindow, window_file::WindowRecord};

/// Samples of one instant. Filled by [`Self::push_sample`], then handed over with [`crate::StoreWriter::send_step`].
#[derive(Debug)]
pub struct StoreStep {
    /// The instant, on the grid.
    pub(crate) at: UnixMs,
    pub(crate) window: SeriesWindow,
    /// The series of level `screens`; none if they are not due.
    pub(crate) screens: Option<SeriesWindow>,
    /// Whether the step is kept on disk until its window is full.
    pub(crate) is_recorded: bool,
}

/// A step as bytes for the disk and the store.
#[derive(Debug)]
pub struct StoreStepOutput {
    pub(crate) window: SeriesWindow,
    pub(crate) screens: Option<SeriesWindow>,
    pub(crate) output: StepOutput,
}

/// What the thread of the store receives of a step.
#[derive(Debug, Default)]
pub(crate) struct StepOutput {
    /// The step for the disk, unless its window is full.
    pub(crate) record: Option<WindowRecord>,
    /// The requests of a full window of verdicts.
    pub(crate) requests: Vec<RequestBatch>,
    /// The requests of level `screens`.
    pub(crate) screen_requests: Vec<RequestBatch>,
    /// Number of series of verdicts.
    pub(crate) series: usize,
    /// Number of series of level `screens`, where they were due.
    pub(crate) screen_series: Option<usize>,
    /// Samples beyond the limits.
    pub(crate) left_out: u64,
}

impl StepOutput {
    fn all_requests(&self) -> impl Iterator<Item = &RequestBatch> {
        self.requests.iter().chain(&self.screen_requests)
    }

    /// Number of requests.
    pub(crate) fn request_count(&self) -> usize {
        self.all_requests().count()
    }

    /// Samples in the requests.
    pub(crate) fn sample_count(&self) -> u64 {
        self.all_requests().map(|request| u64::from(request.samples)).sum()
    }
}

impl StoreStep {
    /// Adds a sample; the label `job` becomes `exported_job`.
    pub fn push_sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.window.push_sample(name, labels, value);
    }

    /// Whether the metrics that have history are due too.
    pub fn wants_screens(&self) -> bool {
        self.screens.is_some()
    }

    /// Adds a sample of a metric that has history.
    pub fn push_screen_sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        if let Some(screens) = &mut self.screens {
            screens.push_sample(name, labels, value);
        }
    }

    /// The instant of the samples.
    pub fn instant(&self) -> UnixMs {
        self.at
    }

    /// Number of samples of verdicts.
    pub fn len(&self) -> usize {
        self.window.pushed_count()
    }

    /// Whether it has no samples of verdicts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Encodes what is due: every fourth step makes requests, which takes a tenth of a second with 100,000 GPUs.
    pub fn encode(mut self) -> StoreStepOutput {
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
        if let Some(screens) = &mut self.screens {
            screens.finish_step(self.at, None);
            output.screen_requests = screens.take_requests();
            output.screen_series = Some(screens.series_count());
            output.left_out += screens.take_left_out();
        }
        StoreStepOutput { window: self.window, screens: self.screens, output }
    }
}
