//! The bounded recent history of one metric on all devices of its class: one point per period.
//!
//! Time is divided into blocks of slots, and devices into ranges. The newest points of a range are open, stored
//! exactly as they arrived; a full block is quantised and packed (see `history_column::block`), and the oldest blocks
//! are evicted. Blocks of neighbouring ranges begin in different slots, which spreads both packing and the number of
//! open slots over the time of a block.

use std::collections::VecDeque;

pub(super) use block::{PointQuantization, ROWS, SLOTS};
use block::{SlotPoints, pack_block, unpack_all, unpack_device};
use earlier::Earlier;
pub(super) use earlier::EarlierGroup;
use gaunt_schema::{Metric, unit::MetricKind};
use open_blocks::{BlockPool, PoolIndex};

mod block;
mod earlier;
mod open_blocks;

/// A slot that was never written. This module never returns it as a number.
const GAP: f32 = f32::from_bits(0x7fc0_0000);

/// A slot that is known to have no value.
const NONE: f32 = f32::from_bits(0x7fc0_0001);

/// Slots for which a full block stays open, for devices of the range that are scraped later in the period.
const GRACE: usize = 2;

/// Maximum number of open slots; on average half as many and one more.
const OPEN: usize = SLOTS + GRACE;

/// No point was written yet.
const NEVER: i64 = i64::MIN;

/// Number of steps above which the step of a rate is doubled: its precision is then one part in 8,192.
const STEPS_OF_RATES: f64 = 4096.0;

/// Smallest step of a rate per second: rates have no natural resolution.
const STEP_OF_RATES: f64 = 1.0 / 1_048_576.0;

/// The history of every device.
#[derive(Debug)]
pub(super) struct HistoryColumn {
    slots: usize,
    quantum: PointQuantization,
    ranges: Vec<DeviceRange>,
    /// The packed blocks of each range.
    packed: Vec<PackedBlocks>,
    open: BlockPool,
    /// Points from a recording that this one continues.
    earlier: Earlier,
    /// Size of ranges and blocks in bytes.
    bytes: usize,
}

/// A range of neighbouring devices: all that ingest of a page needs, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct DeviceRange {
    /// The slot of the first open points; never if no device has history.
    start: i64,
    /// Open points, grouped by slot: a page writes those of all its devices into few cache lines.
    open: [PoolIndex; OPEN],
}

/// The packed blocks of a range.
#[derive(Debug, Default)]
struct PackedBlocks {
    /// Blocks with their first slots, oldest first.
    blocks: VecDeque<(i64, Box<[u8]>)>,
    /// Forgotten devices and the slot from which their rows are valid again: another device has the row now.
    forgotten: Vec<(u8, i64)>,
}

impl DeviceRange {
    const NEW: Self = Self { start: NEVER, open: [PoolIndex::NONE; OPEN] };

    #[inline]
    fn is_open(&self, slot: i64) -> bool {
        self.start != NEVER && slot >= self.start && slot < self.start + OPEN as i64
    }

    /// The pool index of the points of an open slot.
    #[inline]
    fn open_slot(&mut self, slot: i64) -> &mut PoolIndex {
        &mut self.open[(slot - self.start) as usize]
    }

    /// Whether there is no value in any open slot.
    fn is_empty(&self, room: &BlockPool) -> bool {
        let points = self.open.iter().filter_map(|place| room.get(*place));
        points.flatten().all(|point| point.is_nan())
    }

    /// Opens a slot, where blocks begin in slots that are `phase` beyond a multiple of their length; returns the bytes
    /// of the blocks that had to be packed.
    fn ensure_open(
        &mut self,
        slot: i64,
        phase: usize,
        quantum: PointQuantization,
        room: &mut BlockPool,
        packed: &mut PackedBlocks,
    ) -> usize {
        let mut came = 0;
        while self.start != NEVER && slot >= self.start + OPEN as i64 && !self.is_empty(room) {
            let full = &mut self.open[..SLOTS];
            let points: [_; SLOTS] = std::array::from_fn(|at| room.get(full[at]));
            let block = pack_block(&points, quantum);
            came += block_cost(&block);
            packed.blocks.push_back((self.start, block));
            room.release_points(full);
            self.open.rotate_left(SLOTS);
            self.start += SLOTS as i64;
        }
        if self.start == NEVER || slot >= self.start + OPEN as i64 {
            room.release_points(&mut self.open);
            self.start = slot - (slot - phase as i64).rem_euclid(SLOTS as i64);
        }
        came
    }
}

impl PackedBlocks {
    /// Evicts blocks that end before this slot; returns their bytes. `open` is the first open slot.
    fn evict_before(&mut self, before: i64, open: i64) -> usize {
        let mut shed = 0;
        while let Some((start, block)) = self.blocks.front()
            && start + SLOTS as i64 <= before
        {
            shed += block_cost(block);
            self.blocks.pop_front();
        }
        let oldest = self.blocks.front().map_or(open, |(start, _)| *start);
        self.forgotten.retain(|(_, from)| *from > oldest);
        shed
    }
}

