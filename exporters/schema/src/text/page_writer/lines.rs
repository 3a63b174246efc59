//! Single lines of a page: HELP and TYPE, one sample, one number.

use std::fmt::Write;

use super::ExpositionFormat;
use crate::MetricId;

/// Numbers from here up, and below the inverse of this, are written with an exponent.
const EXPONENT_FROM: f64 = 1e17;

/// Below this every whole number is exactly a double.
const WHOLE_BELOW: f64 = 9_007_199_254_740_992.0;

/// Appends the HELP and TYPE lines of a metric on a page of text.
pub fn write_metric_header(metric: MetricId, out: &mut String) {
    ExpositionFormat::Text.write_header(metric, out);
}

/// Appends one sample. Label names must be valid; values may be any text.
pub fn write_sample<'a>(
    name: &str,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    value: f64,
    out: &mut String,
) {
    out.push_str(name);
    let mut open = '{';
    for (name, value) in labels {
        out.push(open);
        open = ',';
        out.push_str(name);
        out.push_str("=\"");
        write_escaped(value, out);
        out.push('"');
    }
    if open == ',' {
        out.push('}');
    }
    out.push(' ');
    format_number(value, out);
    out.push('\n');
}

fn write_escaped(value: &str, out: &mut String) {
    let mut written_to = 0;
    for (index, byte) in value.bytes().enumerate() {
        let escaped = match byte {
            b'\\' => "\\\\",
            b'"' => "\\\"",
            b'\n' => "\\n",
            _ => continue,
        };
        out.push_str(&value[written_to..index]);
        out.push_str(escaped);
        written_to = index + 1;
    }
    out.push_str(&value[written_to..]);
}

/// Writes the shortest decimal number that parses to the same double. Writing to a `String` never fails.
fn format_number(value: f64, out: &mut String) {
    let size = value.abs();
    let _ = if value.is_nan() {
        out.write_str("NaN")
    } else if value.is_infinite() {
        out.write_str(if value > 0.0 { "+Inf" } else { "-Inf" })
    } else if (1.0..WHOLE_BELOW).contains(&size) && value.fract() == 0.0 {
        // Most values are counts: whole numbers need no search for the shortest digits.
        write!(out, "{}", value as i64)
    } else if size == 0.0 || (EXPONENT_FROM.recip()..EXPONENT_FROM).contains(&size) {
        write!(out, "{value}")
    } else {
        write!(out, "{value:e}")
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_exact() {
        let format_value = |value| {
            let mut out = String::new();
            format_number(value, &mut out);
            out
        };
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (0.1, "0.1"),
            (4_294_967_295.0, "4294967295"),
            (1e17, "1e17"),
            (-2.5e300, "-2.5e300"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(format_value(value), text);
        }
    }

    #[test]
    fn label_can_be_any_text() {
        let mut out = String::new();
        write_sample("a", [("b", "two\nlines"), ("c", "")], 1.5, &mut out);
        assert_eq!(out, "a{b=\"two\\nlines\",c=\"\"} 1.5\n");
    }
}
