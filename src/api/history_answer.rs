//! History: one metric of one device, or aggregated over many, over time.

use std::time::Duration;

use gaunt_schema::{SanitizedText, UnixMs, unit::Unit};
use serde::{Deserialize, Serialize};

use super::Filter;

/// The most points of one answer.
pub const MAX_POINTS: u32 = 2_000;

/// Default number of points: as many as a wide terminal has columns.
pub const USUAL_POINTS: u32 = 240;

/// The longest span of a history.
pub const LONGEST_SPAN: Duration = Duration::from_hours(24 * 90);

/// A history query.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HistoryQuery {
    /// The field of the subject's rows, by any of its names; `lost` without rows is the lost GPUs of the whole fleet.
    pub metric: SanitizedText,
    /// The rows: one device, or many that are aggregated.
    pub of: Filter,
    /// The aggregation; irrelevant for one device.
    pub together: HistoryAggregation,
    /// The most points to return.
    pub points: u32,
    /// The time that is shown, up to [`LONGEST_SPAN`]; none for all that is in memory. What is longer comes from a store, if
    /// verdicts are written to one.
    pub span: Option<Duration>,
}

/// Aggregation of many devices into one series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HistoryAggregation {
    /// Their mean.
    #[default]
    Mean,
    /// Their sum; absent values are skipped.
    Sum,
    /// The minimum.
    Min,
    /// The maximum.
    Max,
}

impl HistoryAggregation {
    /// All aggregations.
    pub const ALL: [Self; 4] = [Self::Mean, Self::Sum, Self::Min, Self::Max];

    /// The name in questions.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
        }
    }

    /// Parses an aggregation name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.as_str() == word)
    }
}

/// One metric over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MetricHistory {
    /// Engine time of this answer; the last point is the newest sample before it.
    pub at: UnixMs,
    /// The short name of the field.
    pub metric: String,
    /// Its unit; a counter is shown as its rate per second.
    pub unit: Unit,
    /// Number of devices aggregated.
    pub devices: u32,
    /// The aggregation.
    pub together: HistoryAggregation,
    /// The time between two points, in milliseconds.
    pub step_ms: u64,
    /// Mean of the samples of each point, oldest first; none where unknown.
    pub mean: Vec<Option<f32>>,
    /// Minimum sample of each point; empty where each point is one sample.
    pub low: Vec<Option<f32>>,
    /// Maximum sample of each point; empty where each point is one sample.
    pub high: Vec<Option<f32>>,
}

impl MetricHistory {
    /// The time that its points cover.
    pub fn span(&self) -> Duration {
        Duration::from_millis(self.step_ms.saturating_mul(self.mean.len() as u64))
    }

    /// Drops what is older than this.
    pub fn crop_to(&mut self, span: Duration) {
        let kept = span.as_millis().div_ceil(u128::from(self.step_ms.max(1)));
        for points in [&mut self.mean, &mut self.low, &mut self.high] {
            let dropped = points.len().saturating_sub(usize::try_from(kept).unwrap_or(usize::MAX));
            points.drain(..dropped);
        }
    }

    /// Merges neighbouring points until there are at most `points`; minimum and maximum of each are kept.
    ///
    /// Groups are counted from the end, so that the newest point is as wide as the others.
    pub fn downsample_to(&mut self, points: u32) {
        let samples = self.mean.len();
        let width = samples.div_ceil((points as usize).max(1));
        if width <= 1 {
            return;
        }
        let groups = || self.mean.rchunks(width).rev();
        let reduce_group = |group: &[Option<f32>], pick: fn(f32, f32) -> f32| {
            group.iter().copied().flatten().reduce(pick)
        };
        let mean = |group: &[Option<f32>]| {
            let known = group.iter().flatten().count();
            let sum: f64 = group.iter().flatten().copied().map(f64::from).sum();
            (known > 0).then(|| (sum / known as f64) as f32)
        };
        let low = groups().map(|group| reduce_group(group, f32::min)).collect();
        let high = groups().map(|group| reduce_group(group, f32::max)).collect();
        let mean = groups().map(mean).collect();
        (self.mean, self.low, self.high) = (mean, low, high);
        self.step_ms *= width as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn power_history(points: Vec<Option<f32>>) -> MetricHistory {
        MetricHistory {
            at: UnixMs(0),
            metric: "power".into(),
            unit: Unit::Watts,
            devices: 1,
            together: HistoryAggregation::Mean,
            step_ms: 1_000,
            mean: points,
            low: Vec::new(),
            high: Vec::new(),
        }
    }

    #[test]
    fn thinning_retains_peaks_and_gaps() {
        let mut points = vec![Some(1.0); 90];
        points[40] = Some(700.0);
        points[80..].fill(None);
        let mut thin = power_history(points);
        thin.downsample_to(9);
        assert_eq!((thin.mean.len(), thin.step_ms), (9, 10_000));
        assert_eq!((thin.low[4], thin.high[4]), (Some(1.0), Some(700.0)));
        assert_eq!((thin.mean[8], thin.low[8], thin.high[8]), (None, None, None));
        let mut whole = power_history(vec![Some(1.0), None]);
        whole.downsample_to(2);
        assert_eq!((whole.mean, whole.low.len()), (vec![Some(1.0), None], 0));
    }

    #[test]
    fn crop_keeps_the_newest_points() {
        let mut history = power_history((0..10).map(|at| Some(at as f32)).collect());
        history.crop_to(Duration::from_millis(2_500));
        assert_eq!((history.mean, history.low.len()), (vec![Some(7.0), Some(8.0), Some(9.0)], 0));
        let mut short = power_history(vec![Some(1.0)]);
        short.crop_to(LONGEST_SPAN);
        assert_eq!(short.span(), Duration::from_secs(1));
    }

    proptest::proptest! {
        #[test]
        fn thinning_never_exceeds_the_points_and_retains_extremes(
            points in proptest::collection::vec(proptest::option::of(-1e3_f32..1e3), 0..300),
            wanted in 1_u32..400,
        ) {
            let mut thin = power_history(points.clone());
            thin.downsample_to(wanted);
            proptest::prop_assert!(thin.mean.len() <= wanted as usize);
            let known = || points.iter().copied().flatten();
            let highs = if thin.high.is_empty() { &thin.mean } else { &thin.high };
            let lows = if thin.low.is_empty() { &thin.mean } else { &thin.low };
            proptest::prop_assert_eq!(highs.iter().copied().flatten().reduce(f32::max), known().reduce(f32::max));
            proptest::prop_assert_eq!(lows.iter().copied().flatten().reduce(f32::min), known().reduce(f32::min));
        }
    }
}
