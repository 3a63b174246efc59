//! Open points: one room for those of all ranges of a metric. What a range gives back the next one gets.

use super::{
    GAP,
    block::{ROWS, SlotPoints},
};

/// Points come for so many slots at once at least, or for a part of those that are there: a room that doubled would be
/// half empty.
const STEP: usize = 16;
const SHARE: usize = 16;

/// Where the points of a slot are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolIndex(u32);

impl PoolIndex {
    /// Nobody wrote any.
    pub(super) const NONE: Self = Self(u32::MAX);
}

/// The points of all slots that stand open.
#[derive(Debug, Default)]
pub(super) struct BlockPool {
    points: Vec<SlotPoints>,
    free: Vec<PoolIndex>,
}

impl BlockPool {
    /// The points at a place; none if nobody wrote any.
    #[inline]
    pub(super) fn get(&self, place: PoolIndex) -> Option<&SlotPoints> {
        self.points.get(place.0 as usize)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, place: PoolIndex) -> Option<&mut SlotPoints> {
        self.points.get_mut(place.0 as usize)
    }

    /// The points at a place, which gets some if it has none.
    #[inline]
    pub(super) fn ensure_points(&mut self, place: &mut PoolIndex) -> &mut SlotPoints {
        if *place == PoolIndex::NONE {
            *place = self.allocate_points();
        }
        &mut self.points[place.0 as usize]
    }

    fn allocate_points(&mut self) -> PoolIndex {
        if let Some(place) = self.free.pop() {
            self.points[place.0 as usize] = [GAP; ROWS];
            return place;
        }
        if self.points.len() == self.points.capacity() {
            self.points.reserve_exact(STEP.max(self.points.len() / SHARE));
        }
        self.points.push([GAP; ROWS]);
        PoolIndex(self.points.len() as u32 - 1)
    }

    /// Takes the points at these places back.
    pub(super) fn release_points(&mut self, places: &mut [PoolIndex]) {
        for place in places {
            let place = std::mem::replace(place, PoolIndex::NONE);
            self.free.extend((place != PoolIndex::NONE).then_some(place));
        }
    }

    /// Slots that stand open.
    #[cfg(test)]
    pub(super) fn used_slots(&self) -> usize {
        self.points.len() - self.free.len()
    }

    /// What the room costs, full or not.
    pub(super) fn memory_bytes(&self) -> usize {
        self.points.capacity() * size_of::<SlotPoints>()
            + self.free.capacity() * size_of::<PoolIndex>()
    }
}
