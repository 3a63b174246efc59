//! Columns: the readings of one metric on its devices, written in as few bytes as are cheap to read.
//!
//! A column begins with a code. Most values are whole numbers of some decimal step: bytes per second, degrees, shares to
//! four digits. They are told as differences of such numbers, as wide as the widest of the column, and come back to the
//! last bit; a writer looks whether they do, and tells those that do not as they are.

use super::{
    Fault,
    bytes::{Bytes, fold, put_number, unfold},
};
use crate::{Absent, Reading};

/// All readings are those of the tick before.
const SAME: u8 = 0xd0;

/// Each reading has a mark of its own: some are absent.
const MARKED: u8 = 0xe0;

/// Values as they are, eight bytes each.
const RAW: u8 = 0xf0;

/// Marks of [`MARKED`]: a value follows, or the reading is that of the tick before. Others are reasons of absence.
const VALUE: u8 = 0xff;
const UNCHANGED: u8 = 0xfe;

/// The bits of no number, to which the reason of an absence is added.
const ABSENT: u64 = 0x7ff8_0000_0000_0000;

/// Decimals of a step: the code of a column has them in its upper half.
const SCALES: [f64; 10] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// Those that a writer tries, the likelier ones first.
const TRIED: [usize; 7] = [0, 2, 3, 4, 1, 6, 9];

/// A reading in 64 bits: a number, or one that is none and holds the reason.
#[inline]
pub(super) fn bits(reading: Reading) -> u64 {
    match reading {
        Reading::Value(value) if value.is_finite() => value.to_bits(),
        Reading::Value(_) => ABSENT + Absent::Error as u64,
        Reading::Absent { absent } => ABSENT + absent as u64,
    }
}

/// The reading that was put into these bits.
#[inline]
pub(super) fn reading(bits: u64) -> Reading {
    let value = f64::from_bits(bits);
    if value.is_finite() {
        return Reading::Value(value);
    }
    let reason = bits.checked_sub(ABSENT).and_then(|reason| Absent::ALL.get(reason as usize));
    Reading::absent(reason.copied().unwrap_or(Absent::Error))
}

/// Whether steps are whole numbers.
#[inline]
fn is_one(scale: f64) -> bool {
    scale.to_bits() == 1.0_f64.to_bits()
}

/// How many steps a value is: not exact where it is no whole number of them, and the same everywhere.
#[inline]
fn steps(bits: u64, scale: f64) -> i64 {
    let value = f64::from_bits(bits);
    // A half added to a large whole number would make it another one.
    if is_one(scale) {
        return value as i64;
    }
    let scaled = value * scale;
    (scaled + 0.5_f64.copysign(scaled)) as i64
}

/// The value of so many steps.
#[inline]
fn value(steps: i64, scale: f64) -> u64 {
    if is_one(scale) { (steps as f64).to_bits() } else { (steps as f64 / scale).to_bits() }
}

/// Appends a column: whole, or what differs from `base`, which has as many readings. `steps` is room to work in.
pub(super) fn write(now: &[u64], base: Option<&[u64]>, room: &mut Vec<i64>, out: &mut Vec<u8>) {
    if base.is_some_and(|base| base == now) {
        return out.push(SAME);
    }
    if now.iter().any(|bits| !f64::from_bits(*bits).is_finite()) {
        return write_marked(now, base, out);
    }
    let Some(decimals) = TRIED.into_iter().find(|at| in_steps(now, SCALES[*at], room)) else {
        out.push(RAW);
        return now.iter().for_each(|bits| out.extend_from_slice(&bits.to_le_bytes()));
    };
    let scale = SCALES[decimals];
    let first = room.first().copied().unwrap_or_default();
    let rest = if let Some(base) = base {
        for (steps_now, base) in room.iter_mut().zip(base) {
            *steps_now = steps_now.wrapping_sub(steps(*base, scale));
        }
        &room[..]
    } else {
        for at in (1..room.len()).rev() {
            room[at] = room[at].wrapping_sub(room[at - 1]);
        }
        room.get(1..).unwrap_or_default()
    };
    let widest = rest.iter().fold(0, |widest, difference| widest | fold(*difference));
    let width = (64 - widest.leading_zeros()).div_ceil(8) as usize;
    out.push((decimals << 4 | width) as u8);
    if base.is_none() && !now.is_empty() {
        put_number(fold(first), out);
    }
    for difference in rest {
        out.extend_from_slice(&fold(*difference).to_le_bytes()[..width]);
    }
}

/// Fills the room with the steps of all values, if each is a whole number of them to the last bit.
fn in_steps(now: &[u64], scale: f64, room: &mut Vec<i64>) -> bool {
    room.clear();
    now.iter().all(|bits| {
        let steps = steps(*bits, scale);
        room.push(steps);
        value(steps, scale) == *bits
    })
}

fn write_marked(now: &[u64], base: Option<&[u64]>, out: &mut Vec<u8>) {
    out.push(MARKED);
    for (at, bits) in now.iter().enumerate() {
        if base.and_then(|base| base.get(at)) == Some(bits) {
            out.push(UNCHANGED);
            continue;
        }
        match reading(*bits) {
            Reading::Value(value) => {
                out.push(VALUE);
                out.extend_from_slice(&value.to_bits().to_le_bytes());
            }
            Reading::Absent { absent } => out.push(absent as u8),
        }
    }
}

