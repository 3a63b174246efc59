//! A block: the points of some slots of neighbouring devices, quantised and packed into as few bits as they need.
//!
//! Each device begins with a tag: no point at all, raw points, or the number of bits of a packed point. A point is an
//! integer number of steps above the minimum of its device; the minimum is stored as a difference to that of the
//! device before. A step is the resolution of the metric, doubled until the largest point fits into the required
//! number of steps.

/// Slots of one block: enough that the header of a device is small beside its points.
pub(in super::super) const SLOTS: usize = 10;

/// Devices of one block.
pub(in super::super) const ROWS: usize = 64;

/// The points of one slot of all devices of a block; NaN where there is none.
pub(super) type SlotPoints = [f32; ROWS];

/// These six bits of a tag are 1 plus the bits of a point.
const WIDTH: u8 = 0x3f;

/// Raw points: four bytes each.
const RAW: u8 = 0x3f;

/// Some slots have no point; a mask of those with one follows.
const SOME: u8 = 0x40;

/// The step is not the smallest one; the number of doublings follows.
const DOUBLED: u8 = 0x80;

/// Maximum distance of a point from zero in steps, so that a 32-bit float represents each step exactly.
const MOST_STEPS: f64 = (1_u32 << 30) as f64;

/// Quantisation of a metric's points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) struct PointQuantization {
    /// The smallest step.
    pub(in super::super) step: f64,
    /// Number of steps above which the step is doubled.
    pub(in super::super) steps: f64,
}

/// Packs the points of [`SLOTS`] slots.
pub(super) fn pack_block(slots: &[Option<&SlotPoints>], quantum: PointQuantization) -> Box<[u8]> {
    let mut out = Vec::with_capacity(ROWS * 8);
    let mut before = 0;
    for row in 0..ROWS {
        let mut values = [0.0; SLOTS];
        let (mut count, mut mask) = (0, 0_u16);
        for (slot, points) in slots.iter().enumerate() {
            let point = points.map_or(f32::NAN, |points| points[row]);
            if !point.is_nan() {
                values[count] = point;
                (count, mask) = (count + 1, mask | 1 << slot);
            }
        }
        pack_device(&values[..count], mask, quantum, &mut before, &mut out);
    }
    out.into_boxed_slice()
}

fn pack_device(
    values: &[f32],
    mask: u16,
    quantum: PointQuantization,
    before: &mut i64,
    out: &mut Vec<u8>,
) {
    if values.is_empty() {
        return out.push(0);
    }
    let partial = if values.len() == SLOTS { 0 } else { SOME };
    let push_mask = |out: &mut Vec<u8>| {
        if partial != 0 {
            out.extend_from_slice(&mask.to_le_bytes());
        }
    };
    let Some((doubled, step)) = choose_step(values, quantum) else {
        out.push(RAW | partial);
        push_mask(out);
        return values.iter().for_each(|point| out.extend_from_slice(&point.to_le_bytes()));
    };
    let mut steps = [0_i64; SLOTS];
    for (steps, point) in steps.iter_mut().zip(values) {
        *steps = (f64::from(*point) / step).round() as i64;
    }
    let steps = &steps[..values.len()];
    let lowest = steps.iter().copied().min().unwrap_or_default();
    let highest = steps.iter().copied().max().unwrap_or_default();
    let width = (64 - ((highest - lowest) as u64).leading_zeros()) as u8;
    out.push((width + 1) | partial | if doubled > 0 { DOUBLED } else { 0 });
    push_mask(out);
    if doubled > 0 {
        out.push(doubled);
    }
    encode_signed(lowest - *before, out);
    *before = lowest;
    let (mut bits, mut bit_count) = (0_u64, 0);
    for steps in steps {
        bits |= ((steps - lowest) as u64) << bit_count;
        bit_count += u32::from(width);
        while bit_count >= 8 {
            out.push(bits as u8);
            (bits, bit_count) = (bits >> 8, bit_count - 8);
        }
    }
    if bit_count > 0 {
        out.push(bits as u8);
    }
}

