//! The rate of a counter per second, and when it cannot be computed.

use gaunt_schema::unit::CounterWidth;

/// A wrap is accepted only if the counter had at most this share of its range left: a reset from a small value would
/// otherwise look like four billion events.
const WRAP_SHARE: f64 = 1.0 / 16.0;

/// Maximum packet rate of a link: 400 Gb/s of the smallest packets, 64 bytes each.
const PACKETS_PER_SECOND: f64 = 400e9 / 8.0 / 64.0;

/// Whether the counter is saturated, so that it carries no information. Above its maximum it is wider than assumed.
#[inline]
pub(super) fn is_saturated(width: CounterWidth, value: f64) -> bool {
    matches!(width, CounterWidth::Saturating(_)) && width.max_value() == Some(value)
}

/// The rate per second from `before` to `after`, `seconds` later.
///
/// A decrease is a reset or a restart, and that interval is dropped; only a 32-bit counter may have wrapped.
#[inline]
pub(super) fn per_second(
    width: CounterWidth,
    before: f64,
    after: f64,
    seconds: f64,
) -> Option<f64> {
    if seconds <= 0.0 {
        return None;
    }
    if after >= before {
        return Some((after - before) / seconds);
    }
    let (CounterWidth::Wrapping32, Some(max)) = (width, width.max_value()) else { return None };
    let growth = max - before + 1.0 + after;
    let plausible =
        before <= max && growth <= max * WRAP_SHARE && growth / seconds <= PACKETS_PER_SECOND;
    plausible.then_some(growth / seconds)
}

#[cfg(test)]
mod tests {
    use CounterWidth::{Bits64, Saturating, Wrapping32};

    use super::*;

    #[test]
    fn rate_handles_growth_resets_and_wraps() {
        let max = f64::from(u32::MAX);
        let table = [
            ("grows", Bits64, 100.0, 150.0, 2.0, Some(25.0)),
            ("stands still", Bits64, 100.0, 100.0, 1.0, Some(0.0)),
            ("reset", Bits64, 1e12, 5.0, 1.0, None),
            ("beyond 2^53 it still grows", Bits64, 1e18, 1e18 + 1024.0, 1.0, Some(1024.0)),
            ("reset of a narrow counter", Saturating(8), 7.0, 0.0, 1.0, None),
            ("narrow counter grows", Saturating(8), 7.0, 8.0, 1.0, Some(1.0)),
            ("wrap", Wrapping32, max - 9.0, 10.0, 2.0, Some(10.0)),
            ("reset from a small value is no wrap", Wrapping32, 12.0, 0.0, 1.0, None),
            ("reset from the middle is no wrap", Wrapping32, 2e9, 3.0, 1.0, None),
            ("faster than any link", Wrapping32, max - 2.5e8, 0.0, 0.1, None),
            ("no time passed", Bits64, 1.0, 2.0, 0.0, None),
            ("time went back", Bits64, 1.0, 2.0, -1.0, None),
        ];
        for (what, width, before, after, seconds, rate) in table {
            assert_eq!(per_second(width, before, after, seconds), rate, "{what}");
        }
    }

    #[test]
    fn saturating_counter_carries_no_information_at_its_maximum_only() {
        assert!(is_saturated(Saturating(8), 255.0));
        assert!(is_saturated(Saturating(32), f64::from(u32::MAX)));
        assert!(!is_saturated(Saturating(8), 254.0));
        assert!(!is_saturated(Saturating(32), 1e12), "a wider counter than was thought");
        assert!(!is_saturated(Wrapping32, f64::from(u32::MAX)));
    }
}
