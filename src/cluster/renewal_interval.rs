//! Renewal intervals: how often an exporter collects new values, as its pages show it. Between two collections a page repeats
//! the values of the last one, however often it is scraped.

use std::time::Duration;

use gaunt_schema::UnixMs;

/// Intervals that are remembered: their median ignores a lost scrape.
const KEPT: usize = 5;

/// When the values of a target's pages were renewed last, and how often that happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenewalInterval {
    last: Option<UnixMs>,
    /// The last intervals in milliseconds, in no order.
    intervals: [u32; KEPT],
    /// How many intervals were measured; more than are kept.
    count: u32,
    /// The longest interval in milliseconds; an old one fades.
    longest: u32,
}

/// Intervals after which the longest one is known.
const KNOWN: u32 = 8;

/// Intervals in which most of the longest one fades.
const FADES: u32 = 64;

impl RenewalInterval {
    /// Records that a page had new values.
    pub(super) fn record(&mut self, at: UnixMs) {
        if let Some(last) = self.last.replace(at) {
            let passed = at.duration_since(last).as_millis();
            let passed = u32::try_from(passed).unwrap_or(u32::MAX);
            self.intervals[self.count as usize % KEPT] = passed;
            self.count = self.count.saturating_add(1);
            let fades = self.longest.saturating_sub(passed) / FADES;
            self.longest = (self.longest - fades).max(passed);
        }
    }

    /// When the values were renewed last.
    pub fn last(&self) -> Option<UnixMs> {
        self.last
    }

    /// The median of the last intervals, once one of them is whole: the first begins at the first page, whose values may
    /// be older.
    pub fn whole_interval(&self) -> Option<Duration> {
        self.interval().filter(|_| self.count > 1)
    }

    /// The longest of many intervals; none before there are as many.
    pub fn longest_interval(&self) -> Option<Duration> {
        (self.count >= KNOWN).then(|| Duration::from_millis(u64::from(self.longest)))
    }

    /// The median of the last intervals; none before the first one.
    pub fn interval(&self) -> Option<Duration> {
        let known = KEPT.min(self.count as usize);
        let mut sorted = self.intervals;
        let sorted = &mut sorted[..known];
        sorted.sort_unstable();
        sorted.get(known / 2).map(|ms| Duration::from_millis(u64::from(*ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_interval_fades() {
        let mut times = RenewalInterval::default();
        let mut second = 0_i64;
        let mut record = |seconds: i64| {
            second += seconds;
            times.record(UnixMs(second * 1_000));
            times.longest_interval().map(|it| it.as_secs())
        };
        for _ in 0..8 {
            assert_eq!(record(10), None, "too few");
        }
        assert_eq!(record(10), Some(10));
        assert_eq!(record(40), Some(40));
        assert_eq!(record(10), Some(39));
        let later = (0..200).map(|_| record(10)).last();
        assert!(later.flatten().is_some_and(|it| (10..14).contains(&it)), "{later:?}");
    }

    #[test]
    fn lost_renewal_does_not_change_the_interval() {
        let mut times = RenewalInterval::default();
        assert_eq!(times.interval(), None);
        for second in [0, 30, 60, 120, 150, 181] {
            times.record(UnixMs(second * 1_000));
        }
        assert_eq!(times.interval(), Some(Duration::from_secs(30)));
        assert_eq!(times.last(), Some(UnixMs(181_000)));
        let mut started = RenewalInterval::default();
        for (second, whole) in [(10, None), (18, None), (48, Some(30)), (78, Some(30))] {
            started.record(UnixMs(second * 1_000));
            assert_eq!(started.whole_interval().map(|it| it.as_secs()), whole, "at {second} s");
        }
        for second in [186, 191, 196] {
            times.record(UnixMs(second * 1_000));
        }
        assert_eq!(times.interval(), Some(Duration::from_secs(5)), "another interval is learned");
    }
}
