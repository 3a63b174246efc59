//! Column encoding: the readings of one metric on its devices, in as few bytes as are cheap to decode.
//!
//! A column begins with a code. Most values are whole multiples of some decimal step: bytes per second, degrees, ratios
//! with four digits. They are encoded as differences of such multiples, as wide as the widest of the column, and decode
//! to the exact bits; the encoder checks that, and writes other values raw.

use super::{
    FrameError,
    bytes::{ByteDecoder, encode_number, zigzag_decode, zigzag_encode},
};
use crate::{AbsenceReason, Reading};

/// All readings are those of the previous tick.
const SAME: u8 = 0xd0;

/// Each reading has its own mark: some are absent.
const MARKED: u8 = 0xe0;

/// Raw values, eight bytes each.
const RAW: u8 = 0xf0;

/// Marks of [`MARKED`]: a value follows, or the reading is that of the previous tick. Others are reasons of absence.
const VALUE: u8 = 0xff;
const UNCHANGED: u8 = 0xfe;

/// A NaN bit pattern to which the reason of an absence is added.
const ABSENT: u64 = 0x7ff8_0000_0000_0000;

/// Scales of a step: the upper half of a column's code holds the index.
const SCALES: [f64; 10] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// The scales that the encoder tries, the most likely first.
const TRIED: [usize; 7] = [0, 2, 3, 4, 1, 6, 9];

/// A reading in 64 bits: a number, or a NaN that holds the reason.
#[inline]
pub(super) fn encode_reading(reading: Reading) -> u64 {
    match reading {
        Reading::Value(value) if value.is_finite() => value.to_bits(),
        Reading::Value(_) => ABSENT + AbsenceReason::Error as u64,
        Reading::Absent { absent } => ABSENT + absent as u64,
    }
}

/// Decodes a reading from its bits.
#[inline]
pub(super) fn decode_reading(bits: u64) -> Reading {
    let value = f64::from_bits(bits);
    if value.is_finite() {
        return Reading::Value(value);
    }
    let reason =
        bits.checked_sub(ABSENT).and_then(|reason| AbsenceReason::ALL.get(reason as usize));
    Reading::new_absent(reason.copied().unwrap_or(AbsenceReason::Error))
}

/// Whether the scale is 1, so that steps are whole numbers.
#[inline]
fn is_unit_scale(scale: f64) -> bool {
    scale.to_bits() == 1.0_f64.to_bits()
}

/// The value in steps: inexact if it is no whole number of them, and the same on every platform.
#[inline]
fn to_steps(bits: u64, scale: f64) -> i64 {
    let value = f64::from_bits(bits);
    // Adding a half to a large whole number would change it.
    if is_unit_scale(scale) {
        return value as i64;
    }
    let scaled = value * scale;
    (scaled + 0.5_f64.copysign(scaled)) as i64
}

/// The bits of the value of this many steps.
#[inline]
fn bits_of_steps(steps: i64, scale: f64) -> u64 {
    if is_unit_scale(scale) { (steps as f64).to_bits() } else { (steps as f64 / scale).to_bits() }
}

/// Appends a column: whole, or the difference to `base`, which has as many readings. `scratch` is a buffer.
pub(super) fn encode_column(
    now: &[u64],
    base: Option<&[u64]>,
    scratch: &mut Vec<i64>,
    out: &mut Vec<u8>,
) {
    if base.is_some_and(|base| base == now) {
        return out.push(SAME);
    }
    if now.iter().any(|bits| !f64::from_bits(*bits).is_finite()) {
        return encode_marked(now, base, out);
    }
    let Some(decimals) =
        TRIED.into_iter().find(|decimals| fill_steps(now, SCALES[*decimals], scratch))
    else {
        out.push(RAW);
        return now.iter().for_each(|bits| out.extend_from_slice(&bits.to_le_bytes()));
    };
    let scale = SCALES[decimals];
    let first = scratch.first().copied().unwrap_or_default();
    let rest = if let Some(base) = base {
        for (steps_now, base) in scratch.iter_mut().zip(base) {
            *steps_now = steps_now.wrapping_sub(to_steps(*base, scale));
        }
        &scratch[..]
    } else {
        for index in (1..scratch.len()).rev() {
            scratch[index] = scratch[index].wrapping_sub(scratch[index - 1]);
        }
        scratch.get(1..).unwrap_or_default()
    };
    let all_bits =
        rest.iter().fold(0, |all_bits, difference| all_bits | zigzag_encode(*difference));
    let width = (64 - all_bits.leading_zeros()).div_ceil(8) as usize;
    out.push((decimals << 4 | width) as u8);
    if base.is_none() && !now.is_empty() {
        encode_number(zigzag_encode(first), out);
    }
    for difference in rest {
        out.extend_from_slice(&zigzag_encode(*difference).to_le_bytes()[..width]);
    }
}

