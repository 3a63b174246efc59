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
    fn is_empty(&self, pool: &BlockPool) -> bool {
        let points = self.open.iter().filter_map(|index| pool.get(*index));
        points.flatten().all(|point| point.is_nan())
    }

    /// Opens a slot, where blocks begin in slots that are `phase` beyond a multiple of their length; returns the bytes
    /// of the blocks that had to be packed.
    fn ensure_open(
        &mut self,
        slot: i64,
        phase: usize,
        quantum: PointQuantization,
        pool: &mut BlockPool,
        packed: &mut PackedBlocks,
    ) -> usize {
        let mut packed_bytes = 0;
        while self.start != NEVER && slot >= self.start + OPEN as i64 && !self.is_empty(pool) {
            let full = &mut self.open[..SLOTS];
            let points: [_; SLOTS] = std::array::from_fn(|offset| pool.get(full[offset]));
            let block = pack_block(&points, quantum);
            packed_bytes += block_cost(&block);
            packed.blocks.push_back((self.start, block));
            pool.release_points(full);
            self.open.rotate_left(SLOTS);
            self.start += SLOTS as i64;
        }
        if self.start == NEVER || slot >= self.start + OPEN as i64 {
            pool.release_points(&mut self.open);
            self.start = slot - (slot - phase as i64).rem_euclid(SLOTS as i64);
        }
        packed_bytes
    }
}

impl PackedBlocks {
    /// Evicts blocks that end before this slot; returns their bytes. `open` is the first open slot.
    fn evict_before(&mut self, before: i64, open: i64) -> usize {
        let mut freed = 0;
        while let Some((start, block)) = self.blocks.front()
            && start + SLOTS as i64 <= before
        {
            freed += block_cost(block);
            self.blocks.pop_front();
        }
        let oldest = self.blocks.front().map_or(open, |(start, _)| *start);
        self.forgotten.retain(|(_, from)| *from > oldest);
        freed
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
        let (range_index, offset) = (row / ROWS, row % ROWS);
        let Some(range) = self.ranges.get(range_index).filter(|range| range.start != NEVER) else {
            return;
        };
        for index in range.open {
            if let Some(points) = self.open.get_mut(index) {
                points[offset] = GAP;
            }
        }
        let forgotten = &mut self.packed[range_index].forgotten;
        forgotten.retain(|(forgotten_row, _)| usize::from(*forgotten_row) != offset);
        forgotten.push((offset as u8, range.start));
    }

