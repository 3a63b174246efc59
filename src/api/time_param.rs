//! Time parameters: a past time of a question, as people and programs write it.

use std::{fmt, time::Duration};

use gaunt_schema::{UnixMs, time};

/// The earliest time that can be requested; retained data is younger.
const FARTHEST: Duration = Duration::from_hours(366 * 24);

/// A time, absolute or relative to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeParam {
    /// An absolute engine time.
    At(UnixMs),
    /// This long before the engine's current time.
    Ago(Duration),
}

impl TimeParam {
    /// Reads `-20m`, `-90s`, `-1h`, `-500ms`, or milliseconds since the Unix epoch.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let Some(span) = text.strip_prefix('-') else {
            return text.parse().ok().map(|ms| Self::At(UnixMs(ms)));
        };
        let ago = time::parse_duration(span)?;
        (ago <= FARTHEST).then_some(Self::Ago(ago))
    }

    /// Resolves to an absolute time at `now`.
    pub fn to_instant(self, now: UnixMs) -> UnixMs {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => now - ago,
        }
    }
}

/// Formats so that it parses back, to the millisecond.
impl fmt::Display for TimeParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(at) => write!(f, "{}", at.0),
            Self::Ago(ago) => write!(f, "-{}ms", ago.as_millis()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_params_are_parsed_and_written_back() {
        let now = UnixMs(10_000_000);
        for (text, at) in [
            ("-20m", 8_800_000),
            ("-90s", 9_910_000),
            ("-1.5s", 9_998_500),
            ("-1h30m", 4_600_000),
            ("-250 ms", 9_999_750),
            ("1234567", 1_234_567),
        ] {
            let when = TimeParam::parse(text).unwrap();
            assert_eq!(when.to_instant(now), UnixMs(at), "{text}");
            assert_eq!(TimeParam::parse(&when.to_string()), Some(when), "{text}");
        }
        for text in ["", "-", "-20", "20m", "-m", "-1y", "now", "-99999d", "--1s", "-1.2.3s"] {
            assert_eq!(TimeParam::parse(text), None, "{text}");
        }
    }
}