/// Fills the scratch buffer with the steps of all values, if each is exactly a whole number of them.
fn fill_steps(now: &[u64], scale: f64, scratch: &mut Vec<i64>) -> bool {
    scratch.clear();
    now.iter().all(|bits| {
        let steps = to_steps(*bits, scale);
        scratch.push(steps);
        bits_of_steps(steps, scale) == *bits
    })
}

fn encode_marked(now: &[u64], base: Option<&[u64]>, out: &mut Vec<u8>) {
    out.push(MARKED);
    for (index, bits) in now.iter().enumerate() {
        if base.and_then(|base| base.get(index)) == Some(bits) {
            out.push(UNCHANGED);
            continue;
        }
        match decode_reading(*bits) {
            Reading::Value(value) => {
                out.push(VALUE);
                out.extend_from_slice(&value.to_bits().to_le_bytes());
            }
            Reading::Absent { absent } => out.push(absent as u8),
        }
    }
}

/// Decodes a column into `now`, which holds the readings of the previous tick if the column is a difference.
#[inline]
pub(super) fn decode_column(
    bytes: &mut ByteDecoder<'_>,
    now: &mut [u64],
    difference: bool,
) -> Result<(), FrameError> {
    let code = bytes.decode_byte()?;
    let (decimals, width) = (usize::from(code >> 4), usize::from(code & 15));
    let Some(scale) = SCALES.get(decimals).copied().filter(|_| width <= 8) else {
        return match code {
            SAME if difference => Ok(()),
            MARKED => decode_marked(bytes, now, difference),
            RAW => decode_raw(bytes, now),
            _ => Err(FrameError::Code(code)),
        };
    };
    let mut before = 0;
    let mut rest = now;
    if !difference && let Some((first, tail)) = std::mem::take(&mut rest).split_first_mut() {
        before = zigzag_decode(bytes.decode_number()?);
        *first = bits_of_steps(before, scale);
        rest = tail;
    }
    let encoded = bytes.next_bytes(rest.len() * width)?;
    let apply = match width {
        0 => apply_differences::<0>,
        1 => apply_differences::<1>,
        2 => apply_differences::<2>,
        3 => apply_differences::<3>,
        4 => apply_differences::<4>,
        5 => apply_differences::<5>,
        6 => apply_differences::<6>,
        7 => apply_differences::<7>,
        _ => apply_differences::<8>,
    };
    apply(encoded, rest, (!difference).then_some(before), scale);
    Ok(())
}

/// Adds differences of `WIDTH` bytes each: to the present readings, or, after a first value, each to the one before.
#[inline]
fn apply_differences<const WIDTH: usize>(
    encoded: &[u8],
    now: &mut [u64],
    first: Option<i64>,
    scale: f64,
) {
    let differences = (0..now.len()).map(|index| {
        let mut wide = [0; 8];
        if let Some(difference) = encoded.get(index * WIDTH..(index + 1) * WIDTH) {
            wide[..WIDTH].copy_from_slice(difference);
        }
        zigzag_decode(u64::from_le_bytes(wide))
    });
    match first {
        None => {
            for (bits, difference) in now.iter_mut().zip(differences) {
                *bits = bits_of_steps(to_steps(*bits, scale).wrapping_add(difference), scale);
            }
        }
        Some(mut before) => {
            for (bits, difference) in now.iter_mut().zip(differences) {
                before = before.wrapping_add(difference);
                *bits = bits_of_steps(before, scale);
            }
        }
    }
}

