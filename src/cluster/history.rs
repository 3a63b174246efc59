//! The bounded recent past of one metric on all devices of its class: one point a period.
//!
//! Time is cut into blocks of slots, and devices into ranges. The newest points of a range stand open, exactly as they
//! came; a block that is full is quantised and packed (see `history::block`), and the oldest blocks go. Blocks of
//! neighbouring ranges begin in different slots: packing is spread over the time of a block, and so is what stands open.

use std::collections::VecDeque;

use block::{Points, Quantum, ROWS, SLOTS, pack, unpack};
use gaunt_schema::{Metric, unit::Kind};

mod block;

/// A slot that nobody wrote. It never leaves this room as a number.
const GAP: f32 = f32::from_bits(0x7fc0_0000);

/// A slot of which it is known that there is no value.
const NONE: f32 = f32::from_bits(0x7fc0_0001);

/// Slots for which a full block stays open, for devices of the range that are read later in the period.
const GRACE: usize = 2;

/// The most slots that stand open; half as many and one more on average.
const OPEN: usize = SLOTS + GRACE;

/// No point was written yet.
const NEVER: i64 = i64::MIN;

/// From how many steps on a step of what a counter grows by is doubled: its values are known to a part in 8,192 then.
const STEPS_OF_RATES: f64 = 4096.0;

/// The smallest step of what a counter grows by in a second: rates have no natural one.
const STEP_OF_RATES: f64 = 1.0 / 1_048_576.0;

/// The past of every device.
#[derive(Debug)]
pub(super) struct History {
    slots: usize,
    quantum: Quantum,
    ranges: Vec<Range>,
    bytes: usize,
}

/// Some neighbouring devices.
#[derive(Debug)]
struct Range {
    /// The slot of the first open points; never where no device has a past.
    start: i64,
    /// Open points, those of a slot together: a page writes those of all its devices into few cache lines. None where
    /// nobody wrote any.
    open: [Option<Box<Points>>; OPEN],
    /// Packed blocks with their first slots, oldest first.
    packed: VecDeque<(i64, Box<[u8]>)>,
    /// Devices that were forgotten, and the slot from which on they may be read: another device has the row now.
    forgotten: Vec<(u8, i64)>,
}

impl Range {
    fn new() -> Self {
        let (packed, forgotten) = (VecDeque::new(), Vec::new());
        Self { start: NEVER, open: Default::default(), packed, forgotten }
    }

    #[inline]
    fn is_open(&self, slot: i64) -> bool {
        self.start != NEVER && slot >= self.start && slot < self.start + OPEN as i64
    }

    /// The point of an open slot; none if nobody wrote any.
    #[inline]
    fn point(&mut self, row: usize, slot: i64) -> Option<&mut f32> {
        Some(&mut self.open[(slot - self.start) as usize].as_mut()?[row])
    }

    /// Writes the point of an open slot; says how many bytes it grew by.
    #[inline]
    fn put(&mut self, row: usize, slot: i64, point: f32) -> usize {
        let place = &mut self.open[(slot - self.start) as usize];
        let grown = if place.is_none() { size_of::<Points>() } else { 0 };
        place.get_or_insert_with(|| Box::new([GAP; ROWS]))[row] = point;
        grown
    }

    /// Makes sure that a slot is open, where blocks begin in slots that are `phase` beyond a multiple of their length;
    /// says how many bytes came with the blocks that had to be packed, and how many went with their points.
    fn reach(&mut self, slot: i64, phase: usize, quantum: Quantum) -> (usize, usize) {
        let (mut came, mut went) = (0, 0);
        while self.start != NEVER && slot >= self.start + OPEN as i64 {
            let (full, rest) = self.open.split_at_mut(SLOTS);
            if is_empty(full) && is_empty(rest) {
                break;
            }
            let block = pack(full, quantum);
            came += cost(&block);
            self.packed.push_back((self.start, block));
            went += give_back(full);
            self.open.rotate_left(SLOTS);
            self.start += SLOTS as i64;
        }
        if self.start == NEVER || slot >= self.start + OPEN as i64 {
            went += give_back(&mut self.open);
            self.start = slot - (slot - phase as i64).rem_euclid(SLOTS as i64);
        }
        (came, went)
    }

    /// Lets blocks go that end before this slot; says how many bytes that are.
    fn shed(&mut self, before: i64) -> usize {
        let mut shed = 0;
        while let Some((start, block)) = self.packed.front()
            && start + SLOTS as i64 <= before
        {
            shed += cost(block);
            self.packed.pop_front();
        }
        let oldest = self.packed.front().map_or(self.start, |(start, _)| *start);
        self.forgotten.retain(|(_, from)| *from > oldest);
        shed
    }
}

/// Whether there is no value in these slots.
fn is_empty(slots: &[Option<Box<Points>>]) -> bool {
    slots.iter().flatten().all(|points| points.iter().all(|point| point.is_nan()))
}

