//! Details of a node: headline, findings, devices, host and the sources of its values.

use gaunt_schema::{
    DeviceClass, SanitizedText, UnixMs,
    catalogue::{exporter, host},
};
use ratatui::text::{Line, Span};

use super::{
    INDENT,
    node_tables::{gpu_table, host_table as host_lines, port_table, probe_table},
    render_titled_line, worst_nodes,
};
use crate::{
    display_text,
    theme::{self, StyleRole, Theme},
};
use gaunt_api::{Finding, NodeDetail, TargetState, finding_place};

/// Maximum clock difference that counts as none: the precision of one scrape.
const SKEW_MS: u64 = 500;

/// Renders the devices of a node and the state of its scrape, each line with the index of its device among those that
/// can be opened; also used for the lower part of the overview of a single node.
pub(crate) fn render_body(
    detail: &NodeDetail,
    width: usize,
    chosen: Option<usize>,
    theme: Theme,
) -> Vec<(Line<'static>, Option<usize>)> {
    let count = detail.devices.iter().filter(|device| device.class == DeviceClass::Gpu).count();
    let mut lines = Vec::new();
    for (number, line) in gpu_table::render_gpus(detail, width, theme).into_iter().enumerate() {
        lines.push((line, number.checked_sub(1).filter(|_| count > 0)));
    }
    // A blank line and the heading precede the ports.
    for (number, line) in port_table::render_ports(detail, width, theme).into_iter().enumerate() {
        lines.push((line, number.checked_sub(2).map(|row| count + row)));
    }
    for (line, row) in &mut lines {
        if let (Some(chosen), true) = (line.spans.get_mut(1), row.is_some() && *row == chosen) {
            chosen.style = theme::selected_style(chosen.style);
        }
    }
    let others = port_table::render_netdevs(detail, width, theme)
        .into_iter()
        .chain(host_lines::render_host(detail, width, theme))
        .chain(probe_table::render_probes(detail, width, theme))
        .chain(render_sources(detail, width, theme));
    lines.extend(others.map(|line| (line, None)));
    lines
}

/// Renders the headline of the node, which is the same on all its screens.
pub(crate) fn render_headline(detail: &NodeDetail, theme: Theme) -> Line<'static> {
    let line = &detail.line;
    let (fresh, style) = worst_nodes::render_freshness(line, theme);
    let mut spans = vec![
        Span::styled(format!(" {}  ", line.node), theme.style_for(StyleRole::Title)),
        Span::styled(fresh, style),
    ];
    if let Some(age) = line.age_ms {
        spans.push(Span::raw(format!(", age {}", display_text::format_age(age))));
    }
    if line.lost_gpus > 0.0 {
        let lost = format!("   {} GPUs lost", display_text::format_gpu_count(line.lost_gpus));
        spans.push(Span::styled(lost, theme.style_for(StyleRole::Bad)));
    }
    if let Some(power) = line.power_watts.filter(|power| power.is_finite()) {
        spans
            .push(Span::raw(format!("   {} W", display_text::format_count(power.max(0.0) as u64))));
    }
    if !line.jobs.is_empty() {
        let jobs: Vec<&str> = line.jobs.iter().map(|job| &**job).collect();
        spans.push(Span::raw(format!("   job {}", jobs.join(", "))));
    }
    Line::from(spans)
}

/// Renders a finding of the node, with an arrow if it is about something else that the node or GPU waits for.
pub(crate) fn render_finding(
    finding: &Finding,
    waits: bool,
    at: UnixMs,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let (sign, style) = if waits {
        ("←", theme.style_for(StyleRole::Waiting))
    } else {
        (theme::severity_sign(finding.severity), theme.severity_style(finding.severity))
    };
    let lasted = display_text::format_duration(at.duration_since(finding.since));
    let mut lines = vec![Line::from(vec![
        Span::styled(format!(" {sign} {}", finding.kind), style),
        Span::raw(format!("  {}  since {lasted}", finding.entity)),
    ])];
    let wrap = |text: &str| {
        display_text::wrap_text(&SanitizedText::new(text), width.saturating_sub(4)).into_iter()
    };
    lines.extend(wrap(&finding.summary).map(|line| Line::raw(format!("   {line}"))));
    let dim = theme.style_for(StyleRole::Dim);
    let next = wrap(&format!("next: {}", finding.next));
    lines.extend(next.map(|line| Line::styled(format!("   {line}"), dim)));
    lines
}

