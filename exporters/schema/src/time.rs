//! Instants and durations as plain numbers: this crate reads no clock, its callers pass the time.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// An instant in milliseconds since the Unix epoch. Each field of this type documents which clock it is from.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct UnixMs(pub i64);

impl UnixMs {
    /// The instant `seconds` after the epoch, to the millisecond.
    pub fn from_seconds(seconds: f64) -> Self {
        Self((seconds * 1e3).round() as i64)
    }

    /// Seconds since the epoch.
    #[inline]
    pub fn to_seconds(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Year, month and day in the Gregorian calendar. A year begins in March here, so that the leap day is its last
    /// one.
    pub fn to_date(self) -> (i64, i64, i64) {
        /// Days of 400 years, the period of the calendar.
        const CYCLE: i64 = 146_097;
        let days = self.0.div_euclid(86_400_000) + 719_468; // From 1 March of the year 0.
        let (cycle, day) = (days.div_euclid(CYCLE), days.rem_euclid(CYCLE));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, after) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        (year + 400 * cycle + after, month, day)
    }

    /// The beginning of a day of the Gregorian calendar in UTC, if there is such a day between 1970 and 2200.
    pub fn from_date(year: i64, month: i64, day: i64) -> Option<Self> {
        if !(1970..=2200).contains(&year) || !(1..=12).contains(&month) {
            return None;
        }
        // As in `to_date`, a year begins in March.
        let (year_of_march, from_march) =
            if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let leap_days = year_of_march / 4 - year_of_march / 100 + year_of_march / 400;
        let days = year_of_march * 365 + leap_days + (153 * from_march + 2) / 5 + day - 719_469;
        let at = Self(days * 86_400_000);
        (at.to_date() == (year, month, day)).then_some(at)
    }

    /// The instant in RFC 3339: `2026-11-21T03:24:05.000Z`.
    pub fn to_rfc3339(self) -> String {
        let (year, month, day) = self.to_date();
        let ms = self.0.rem_euclid(86_400_000);
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
        format!(
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
            ms % 1_000
        )
    }

    /// The time of day in UTC: `03:24:05`.
    pub fn to_time_of_day(self) -> String {
        let second = self.0.div_euclid(1_000).rem_euclid(86_400);
        format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
    }

    /// The time from `earlier` to this instant; zero if `earlier` is later.
    #[inline]
    pub fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for UnixMs {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.as_millis() as i64))
    }
}

impl Sub<Duration> for UnixMs {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span.as_millis() as i64))
    }
}

/// Formats the time of day in UTC: `12:03:41Z`.
pub fn format_time_of_day(at: UnixMs) -> String {
    at.to_time_of_day() + "Z"
}

/// Formats a span of time in at most two units: `40s`, `6m`, `1h05`, `3d04h`.
pub fn format_duration(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..600 if !seconds.is_multiple_of(60) => format!("{}m{:02}", seconds / 60, seconds % 60),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h{:02}", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Parses a span of time: numbers with units, such as `500ms`, `90s`, `1.5s`, `15m`, `1h30m` or `7d`. A span that is
/// too long for a duration becomes the longest one.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (mut span, mut rest) = (Duration::ZERO, text.trim());
    loop {
        let digits =
            rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let unit = rest[digits..].trim_start();
        let end =
            unit.find(|character: char| !character.is_ascii_alphabetic()).unwrap_or(unit.len());
        let seconds = match &unit[..end] {
            "ms" => number / 1e3,
            "s" => number,
            "m" | "min" => number * 60.0,
            "h" => number * 3_600.0,
            "d" => number * 86_400.0,
            _ => return None,
        };
        span = span.saturating_add(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
        rest = unit[end..].trim_start();
        if rest.is_empty() {
            return Some(span);
        }
    }
}

/// A clock for code that needs timestamps: this crate only defines its type.
pub type ClockFn = std::sync::Arc<dyn Fn() -> UnixMs + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_parsed_from_numbers_with_units() {
        for (text, ms) in [
            ("500ms", 500),
            ("250 ms", 250),
            ("1s", 1_000),
            ("1.5s", 1_500),
            ("90s", 90_000),
            ("2m", 120_000),
            ("15min", 900_000),
            ("1h30m", 5_400_000),
            (" 1h 30m 5s ", 5_405_000),
            ("7d", 604_800_000),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(parse_duration("99999999999999999999999s"), Some(Duration::MAX));
        for text in
            ["", "1", "s", "1y", "-1s", "1.2.3s", ".s", "1e3s", "one second", "1h30", "1s,2s"]
        {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn formatted_duration_has_at_most_two_units() {
        let of = |seconds| format_duration(Duration::from_secs(seconds));
        assert_eq!(of(40), "40s");
        assert_eq!(of(120), "2m");
        assert_eq!(of(370), "6m10");
        assert_eq!(of(3_599), "59m");
        assert_eq!(of(3_900), "1h05");
        assert_eq!(of(3 * 86_400 + 4 * 3_600), "3d04h");
    }

    #[test]
    fn time_of_day_is_utc() {
        assert_eq!(format_time_of_day(UnixMs(0)), "00:00:00Z");
        assert_eq!(format_time_of_day(UnixMs(86_399_999)), "23:59:59Z");
        assert_eq!(format_time_of_day(UnixMs(1_700_000_000_999)), "22:13:20Z");
        assert_eq!(format_time_of_day(UnixMs(-1)), "23:59:59Z");
    }

    #[test]
    fn date_is_the_inverse_of_its_parts() {
        for days in (0..84_370).step_by(7).chain([11_016, 11_017, 47_540, 47_541]) {
            let at = UnixMs(days * 86_400_000);
            let (year, month, day) = at.to_date();
            assert_eq!(UnixMs::from_date(year, month, day), Some(at), "{year}-{month}-{day}");
        }
        for (year, month, day) in
            [(2023, 2, 29), (2100, 2, 29), (2023, 13, 1), (2023, 4, 31), (1969, 1, 1)]
        {
            assert_eq!(UnixMs::from_date(year, month, day), None, "{year}-{month}-{day}");
        }
    }

    #[test]
    fn instant_format_is_readable_by_other_programs() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_700_000_000_999, "2023-11-14T22:13:20.999Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(UnixMs(ms).to_rfc3339(), text);
        }
    }
}
