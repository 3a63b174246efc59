//! Robust statistics of a group: median, quartile, and the spread from the median absolute deviation (MAD).

/// Returns the median; of an even number the lower of the two middle values. None without values.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// Returns the finite ones of these values, the lowest first.
pub(super) fn sorted_finite(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The median of a group and the usual deviation of its members from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RobustStats {
    /// The median.
    pub(super) median: f64,
    /// The lower quartile: a quarter of the values lies below it.
    pub(super) lower_quartile: f64,
    /// The spread: 1.4826 times the MAD, which estimates the standard deviation.
    pub(super) spread: f64,
}

/// Converts a MAD into the standard deviation of a normal distribution.
const LIKE_SIGMA: f64 = 1.4826;

impl RobustStats {
    /// Computes the statistics of these values; none of fewer than `least`.
    pub(super) fn of(values: &[f64], least: usize) -> Option<Self> {
        if values.len() < least.max(1) {
            return None;
        }
        let middle = median(values.iter().copied())?;
        let mut sorted = values.to_vec();
        let low = *sorted.select_nth_unstable_by(values.len() / 4, f64::total_cmp).1;
        let spread = median(values.iter().map(|value| (value - middle).abs()))? * LIKE_SIGMA;
        Some(Self { median: middle, lower_quartile: low, spread })
    }

    /// Returns how many spreads a value lies above the median, where a spread is at least `floor` of the median: in a
    /// small group the spread itself varies by chance.
    pub(super) fn robust_score(&self, value: f64, floor: f64) -> f64 {
        let spread = self.spread.max(floor * self.median.abs()).max(f64::MIN_POSITIVE);
        (value - self.median) / spread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outlier_moves_neither_median_nor_spread() {
        let stats = RobustStats::of(&[1.0, 1.02, 0.98, 1.01, 40.0], 4).unwrap();
        assert_eq!(stats.median.to_string(), "1.01");
        assert!(stats.spread < 0.05);
        assert!(stats.robust_score(40.0, 0.03) > 100.0);
        assert!(stats.robust_score(1.05, 0.03) < 4.0, "a small group has a floor");
    }

    #[test]
    fn stats_need_enough_values() {
        assert_eq!(RobustStats::of(&[1.0, 2.0, 3.0], 4), None);
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, f64::NAN, 1.0, 2.0]), Some(2.0));
    }
}
