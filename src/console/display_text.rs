//! Formats numbers, times and texts for display: aligned, one unit, never wider than requested.

use std::time::Duration;

pub(crate) use gaunt_schema::time::{format_duration, format_time_of_day};
use gaunt_schema::unit::Unit;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Placeholder for an unknown number.
pub(crate) const ABSENT: &str = "–";

/// Formats a count with thousands separators: `12,500`.
pub(crate) fn format_count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a whole number with thousands separators, and a sign if it is negative.
pub(crate) fn format_signed_count(value: f64) -> String {
    let whole = format_count(value.abs().round() as u64);
    if value <= -0.5 { format!("-{whole}") } else { whole }
}

/// Formats a GPU count that may be a fraction: one decimal below 100, none above.
pub(crate) fn format_gpu_count(value: f64) -> String {
    if !value.is_finite() {
        return ABSENT.into();
    }
    let value = value.max(0.0);
    let whole = (value - value.round()).abs() < 0.05;
    if value < 99.95 && !whole { format!("{value:.1}") } else { format_count(value.round() as u64) }
}

/// Formats a share of 1 in per cent without the sign: `64.1`; never `0.0` for a positive share, never `100.0` for less
/// than 1.
pub(crate) fn format_percent(share: f64) -> String {
    let value = share * 100.0;
    if !value.is_finite() {
        ABSENT.into()
    } else if value > 0.0 && value < 0.05 {
        "<0.1".into()
    } else if value < 100.0 && value > 99.95 {
        ">99.9".into()
    } else {
        format!("{value:.1}")
    }
}

/// Formats a share of 1 in whole per cent without the sign.
pub(crate) fn format_whole_percent(share: Option<f64>) -> String {
    share.filter(|s| s.is_finite()).map_or_else(|| ABSENT.into(), |s| format!("{:.0}", s * 100.0))
}

/// Formats a value without decimals, or [`ABSENT`].
pub(crate) fn format_whole(value: Option<f64>) -> String {
    value.filter(|v| v.is_finite()).map_or_else(|| ABSENT.into(), |v| format!("{v:.0}"))
}

/// Formats an age: tenths of seconds at first, then as [`format_duration`].
pub(crate) fn format_age(milliseconds: u64) -> String {
    if milliseconds < 10_000 {
        format!("{:.1}s", milliseconds as f64 / 1e3)
    } else {
        format_duration(Duration::from_millis(milliseconds))
    }
}

/// Formats a scrape period: `1 s`, `500 ms`.
pub(crate) fn format_period(milliseconds: u64) -> String {
    if milliseconds.is_multiple_of(1_000) {
        format!("{} s", milliseconds / 1_000)
    } else {
        format!("{milliseconds} ms")
    }
}

/// Formats a cost per hour: `$4,142/h`, `4,142 EUR/h`.
pub(crate) fn format_cost(amount: f64, currency: &str) -> String {
    let amount = match amount {
        0.0 => "0".to_owned(),
        small if small < 10.0 => format!("{small:.2}"),
        amount => format_count(amount as u64),
    };
    match currency {
        "" => format!("{amount}/h"),
        "USD" => format!("${amount}/h"),
        sign if sign.chars().count() == 1 => format!("{sign}{amount}/h"),
        name => format!("{amount} {name}/h"),
    }
}

/// Formats a value with three digits and an SI prefix, in powers of 1000.
pub(crate) fn format_scaled(value: f64, unit: &str) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let mut value = value;
    let mut prefix = 0;
    while value.abs() >= 999.5 && prefix + 1 < PREFIXES.len() {
        value /= 1e3;
        prefix += 1;
    }
    let digits = if value.abs() >= 100.0 || value.fract().abs() < 1e-9 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else {
        2
    };
    let joint = if unit.is_empty() && PREFIXES[prefix].is_empty() { "" } else { " " };
    format!("{value:.digits$}{joint}{}{unit}", PREFIXES[prefix])
}

/// Formats network traffic or a line rate in bits per second.
pub(crate) fn format_bit_rate(bytes_per_second: f64) -> String {
    format_scaled(bytes_per_second * 8.0, "b/s")
}

/// Formats memory in units of `of` bytes with one decimal, without the unit.
pub(crate) fn format_memory(bytes: f64, of: f64) -> String {
    let value = bytes / of;
    if value >= 99.95 { format_count(value.round() as u64) } else { format!("{value:.1}") }
}

