//! One metric on every device of its class: the last reading, its rate, its recent history.

use gaunt_schema::{
    AbsenceReason, MetricId, Reading, UnixMs,
    unit::{CounterWidth, MetricKind},
};

use super::{history_column::HistoryColumn, rate};

/// A cell that was never written.
const NEVER: UnixMs = UnixMs(i64::MIN);

/// When a page was sampled, and which earlier readings it may be compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleStamp {
    /// Arrival time, by the engine's clock.
    pub(super) at: UnixMs,
    /// Sampling time by the clock that rates are computed with: the node's own, if the page reports it.
    pub(super) clock: UnixMs,
    /// Readings that arrived before this time are of another clock or exporter and no base for a rate.
    pub(super) epoch: UnixMs,
    /// Longest time over which a rate is computed, in milliseconds.
    pub(super) gap_ms: i64,
    /// Two readings at most this far apart are consecutive, without a miss between them, in milliseconds.
    pub(super) steady_ms: i64,
    /// The history slot of `at`.
    pub(super) slot: i64,
    /// Start of the slot before.
    pub(super) before: UnixMs,
    /// The page repeats the one before because its exporter samples less often than it is scraped: values and rates
    /// stay valid.
    pub(super) is_repeat: bool,
    /// Whether devices without history may get one.
    pub(super) may_grow: bool,
}

/// The last reading and its arrival time. The reason of an absent value is stored in the bits of a NaN, to save
/// memory: a fleet has twelve million cells.
#[derive(Clone, Copy, Debug)]
struct ReadingCell {
    bits: u64,
    at: UnixMs,
}

/// NaN bits to which the reason of an absence is added.
const ABSENT: u64 = 0x7ff8_0000_0000_0000;

const EMPTY: ReadingCell = ReadingCell { bits: ABSENT, at: NEVER };

impl SampleStamp {
    /// Whether a reading that arrived at this time directly precedes the current one, even if they are neither in the
    /// same slot nor in adjacent ones: jitter at a slot border.
    #[inline]
    fn is_slot_skipped(&self, before: UnixMs) -> bool {
        before < self.before && self.at.0.saturating_sub(before.0) <= self.steady_ms
    }
}

impl ReadingCell {
    #[inline]
    fn new(reading: Reading, at: UnixMs) -> Self {
        let bits = match reading {
            Reading::Value(value) if !value.is_nan() => value.to_bits(),
            Reading::Value(_) => ABSENT + AbsenceReason::Error as u64,
            Reading::Absent { absent } => ABSENT + absent as u64,
        };
        Self { bits, at }
    }

    #[inline]
    fn to_reading(self) -> Reading {
        let value = f64::from_bits(self.bits);
        if !value.is_nan() {
            return Reading::Value(value);
        }
        let reason = AbsenceReason::ALL.get((self.bits - ABSENT) as usize);
        Reading::new_absent(reason.copied().unwrap_or(AbsenceReason::Error))
    }
}

/// Base for the rate of a counter.
#[derive(Clone, Copy, Debug)]
struct RateBase {
    /// When its last value was sampled, by the clock of [`SampleStamp::clock`]; never if the last reading was absent.
    clock: UnixMs,
    /// Rate per second; NaN if unknown. Outside this file it is an option.
    rate: f64,
}

impl RateBase {
    /// Rate of a counter per second since the reading before, if it can be computed.
    #[inline]
    fn compute_rate(
        &self,
        width: CounterWidth,
        previous: ReadingCell,
        value: f64,
        stamp: &SampleStamp,
    ) -> Option<f64> {
        if self.clock == NEVER || previous.at < stamp.epoch {
            return None;
        }
        let (arrival_ms, clock_ms) = (stamp.at.0 - previous.at.0, stamp.clock.0 - self.clock.0);
        if arrival_ms > stamp.gap_ms || clock_ms > stamp.gap_ms {
            return None;
        }
        rate::per_second(width, previous.to_reading().value()?, value, clock_ms as f64 / 1e3)
    }
}

const NO_BASE: RateBase = RateBase { clock: NEVER, rate: f64::NAN };