/// Size of a packed block.
fn block_cost(block: &[u8]) -> usize {
    block.len() + size_of::<(i64, Box<[u8]>)>()
}

impl HistoryColumn {
    /// An empty history of a metric with this many slots.
    pub(super) fn new(metric: &Metric, slots: usize) -> Self {
        let quantum = match metric.kind {
            MetricKind::Counter(_) => {
                PointQuantization { step: STEP_OF_RATES, steps: STEPS_OF_RATES }
            }
            MetricKind::Gauge | MetricKind::Info => {
                PointQuantization { step: metric.resolution, steps: f64::INFINITY }
            }
        };
        let (ranges, packed, open) = (Vec::new(), Vec::new(), BlockPool::default());
        let earlier = Earlier::default();
        Self { slots, quantum, ranges, packed, open, earlier, bytes: 0 }
    }

    /// Clears a device's history.
    pub(super) fn clear(&mut self, row: usize) {
        self.earlier.clear(row);
        let (at, of) = (row / ROWS, row % ROWS);
        let Some(range) = self.ranges.get(at).filter(|range| range.start != NEVER) else { return };
        for place in range.open {
            if let Some(points) = self.open.get_mut(place) {
                points[of] = GAP;
            }
        }
        let forgotten = &mut self.packed[at].forgotten;
        forgotten.retain(|(known, _)| usize::from(*known) != of);
        forgotten.push((of as u8, range.start));
    }

    /// Writes the point of `slot`; skipped slots are gaps.
    ///
    /// `fills` marks that the sample before was about one period ago although it is in the slot before the last: then
    /// the skipped slot was lost to jitter at a slot border and not to a missing sample. Unless `may_grow` is set, a
    /// device without history gets none.
    #[inline]
    pub(super) fn write_point(
        &mut self,
        row: usize,
        slot: i64,
        value: Option<f64>,
        fills: bool,
        may_grow: bool,
    ) {
        let (at, row) = (row / ROWS, row % ROWS);
        if at >= self.ranges.len() && may_grow {
            let more = at + 1 - self.ranges.len();
            self.bytes += more * (size_of::<DeviceRange>() + size_of::<PackedBlocks>());
            self.ranges.resize_with(at + 1, || DeviceRange::NEW);
            self.packed.resize_with(at + 1, PackedBlocks::default);
        }
        let Some(range) = self.ranges.get_mut(at) else { return };
        if slot < range.start || range.start == NEVER && !may_grow {
            return;
        }
        if !range.is_open(slot) {
            let packed = &mut self.packed[at];
            self.bytes += range.ensure_open(slot, at % SLOTS, self.quantum, &mut self.open, packed);
            self.bytes -= packed.evict_before(slot - self.slots as i64 + 1, range.start);
        }
        let value = value.map_or(NONE, |value| value as f32);
        self.open.ensure_points(range.open_slot(slot))[row] = value;
        if fills && range.is_open(slot - 2) {
            let (open, range) = (&mut self.open, range);
            let mut is_empty = |slot| {
                let points = open.get(*range.open_slot(slot));
                points.is_none_or(|points| points[row].to_bits() == GAP.to_bits())
            };
            if !is_empty(slot - 2) && is_empty(slot - 1) {
                open.ensure_points(range.open_slot(slot - 1))[row] = value;
            }
        }
    }

    /// The points up to `slot`, oldest first, at most `most` of them.
    pub(super) fn read_points(&self, row: usize, slot: i64, most: usize) -> Vec<Option<f32>> {
        let wanted = self.slots.min(most);
        let first = slot - wanted as i64 + 1;
        let mut points = vec![None; wanted];
        let mut put = |at: i64, point: f32| {
            let place = usize::try_from(at - first).ok().filter(|_| !point.is_nan());
            if let Some(place) = place.and_then(|place| points.get_mut(place)) {
                *place = Some(point);
            }
        };
        self.earlier.read(row, first, &mut put);
        let (at, row) = (row / ROWS, row % ROWS);
        let Some(range) = self.ranges.get(at) else { return points };
        let packed = &self.packed[at];
        let known = packed.forgotten.iter().find(|(of, _)| usize::from(*of) == row);
        let known = known.map_or(NEVER, |(_, from)| *from);
        for (start, block) in &packed.blocks {
            if start + (SLOTS as i64) > first && *start >= known {
                let unpacked = unpack_device(block, row, self.quantum);
                (*start..).zip(unpacked).for_each(|(at, point)| put(at, point));
            }
        }
        if range.start != NEVER {
            for (at, place) in (range.start..).zip(range.open) {
                put(at, self.open.get(place).map_or(GAP, |points| points[row]));
            }
        }
        points
    }

    /// The newest point of the `within` slots that end at `slot`.
    pub(super) fn newest_point(&self, row: usize, slot: i64, within: usize) -> Option<f32> {
        self.read_points(row, slot, within).into_iter().rev().find_map(|point| point)
    }

