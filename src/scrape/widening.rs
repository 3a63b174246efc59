//! A longer scrape period while gaunt itself is late: if it cannot scrape all targets in a period, it scrapes each of
//! them less often, so that no attempt is wasted.
//!
//! An attempt that timed out because gaunt was late costs its work and yields nothing. Its target is then scraped
//! every second period, and every fourth one if that happens again; targets alternate, so that the load of all periods
//! is equal. A few attempts in time shorten the period by one step.

use std::time::Duration;

use gaunt_schema::{TargetId, UnixMs};

/// The longest period, in periods: older values are stale anyway.
const WIDEST: i64 = 4;

/// Consecutive attempts in time after which the period is shortened by a step. With fewer, more attempts fail; with
/// more, recovery takes longer: from the longest period 48 periods.
const CALM: u32 = 8;

/// The widening of one target's period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Widening {
    /// It is scraped in one of so many periods.
    every: i64,
    /// Attempts in time since the last one that was late.
    attempts_in_time: u32,
}

impl Default for Widening {
    fn default() -> Self {
        Self { every: 1, attempts_in_time: 0 }
    }
}

impl Widening {
    /// Whether the target is skipped in the period of this slot.
    pub(super) fn leaves_out(self, target: TargetId, slot: UnixMs, period: Duration) -> bool {
        let period_ms = (period.as_millis() as i64).max(1);
        let period_index = slot.0.div_euclid(period_ms) + i64::from(target.0);
        period_index.rem_euclid(self.every) != 0
    }

    /// Records an attempt, and whether gaunt was too late for it.
    pub(super) fn note(&mut self, is_late: bool) {
        if is_late {
            *self = Self { every: (self.every * 2).min(WIDEST), attempts_in_time: 0 };
        } else if self.every > 1 {
            self.attempts_in_time += 1;
            if self.attempts_in_time >= CALM {
                *self = Self { every: self.every / 2, attempts_in_time: 0 };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(1);
    const TARGETS: u32 = 1_000;

    /// A fleet with a limit of attempts per period: attempts above it are late, in the order of their turn.
    fn run(
        widenings: &mut [Widening],
        periods: std::ops::Range<i64>,
        max_attempts: usize,
    ) -> Vec<[usize; 2]> {
        let mut counts = Vec::new();
        for period in periods {
            let slot = UnixMs(period * 1_000);
            let (mut read, mut late) = (0, 0);
            // The order changes from period to period.
            for position in 0..TARGETS {
                let target = (position + period as u32 * 37) % TARGETS;
                let widening = &mut widenings[target as usize];
                if widening.leaves_out(TargetId(target), slot, PERIOD) {
                    continue;
                }
                let is_late = read >= max_attempts;
                widening.note(is_late);
                if is_late { late += 1 } else { read += 1 }
            }
            counts.push([read, late]);
        }
        counts
    }

    #[test]
    fn period_is_widened_until_all_attempts_are_in_time() {
        for max_attempts in [600, 300] {
            let mut widenings = vec![Widening::default(); TARGETS as usize];
            let counts = run(&mut widenings, 0..400, max_attempts);
            assert_eq!(
                counts[0],
                [max_attempts, TARGETS as usize - max_attempts],
                "without it so many are in vain"
            );
            let [read, late] = counts[100..].iter().fold([0, 0], |[a, b], [c, d]| [a + c, b + d]);
            assert!(late * 4 < read, "{max_attempts}: {late} late, {read} read");
            assert!(
                read * 10 >= 300 * max_attempts * 7,
                "{max_attempts}: {read} read, and so many could be"
            );
            assert!(widenings.iter().all(|widening| widening.every <= WIDEST));
            // gaunt has enough resources again: soon each target is scraped in each period.
            let counts = run(&mut widenings, 400..460, TARGETS as usize);
            assert_eq!(counts.last(), Some(&[TARGETS as usize, 0]));
            assert!(widenings.iter().all(|widening| *widening == Widening::default()));
        }
    }

    #[test]
    fn period_stays_as_it_is_while_gaunt_is_in_time() {
        let mut widening = Widening::default();
        for second in 0..100 {
            assert!(!widening.leaves_out(TargetId(7), UnixMs(second * 1_000), PERIOD));
            widening.note(false);
        }
    }

    #[test]
    fn targets_of_a_wider_period_alternate() {
        let mut widening = Widening::default();
        (0..5).for_each(|_| widening.note(true));
        for second in 0..20 {
            let slot = UnixMs(second * 1_000);
            let read = (0..TARGETS)
                .filter(|target| !widening.leaves_out(TargetId(*target), slot, PERIOD))
                .count();
            assert_eq!(read, TARGETS as usize / WIDEST as usize);
        }
        let slot = |second: i64| widening.leaves_out(TargetId(0), UnixMs(second * 1_000), PERIOD);
        assert_eq!((0..8).filter(|second| !slot(*second)).count(), 2, "one in four");
    }
}
