//! Source priority: the targets that report a node, and which metrics are ingested from which of them.

use std::time::Duration;

use gaunt_schema::{
    DeviceClass, Dialect, Metric, MetricId, Report, TargetId, UnixMs, catalogue::CATALOGUE,
};

/// A set of metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MetricSet(Vec<u64>);

impl MetricSet {
    /// The metrics of a report, and the subset of those with selected rows.
    fn of(report: &Report, is_selected: impl Fn(&Metric) -> bool) -> (Self, Self) {
        let empty = Self(vec![0; CATALOGUE.len().div_ceil(64)]);
        let (mut all, mut selected) = (empty.clone(), empty);
        // Samples of one metric are usually adjacent.
        for run in report.samples.chunk_by(|one, other| one.metric == other.metric) {
            let Some(metric) = run.first().map(|sample| sample.metric) else { continue };
            let Some(row) = CATALOGUE.get(usize::from(metric.0)) else { continue };
            all.add_metric(metric);
            if is_selected(row) {
                selected.add_metric(metric);
            }
        }
        (all, selected)
    }

    fn add_metric(&mut self, metric: MetricId) {
        if let Some(word) = self.0.get_mut(usize::from(metric.0) / 64) {
            *word |= 1 << (metric.0 % 64);
        }
    }

    /// Whether the set contains the metric.
    #[inline]
    pub(super) fn has_metric(&self, metric: MetricId) -> bool {
        let word = self.0.get(usize::from(metric.0) / 64);
        word.is_some_and(|word| word >> (metric.0 % 64) & 1 == 1)
    }

    /// Removes the metrics in `others`.
    fn remove_all(&mut self, others: &Self) {
        for (word, others) in self.0.iter_mut().zip(&others.0) {
            *word &= !others;
        }
    }
}

/// A target that reports a node.
#[derive(Clone, Debug)]
pub struct MetricSource {
    /// Its dialect.
    pub dialect: Dialect,
    /// Its target id.
    pub target: TargetId,
    /// When it last reported new values.
    pub(super) last: UnixMs,
    /// Earlier readings are no base for a rate: they are of another clock.
    pub(super) epoch: UnixMs,
    /// Metrics of its last page, which are not ingested from sources of lower priority.
    metrics: MetricSet,
    /// Metrics that were ingested from it.
    ingested: MetricSet,
}

/// The metrics of a page that are ingested.
#[derive(Clone, Debug)]
pub(super) struct SelectedMetrics {
    /// The ingested metrics.
    pub(super) ingested: MetricSet,
    /// Those that were ingested from the page before as well.
    pub(super) previous: MetricSet,
    /// Readings before this time are no base for a rate: they are of another clock.
    pub(super) epoch: UnixMs,
}

impl MetricSource {
    pub(super) fn new(dialect: Dialect, target: TargetId, at: UnixMs) -> Self {
        let (metrics, ingested) = (MetricSet::default(), MetricSet::default());
        Self { dialect, target, last: UnixMs(i64::MIN / 2), epoch: at, metrics, ingested }
    }
}

/// Selects the metrics of a page of the source at `index`: those that no recent page of a dialect of higher priority
/// has. Of equal dialects, as two model servers of a kind, the first is used.
pub(super) fn select_metrics(
    sources: &mut [MetricSource],
    index: usize,
    report: &Report,
    at: UnixMs,
    fresh_for: Duration,
    same_clock: bool,
) -> SelectedMetrics {
    // A model server reports only itself, whatever other sources the node has.
    let (mut ingested, metrics) = MetricSet::of(report, |row| row.class != DeviceClass::Service);
    let dialect = sources[index].dialect;
    for (other, source) in sources.iter().enumerate() {
        let has_priority = (source.dialect, other) < (dialect, index);
        if has_priority && at.duration_since(source.last) <= fresh_for {
            ingested.remove_all(&source.metrics);
        }
    }
    let source = &mut sources[index];
    if !same_clock {
        source.epoch = at;
    }
    (source.last, source.metrics) = (at, metrics);
    let previous = std::mem::replace(&mut source.ingested, ingested.clone());
    SelectedMetrics { ingested, previous, epoch: source.epoch }
}