    /// Writes the point of `slot`; skipped slots are gaps.
    ///
    /// `fills_gap` marks that the sample before was about one period ago although it is in the slot before the last:
    /// then the skipped slot was lost to jitter at a slot border and not to a missing sample. Unless `may_grow` is
    /// set, a device without history gets none.
    #[inline]
    pub(super) fn write_point(
        &mut self,
        row: usize,
        slot: i64,
        value: Option<f64>,
        fills_gap: bool,
        may_grow: bool,
    ) {
        let (range_index, row) = (row / ROWS, row % ROWS);
        if range_index >= self.ranges.len() && may_grow {
            let added = range_index + 1 - self.ranges.len();
            self.bytes += added * (size_of::<DeviceRange>() + size_of::<PackedBlocks>());
            self.ranges.resize_with(range_index + 1, || DeviceRange::NEW);
            self.packed.resize_with(range_index + 1, PackedBlocks::default);
        }
        let Some(range) = self.ranges.get_mut(range_index) else { return };
        if slot < range.start || range.start == NEVER && !may_grow {
            return;
        }
        if !range.is_open(slot) {
            let packed = &mut self.packed[range_index];
            self.bytes +=
                range.ensure_open(slot, range_index % SLOTS, self.quantum, &mut self.open, packed);
            self.bytes -= packed.evict_before(slot - self.slots as i64 + 1, range.start);
        }
        let value = value.map_or(NONE, |value| value as f32);
        self.open.ensure_points(range.open_slot(slot))[row] = value;
        if fills_gap && range.is_open(slot - 2) {
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

    /// The points up to `slot`, oldest first, at most `max_points` of them.
    pub(super) fn read_points(&self, row: usize, slot: i64, max_points: usize) -> Vec<Option<f32>> {
        let count = self.slots.min(max_points);
        let first = slot - count as i64 + 1;
        let mut points = vec![None; count];
        let mut set_point = |at: i64, point: f32| {
            let index = usize::try_from(at - first).ok().filter(|_| !point.is_nan());
            if let Some(index) = index.and_then(|index| points.get_mut(index)) {
                *index = Some(point);
            }
        };
        self.earlier.read(row, first, &mut set_point);
        let (range_index, row) = (row / ROWS, row % ROWS);
        let Some(range) = self.ranges.get(range_index) else { return points };
        let packed = &self.packed[range_index];
        let valid_from =
            packed.forgotten.iter().find(|(forgotten_row, _)| usize::from(*forgotten_row) == row);
        let valid_from = valid_from.map_or(NEVER, |(_, from)| *from);
        for (start, block) in &packed.blocks {
            if start + (SLOTS as i64) > first && *start >= valid_from {
                let unpacked = unpack_device(block, row, self.quantum);
                (*start..).zip(unpacked).for_each(|(at, point)| set_point(at, point));
            }
        }
        if range.start != NEVER {
            for (at, index) in (range.start..).zip(range.open) {
                set_point(at, self.open.get(index).map_or(GAP, |points| points[row]));
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
        let packed_end = starts.min().map(|start| start + SLOTS as i64);
        packed_end.into_iter().chain(self.earlier.oldest_end()).min()
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
            let mut has_points = false;
            for (row, series) in series.iter().enumerate() {
                for (offset, slot) in points.iter_mut().enumerate() {
                    if let Some(point) = series[number * SLOTS + offset] {
                        (slot[row], has_points) = (point, true);
                    }
                }
            }
            if has_points {
                pack_block(&points.each_ref().map(Some), self.quantum)
            } else {
                Box::default()
            }
        };
        (0..blocks).map(block).collect()
    }

    /// The points of devices in the `max_points` slots up to `slot`: each block is unpacked once for all of them.
    fn read_all(&self, rows: &[u32], slot: i64, max_points: usize) -> Vec<Vec<Option<f32>>> {
        let first = slot - max_points as i64 + 1;
        let oldest_kept = slot - self.slots as i64 + 1;
        let mut all_points = vec![vec![None; max_points]; rows.len()];
        let set_point = |points: &mut Vec<Option<f32>>, at: i64, point: f32| {
            let index =
                usize::try_from(at - first).ok().filter(|_| at >= oldest_kept && !point.is_nan());
            if let Some(index) = index.and_then(|index| points.get_mut(index)) {
                *index = Some(point);
            }
        };
        let mut ranges: Vec<usize> = rows.iter().map(|row| *row as usize / ROWS).collect();
        ranges.dedup();
        for (points, row) in all_points.iter_mut().zip(rows) {
            self.earlier.read(*row as usize, first, |at, point| set_point(points, at, point));
        }
        for range_index in ranges {
            let Some(range) = self.ranges.get(range_index) else { continue };
            let packed = &self.packed[range_index];
            let is_in_range = |row: &u32| *row as usize / ROWS == range_index;
            let valid_from = |row: usize| {
                let forgotten = packed
                    .forgotten
                    .iter()
                    .find(|(forgotten_row, _)| usize::from(*forgotten_row) == row);
                forgotten.map_or(NEVER, |(_, from)| *from)
            };
            for (start, block) in &packed.blocks {
                if start + SLOTS as i64 <= first {
                    continue;
                }
                let unpacked = unpack_all(block, self.quantum);
                for (points, row) in
                    all_points.iter_mut().zip(rows).filter(|(_, row)| is_in_range(row))
                {
                    let row = *row as usize % ROWS;
                    if *start >= valid_from(row) {
                        (*start..)
                            .zip(unpacked[row])
                            .for_each(|(at, point)| set_point(points, at, point));
                    }
                }
            }
            if range.start == NEVER {
                continue;
            }
            for (points, row) in all_points.iter_mut().zip(rows).filter(|(_, row)| is_in_range(row))
            {
                for (at, index) in (range.start..).zip(range.open) {
                    let point =
                        self.open.get(index).map_or(GAP, |points| points[*row as usize % ROWS]);
                    set_point(points, at, point);
                }
            }
        }
        all_points
    }

    /// Adds blocks that another process packed; returns the number of the group, which assigns them to devices.
    pub(super) fn take_earlier(&mut self, group: EarlierGroup) -> u32 {
        self.earlier.push(group)
    }

    /// Assigns earlier points of a group to the device at `row`.
    pub(super) fn assign_earlier(&mut self, row: u32, group: u32, position: u8) {
        self.earlier.assign(row as usize, group, position);
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
