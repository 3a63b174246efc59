//! Span slices: the parts in which a span of the past is read, one after the other.

use std::time::Duration;

use gaunt_schema::UnixMs;

/// The shortest slice, except for the last one: of 10,000 GPUs it is some hundred megabytes.
const SHORTEST: Duration = Duration::from_mins(5);

/// The longest slice.
const LONGEST: Duration = Duration::from_hours(1);

/// Samples of a slice up to which the next one is twice as long, unless it would have more: each slice repeats the labels of
/// all its series, which are most of what a server sends.
const FEW: u64 = 2_000_000;

/// The slices of a span.
#[derive(Clone, Copy, Debug)]
pub struct SpanSlices {
    from: UnixMs,
    until: UnixMs,
    length: Duration,
}

impl SpanSlices {
    /// The slices of the time after `from` and not after `until`.
    pub fn new(from: UnixMs, until: UnixMs) -> Self {
        Self { from, until, length: SHORTEST }
    }

    /// The beginning, which is no part of it, and the end of the slice that comes next; none at the end of the span.
    pub fn next_slice(&self) -> Option<(UnixMs, UnixMs)> {
        (self.from < self.until).then(|| (self.from, (self.from + self.length).min(self.until)))
    }

    /// The next slice was read and had this many samples.
    pub fn advance(&mut self, samples: u64) {
        self.from = self.from + self.length;
        // What follows a time without samples is not known.
        if (1..=FEW / 2).contains(&samples) {
            self.length = (self.length * 2).min(LONGEST);
        } else if samples > FEW {
            self.length = (self.length / 2).max(SHORTEST);
        }
    }

    /// The next slice has too many samples: it becomes the shortest one. False if it is that already.
    pub fn shorten(&mut self) -> bool {
        std::mem::replace(&mut self.length, SHORTEST) > SHORTEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_follow_each_other_and_are_longer_where_samples_are_few() {
        let lengths = |samples_a_minute: u64| {
            let end = UnixMs(95 * 60_000);
            let (mut slices, mut lengths) = (SpanSlices::new(UnixMs(0), end), Vec::new());
            let mut last = UnixMs(0);
            while let Some((from, until)) = slices.next_slice() {
                assert_eq!(from, last);
                last = until;
                let minutes = until.duration_since(from).as_secs() / 60;
                lengths.push(minutes);
                slices.advance(minutes * samples_a_minute);
            }
            assert_eq!(last, end);
            lengths
        };
        assert_eq!(lengths(1), [5, 10, 20, 40, 20]);
        assert_eq!(lengths(0), [5; 19]);
        // 1,000 GPUs with 25 fields each 15 s.
        assert_eq!(lengths(100_000), [5, 10, 20, 20, 20, 20]);
        assert_eq!(lengths(1_000_000), [5; 19]);
        let mut slices = SpanSlices::new(UnixMs(0), UnixMs(95 * 60_000));
        slices.advance(1);
        assert_eq!((slices.shorten(), slices.shorten()), (true, false));
        assert_eq!(slices.next_slice(), Some((UnixMs(300_000), UnixMs(600_000))));
    }
}
