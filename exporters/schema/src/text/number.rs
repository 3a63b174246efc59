//! Exact parsing of decimal numbers: always the nearest double.

/// The powers of ten that a double represents exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// The most decimal digits that always fit into 64 bits.
const MAX_DIGITS: usize = 19;

/// Up to here every whole number is exactly a double.
const MAX_EXACT: u64 = 1 << 53;

/// Longer exponents are beyond any double or malicious: the slow path decides.
const MAX_EXPONENT_DIGITS: usize = 6;

/// The value of a sample, or none if it is not a number or larger than any double.
///
/// A mantissa that is exactly a double, times or divided by a power of ten that is exactly a double, needs one
/// rounding, and that rounding is correct (Clinger, 1990). Everything else goes to the standard library.
pub(super) fn parse(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let negative = bytes.first() == Some(&b'-');
    let signed = negative || bytes.first() == Some(&b'+');
    let start = usize::from(signed);

    let mut mantissa = 0_u64;
    let mut offset = parse_digits(bytes, start, &mut mantissa);
    let mut count = offset - start;
    let mut scale = 0_i32;
    if bytes.get(offset) == Some(&b'.') {
        let fraction = offset + 1;
        offset = parse_digits(bytes, fraction, &mut mantissa);
        count += offset - fraction;
        scale = -((offset - fraction) as i32);
    }
    if count == 0 {
        return parse_special(text);
    }
    let mut is_plain = count <= MAX_DIGITS;
    if let Some(b'e' | b'E') = bytes.get(offset) {
        let is_negative = bytes.get(offset + 1) == Some(&b'-');
        let first = offset + 1 + usize::from(is_negative || bytes.get(offset + 1) == Some(&b'+'));
        let mut exponent = 0;
        offset = parse_digits(bytes, first, &mut exponent);
        if offset == first {
            return None;
        }
        is_plain &= offset - first <= MAX_EXPONENT_DIGITS;
        let exponent = exponent as i32;
        scale = scale.wrapping_add(if is_negative { exponent.wrapping_neg() } else { exponent });
    }
    if offset != bytes.len() {
        return None;
    }
    let power = POWERS.get(scale.unsigned_abs() as usize);
    if let (true, Some(power)) = (is_plain && mantissa <= MAX_EXACT, power) {
        let exact = mantissa as f64;
        let value = if scale < 0 { exact / power } else { exact * power };
        return Some(if negative { -value } else { value });
    }
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// A number at the beginning of some text.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeadingNumber {
    /// The number, as [`parse`] reads it.
    pub(super) value: f64,
    /// Its length in bytes.
    pub(super) length: usize,
}

/// The value with which `bytes` begin: the result of [`parse`] for the bytes up to the first blank or the end of the
/// line.
#[inline]
pub(super) fn parse_leading(bytes: &[u8]) -> Option<LeadingNumber> {
    let negative = bytes.first() == Some(&b'-');
    let start = usize::from(negative);
    let mut mantissa = 0_u64;
    let mut offset = parse_digits(bytes, start, &mut mantissa);
    let mut count = offset - start;
    let mut scale = 0;
    if bytes.get(offset) == Some(&b'.') {
        let fraction = offset + 1;
        offset = parse_digits(bytes, fraction, &mut mantissa);
        scale = offset - fraction;
        count += scale;
    }
    let ends = matches!(bytes.get(offset), None | Some(b'\n' | b' '));
    if ends && (1..=MAX_DIGITS).contains(&count) && mantissa <= MAX_EXACT {
        // With at most nineteen digits the power is one of the exact ones.
        let value = mantissa as f64 / POWERS[scale];
        return Some(LeadingNumber {
            value: if negative { -value } else { value },
            length: offset,
        });
    }
    parse_word(bytes)
}

/// The slow path: finds the end, then parses.
#[cold]
fn parse_word(bytes: &[u8]) -> Option<LeadingNumber> {
    let line = &bytes[..memchr::memchr(b'\n', bytes).unwrap_or(bytes.len())];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let length = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let value = parse(std::str::from_utf8(&line[..length]).ok()?)?;
    Some(LeadingNumber { value, length })
}

/// Adds the digits from `offset` to `number`, modulo 2^64, and returns the position after them.
#[inline]
fn parse_digits(bytes: &[u8], mut offset: usize, number: &mut u64) -> usize {
    while let Some(digit) =
        bytes.get(offset).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10)
    {
        *number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        offset += 1;
    }
    offset
}

/// The non-finite values: infinities with or without a sign, and NaN without one.
fn parse_special(text: &str) -> Option<f64> {
    let (sign, name) = match text.as_bytes().first()? {
        b'+' => (1.0, &text[1..]),
        b'-' => (-1.0, &text[1..]),
        _ if text.eq_ignore_ascii_case("nan") => return Some(f64::NAN),
        _ => (1.0, text),
    };
    let infinite = name.eq_ignore_ascii_case("inf") || name.eq_ignore_ascii_case("infinity");
    infinite.then_some(sign * f64::INFINITY)
}

/// A timestamp: whole milliseconds since the epoch, with or without a sign.
pub(super) fn parse_timestamp(text: &str) -> Option<i64> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn number_words_and_edges() {
        for (text, value) in [
            ("0", 0.0),
            ("-0", -0.0),
            ("+5", 5.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e22", 1e22),
            ("1E+3", 1e3),
            ("9007199254740993", 9_007_199_254_740_992.0),
            ("18446744073709551616", 18_446_744_073_709_551_616.0),
            ("1e-400", 0.0),
            ("0e99999999999", 0.0),
            ("+Inf", f64::INFINITY),
            ("-infinity", f64::NEG_INFINITY),
            ("00000000000000000000000000012.5", 12.5),
            ("2.2250738585072014e-308", 2.225_073_858_507_201_4e-308),
        ] {
            let read = parse(text).unwrap_or_else(|| panic!("{text} is a number"));
            assert_eq!(read.to_bits(), value.to_bits(), "{text}");
        }
        assert!(parse("NaN").unwrap().is_nan());
        for text in
            ["", ".", "-", "e5", "1e", "1e+", "0x10", "1_000", "1 ", "+NaN", "1e999", "--1", "in"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn number_equals_the_standard_library(text in "[+-]?[0-9]{0,24}(\\.[0-9]{0,24})?([eE][+-]?[0-9]{1,3})?") {
            let truth = text.parse::<f64>().ok().filter(|value| value.is_finite());
            prop_assert_eq!(parse(&text).map(f64::to_bits), truth.map(f64::to_bits), "{}", text);
        }

        #[test]
        fn number_round_trips_exactly(value in any::<f64>().prop_filter("finite", |v| v.is_finite())) {
            prop_assert_eq!(parse(&format!("{value}")).map(f64::to_bits), Some(value.to_bits()));
            prop_assert_eq!(parse(&format!("{value:e}")).map(f64::to_bits), Some(value.to_bits()));
        }
    }
}
