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
    count: usize,
}

impl RenewalInterval {
    /// Records that a page had new values.
    pub(super) fn record(&mut self, at: UnixMs) {
        if let Some(last) = self.last.replace(at) {
            let passed = at.duration_since(last).as_millis();
            self.intervals[self.count % KEPT] = u32::try_from(passed).unwrap_or(u32::MAX);
            self.count += 1;
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

    /// The median of the last intervals; none before the first one.
    pub fn interval(&self) -> Option<Duration> {
        let known = self.count.min(KEPT);
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
