//! Scrape slots: the offset of each target in the period, spread so evenly that the load is nearly constant.

use std::time::Duration;

use gaunt_schema::UnixMs;

/// The golden ratio times 2^64. Its multiples modulo 2^64 fall into the largest gap that the earlier ones left: any
/// number of targets is spread evenly, and the next one moves none of them.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A target's slots: one instant in every period, on the absolute time of the engine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeSlots {
    period_ms: i64,
    offset_ms: i64,
}

impl ScrapeSlots {
    /// The slots of the target at this position of the order. The period is at least a millisecond.
    pub fn new(position: usize, period: Duration) -> Self {
        let period_ms = (period.as_millis() as i64).max(1);
        let share = GOLDEN.wrapping_mul(position as u64 + 1);
        let offset_ms = (u128::from(share) * period_ms as u128) >> 64;
        Self { period_ms, offset_ms: offset_ms as i64 }
    }

    /// The first slot after `now`.
    pub fn next(self, now: UnixMs) -> UnixMs {
        let since = (now.0 - self.offset_ms).rem_euclid(self.period_ms);
        UnixMs(now.0 - since + self.period_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_has_exactly_one_slot_in_every_period() {
        let slots = ScrapeSlots::new(3, Duration::from_secs(10));
        let start = UnixMs(1_700_000_000_000);
        let first = slots.next(start);
        assert!(first > start && first.0 <= start.0 + 10_000);
        assert_eq!(slots.next(first).0, first.0 + 10_000);
        assert_eq!(slots.next(UnixMs(first.0 - 1)), first);
        assert_eq!(slots.next(UnixMs(first.0 + 1)).0, first.0 + 10_000);
        assert_eq!(slots, ScrapeSlots::new(3, Duration::from_secs(10)), "stable");
    }

    /// Windows that hold some ten targets or more have at most 1.2 times the average load, wherever they begin; the
    /// number of targets in a window is an integer.
    #[test]
    fn slots_are_spread_to_within_a_fifth_of_the_mean() {
        let period = Duration::from_secs(10);
        for targets in [16, 100, 999, 1_000, 4_321, 12_500, 20_000] {
            let mut offsets: Vec<i64> =
                (0..targets).map(|position| ScrapeSlots::new(position, period).offset_ms).collect();
            offsets.sort_unstable();
            let next: Vec<i64> = offsets.iter().map(|offset| offset + 10_000).collect();
            let two_periods = [offsets.as_slice(), &next].concat();
            for window in [100, 250, 1_000, 2_500] {
                let mean = targets as f64 * window as f64 / 1e4;
                if mean < 10.0 {
                    continue;
                }
                let targets_in_window = |start: &i64| {
                    two_periods.partition_point(|offset| *offset < start + window)
                        - two_periods.partition_point(|offset| offset < start)
                };
                let highest = offsets.iter().map(targets_in_window).max().unwrap();
                let allowed = (1.2 * mean).ceil() as usize;
                assert!(
                    highest <= allowed,
                    "{targets} targets: {highest} within {window} ms, mean {mean}"
                );
            }
        }
    }

    #[test]
    fn slots_exist_before_the_epoch() {
        let slots = ScrapeSlots::new(0, Duration::from_secs(1));
        let next = slots.next(UnixMs(-5_000));
        assert!(next.0 > -5_000 && next.0 <= -4_000);
    }
}