/// Formats a rate in thousands of millions, with the significant decimals.
pub(crate) fn format_giga(value: f64) -> String {
    let value = value / 1e9;
    match value.abs() {
        0.0 => "0".into(),
        v if v < 0.01 => "<0.01".into(),
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Formats a value with its unit, as in evidence.
pub(crate) fn format_with_unit(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Ratio => format!("{} %", format_percent(value)),
        Unit::Bytes => format!("{} GiB", format_memory(value, f64::from(1 << 30))),
        Unit::BytesPerSecond => format_bit_rate(value),
        Unit::Watts => format!("{value:.0} W"),
        Unit::Joules => format_scaled(value, "J"),
        Unit::Celsius => format!("{value:.0} °C"),
        Unit::Hertz => format_scaled(value, "Hz"),
        Unit::Seconds if value.abs() < 1.0 => format!("{:.0} ms", value * 1e3),
        Unit::Seconds if value.abs() < 60.0 => format!("{value:.1} s"),
        Unit::Seconds => format_duration(Duration::from_secs_f64(value.clamp(0.0, 1e12))),
        Unit::Count => format_scaled(value, ""),
    }
}

/// Formats a rate in at most five columns: `0.02`, `9.4`, `312`, `18.8k`, `188k`; never `0` for a positive rate.
pub(crate) fn format_short_rate(value: f64) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    if !value.is_finite() {
        return ABSENT.into();
    }
    let mut value = value.max(0.0);
    if value == 0.0 {
        return "0".into();
    }
    if value < 0.01 {
        return "<0.01".into();
    }
    let mut prefix = 0;
    while value >= 999.5 && prefix + 1 < PREFIXES.len() {
        value /= 1e3;
        prefix += 1;
    }
    let digits = match (value, prefix) {
        (99.95.., _) => 0,
        (0.995.., 0) | (_, 1..) => 1,
        _ => 2,
    };
    format!("{value:.digits$}{}", PREFIXES[prefix])
}

/// Returns the number of terminal columns of a text.
pub(crate) fn text_width(text: &str) -> usize {
    match text.as_bytes() {
        // Fast path: boxes, blocks and braille of maps and graphs, U+2500 to U+25BF and U+2800 to U+28FF.
        [0xe2, 0x94..=0x96 | 0xa0..=0xa3, _] => 1,
        // Fast path: most names are ASCII, and a large fleet has many of them.
        bytes if bytes.is_ascii() => bytes.len(),
        _ => text.width(),
    }
}

/// Truncates a text to `limit` columns, with an ellipsis if it is cut.
pub(crate) fn truncate_text(text: &str, limit: usize) -> String {
    if text_width(text) <= limit {
        return text.into();
    }
    let mut out = String::new();
    let mut used = 0;
    for character in text.chars() {
        let wide = character.width().unwrap_or(0);
        if used + wide + 1 > limit {
            break;
        }
        used += wide;
        out.push(character);
    }
    if limit > 0 {
        out.push('…');
    }
    out
}

/// Pads or truncates a text to exactly `columns` columns, left-aligned.
pub(crate) fn align_left(text: &str, columns: usize) -> String {
    let mut out = truncate_text(text, columns);
    out.extend(std::iter::repeat_n(' ', columns.saturating_sub(text_width(&out))));
    out
}

/// Pads or truncates a text to exactly `columns` columns, right-aligned.
pub(crate) fn align_right(text: &str, columns: usize) -> String {
    let truncated = truncate_text(text, columns);
    let mut out = " ".repeat(columns.saturating_sub(text_width(&truncated)));
    out.push_str(&truncated);
    out
}

/// Wraps a text to lines of at most `columns` columns, at spaces where possible.
pub(crate) fn wrap_text(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(8);
    let mut lines = vec![String::new()];
    // A number stays with its percent sign.
    let joined = text.contains(" %").then(|| text.replace(" %", "\u{a0}%"));
    let text = joined.as_deref().unwrap_or(text);
    let words = text.split(|c: char| c.is_whitespace() && c != '\u{a0}');
    for word in words.filter(|word| !word.is_empty()).flat_map(|word| split_word(word, columns)) {
        let line = lines.last_mut().filter(|line| !line.is_empty());
        match line {
            Some(line) if text_width(line) + 1 + text_width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(word.to_owned()),
            None => lines.last_mut().unwrap_or(&mut String::new()).push_str(word),
        }
    }
    for line in lines.iter_mut().filter(|line| line.contains('\u{a0}')) {
        *line = line.replace('\u{a0}', " ");
    }
    lines
}

/// Joins groups of words to lines of at most `columns` columns with `gap` between two groups: a line ends between groups,
/// so that each number stays with its name.
pub(crate) fn join_groups(groups: &[String], gap: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for group in groups {
        match lines.last_mut() {
            Some(line) if text_width(line) + text_width(gap) + text_width(group) <= columns => {
                line.extend([gap, group]);
            }
            _ => lines.push(group.clone()),
        }
    }
    lines
}

