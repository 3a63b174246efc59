//! One metric on every device of its class: the last reading, its rate, its recent past.

use gaunt_schema::{
    AbsenceReason, MetricId, Reading, UnixMs,
    unit::{CounterWidth, MetricKind},
};

use super::{history_column::HistoryColumn, rate};

/// A cell that no page ever filled.
const NEVER: UnixMs = UnixMs(i64::MIN);

/// When a page was sampled, and what may be compared with what came before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleStamp {
    /// When it came, by the owner's clock.
    pub(super) at: UnixMs,
    /// The instant of sampling by the clock that rates are computed with: the node's own, if it tells.
    pub(super) clock: UnixMs,
    /// Readings that came before this instant are of another clock or exporter and are no base for a rate.
    pub(super) epoch: UnixMs,
    /// The longest time over which a rate is computed, in milliseconds.
    pub(super) gap_ms: i64,
    /// Two readings that are not farther apart than this follow each other without a miss, in milliseconds.
    pub(super) steady_ms: i64,
    /// The slot of history that `at` falls into.
    pub(super) slot: i64,
    /// When the slot before it began.
    pub(super) before: UnixMs,
    /// The page says again what it said before, because its exporter looks more seldom than it is read: values stand,
    /// and what counters grow by in a second as well.
    pub(super) is_repeat: bool,
    /// There is room for the past of devices that have none yet.
    pub(super) may_grow: bool,
}

/// The last reading and when it came. Why there is no value stands in the bits of one that is not a number: a fleet has
/// twelve million cells.
#[derive(Clone, Copy, Debug)]
struct ReadingCell {
    bits: u64,
    at: UnixMs,
}

/// The bits of no number, to which the reason of an absence is added.
const ABSENT: u64 = 0x7ff8_0000_0000_0000;

const EMPTY: ReadingCell = ReadingCell { bits: ABSENT, at: NEVER };

impl SampleStamp {
    /// Whether a reading that came at this instant is the one before this, though it fell into no slot of its own or
    /// the next: jitter at the border of two slots.
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

/// What a counter's next value is compared with.
#[derive(Clone, Copy, Debug)]
struct RateBase {
    /// When its last value was sampled, by the clock of [`SampleStamp::clock`]; never if the last reading was absent.
    clock: UnixMs,
    /// What it grew by in a second; not a number if that is not known. It leaves this file as an option.
    rate: f64,
}

impl RateBase {
    /// What a counter grew by in a second since the reading before, if that can be said.
    #[inline]
    fn compute_rate(
        &self,
        width: CounterWidth,
        before: ReadingCell,
        value: f64,
        stamp: &SampleStamp,
    ) -> Option<f64> {
        if self.clock == NEVER || before.at < stamp.epoch {
            return None;
        }
        let (came, clock) = (stamp.at.0 - before.at.0, stamp.clock.0 - self.clock.0);
        if came > stamp.gap_ms || clock > stamp.gap_ms {
            return None;
        }
        rate::per_second(width, before.to_reading().value()?, value, clock as f64 / 1e3)
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

    /// The same, with a past of so many slots whatever the catalogue says.
    pub(super) fn with_history(self, metric: MetricId, slots: usize) -> Self {
        Self { history: Some(HistoryColumn::new(metric.catalogue_row(), slots)), ..self }
    }

    /// Whether a past is kept.
    pub(super) fn has_history(&self) -> bool {
        self.history.is_some()
    }

    /// Makes room for `rows` devices.
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

    /// Forgets a device, so that its row can be given to another.
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

    /// Writes a reading of the device at `row`, for which there is room.
    #[inline]
    pub(super) fn write_reading(&mut self, row: u32, reading: Reading, stamp: &SampleStamp) {
        let at = row as usize;
        let Some(cell) = self.cells.get_mut(at) else { return };
        let before = *cell;
        let mut reading = reading;
        let mut shown = reading.value();
        if let Some(width) = self.width {
            let Some(base) = self.bases.get_mut(at) else { return };
            if stamp.is_repeat {
                return self.repeat_reading(at, stamp);
            }
            if reading.value().is_some_and(|value| rate::is_saturated(width, value)) {
                reading = AbsenceReason::Saturated.into();
            }
            shown =
                reading.value().and_then(|value| base.compute_rate(width, before, value, stamp));
            base.clock = reading.value().map_or(NEVER, |_| stamp.clock);
            base.rate = shown.unwrap_or(f64::NAN);
        }
        *cell = ReadingCell::new(reading, stamp.at);
        if let Some(history) = &mut self.history {
            let fills = before.at != NEVER && stamp.is_slot_skipped(before.at);
            history.write_point(at, stamp.slot, shown, fills, stamp.may_grow);
        }
    }

    /// Lets a counter's last reading and its rate stand for now.
    fn repeat_reading(&mut self, at: usize, stamp: &SampleStamp) {
        let before = self.cells[at].at;
        if before == NEVER {
            return;
        }
        self.cells[at].at = stamp.at;
        let rate = Some(self.bases[at].rate).filter(|rate| !rate.is_nan());
        if let Some(history) = &mut self.history {
            history.write_point(
                at,
                stamp.slot,
                rate,
                stamp.is_slot_skipped(before),
                stamp.may_grow,
            );
        }
    }

    /// The last reading of the device at `row`, however old, and when it came; none if there never was one.
    #[inline]
    pub(super) fn last_reading(&self, row: u32) -> Option<(Reading, UnixMs)> {
        let cell = self.cells.get(row as usize)?;
        (cell.at != NEVER).then_some((cell.to_reading(), cell.at))
    }

    /// What the counter of the device at `row` last grew by in a second, if that is known.
    pub(super) fn last_rate(&self, row: u32) -> Option<f64> {
        Some(self.bases.get(row as usize)?.rate).filter(|rate| !rate.is_nan())
    }

    /// The newest point of the `within` slots up to `slot` of the device at `row`: what a counter grew by in a second.
    pub(super) fn newest_point(&self, row: u32, slot: i64, within: usize) -> Option<f32> {
        self.history.as_ref()?.newest_point(row as usize, slot, within)
    }

    /// The recent past of the device at `row` up to `slot`, if one is kept and anything was ever read: at most `most`
    /// points.
    pub(super) fn recent_points(
        &self,
        row: u32,
        slot: i64,
        most: usize,
    ) -> Option<Vec<Option<f32>>> {
        self.last_reading(row)?;
        Some(self.history.as_ref()?.read_points(row as usize, slot, most))
    }

    /// The past of all devices, if one is kept, for whoever only reads it.
    pub(super) fn kept_history(&self) -> Option<&HistoryColumn> {
        self.history.as_ref()
    }

    /// The past of all devices, if one is kept.
    pub(super) fn history_mut(&mut self) -> Option<&mut HistoryColumn> {
        self.history.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_gives_back_every_reading() {
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
