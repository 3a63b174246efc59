//! Residual histograms: how far the members of a cohort usually deviate, and how unlikely a deviation is by that.
//!
//! No shape of the noise is assumed: the share of earlier deviations that were at least as large is the probability of
//! a deviation. Beyond the largest one the tail is taken to fall with the third power, as a heavy tail does.

use serde::{Deserialize, Serialize};

/// Bins, each wider than the one before by the square root of two.
const BINS: usize = 24;

/// The lower edge of the second bin: smaller deviations are all alike.
const LEAST: f64 = 0.001;

/// Deviations after which all counts are halved, so that the histogram follows the noise of the last hours.
const MOST_COUNTED: u32 = 20_000;

/// Deviations that are assumed before any was counted, in every bin up to a hundredth.
const PRIOR_BINS: usize = 8;

/// Deviations from which the tail beyond the largest one is known as well as it will be.
const TAIL_COUNTED: u32 = 100;

/// The exponent of the tail beyond the largest deviation.
const TAIL_EXPONENT: f64 = 3.0;

/// Counts of deviations in the bad direction, by size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ResidualHistogram {
    counts: [u16; BINS],
    total: u32,
}

impl Default for ResidualHistogram {
    fn default() -> Self {
        let counts = std::array::from_fn(|bin| u16::from(bin < PRIOR_BINS));
        Self { counts, total: PRIOR_BINS as u32 }
    }
}

fn bin_of(deviation: f64) -> usize {
    if deviation < LEAST {
        return 0;
    }
    let bin = ((deviation / LEAST).log2() * 2.0) as usize + 1;
    bin.min(BINS - 1)
}

/// Returns the lower edge of a bin above the first one.
fn lower_edge(bin: usize) -> f64 {
    LEAST * ((bin - 1) as f64 / 2.0).exp2()
}

impl ResidualHistogram {
    /// Counts a deviation in the bad direction; one in the good direction is at most zero.
    pub(super) fn count(&mut self, deviation: f64) {
        let count = &mut self.counts[bin_of(deviation)];
        *count = count.saturating_add(1);
        self.total += 1;
        if self.total >= MOST_COUNTED {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().map(|count| u32::from(*count)).sum();
        }
    }

    /// Whether enough was counted to know the tail.
    pub(super) fn is_known(&self) -> bool {
        self.total >= TAIL_COUNTED
    }

    /// Returns the probability of a deviation at least as large.
    pub(super) fn probability(&self, deviation: f64) -> f64 {
        let bin = bin_of(deviation);
        let as_large: u32 = self.counts[bin..].iter().map(|count| u32::from(*count)).sum();
        let samples = f64::from(self.total) + 1.0;
        if as_large > 0 {
            return (f64::from(as_large) + 1.0) / samples;
        }
        // Of few deviations little is known of the tail: it is taken to be heavier.
        let exponent = TAIL_EXPONENT * (f64::from(self.total) / f64::from(TAIL_COUNTED)).min(1.0);
        let highest = self.counts.iter().rposition(|count| *count > 0).unwrap_or_default();
        let top = lower_edge((highest + 1).min(BINS - 1));
        (top / deviation).min(1.0).powf(exponent) / samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probability_is_the_share_of_larger_deviations() {
        let mut usual = ResidualHistogram::default();
        for at in 0..1_000 {
            usual.count(f64::from(at) * 1e-4);
        }
        let half = usual.probability(0.05);
        assert!((0.4..0.7).contains(&half), "{half}");
        assert!(usual.probability(0.0) > 0.99);
        let (large, larger) = (usual.probability(0.3), usual.probability(0.6));
        assert!(large < 2e-3 && larger < large / 4.0, "{large} {larger}");
    }

    #[test]
    fn old_deviations_are_forgotten() {
        let mut usual = ResidualHistogram::default();
        usual.count(0.9);
        for _ in 0..100_000 {
            usual.count(0.01);
        }
        assert!(usual.total < MOST_COUNTED && usual.probability(0.9) < 1e-4);
    }
}
