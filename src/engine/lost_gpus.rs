//! The series of lost GPUs over the last minutes.

use std::{collections::VecDeque, time::Duration};

use gaunt_schema::UnixMs;
use serde::{Deserialize, Serialize};

/// The time between two points.
pub(super) const STEP: Duration = Duration::from_secs(10);

/// Number of points: a quarter of an hour.
const POINTS: usize = 90;

/// Mean of lost GPUs per step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct LostGpuSeries {
    /// The step of the newest point.
    step: i64,
    /// Sum and number of the samples of each step, oldest first.
    points: VecDeque<(f64, u32)>,
}

impl LostGpuSeries {
    /// Records the lost GPUs at `now`; none if unknown.
    pub(super) fn record_loss(&mut self, now: UnixMs, lost: Option<f64>) {
        let step = now.0.div_euclid(STEP.as_millis() as i64);
        let passed = if self.points.is_empty() { 1 } else { step.saturating_sub(self.step) };
        for _ in 0..passed.clamp(0, POINTS as i64) {
            self.points.push_back((0.0, 0));
        }
        self.points.drain(..self.points.len().saturating_sub(POINTS));
        self.step = self.step.max(step);
        if let (Some(lost), Some((sum, entries))) = (lost, self.points.back_mut()) {
            *sum += lost;
            *entries += 1;
        }
    }

    /// The same series, truncated to the maximum number of points.
    pub(super) fn bounded(mut self) -> Self {
        self.points.drain(..self.points.len().saturating_sub(POINTS));
        self
    }

    /// The same series, with the points of another one where it has none itself.
    pub(super) fn with_earlier(mut self, other: &Self) -> Self {
        if self.points.is_empty() {
            return other.clone();
        }
        // The other may be newer: it was read back while this one had no tick yet.
        let last = self.step.max(other.step);
        let point = |series: &Self, step: i64| {
            let back = usize::try_from(series.step.saturating_sub(step)).ok()?;
            let index = series.points.len().checked_sub(back + 1)?;
            series.points.get(index).copied().filter(|(_, entries)| *entries > 0)
        };
        let steps = last.saturating_sub(POINTS as i64 - 1)..=last;
        let joined = steps.map(|step| point(&self, step).or_else(|| point(other, step)));
        self.points = joined.map(Option::unwrap_or_default).collect();
        self.step = last;
        self
    }

    /// Every point up to a time, oldest first; none where the loss was unknown.
    pub(super) fn points_until(&self, at: UnixMs) -> Vec<Option<f32>> {
        let step = at.0.div_euclid(STEP.as_millis() as i64);
        let later = self.step.saturating_sub(step).clamp(0, POINTS as i64) as usize;
        let mut history = vec![None; later];
        history.extend(self.all_points());
        history.truncate(POINTS);
        history
    }

    /// Every point, oldest first; none where the loss was unknown.
    pub(super) fn all_points(&self) -> Vec<Option<f32>> {
        let before = std::iter::repeat_n(None, POINTS - self.points.len());
        let mean = |(sum, entries): &(f64, u32)| {
            (*entries > 0).then(|| (sum / f64::from(*entries)) as f32)
        };
        before.chain(self.points.iter().map(mean)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn point_is_the_mean_of_its_step_and_none_if_unknown() {
        let mut series = LostGpuSeries::default();
        for (second, lost) in [(0, Some(1.0)), (5, Some(3.0)), (10, None), (20, Some(4.0))] {
            series.record_loss(UnixMs(second * 1_000), lost);
        }
        let history = series.all_points();
        assert_eq!(history.len(), POINTS);
        assert_eq!(history[POINTS - 3..], [Some(2.0), None, Some(4.0)]);
        assert!(history[..POINTS - 3].iter().all(Option::is_none));
    }

    #[test]
    fn own_points_count_and_earlier_ones_fill_the_gaps() {
        let series_of = |losses: &[(i64, f64)]| {
            let mut series = LostGpuSeries::default();
            for (step, lost) in losses {
                series.record_loss(UnixMs(step * 10_000), Some(*lost));
            }
            series
        };
        let own = series_of(&[(100, 1.0), (102, 2.0)]);
        let joined = own.clone().with_earlier(&series_of(&[(98, 5.0), (100, 6.0), (101, 7.0)]));
        let points = joined.all_points();
        assert_eq!(points[POINTS - 5..], [Some(5.0), None, Some(1.0), Some(7.0), Some(2.0)]);
        assert_eq!(joined.step, 102);
        let newer = own.clone().with_earlier(&series_of(&[(103, 9.0), (10_000, 8.0)]));
        assert_eq!(newer.all_points().iter().flatten().count(), 1, "all others are too old");
        assert_eq!(LostGpuSeries::default().with_earlier(&own), own);
    }

    #[test]
    fn series_is_bounded_and_a_pause_leaves_gaps() {
        let mut series = LostGpuSeries::default();
        for step in 0..200 {
            series.record_loss(UnixMs(step * 10_000), Some(step as f64));
        }
        let history = series.all_points();
        assert_eq!((history.len(), history[0], history[89]), (90, Some(110.0), Some(199.0)));
        let then = series.points_until(UnixMs(1_950_000));
        assert_eq!((then.len(), then[0], then[4], then[89]), (90, None, Some(110.0), Some(195.0)));
        series.record_loss(UnixMs(100_000_000), Some(1.0));
        let history = series.all_points();
        assert_eq!(history.iter().flatten().count(), 1);
    }
}
