//! Graph of the number that proves a finding: with its axes, its limit as a line, and a scale that does not move with it.

use std::time::Duration;

use gaunt_schema::{SanitizedText, unit::Unit};
use ratatui::text::{Line, Span};

use crate::{
    display_text,
    evidence_history::{self, EvidenceHistory},
    theme::{StyleRole, Theme},
    widget::graph,
};
use gaunt_api::{EvidenceItem, EvidenceRole, Finding, MetricHistory};

/// Columns of the numbers at the axis.
const AXIS: usize = 11;
/// The lowest graph that is readable, without its title and its time axis.
const LOWEST: usize = 4;
/// The highest graph.
const HIGHEST: usize = 10;
/// The narrowest graph.
const NARROWEST: usize = 30;
/// Lines around the graph: a gap, the title, and the time axis.
const AROUND: usize = 3;

/// Renders the graph in at most `height` lines; none if there is too little space or no history.
///
/// ```text
///  GRAPH     IO pressure (PSI some)
///    100 % │
///          │                    ⣀⣤⣶⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿
///  ≥ 31 %  ┤─────────────────⣠⣴⣾⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿
///      0 % │⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿
///           2m ago                          now
/// ```
pub(crate) fn render_evidence_graph(
    finding: &Finding,
    histories: &[EvidenceHistory],
    width: usize,
    height: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let columns = width.saturating_sub(AXIS + 4);
    let lines = height.saturating_sub(AROUND).min(HIGHEST);
    if lines < LOWEST || columns < NARROWEST {
        return Vec::new();
    }
    let Some((item, history)) = choose_number(finding, histories) else { return Vec::new() };
    let limit = EvidenceHistory::limit_in_unit(history, item);
    let known = || history.mean.iter().flatten().copied().filter(|value| value.is_finite());
    let largest = known().fold(limit.unwrap_or(0.0), f32::max);
    let top = choose_top(largest, history.unit);
    let points = stretch_points(&history.mean, columns * if theme.is_ascii() { 1 } else { 2 });
    let graph = graph::render_graph(&points, Some(top), columns, lines, theme.is_ascii());
    let limit_line = limit.map(|limit| {
        let share = f64::from(limit / top).clamp(0.0, 1.0);
        lines - 1 - ((share * lines as f64) as usize).min(lines - 1)
    });
    let (dim, plain) = (theme.style_for(StyleRole::Dim), theme.style_for(StyleRole::Neutral));
    let title = SanitizedText::new(&item.what);
    let mut out = vec![
        Line::default(),
        super::render_titled_line("GRAPH", vec![Span::raw(title.to_string())], theme),
    ];
    let number = |value: f32| display_text::format_with_unit(f64::from(value), history.unit);
    for (at, line) in graph.into_iter().enumerate() {
        let is_limit = limit_line == Some(at);
        let label = match (at, limit.filter(|_| is_limit)) {
            (_, Some(limit)) => item.side.render_limit(&number(limit)),
            (0, None) => number(top),
            (at, None) if at + 1 == lines => number(0.0),
            _ => String::new(),
        };
        let label = display_text::align_right(&label, AXIS);
        let (edge, line) = if is_limit { ("┤", line.replace(' ', "─")) } else { ("│", line) };
        let style = if is_limit { theme.style_for(StyleRole::Waiting) } else { dim };
        out.push(Line::from(vec![
            Span::styled(format!(" {label} {edge}"), style),
            Span::styled(line, if is_limit { style } else { plain }),
        ]));
    }
    let span = Duration::from_millis(EvidenceHistory::span_ms(history));
    let ago = format!("{} ago", display_text::format_duration(span));
    let axis = format!("{}{ago}", " ".repeat(AXIS + 3));
    let now = columns.saturating_sub(display_text::text_width(&ago) + 3);
    out.push(Line::styled(format!("{axis}{}now", " ".repeat(now)), dim));
    out
}

/// Chooses the number to draw: a proof whose series is compared with its limit, else any with a history.
fn choose_number<'a>(
    finding: &'a Finding,
    histories: &'a [EvidenceHistory],
) -> Option<(&'a EvidenceItem, &'a MetricHistory)> {
    let asks = evidence_history::history_queries(finding);
    let drawn: Vec<_> = finding
        .evidence
        .iter()
        .zip(asks)
        .filter_map(|(item, ask)| {
            let stored = histories.iter().find(|stored| Some(&stored.ask) == ask.as_ref())?;
            Some((item, stored.history.as_deref()?))
        })
        .collect();
    let has_limit = |(item, history): &&(&EvidenceItem, &MetricHistory)| {
        item.role == EvidenceRole::Proof && EvidenceHistory::limit_in_unit(history, item).is_some()
    };
    drawn.iter().find(has_limit).or(drawn.first()).copied()
}

/// Returns the upper end of the scale: the whole of a share, else the next round number.
fn choose_top(largest: f32, unit: Unit) -> f32 {
    if unit == Unit::Ratio && largest <= 1.0 {
        return 1.0;
    }
    if largest <= 0.0 || !largest.is_finite() {
        return 1.0;
    }
    let step = 10_f32.powf(largest.log10().floor());
    let round = [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * step);
    round.into_iter().find(|top| *top >= largest).unwrap_or(largest)
}

/// Repeats points so that they fill as many columns; more points than columns are left as they are.
fn stretch_points(points: &[Option<f32>], columns: usize) -> Vec<Option<f32>> {
    if points.is_empty() || points.len() >= columns {
        return points.to_vec();
    }
    (0..columns).map(|column| points[column * points.len() / columns]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_is_the_whole_of_a_share_or_a_round_number() {
        for (largest, unit, top) in [
            (0.3, Unit::Ratio, 1.0),
            (1.4, Unit::Ratio, 2.0),
            (4.0, Unit::Count, 5.0),
            (1.98e9, Unit::Hertz, 2e9),
            (0.0, Unit::Count, 1.0),
            (710.0, Unit::Watts, 1_000.0),
        ] {
            let chosen = choose_top(largest, unit);
            assert!((chosen - top).abs() < top * 1e-3, "{largest}: {chosen}");
        }
    }

    #[test]
    fn points_are_stretched_and_never_dropped() {
        let points = [Some(1.0), None, Some(3.0)];
        assert_eq!(stretch_points(&points, 6).len(), 6);
        assert_eq!(stretch_points(&points, 6)[3], None);
        assert_eq!(stretch_points(&points, 2), points);
        assert_eq!(stretch_points(&[], 4), []);
    }
}
