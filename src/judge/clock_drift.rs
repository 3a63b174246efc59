//! Clock drift: GPUs that slowly fall behind their peers, detected by a sum of small deficits (CUSUM).
//!
//! A GPU's clock relative to its peers does not change when all of them do something else. Deficits that are too small
//! to stand out are summed for as long as they last; the baseline is slow enough not to follow them.

use serde::{Deserialize, Serialize};

use super::{Thresholds, moving_average::CompactTimestamp};

/// The clock of one GPU / peer median, over a long time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "SavedDrift", into = "SavedDrift")]
pub(super) struct ClockDrift {
    baseline: f32,
    /// Seconds that the baseline was learned from.
    seconds: f32,
    /// The sum of deficits, in seconds of a whole clock.
    sum: f32,
    at: CompactTimestamp,
}

/// The saved form: the baseline, the seconds that it was learned from, the sum, and the time of the last sample.
type SavedDrift = (f32, f32, f32, i64);

impl From<SavedDrift> for ClockDrift {
    fn from((baseline, seconds, sum, at): SavedDrift) -> Self {
        Self { baseline, seconds, sum, at: CompactTimestamp::from_millis(at) }
    }
}

impl From<ClockDrift> for SavedDrift {
    fn from(known: ClockDrift) -> Self {
        (known.baseline, known.seconds, known.sum, known.at.to_millis())
    }
}

impl ClockDrift {
    /// Whether nothing was seen yet.
    pub(super) fn is_new(&self) -> bool {
        !self.at.is_set()
    }

    /// Whether a sample of this time was added last.
    pub(super) fn is_sampled_at(&self, at: CompactTimestamp) -> bool {
        self.at == at
    }

    /// Returns the baseline of the clock ratio.
    pub(super) fn baseline_ratio(&self) -> f64 {
        f64::from(self.baseline)
    }

    /// Adds a clock ratio.
    pub(super) fn add_clock_ratio(
        &mut self,
        beside: f64,
        at: CompactTimestamp,
        frozen: bool,
        limits: &Thresholds,
    ) {
        let passed = if self.at.is_set() { at.seconds_since(self.at) } else { 0.0 };
        // A sample that covers a long time is still one sample.
        let passed = passed.min(limits.slow_period_seconds);
        self.at = at;
        let learning = f64::from(self.seconds) < limits.drift_learned_seconds;
        if learning {
            self.seconds += passed as f32;
        }
        let span = if learning { f64::from(self.seconds) } else { limits.drift_seconds };
        let part = if self.baseline > 0.0 { (passed / span).clamp(0.0, 1.0) } else { 1.0 };
        // While a finding names it the baseline is frozen, so that a decline never becomes the baseline.
        if learning || !frozen {
            self.baseline += (beside as f32 - self.baseline) * part as f32;
        }
        if learning {
            return;
        }
        let deficit = 1.0 - beside / f64::from(self.baseline);
        let sum = f64::from(self.sum) + (deficit - limits.drift_slack_ratio) * passed;
        self.sum = sum.clamp(0.0, 2.0 * limits.drift_sum_seconds) as f32;
    }

    /// Whether its clock has declined relative to its peers, and that has lasted.
    pub(super) fn has_declined(&self, limits: &Thresholds) -> bool {
        f64::from(self.sum) >= limits.drift_sum_seconds
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::UnixMs;

    use super::*;

    /// Returns the second in which drift is detected for this course, if it is.
    fn declined_after(course: impl Fn(i64) -> f64, seconds: i64) -> Option<i64> {
        let (mut drift, limits) = (ClockDrift::default(), Thresholds::default());
        (0..seconds).find(|second| {
            drift.add_clock_ratio(
                course(*second),
                CompactTimestamp::of(UnixMs(second * 1_000)),
                false,
                &limits,
            );
            drift.has_declined(&limits)
        })
    }

    #[test]
    fn decline_of_a_tenth_is_detected_within_minutes_and_a_slow_one_within_the_hour() {
        let step = declined_after(|second| if second < 600 { 1.0 } else { 0.9 }, 3_600).unwrap();
        assert!((630..780).contains(&step), "{step}");
        // A hundredth in five minutes: at no instant is it visible.
        let slope = declined_after(|second| 1.0 - second as f64 / 30_000.0, 7_200).unwrap();
        assert!(slope < 3_600, "{slope}");
    }

    #[test]
    fn decline_with_an_open_finding_stays_one() {
        let (mut drift, limits) = (ClockDrift::default(), Thresholds::default());
        for second in 0..172_800 {
            let beside = if second < 600 { 1.0 } else { 0.9 };
            let frozen = drift.has_declined(&limits);
            drift.add_clock_ratio(
                beside,
                CompactTimestamp::of(UnixMs(second * 1_000)),
                frozen,
                &limits,
            );
        }
        assert!(drift.has_declined(&limits) && drift.baseline > 0.97, "{drift:?}");
    }

    #[test]
    fn noise_and_a_constant_level_are_no_decline() {
        // Sums of two rotations of an angle that no second repeats.
        let noise =
            |second: i64| 0.03 * ((second as f64 * 2.4).sin() + (second as f64 * 0.7).sin());
        assert_eq!(declined_after(|second| 1.0 + noise(second), 86_400), None);
        assert_eq!(declined_after(|_| 0.8, 7_200), None, "a board that was always slower");
        assert_eq!(
            declined_after(|second| if second % 600 < 20 { 0.9 } else { 1.0 }, 86_400),
            None
        );
    }
}
