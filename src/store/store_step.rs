//! Store step: the samples of one instant, with the labels that a scrape would add.

use gaunt_schema::UnixMs;

use crate::write_request;

/// The most samples: verdicts of 100,000 GPUs are about 220,000.
pub(crate) const MAX_SERIES: usize = 1_000_000;

/// The most labels of a series.
const MAX_LABELS: usize = 32;

/// Label of the job that a scrape adds; the scheduler's job is `exported_job`, as in what Prometheus scrapes.
const JOB: (&str, &str) = ("job", "gaunt");

/// Samples of one instant. Filled by [`Self::push_sample`], then handed over with [`crate::StoreWriter::send_step`].
#[derive(Debug, Default)]
pub struct StoreStep {
    /// The instant, on the grid.
    pub(crate) at: UnixMs,
    /// Samples beyond the limits.
    pub(crate) left_out: u64,
    /// Encoded labels of all series, one after the other.
    labels: Vec<u8>,
    /// End of each series in `labels`, and its value.
    series: Vec<(usize, f64)>,
    /// Labels that all series have.
    common: Vec<(String, String)>,
}

impl StoreStep {
    /// An empty step; `common` labels are added to each series.
    pub(crate) fn new(at: UnixMs, common: Vec<(String, String)>) -> Self {
        Self { at, common, ..Self::default() }
    }

    /// Adds a sample; the label `job` becomes `exported_job`.
    pub fn push_sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let count = labels.len() + self.common.len() + 2;
        if self.series.len() >= MAX_SERIES || count > MAX_LABELS {
            self.left_out += 1;
            return;
        }
        let mut sorted = [("", ""); MAX_LABELS];
        let renamed = labels.iter().map(|(name, value)| match *name {
            "job" => ("exported_job", *value),
            name => (name, *value),
        });
        let common = self.common.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let all = [("__name__", name), JOB].into_iter().chain(common).chain(renamed);
        for (slot, label) in sorted.iter_mut().zip(all) {
            *slot = label;
        }
        write_request::encode_labels(&mut sorted[..count], &mut self.labels);
        self.series.push((self.labels.len(), value));
    }

    /// The instant of the samples.
    pub fn instant(&self) -> UnixMs {
        self.at
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Whether it has no samples.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// The series: encoded labels and value.
    pub(crate) fn iter_series(&self) -> impl Iterator<Item = (&[u8], f64)> {
        let starts = std::iter::once(0).chain(self.series.iter().map(|(end, _)| *end));
        starts.zip(&self.series).map(|(start, (end, value))| (&self.labels[start..*end], *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_with_too_many_labels_is_left_out_and_counted() {
        let names: Vec<String> = (0..40).map(|index| format!("label_{index}")).collect();
        let labels: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).collect();
        let mut step = StoreStep::new(UnixMs(1_000), Vec::new());
        step.push_sample("a", &[], 1.0);
        step.push_sample("b", &labels, 1.0);
        assert_eq!((step.len(), step.left_out), (1, 1));
    }
}