/// Gives the room of these slots back; says how many bytes that are.
fn give_back(slots: &mut [Option<Box<Points>>]) -> usize {
    slots.iter_mut().filter_map(Option::take).count() * size_of::<Points>()
}

/// What a packed block costs.
fn cost(block: &[u8]) -> usize {
    block.len() + size_of::<(i64, Box<[u8]>)>()
}

impl History {
    /// The past of a metric, of so many slots.
    pub(super) fn new(metric: &Metric, slots: usize) -> Self {
        let quantum = match metric.kind {
            Kind::Counter(_) => Quantum { step: STEP_OF_RATES, steps: STEPS_OF_RATES },
            Kind::Gauge | Kind::Info => Quantum { step: metric.resolution, steps: f64::INFINITY },
        };
        Self { slots, quantum, ranges: Vec::new(), bytes: 0 }
    }

    /// Forgets a device's past.
    pub(super) fn clear(&mut self, row: usize) {
        let range = self.ranges.get_mut(row / ROWS).filter(|range| range.start != NEVER);
        let Some(range) = range else { return };
        let of = row % ROWS;
        for points in range.open.iter_mut().flatten() {
            points[of] = GAP;
        }
        range.forgotten.retain(|(known, _)| usize::from(*known) != of);
        range.forgotten.push((of as u8, range.start));
    }

    /// Writes the point of `slot`; the slots that were passed over are gaps.
    ///
    /// `fills` says that the sample before was about one period ago, though it fell into the slot before the last: then
    /// the one that was passed over was lost to jitter at the border of two slots, and not to a missing sample. Unless it
    /// `may_grow`, a device that has no past gets none.
    #[inline]
    pub(super) fn write(
        &mut self,
        row: usize,
        slot: i64,
        value: Option<f64>,
        fills: bool,
        may_grow: bool,
    ) {
        let at = row / ROWS;
        if at >= self.ranges.len() && may_grow {
            self.bytes += (at + 1 - self.ranges.len()) * size_of::<Range>();
            self.ranges.resize_with(at + 1, Range::new);
        }
        let Some(range) = self.ranges.get_mut(at) else { return };
        if slot < range.start || range.start == NEVER && !may_grow {
            return;
        }
        let row = row % ROWS;
        if !range.is_open(slot) {
            let (came, went) = range.reach(slot, at % SLOTS, self.quantum);
            self.bytes = self.bytes + came - went;
            self.bytes -= range.shed(slot - self.slots as i64 + 1);
        }
        let value = value.map_or(NONE, |value| value as f32);
        self.bytes += range.put(row, slot, value);
        if fills && range.is_open(slot - 2) {
            let mut is_empty =
                |slot| range.point(row, slot).is_none_or(|point| point.to_bits() == GAP.to_bits());
            if !is_empty(slot - 2) && is_empty(slot - 1) {
                self.bytes += range.put(row, slot - 1, value);
            }
        }
    }

    /// The points up to `slot`, oldest first, at most `most` of them.
    pub(super) fn read(&self, row: usize, slot: i64, most: usize) -> Vec<Option<f32>> {
        let wanted = self.slots.min(most);
        let first = slot - wanted as i64 + 1;
        let mut points = vec![None; wanted];
        let Some(range) = self.ranges.get(row / ROWS) else { return points };
        let row = row % ROWS;
        let known = range.forgotten.iter().find(|(of, _)| usize::from(*of) == row);
        let known = known.map_or(NEVER, |(_, from)| *from);
        let mut put = |at: i64, point: f32| {
            let place = usize::try_from(at - first).ok().filter(|_| !point.is_nan());
            if let Some(place) = place.and_then(|place| points.get_mut(place)) {
                *place = Some(point);
            }
        };
        for (start, block) in &range.packed {
            if start + (SLOTS as i64) > first && *start >= known {
                let unpacked = unpack(block, row, self.quantum);
                (*start..).zip(unpacked).for_each(|(at, point)| put(at, point));
            }
        }
        if range.start != NEVER {
            for (at, points) in (range.start..).zip(&range.open) {
                put(at, points.as_ref().map_or(GAP, |points| points[row]));
            }
        }
        points
    }

    /// The newest point of the `within` slots that end at `slot`.
    pub(super) fn newest_of(&self, row: usize, slot: i64, within: usize) -> Option<f32> {
        self.read(row, slot, within).into_iter().rev().find_map(|point| point)
    }

    /// What the points cost, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The slot after the oldest packed block.
    pub(super) fn oldest_end(&self) -> Option<i64> {
        let starts = self.ranges.iter().filter_map(|range| Some(range.packed.front()?.0));
        starts.min().map(|start| start + SLOTS as i64)
    }

    /// Lets all blocks go that end before this slot.
    pub(super) fn shed(&mut self, before: i64) {
        for range in &mut self.ranges {
            self.bytes -= range.shed(before);
        }
    }
}

#[cfg(test)]
mod tests;
