//! One job: how efficient it is, what it loses by cause, and which of its GPUs stand out.

use std::time::Duration;

use gaunt_schema::{GpuState, Safe};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::{LABEL, hints, put, titled};
use crate::{
    answer::{JobDetail, Strip},
    console::{
        cursor::window,
        format,
        state::{Room, Spot, State, What},
        theme::{self, Meaning, Theme},
        widget::bar,
    },
};

/// Columns of the name of a strip.
const NAME: usize = 22;
/// The share of points from which on a GPU stands out.
const ODD: f64 = 0.3;

/// Draws the job.
///
/// ```text
///  job 8812  llama-pt   alice · llm   64 nodes · 512 GPUs   running 3d04h
///  USEFUL    ███████████████████████████░░░░░░░░░░░░░  68 %   useful 349, lost 163 GPUs
///  LOST BY   waiting for peers 12.4 GPU·h  data-starved 1.1 GPU·h      last 30m
///  ✖ compute_straggler  gpu-0417 · GPU 5   since 2m
///
///  STANDS OUT              what it did in the last 1m58, now at the right
///  most of its GPUs        ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
///  gpu-0417 GPU 5          █████████████████████████████████████████████  ◂ 98 % unlike most
/// ```
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    state: &State,
    name: &Safe,
    theme: Theme,
) -> Room {
    let known = state.data.job.as_deref().filter(|job| job.job == *name);
    let Some(job) = known.filter(|_| state.data.refused.is_none()) else {
        let what = format!("job {name}");
        put(buffer, area, &hints::waiting_for(&what, state, area.width, theme));
        return Room::default();
    };
    let width = usize::from(area.width);
    let mut lines = vec![headline(job, theme)];
    lines.push(titled("USEFUL", useful(job, width, theme), theme));
    lines.push(titled("LOST BY", causes(job, theme), theme));
    for finding in &job.findings {
        let severity = theme.severity(finding.severity);
        let sign = theme::severity_sign(finding.severity);
        let lasted = format::span(job.at.since(finding.since));
        lines.push(Line::from(vec![
            Span::styled(format!(" {sign} {}", finding.kind), severity),
            Span::raw(format!("  {}  since {lasted}", finding.entity)),
        ]));
    }
    lines.push(Line::default());
    let used = (lines.len() as u16).min(area.height);
    let rest = Rect { y: area.y + used, height: area.height - used, ..area };
    let (strips, room) = strips(job, state, rest, theme);
    lines.extend(strips);
    put(buffer, area, &lines);
    room
}

fn headline(job: &JobDetail, theme: Theme) -> Line<'static> {
    let text = |name: &str| job.line.column(name).and_then(|column| column.text(0));
    let number = |name: &str| job.line.column(name).and_then(|column| column.number(0));
    let mut spans = vec![Span::styled(format!(" job {}", job.job), theme.style(Meaning::Title))];
    if let Some(name) = text("job_name") {
        spans.push(Span::styled(format!("  {name}"), theme.style(Meaning::Title)));
    }
    let who: Vec<String> = ["user", "account", "partition", "namespace"]
        .iter()
        .filter_map(|name| text(name).map(ToString::to_string))
        .collect();
    if !who.is_empty() {
        spans.push(Span::raw(format!("   {}", who.join(" · "))));
    }
    let count = |name: &str| number(name).map_or_else(|| format::ABSENT.into(), format::gpus);
    spans.push(Span::raw(format!("   {} nodes · {} GPUs", count("nodes"), count("gpus"))));
    if let Some(seconds) = number("runtime") {
        let span = format::span(Duration::from_secs_f64(seconds.clamp(0.0, 1e12)));
        spans.push(Span::raw(format!("   running {span}")));
    }
    Line::from(spans)
}

