//! The values of dcgm-exporter that are no measurements: its blank values, and XIDs.

use crate::AbsenceReason;

/// An XID is a small number; beyond this it is noise.
const LARGEST_XID: f64 = 10_000.0;

/// The first blank value of a 32-bit field; the next three encode the reason.
const BLANK_32: f64 = 0x7fff_fff0 as f64;

/// The first blank value of a 64-bit field; the next three encode the reason.
const BLANK_64: u64 = 0x7fff_ffff_ffff_fff0;

/// The first blank value of a floating-point field; the next three encode the reason.
const BLANK_FLOAT: f64 = 140_737_488_355_328.0;

/// How many numbers from the first blank value on are blank.
const BLANKS: f64 = 16.0;

/// The XID that a value stands for, if it is one.
pub(super) fn xid_of_value(value: f64) -> Option<u32> {
    (value.fract() == 0.0 && (1.0..=LARGEST_XID).contains(&value)).then_some(value as u32)
}

/// The reason for absence, if the value is one of the blank values.
///
/// Counters can legitimately reach the numbers that are blank for gauges; only the blank numbers of 64 bits are
/// beyond them.
pub(super) fn blank_reason(gauge: bool, value: f64, digits: &[u8]) -> Option<AbsenceReason> {
    if value >= BLANK_64 as f64 && value.is_finite() {
        // A double cannot distinguish these, the digits can. With an exponent they are one number, and the most common
        // reason by far is: not supported.
        let exact = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok());
        let code = exact.map_or(2, |exact| exact.saturating_sub(BLANK_64));
        return Some(reason_of_code(code));
    }
    if !gauge {
        return None;
    }
    let blank = [BLANK_32, BLANK_FLOAT].into_iter();
    let mut blank = blank.filter(|blank| (*blank..*blank + BLANKS).contains(&value));
    blank.next().map(|blank| reason_of_code((value - blank) as u64))
}

/// The reason for a blank number's distance from the first blank number.
const fn reason_of_code(code: u64) -> AbsenceReason {
    match code {
        2 => AbsenceReason::Unsupported,
        3 => AbsenceReason::NoPermission,
        // No value yet, or not found.
        _ => AbsenceReason::Error,
    }
}
