//! Details of a finding: headline, next step, lifecycle, and the numbers that support it.

use std::time::Duration;

use gaunt_schema::{FindingEvent, LifeState, SanitizedText, UnixMs};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::{
    INDENT, axis_graph, draw_lines, evidence_graph, finding_alerts, render_paragraph,
    render_titled_line,
};
use crate::{
    console_state::ConsoleState,
    display_text,
    evidence_history::{self, EvidenceHistory},
    theme::{self, StyleRole, Theme},
    widget::{
        sparkline,
        text_table::{self, number_column, text_column},
    },
};
use gaunt_api::evidence_query::limit_in_unit;
use gaunt_api::{
    EvidenceItem, EvidenceRole, Finding, FindingContext, HistoryRelation, LimitSide, MetricHistory,
    victim_groups::describe_victims,
};

/// Draws the finding under the cursor below the list of all findings, as far as there is space.
pub(crate) fn draw_below_list(
    buffer: &mut Buffer,
    area: Rect,
    finding: &Finding,
    state: &ConsoleState,
    theme: Theme,
) {
    let width = usize::from(area.width);
    let mut lines = vec![render_headline(finding, width, theme)];
    lines.extend(render_details(finding, finding.life.closed.is_none(), state, width, theme));
    let height = usize::from(area.height);
    let spare = height.saturating_sub(lines.len());
    let histories = &state.data.histories;
    lines.extend(evidence_graph::render_evidence_graph(finding, histories, width, spare, theme));
    if lines.len() > height {
        lines.truncate(height.saturating_sub(1));
        lines.push(Line::styled(" … Enter: show all", theme.style_for(StyleRole::Dim)));
    }
    draw_lines(buffer, area, &lines);
}

/// Renders the details of a finding, below its headline.
pub(crate) fn render_details(
    finding: &Finding,
    open: bool,
    state: &ConsoleState,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let at = state.data.overview.as_deref().map_or(state.now, |overview| overview.at);
    let mut lines = Vec::new();
    let summary =
        display_text::wrap_text(&SanitizedText::new(&finding.summary), width.saturating_sub(4));
    lines.extend(summary.into_iter().map(|line| Line::raw(format!("   {line}"))));
    lines.push(Line::default());
    let context = state.finding_context(&finding.id);
    let facts = list_facts(finding, at, state);
    let facts = display_text::join_groups(&facts, "   ", width.saturating_sub(INDENT + 1));
    for (title, text) in std::iter::once("SINCE").chain(std::iter::repeat("")).zip(facts) {
        lines.push(render_titled_line(title, vec![Span::raw(text)], theme));
    }
    if let Some(closed) = finding.life.closed {
        lines.extend(render_paragraph("CLOSED", &describe_closing(finding, closed), width, theme));
    }
    if let Some(context) = context {
        lines.extend(render_context(context, finding, width, theme));
    }
    lines.extend(render_paragraph("NEXT", &SanitizedText::new(&finding.next), width, theme));
    if let Some(ack) = &finding.acknowledged {
        let note = if ack.note.is_empty() { String::new() } else { format!(": {}", ack.note) };
        let text = format!("✔ {} at {}{note}", ack.by, display_text::format_time_of_day(ack.at));
        lines.extend(render_paragraph("ACK BY", &text, width, theme));
    }
    if let Some(list) = state.current_alerts().filter(|_| open) {
        lines.extend(finding_alerts::render_alert(list, finding, at, width, theme));
    }
    if let Some(text) = render_lifecycle(finding) {
        lines.extend(render_paragraph("LIFECYCLE", &text, width, theme));
    }
    if !finding.evidence.is_empty() {
        lines.push(Line::default());
        lines.extend(render_evidence(finding, &state.data.histories, width, theme));
    }
    if let Some(undecided) = finding.undecided_text() {
        lines.push(Line::default());
        lines.extend(render_paragraph("UNDECIDED", &SanitizedText::new(&undecided), width, theme));
    }
    if !finding.missing.is_empty() {
        lines.push(Line::default());
        let missing = SanitizedText::new(&finding.missing.join(", "));
        lines.extend(render_paragraph("MISSING", &missing, width, theme));
    }
    if !finding.victims.is_empty() {
        lines.push(Line::default());
        let titles = std::iter::once("VICTIMS").chain(std::iter::repeat(""));
        for (title, group) in titles.zip(describe_victims(&finding.victims)) {
            lines.extend(render_paragraph(title, &SanitizedText::new(&group), width, theme));
        }
    }
    lines
}