    /// Size of the points in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes + self.open.memory_bytes() + self.earlier.bytes()
    }

    /// The slot after the oldest packed block.
    pub(super) fn oldest_end(&self) -> Option<i64> {
        let starts = self.packed.iter().filter_map(|packed| Some(packed.blocks.front()?.0));
        let own = starts.min().map(|start| start + SLOTS as i64);
        own.into_iter().chain(self.earlier.oldest_end()).min()
    }

    /// Evicts all blocks that end before this slot.
    pub(super) fn evict_before(&mut self, before: i64) {
        self.earlier.shed(before);
        for (packed, range) in self.packed.iter_mut().zip(&self.ranges) {
            self.bytes -= packed.evict_before(before, range.start);
        }
    }
}

/// Export of points to a recording and import of points from it.
impl HistoryColumn {
    /// How the points are quantised.
    pub(super) fn quantum(&self) -> PointQuantization {
        self.quantum
    }

    /// Number of slots that are kept.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Packs the points of up to [`ROWS`] devices in `blocks` blocks of [`SLOTS`] slots; the last block ends with
    /// `slot`. A block without any point is empty.
    pub(super) fn pack_rows(&self, rows: &[u32], slot: i64, blocks: usize) -> Vec<Box<[u8]>> {
        let series = self.read_all(&rows[..rows.len().min(ROWS)], slot, blocks * SLOTS);
        let block = |number: usize| {
            let mut points: [SlotPoints; SLOTS] = [[GAP; ROWS]; SLOTS];
            let mut any = false;
            for (row, series) in series.iter().enumerate() {
                for (at, slot) in points.iter_mut().enumerate() {
                    if let Some(point) = series[number * SLOTS + at] {
                        (slot[row], any) = (point, true);
                    }
                }
            }
            if any {
                pack_block(&points.each_ref().map(Some), self.quantum)
            } else {
                Box::default()
            }
        };
        (0..blocks).map(block).collect()
    }

    /// The points of devices in the `most` slots up to `slot`: each block is unpacked once for all of them.
    fn read_all(&self, rows: &[u32], slot: i64, most: usize) -> Vec<Vec<Option<f32>>> {
        let first = slot - most as i64 + 1;
        let kept = slot - self.slots as i64 + 1;
        let mut all = vec![vec![None; most]; rows.len()];
        let put = |points: &mut Vec<Option<f32>>, at: i64, point: f32| {
            let place = usize::try_from(at - first).ok().filter(|_| at >= kept && !point.is_nan());
            if let Some(place) = place.and_then(|place| points.get_mut(place)) {
                *place = Some(point);
            }
        };
        let mut ranges: Vec<usize> = rows.iter().map(|row| *row as usize / ROWS).collect();
        ranges.dedup();
        for (points, row) in all.iter_mut().zip(rows) {
            self.earlier.read(*row as usize, first, |at, point| put(points, at, point));
        }
        for number in ranges {
            let Some(range) = self.ranges.get(number) else { continue };
            let packed = &self.packed[number];
            let own = |row: &u32| *row as usize / ROWS == number;
            let known = |row: usize| {
                let forgotten = packed.forgotten.iter().find(|(of, _)| usize::from(*of) == row);
                forgotten.map_or(NEVER, |(_, from)| *from)
            };
            for (start, block) in &packed.blocks {
                if start + SLOTS as i64 <= first {
                    continue;
                }
                let unpacked = unpack_all(block, self.quantum);
                for (points, row) in all.iter_mut().zip(rows).filter(|(_, row)| own(row)) {
                    let row = *row as usize % ROWS;
                    if *start >= known(row) {
                        (*start..)
                            .zip(unpacked[row])
                            .for_each(|(at, point)| put(points, at, point));
                    }
                }
            }
            if range.start == NEVER {
                continue;
            }
            for (points, row) in all.iter_mut().zip(rows).filter(|(_, row)| own(row)) {
                for (at, place) in (range.start..).zip(range.open) {
                    let point = self.open.get(place).map_or(GAP, |all| all[*row as usize % ROWS]);
                    put(points, at, point);
                }
            }
        }
        all
    }

    /// Adds blocks that another process packed; returns the number of the group, which assigns them to devices.
    pub(super) fn take_earlier(&mut self, group: EarlierGroup) -> u32 {
        self.earlier.push(group)
    }

    /// Assigns earlier points of a group to the device at `row`.
    pub(super) fn assign_earlier(&mut self, row: u32, group: u32, place: u8) {
        self.earlier.assign(row as usize, group, place);
    }

    /// Size of the points that another process packed.
    #[cfg(test)]
    pub(super) fn earlier_bytes(&self) -> usize {
        self.earlier.bytes()
    }

    /// Drops earlier points that are too old at this slot.
    pub(super) fn expire_earlier(&mut self, slot: i64) {
        self.earlier.shed(slot - self.slots as i64 + 1);
    }
}

#[cfg(test)]
mod tests;