/// The number of doublings for these points, and the resulting step; none for points that are no integer number of
/// steps.
fn choose_step(values: &[f32], quantum: PointQuantization) -> Option<(u8, f64)> {
    let largest = values.iter().fold(0.0_f32, |largest, point| largest.max(point.abs()));
    let (mut step, mut doubled) = (quantum.step, 0_u8);
    while f64::from(largest) / step > quantum.steps.min(MOST_STEPS) {
        step *= 2.0;
        doubled = doubled.checked_add(1)?;
    }
    (largest.is_finite() && step > 0.0).then_some((doubled, step))
}

fn encode_signed(number: i64, out: &mut Vec<u8>) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The points of one device; NaN where there is none.
pub(super) fn unpack_device(block: &[u8], row: usize, quantum: PointQuantization) -> [f32; SLOTS] {
    let mut points = [f32::NAN; SLOTS];
    let (mut reader, mut before) = (BlockReader { bytes: block }, 0);
    for index in 0..=row {
        let output = (index == row).then_some(&mut points);
        if reader.decode_device(quantum, &mut before, output).is_none() {
            break;
        }
    }
    points
}

/// The points of all devices of a block in one pass.
pub(super) fn unpack_all(block: &[u8], quantum: PointQuantization) -> Vec<[f32; SLOTS]> {
    let mut all_points = vec![[f32::NAN; SLOTS]; ROWS];
    let (mut reader, mut before) = (BlockReader { bytes: block }, 0);
    for points in &mut all_points {
        if reader.decode_device(quantum, &mut before, Some(points)).is_none() {
            break;
        }
    }
    all_points
}

struct BlockReader<'a> {
    bytes: &'a [u8],
}

impl<'a> BlockReader<'a> {
    fn next_bytes(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let head = self.bytes.get(..bytes)?;
        self.bytes = &self.bytes[bytes..];
        Some(head)
    }

