//! Graph of the number that proves a finding: with its axes, its limit as a line, and a scale that does not move with it.

use std::time::Duration;

use gaunt_schema::SanitizedText;
use ratatui::text::{Line, Span};

use super::axis_graph::{self, AXIS, AxisGraph};
use crate::{
    evidence_history::{self, EvidenceHistory},
    theme::Theme,
};
use gaunt_api::evidence_query::limit_in_unit;
use gaunt_api::{EvidenceItem, EvidenceRole, Finding, HistoryRelation, MetricHistory};

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
///  GRAPH     IO pressure (PSI or iowait)
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
    let Some((item, stored, history)) = choose_number(finding, histories) else {
        return Vec::new();
    };
    let limit = limit_in_unit(history, item);
    let known = || history.mean.iter().flatten().copied().filter(|value| value.is_finite());
    let largest = known().fold(limit.unwrap_or(0.0), f32::max);
    let number = |value: f32| theme.units().format_value(f64::from(value), history.unit);
    // A number that is computed from others has the history of one of them.
    let title = match item.past {
        HistoryRelation::Same => SanitizedText::new(&item.what),
        _ => stored.ask.metric.clone(),
    };
    let span = EvidenceHistory::span_ms(history);
    let mut out = vec![
        Line::default(),
        super::render_titled_line("GRAPH", vec![Span::raw(title.to_string())], theme),
    ];
    out.extend(axis_graph::render_axis_graph(
        &AxisGraph {
            points: EvidenceHistory::newest_points(history, span),
            peers: None,
            top: axis_graph::choose_top(largest, history.unit),
            limit: limit.map(|limit| (limit, item.side.render_limit(&number(limit)))),
            unit: history.unit,
            span: Duration::from_millis(span),
        },
        columns,
        lines,
        theme,
    ));
    out
}

/// A number with its history.
type DrawnNumber<'a> = (&'a EvidenceItem, &'a EvidenceHistory, &'a MetricHistory);

/// Chooses the number to draw: a proof whose series is compared with its limit, else one that is the series itself, else
/// any with a history.
fn choose_number<'a>(
    finding: &'a Finding,
    histories: &'a [EvidenceHistory],
) -> Option<DrawnNumber<'a>> {
    let asks = evidence_history::history_queries(finding);
    let drawn: Vec<_> = finding
        .evidence
        .iter()
        .zip(asks)
        .filter_map(|(item, ask)| {
            let stored = histories.iter().find(|stored| Some(&stored.ask) == ask.as_ref())?;
            Some((item, stored, stored.history.as_deref()?))
        })
        .collect();
    let has_limit = |(item, _, history): &&DrawnNumber<'_>| {
        item.role == EvidenceRole::Proof && limit_in_unit(history, item).is_some()
    };
    let is_itself = |(item, ..): &&DrawnNumber<'_>| item.past == HistoryRelation::Same;
    drawn.iter().find(has_limit).or(drawn.iter().find(is_itself)).or(drawn.first()).copied()
}
