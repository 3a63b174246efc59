//! Spans of the time bar and of graphs, and the steps in time that belong to them.

use std::time::Duration;

use crate::{
    action::KeyIntent,
    key_binding::{KeyBinding, bind},
    key_press::KeyPress,
};
use gaunt_api::{Filter, HistoryAggregation, HistoryQuery, Subject, history_answer::MAX_POINTS};

/// The spans, from 2 minutes to 90 days, in minutes. What a source does not keep is blank.
pub(crate) const SPANS: [u64; 10] =
    [2, 5, 15, 60, 6 * 60, 24 * 60, 3 * 24 * 60, 7 * 24 * 60, 30 * 24 * 60, 90 * 24 * 60];

/// Span of what an overview has, in minutes: longer ones need another answer.
pub(crate) const OVERVIEW_SPAN: u64 = 15;

/// Steps of a span: small ones for its parts, large ones for a screenful.
const SMALL_STEPS: u64 = 90;
const LARGE_STEPS: u64 = 15;

/// Keys of the span.
pub(crate) const SPAN_KEYS: &[KeyBinding] = &[
    bind(
        &[KeyPress::Char('+'), KeyPress::Char('=')],
        "+",
        KeyIntent::ShorterSpan,
        "shorter span",
        None,
    ),
    bind(&[KeyPress::Char('-')], "-", KeyIntent::LongerSpan, "longer span, to 90 days", None),
];

/// Returns the next span from one of so many minutes; the same one at either end.
pub(crate) fn next_span(minutes: u64, intent: KeyIntent) -> u64 {
    let next = match intent {
        KeyIntent::ShorterSpan => SPANS.iter().rev().find(|span| **span < minutes),
        _ => SPANS.iter().find(|span| **span > minutes),
    };
    next.copied().unwrap_or(minutes)
}

/// Formats a span in its largest unit: `15m`, `6h`, `90d`.
pub(crate) fn span_name(minutes: u64) -> String {
    match minutes {
        days if days >= 24 * 60 && days.is_multiple_of(24 * 60) => format!("{}d", days / (24 * 60)),
        hours if hours >= 60 && hours.is_multiple_of(60) => format!("{}h", hours / 60),
        minutes => format!("{minutes}m"),
    }
}

/// Returns the small and the large step in time for a span of so many minutes: 10 s and a minute for 15 minutes or less.
pub(crate) fn time_steps(minutes: u64) -> (Duration, Duration) {
    let seconds = minutes.max(OVERVIEW_SPAN) * 60;
    (Duration::from_secs(seconds / SMALL_STEPS), Duration::from_secs(seconds / LARGE_STEPS))
}

/// Returns the question for the lost GPUs of the fleet over so many minutes, as far back as the source has them.
pub(crate) fn lost_history_query(minutes: u64) -> HistoryQuery {
    HistoryQuery {
        metric: "lost".into(),
        of: Filter::all_rows(Subject::Gpus),
        together: HistoryAggregation::Sum,
        points: MAX_POINTS,
        span: Some(Duration::from_secs(minutes * 60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_end_at_90_days_and_steps_follow_them() {
        let mut minutes = OVERVIEW_SPAN;
        for _ in 0..SPANS.len() {
            minutes = next_span(minutes, KeyIntent::LongerSpan);
        }
        assert_eq!(minutes, 90 * 24 * 60);
        assert_eq!(next_span(2, KeyIntent::ShorterSpan), 2);
        assert_eq!(next_span(10, KeyIntent::ShorterSpan), 5);
        assert_eq!(SPANS.map(span_name).join(" "), "2m 5m 15m 1h 6h 1d 3d 7d 30d 90d");
        let day = time_steps(24 * 60);
        assert_eq!(time_steps(2), (Duration::from_secs(10), Duration::from_mins(1)));
        assert_eq!(day, (Duration::from_mins(16), Duration::from_mins(96)));
    }
}
