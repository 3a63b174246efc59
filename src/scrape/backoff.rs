//! Backoff for failing targets: after some consecutive failures they are scraped less often, with jitter.

use std::time::Duration;

/// Consecutive failures without backoff: a restart is over by then.
const AT_ONCE: u32 = 3;

/// The longest backoff. A target that is back is scraped within this time and a quarter, however long it was away: after
/// 15 s a whole fleet is read again.
const LONGEST: Duration = Duration::from_secs(12);

/// Recent failures of a target, and the number of periods to skip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScrapeBackoff {
    failures: u32,
    periods: u32,
}

impl ScrapeBackoff {
    /// Whether to skip this period; each call uses up one.
    pub(super) fn take_skipped_period(&mut self) -> bool {
        let is_skipped = self.periods > 0;
        self.periods = self.periods.saturating_sub(1);
        is_skipped
    }

    /// Resets the backoff.
    pub(super) fn record_success(&mut self) {
        *self = Self::default();
    }

    /// Records a failure: the backoff doubles with each, up to [`LONGEST`], with a jitter of a quarter by `seed`, so
    /// that targets that failed together do not come back together.
    pub(super) fn record_failure(&mut self, period: Duration, seed: u64) {
        self.failures = self.failures.saturating_add(1);
        let max_periods = (LONGEST.as_millis() / period.as_millis().max(1)) as u64;
        let doubled = match self.failures.checked_sub(AT_ONCE) {
            None => 0,
            Some(times) => 1_u64.checked_shl(times).unwrap_or(u64::MAX).min(max_periods),
        };
        let jitter = doubled / 4;
        let random_part = mix_bits(seed ^ u64::from(self.failures)) % (2 * jitter + 1);
        self.periods = (doubled + random_part - jitter) as u32;
    }
}

/// Mixes the bits of a number (SplitMix64).
fn mix_bits(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Skipped periods after each of so many failures.
    fn skipped_periods(period: Duration, seed: u64, failures: usize) -> Vec<u32> {
        let mut backoff = ScrapeBackoff::default();
        let mut skipped = Vec::new();
        for _ in 0..failures {
            backoff.record_failure(period, seed);
            let mut periods = 0;
            while backoff.take_skipped_period() {
                periods += 1;
            }
            skipped.push(periods);
        }
        skipped
    }

    #[test]
    fn backoff_doubles_up_to_its_limit() {
        let second = skipped_periods(Duration::from_secs(1), 7, 12);
        assert_eq!(second[..4], [0, 0, 1, 2]);
        assert!((3..=5).contains(&second[4]) && (6..=10).contains(&second[5]), "{second:?}");
        assert!(second[8..].iter().all(|periods| (9..=15).contains(periods)), "{second:?}");
        let ten = skipped_periods(Duration::from_secs(10), 7, 40);
        assert!(ten.iter().all(|periods| *periods <= 1), "{ten:?}");
        assert_eq!(skipped_periods(Duration::from_mins(1), 7, 40), [0; 40]);
    }

    #[test]
    fn backoff_of_targets_that_failed_together_differs() {
        let last_backoff = |seed| skipped_periods(Duration::from_secs(1), seed, 9)[8];
        let distinct: std::collections::BTreeSet<_> = (0..200).map(last_backoff).collect();
        assert!(distinct.len() > 5, "{distinct:?}");
    }

    #[test]
    fn fleet_that_was_away_is_read_again_within_15_seconds() {
        for away in [75, 600] {
            for seed in 0..500 {
                let (mut backoff, mut second) = (ScrapeBackoff::default(), seed % 3);
                // The first attempt that reaches the target once it is back.
                let back = loop {
                    second += 1;
                    if backoff.take_skipped_period() {
                        continue;
                    }
                    if second > away {
                        break second;
                    }
                    backoff.record_failure(Duration::from_secs(1), seed);
                };
                assert!(back <= away + 16, "away for {away} s, seed {seed}: back after {back} s");
            }
        }
    }

    #[test]
    fn backoff_is_reset_by_a_success() {
        let mut backoff = ScrapeBackoff::default();
        for _ in 0..10 {
            backoff.record_failure(Duration::from_secs(1), 1);
        }
        assert!(backoff.take_skipped_period());
        backoff.record_success();
        assert!(!backoff.take_skipped_period());
        backoff.record_failure(Duration::from_secs(1), 1);
        assert!(!backoff.take_skipped_period());
    }
}
