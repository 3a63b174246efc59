//! Open points: one pool for all ranges of a metric, whose released entries are reused.

use super::{
    GAP,
    block::{ROWS, SlotPoints},
};

/// Minimum growth in slots, or a fraction of the current size if that is larger: a pool that doubled would be half
/// empty.
const STEP: usize = 16;
const SHARE: usize = 16;

/// Index of the points of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolIndex(u32);

impl PoolIndex {
    /// No points were written.
    pub(super) const NONE: Self = Self(u32::MAX);
}

/// The points of all open slots.
#[derive(Debug, Default)]
pub(super) struct BlockPool {
    points: Vec<SlotPoints>,
    free: Vec<PoolIndex>,
}

impl BlockPool {
    /// The points at an index; none if none were written.
    #[inline]
    pub(super) fn get(&self, index: PoolIndex) -> Option<&SlotPoints> {
        self.points.get(index.0 as usize)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: PoolIndex) -> Option<&mut SlotPoints> {
        self.points.get_mut(index.0 as usize)
    }

    /// The points at an index, allocated if there are none.
    #[inline]
    pub(super) fn ensure_points(&mut self, index: &mut PoolIndex) -> &mut SlotPoints {
        if *index == PoolIndex::NONE {
            *index = self.allocate_points();
        }
        &mut self.points[index.0 as usize]
    }

    fn allocate_points(&mut self) -> PoolIndex {
        if let Some(index) = self.free.pop() {
            self.points[index.0 as usize] = [GAP; ROWS];
            return index;
        }
        if self.points.len() == self.points.capacity() {
            self.points.reserve_exact(STEP.max(self.points.len() / SHARE));
        }
        self.points.push([GAP; ROWS]);
        PoolIndex(self.points.len() as u32 - 1)
    }

    /// Releases the points at these indices.
    pub(super) fn release_points(&mut self, indices: &mut [PoolIndex]) {
        for index in indices {
            let index = std::mem::replace(index, PoolIndex::NONE);
            self.free.extend((index != PoolIndex::NONE).then_some(index));
        }
    }

    /// Number of open slots.
    #[cfg(test)]
    pub(super) fn used_slots(&self) -> usize {
        self.points.len() - self.free.len()
    }

    /// Size of the pool in bytes, used or not.
    pub(super) fn memory_bytes(&self) -> usize {
        self.points.capacity() * size_of::<SlotPoints>()
            + self.free.capacity() * size_of::<PoolIndex>()
    }
}