#[inline]
fn decode_marked(
    bytes: &mut ByteDecoder<'_>,
    now: &mut [u64],
    difference: bool,
) -> Result<(), FrameError> {
    for bits in now {
        match bytes.decode_byte()? {
            UNCHANGED if difference => {}
            VALUE => *bits = decode_raw_value(bytes)?,
            reason if usize::from(reason) < AbsenceReason::ALL.len() => {
                *bits = ABSENT + u64::from(reason);
            }
            mark => return Err(FrameError::Code(mark)),
        }
    }
    Ok(())
}

fn decode_raw(bytes: &mut ByteDecoder<'_>, now: &mut [u64]) -> Result<(), FrameError> {
    now.iter_mut().try_for_each(|bits| decode_raw_value(bytes).map(|value| *bits = value))
}

/// Decodes a raw value; one that is not finite becomes an error reading.
#[inline]
fn decode_raw_value(bytes: &mut ByteDecoder<'_>) -> Result<u64, FrameError> {
    let mut raw = [0; 8];
    raw.copy_from_slice(bytes.next_bytes(8)?);
    Ok(encode_reading(Reading::of(f64::from_le_bytes(raw))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(now: &[u64], base: Option<&[u64]>) -> (Vec<u64>, usize) {
        let (mut out, mut scratch) = (Vec::new(), Vec::new());
        encode_column(now, base, &mut scratch, &mut out);
        let mut read_back = base.map_or(vec![0; now.len()], <[u64]>::to_vec);
        let mut bytes = ByteDecoder::new("test", &out);
        decode_column(&mut bytes, &mut read_back, base.is_some()).unwrap();
        bytes.expect_end().unwrap();
        (read_back, out.len())
    }

    fn any_readings() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let value = prop_oneof![
            4 => (-2_000_000_000_i64..2_000_000_000, 0_usize..10)
                .prop_map(|(steps, decimals)| Reading::of(steps as f64 / SCALES[decimals])),
            2 => any::<f64>().prop_map(Reading::of),
            1 => any::<i64>().prop_map(|whole| Reading::of(whole as f64)),
            1 => Just(Reading::Value(-0.0)),
            1 => (0..AbsenceReason::ALL.len()).prop_map(|index| AbsenceReason::ALL[index].into()),
        ];
        let pair = (value.clone(), value, any::<bool>()).prop_map(|(before, now, moves)| {
            (encode_reading(before), encode_reading(if moves { now } else { before }))
        });
        prop::collection::vec(pair, 0..20)
    }

    proptest! {
        #[test]
        fn columns_round_trip_exactly(pairs in any_readings()) {
            let (base, now): (Vec<u64>, Vec<u64>) = pairs.into_iter().unzip();
            prop_assert_eq!(&round_trip(&now, None).0, &now);
            prop_assert_eq!(&round_trip(&now, Some(&base)).0, &now);
        }

        #[test]
        fn arbitrary_bytes_decode_to_readings_or_an_error(
            encoded in prop::collection::vec(any::<u8>(), 0..80),
            count in 0_usize..9,
            difference in any::<bool>(),
        ) {
            let mut now = vec![encode_reading(Reading::of(1.5)); count];
            drop(decode_column(&mut ByteDecoder::new("test", &encoded), &mut now, difference));
            for bits in now {
                prop_assert!(decode_reading(bits).value().is_none_or(f64::is_finite));
            }
        }
    }

    #[test]
    fn small_changes_are_encoded_in_few_bytes() {
        let column = |values: [f64; 8]| values.map(f64::to_bits);
        let shares = column([0.9312, 0.94, 0.9, 0.9417, 0.9399, 0.9321, 0.9278, 0.9333]);
        let next = column([0.9311, 0.9401, 0.9, 0.9417, 0.9391, 0.9322, 0.9273, 0.9334]);
        assert_eq!(round_trip(&next, Some(&shares)), (next.to_vec(), 1 + 8));
        let bytes = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0].map(|value| value * 1e15);
        let increased = bytes.map(|value| value + 48e9);
        assert_eq!(round_trip(&column(increased), Some(&column(bytes))).1, 1 + 8 * 5);
        assert_eq!(round_trip(&shares, Some(&shares)).1, 1);
        assert_eq!(round_trip(&column([0.0; 8]), None).1, 2);
    }
}
