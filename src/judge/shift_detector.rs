//! Shift detectors: evidence that a value has moved from where it usually is, summed over samples.
//!
//! Each sample is measured in units of the value's own usual spread, which is learned while nothing is suspected. What
//! exceeds twice the spread is added, the rest is subtracted: many small shifts in one direction add up, and noise does
//! not (CUSUM). One sample counts little more than two spreads, so that no single one decides. Where such samples have
//! come and gone before, each counts less: by the logarithm of how often they did.

use serde::{Deserialize, Serialize};

/// The evidence for a rise of one value above its usual level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ShiftDetector {
    /// The usual level.
    level: f32,
    /// The usual deviation, as a standard deviation.
    spread: f32,
    sum: f32,
    /// Samples that were added.
    samples: u32,
    /// The share of samples that exceeded the slack and were no shift.
    #[serde(default)]
    outliers: f32,
    /// Those that did since the sum last was zero.
    #[serde(default)]
    since_zero: u8,
}

/// The spread before anything was learned, and the samples that it counts for.
const PRIOR_SPREAD: f32 = 0.05;
const PRIOR_SAMPLES: f32 = 3.0;

/// Samples from which level and spread are known.
const LEARNED_SAMPLES: u32 = 6;

/// The same of rare samples: from so few on a shift is suspected that is large enough for what they tell about how much the
/// value varies. Six of them would take minutes.
const FEW_SAMPLES: u32 = 3;

fn least_samples(rare: bool) -> u32 {
    if rare { FEW_SAMPLES } else { LEARNED_SAMPLES }
}

/// The weight of a sample below the level while that is learned.
const FASTER_WEIGHT: f32 = 0.5;

/// The largest deviation that is learned from at first, in spreads.
const LEARNED_SPREADS: f32 = 4.0;

/// Samples over which the spread is averaged.
const SPREAD_SAMPLES: f32 = 20.0;

/// A mean absolute deviation × this is the standard deviation of a normal distribution.
const LIKE_SIGMA: f32 = 1.253;

/// How much a sample beyond the slack counts for the spread.
const OUTLIER_COUNTS: f32 = 0.25;

/// Spreads by which a sample must deviate to add evidence.
const SLACK_SPREADS: f32 = 2.0;

/// The largest step of the sum up, also down for a sample that is as far below the level, and down for any other one.
const MAX_RISE: f32 = 2.5;
const MAX_FALL: f32 = 1.5;

/// The share of outliers up to which one has its full weight, the samples over which the share is averaged, and the most
/// outliers of one excursion that count for it: a longer one was a shift that is over.
const RARE_OUTLIERS: f32 = 1.0 / 30.0;
const OUTLIER_SAMPLES: u32 = 60;
const MOST_OUTLIERS: u8 = 4;

/// The largest sum: a shift that is over is forgotten after a few samples.
const MAX_SUM: f32 = 10.0;

/// The sum from which a shift is suspected: one clear sample.
const SUSPECTED: f32 = 2.0;

/// The sum from which a shift is likely: two clear samples.
const LIKELY: f32 = 4.9;

impl Default for ShiftDetector {
    fn default() -> Self {
        Self {
            level: 0.0,
            spread: PRIOR_SPREAD,
            sum: 0.0,
            samples: 0,
            outliers: 0.0,
            since_zero: 0,
        }
    }
}

