//! Who speaks for a node, and which metrics are taken from whom.

use std::time::Duration;

use gaunt_schema::{
    DeviceClass, Dialect, Metric, MetricId, Report, TargetId, UnixMs, catalogue::CATALOGUE,
};

/// A set of metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MetricSet(Vec<u64>);

impl MetricSet {
    /// The metrics of a report, and those of them of which the rows are `wanted`.
    fn of(report: &Report, wanted: impl Fn(&Metric) -> bool) -> (Self, Self) {
        let none = Self(vec![0; CATALOGUE.len().div_ceil(64)]);
        let (mut all, mut some) = (none.clone(), none);
        // Samples of one metric mostly stand together.
        for run in report.samples.chunk_by(|one, other| one.metric == other.metric) {
            let Some(metric) = run.first().map(|sample| sample.metric) else { continue };
            let Some(row) = CATALOGUE.get(usize::from(metric.0)) else { continue };
            all.add_metric(metric);
            if wanted(row) {
                some.add_metric(metric);
            }
        }
        (all, some)
    }

    fn add_metric(&mut self, metric: MetricId) {
        if let Some(word) = self.0.get_mut(usize::from(metric.0) / 64) {
            *word |= 1 << (metric.0 % 64);
        }
    }

    /// Whether the metric is one of them.
    #[inline]
    pub(super) fn has_metric(&self, metric: MetricId) -> bool {
        let word = self.0.get(usize::from(metric.0) / 64);
        word.is_some_and(|word| word >> (metric.0 % 64) & 1 == 1)
    }

    /// Those that are not among `others`.
    fn remove_all(&mut self, others: &Self) {
        for (word, others) in self.0.iter_mut().zip(&others.0) {
            *word &= !others;
        }
    }
}

/// A target that speaks for a node.
#[derive(Clone, Debug)]
pub struct MetricSource {
    /// In whose words.
    pub dialect: Dialect,
    /// Which target.
    pub target: TargetId,
    /// When it last brought new values.
    pub(super) last: UnixMs,
    /// What it brought before is no base for a rate: another clock.
    pub(super) epoch: UnixMs,
    /// What of its last page is not taken from lesser ones.
    has: MetricSet,
    /// What was taken of it.
    taken: MetricSet,
}

/// What is taken of a page.
#[derive(Clone, Debug)]
pub(super) struct SelectedMetrics {
    /// The metrics that are taken.
    pub(super) taken: MetricSet,
    /// Those that were taken of the page before as well.
    before: MetricSet,
    epoch: UnixMs,
    at: UnixMs,
}

impl SelectedMetrics {
    /// Readings that came before this instant are no base for a rate of the metric: another target may have brought
    /// them.
    #[inline]
    pub(super) fn rate_epoch(&self, metric: MetricId) -> UnixMs {
        if self.before.has_metric(metric) { self.epoch } else { self.at }
    }
}

impl MetricSource {
    pub(super) fn new(dialect: Dialect, target: TargetId, at: UnixMs) -> Self {
        let (has, taken) = (MetricSet::default(), MetricSet::default());
        Self { dialect, target, last: UnixMs(i64::MIN / 2), epoch: at, has, taken }
    }
}

/// What is taken of a page of the speaker at `place`: what no better dialect says that was heard lately. Of equal ones,
/// as two model servers of a kind, the first is taken.
pub(super) fn select_metrics(
    speakers: &mut [MetricSource],
    place: usize,
    report: &Report,
    at: UnixMs,
    fresh_for: Duration,
    same_clock: bool,
) -> SelectedMetrics {
    // What a model server says is of itself, whoever else runs beside it.
    let (mut taken, has) = MetricSet::of(report, |row| row.class != DeviceClass::Service);
    let own = speakers[place].dialect;
    for (other, speaker) in speakers.iter().enumerate() {
        let better = (speaker.dialect, other) < (own, place);
        if better && at.duration_since(speaker.last) <= fresh_for {
            taken.remove_all(&speaker.has);
        }
    }
    let speaker = &mut speakers[place];
    if !same_clock {
        speaker.epoch = at;
    }
    (speaker.last, speaker.has) = (at, has);
    let before = std::mem::replace(&mut speaker.taken, taken.clone());
    SelectedMetrics { taken, before, epoch: speaker.epoch, at }
}