    fn decode_signed(&mut self) -> Option<i64> {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let byte = self.next_bytes(1)?[0];
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte < 0x80 {
                return Some((number >> 1) as i64 ^ -((number & 1) as i64));
            }
        }
    }

    /// Decodes or skips the next device.
    fn decode_device(
        &mut self,
        quantum: PointQuantization,
        before: &mut i64,
        output: Option<&mut [f32; SLOTS]>,
    ) -> Option<()> {
        let tag = self.next_bytes(1)?[0];
        if tag == 0 {
            return Some(());
        }
        let mask = if tag & SOME == 0 {
            (1 << SLOTS) - 1
        } else {
            u16::from_le_bytes(self.next_bytes(2)?.try_into().ok()?)
        };
        let count = mask.count_ones() as usize;
        let slots = (0..SLOTS).filter(|slot| mask >> slot & 1 == 1);
        if tag & WIDTH == RAW {
            let raw = self.next_bytes(count * 4)?;
            if let Some(points) = output {
                for (slot, raw) in slots.zip(raw.chunks_exact(4)) {
                    points[slot] = f32::from_le_bytes(raw.try_into().ok()?);
                }
            }
            return Some(());
        }
        let width = u32::from((tag & WIDTH).checked_sub(1)?);
        let doubled = if tag & DOUBLED == 0 { 0 } else { self.next_bytes(1)?[0] };
        let lowest = before.wrapping_add(self.decode_signed()?);
        *before = lowest;
        let packed = self.next_bytes((count * width as usize).div_ceil(8))?;
        let Some(points) = output else { return Some(()) };
        let step = quantum.step * f64::from(doubled).exp2();
        let (mut bits, mut bit_count, mut next) = (0_u64, 0, packed.iter());
        for slot in slots {
            while bit_count < width {
                bits |= u64::from(*next.next()?) << bit_count;
                bit_count += 8;
            }
            let offset = bits & ((1 << width) - 1);
            (bits, bit_count) = (bits >> width, bit_count - width);
            points[slot] = (lowest.wrapping_add(offset as i64) as f64 * step) as f32;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pack_points(points: &[f32], quantum: PointQuantization) -> Box<[u8]> {
        let (slots, rest) = points.as_chunks::<ROWS>();
        assert_eq!((slots.len(), rest.len()), (SLOTS, 0));
        // A slot without any point has no buffer, or a buffer without points.
        let has_buffer = |slot: usize, points: &SlotPoints| {
            slot.is_multiple_of(2) || points.iter().any(|point| !point.is_nan())
        };
        let slots = slots.iter().enumerate();
        let slots = slots.map(|(slot, points)| has_buffer(slot, points).then_some(points));
        pack_block(&slots.collect::<Vec<_>>(), quantum)
    }

    fn round_trip(points: &[f32], quantum: PointQuantization) -> Vec<f32> {
        let block = pack_points(points, quantum);
        let mut unpacked = vec![f32::NAN; SLOTS * ROWS];
        for row in 0..ROWS {
            for (slot, point) in unpack_device(&block, row, quantum).into_iter().enumerate() {
                unpacked[slot * ROWS + row] = point;
            }
        }
        unpacked
    }

    fn any_point() -> impl Strategy<Value = f32> {
        prop_oneof![
            2 => Just(f32::NAN),
            4 => -900.0_f32..900.0,
            2 => 0.0_f32..1.0,
            1 => prop::num::f32::NORMAL,
            1 => Just(0.0),
            1 => Just(f32::INFINITY),
        ]
    }

    proptest! {
        // Each case is a block of 64 devices.
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn points_are_restored_within_half_a_step(
            points in prop::collection::vec(any_point(), SLOTS * ROWS),
            step in prop_oneof![Just(1.0), Just(0.001), Just(0.25)],
            steps in prop_oneof![Just(4096.0), Just(MOST_STEPS)],
        ) {
            let quantum = PointQuantization { step, steps };
            let largest_of_row = |row: usize| {
                let values = (0..SLOTS).map(|slot| points[slot * ROWS + row]).filter(|point| !point.is_nan());
                f64::from(values.fold(0.0_f32, |largest, point| largest.max(point.abs())))
            };
            let largest_points: Vec<f64> = (0..ROWS).map(largest_of_row).collect();
            for (index, (point, back)) in points.iter().zip(round_trip(&points, quantum)).enumerate() {
                prop_assert_eq!(point.is_nan(), back.is_nan());
                let largest = largest_points[index % ROWS];
                let allowed = (step / 2.0).max(largest / steps) * 1.001 + f64::from(point.abs()) * 1e-6;
                let deviation = (f64::from(*point) - f64::from(back)).abs();
                let is_same = point.to_bits() == back.to_bits();
                prop_assert!(point.is_nan() || is_same || deviation <= allowed, "{} {}", point, back);
            }
        }
    }

    proptest! {
        #[test]
        fn unpacking_any_bytes_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), row in 0..ROWS) {
            unpack_device(&bytes, row, PointQuantization { step: 1.0, steps: 4096.0 });
        }
    }

    #[test]
    fn constant_points_take_two_bytes_and_noise_its_bits() {
        let quantum = PointQuantization { step: 1.0, steps: MOST_STEPS };
        let packed_size = |point: &dyn Fn(usize, usize) -> f32| {
            let points = (0..SLOTS * ROWS).map(|index| point(index / ROWS, index % ROWS));
            pack_points(&points.collect::<Vec<_>>(), quantum).len()
        };
        assert_eq!(packed_size(&|_, _| f32::NAN), ROWS);
        assert_eq!(packed_size(&|_, _| 0.0), 2 * ROWS);
        // The first of them is far from zero, the others are no farther from it.
        assert!(packed_size(&|_, _| 700.0) <= 2 * ROWS + 1);
        let noisy = packed_size(&|slot, row| 690.0 + ((slot * 7 + row * 3) % 16) as f32);
        assert!(noisy <= ROWS * (2 + 5) + 1, "four bits a point: {noisy}");
    }

    #[test]
    fn whole_steps_are_restored_exactly() {
        let quantum = PointQuantization { step: 0.001, steps: MOST_STEPS };
        let points: Vec<f32> =
            (0..SLOTS * ROWS).map(|index| (index % 1001) as f32 / 1000.0).collect();
        assert_eq!(round_trip(&points, quantum), points);
    }
}
