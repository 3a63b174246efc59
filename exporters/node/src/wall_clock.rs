//! Access to the wall clock: the current instant, and the wait until the next tick.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gaunt_schema::UnixMs;

/// The instant now, by this machine's clock.
pub(crate) fn now() -> UnixMs {
    // A clock before 1970 was never set, and zero shows that as well as any number.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(since.as_millis() as i64)
}

/// The time from `now` to the next whole multiple of `period` plus `lag`, so that ticks of several processes have a
/// fixed order. At least a tenth of the period, so that a tick that ended early is not repeated.
pub(crate) fn until_tick(now: UnixMs, period: Duration, lag: Duration) -> Duration {
    let (period, lag) = (period.as_millis().max(1) as i64, lag.as_millis() as i64);
    let wait = period - (now.0 - lag).rem_euclid(period);
    let wait = if wait * 10 < period { wait + period } else { wait };
    Duration::from_millis(wait as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_stand_on_multiples_of_the_period_plus_the_lag() {
        let wait = |now, lag| {
            let lag = Duration::from_millis(lag);
            until_tick(UnixMs(now), Duration::from_secs(1), lag).as_millis()
        };
        assert_eq!(wait(10_000, 0), 1000);
        assert_eq!(wait(10_250, 0), 750);
        assert_eq!(wait(10_250, 200), 950);
        assert_eq!(wait(10_100, 200), 100);
        // Woken a little early: the next tick, not this one again.
        assert_eq!(wait(10_950, 0), 1050);
    }
}
