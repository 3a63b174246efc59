//! Time bar: lost GPUs over the last minutes, as wide as the screen, with marks of what happened.

use std::time::Duration;

use gaunt_schema::UnixMs;
use ratatui::{
    style::Style,
    text::{Line, Span},
};

use super::{INDENT, render_titled_line};
use crate::{
    display_text,
    theme::{self, StyleRole, Theme},
    time_marks::{MarkKind, mark_times},
    time_zoom::span_name,
    widget::sparkline,
};
use gaunt_api::{MetricHistory, Overview};

/// Spans of the bar, in minutes: the smallest one that covers what is known is shown, so that the bar rarely moves.
const SPANS: [u64; 4] = [2, 5, 10, 15];

/// Columns of the name of the span.
const SPAN_NAME: usize = 16;

/// What the bar shows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BarRange<'a> {
    /// The chosen span in minutes; none for the shortest one that covers what is known.
    pub(crate) minutes: Option<u64>,
    /// Lost GPUs over a longer time than the overview has, for a longer span.
    pub(crate) longer: Option<&'a MetricHistory>,
}

/// Renders the bar; none before anything is known.
///
/// ```text
///  TIME      ▁▁▁▁▁▁▶▁▁▁▁▁▁▁✖▅▆▇▇▇▇▇▇▇▇▇▇◆▇▇▇▇▇▇▇▇▇▇▇▇▲▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇  lost, last 15m
/// ```
pub(crate) fn render_time_bar(
    overview: &Overview,
    range: BarRange<'_>,
    width: usize,
    theme: Theme,
) -> Option<Line<'static>> {
    let lost = &overview.lost;
    let longer = range.longer.filter(|history| history.step_ms > 0);
    let (history, step) = longer
        .map_or((&lost.history, lost.history_step_ms), |history| (&history.mean, history.step_ms));
    let blank = history.iter().take_while(|point| point.is_none()).count();
    let known = history.len() - blank;
    let columns = width.saturating_sub(INDENT + SPAN_NAME + 1);
    if known == 0 || columns < 10 || step == 0 {
        return None;
    }
    let covered = step * known as u64;
    let chosen = range.minutes.map(|minutes| minutes * 60_000);
    let span = chosen.or_else(|| {
        SPANS.map(|minutes| minutes * 60_000).into_iter().find(|span| *span >= covered)
    });
    let span = span.unwrap_or(covered);
    let points = (span / step).max(1) as usize;
    let point_at = |column: usize| {
        // The newest point is at the right end.
        let back = (columns - 1 - column) * points / columns;
        history.len().checked_sub(back + 1).and_then(|at| history[at])
    };
    let values: Vec<Option<f32>> = (0..columns).map(point_at).collect();
    let graph = sparkline::render_sparkline(&values, None, columns);
    let marks = place_marks(overview, span, columns);
    let some = lost.gpus > 0.0;
    let plain = theme.style_for(if some { StyleRole::Bad } else { StyleRole::Good });
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut run: Option<Style> = None;
    let mut buffer = [0; 4];
    for (level, mark) in graph.chars().zip(&marks) {
        let (sign, style) = match mark {
            Some(kind) => mark_sign(*kind, theme),
            None => (&*level.encode_utf8(&mut buffer), plain),
        };
        match spans.last_mut() {
            Some(part) if run == Some(style) => part.content.to_mut().push_str(sign),
            _ => spans.push(Span::styled(sign.to_owned(), style)),
        }
        run = Some(style);
    }
    let name = range
        .minutes
        .map_or_else(|| display_text::format_duration(Duration::from_millis(span)), span_name);
    spans.push(Span::styled(format!("  lost, last {name}"), theme.style_for(StyleRole::Dim)));
    Some(render_titled_line("TIME", spans, theme))
}

/// Returns the most important mark of each column.
fn place_marks(overview: &Overview, span: u64, columns: usize) -> Vec<Option<MarkKind>> {
    let mut placed: Vec<Option<MarkKind>> = vec![None; columns];
    for (at, kind) in mark_times(overview) {
        if let Some(column) = column_of(at, overview.at, span, columns) {
            placed[column] = placed[column].max(Some(kind));
        }
    }
    placed
}

fn column_of(at: UnixMs, end: UnixMs, span: u64, columns: usize) -> Option<usize> {
    let age = u64::try_from(end.0 - at.0).ok().filter(|age| *age < span)?;
    Some(columns - 1 - (age as usize * columns / span as usize).min(columns - 1))
}

/// Returns the sign and the style of a mark.
fn mark_sign(kind: MarkKind, theme: Theme) -> (&'static str, Style) {
    match kind {
        MarkKind::Finding(severity) => {
            (theme::severity_sign(severity), theme.severity_style(severity))
        }
        MarkKind::JobStarted => ("▶", theme.style_for(StyleRole::Title)),
        MarkKind::JobEnded => ("◀", theme.style_for(StyleRole::Title)),
        MarkKind::NodeChanged => ("◆", theme.style_for(StyleRole::Starved)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sample_answers,
        theme::{ColourDepth, GlyphSet},
    };

    fn bar(overview: &Overview, width: usize) -> String {
        let theme = Theme::new(ColourDepth::None, GlyphSet::Unicode, |_| None);
        render_time_bar(overview, BarRange::default(), width, theme)
            .map_or_else(String::new, |line| line.to_string())
    }

    #[test]
    fn bar_is_as_wide_as_the_screen_and_has_each_mark_once() {
        let overview = sample_answers::two_faults_overview(8);
        for width in [60, 80, 160, 300] {
            let text = bar(&overview, width);
            assert_eq!(display_text::text_width(&text), width - 1, "{text}");
            for sign in ["✖", "▲", "▶"] {
                let joined = width < 80 && sign == "▶";
                assert!(joined || text.matches(sign).count() == 1, "{sign} in {text}");
            }
            assert!(text.ends_with("lost, last 15m"), "{text}");
        }
    }

    #[test]
    fn chosen_span_shows_the_longer_history_and_blanks_what_is_unknown() {
        let overview = sample_answers::two_faults_overview(8);
        let theme = Theme::new(ColourDepth::None, GlyphSet::Unicode, |_| None);
        let bar = |range| render_time_bar(&overview, range, 80, theme).unwrap().to_string();
        let hour = BarRange { minutes: Some(60), longer: None };
        let (all, blank) = (bar(hour), " ".repeat(30));
        assert!(all.ends_with("lost, last 1h") && all.contains(&blank), "{all}");
        let mut history = sample_answers::device_history(&[Some(2.0); 180]);
        history.step_ms = 40 * 60_000;
        let days = BarRange { minutes: Some(7 * 24 * 60), longer: Some(&history) };
        let all = bar(days);
        assert!(all.ends_with("lost, last 7d"), "{all}");
        let columns: Vec<char> = all.chars().collect();
        let blank = columns[INDENT..].iter().take_while(|sign| **sign == ' ').count();
        assert_eq!(blank, 14, "of 52 columns 38 are known: {all}");
    }

    #[test]
    fn span_grows_with_what_is_known() {
        let mut overview = sample_answers::two_faults_overview(8);
        overview.lost.history = vec![None; 90];
        assert_eq!(bar(&overview, 80), "");
        overview.lost.history[89] = Some(1.0);
        assert!(bar(&overview, 80).ends_with("last 2m"), "{}", bar(&overview, 80));
        overview.lost.history[60] = Some(1.0);
        assert!(bar(&overview, 80).ends_with("last 5m"), "{}", bar(&overview, 80));
    }
}
