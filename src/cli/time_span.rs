//! Spans of time as people write them: `500ms`, `1s`, `2m`.

use std::time::Duration;

use gaunt_schema::time;

/// The shortest period or timeout: below it a scrape over a network cannot end.
const SHORTEST: Duration = Duration::from_millis(100);

/// The longest: beyond an hour nothing is live.
const LONGEST: Duration = Duration::from_hours(1);

/// What is kept for less than this is not kept.
const YOUNGEST: Duration = Duration::from_secs(1);

/// gaunt is no archive: what is older belongs to one.
const OLDEST: Duration = Duration::from_hours(366 * 24);

/// Why a text is no span.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// It is not written as one.
    #[error("{0:?} is not a span of time; write it as 500ms, 1s or 2m")]
    Form(String),
    /// It is negative.
    #[error("{0} is negative; a span has no sign: write it as 5m")]
    Negative(String),
    /// It is too short or too long.
    #[error("{0} is out of range; from 100ms to 60m is possible")]
    Range(String),
    /// It is too short or too long for an age.
    #[error("{0} is out of range; from 1s to 366d is possible")]
    Age(String),
}

/// The span that a text stands for, between a tenth of a second and an hour.
pub fn parse_span(text: &str) -> Result<Duration, SpanError> {
    let span = parse_duration(text)?;
    if span < SHORTEST || span > LONGEST {
        Err(SpanError::Range(text.to_owned()))
    } else {
        Ok(span)
    }
}

/// How long something is kept or done, between a second and a year.
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
    fn spans_are_read_as_written() {
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