/// Lists since when it lasts, what it costs, and how sure it is.
fn list_facts(finding: &Finding, at: UnixMs, state: &ConsoleState) -> Vec<String> {
    let until = finding.life.closed.unwrap_or(at);
    let since = display_text::format_time_of_day(finding.since);
    let lasted = display_text::format_duration(until.duration_since(finding.since));
    let lost_gpus = display_text::format_gpu_count(finding.lost_gpus);
    let mut facts = vec![format!("{since} ({lasted})"), format!("{lost_gpus} GPUs lost")];
    let lost = state.data.overview.as_deref().map(|overview| &overview.lost);
    if let Some((price, lost)) = lost.and_then(|lost| Some((lost.price_per_gpu_hour?, lost))) {
        let cost = display_text::format_cost(price * finding.lost_gpus, &lost.currency);
        facts.push(format!("cost {cost}"));
    }
    let sure = display_text::format_whole_percent(Some(finding.confidence));
    facts.push(format!("confidence {sure} %"));
    facts
}

/// Describes when a finding closed, after how long, and what recovered.
fn describe_closing(finding: &Finding, closed: UnixMs) -> String {
    let lasted = display_text::format_duration(closed.duration_since(finding.since));
    let at = display_text::format_time_of_day(closed);
    let mut ends = finding.life.changes.iter().rev();
    let reason = ends.find(|change| change.what == FindingEvent::Closed).map(|last| &last.to);
    match reason.filter(|reason| !reason.is_empty()) {
        Some(reason) => format!("{at} after {lasted}: {reason}"),
        None => format!("{at} after {lasted}"),
    }
}

/// Renders the jobs that a finding affects with their owners, and what changed near its start.
fn render_context(
    context: &FindingContext,
    finding: &Finding,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let jobs = context.jobs.iter().map(|job| {
        let plural = if job.gpus == 1 { "" } else { "s" };
        format!("{}: {} GPU{plural} affected", job.describe(), job.gpus)
    });
    let mut jobs: Vec<String> = jobs.collect();
    let more = (context.job_count as usize).saturating_sub(jobs.len());
    if more > 0 {
        jobs.push(format!("and {more} more jobs"));
    }
    let changes = context.describe_changes(finding.since);
    for (title, texts) in [("OWNER", jobs), ("CHANGED", changes)] {
        let titles = std::iter::once(title).chain(std::iter::repeat(""));
        for (title, text) in titles.zip(texts) {
            lines.extend(render_paragraph(title, &SanitizedText::new(&text), width, theme));
        }
    }
    lines
}

/// Renders the lifecycle of a finding: what changed, and when.
fn render_lifecycle(finding: &Finding) -> Option<String> {
    let changes = &finding.life.changes;
    let texts = changes.iter().map(|change| {
        format!("{} {}", display_text::format_time_of_day(change.at), change.describe())
    });
    let texts: Vec<String> = texts.collect();
    let times = finding.life.openings;
    let often = if times > 1 { format!("; opened {times} times") } else { String::new() };
    // That it changed lately is what the changes say.
    let state = match finding.life.state {
        LifeState::Changing => LifeState::Open,
        state => state,
    };
    (!texts.is_empty()).then(|| format!("{state}{often}: {}", texts.join(", ")))
}

/// Renders kind, entity and severity of a finding.
pub(crate) fn render_headline(finding: &Finding, width: usize, theme: Theme) -> Line<'static> {
    let severity = theme.severity_style(finding.severity);
    let sign = theme::severity_sign(finding.severity);
    let name = format!(" {sign} {}  ", finding.kind);
    let word = format!("{} ", finding.severity);
    let available = width.saturating_sub(display_text::text_width(&name) + word.len());
    Line::from(vec![
        Span::styled(name, severity),
        Span::styled(
            display_text::align_left(&finding.entity.to_string(), available),
            theme.style_for(StyleRole::Title),
        ),
        Span::styled(word, severity),
    ])
}

