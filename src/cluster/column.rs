//! One metric on every device of its class: the last reading, its rate, its recent history.

use gaunt_schema::{
    AbsenceReason, MetricId, Reading, UnixMs,
    unit::{CounterWidth, MetricKind},
};

use super::{
    arrival_offset::{ArrivalOffset, ArrivalOrigin, ArrivalSpan, OriginMove},
    history_column::HistoryColumn,
    rate,
};

/// When a page was sampled, and which earlier readings it may be compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleStamp {
    /// Arrival time, by the engine's clock.
    pub(super) arrival: ArrivalOffset,
    /// Sampling time by the clock that rates are computed with: the node's own, if the page reports it.
    pub(super) clock: UnixMs,
    /// Readings that arrived before this time are no base for a rate: they are of another clock or exporter, or too old.
    pub(super) base_from: ArrivalOffset,
    /// Longest time over which a rate is computed, in milliseconds.
    pub(super) gap_ms: i64,
    /// The history slot of the arrival.
    pub(super) slot: i64,
    /// A reading that arrived in this span directly precedes the current one, even though they are neither in the same
    /// slot nor in adjacent ones: jitter at a slot border.
    pub(super) slot_skipped: ArrivalSpan,
    /// The page repeats the one before because its exporter samples less often than it is scraped: values and rates
    /// stay valid.
    pub(super) is_repeat: bool,
    /// Whether devices without history may get one.
    pub(super) may_grow: bool,
}

/// NaN bits to which the reason of an absence is added.
const ABSENT: u64 = 0x7ff8_0000_0000_0000;

/// A reading in eight bytes, to save memory: a fleet has twelve million cells. The reason of an absent value is stored
/// in the bits of a NaN.
#[derive(Clone, Copy, Debug)]
struct ReadingBits(u64);

impl ReadingBits {
    /// The bits of a cell that was never written.
    const EMPTY: Self = Self(ABSENT);

    #[inline]
    fn new(reading: Reading) -> Self {
        match reading {
            Reading::Value(value) if !value.is_nan() => Self(value.to_bits()),
            Reading::Value(_) => Self(ABSENT + AbsenceReason::Error as u64),
            Reading::Absent { absent } => Self(ABSENT + absent as u64),
        }
    }

    /// The value; none if it is absent.
    #[inline]
    fn value(self) -> Option<f64> {
        Some(f64::from_bits(self.0)).filter(|value| !value.is_nan())
    }

    #[inline]
    fn to_reading(self) -> Reading {
        if let Some(value) = self.value() {
            return Reading::Value(value);
        }
        let reason = AbsenceReason::ALL.get((self.0 - ABSENT) as usize);
        Reading::new_absent(reason.copied().unwrap_or(AbsenceReason::Error))
    }
}

/// A column grows by this share of its size, or by what is needed if that is more.
const GROWTH_SHARE: usize = 16;

/// The last reading, and when it arrived. Packed: the cells of a page's devices are in few cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
struct ReadingCell {
    reading: ReadingBits,
    arrival: ArrivalOffset,
}

const EMPTY: ReadingCell =
    ReadingCell { reading: ReadingBits::EMPTY, arrival: ArrivalOffset::NEVER };

/// The rate of a counter, and the base for the next one beside the last reading.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
struct RateCell {
    /// Rate per second; NaN if unknown. Outside this file it is an option.
    rate: f64,
    /// When the last value was sampled, by the clock of [`SampleStamp::clock`]: the lower 32 bits. A difference to
    /// them is exact up to 24 days, and gaps are shorter.
    clock: u32,
}

const NO_RATE: RateCell = RateCell { rate: f64::NAN, clock: 0 };

/// The last value of a counter before the current one, and the lower bits of the clock at which it was sampled.
#[derive(Clone, Copy, Debug)]
struct RateBase {
    reading: ReadingBits,
    clock: u32,
}

