//! Access to the wall clock: the current instant, and the wait until the next tick.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gaunt_schema::UnixMs;

/// The instant now, by this machine's clock.
pub(crate) fn now() -> UnixMs {
    // A clock before 1970 was never set, and zero shows that as well as any number.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(since_epoch.as_millis() as i64)
}

/// The time from `now` to the next whole multiple of `period` plus `lag`, so that ticks of several processes have a
/// fixed order. At least a tenth of the period, so that a tick that ended early is not repeated.
pub(crate) fn until_tick(now: UnixMs, period: Duration, offset: Duration) -> Duration {
    let (period, offset) = (period.as_millis().max(1) as i64, offset.as_millis() as i64);
    let delay = period - (now.0 - offset).rem_euclid(period);
    let delay = if delay * 10 < period { delay + period } else { delay };
    Duration::from_millis(delay as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_at_multiples_of_the_period_plus_offset() {
        let delay = |now, offset| {
            let offset = Duration::from_millis(offset);
            until_tick(UnixMs(now), Duration::from_secs(1), offset).as_millis()
        };
        assert_eq!(delay(10_000, 0), 1000);
        assert_eq!(delay(10_250, 0), 750);
        assert_eq!(delay(10_250, 200), 950);
        assert_eq!(delay(10_100, 200), 100);
        // Woken a little early: the next tick, not this one again.
        assert_eq!(delay(10_950, 0), 1050);
    }
}