/// Splits a word that is wider than `columns` into pieces of at most that width.
fn split_word(word: &str, columns: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut used) = (0, 0);
    for (at, character) in word.char_indices() {
        let wide = character.width().unwrap_or(0);
        if used + wide > columns && at > start {
            pieces.push(&word[start..at]);
            (start, used) = (at, 0);
        }
        used += wide;
    }
    pieces.push(&word[start..]);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_shares_are_readable() {
        assert_eq!(format_count(0), "0");
        assert_eq!(format_count(999), "999");
        assert_eq!(format_count(1_234_567), "1,234,567");
        assert_eq!(format_gpu_count(8.0), "8");
        assert_eq!(format_gpu_count(7.25), "7.2");
        assert_eq!(format_gpu_count(1_512.4), "1,512");
        assert_eq!(format_percent(0.641), "64.1");
        assert_eq!(format_percent(0.0), "0.0");
        assert_eq!(format_percent(0.000_1), "<0.1");
        assert_eq!(format_percent(0.999_9), ">99.9");
        assert_eq!(format_percent(1.0), "100.0");
        assert_eq!(format_whole_percent(None), ABSENT);
    }

    #[test]
    fn rates_fit_a_cell_and_are_never_blank() {
        for (value, text) in [
            (0.0, "0"),
            (0.004, "<0.01"),
            (0.02, "0.02"),
            (9.4, "9.4"),
            (312.4, "312"),
            (18_790.0, "18.8k"),
            (187_523.0, "188k"),
            (999_600.0, "1.0M"),
        ] {
            assert_eq!(format_short_rate(value), text);
        }
        assert!(
            (0..18).all(|power| text_width(&format_short_rate(9.994 * 10_f64.powi(power))) <= 5)
        );
    }

    #[test]
    fn ages_have_tenths_at_first() {
        assert_eq!(format_age(400), "0.4s");
        assert_eq!(format_age(75_000), "1m15");
    }

    #[test]
    fn values_carry_the_prefix_that_fits() {
        assert_eq!(format_bit_rate(50e9), "400 Gb/s");
        assert_eq!(format_bit_rate(0.0), "0 b/s");
        assert_eq!(format_with_unit(0.34, Unit::Ratio), "34.0 %");
        assert_eq!(format_with_unit(1.98e9, Unit::Hertz), "1.98 GHz");
        assert_eq!(format_with_unit(0.005, Unit::Seconds), "5 ms");
        assert_eq!(format_with_unit(3.0, Unit::Count), "3");
        assert_eq!([400e9, 8.0, 9.6e9].map(format_giga), ["400", "<0.01", "9.60"]);
        assert_eq!(format_cost(0.0, "USD"), "$0/h");
        assert_eq!(format_cost(4_142.4, "USD"), "$4,142/h");
        assert_eq!(format_cost(4_142.4, "EUR"), "4,142 EUR/h");
        assert_eq!(format_cost(4_142.4, "€"), "€4,142/h");
    }

    #[test]
    fn texts_fit_their_columns_even_when_wide() {
        assert_eq!(truncate_text("gpu-0417", 8), "gpu-0417");
        assert_eq!(truncate_text("gpu-0417", 5), "gpu-…");
        assert_eq!(truncate_text("東京東京", 6), "東京…");
        assert_eq!(text_width(&align_left("東京東京", 6)), 6);
        assert_eq!(text_width(&align_right("東", 5)), 5);
        assert_eq!(truncate_text("abc", 0), "");
    }

    #[test]
    fn glyphs_of_maps_and_graphs_have_their_unicode_width() {
        for sign in ('\u{2500}'..='\u{25bf}').chain('\u{2800}'..='\u{28ff}') {
            let text = sign.to_string();
            assert_eq!(text_width(&text), text.width(), "{sign}");
        }
    }

    #[test]
    fn lines_end_between_groups() {
        let groups = ["load 9 %", "ECN 3/s", "CNP 2/s"].map(str::to_owned);
        assert_eq!(join_groups(&groups, " · ", 20), ["load 9 % · ECN 3/s", "CNP 2/s"]);
        assert_eq!(join_groups(&groups, " · ", 3).len(), 3);
    }

    #[test]
    fn sentences_are_wrapped_at_spaces() {
        assert_eq!(wrap_text("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap_text("", 8), [""]);
        assert_eq!(wrap_text("pressure 34 %, limit 8 %", 13), ["pressure", "34 %, limit", "8 %"]);
        assert_eq!(wrap_text("averyveryverylongword", 10), ["averyveryv", "erylongwor", "d"]);
    }
}
