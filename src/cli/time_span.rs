//! Durations as text: `500ms`, `1s`, `2m`.

use std::time::Duration;

use gaunt_schema::time;

/// The shortest period or timeout: a scrape over a network takes this long.
const SHORTEST: Duration = Duration::from_millis(100);

/// The longest period: data older than an hour is not live.
const LONGEST: Duration = Duration::from_hours(1);

/// The shortest retention.
const YOUNGEST: Duration = Duration::from_secs(1);

/// The longest retention: gaunt is not an archive.
const OLDEST: Duration = Duration::from_hours(366 * 24);

/// Error in a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// Invalid format.
    #[error("{0:?} is not a duration; write it as 500ms, 1s or 2m")]
    Form(String),
    /// Negative.
    #[error("{0} is negative; a duration has no sign, as in 5m")]
    Negative(String),
    /// Out of range.
    #[error("{0} is out of range; allowed are 100ms to 60m")]
    Range(String),
    /// Out of range for a retention.
    #[error("{0} is out of range; allowed are 1s to 366d")]
    Age(String),
}

/// Parses a duration between 100 ms and an hour.
pub fn parse_span(text: &str) -> Result<Duration, SpanError> {
    let span = parse_duration(text)?;
    if span < SHORTEST || span > LONGEST {
        Err(SpanError::Range(text.to_owned()))
    } else {
        Ok(span)
    }
}

/// Parses a retention or recording time between a second and a year.
pub fn parse_age(text: &str) -> Result<Duration, SpanError> {
    let age = parse_duration(text)?;
    if age < YOUNGEST || age > OLDEST { Err(SpanError::Age(text.to_owned())) } else { Ok(age) }
}

fn parse_duration(text: &str) -> Result<Duration, SpanError> {
    if let Some(positive) = text.strip_prefix('-')
        && positive.starts_with(|c: char| c.is_ascii_digit())
    {
        return Err(SpanError::Negative(text.to_owned()));
    }
    time::parse_duration(text).ok_or_else(|| SpanError::Form(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_with_their_units() {
        let table = [("500ms", 500), ("1s", 1_000), ("1.5s", 1_500), ("2m", 120_000)];
        for (text, ms) in table {
            assert_eq!(parse_span(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
        for text in ["", "1", "s", "1y", "--check", "1.2.3s", "1e3s", "one second"] {
            assert_eq!(parse_span(text), Err(SpanError::Form(text.to_owned())), "{text}");
        }
        for text in ["0s", "99ms", "61m", "2h", "99999999999999999999999s"] {
            assert_eq!(parse_span(text), Err(SpanError::Range(text.to_owned())), "{text}");
        }
        for text in ["-1", "-5m"] {
            assert_eq!(parse_span(text), Err(SpanError::Negative(text.to_owned())), "{text}");
        }
        assert_eq!(parse_age("24h").unwrap(), Duration::from_hours(24));
        assert_eq!(parse_age("7d").unwrap(), Duration::from_hours(7 * 24));
        assert_eq!(parse_age("400d"), Err(SpanError::Age("400d".to_owned())));
    }
}
