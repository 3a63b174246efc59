//! Evidence sums: the evidence for a change of one value, over all of its samples (an e-detector).
//!
//! A sample as unlikely as `p` multiplies the evidence by `p^(-1/2) / 2`, whose mean is 1 while nothing has changed.
//! The evidence never falls below 1. Weak evidence of many samples adds up, a gap does not end it, and a false alarm at
//! a threshold of `m` comes after `m` samples on average, whatever the noise.

use serde::{Deserialize, Serialize};

/// The logarithm of the evidence: four bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct EvidenceSum(f32);

/// The probability of a sample that leaves the evidence as it is.
pub(super) const EVEN_CHANCE: f64 = 0.25;

/// The largest rise by one sample: two are needed at least.
const MAX_RISE: f64 = 5.0;

/// The largest sum: a change that is over is forgotten after a few samples.
const MAX_SUM: f64 = 16.0;

/// The sum from which a change is likely: two very unlikely samples, or several less unlikely ones.
const LIKELY: f32 = 6.0;

/// The sum from which a change is likely although thousands of values are watched.
const LIKELY_ALONE: f32 = 11.0;

impl EvidenceSum {
    /// Adds a sample that is as unlikely as this if nothing has changed.
    pub(super) fn add_probability(&mut self, probability: f64) {
        let rise = -0.5 * probability.max(f64::MIN_POSITIVE).ln() - std::f64::consts::LN_2;
        self.0 = (f64::from(self.0) + rise.min(MAX_RISE)).clamp(0.0, MAX_SUM) as f32;
    }

    /// Whether a change is likely.
    pub(super) fn is_likely(self) -> bool {
        self.0 >= LIKELY
    }

    /// Whether a change is suspected: too little by itself, but something else may confirm it.
    pub(super) fn is_suspected(self) -> bool {
        self.0 >= SUSPECTED
    }

    /// Whether a change is likely even as the only one of thousands of values.
    pub(super) fn is_likely_alone(self) -> bool {
        self.0 >= LIKELY_ALONE
    }
}

/// The evidence for a change of one value from the level that it usually has: twelve bytes.
///
/// Two references must agree: a change counts as unlikely only if it is so among all members of its cohort, and beside
/// the value's own noise. A rank that is slower by design is also noisier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "SavedLevel", into = "SavedLevel")]
pub(super) struct LevelEvidence {
    level: f32,
    /// The mean absolute deviation.
    spread: f32,
    sum: EvidenceSum,
}

/// The saved form: the level, the deviation and the sum.
type SavedLevel = (f32, f32, EvidenceSum);

impl From<SavedLevel> for LevelEvidence {
    fn from((level, spread, sum): SavedLevel) -> Self {
        Self { level, spread, sum }
    }
}

impl From<LevelEvidence> for SavedLevel {
    fn from(evidence: LevelEvidence) -> Self {
        (evidence.level, evidence.spread, evidence.sum)
    }
}

/// The exponent of the tail of a value's own noise, as of a heavy tail.
const TAIL_EXPONENT: f64 = 3.0;

/// The largest rise that a level is learned from: in spreads, and while these are not known.
const LEARNED_SPREADS: f32 = 4.0;
const LEAST_LEARNED: f32 = 0.02;

/// How many times as large as the noise of any value a rise must be, as where shifts are summed.
const SLACK_FLOORS: f64 = 2.0;

/// Samples over which the level is averaged.
const LEVEL_SAMPLES: u32 = 30;

impl LevelEvidence {
    /// Returns how far a value is above its level.
    pub(super) fn rise_of(self, value: f64) -> f64 {
        value - f64::from(self.level)
    }

    /// Adds a value that is as unlikely as this in its cohort; level and deviation follow while nothing is suspected,
    /// after `samples` earlier ones. However steady value and cohort are, a rise means nothing below twice `floor`, the noise
    /// of any value.
    pub(super) fn add_value(&mut self, value: f64, probability: f64, samples: u32, floor: f64) {
        let rise = self.rise_of(value);
        let own =
            (f64::from(self.spread) / rise.max(f64::MIN_POSITIVE)).min(1.0).powf(TAIL_EXPONENT);
        let is_noise = rise < SLACK_FLOORS * floor;
        self.sum.add_probability(if is_noise { 1.0 } else { probability.max(own) });
        if !self.sum.is_suspected() {
            let weight = 1.0 / (samples + 1).min(LEVEL_SAMPLES) as f32;
            let deviation = value as f32 - self.level;
            // A change that begins while its level is learned counts little.
            let most = (LEARNED_SPREADS * self.spread).max(LEAST_LEARNED);
            let deviation = if samples > 0 { deviation.min(most) } else { deviation };
            self.level += deviation * weight;
            // The first value is all level.
            if samples > 0 {
                self.spread += (deviation.abs() - self.spread) * weight;
            }
        }
    }

    /// Whether a change is likely.
    pub(super) fn is_likely(self) -> bool {
        self.sum.is_likely()
    }

    /// Whether a change is likely even as the only one of thousands of values.
    pub(super) fn is_likely_alone(self) -> bool {
        self.sum.is_likely_alone()
    }
}

/// The sum from which a change is suspected.
const SUSPECTED: f32 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlikely_samples_add_up_over_gaps() {
        let mut sum = EvidenceSum::default();
        for _ in 0..1_000 {
            sum.add_probability(0.6);
        }
        assert!(!sum.is_likely());
        for probability in [1e-3, 1e-3, 0.5, 1e-3] {
            sum.add_probability(probability);
        }
        assert!(sum.is_likely());
        assert!(!sum.is_likely_alone());
        sum.add_probability(1e-9);
        assert!(sum.is_likely_alone());
    }

    #[test]
    fn steady_value_that_moves_by_next_to_nothing_has_not_changed() {
        let likely_after = |rise: f64| {
            let mut evidence = LevelEvidence::default();
            for samples in 0..200 {
                let noise = if samples % 2 == 0 { 1e-4 } else { -1e-4 };
                evidence.add_value(noise, 0.5, samples, 0.004);
            }
            (0..100).find(|at| {
                evidence.add_value(rise, 1e-9, 200 + at, 0.004);
                evidence.is_likely()
            })
        };
        assert_eq!(likely_after(0.005), None);
        assert!(likely_after(0.03).is_some_and(|at| at < 3));
    }
}
