//! The bounded recent past of one metric on all devices of its class: one point a period.

/// A gap. It never leaves this room as a number.
const GAP: f32 = f32::NAN;

/// No point was written yet.
const NEVER: i64 = i64::MIN;

/// A ring of points for each device.
#[derive(Debug)]
pub(super) struct History {
    slots: usize,
    points: Vec<f32>,
    /// The slot of each device's newest point.
    newest: Vec<i64>,
}

impl History {
    /// Rings of `slots` points.
    pub(super) fn new(slots: usize) -> Self {
        Self { slots, points: Vec::new(), newest: Vec::new() }
    }

    /// Makes room for `rows` devices.
    pub(super) fn grow(&mut self, rows: usize) {
        self.points.resize(rows * self.slots, GAP);
        self.newest.resize(rows, NEVER);
    }

    /// Forgets a device's past.
    pub(super) fn clear(&mut self, row: usize) {
        self.newest[row] = NEVER;
        self.ring(row).fill(GAP);
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
        let slots = self.slots as i64;
        let value = value.map_or(GAP, |value| value as f32);
        let ring = self.ring(row);
        if newest != NEVER {
            let first = (newest + 1).max(slot - slots + 1);
            let fill = if steady && slot - newest == 2 { value } else { GAP };
            for passed in first..slot {
                ring[passed.rem_euclid(slots) as usize] = fill;
            }
        }
        ring[slot.rem_euclid(slots) as usize] = value;
        self.newest[row] = slot;
    }

    /// The points up to `slot`, oldest first.
    pub(super) fn read(&self, row: usize, slot: i64) -> Vec<Option<f32>> {
        let (slots, newest) = (self.slots as i64, self.newest[row]);
        let ring = &self.points[row * self.slots..(row + 1) * self.slots];
        let known = |at: i64| newest != NEVER && at <= newest && at > newest - slots;
        let point = |at: i64| Some(ring[at.rem_euclid(slots) as usize]).filter(|p| !p.is_nan());
        (slot - slots + 1..=slot).map(|at| if known(at) { point(at) } else { None }).collect()
    }

    fn ring(&mut self, row: usize) -> &mut [f32] {
        &mut self.points[row * self.slots..(row + 1) * self.slots]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_forgotten_device_leaves_nothing_to_the_next() {
        let mut history = ring();
        history.write(0, 5, Some(1.0), false);
        history.clear(0);
        assert_eq!(history.read(0, 5), [None; 4]);
        history.write(0, 6, Some(2.0), true);
        assert_eq!(history.read(0, 6), [None, None, None, Some(2.0)]);
    }
}