/// The GPUs by state, and the share whose time is not lost.
fn useful(job: &JobDetail, width: usize, theme: Theme) -> Vec<Span<'static>> {
    let amounts: Vec<u64> = job.states.iter().map(|count| count.gpus.into()).collect();
    let columns = bar::columns(&amounts, width.saturating_sub(LABEL + 1 + 46).min(60));
    let mut spans: Vec<Span<'static>> = job
        .states
        .iter()
        .zip(columns)
        .map(|(count, columns)| {
            Span::styled(theme::state_sign(count.state).repeat(columns), theme.state(count.state))
        })
        .collect();
    let of = |wanted: fn(GpuState) -> bool| -> u32 {
        job.states.iter().filter(|count| wanted(count.state)).map(|count| count.gpus).sum()
    };
    let unknown = of(|state| matches!(state, GpuState::Stale | GpuState::Unknown));
    let (all, lost) = (of(|_| true), job.lost_gpus);
    let known = f64::from(all - unknown);
    let share = (known > 0.0).then(|| (known - lost) / known);
    let meaning = if lost > 0.0 { Meaning::Bad } else { Meaning::Good };
    let text = format!("  {} %", format::whole_percent(share));
    spans.push(Span::styled(text, theme.style(meaning)));
    spans.push(Span::raw(format!("   {} of {all} GPUs lost", format::gpus(lost))));
    spans
}

/// What was lost in the past that is kept, by what the GPUs did instead.
fn causes(job: &JobDetail, theme: Theme) -> Vec<Span<'static>> {
    let past = &job.past;
    let span = format::span(Duration::from_millis(past.span_ms));
    let mut spans = Vec::new();
    for time in &past.lost {
        let text = format!("{} {:.2} GPU·h  ", theme::state_words(time.state), time.gpu_hours);
        spans.push(Span::styled(text, theme.state(time.state)));
    }
    if spans.is_empty() {
        spans.push(Span::styled("nothing", theme.style(Meaning::Good)));
        spans.push(Span::raw("  "));
    }
    spans.push(Span::styled(format!("in the last {span}"), theme.style(Meaning::Dim)));
    spans
}

fn strips(job: &JobDetail, state: &State, area: Rect, theme: Theme) -> (Vec<Line<'static>>, Room) {
    let past = &job.past;
    let room = usize::from(area.width).saturating_sub(NAME + 2 + 20).max(10);
    let points = past.most.chars().count().min(room);
    let span = format::span(Duration::from_millis(past.step_ms * points as u64));
    let mut lines = vec![Line::from(vec![
        Span::styled(format!(" {:<NAME$}", "STANDS OUT"), theme.style(Meaning::Title)),
        Span::styled(format!("the last {span}, now at the right"), theme.style(Meaning::Dim)),
    ])];
    let mut most = vec![Span::styled(
        format!(" {}", format::left("most of its GPUs", NAME)),
        theme.style(Meaning::Dim),
    )];
    most.extend(strip(&past.most, points, theme));
    lines.push(Line::from(most));
    let page = usize::from(area.height).saturating_sub(2).max(1);
    let at = state.at.strips.index(past.strips.len(), |at| &past.strips[at].node);
    let from = window(at, past.strips.len(), page);
    let mut spots = Vec::new();
    for (row, one) in past.strips.iter().enumerate().skip(from).take(page) {
        let y = area.y + lines.len() as u16;
        spots.push(Spot { area: Rect { y, height: 1, ..area }, what: What::Row(row) });
        lines.push(named(one, row == at, points, theme));
    }
    (lines, Room { page, spots, ..Room::default() })
}

fn named(one: &Strip, chosen: bool, points: usize, theme: Theme) -> Line<'static> {
    let name = format::left(&format!("{} GPU {}", one.node, one.gpu), NAME);
    let style = if chosen { theme::selected(Style::new()) } else { Style::new() };
    let mut spans = vec![Span::raw(" "), Span::styled(name, style)];
    spans.extend(strip(&one.states, points, theme));
    if one.odd_ratio >= ODD {
        let text = format!("  ◂ {} % unlike most", format::whole_percent(Some(one.odd_ratio)));
        spans.push(Span::styled(text, theme.style(Meaning::Title)));
    }
    Line::from(spans)
}

/// The newest part of a strip; neighbours of one state are one span.
fn strip(states: &str, points: usize, theme: Theme) -> Vec<Span<'static>> {
    let skipped = states.chars().count().saturating_sub(points);
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut last = None;
    for code in states.chars().skip(skipped) {
        let state = GpuState::from_code(code).unwrap_or(GpuState::Unknown);
        let sign = theme::state_sign(state);
        match spans.last_mut() {
            Some(span) if last == Some(state) => span.content.to_mut().push_str(sign),
            _ => spans.push(Span::styled(sign, theme.state(state))),
        }
        last = Some(state);
    }
    spans
}
