//! Numbers, times and texts as a person reads them: aligned, with one unit, never wider than asked for.

use std::time::Duration;

use gaunt_schema::{UnixMs, unit::Unit};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What stands where no number is known.
pub(crate) const ABSENT: &str = "–";

/// A count with its thousands apart: `12,500`.
pub(crate) fn count(value: u64) -> String {
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

/// A whole number with its thousands apart, and its sign where it is below zero.
pub(crate) fn count_signed(value: f64) -> String {
    let whole = count(value.abs().round() as u64);
    if value <= -0.5 { format!("-{whole}") } else { whole }
}

/// A count of GPUs that may be a fraction: one decimal below 100, whole above.
pub(crate) fn gpus(value: f64) -> String {
    if !value.is_finite() {
        return ABSENT.into();
    }
    let value = value.max(0.0);
    let whole = (value - value.round()).abs() < 0.05;
    if value < 99.95 && !whole { format!("{value:.1}") } else { count(value.round() as u64) }
}

/// A share of 1 in per cent without its mark: `64.1`; never `0.0` for something, never `100.0` for less.
pub(crate) fn percent(share: f64) -> String {
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

/// A share of 1 in whole per cent without its mark.
pub(crate) fn whole_percent(share: Option<f64>) -> String {
    share.filter(|s| s.is_finite()).map_or_else(|| ABSENT.into(), |s| format!("{:.0}", s * 100.0))
}

/// A value without decimals, or the mark of absence.
pub(crate) fn whole(value: Option<f64>) -> String {
    value.filter(|v| v.is_finite()).map_or_else(|| ABSENT.into(), |v| format!("{v:.0}"))
}

/// How long something has lasted, in at most two units: `40s`, `6m`, `1h05`, `3d04h`.
pub(crate) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..600 if !seconds.is_multiple_of(60) => format!("{}m{:02}", seconds / 60, seconds % 60),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h{:02}", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// How old something is: tenths of seconds at first, then as [`span`].
pub(crate) fn age(milliseconds: u64) -> String {
    if milliseconds < 10_000 {
        format!("{:.1}s", milliseconds as f64 / 1e3)
    } else {
        span(Duration::from_millis(milliseconds))
    }
}

/// The time of day in UTC: `12:03:41Z`.
pub(crate) fn clock(at: UnixMs) -> String {
    let second = at.0.div_euclid(1_000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}Z", second / 3_600, second % 3_600 / 60, second % 60)
}

/// A period between scrapes: `1 s`, `500 ms`.
pub(crate) fn period(milliseconds: u64) -> String {
    if milliseconds.is_multiple_of(1_000) {
        format!("{} s", milliseconds / 1_000)
    } else {
        format!("{milliseconds} ms")
    }
}

/// An amount of money in an hour: `$4,142/h`, `4,142 EUR/h`.
pub(crate) fn cost(amount: f64, currency: &str) -> String {
    let amount = if amount < 10.0 { format!("{amount:.2}") } else { count(amount as u64) };
    match currency {
        "" => format!("{amount}/h"),
        "USD" => format!("${amount}/h"),
        sign if sign.chars().count() == 1 => format!("{sign}{amount}/h"),
        name => format!("{amount} {name}/h"),
    }
}

/// A value with three digits and the prefix that fits, in powers of 1000.
fn scaled(value: f64, unit: &str) -> String {
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

/// Network traffic or line rate as engineers name it: bits in a second.
pub(crate) fn bit_rate(bytes_per_second: f64) -> String {
    scaled(bytes_per_second * 8.0, "b/s")
}

/// Memory in GiB with one decimal, without its unit.
pub(crate) fn gibibytes(bytes: f64) -> String {
    let value = bytes / f64::from(1 << 30);
    if value >= 99.95 { count(value.round() as u64) } else { format!("{value:.1}") }
}

/// A value with its unit, as evidence shows it.
pub(crate) fn with_unit(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Ratio => format!("{} %", percent(value)),
        Unit::Bytes => format!("{} GiB", gibibytes(value)),
        Unit::BytesPerSecond => bit_rate(value),
        Unit::Watts => format!("{value:.0} W"),
        Unit::Joules => scaled(value, "J"),
        Unit::Celsius => format!("{value:.0} °C"),
        Unit::Hertz => scaled(value, "Hz"),
        Unit::Seconds if value.abs() < 1.0 => format!("{:.0} ms", value * 1e3),
        Unit::Seconds if value.abs() < 60.0 => format!("{value:.1} s"),
        Unit::Seconds => span(Duration::from_secs_f64(value.clamp(0.0, 1e12))),
        Unit::Count => scaled(value, ""),
    }
}

/// A rate in at most five columns: `0.02`, `9.4`, `312`, `18.8k`, `188k`; never `0` for something.
pub(crate) fn short_rate(value: f64) -> String {
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

/// How many columns of a terminal a text takes.
pub(crate) fn width(text: &str) -> usize {
    match text.as_bytes() {
        // Boxes, blocks and braille, of which maps and graphs are made: U+2500 to U+25BF, U+2800 to U+28FF.
        [0xe2, 0x94..=0x96 | 0xa0..=0xa3, _] => 1,
        // Most names are ASCII, and a large fleet has many of them.
        bytes if bytes.is_ascii() => bytes.len(),
        _ => text.width(),
    }
}

/// The beginning of a text that fits into `limit` columns, with an ellipsis if something is cut.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    if width(text) <= limit {
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

/// A text in exactly `columns` columns, at the left.
pub(crate) fn left(text: &str, columns: usize) -> String {
    let mut out = cut(text, columns);
    out.extend(std::iter::repeat_n(' ', columns.saturating_sub(width(&out))));
    out
}

/// A text in exactly `columns` columns, at the right.
pub(crate) fn right(text: &str, columns: usize) -> String {
    let kept = cut(text, columns);
    let mut out = " ".repeat(columns.saturating_sub(width(&kept)));
    out.push_str(&kept);
    out
}

/// A text in lines of at most `columns` columns, broken at spaces where that is possible.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(8);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let word = cut(word, columns);
        let line = lines.last_mut().filter(|line| !line.is_empty());
        match line {
            Some(line) if width(line) + 1 + width(&word) <= columns => {
                line.push(' ');
                line.push_str(&word);
            }
            Some(_) => lines.push(word),
            None => lines.last_mut().unwrap_or(&mut String::new()).push_str(&word),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_shares_are_readable() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(gpus(8.0), "8");
        assert_eq!(gpus(7.25), "7.2");
        assert_eq!(gpus(1_512.4), "1,512");
        assert_eq!(percent(0.641), "64.1");
        assert_eq!(percent(0.0), "0.0");
        assert_eq!(percent(0.000_1), "<0.1");
        assert_eq!(percent(0.999_9), ">99.9");
        assert_eq!(percent(1.0), "100.0");
        assert_eq!(whole_percent(None), ABSENT);
    }

    #[test]
    fn rates_fit_into_a_cell_and_are_never_nothing() {
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
            assert_eq!(short_rate(value), text);
        }
        assert!((0..18).all(|power| width(&short_rate(9.994 * 10_f64.powi(power))) <= 5));
    }

    #[test]
    fn spans_have_at_most_two_units() {
        let of = |seconds| span(Duration::from_secs(seconds));
        assert_eq!(of(40), "40s");
        assert_eq!(of(120), "2m");
        assert_eq!(of(370), "6m10");
        assert_eq!(of(3_599), "59m");
        assert_eq!(of(3_900), "1h05");
        assert_eq!(of(3 * 86_400 + 4 * 3_600), "3d04h");
        assert_eq!(age(400), "0.4s");
        assert_eq!(age(75_000), "1m15");
    }

    #[test]
    fn the_clock_is_utc() {
        assert_eq!(clock(UnixMs(0)), "00:00:00Z");
        assert_eq!(clock(UnixMs(86_399_999)), "23:59:59Z");
        assert_eq!(clock(UnixMs(-1)), "23:59:59Z");
    }

    #[test]
    fn values_carry_the_prefix_that_fits() {
        assert_eq!(bit_rate(50e9), "400 Gb/s");
        assert_eq!(bit_rate(0.0), "0 b/s");
        assert_eq!(with_unit(0.34, Unit::Ratio), "34.0 %");
        assert_eq!(with_unit(1.98e9, Unit::Hertz), "1.98 GHz");
        assert_eq!(with_unit(0.005, Unit::Seconds), "5 ms");
        assert_eq!(with_unit(3.0, Unit::Count), "3");
        assert_eq!(cost(4_142.4, "USD"), "$4,142/h");
        assert_eq!(cost(4_142.4, "EUR"), "4,142 EUR/h");
        assert_eq!(cost(4_142.4, "€"), "€4,142/h");
    }

    #[test]
    fn texts_fit_their_columns_even_when_wide() {
        assert_eq!(cut("gpu-0417", 8), "gpu-0417");
        assert_eq!(cut("gpu-0417", 5), "gpu-…");
        assert_eq!(cut("東京東京", 6), "東京…");
        assert_eq!(width(&left("東京東京", 6)), 6);
        assert_eq!(width(&right("東", 5)), 5);
        assert_eq!(cut("abc", 0), "");
    }

    #[test]
    fn the_signs_of_maps_and_graphs_are_as_wide_as_unicode_says() {
        for sign in ('\u{2500}'..='\u{25bf}').chain('\u{2800}'..='\u{28ff}') {
            let text = sign.to_string();
            assert_eq!(width(&text), text.width(), "{sign}");
        }
    }

    #[test]
    fn sentences_are_wrapped_at_spaces() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("", 8), [""]);
        assert_eq!(wrap("averyveryverylongword", 10), ["averyvery…"]);
    }
}
