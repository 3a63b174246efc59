//! History: one metric of one device, or of many together, over time.

use gaunt_schema::{SanitizedText, UnixMs, unit::Unit};
use serde::{Deserialize, Serialize};

use super::Filter;

/// The most points of one answer.
pub const MAX_POINTS: u32 = 2_000;

/// Points where nothing is said: as many as a wide terminal has columns.
pub const USUAL_POINTS: u32 = 240;

/// Whose past is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HistoryQuery {
    /// The field of the subject's rows, by any of its names; `lost` of no rows stands for the whole fleet's lost GPUs.
    pub metric: SanitizedText,
    /// The rows: one device, or many that are put together.
    pub of: Filter,
    /// How many devices are put together; one device is the same in every way.
    pub together: HistoryAggregation,
    /// The most points that are wanted.
    pub points: u32,
}

/// How many devices become one series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryAggregation {
    /// Their mean.
    #[default]
    Mean,
    /// Their sum; where one is absent it is that of the others.
    Sum,
    /// The least of them.
    Min,
    /// The greatest of them.
    Max,
}

impl HistoryAggregation {
    /// Every way.
    pub const ALL: [Self; 4] = [Self::Mean, Self::Sum, Self::Min, Self::Max];

    /// The word in questions.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
        }
    }

    /// The way of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.as_str() == word)
    }
}

/// One metric over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricHistory {
    /// The owner's clock when this was true; the last point is of the newest sample before it.
    pub at: UnixMs,
    /// The short name of the field.
    pub metric: String,
    /// Its unit; a counter is shown by what it grows in a second.
    pub unit: Unit,
    /// How many devices were put together.
    pub devices: u32,
    /// How they were put together.
    pub together: HistoryAggregation,
    /// The time between two points, in milliseconds.
    pub step_ms: u64,
    /// Oldest first; none where nothing was known. Where several samples make one point this is their mean.
    pub mean: Vec<Option<f32>>,
    /// The least sample of each point; empty where each point is one sample.
    pub low: Vec<Option<f32>>,
    /// The greatest sample of each point; empty where each point is one sample.
    pub high: Vec<Option<f32>>,
}

impl MetricHistory {
    /// Puts neighbours together until there are at most `points`; the least and the greatest of each are kept.
    ///
    /// Groups are counted from the end, so that the newest point is as wide as the others.
    pub fn downsample_to(&mut self, points: u32) {
        let samples = self.mean.len();
        let width = samples.div_ceil((points as usize).max(1));
        if width <= 1 {
            return;
        }
        let groups = || self.mean.rchunks(width).rev();
        let of = |group: &[Option<f32>], pick: fn(f32, f32) -> f32| {
            group.iter().copied().flatten().reduce(pick)
        };
        let mean = |group: &[Option<f32>]| {
            let known = group.iter().flatten().count();
            let sum: f64 = group.iter().flatten().copied().map(f64::from).sum();
            (known > 0).then(|| (sum / known as f64) as f32)
        };
        let low = groups().map(|group| of(group, f32::min)).collect();
        let high = groups().map(|group| of(group, f32::max)).collect();
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
    fn a_peak_survives_thinning_and_a_gap_stays_one() {
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

    proptest::proptest! {
        #[test]
        fn it_never_has_more_points_than_wanted_and_keeps_the_extremes(
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
