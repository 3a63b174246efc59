//! One node: who it is, what is wrong on it, its GPUs, ports and host with their recent past.

use gaunt_schema::{
    Class, Safe, UnixMs,
    catalogue::{exporter, host},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use super::{
    INDENT, hints,
    node_tables::{gpus, host as host_lines, ports, probe},
    nodes, put, put_page, titled,
};
use crate::{
    answer::{Finding, NodeDetail, TargetState},
    console::{
        format,
        state::{Room, Spot, State, What},
        theme::{self, Meaning, Theme},
        update::openable,
    },
};

/// A clock that differs by less than this agrees, as far as one scrape can tell.
const SKEW_MS: u64 = 500;

/// Draws the node that was opened.
///
/// ```text
///  gpu003  live, read 0.4s ago   8 GPUs lost   3,412 W   jobs: llama-pt
///          gaunt 127.1.0.3:9770   kernel 6.1.0   clock +2 ms
///  ✖ port_down  mlx5_1/1  6m10  port mlx5_1/1 of gpu003 is down: …
///  GPU  doing              busy %  last 2m     …
///  PORT      …
///  HOST      …
/// ```
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    state: &State,
    name: &Safe,
    theme: Theme,
) -> Room {
    let Some(detail) = state.node(name).filter(|_| state.data.refused.is_none()) else {
        put(buffer, area, &hints::waiting_for(name, state, area.width, theme));
        return Room::default();
    };
    let width = usize::from(area.width);
    let mut lines = vec![headline(detail, theme)];
    for finding in &detail.findings {
        lines.extend(finding_lines(finding, detail.at, width, theme));
    }
    lines.push(Line::default());
    let devices = openable(detail);
    let at = state.at.devices.index(devices.len(), |at| &devices[at].name);
    let body = body(detail, width, Some(at), theme);
    let chosen = lines.len() + body.iter().position(|(_, row)| *row == Some(at)).unwrap_or(0);
    // The cursor is seen, and what is above it as long as there is room.
    let below = usize::from(area.height).saturating_sub(2);
    let needed = chosen.saturating_sub(below);
    let from = needed + state.scroll;
    let head = lines.len();
    let mut spots = Vec::new();
    for (number, (line, row)) in body.into_iter().enumerate() {
        let place = (head + number).checked_sub(from).filter(|place| *place < below + 1);
        if let (Some(place), Some(row)) = (place, row) {
            let area = Rect { y: area.y + place as u16, height: 1, ..area };
            spots.push(Spot { area, what: What::Row(row) });
        }
        lines.push(line);
    }
    let room = put_page(buffer, area, &lines, from, theme);
    Room { hidden: room.hidden.saturating_sub(needed), spots, ..room }
}

/// The devices of a node and what is known about its reading, each line with the place of its device among those that
/// can be opened: also the lower part of a single box's overview.
pub(super) fn body(
    detail: &NodeDetail,
    width: usize,
    chosen: Option<usize>,
    theme: Theme,
) -> Vec<(Line<'static>, Option<usize>)> {
    let count = detail.devices.iter().filter(|device| device.class == Class::Gpu).count();
    let mut lines = Vec::new();
    for (number, line) in gpus::gpus(detail, width, theme).into_iter().enumerate() {
        lines.push((line, number.checked_sub(1).filter(|_| count > 0)));
    }
    // A blank line and the heading come before the ports.
    for (number, line) in ports::ports(detail, width, theme).into_iter().enumerate() {
        lines.push((line, number.checked_sub(2).map(|row| count + row)));
    }
    for (line, row) in &mut lines {
        if let (Some(chosen), true) = (line.spans.get_mut(1), row.is_some() && *row == chosen) {
            chosen.style = theme::selected(chosen.style);
        }
    }
    let others = ports::netdevs(detail, width, theme)
        .into_iter()
        .chain(host_lines::lines(detail, width, theme))
        .chain(probe::lines(detail, width, theme))
        .chain(origin(detail, width, theme));
    lines.extend(others.map(|line| (line, None)));
    lines
}

