//! Shift detectors: evidence that a value has moved from where it usually is, summed over samples.
//!
//! Each sample is measured in units of the value's own usual spread, which is learned while nothing is suspected. What
//! exceeds twice the spread is added, the rest is subtracted: many small shifts in one direction add up, and noise does
//! not (CUSUM). One sample counts little more than two spreads, so that no single one decides.

/// The evidence for a shift of one value: eight bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ShiftDetector {
    /// The usual deviation, as a standard deviation.
    spread: f32,
    sum: f32,
}

/// The spread before anything was learned, and the samples that it counts for.
const PRIOR_SPREAD: f32 = 0.05;
const PRIOR_SAMPLES: f32 = 3.0;

/// Samples over which the spread is averaged.
const SPREAD_SAMPLES: f32 = 60.0;

/// A mean absolute deviation × this is the standard deviation of a normal distribution.
const LIKE_SIGMA: f32 = 1.253;

/// How much a sample beyond the slack counts for the spread.
const OUTLIER_COUNTS: f32 = 0.25;

/// Spreads by which a sample must deviate to add evidence.
const SLACK_SPREADS: f32 = 2.0;

/// The largest step of the sum in either direction.
const MAX_RISE: f32 = 2.5;
const MAX_FALL: f32 = 1.5;

/// The largest sum: a shift that is over is forgotten after a few samples.
const MAX_SUM: f32 = 10.0;

/// The sum from which a shift is likely: two clear samples.
const LIKELY: f32 = 4.9;

impl Default for ShiftDetector {
    fn default() -> Self {
        Self { spread: PRIOR_SPREAD, sum: 0.0 }
    }
}

impl ShiftDetector {
    /// Adds a sample that deviates by so much in the bad direction, where deviations below `floor` mean nothing. The
    /// spread learns from it if `learns`, after `samples` earlier ones.
    pub(super) fn add_deviation(&mut self, deviation: f64, floor: f64, learns: bool, samples: u32) {
        let (deviation, floor) = (deviation as f32, floor as f32);
        let spread = self.spread.max(floor);
        let rise = deviation / spread - SLACK_SPREADS;
        self.sum = (self.sum + rise.clamp(-MAX_FALL, MAX_RISE)).clamp(0.0, MAX_SUM);
        if learns && self.sum < MAX_RISE {
            // What may be the begin of a shift widens the spread by little.
            let size = deviation.abs().min(SLACK_SPREADS * spread) * LIKE_SIGMA;
            let counts = if rise > 0.0 { OUTLIER_COUNTS } else { 1.0 };
            let weight = counts / (samples as f32 + PRIOR_SAMPLES).min(SPREAD_SAMPLES);
            self.spread += (size - self.spread) * weight;
        }
    }

    /// Whether a shift is likely.
    pub(super) fn is_likely(self) -> bool {
        self.sum >= LIKELY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number from -1 to 1 that looks random.
    fn noise(at: u32) -> f64 {
        let mixed = (at ^ 0x9e37).wrapping_mul(0x85eb_ca6b);
        f64::from((mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35) >> 8) / f64::from(1 << 23) - 1.0
    }

    /// Returns the sample of which a shift is likely, of values with this noise that shift after 20 samples.
    fn likely_after(size: f64, shift: f64) -> Option<u32> {
        let mut detector = ShiftDetector::default();
        (0..2_000).find(|at| {
            let shifted = if *at < 20 { 0.0 } else { shift };
            detector.add_deviation(size * noise(*at) + shifted, 0.002, true, *at);
            detector.is_likely()
        })
    }

    #[test]
    fn small_shift_of_a_quiet_value_is_found_as_fast_as_a_large_one_of_a_noisy_value() {
        assert_eq!(likely_after(0.001, 0.03), Some(21));
        assert_eq!(likely_after(0.05, 0.5), Some(21));
        assert!(likely_after(0.05, 0.1).is_some_and(|at| at < 60));
    }

    #[test]
    fn noise_is_no_shift_however_large() {
        for size in [0.001, 0.01, 0.1, 0.5] {
            assert_eq!(likely_after(size, 0.0), None, "{size}");
        }
    }
}
