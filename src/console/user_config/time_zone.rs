//! Time zone of the user: UTC, that of the machine, or a fixed offset.

use chrono::{Local, Offset as _, TimeZone as _};
use gaunt_schema::UnixMs;

/// The largest offset from UTC, in minutes: 14 hours.
const MAX_MINUTES: i32 = 14 * 60;

/// The time zone in which the console shows times of day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DisplayZone {
    /// UTC, as everywhere else in gaunt.
    #[default]
    Utc,
    /// The time zone of this machine, or of `TZ`.
    Local,
    /// A fixed number of seconds east of UTC.
    Fixed(i32),
}

impl DisplayZone {
    /// Parses `utc`, `local` or an offset such as `+02:00`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let sign = match text {
            "utc" => return Some(Self::Utc),
            "local" => return Some(Self::Local),
            _ if text.starts_with('+') => 1,
            _ if text.starts_with('-') => -1,
            _ => return None,
        };
        let (hours, minutes) = text[1..].split_once(':')?;
        let number = |text: &str| {
            text.parse::<i32>().ok().filter(|n| text.len() == 2 && (0..60).contains(n))
        };
        let minutes: i32 = number(hours)? * 60 + number(minutes)?;
        (minutes <= MAX_MINUTES).then_some(Self::Fixed(sign * minutes * 60))
    }

    /// Returns the offset from UTC at an instant, in seconds; none for UTC itself.
    pub(crate) fn offset_seconds(self, at: UnixMs) -> Option<i32> {
        match self {
            Self::Utc => None,
            Self::Fixed(seconds) => Some(seconds),
            Self::Local => {
                let local = Local.timestamp_millis_opt(at.0).single()?;
                Some(local.offset().fix().local_minus_utc())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_zones_are_utc_local_or_an_offset() {
        for (text, zone) in [
            ("utc", Some(DisplayZone::Utc)),
            ("local", Some(DisplayZone::Local)),
            ("+02:00", Some(DisplayZone::Fixed(7_200))),
            ("-05:30", Some(DisplayZone::Fixed(-19_800))),
            ("+15:00", None),
            ("+2:00", None),
            ("+02:60", None),
            ("Europe/Berlin", None),
            ("", None),
        ] {
            assert_eq!(DisplayZone::parse(text), zone, "{text}");
        }
        assert_eq!(DisplayZone::Utc.offset_seconds(UnixMs(0)), None);
        assert_eq!(DisplayZone::Fixed(60).offset_seconds(UnixMs(0)), Some(60));
        assert!(DisplayZone::Local.offset_seconds(UnixMs(0)).is_some());
    }
}