/// The node in a line, the same above everything that is shown of it.
pub(super) fn headline(detail: &NodeDetail, theme: Theme) -> Line<'static> {
    let line = &detail.line;
    let (fresh, style) = nodes::freshness(line, theme);
    let mut spans = vec![
        Span::styled(format!(" {}  ", line.node), theme.style(Meaning::Title)),
        Span::styled(fresh, style),
    ];
    if let Some(age) = line.age_ms {
        spans.push(Span::raw(format!(", read {} ago", format::age(age))));
    }
    if line.lost_gpus > 0.0 {
        let lost = format!("   {} GPUs lost", format::gpus(line.lost_gpus));
        spans.push(Span::styled(lost, theme.style(Meaning::Bad)));
    }
    if let Some(power) = line.power_watts.filter(|power| power.is_finite()) {
        spans.push(Span::raw(format!("   {} W", format::count(power.max(0.0) as u64))));
    }
    if !line.jobs.is_empty() {
        let jobs: Vec<&str> = line.jobs.iter().map(|job| &**job).collect();
        spans.push(Span::raw(format!("   job {}", jobs.join(", "))));
    }
    Line::from(spans)
}

fn finding_lines(finding: &Finding, at: UnixMs, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let severity = theme.severity(finding.severity);
    let sign = theme::severity_sign(finding.severity);
    let lasted = format::span(at.since(finding.since));
    let summary = format::cut(&Safe::new(&finding.summary), width.saturating_sub(4));
    let next = format::cut(&Safe::new(&finding.next), width.saturating_sub(10));
    vec![
        Line::from(vec![
            Span::styled(format!(" {sign} {}", finding.kind), severity),
            Span::raw(format!("  {}  since {lasted}", finding.entity)),
        ]),
        Line::raw(format!("   {summary}")),
        Line::styled(format!("   next: {next}"), theme.style(Meaning::Dim)),
    ]
}

/// Where the values come from: targets, versions, the node's clock, collectors in trouble.
fn origin(detail: &NodeDetail, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let has_gpus = detail.devices.iter().any(|device| device.class == Class::Gpu);
    let mut title = "SOURCE";
    let mut push = |text: String, meaning| {
        for line in format::wrap(&text, width.saturating_sub(INDENT + 1)) {
            lines.push(titled(title, vec![Span::styled(line, theme.style(meaning))], theme));
            title = "";
        }
    };
    for target in &detail.targets {
        let dialect = target.dialect.map_or("", |dialect| dialect.as_str());
        let took = target
            .duration_ms
            .filter(|ms| *ms >= 0.05)
            .map_or_else(String::new, |ms| format!(" in {ms:.1} ms"));
        let samples = format::count(target.samples);
        let base = format!("{} {dialect}", target.address);
        match (&target.message, target.state) {
            (Some(message), _) => push(format!("{base}: {message}"), Meaning::Bad),
            (None, TargetState::Live) => {
                push(format!("{base}, {samples} values{took}"), Meaning::Plain);
            }
            (None, state) => push(format!("{base}: {}", state.as_str()), Meaning::Dim),
        }
    }
    for collector in detail.devices.iter().filter(|device| device.class == Class::Collector) {
        // Why there is no GPU stands where the GPUs would.
        let said = gpus::is_driver(collector) && !has_gpus;
        if let Some(message) = collector.message().filter(|_| !said) {
            // Having nothing to collect is no trouble.
            let success = collector.value(exporter::COLLECTOR_SUCCESS.row().name);
            let meaning = if success == Some(0.0) { Meaning::Waiting } else { Meaning::Dim };
            push(format!("{}: {message}", collector.name), meaning);
        }
    }
    if let Some(skew) = detail.clock_skew_ms.filter(|skew| skew.unsigned_abs() >= SKEW_MS) {
        push(format!("the node's clock is {skew:+} ms from ours"), Meaning::Waiting);
    }
    if let Some(text) = software(detail) {
        push(text, Meaning::Dim);
    }
    lines
}

fn software(detail: &NodeDetail) -> Option<String> {
    let node = detail.devices.iter().find(|device| device.class == Class::Node)?;
    let labels = node.info.get(host::NODE_INFO.row().name)?;
    let part = |label: &str, words: &str| {
        let value = labels.get(label).filter(|value| !value.is_empty());
        value.map(|value| format!("{words} {value}"))
    };
    let parts = [part("version", "gaunt-node"), part("kernel", "kernel")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