impl RateBase {
    /// Rate per second from this reading to a value at the stamp, if it can be computed.
    #[inline]
    fn rate_until(self, width: CounterWidth, value: f64, stamp: &SampleStamp) -> Option<f64> {
        let since = (stamp.clock.0 as u32).wrapping_sub(self.clock) as i32;
        if i64::from(since) > stamp.gap_ms {
            return None;
        }
        rate::per_second(width, self.reading.value()?, value, f64::from(since) / 1e3)
    }
}

/// All cells of one metric, by row of its class.
#[derive(Debug)]
pub(super) struct MetricColumn {
    width: Option<CounterWidth>,
    cells: Vec<ReadingCell>,
    /// As long as `cells` for counters, empty for gauges.
    rates: Vec<RateCell>,
    /// The origin of all arrivals, as in every column.
    origin: ArrivalOrigin,
    history: Option<HistoryColumn>,
}

impl MetricColumn {
    /// An empty column for `metric`.
    pub(super) fn new(metric: MetricId, slots: usize) -> Self {
        let row = metric.catalogue_row();
        let width = if let MetricKind::Counter(width) = row.kind { Some(width) } else { None };
        let origin = ArrivalOrigin::default();
        let column = Self { width, cells: Vec::new(), rates: Vec::new(), origin, history: None };
        if row.history { column.with_history(metric, slots) } else { column }
    }

    /// An empty column with this many history slots, whatever the catalogue defines.
    pub(super) fn with_history(self, metric: MetricId, slots: usize) -> Self {
        Self { history: Some(HistoryColumn::new(metric.catalogue_row(), slots)), ..self }
    }

    /// Whether history is kept.
    pub(super) fn has_history(&self) -> bool {
        self.history.is_some()
    }

    /// Grows to `rows` devices.
    #[inline]
    pub(super) fn grow_to(&mut self, rows: usize) {
        if rows <= self.cells.len() {
            return;
        }
        grow(&mut self.cells, rows, EMPTY);
        if self.width.is_some() {
            grow(&mut self.rates, rows, NO_RATE);
        }
    }

    /// Clears a device's row for reuse.
    pub(super) fn clear(&mut self, row: u32) {
        let row = row as usize;
        let Some(cell) = self.cells.get_mut(row) else { return };
        *cell = EMPTY;
        if let Some(rate) = self.rates.get_mut(row) {
            *rate = NO_RATE;
        }
        if let Some(history) = &mut self.history {
            history.clear(row);
        }
    }

    /// Follows the origin of all arrivals.
    #[cold]
    pub(super) fn follow_origin(&mut self, origin: ArrivalOrigin, moved: OriginMove) {
        self.origin = origin;
        for cell in &mut self.cells {
            cell.arrival = { cell.arrival }.follow_origin(moved);
        }
    }

    /// Writes a reading of the device at `row`; the row must exist.
    #[inline]
    pub(super) fn write_reading(&mut self, row: u32, reading: Reading, stamp: &SampleStamp) {
        let row = row as usize;
        let Some(cell) = self.cells.get_mut(row) else { return };
        let previous = *cell;
        let mut point = reading.value();
        if let Some(width) = self.width {
            let Some(rate) = self.rates.get_mut(row) else { return };
            if stamp.is_repeat {
                // The last reading and its rate stay current.
                if previous.arrival == ArrivalOffset::NEVER {
                    return;
                }
                point = Some(rate.rate).filter(|rate| !rate.is_nan());
            } else {
                cell.reading = ReadingBits::new(reading);
                if point.is_some_and(|value| rate::is_saturated(width, value)) {
                    point = None;
                    cell.reading = ReadingBits::new(AbsenceReason::Saturated.into());
                }
                let base = RateBase { reading: previous.reading, clock: rate.clock };
                point = point
                    .filter(|_| previous.arrival >= stamp.base_from)
                    .and_then(|value| base.rate_until(width, value, stamp));
                *rate = RateCell { rate: point.unwrap_or(f64::NAN), clock: stamp.clock.0 as u32 };
            }
        } else {
            cell.reading = ReadingBits::new(reading);
        }
        cell.arrival = stamp.arrival;
        if let Some(history) = &mut self.history {
            let fills_gap = stamp.slot_skipped.contains(previous.arrival);
            history.write_point(row, stamp.slot, point, fills_gap, stamp.may_grow);
        }
    }

