//! When a reading arrived, in four bytes: milliseconds since an origin that all cells share.

use gaunt_schema::UnixMs;

/// The origin is so long before the first arrival: the clocks of two targets of a recording may differ.
const LEAD_MS: i64 = 24 * 60 * 60 * 1_000;

/// Arrivals that are older than this, 24 days, lose their exact time when the origin moves; it moves as often.
const KEPT_MS: i64 = 1 << 31;

/// Milliseconds since the origin, at least one; zero in a cell that was never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) struct ArrivalOffset(u32);

/// A span of arrivals, without its end. No cell that was never written is in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivalSpan {
    from: u32,
    length: u32,
}

/// The origin of all arrivals; none before the first one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ArrivalOrigin(Option<i64>);

/// The origin moved to a later time by so many milliseconds, and so must all offsets.
#[derive(Clone, Copy, Debug)]
pub(super) struct OriginMove(i64);

impl ArrivalOffset {
    /// A cell that was never written.
    pub(super) const NEVER: Self = Self(0);

    /// The offset to an origin that moved. What is too old becomes as old as the origin.
    #[cold]
    pub(super) fn follow_origin(self, OriginMove(by): OriginMove) -> Self {
        if self == Self::NEVER {
            return self;
        }
        Self(u32::try_from(i64::from(self.0).saturating_sub(by)).unwrap_or(1).max(1))
    }
}

impl ArrivalSpan {
    #[inline]
    pub(super) fn contains(self, offset: ArrivalOffset) -> bool {
        offset.0.wrapping_sub(self.from) < self.length
    }
}

impl ArrivalOrigin {
    /// The offset of this time, or the one that is nearest to it.
    pub(super) fn nearest_offset(self, at: UnixMs) -> ArrivalOffset {
        let since = self.0.map_or(1, |origin| at.0.saturating_sub(origin).max(1));
        ArrivalOffset(u32::try_from(since).unwrap_or(u32::MAX))
    }

    /// The span between two times, without the second.
    pub(super) fn span(self, from: UnixMs, to: UnixMs) -> ArrivalSpan {
        let [from, to] = [from, to].map(|at| self.nearest_offset(at).0);
        ArrivalSpan { from, length: to.saturating_sub(from) }
    }

    /// The offset of this time; none if it is too late for four bytes. A time before the origin is that of the origin.
    #[inline]
    pub(super) fn offset_of(self, at: UnixMs) -> Option<ArrivalOffset> {
        let since = at.0.saturating_sub(self.0?).max(1);
        u32::try_from(since).ok().map(ArrivalOffset)
    }

    /// Moves the origin so that this time, which had no offset, has one.
    #[cold]
    pub(super) fn move_to(&mut self, at: UnixMs) -> OriginMove {
        let (lead, before) = match self.0 {
            Some(before) => (KEPT_MS, before),
            None => (LEAD_MS, i64::MIN),
        };
        let moved = at.0.saturating_sub(lead);
        self.0 = Some(moved);
        OriginMove(moved.saturating_sub(before))
    }

    /// When a reading arrived; none if the cell was never written.
    #[inline]
    pub(super) fn time_of(self, offset: ArrivalOffset) -> Option<UnixMs> {
        if offset == ArrivalOffset::NEVER {
            return None;
        }
        Some(UnixMs(self.0?.saturating_add(i64::from(offset.0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cells of one column.
    #[derive(Default)]
    struct Arrivals {
        origin: ArrivalOrigin,
        offsets: Vec<ArrivalOffset>,
    }

    impl Arrivals {
        fn write(&mut self, row: usize, at: i64) {
            if self.origin.offset_of(UnixMs(at)).is_none() {
                let moved = self.origin.move_to(UnixMs(at));
                self.offsets.iter_mut().for_each(|offset| *offset = offset.follow_origin(moved));
            }
            self.offsets.resize(self.offsets.len().max(row + 1), ArrivalOffset::NEVER);
            self.offsets[row] = self.origin.offset_of(UnixMs(at)).unwrap();
        }

        fn get(&self, row: usize) -> Option<i64> {
            self.origin.time_of(self.offsets[row]).map(|at| at.0)
        }
    }

    #[test]
    fn arrival_is_exact_for_weeks_and_never_becomes_recent() {
        let mut arrivals = Arrivals::default();
        let (start, day) = (1_700_000_000_000, 86_400_000);
        arrivals.write(0, start);
        arrivals.write(3, start - 3_600_000);
        assert_eq!(arrivals.get(0), Some(start));
        assert_eq!(arrivals.get(3), Some(start - 3_600_000));
        for days in 1..=400 {
            let now = start + days * day;
            arrivals.write(1, now);
            assert_eq!(arrivals.get(1), Some(now), "after {days} days");
            let first = arrivals.get(0).unwrap();
            assert!(days > 20 || first == start, "after {days} days");
            assert!(now - first >= days.min(24) * day, "after {days} days");
        }
        assert_eq!(arrivals.get(2), None, "a cell that was never written stays so");
    }

    #[test]
    fn span_has_its_start_and_neither_its_end_nor_what_never_arrived() {
        let (start, mut origin) = (1_700_000_000_000, ArrivalOrigin::default());
        origin.move_to(UnixMs(start));
        let offset = |at| origin.nearest_offset(UnixMs(at));
        let span = origin.span(UnixMs(start - 5), UnixMs(start));
        for (at, is_within) in [(-6, false), (-5, true), (-1, true), (0, false), (9, false)] {
            assert_eq!(span.contains(offset(start + at)), is_within, "{at}");
        }
        assert!(offset(start - 1) < offset(start) && offset(start) < offset(i64::MAX));
        for (from, to) in [(i64::MIN, i64::MAX), (i64::MIN, start), (start, start - 1), (0, 0)] {
            let span = origin.span(UnixMs(from), UnixMs(to));
            assert!(!span.contains(ArrivalOffset::NEVER), "{from} {to}");
            assert_eq!(span.contains(offset(start - 9)), from < 0, "{from} {to}");
        }
    }

    #[test]
    fn any_time_has_an_offset() {
        for first in [i64::MIN, -1, 0, 1_700_000_000_000, i64::MAX] {
            for next in [i64::MIN, -5, 0, 3, 1_700_000_000_000, i64::MAX] {
                let mut arrivals = Arrivals::default();
                arrivals.write(0, first);
                arrivals.write(1, next);
                assert!(arrivals.get(0).is_some() && arrivals.get(1).is_some(), "{first} {next}");
            }
        }
    }
}
