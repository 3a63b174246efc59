//! The bounded recent past of one metric on all devices of its class: one point a period.

/// A gap. It never leaves this room as a number.
const GAP: f32 = f32::NAN;

/// No point was written yet.
const NEVER: i64 = i64::MIN;

/// A ring of points for each device.
///
/// The points of one slot lie together: a page writes those of all its devices into few cache lines.
#[derive(Debug)]
pub(super) struct History {
    slots: usize,
    /// Devices that fit into one slot.
    width: usize,
    points: Vec<f32>,
    /// The slot of each device's newest point.
    newest: Vec<i64>,
}

impl History {
    /// Rings of `slots` points.
    pub(super) fn new(slots: usize) -> Self {
        Self { slots, width: 0, points: Vec::new(), newest: Vec::new() }
    }

    /// Makes room for `rows` devices.
    pub(super) fn grow(&mut self, rows: usize) {
        self.newest.resize(rows.max(self.newest.len()), NEVER);
        if rows <= self.width {
            return;
        }
        let width = rows.next_power_of_two();
        let mut points = vec![GAP; width * self.slots];
        if self.width > 0 {
            let old = self.points.chunks_exact(self.width);
            for (new, old) in points.chunks_exact_mut(width).zip(old) {
                new[..self.width].copy_from_slice(old);
            }
        }
        (self.width, self.points) = (width, points);
    }

    /// Forgets a device's past.
    pub(super) fn clear(&mut self, row: usize) {
        self.newest[row] = NEVER;
    }

    /// Writes the point of `slot`; the slots that were passed over are gaps.
    ///
    /// `steady` says that the sample before was about one period ago: then a single slot that was passed over was lost
    /// to jitter at the border of two slots, and not to a missing sample.
    pub(super) fn write(&mut self, row: usize, slot: i64, value: Option<f64>, steady: bool) {
        let newest = self.newest[row];
        if slot < newest {
            return;
        }
        let value = value.map_or(GAP, |value| value as f32);
        let oldest = slot - self.slots as i64 + 1;
        let fill = if steady && newest != NEVER && slot - newest == 2 { value } else { GAP };
        for passed in newest.saturating_add(1).max(oldest)..slot {
            let at = self.place(row, passed);
            self.points[at] = fill;
        }
        let at = self.place(row, slot);
        self.points[at] = value;
        self.newest[row] = slot;
    }

    /// The newest point of the `within` slots that end at `slot`.
    pub(super) fn newest_of(&self, row: usize, slot: i64, within: i64) -> Option<f32> {
        let (slots, newest) = (self.slots as i64, *self.newest.get(row)?);
        let known = |at: i64| newest != NEVER && at <= newest && at > newest - slots;
        let mut at = (slot - within + 1..=slot).rev().filter(|at| known(*at));
        at.find_map(|at| Some(self.points[self.place(row, at)]).filter(|point| !point.is_nan()))
    }

    /// The points up to `slot`, oldest first.
    pub(super) fn read(&self, row: usize, slot: i64) -> Vec<Option<f32>> {
        let (slots, newest) = (self.slots as i64, self.newest[row]);
        let known = |at: i64| newest != NEVER && at <= newest && at > newest - slots;
        let point = |at: i64| Some(self.points[self.place(row, at)]).filter(|p| !p.is_nan());
        (slot - slots + 1..=slot).map(|at| if known(at) { point(at) } else { None }).collect()
    }

    fn place(&self, row: usize, slot: i64) -> usize {
        slot.rem_euclid(self.slots as i64) as usize * self.width + row
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A ring shows what a list of all points would show.
        #[test]
        fn a_ring_is_the_end_of_a_list(steps in prop::collection::vec((0_i64..7, any::<Option<u8>>()), 1..40)) {
            let mut history = ring();
            let (mut slot, mut list) = (-20, std::collections::BTreeMap::new());
            for (step, value) in steps {
                slot += step;
                let value = value.map(f64::from);
                history.write(1, slot, value, false);
                list.insert(slot, value);
                for now in slot..slot + 3 {
                    let end: Vec<_> = (now - 3..=now)
                        .map(|at| list.get(&at).copied().flatten().map(|value| value as f32))
                        .collect();
                    prop_assert_eq!(history.read(1, now), end);
                }
            }
        }
    }

    fn ring() -> History {
        let mut history = History::new(4);
        history.grow(2);
        history
    }

    #[test]
    fn the_past_is_bounded_and_ends_now() {
        let mut history = ring();
        for slot in 0..10 {
            history.write(1, slot, Some(slot as f64), true);
        }
        assert_eq!(history.read(1, 9), [Some(6.0), Some(7.0), Some(8.0), Some(9.0)]);
        assert_eq!(history.read(1, 11), [Some(8.0), Some(9.0), None, None]);
        assert_eq!(history.read(1, 30), [None; 4]);
        assert_eq!(history.read(0, 9), [None; 4], "another device has no past");
    }

    #[test]
    fn the_newest_point_of_a_few_slots_is_found_and_none_beyond_them() {
        let mut history = ring();
        for slot in 0..6 {
            history.write(1, slot, (slot != 4).then_some(slot as f64), true);
        }
        assert_eq!(history.newest_of(1, 4, 3), Some(3.0));
        assert_eq!(history.newest_of(1, 4, 1), None);
        assert_eq!(history.newest_of(1, 5, 1), Some(5.0));
        assert_eq!(history.newest_of(1, 1, 3), None, "the ring has gone round");
        assert_eq!(history.newest_of(0, 5, 3), None);
        assert_eq!(history.newest_of(77, 5, 3), None);
    }

    #[test]
    fn a_missing_sample_is_a_gap_and_never_zero() {
        let mut history = ring();
        history.write(0, 5, Some(1.0), false);
        history.write(0, 7, Some(3.0), false);
        history.write(0, 8, None, true);
        assert_eq!(history.read(0, 8), [Some(1.0), None, Some(3.0), None]);
        history.write(0, 1_000_000, Some(9.0), false);
        assert_eq!(history.read(0, 1_000_000), [None, None, None, Some(9.0)]);
    }

    #[test]
    fn jitter_at_the_border_of_two_slots_makes_no_gap() {
        let mut history = ring();
        history.write(0, 5, Some(1.0), false);
        history.write(0, 7, Some(3.0), true);
        history.write(0, 7, Some(4.0), true);
        assert_eq!(history.read(0, 7), [None, Some(1.0), Some(3.0), Some(4.0)]);
    }

    #[test]
    fn more_devices_change_nothing_for_those_that_are_there() {
        let mut history = ring();
        history.write(1, 5, Some(1.0), false);
        history.write(1, 6, Some(2.0), false);
        history.grow(50);
        history.write(49, 6, Some(9.0), false);
        assert_eq!(history.read(1, 6), [None, None, Some(1.0), Some(2.0)]);
        assert_eq!(history.read(49, 6), [None, None, None, Some(9.0)]);
    }

    #[test]
    fn a_forgotten_device_leaves_nothing_to_the_next() {
        let mut history = ring();
        history.write(0, 5, Some(1.0), false);
        history.clear(0);
        assert_eq!(history.read(0, 5), [None; 4]);
        history.write(0, 6, Some(2.0), true);
        assert_eq!(history.read(0, 6), [None, None, None, Some(2.0)]);
    }
}
