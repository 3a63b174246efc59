//! Numbers with units, converted to the base unit of the compared field.

use gaunt_schema::unit::Unit;

/// Unit names with their factors.
struct UnitWords {
    /// Description with examples.
    description: &'static str,
    /// Unit names that take SI prefixes, with the factor to the base unit.
    words: &'static [(&'static str, f64)],
    /// Unit names without prefixes.
    whole: &'static [(&'static str, f64)],
}

const PREFIXES: [(&str, f64); 12] = [
    ("", 1.0),
    ("k", 1e3),
    ("K", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("m", 1e-3),
    ("Ki", 1_024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
];

const fn words_of_unit(unit: Unit) -> UnitWords {
    match unit {
        Unit::Ratio => UnitWords {
            description: "a share, such as 0.3 or 30 %",
            words: &[],
            whole: &[("%", 0.01), ("‰", 0.001)],
        },
        Unit::Bytes => UnitWords {
            description: "a size, such as 10GB or 8GiB",
            words: &[("B", 1.0), ("", 1.0)],
            whole: &[],
        },
        Unit::BytesPerSecond => UnitWords {
            description: "bytes per second, such as 10GB/s or 400Gb/s",
            words: &[
                ("B/s", 1.0),
                ("B", 1.0),
                ("b/s", 0.125),
                ("bit/s", 0.125),
                ("bps", 0.125),
                ("", 1.0),
            ],
            whole: &[],
        },
        Unit::Watts => UnitWords {
            description: "a power, such as 300W or 1.2kW",
            words: &[("W", 1.0)],
            whole: &[],
        },
        Unit::Joules => UnitWords {
            description: "an energy, such as 5kJ",
            words: &[("J", 1.0), ("Wh", 3_600.0)],
            whole: &[],
        },
        Unit::Celsius => UnitWords {
            description: "a temperature, such as 80C",
            words: &[],
            whole: &[("C", 1.0), ("°C", 1.0), ("°", 1.0)],
        },
        Unit::Hertz => UnitWords {
            description: "a frequency, such as 1.4GHz",
            words: &[("Hz", 1.0)],
            whole: &[],
        },
        Unit::Seconds => UnitWords {
            description: "a time, such as 90s, 5m or 2h",
            words: &[],
            whole: &[
                ("s", 1.0),
                ("ms", 1e-3),
                ("us", 1e-6),
                ("µs", 1e-6),
                ("m", 60.0),
                ("min", 60.0),
                ("h", 3_600.0),
                ("d", 86_400.0),
            ],
        },
        Unit::Count => UnitWords {
            description: "a number, such as 8 or 20k",
            words: &[("", 1.0), ("/s", 1.0)],
            whole: &[],
        },
    }
}

/// Example of a number of this unit.
pub(super) const fn example_of_unit(unit: Unit) -> &'static str {
    words_of_unit(unit).description
}

/// Factor from a unit name to the base unit; none if the name is not one of this unit.
pub(super) fn unit_factor(word: &str, unit: Unit) -> Option<f64> {
    let dimension = words_of_unit(unit);
    let whole = dimension.whole.iter().find(|(known, _)| *known == word).map(|(_, by)| *by);
    whole.or_else(|| {
        dimension.words.iter().find_map(|(base, by)| {
            let prefix = word.strip_suffix(base)?;
            // Milli is valid for physical units only, not for bytes or counts.
            let milli = matches!(unit, Unit::Watts | Unit::Joules | Unit::Hertz);
            let known = PREFIXES.iter().filter(|(p, _)| *p != "m" || milli);
            known.into_iter().find(|(known, _)| *known == prefix).map(|(_, scale)| scale * by)
        })
    })
}

/// Splits a number from what follows it; none if the text does not begin with a finite number.
pub(super) fn split_number(text: &str) -> Option<(f64, &str)> {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let sign = usize::from(matches!(bytes.first(), Some(b'-' | b'+')));
    let whole = digits(sign);
    let mut end = sign + whole;
    let mut has_digits = whole > 0;
    if bytes.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        has_digits |= fraction > 0;
        end += 1 + fraction;
    }
    if !has_digits {
        return None;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let exponent = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'-' | b'+')));
        if exponent <= bytes.len() && digits(exponent) > 0 {
            end = exponent + digits(exponent);
        }
    }
    let value: f64 = text[..end].parse().ok()?;
    value.is_finite().then_some((value, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_the_units_of_their_field() {
        for (text, unit, expected) in [
            ("0.3", Unit::Ratio, 0.3),
            ("30%", Unit::Ratio, 0.3),
            ("300W", Unit::Watts, 300.0),
            ("1.2kW", Unit::Watts, 1_200.0),
            ("10GB", Unit::Bytes, 10e9),
            ("8GiB", Unit::Bytes, 8_589_934_592.0),
            ("400Gb/s", Unit::BytesPerSecond, 50e9),
            ("1e3", Unit::Count, 1_000.0),
            ("-5C", Unit::Celsius, -5.0),
            ("5m", Unit::Seconds, 300.0),
            ("1.4GHz", Unit::Hertz, 1.4e9),
            ("20k", Unit::Count, 20_000.0),
        ] {
            let (value, rest) = split_number(text).unwrap();
            let by = if rest.is_empty() { 1.0 } else { unit_factor(rest, unit).unwrap() };
            assert!((value * by - expected).abs() < 1e-9 * expected.abs(), "{text}");
        }
    }

    #[test]
    fn numbers_with_a_foreign_unit_or_bad_digits_are_refused() {
        for text in ["", "W", "-", ".", "+.e3", "1e999", "nan", "inf"] {
            assert_eq!(split_number(text), None, "{text}");
        }
        assert_eq!(split_number("1.5x").unwrap().1, "x");
        for (word, unit) in
            [("GB", Unit::Watts), ("W", Unit::Bytes), ("mB", Unit::Bytes), ("F", Unit::Celsius)]
        {
            assert_eq!(unit_factor(word, unit), None, "{word}");
        }
    }
}