/// Columns of a number.
const NUMBER: usize = 10;
/// Minimum width for the note of a number in its row; below this width it follows in the next line.
const NOTED: usize = 120;

/// Renders what was measured, its value and its limit.
fn evidence_cells(evidence: &EvidenceItem, theme: Theme) -> [(String, Style); 3] {
    let number = |value: f64| theme.units().format_value(value, evidence.unit);
    [
        (SanitizedText::new(&evidence.what).to_string(), Style::new()),
        (
            evidence.value.map_or_else(|| display_text::ABSENT.into(), number),
            theme.style_for(StyleRole::Title),
        ),
        (
            evidence.limit.map_or_else(String::new, |it| evidence.side.render_limit(&number(it))),
            Style::new(),
        ),
    ]
}

/// Renders the numbers, each with its limit and its history.
fn render_evidence(
    finding: &Finding,
    histories: &[EvidenceHistory],
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let asks = evidence_history::history_queries(finding);
    let has_history = asks.iter().any(Option::is_some);
    let longest = finding
        .evidence
        .iter()
        .map(|e| display_text::text_width(&SanitizedText::new(&e.what)))
        .max();
    let numbers = 2 * (NUMBER + 2) + 2 + 2;
    // The names must stay distinct: if they lack space, the history and the note get narrower.
    let wide = longest.unwrap_or(0) + numbers + 30 + 36 <= width;
    let (graph_width, beside) = match (has_history, width) {
        (_, 0..NOTED) => (15, 0),
        (false, _) => (0, 36),
        (true, _) if wide => (30, 36),
        (true, _) => (15, 28),
    };
    let graph_width = if has_history { graph_width } else { 0 };
    let fixed = numbers + graph_width;
    let what = longest.unwrap_or(0).clamp(20, width.saturating_sub(fixed + beside).max(20));
    let note = width.saturating_sub(what + fixed + 2);
    let columns = [
        text_column("EVIDENCE", what),
        number_column("now", NUMBER),
        number_column("limit", NUMBER),
    ];
    let span_ms =
        histories.iter().filter_map(|it| it.history.as_deref()).map(EvidenceHistory::span_ms).max();
    let mut heading = text_table::render_heading(&columns, theme.style_for(StyleRole::Title));
    if let Some(span) = span_ms.filter(|span| has_history && *span > 0) {
        let text = format!("  last {}", display_text::format_duration(Duration::from_millis(span)));
        heading.push_span(Span::styled(text, theme.style_for(StyleRole::Title)));
    }
    let mut lines = vec![heading];
    let mut drawn = false;
    for (item, ask) in finding.evidence.iter().zip(asks) {
        let stored_history = ask.and_then(|ask| histories.iter().find(|stored| stored.ask == ask));
        let history = stored_history.and_then(|it| it.history.as_deref());
        let mut line = text_table::render_row(&columns, evidence_cells(item, theme));
        if has_history {
            line.push_span(Span::raw("  "));
            drawn |= history.is_some_and(|history| limit_in_unit(history, item).is_some());
            line.spans.extend(history.map_or_else(
                || vec![Span::raw(" ".repeat(graph_width))],
                |history| {
                    render_evidence_history(history, span_ms.unwrap_or(0), item, graph_width, theme)
                },
            ));
        }
        let dim = theme.style_for(StyleRole::Dim);
        let wrap_width = if beside > 0 { note } else { width.saturating_sub(6) };
        let notes = display_text::wrap_text(
            &SanitizedText::new(&render_evidence_note(item, stored_history, theme)),
            wrap_width,
        );
        let (first, rest) = if beside > 0 { notes.split_at(1) } else { (&[][..], &notes[..]) };
        line.spans.extend(first.iter().map(|note| Span::styled(format!("  {note}"), dim)));
        lines.push(line);
        let indent = if beside > 0 { width.saturating_sub(note) } else { 4 };
        let rest = rest.iter().filter(|note| !note.is_empty());
        lines.extend(rest.map(|note| Line::styled(format!("{}{note}", " ".repeat(indent)), dim)));
    }
    if drawn {
        let text = " half of the height of a history is the limit, unless its range is named";
        lines.push(Line::styled(text, theme.style_for(StyleRole::Dim)));
    }
    lines
}