/// Returns whether a finding is about something else that this node or GPU waits for.
pub(crate) fn waits_for(finding: &Finding, node: &str, gpu: Option<&str>) -> bool {
    let only = std::slice::from_ref(finding);
    finding_place::is_elsewhere(only, finding.kind.as_str(), node, gpu)
}

/// Renders the sources of the values: targets, versions, the node's clock, failing collectors.
fn render_sources(detail: &NodeDetail, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let has_gpus = detail.devices.iter().any(|device| device.class == DeviceClass::Gpu);
    let mut title = "SOURCE";
    let mut push = |text: String, meaning| {
        for line in display_text::wrap_text(&text, width.saturating_sub(INDENT + 1)) {
            lines.push(render_titled_line(
                title,
                vec![Span::styled(line, theme.style_for(meaning))],
                theme,
            ));
            title = "";
        }
    };
    for target in &detail.targets {
        let dialect = target.dialect.map_or("", |dialect| dialect.as_str());
        let took = target
            .duration_ms
            .filter(|ms| *ms >= 0.05)
            .map_or_else(String::new, |ms| format!(" in {ms:.1} ms"));
        let samples = display_text::format_count(target.samples);
        let base = format!("{} {dialect}", target.address);
        match (&target.message, target.state) {
            (Some(message), _) => push(format!("{base}: {message}"), StyleRole::Bad),
            (None, TargetState::Live) => {
                let fields = &target.rejected.fields;
                let unknown = match fields.unknown {
                    0 => String::new(),
                    unknown => {
                        let all = fields.known + unknown;
                        format!(", {unknown} of {all} fields not understood (gaunt doctor)")
                    }
                };
                push(format!("{base}, {samples} samples{took}{unknown}"), StyleRole::Plain);
            }
            (None, state) => push(format!("{base}: {}", state.as_str()), StyleRole::Dim),
        }
    }
    for collector in detail.devices.iter().filter(|device| device.class == DeviceClass::Collector) {
        // The GPU table already shows why there is no GPU.
        let is_shown = gpu_table::is_driver(collector) && !has_gpus;
        if let Some(message) = collector.collector_message().filter(|_| !is_shown) {
            // A collector without anything to collect is not a failure.
            let success = collector.last_value(exporter::COLLECTOR_SUCCESS.catalogue_row().name);
            let meaning = if success == Some(0.0) { StyleRole::Waiting } else { StyleRole::Dim };
            push(format!("{}: {message}", collector.name), meaning);
        }
    }
    if let Some(skew) = detail.clock_skew_ms.filter(|skew| skew.unsigned_abs() >= SKEW_MS) {
        push(format!("clock skew of the node: {skew:+} ms"), StyleRole::Waiting);
    }
    if let Some(text) = render_versions(detail) {
        push(text, StyleRole::Dim);
    }
    lines
}

fn render_versions(detail: &NodeDetail) -> Option<String> {
    let node = detail.devices.iter().find(|device| device.class == DeviceClass::Node)?;
    let labels = node.info.get(host::NODE_INFO.catalogue_row().name)?;
    let part = |label: &str, words: &str| {
        let value = labels.get(label).filter(|value| !value.is_empty());
        value.map(|value| format!("{words} {value}"))
    };
    let parts = [part("version", "gaunt-node"), part("kernel", "kernel")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
