//! One metric on every device of its class: the last reading, its rate, its recent past.

use std::time::Duration;

use gaunt_schema::{
    Absent, MetricId, Reading, UnixMs,
    unit::{Kind, Width},
};

use super::{history::History, rate};

/// A cell that no page ever filled.
const NEVER: UnixMs = UnixMs(i64::MIN);

/// When a page was sampled, and what may be compared with what came before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    /// When it came, by the owner's clock.
    pub(super) at: UnixMs,
    /// The instant of sampling by the clock that rates are computed with: the node's own, if it tells.
    pub(super) clock: UnixMs,
    /// Readings that came before this instant are of another clock or exporter and are no base for a rate.
    pub(super) epoch: UnixMs,
    /// The longest time over which a rate is computed.
    pub(super) gap: Duration,
    /// Two readings that are not farther apart than this follow each other without a miss.
    pub(super) steady: Duration,
    /// The slot of history that `at` falls into.
    pub(super) slot: i64,
    /// The page says again what it said before, because its exporter looks more seldom than it is read: values stand,
    /// and what counters grow by in a second as well.
    pub(super) held: bool,
    /// There is room for the past of devices that have none yet.
    pub(super) may_grow: bool,
}

/// The last reading and when it came. Why there is no value stands in the bits of one that is not a number: a fleet has
/// twelve million cells.
#[derive(Clone, Copy, Debug)]
struct Cell {
    bits: u64,
    at: UnixMs,
}

/// The bits of no number, to which the reason of an absence is added.
const ABSENT: u64 = 0x7ff8_0000_0000_0000;

const EMPTY: Cell = Cell { bits: ABSENT, at: NEVER };

impl Cell {
    fn new(reading: Reading, at: UnixMs) -> Self {
        let bits = match reading {
            Reading::Value(value) if !value.is_nan() => value.to_bits(),
            Reading::Value(_) => ABSENT + Absent::Error as u64,
            Reading::Absent { absent } => ABSENT + absent as u64,
        };
        Self { bits, at }
    }

    fn reading(self) -> Reading {
        let value = f64::from_bits(self.bits);
        if !value.is_nan() {
            return Reading::Value(value);
        }
        let reason = Absent::ALL.get((self.bits - ABSENT) as usize);
        Reading::absent(reason.copied().unwrap_or(Absent::Error))
    }
}

/// What a counter's next value is compared with.
#[derive(Clone, Copy, Debug)]
struct Base {
    /// When its last value was sampled, by the clock of [`Stamp::clock`]; never if the last reading was absent.
    clock: UnixMs,
    /// What it grew by in a second; not a number if that is not known. It leaves this file as an option.
    rate: f64,
}

const NO_BASE: Base = Base { clock: NEVER, rate: f64::NAN };

/// All cells of one metric, by row of its class.
#[derive(Debug)]
pub(super) struct Column {
    width: Option<Width>,
    cells: Vec<Cell>,
    /// As long as `cells` for counters, empty for gauges.
    bases: Vec<Base>,
    history: Option<History>,
}

impl Column {
    /// An empty column for `metric`.
    pub(super) fn new(metric: MetricId, slots: usize) -> Self {
        let row = metric.row();
        let width = if let Kind::Counter(width) = row.kind { Some(width) } else { None };
        let history = row.history.then(|| History::new(row, slots));
        Self { width, cells: Vec::new(), bases: Vec::new(), history }
    }

    /// Makes room for `rows` devices.
    fn grow(&mut self, rows: usize) {
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

    /// Writes a reading of the device at `row`; `rows` is how many devices the class has.
    pub(super) fn write(&mut self, row: u32, rows: usize, reading: Reading, stamp: &Stamp) {
        if rows > self.cells.len() {
            self.grow(rows);
        }
        let at = row as usize;
        let before = self.cells[at];
        let mut reading = reading;
        let mut shown = reading.value();
        if let Some(width) = self.width {
            let base = &mut self.bases[at];
            if stamp.held {
                return self.hold(at, stamp);
            }
            if reading.value().is_some_and(|value| rate::is_saturated(width, value)) {
                reading = Absent::Saturated.into();
            }
            let rate = reading.value().filter(|_| base.clock != NEVER).and_then(|value| {
                let (since, old) = (base.clock, before.reading().value()?);
                let fits = before.at >= stamp.epoch
                    && stamp.at.since(before.at) <= stamp.gap
                    && stamp.clock.since(since) <= stamp.gap;
                let seconds = stamp.clock.since(since).as_secs_f64();
                if fits { rate::per_second(width, old, value, seconds) } else { None }
            });
            base.clock = reading.value().map_or(NEVER, |_| stamp.clock);
            base.rate = rate.unwrap_or(f64::NAN);
            shown = rate;
        }
        self.cells[at] = Cell::new(reading, stamp.at);
        if let Some(history) = &mut self.history {
            let steady = before.at != NEVER && stamp.at.since(before.at) <= stamp.steady;
            history.write(at, stamp.slot, shown, steady, stamp.may_grow);
        }
    }

    /// Lets a counter's last reading and its rate stand for now.
    fn hold(&mut self, at: usize, stamp: &Stamp) {
        let before = self.cells[at].at;
        if before == NEVER {
            return;
        }
        self.cells[at].at = stamp.at;
        let rate = Some(self.bases[at].rate).filter(|rate| !rate.is_nan());
        if let Some(history) = &mut self.history {
            let steady = stamp.at.since(before) <= stamp.steady;
            history.write(at, stamp.slot, rate, steady, stamp.may_grow);
        }
    }

    /// The last reading of the device at `row`, however old, and when it came; none if there never was one.
    pub(super) fn last(&self, row: u32) -> Option<(Reading, UnixMs)> {
        let cell = self.cells.get(row as usize)?;
        (cell.at != NEVER).then_some((cell.reading(), cell.at))
    }

    /// What the counter of the device at `row` last grew by in a second, if that is known.
    pub(super) fn rate(&self, row: u32) -> Option<f64> {
        Some(self.bases.get(row as usize)?.rate).filter(|rate| !rate.is_nan())
    }

    /// The newest point of the `within` slots up to `slot` of the device at `row`: what a counter grew by in a second.
    pub(super) fn then(&self, row: u32, slot: i64, within: usize) -> Option<f32> {
        self.history.as_ref()?.newest_of(row as usize, slot, within)
    }

    /// The recent past of the device at `row` up to `slot`, if one is kept and anything was ever read: at most `most`
    /// points.
    pub(super) fn past(&self, row: u32, slot: i64, most: usize) -> Option<Vec<Option<f32>>> {
        self.last(row)?;
        Some(self.history.as_ref()?.read(row as usize, slot, most))
    }

    /// The past of all devices, if one is kept.
    pub(super) fn history(&mut self) -> Option<&mut History> {
        self.history.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_gives_back_every_reading() {
        let values = [0.0, -0.0, 1.5, -7e300, f64::MAX, f64::MIN_POSITIVE].map(Reading::Value);
        let reasons = Absent::ALL.map(Reading::absent);
        for reading in values.into_iter().chain(reasons) {
            let cell = Cell::new(reading, UnixMs(3));
            assert_eq!((cell.reading(), cell.at), (reading, UnixMs(3)));
        }
        assert_eq!(Cell::new(Reading::Value(f64::NAN), NEVER).reading(), Absent::Error.into());
        assert_eq!(size_of::<Cell>(), 16);
    }
}