impl ShiftDetector {
    /// Adds a value, where deviations below `floor` mean nothing. Level and spread are learned while nothing is
    /// suspected. Values that are `rare` are suspected after few samples.
    pub(super) fn add_value(&mut self, value: f64, floor: f64, rare: bool) {
        let samples = self.samples;
        self.samples = samples.saturating_add(1);
        if samples == 0 {
            self.level = value as f32;
        }
        let deviation = self.rise_of(value) as f32;
        let spread = self.spread.max(floor as f32);
        let slack = SLACK_SPREADS * (LEARNED_SAMPLES as f32 / samples.max(1) as f32).max(1.0);
        let is_early = samples < LEARNED_SAMPLES;
        if is_early && (samples < least_samples(rare) || deviation <= slack * spread) {
            self.learn_early(deviation, samples);
            return;
        }
        let rise = deviation / spread - slack;
        let weight = if rise > 0.0 { self.outlier_weight() } else { 1.0 };
        // A value that varies more than before is as often far below its level as above it, and has not moved.
        let most_fall = if deviation < -slack * spread { MAX_RISE } else { MAX_FALL };
        self.sum = (self.sum + rise.clamp(-most_fall, MAX_RISE) * weight).clamp(0.0, MAX_SUM);
        self.count_outlier(rise > 0.0);
        if self.sum >= MAX_RISE || is_early {
            return;
        }
        // What may be the begin of a shift counts little.
        let most = SLACK_SPREADS * spread;
        let counts = if rise > 0.0 { OUTLIER_COUNTS } else { 1.0 };
        let weight = counts / (samples as f32 + PRIOR_SAMPLES).min(SPREAD_SAMPLES);
        self.level += deviation.clamp(-most, most) * weight;
        self.spread += (deviation.abs().min(most) * LIKE_SIGMA - self.spread) * weight;
    }

    /// Learns from one of the first samples, which is no clear shift.
    fn learn_early(&mut self, deviation: f32, samples: u32) {
        let most = LEARNED_SPREADS * PRIOR_SPREAD;
        let weight = 1.0 / (samples as f32 + PRIOR_SAMPLES);
        self.spread += (deviation.abs().min(most) * LIKE_SIGMA - self.spread) * weight;
        self.sum = (self.sum - MAX_FALL).max(0.0);
        // A job that pauses while it is learned is far slower for a few samples: its usual pace is the faster one.
        let weight = 1.0 / (samples + 1) as f32;
        let weight = if deviation < 0.0 { weight.max(FASTER_WEIGHT) } else { weight };
        self.level += deviation.min(most) * weight;
    }

    /// Returns how much an outlier counts: 1 where they are rare.
    fn outlier_weight(self) -> f32 {
        self.outliers.clamp(RARE_OUTLIERS, 0.9).ln() / RARE_OUTLIERS.ln()
    }

    /// Counts an outlier, or a sample that is none. What may be a shift counts once it is over.
    fn count_outlier(&mut self, is_outlier: bool) {
        let weight = 1.0 / (self.samples.min(OUTLIER_SAMPLES)) as f32;
        if is_outlier {
            self.since_zero = self.since_zero.saturating_add(1);
        } else {
            self.outliers -= self.outliers * weight;
        }
        if self.sum <= 0.0 {
            for _ in 0..self.since_zero.min(MOST_OUTLIERS) {
                self.outliers += (1.0 - self.outliers) * weight;
            }
            self.since_zero = 0;
        }
    }

    /// Takes back the most that a value can have added.
    pub(super) fn take_back(&mut self) {
        self.sum = (self.sum - MAX_RISE).max(0.0);
    }

    /// Returns how far a value is above its usual level.
    pub(super) fn rise_of(self, value: f64) -> f64 {
        value - self.usual_level()
    }

    /// Returns its usual level.
    pub(super) fn usual_level(self) -> f64 {
        f64::from(self.level)
    }

    /// Whether enough samples were added to know the level and its deviation.
    pub(super) fn is_learned(self, rare: bool) -> bool {
        self.samples >= least_samples(rare)
    }

    /// Returns its usual deviation.
    pub(super) fn usual_spread(self) -> f32 {
        self.spread
    }

    /// Whether a shift is suspected: one clear sample.
    pub(super) fn is_suspected(self) -> bool {
        self.sum >= SUSPECTED
    }

