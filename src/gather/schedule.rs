//! When each target is read: spread over the period by its address, on the absolute time of the owner's clock.

use std::time::Duration;

use gaunt_schema::UnixMs;

/// A target's slots: one instant in every period, the same after every restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    period_ms: i64,
    offset_ms: i64,
}

impl Slots {
    /// The slots of the target at `address`. The period is at least a millisecond.
    pub fn new(address: &str, period: Duration) -> Self {
        let period_ms = (period.as_millis() as i64).max(1);
        Self { period_ms, offset_ms: (hash(address) % period_ms as u64) as i64 }
    }

    /// The first slot after `now`.
    pub fn next(self, now: UnixMs) -> UnixMs {
        let since = (now.0 - self.offset_ms).rem_euclid(self.period_ms);
        UnixMs(now.0 - since + self.period_ms)
    }
}

/// FNV-1a with a final mix: the same on every machine, and even for names that differ in their last digit.
fn hash(text: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_period_has_exactly_one_slot_of_a_target() {
        let slots = Slots::new("gpu001:9770", Duration::from_secs(10));
        let start = UnixMs(1_700_000_000_000);
        let first = slots.next(start);
        assert!(first > start && first.0 <= start.0 + 10_000);
        assert_eq!(slots.next(first).0, first.0 + 10_000);
        assert_eq!(slots.next(UnixMs(first.0 - 1)), first);
        assert_eq!(slots.next(UnixMs(first.0 + 1)).0, first.0 + 10_000);
        assert_eq!(slots, Slots::new("gpu001:9770", Duration::from_secs(10)), "stable");
    }

    #[test]
    fn a_fleet_is_spread_over_the_period() {
        let period = Duration::from_secs(1);
        let mut tenths = [0_u32; 10];
        for i in 0..10_000 {
            let slots = Slots::new(&format!("10.0.{}.{}:9770", i / 250, i % 250), period);
            tenths[(slots.offset_ms / 100) as usize] += 1;
        }
        for (tenth, targets) in tenths.iter().enumerate() {
            assert!((850..1_150).contains(targets), "tenth {tenth} has {targets} of 10,000");
        }
    }

    #[test]
    fn a_clock_before_the_epoch_still_has_slots() {
        let slots = Slots::new("a:1", Duration::from_secs(1));
        let next = slots.next(UnixMs(-5_000));
        assert!(next.0 > -5_000 && next.0 <= -4_000);
    }
}