    /// The last reading of the device at `row`, whatever its age, and its arrival time; none if there never was one.
    #[inline]
    pub(super) fn last_reading(&self, row: u32) -> Option<(Reading, UnixMs)> {
        let cell = *self.cells.get(row as usize)?;
        Some((cell.reading.to_reading(), self.origin.time_of(cell.arrival)?))
    }

    /// The last rate per second of the counter of the device at `row`, if known.
    pub(super) fn last_rate(&self, row: u32) -> Option<f64> {
        Some(self.rates.get(row as usize)?.rate).filter(|rate| !rate.is_nan())
    }

    /// The newest point of the `within` slots up to `slot` of the device at `row`; for a counter, its rate per second.
    pub(super) fn newest_point(&self, row: u32, slot: i64, within: usize) -> Option<f32> {
        self.history.as_ref()?.newest_point(row as usize, slot, within)
    }

    /// The recent points of the device at `row` up to `slot`, at most `max_points`; none if no history is kept or
    /// nothing was ever read.
    pub(super) fn recent_points(
        &self,
        row: u32,
        slot: i64,
        max_points: usize,
    ) -> Option<Vec<Option<f32>>> {
        self.last_reading(row)?;
        Some(self.history.as_ref()?.read_points(row as usize, slot, max_points))
    }

    /// History of all devices, if kept, for reading.
    pub(super) fn kept_history(&self) -> Option<&HistoryColumn> {
        self.history.as_ref()
    }

    /// History of all devices, if kept.
    pub(super) fn history_mut(&mut self) -> Option<&mut HistoryColumn> {
        self.history.as_mut()
    }
}

/// Grows a list to this length, with room for few more: one that doubled would be half empty.
#[cold]
fn grow<T: Clone>(list: &mut Vec<T>, length: usize, empty: T) {
    if length > list.capacity() {
        list.reserve_exact((length - list.len()).max(list.len() / GROWTH_SHARE));
    }
    list.resize(length, empty);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_restores_every_reading() {
        let values = [0.0, -0.0, 1.5, -7e300, f64::MAX, f64::MIN_POSITIVE].map(Reading::Value);
        let reasons = AbsenceReason::ALL.map(Reading::new_absent);
        for reading in values.into_iter().chain(reasons) {
            assert_eq!(ReadingBits::new(reading).to_reading(), reading);
        }
        let no_number = ReadingBits::new(Reading::Value(f64::NAN));
        assert_eq!(no_number.to_reading(), AbsenceReason::Error.into());
    }

    #[test]
    fn cell_has_twelve_bytes_and_a_counter_as_many_again() {
        assert_eq!((size_of::<ReadingCell>(), size_of::<RateCell>()), (12, 12));
    }

    /// The node's clock passes a multiple of 2^32 milliseconds between two pages.
    #[test]
    fn rate_is_exact_where_the_lower_bits_of_the_clock_begin_anew() {
        let metric = MetricId::all_ids()
            .find(|metric| metric.catalogue_row().kind == MetricKind::Counter(CounterWidth::Bits64))
            .unwrap();
        let mut column = MetricColumn::new(metric, 4);
        column.grow_to(1);
        let (border, mut arrivals) = (396_i64 << 32, ArrivalOrigin::default());
        arrivals.move_to(UnixMs(border));
        for (at, value, rate) in
            [(border - 1_500, 100.0, None), (border + 500, 300.0, Some(100.0)), (0, 900.0, None)]
        {
            let stamp = SampleStamp {
                arrival: arrivals.nearest_offset(UnixMs(border)),
                clock: UnixMs(at),
                base_from: arrivals.nearest_offset(UnixMs(0)),
                gap_ms: 30_000,
                slot: 0,
                slot_skipped: arrivals.span(UnixMs(0), UnixMs(0)),
                is_repeat: false,
                may_grow: true,
            };
            column.write_reading(0, value.into(), &stamp);
            assert_eq!(column.last_rate(0), rate, "{at}");
        }
    }
}