/// Returns the value at the upper edge of a history without a limit: of a share the whole, so that little is low.
fn history_top(history: &MetricHistory) -> f32 {
    let known = history.mean.iter().flatten().copied().filter(|value| value.is_finite());
    axis_graph::choose_top(known.fold(0.0, f32::max), history.unit)
}

/// Renders the note of a number and the series of its history. A number derived from others shows the history of one
/// of them, which may fall while the number rises.
fn render_evidence_note(
    evidence: &EvidenceItem,
    stored: Option<&EvidenceHistory>,
    theme: Theme,
) -> String {
    let note = evidence.describe();
    let other = stored.filter(|_| evidence.past == HistoryRelation::Part);
    let Some((ask, history)) = other.and_then(|it| Some((&it.ask, it.history.as_deref()?))) else {
        return note;
    };
    let top = theme.units().format_value(f64::from(history_top(history)), history.unit);
    let gap = if note.is_empty() { "" } else { "; " };
    format!("{note}{gap}history: {}, 0 to {top}", ask.metric)
}

/// Renders the last minutes of a number, with values on the wrong side of its limit in another colour.
fn render_evidence_history(
    history: &MetricHistory,
    span_ms: u64,
    evidence: &EvidenceItem,
    columns: usize,
    theme: Theme,
) -> Vec<Span<'static>> {
    let points = EvidenceHistory::newest_points(history, span_ms);
    let Some(limit) = limit_in_unit(history, evidence) else {
        let line = sparkline::render_sparkline(points, Some(history_top(history)), columns);
        return vec![Span::styled(line, theme.style_for(StyleRole::Neutral))];
    };
    // Of a number that a former version saved, the current side is the wrong one.
    let side = if evidence.role == EvidenceRole::RulesOut {
        evidence.side.opposite()
    } else {
        evidence.side
    };
    let wrong = match side {
        LimitSide::AtLeast => true,
        LimitSide::Below => false,
        LimitSide::Unknown => evidence.value.is_none_or(|value| value >= f64::from(limit)),
    };
    let signs = sparkline::render_against_limit(points, limit, columns);
    let meaning = |sign| match sparkline::reaches_limit(sign) {
        Some(reached) if reached == wrong => StyleRole::Bad,
        _ => StyleRole::Neutral,
    };
    let signs = signs.chars();
    signs.map(|sign| Span::styled(sign.to_string(), theme.style_for(meaning(sign)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sample_answers,
        theme::{ColourDepth, GlyphSet},
    };

    #[test]
    fn history_of_another_series_is_named_with_its_scale() {
        let mut finding = sample_answers::starved_finding();
        finding.evidence.truncate(1);
        let item = &mut finding.evidence[0];
        (item.past, item.what) = (HistoryRelation::Part, "job slowdown".into());
        let ask = evidence_history::history_queries(&finding).swap_remove(0).unwrap();
        let history = sample_answers::device_history(&[Some(0.01); 200]).into();
        let stored = [EvidenceHistory { ask, received_at: UnixMs(0), history: Some(history) }];
        let theme = Theme::new(ColourDepth::None, GlyphSet::Unicode, |_| None);
        let lines = render_evidence(&finding, &stored, 160, theme);
        let shown: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let shown = shown.join("\n");
        assert!(shown.contains("history: io_pressure_some, 0 to 100.0 %"), "{shown}");
        assert!(shown.contains("▁▁▁▁▁▁▁▁▁▁") && !shown.contains('▇'), "1 % is low: {shown}");
        assert!(!shown.contains("half of the height"), "{shown}");
        let graph = evidence_graph::render_evidence_graph(&finding, &stored, 100, 12, theme);
        let title = graph[1].to_string();
        assert!(title.contains("io_pressure_some") && !title.contains("job slowdown"), "{title}");
    }
}
