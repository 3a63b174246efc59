//! Series window: the last steps of each series, which become requests with several samples a series.

use gaunt_schema::UnixMs;
use hashbrown::HashMap;

use crate::{
    request_batch::{RequestBatch, RequestSplitter},
    store_step::{MAX_SERIES, StoreStep},
    write_request::{STALE_MARKER, StoreSample},
};

/// Samples of a series in one request: names are then sent once in a minute, which nearly halves the bytes.
const STEPS: usize = 4;

/// Steps after which a series that is absent is ended with a stale marker.
const ABSENT_STEPS: u8 = 2;

/// Samples of one series that are not in a request yet.
#[derive(Debug, Default)]
struct SeriesSamples {
    samples: [StoreSample; STEPS],
    len: u8,
    /// Steps without a sample since the last one.
    absent: u8,
    seen: bool,
}

impl SeriesSamples {
    fn push_sample(&mut self, at: UnixMs, bits: u64) {
        // There are as many slots as steps; a series that is twice in a step keeps its first sample.
        let is_repeat = self.len > 0 && self.samples[usize::from(self.len) - 1].at == at;
        if let Some(slot) = self.samples.get_mut(usize::from(self.len)).filter(|_| !is_repeat) {
            *slot = StoreSample { at, bits };
            self.len += 1;
        }
    }
}

/// The last steps of each series: at most [`MAX_SERIES`], of about 250 bytes each.
#[derive(Debug, Default)]
pub(crate) struct SeriesWindow {
    series: HashMap<Vec<u8>, SeriesSamples, foldhash::fast::RandomState>,
    steps: usize,
    /// Samples of series above the limit.
    left_out: u64,
}

impl SeriesWindow {
    /// Adds a step, and returns it as requests of its own: what is kept on disk until the window is full.
    pub(crate) fn push_step(&mut self, step: &StoreStep) -> Vec<RequestBatch> {
        let mut splitter = RequestSplitter::default();
        for (labels, value) in step.iter_series() {
            if self.series.len() >= MAX_SERIES && !self.series.contains_key(labels) {
                self.left_out += 1;
                continue;
            }
            let series = self.series.entry_ref(labels).or_default();
            series.push_sample(step.at, value.to_bits());
            (series.absent, series.seen) = (0, true);
            splitter.push_series(labels, &[StoreSample { at: step.at, bits: value.to_bits() }]);
        }
        for (labels, series) in &mut self.series {
            if std::mem::take(&mut series.seen) {
                continue;
            }
            series.absent = series.absent.saturating_add(1);
            if series.absent == ABSENT_STEPS {
                series.push_sample(step.at, STALE_MARKER);
                let marker = StoreSample { at: step.at, bits: STALE_MARKER };
                splitter.push_series(labels, &[marker]);
            }
        }
        self.steps += 1;
        splitter.finish()
    }

    /// Whether it holds as many steps as a request.
    pub(crate) fn is_full(&self) -> bool {
        self.steps >= STEPS
    }

    /// Takes all samples as requests. Ended series are forgotten.
    pub(crate) fn take_requests(&mut self) -> Vec<RequestBatch> {
        let mut splitter = RequestSplitter::default();
        self.series.retain(|labels, series| {
            if series.len > 0 {
                splitter.push_series(labels, &series.samples[..usize::from(series.len)]);
            }
            series.len = 0;
            series.absent < ABSENT_STEPS
        });
        self.steps = 0;
        splitter.finish()
    }

    /// Number of series.
    pub(crate) fn series_count(&self) -> usize {
        self.series.len()
    }

    /// Takes the number of samples left out since the last call.
    pub(crate) fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_request::tests::{DecodedSeries, decode_body};

    fn step_of(at: i64, names: &[&str]) -> StoreStep {
        let mut step = StoreStep::new(UnixMs(at), vec![("cluster".into(), "hall-1".into())]);
        for name in names {
            step.push_sample(name, &[("job", "8812"), ("node", "gpu1")], at as f64);
        }
        step
    }

    fn series_by_name(batches: &[RequestBatch], name: &str) -> Vec<(i64, u64)> {
        let all: Vec<DecodedSeries> =
            batches.iter().flat_map(|batch| decode_body(&batch.body).series).collect();
        let is_named = |series: &&DecodedSeries| series.labels[0].value == name;
        let found = all.iter().find(is_named).map(|series| &series.samples);
        let samples = found.into_iter().flatten();
        samples.map(|sample| (sample.at, sample.value.to_bits())).collect()
    }

    #[test]
    fn series_has_the_labels_of_a_scrape() {
        let mut window = SeriesWindow::default();
        window.push_step(&step_of(1_000, &["gaunt_job_lost_gpus"]));
        let request = decode_body(&window.take_requests()[0].body);
        let labels: Vec<_> = request.series[0]
            .labels
            .iter()
            .map(|label| (label.name.as_str(), label.value.as_str()))
            .collect();
        let expected = [
            ("__name__", "gaunt_job_lost_gpus"),
            ("cluster", "hall-1"),
            ("exported_job", "8812"),
            ("job", "gaunt"),
            ("node", "gpu1"),
        ];
        assert_eq!(labels, expected, "no instance: two aggregators write one series");
    }

    #[test]
    fn request_has_four_samples_of_a_series_in_order() {
        let mut window = SeriesWindow::default();
        for step in 1..=4 {
            assert!(!window.is_full());
            let kept = window.push_step(&step_of(step * 15_000, &["a", "b"]));
            assert_eq!(series_by_name(&kept, "a").len(), 1, "a step is kept by itself");
        }
        assert!(window.is_full());
        let batches = window.take_requests();
        assert_eq!((batches.len(), batches[0].samples), (1, 8));
        assert_eq!((batches[0].oldest, batches[0].newest), (UnixMs(15_000), UnixMs(60_000)));
        let instants = series_by_name(&batches, "a").into_iter().map(|(at, _)| at);
        assert_eq!(instants.collect::<Vec<_>>(), [15_000, 30_000, 45_000, 60_000]);
        assert!(window.take_requests().is_empty() && !window.is_full());
    }

    /// One missed step is a gap; two end the series, once, and it may begin again.
    #[test]
    fn absent_series_ends_after_two_steps() {
        let mut window = SeriesWindow::default();
        window.push_step(&step_of(1_000, &["a", "b"]));
        window.push_step(&step_of(2_000, &["a"]));
        window.push_step(&step_of(3_000, &["a", "b"]));
        window.push_step(&step_of(4_000, &["a"]));
        let first = series_by_name(&window.take_requests(), "b");
        assert_eq!(first.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1_000, 3_000]);
        window.push_step(&step_of(5_000, &["a"]));
        window.push_step(&step_of(6_000, &["a"]));
        assert_eq!(series_by_name(&window.take_requests(), "b"), [(5_000, STALE_MARKER)]);
        assert_eq!(window.series_count(), 1, "an ended series is forgotten");
        window.push_step(&step_of(7_000, &["a", "b"]));
        assert_eq!(series_by_name(&window.take_requests(), "b").len(), 1);
    }
}