/// Reads a column into `now`, which holds the readings of the tick before if it is a difference.
#[inline]
pub(super) fn read(bytes: &mut Bytes<'_>, now: &mut [u64], difference: bool) -> Result<(), Fault> {
    let code = bytes.byte()?;
    let (decimals, width) = (usize::from(code >> 4), usize::from(code & 15));
    let Some(scale) = SCALES.get(decimals).copied().filter(|_| width <= 8) else {
        return match code {
            SAME if difference => Ok(()),
            MARKED => read_marked(bytes, now, difference),
            RAW => read_raw(bytes, now),
            _ => Err(Fault::Code(code)),
        };
    };
    let mut before = 0;
    let mut rest = now;
    if !difference && let Some((first, others)) = std::mem::take(&mut rest).split_first_mut() {
        before = unfold(bytes.number()?);
        *first = value(before, scale);
        rest = others;
    }
    let told = bytes.take(rest.len() * width)?;
    let apply = match width {
        0 => apply::<0>,
        1 => apply::<1>,
        2 => apply::<2>,
        3 => apply::<3>,
        4 => apply::<4>,
        5 => apply::<5>,
        6 => apply::<6>,
        7 => apply::<7>,
        _ => apply::<8>,
    };
    apply(told, rest, (!difference).then_some(before), scale);
    Ok(())
}

/// Adds differences of so many bytes each: to the readings that stand there, or, after a first one, each to the last.
#[inline]
fn apply<const WIDTH: usize>(told: &[u8], now: &mut [u64], first: Option<i64>, scale: f64) {
    let differences = (0..now.len()).map(|at| {
        let mut wide = [0; 8];
        if let Some(told) = told.get(at * WIDTH..(at + 1) * WIDTH) {
            wide[..WIDTH].copy_from_slice(told);
        }
        unfold(u64::from_le_bytes(wide))
    });
    match first {
        None => {
            for (bits, difference) in now.iter_mut().zip(differences) {
                *bits = value(steps(*bits, scale).wrapping_add(difference), scale);
            }
        }
        Some(mut before) => {
            for (bits, difference) in now.iter_mut().zip(differences) {
                before = before.wrapping_add(difference);
                *bits = value(before, scale);
            }
        }
    }
}

#[inline]
fn read_marked(bytes: &mut Bytes<'_>, now: &mut [u64], difference: bool) -> Result<(), Fault> {
    for bits in now {
        match bytes.byte()? {
            UNCHANGED if difference => {}
            VALUE => *bits = raw(bytes)?,
            reason if usize::from(reason) < Absent::ALL.len() => *bits = ABSENT + u64::from(reason),
            mark => return Err(Fault::Code(mark)),
        }
    }
    Ok(())
}

fn read_raw(bytes: &mut Bytes<'_>, now: &mut [u64]) -> Result<(), Fault> {
    now.iter_mut().try_for_each(|bits| raw(bytes).map(|told| *bits = told))
}

/// A value as it is; what is no number is no value but an error.
#[inline]
fn raw(bytes: &mut Bytes<'_>) -> Result<u64, Fault> {
    let mut told = [0; 8];
    told.copy_from_slice(bytes.take(8)?);
    Ok(bits(Reading::of(f64::from_le_bytes(told))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round(now: &[u64], base: Option<&[u64]>) -> (Vec<u64>, usize) {
        let (mut out, mut room) = (Vec::new(), Vec::new());
        write(now, base, &mut room, &mut out);
        let mut read_back = base.map_or(vec![0; now.len()], <[u64]>::to_vec);
        let mut bytes = Bytes::new("test", &out);
        read(&mut bytes, &mut read_back, base.is_some()).unwrap();
        bytes.end().unwrap();
        (read_back, out.len())
    }

    fn readings() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let value = prop_oneof![
            4 => (-2_000_000_000_i64..2_000_000_000, 0_usize..10)
                .prop_map(|(steps, at)| Reading::of(steps as f64 / SCALES[at])),
            2 => any::<f64>().prop_map(Reading::of),
            1 => any::<i64>().prop_map(|whole| Reading::of(whole as f64)),
            1 => Just(Reading::Value(-0.0)),
            1 => (0..Absent::ALL.len()).prop_map(|at| Absent::ALL[at].into()),
        ];
        let pair = (value.clone(), value, any::<bool>()).prop_map(|(before, now, moves)| {
            (bits(before), bits(if moves { now } else { before }))
        });
        prop::collection::vec(pair, 0..20)
    }

    proptest! {
        #[test]
        fn every_column_comes_back_to_the_last_bit(pairs in readings()) {
            let (base, now): (Vec<u64>, Vec<u64>) = pairs.into_iter().unzip();
            prop_assert_eq!(&round(&now, None).0, &now);
            prop_assert_eq!(&round(&now, Some(&base)).0, &now);
        }

        #[test]
        fn arbitrary_bytes_make_readings_or_a_fault(
            told in prop::collection::vec(any::<u8>(), 0..80),
            count in 0_usize..9,
            difference in any::<bool>(),
        ) {
            let mut now = vec![bits(Reading::of(1.5)); count];
            drop(read(&mut Bytes::new("test", &told), &mut now, difference));
            for bits in now {
                prop_assert!(reading(bits).value().is_none_or(f64::is_finite));
            }
        }
    }

    #[test]
    fn what_moves_little_is_told_in_few_bytes() {
        let column = |values: [f64; 8]| values.map(f64::to_bits);
        let shares = column([0.9312, 0.94, 0.9, 0.9417, 0.9399, 0.9321, 0.9278, 0.9333]);
        let later = column([0.9311, 0.9401, 0.9, 0.9417, 0.9391, 0.9322, 0.9273, 0.9334]);
        assert_eq!(round(&later, Some(&shares)), (later.to_vec(), 1 + 8));
        let bytes = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0].map(|n| n * 1e15);
        let more = bytes.map(|n| n + 48e9);
        assert_eq!(round(&column(more), Some(&column(bytes))).1, 1 + 8 * 5);
        assert_eq!(round(&shares, Some(&shares)).1, 1);
        assert_eq!(round(&column([0.0; 8]), None).1, 2);
    }
}
