//! Arguments that name a Prometheus, and a time of its past.

use std::time::Duration;

use clap::Args;
use gaunt_api::TimeParam;
use gaunt_schema::UnixMs;

use super::parse_age;

/// A Prometheus-compatible server that already scrapes the exporters.
#[derive(Args, Clone, Debug, Default)]
pub struct PrometheusArguments {
    /// Read from a Prometheus, VictoriaMetrics, Mimir or Thanos that already scrapes dcgm-exporter, node_exporter or
    /// gaunt-node: the address below which its /api/v1 is. Settings: `[prometheus]`.
    #[arg(long, value_name = "URL")]
    pub prometheus: Option<String>,
    /// Matchers of the labels of its targets, such as 'cluster="hall-1",job=~"dcgm.*"'.
    #[arg(long = "match", value_name = "MATCHERS", requires = "prometheus")]
    pub matchers: Option<String>,
}

/// A span of a server's past.
#[derive(Args, Clone, Debug)]
pub struct PastSpanArguments {
    /// End of the span that is read: '2026-11-15 02:00' in UTC, 2026-11-15T02:00:00Z, or -90m; default: now.
    #[arg(long, value_name = "TIME", requires = "prometheus", value_parser = parse_time)]
    pub at: Option<TimeParam>,
    /// Length of the span that is read, up to 31d; default: 30m. Findings need some minutes before a fault to know what is
    /// usual.
    #[arg(long, value_name = "DURATION", requires = "prometheus", value_parser = parse_past_span)]
    pub span: Option<Duration>,
}

impl PastSpanArguments {
    /// Whether a span of the past is meant, and not the present.
    pub fn is_named(&self) -> bool {
        self.at.is_some() || self.span.is_some()
    }

    /// The length of the span.
    pub fn span(&self) -> Duration {
        self.span.unwrap_or(USUAL_SPAN)
    }
}

/// The span that is read unless another is named.
const USUAL_SPAN: Duration = Duration::from_mins(30);

/// The longest span that is read, as for a recording.
const LONGEST: Duration = Duration::from_hours(31 * 24);

fn parse_past_span(text: &str) -> Result<Duration, String> {
    let span = parse_age(text).map_err(|error| error.to_string())?;
    if span > LONGEST {
        return Err(format!("{text} is too long; the maximum is 31d"));
    }
    Ok(span)
}

/// Parses a time: a date with a time of day in UTC, or a span before now.
fn parse_time(text: &str) -> Result<TimeParam, String> {
    let text = text.trim();
    let time = if text.starts_with('-') {
        TimeParam::parse(text)
    } else {
        parse_date_time(text).map(TimeParam::At)
    };
    time.ok_or_else(|| {
        format!("{text:?} is not a time; write it in UTC as '2026-11-15 02:00', or as -90m")
    })
}

/// Parses `2026-11-15 02:00`, `2026-11-15T02:00:05Z` and forms between them.
fn parse_date_time(text: &str) -> Option<UnixMs> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let mut date_parts = date.split('-').map(parse_digits);
    let (year, month, day) = (date_parts.next()??, date_parts.next()??, date_parts.next()??);
    let mut time_parts = time.trim().split(':');
    let (hour, minute) = (parse_digits(time_parts.next()?)?, parse_digits(time_parts.next()?)?);
    let second: f64 = time_parts.next().unwrap_or("0").parse().ok()?;
    let is_valid = hour < 24 && minute < 60 && (0.0..60.0).contains(&second);
    if !is_valid || date_parts.next().is_some() || time_parts.next().is_some() {
        return None;
    }
    let midnight = UnixMs::from_date(year, month, day)?;
    Some(midnight + Duration::from_secs_f64((hour * 60 + minute) as f64 * 60.0 + second))
}

fn parse_digits(text: &str) -> Option<i64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_a_date_in_utc_or_a_span_before_now() {
        for (text, ms) in [
            ("2023-11-14T22:13:20Z", 1_700_000_000_000),
            ("2023-11-14 22:13:20.5", 1_700_000_000_500),
            ("2023-11-14 22:13", 1_699_999_980_000),
            ("2023-11-14", 1_699_920_000_000),
            ("2000-02-29 00:00", 951_782_400_000),
            ("1970-01-01 00:00", 0),
        ] {
            assert_eq!(parse_time(text), Ok(TimeParam::At(UnixMs(ms))), "{text}");
        }
        assert_eq!(parse_time("-90m"), Ok(TimeParam::Ago(Duration::from_mins(90))));
        for text in [
            "",
            "now",
            "02:00",
            "2023-02-29 00:00",
            "2023-13-01 00:00",
            "2023-11-31",
            "1700000000",
            "2023-11-14 24:00",
            "2023-11-14 22:60",
            "2023-11-14 22:13:61",
            "99999-01-01",
            "-5",
            "2023-11-14 22",
            "2023-11-14-1",
            "2023-11-14 22:13:20:1",
            "2023-11-14 22:13:-1",
        ] {
            let error = parse_time(text).unwrap_err();
            assert!(error.contains("write it in UTC"), "{text}: {error}");
        }
        assert!(parse_past_span("32d").unwrap_err().contains("31d"));
    }
}
