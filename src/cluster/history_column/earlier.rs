//! Points that another process kept: packed blocks, read together with a device's own points until they are too old.

use std::collections::HashMap;

use super::block::{PointQuantization, ROWS, SLOTS, unpack_device};

/// Consecutive blocks of some devices.
#[derive(Debug)]
pub(in super::super) struct EarlierGroup {
    /// The slot of the first point.
    pub(in super::super) first: i64,
    /// Quantisation of the points.
    pub(in super::super) quantum: PointQuantization,
    /// Each has [`SLOTS`] slots; empty if it has no point.
    pub(in super::super) blocks: Vec<Box<[u8]>>,
}

impl EarlierGroup {
    /// The slot after the last point.
    fn end(&self) -> i64 {
        self.first.saturating_add((self.blocks.len() * SLOTS) as i64)
    }

    fn bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.len() + size_of::<Box<[u8]>>()).sum()
    }
}

/// Earlier points of the devices of a class.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    groups: Vec<EarlierGroup>,
    /// The group and the position in it of each row with earlier points.
    rows: HashMap<usize, (u32, u8)>,
    bytes: usize,
}

impl Earlier {
    /// Adds a group and returns its number.
    pub(super) fn push(&mut self, group: EarlierGroup) -> u32 {
        self.bytes += group.bytes();
        self.groups.push(group);
        self.groups.len() as u32 - 1
    }

    /// Assigns these points to the device at `row`.
    pub(super) fn assign(&mut self, row: usize, group: u32, position: u8) {
        if usize::from(position) < ROWS {
            self.rows.insert(row, (group, position));
        }
    }

    /// Drops a device's points.
    pub(super) fn clear(&mut self, row: usize) {
        if !self.rows.is_empty() {
            self.rows.remove(&row);
        }
    }

    /// Passes every point of the device at `row` from the slot `from` on to `put`, with its slot.
    pub(super) fn read(&self, row: usize, from: i64, mut put: impl FnMut(i64, f32)) {
        if self.groups.is_empty() {
            return;
        }
        let Some((group, position)) = self.rows.get(&row) else { return };
        let Some(group) = self.groups.get(*group as usize) else { return };
        for (number, block) in group.blocks.iter().enumerate() {
            let start = group.first.saturating_add((number * SLOTS) as i64);
            if block.is_empty() || start.saturating_add(SLOTS as i64) <= from {
                continue;
            }
            let points = unpack_device(block, usize::from(*position), group.quantum);
            (start..).zip(points).for_each(|(slot, point)| put(slot, point));
        }
    }

    /// Size of the points in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The slot after the oldest group.
    pub(super) fn oldest_end(&self) -> Option<i64> {
        let non_empty = self.groups.iter().filter(|group| !group.blocks.is_empty());
        non_empty.map(EarlierGroup::end).min()
    }

    /// Drops all groups that end before this slot.
    pub(super) fn shed(&mut self, before: i64) {
        for group in &mut self.groups {
            if group.end() <= before {
                self.bytes -= group.bytes();
                group.blocks = Vec::new();
            }
        }
        if self.groups.iter().all(|group| group.blocks.is_empty()) {
            *self = Self::default();
        }
    }
}
