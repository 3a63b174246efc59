//! Text columns: cut, pad and wrap by terminal width, and format numbers with units.

use std::time::Duration;

use gaunt_schema::{time::format_duration, unit::Unit};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The widest line.
pub(super) const WIDTH: usize = 100;

/// Splits a text into words; a number stays with its percent sign.
pub(super) fn split_words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match words.last_mut() {
            Some(number) if word.starts_with('%') => number.extend([" ", word]),
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// Wraps pieces into lines, each indented like the first.
pub(super) fn wrap_pieces(head: &str, pieces: &[String], between: &str) -> Vec<String> {
    let indent = head.width();
    let (mut lines, mut line, mut empty) = (Vec::new(), head.to_owned(), true);
    for piece in pieces {
        if !empty && line.width() + between.len() + piece.width() > WIDTH {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            empty = true;
        }
        if !empty {
            line.push_str(between);
        }
        line.push_str(piece);
        empty = false;
    }
    lines.push(line);
    lines
}

/// Formats a quantity with its unit, short enough for a column.
pub(in crate::command) fn format_quantity(value: f64, unit: Unit) -> String {
    // Links are measured in bits, as they are sold.
    let value = if unit == Unit::BytesPerSecond { value * 8.0 } else { value };
    let (scaled, prefix) = match value.abs() {
        size if size >= 1e12 => (value / 1e12, "T"),
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    match unit {
        // A limit of a tenth of a percent is not one of nothing.
        Unit::Ratio if value > 0.0 && value < 0.005 => format!("{:.1} %", value * 100.0),
        Unit::Ratio => format!("{:.0} %", value * 100.0),
        Unit::Bytes => format!("{scaled:.1} {prefix}B"),
        Unit::BytesPerSecond => format!("{scaled:.1} {prefix}b/s"),
        Unit::Watts => format!("{scaled:.0} {prefix}W"),
        Unit::Joules => format!("{scaled:.0} {prefix}J"),
        Unit::Hertz => format!("{scaled:.1} {prefix}Hz"),
        Unit::Celsius => format!("{value:.0} °C"),
        Unit::Seconds => match Duration::try_from_secs_f64(value) {
            Ok(span) if value >= 60.0 => format_duration(span),
            _ => format!("{value:.1} s"),
        },
        Unit::Count if value.fract() == 0.0 => format!("{value:.0}"),
        Unit::Count => format_digits(value),
    }
}

/// Formats a number with three significant digits.
fn format_digits(value: f64) -> String {
    let whole = value.abs().log10().floor() as i32 + 1;
    if whole > 3 {
        let step = 10_f64.powi(whole - 3);
        return format!("{:.0}", (value / step).round() * step);
    }
    format!("{value:.*}", (3 - whole.max(0)) as usize)
}

/// Cuts text to `width` columns and marks the cut.
pub(super) fn truncate_text(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let (mut truncated, mut used) = (String::new(), 0);
    for character in text.chars() {
        used += character.width().unwrap_or(0);
        if used + 1 > width {
            break;
        }
        truncated.push(character);
    }
    truncated.push('…');
    truncated
}

/// Pads text to `width` columns.
pub(super) fn pad_text(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_has_three_significant_digits() {
        let shown = |value| format_quantity(value, Unit::Count);
        for (value, text) in [
            (2_139.27, "2140"),
            (713.42, "713"),
            (57.6, "57.6"),
            (3.0, "3"),
            (1.204, "1.20"),
            (0.0521, "0.052"),
        ] {
            assert_eq!(shown(value), text);
        }
    }

    #[test]
    fn number_stays_with_its_percent_sign() {
        let words = split_words("utilization 75 %, baseline 100 %.");
        assert_eq!(words, ["utilization", "75 %,", "baseline", "100 %."]);
    }

    #[test]
    fn time_of_minutes_is_written_as_elsewhere() {
        assert_eq!(format_quantity(327.5, Unit::Seconds), "5m27");
        assert_eq!(format_quantity(27.5, Unit::Seconds), "27.5 s");
    }

    #[test]
    fn small_share_is_not_shown_as_none() {
        let shown = |share| format_quantity(share, Unit::Ratio);
        for (share, text) in
            [(0.0, "0 %"), (0.001, "0.1 %"), (0.004, "0.4 %"), (0.02, "2 %"), (1.0, "100 %")]
        {
            assert_eq!(shown(share), text);
        }
    }
}