/// All cells of one metric, by row of its class.
#[derive(Debug)]
pub(super) struct MetricColumn {
    width: Option<CounterWidth>,
    cells: Vec<ReadingCell>,
    /// As long as `cells` for counters, empty for gauges.
    bases: Vec<RateBase>,
    history: Option<HistoryColumn>,
}

impl MetricColumn {
    /// An empty column for `metric`.
    pub(super) fn new(metric: MetricId, slots: usize) -> Self {
        let row = metric.catalogue_row();
        let width = if let MetricKind::Counter(width) = row.kind { Some(width) } else { None };
        let column = Self { width, cells: Vec::new(), bases: Vec::new(), history: None };
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
        self.cells.resize(rows, EMPTY);
        if self.width.is_some() {
            self.bases.resize(rows, NO_BASE);
        }
    }

    /// Clears a device's row for reuse.
    pub(super) fn clear(&mut self, row: u32) {
        let row = row as usize;
        if row >= self.cells.len() {
            return;
        }
        self.cells[row] = EMPTY;
        if let Some(base) = self.bases.get_mut(row) {
            *base = NO_BASE;
        }
        if let Some(history) = &mut self.history {
            history.clear(row);
        }
    }

    /// Writes a reading of the device at `row`; the row must exist.
    #[inline]
    pub(super) fn write_reading(&mut self, row: u32, reading: Reading, stamp: &SampleStamp) {
        let index = row as usize;
        let Some(cell) = self.cells.get_mut(index) else { return };
        let previous = *cell;
        let mut reading = reading;
        let mut point = reading.value();
        if let Some(width) = self.width {
            let Some(base) = self.bases.get_mut(index) else { return };
            if stamp.is_repeat {
                return self.repeat_reading(index, stamp);
            }
            if reading.value().is_some_and(|value| rate::is_saturated(width, value)) {
                reading = AbsenceReason::Saturated.into();
            }
            point =
                reading.value().and_then(|value| base.compute_rate(width, previous, value, stamp));
            base.clock = reading.value().map_or(NEVER, |_| stamp.clock);
            base.rate = point.unwrap_or(f64::NAN);
        }
        *cell = ReadingCell::new(reading, stamp.at);
        if let Some(history) = &mut self.history {
            let fills_gap = previous.at != NEVER && stamp.is_slot_skipped(previous.at);
            history.write_point(index, stamp.slot, point, fills_gap, stamp.may_grow);
        }
    }

    /// Keeps a counter's last reading and rate current.
    fn repeat_reading(&mut self, index: usize, stamp: &SampleStamp) {
        let previous = self.cells[index].at;
        if previous == NEVER {
            return;
        }
        self.cells[index].at = stamp.at;
        let rate = Some(self.bases[index].rate).filter(|rate| !rate.is_nan());
        if let Some(history) = &mut self.history {
            history.write_point(
                index,
                stamp.slot,
                rate,
                stamp.is_slot_skipped(previous),
                stamp.may_grow,
            );
        }
    }

    /// The last reading of the device at `row`, whatever its age, and its arrival time; none if there never was one.
    #[inline]
    pub(super) fn last_reading(&self, row: u32) -> Option<(Reading, UnixMs)> {
        let cell = self.cells.get(row as usize)?;
        (cell.at != NEVER).then_some((cell.to_reading(), cell.at))
    }

    /// The last rate per second of the counter of the device at `row`, if known.
    pub(super) fn last_rate(&self, row: u32) -> Option<f64> {
        Some(self.bases.get(row as usize)?.rate).filter(|rate| !rate.is_nan())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_restores_every_reading() {
        let values = [0.0, -0.0, 1.5, -7e300, f64::MAX, f64::MIN_POSITIVE].map(Reading::Value);
        let reasons = AbsenceReason::ALL.map(Reading::new_absent);
        for reading in values.into_iter().chain(reasons) {
            let cell = ReadingCell::new(reading, UnixMs(3));
            assert_eq!((cell.to_reading(), cell.at), (reading, UnixMs(3)));
        }
        assert_eq!(
            ReadingCell::new(Reading::Value(f64::NAN), NEVER).to_reading(),
            AbsenceReason::Error.into()
        );
        assert_eq!(size_of::<ReadingCell>(), 16);
    }
}