    /// Whether a shift is likely.
    pub(super) fn is_likely(self) -> bool {
        self.sum >= LIKELY
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A number from -1 to 1 that looks random.
    pub(crate) fn noise(at: u32) -> f64 {
        let mixed = (at ^ 0x9e37).wrapping_mul(0x85eb_ca6b);
        f64::from((mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35) >> 8) / f64::from(1 << 23) - 1.0
    }

    /// Returns the sample of which a shift is likely, of values with this noise that shift after 20 samples.
    fn likely_after(size: f64, shift: f64) -> Option<u32> {
        let mut detector = ShiftDetector::default();
        (0..2_000).find(|at| {
            let shifted = if *at < 20 { 0.0 } else { shift };
            detector.add_value(0.1 + size * noise(*at) + shifted, 0.002, false);
            detector.is_likely()
        })
    }

    #[test]
    fn small_shift_of_a_quiet_value_is_found_as_fast_as_a_large_one_of_a_noisy_value() {
        for (size, shift) in [(0.001, 0.03), (0.05, 0.5)] {
            assert!(likely_after(size, shift).is_some_and(|at| at <= 23), "{size} {shift}");
        }
        assert!(likely_after(0.05, 0.2).is_some_and(|at| at < 40));
    }

    #[test]
    fn large_shift_after_few_rare_samples_is_likely_and_a_small_one_is_learned() {
        let after = |shift: f64, rare: bool| {
            let mut detector = ShiftDetector::default();
            (0..4).for_each(|at| detector.add_value(0.1 + 0.01 * noise(at), 0.002, rare));
            let found = (0..20).find(|at| {
                detector.add_value(0.1 + shift + 0.01 * noise(4 + at), 0.002, rare);
                detector.is_likely()
            });
            (found, detector.usual_level())
        };
        assert_eq!(after(0.6, true).0, Some(1), "the second sample of the shift");
        let (found, level) = after(0.04, true);
        assert!(found.is_none() && level > 0.11, "{found:?} {level}");
        let (found, _) = after(0.6, false);
        assert!(
            found.is_none_or(|at| at > 1),
            "frequent samples wait until more is known: {found:?}"
        );
    }

    #[test]
    fn sample_before_a_pause_is_taken_back() {
        let mut detector = ShiftDetector::default();
        (0..20).for_each(|at| detector.add_value(0.1 + 0.01 * noise(at), 0.002, false));
        for _ in 0..10 {
            detector.add_value(0.9, 0.002, false);
            assert!(!detector.is_likely());
            detector.take_back();
        }
        (0..3).for_each(|_| detector.add_value(0.9, 0.002, false));
        assert!(detector.is_likely());
    }

    #[test]
    fn stops_that_come_again_and_again_are_no_shift_after_the_first_ones() {
        let mut detector = ShiftDetector::default();
        let is_stopped = |at: u32| at >= 20 && at % 10 < 2;
        let mut likely = Vec::new();
        for at in 0..400 {
            detector.add_value(if is_stopped(at) { 0.9 } else { 0.02 * noise(at) }, 0.002, false);
            likely.extend(detector.is_likely().then_some(at));
        }
        assert!(likely.iter().all(|at| *at < 60), "{likely:?}");
        // A standing shift of the same value is found all the same.
        let found = (0..20).find(|_| {
            detector.add_value(0.9, 0.002, false);
            detector.is_likely()
        });
        assert!(found.is_some_and(|at| at <= 6), "{found:?}");
    }

    #[test]
    fn value_that_swings_more_than_before_has_not_moved() {
        let mut detector = ShiftDetector::default();
        (0..200).for_each(|at| detector.add_value(0.1 + 0.004 * noise(at), 0.002, false));
        let mut likely = 0;
        for at in 0..400 {
            let swing = if at / 2 % 2 == 0 { 0.04 } else { -0.04 };
            detector.add_value(0.1 + swing, 0.002, false);
            likely += u32::from(detector.is_likely());
        }
        assert!(likely <= 4 && !detector.is_likely(), "{likely}");
    }

    #[test]
    fn noise_is_no_shift_however_large() {
        for size in [0.001, 0.01, 0.1, 0.5] {
            assert_eq!(likely_after(size, 0.0), None, "{size}");
        }
    }
}
