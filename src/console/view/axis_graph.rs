//! Graph with axes: a scale that does not move with the points, its limit as a line, and the band of the peers.

use std::time::Duration;

use gaunt_schema::unit::Unit;
use ratatui::{
    style::Style,
    text::{Line, Span},
};

use crate::{
    display_text,
    theme::{StyleRole, Theme},
    widget::graph,
};

/// Columns of the numbers at the axis.
pub(crate) const AXIS: usize = 11;

/// The lowest and the highest peer at each time, oldest first.
pub(crate) type PeerBand<'a> = (&'a [Option<f32>], &'a [Option<f32>]);

/// What a graph shows.
pub(crate) struct AxisGraph<'a> {
    /// The points, oldest first.
    pub(crate) points: &'a [Option<f32>],
    /// The band of the peers, if it is known.
    pub(crate) peers: Option<PeerBand<'a>>,
    /// The value at the upper edge.
    pub(crate) top: f32,
    /// The limit, and how it is written at the axis.
    pub(crate) limit: Option<(f32, String)>,
    /// The unit of all values.
    pub(crate) unit: Unit,
    /// The time that the points cover.
    pub(crate) span: Duration,
}

/// Renders the graph in `lines` lines of `columns` columns beside its axis, and the time axis below it.
///
/// ```text
///    800 W   │······························
///  700 W     ┤──────────────────────────────
///            │··················⣠⣴⣾⣿⣿⣿⣿⣿⣿⣿⣿⣿
///      0 W   │⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿
///             2m ago                     now
/// ```
pub(crate) fn render_axis_graph(
    shown: &AxisGraph<'_>,
    columns: usize,
    lines: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let per_column = if theme.is_ascii() { 1 } else { 2 };
    let points = stretch_points(shown.points, columns * per_column);
    let graph = graph::render_graph(&points, Some(shown.top), columns, lines, theme.is_ascii());
    let line_of = |value: f32| {
        let share = f64::from(value / shown.top).clamp(0.0, 1.0);
        lines - 1 - ((share * lines as f64) as usize).min(lines - 1)
    };
    let band = shown.peers.map(|(low, high)| {
        let ends = stretch_points(low, columns).into_iter().zip(stretch_points(high, columns));
        let mut band: Vec<_> =
            ends.map(|(low, high)| Some(line_of(high?)..=line_of(low?))).collect();
        // The newest column is at the right, as in the graph.
        let missing = columns.saturating_sub(band.len());
        band.splice(0..0, std::iter::repeat_n(None, missing));
        band.split_off(band.len() - columns)
    });
    let (dim, plain) = (theme.style_for(StyleRole::Dim), theme.style_for(StyleRole::Neutral));
    let number = |value: f32| theme.units().format_value(f64::from(value), shown.unit);
    let mut out = Vec::with_capacity(lines + 1);
    for (at, line) in graph.into_iter().enumerate() {
        let limit = shown.limit.as_ref().filter(|(limit, _)| line_of(*limit) == at);
        let label = match limit {
            Some((_, label)) => label.clone(),
            None if at == 0 => number(shown.top),
            None if at + 1 == lines => number(0.0),
            None => String::new(),
        };
        let label = display_text::align_right(&label, AXIS);
        let edge = if limit.is_some() { "┤" } else { "│" };
        let axis = if limit.is_some() { theme.style_for(StyleRole::Waiting) } else { dim };
        let mut spans = vec![Span::styled(format!(" {label} {edge}"), axis)];
        let mut run: Option<Style> = None;
        for (column, sign) in line.chars().enumerate() {
            let is_peer = |band: &Vec<Option<std::ops::RangeInclusive<usize>>>| {
                band[column].as_ref().is_some_and(|lines| lines.contains(&at))
            };
            let (sign, style) = match (sign, limit.is_some(), band.as_ref().is_some_and(is_peer)) {
                (' ', true, _) => ('─', axis),
                (' ', false, true) => ('·', dim),
                (sign, true, _) => (sign, axis),
                (sign, false, _) => (sign, plain),
            };
            match spans.last_mut() {
                Some(part) if run == Some(style) => part.content.to_mut().push(sign),
                _ => spans.push(Span::styled(sign.to_string(), style)),
            }
            run = Some(style);
        }
        out.push(Line::from(spans));
    }
    let ago = format!("{} ago", display_text::format_duration(shown.span));
    let axis = format!("{}{ago}", " ".repeat(AXIS + 3));
    let now = columns.saturating_sub(display_text::text_width(&ago) + 3);
    out.push(Line::styled(format!("{axis}{}now", " ".repeat(now)), dim));
    out
}

/// Returns the upper end of the scale: the whole of a share, 100 °C, else the next round number.
pub(crate) fn choose_top(largest: f32, unit: Unit) -> f32 {
    match unit {
        Unit::Ratio if largest <= 1.0 => return 1.0,
        Unit::Celsius if largest <= 100.0 => return 100.0,
        _ if largest <= 0.0 || !largest.is_finite() => return 1.0,
        _ => {}
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
    use crate::theme::{ColourDepth, GlyphSet};

    #[test]
    fn scale_is_the_whole_of_a_share_or_a_round_number() {
        for (largest, unit, top) in [
            (0.3, Unit::Ratio, 1.0),
            (1.4, Unit::Ratio, 2.0),
            (33.0, Unit::Celsius, 100.0),
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

    #[test]
    fn band_of_the_peers_and_the_limit_are_behind_the_points() {
        let theme = Theme::new(ColourDepth::None, GlyphSet::Ascii, |_| None);
        let (low, high) = ([Some(60.0); 8], [Some(75.0); 8]);
        let graph = AxisGraph {
            points: &[Some(20.0); 4],
            peers: Some((&low, &high)),
            top: 100.0,
            limit: Some((90.0, "limit 90 W".into())),
            unit: Unit::Watts,
            span: Duration::from_mins(2),
        };
        let lines: Vec<String> =
            render_axis_graph(&graph, 8, 4, theme).iter().map(ToString::to_string).collect();
        assert_eq!(lines[0], "  limit 90 W ┤────────");
        assert_eq!(lines[1], "             │········");
        assert!(lines[3].starts_with("         0 W │"), "{lines:?}");
        assert!(lines[4].contains("2m ago") && lines[4].ends_with("now"), "{lines:?}");
    }
}
