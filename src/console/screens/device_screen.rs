//! Device screen: labels, current values and history graphs of one GPU or port.

use std::time::Duration;

use gaunt_schema::{
    DeviceClass, MetricId, SanitizedText,
    catalogue::{gpu, port},
    unit::{MetricKind, Unit},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use crate::{
    console_state::{ConsoleState, ScreenLayout},
    display_text,
    key_binding::{BACK, KeyBinding, NODE_KEYS, OPEN},
    screen::{DeviceScreen, Screen, TopologyScreen},
    screen_view::{ScreenCommand, ScreenView},
    theme::{StyleRole, Theme},
    view::{draw_lines, event_rows, node_details, node_tables, render_titled_line},
    widget::graph,
};
use gaunt_api::{DeviceDetail, field::shown_unit};

/// The narrowest graph with a readable shape.
const NARROW: usize = 34;
/// Lines of a graph if there is space, without its title.
const TALL: usize = 8;
/// Number of events below the graphs.
const EVENTS: usize = 6;

/// Graphs of a GPU, the most important first, and the metric for the upper edge of each.
const GPU: [(MetricId, &str, Option<MetricId>); 10] = [
    (gpu::UTILIZATION, "utilization", None),
    (gpu::POWER, "power", Some(gpu::POWER_LIMIT)),
    (gpu::SM_ACTIVE, "SM active", None),
    (gpu::TENSOR_ACTIVE, "tensor active", None),
    (gpu::SM_CLOCK, "SM clock", Some(gpu::SM_CLOCK_MAX)),
    (gpu::TEMPERATURE, "temperature", None),
    (gpu::MEMORY_USED, "memory used", Some(gpu::MEMORY_TOTAL)),
    (gpu::DRAM_ACTIVE, "memory active", None),
    (gpu::NVLINK_RECEIVE, "NVLink in", None),
    (gpu::PCIE_RECEIVE, "PCIe in", None),
];

/// Graphs of a port.
const PORT: [(MetricId, &str, Option<MetricId>); 8] = [
    (port::RECEIVE_BYTES, "in", Some(port::RATE)),
    (port::TRANSMIT_BYTES, "out", Some(port::RATE)),
    (port::ECN_MARKED, "ECN marks/s", None),
    (port::CNP_HANDLED, "CNP handled/s", None),
    (port::TRANSMIT_WAIT, "transmit wait/s", None),
    (port::SYMBOL_ERRORS, "symbol errors/s", None),
    (port::LINK_DOWNED, "link downs/s", None),
    (port::TRANSMIT_DISCARDS, "discards/s", None),
];

impl ScreenView for DeviceScreen {
    fn commands() -> &'static [ScreenCommand] {
        const {
            &[ScreenCommand::other("gpu", "one GPU", |text| {
                let (node, gpu) = text
                    .rsplit_once(char::is_whitespace)
                    .ok_or("gpu needs a node and a number: gpu gpu003 5")?;
                Ok(DeviceScreen::of_gpu(SanitizedText::new(node.trim()), gpu).into())
            })
            .with_arguments("NODE GPU", "a node and a number", true)]
        }
    }

    fn header_title(&self) -> String {
        format!("{} {}", self.0, self.2)
    }

    fn keys(&self) -> &'static [&'static [KeyBinding]] {
        match self.1 {
            DeviceClass::Port => &[&[BACK], NODE_KEYS],
            _ => &[&[OPEN, BACK], NODE_KEYS],
        }
    }

    fn node_name(&self) -> Option<&SanitizedText> {
        Some(&self.0)
    }

    fn item_target(&self, _state: &ConsoleState) -> Option<Screen> {
        (self.1 == DeviceClass::Gpu).then(|| TopologyScreen(self.0.clone()).into())
    }

    /// Draws the device screen.
    ///
    /// ```text
    ///  gpu003  live, age 0.4s   8 GPUs lost   3,412 W   job 8812
    ///  gpu003 GPU 5   ░ waiting for peers   job llama-pt   H100-SXM   GPU-1234…
    ///  utilization  100.0 %  of 100.0 %           power  312 W             of 700 W
    ///  ⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿   ⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤⣤
    ///  EVENTS …
    /// ```
    fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout {
        let Self(node, class, name) = self;
        let answered = state.node_detail(node).filter(|_| state.data.refused.is_none());
        let Some(detail) = answered else {
            return self.draw_waiting(buffer, area, node, state, theme);
        };
        let is = |device: &&DeviceDetail| device.class == *class && device.name == *name;
        let Some(device) = detail.devices.iter().find(is) else {
            let text = format!(" {node} does not report {name}; Esc: back");
            draw_lines(
                buffer,
                area,
                &[Line::default(), Line::styled(text, theme.style_for(StyleRole::Bad))],
            );
            return ScreenLayout::default();
        };
        let width = usize::from(area.width);
        let mut lines = vec![
            node_details::render_headline(detail, theme),
            render_headline(node, device, theme),
        ];
        let longest = device.history.iter().map(|series| series.points.len()).max().unwrap_or(0);
        let span = display_text::format_duration(Duration::from_millis(
            detail.history_step_ms * longest as u64,
        ));
        let text = format!("   last {span}, newest at the right");
        lines[1].push_span(Span::styled(text, theme.style_for(StyleRole::Dim)));
        lines.extend(render_info_labels(device, width, theme));
        lines.push(Line::default());
        let happened = event_rows::render_device_events(detail, name, EVENTS, width, theme);
        let left = usize::from(area.height).saturating_sub(lines.len() + happened.len());
        lines.extend(render_graphs(device, width, left, theme));
        lines.extend(happened);
        draw_lines(buffer, area, &lines);
        ScreenLayout { page: usize::from(area.height), ..ScreenLayout::default() }
    }
}

fn render_headline(node: &SanitizedText, device: &DeviceDetail, theme: Theme) -> Line<'static> {
    let mut spans = vec![Span::styled(
        format!(" {node} {}   ", device.name),
        theme.style_for(StyleRole::Title),
    )];
    if let Some(state) = device.state {
        spans.push(node_tables::render_gpu_state(state, theme));
    } else if device.class == DeviceClass::Port {
        let (word, style) = node_tables::port_table::render_port_state(device, theme);
        spans.push(Span::styled(word, style));
    }
    Line::from(spans)
}

/// Renders the labels of the device's info series, in as many lines as needed.
fn render_info_labels(device: &DeviceDetail, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut words = Vec::new();
    for labels in device.info.values() {
        let non_empty = labels.iter().filter(|(_, value)| !value.is_empty());
        words.extend(non_empty.map(|(label, value)| format!("{label} {value}")));
    }
    if words.is_empty() {
        return Vec::new();
    }
    let text = display_text::wrap_text(&words.join("   "), width.saturating_sub(12));
    let titles = std::iter::once("LABELS").chain(std::iter::repeat(""));
    let style = theme.style_for(StyleRole::Dim);
    titles
        .zip(text.into_iter().take(3))
        .map(|(title, line)| render_titled_line(title, vec![Span::styled(line, style)], theme))
        .collect()
}

/// One graph: its title and its lines.
struct DeviceGraph {
    title: Line<'static>,
    lines: Vec<String>,
    style: ratatui::style::Style,
}

/// Renders as many graphs as fit, side by side and below each other.
fn render_graphs(
    device: &DeviceDetail,
    width: usize,
    height: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let candidates: &[(MetricId, &str, Option<MetricId>)] =
        if device.class == DeviceClass::Gpu { &GPU } else { &PORT };
    let recorded: Vec<_> = candidates
        .iter()
        .filter(|(metric, ..)| !device.recent_points(&metric.series_key()).is_empty())
        .collect();
    if recorded.is_empty() {
        let text = " no history of this device";
        return vec![Line::styled(text, theme.style_for(StyleRole::Dim)), Line::default()];
    }
    let per_row = (width / NARROW).clamp(1, 4).min(recorded.len());
    let graph_width = width.saturating_sub(1) / per_row - 2;
    let rows = recorded.len().div_ceil(per_row);
    // Show all graphs in few lines, or fewer graphs with a readable shape.
    let graph_height = (height / rows).saturating_sub(2).clamp(1, TALL);
    let rows = rows.min(height / (graph_height + 2)).max(1);
    let mut lines = Vec::new();
    for row in recorded.chunks(per_row).take(rows) {
        let row: Vec<DeviceGraph> = row
            .iter()
            .map(|one| render_metric_graph(device, one, graph_width, graph_height, theme))
            .collect();
        let mut title = vec![Span::raw(" ")];
        for graph in &row {
            let used = graph.title.width();
            title.extend(graph.title.spans.iter().cloned());
            title.push(Span::raw(" ".repeat((graph_width + 2).saturating_sub(used))));
        }
        lines.push(Line::from(title));
        for line in 0..graph_height {
            let mut spans = vec![Span::raw(" ")];
            for graph in &row {
                spans.push(Span::styled(graph.lines[line].clone(), graph.style));
                spans.push(Span::raw("  "));
            }
            lines.push(Line::from(spans));
        }
        lines.push(Line::default());
    }
    lines
}

fn render_metric_graph(
    device: &DeviceDetail,
    (metric, name, limit): &(MetricId, &str, Option<MetricId>),
    columns: usize,
    height: usize,
    theme: Theme,
) -> DeviceGraph {
    let row = metric.catalogue_row();
    let unit = shown_unit(row.kind, row.unit);
    let points = device.recent_points(&metric.series_key());
    let now = match row.kind {
        MetricKind::Counter(_) => device.rates.get(&metric.series_key()).copied(),
        _ => device.last_value(&metric.series_key()),
    };
    let largest = points.iter().flatten().copied().filter(|v| v.is_finite()).fold(0.0, f32::max);
    let limit = match (limit.and_then(|limit| device.last_value(&limit.series_key())), unit) {
        (Some(limit), _) => Some(limit),
        (None, Unit::Ratio) => Some(1.0),
        _ => None,
    };
    let top = limit.map_or(largest, |limit| (limit as f32).max(largest));
    let reading = device.values.get(&metric.series_key());
    let text = now.map_or_else(
        || {
            node_tables::absence_label(reading.and_then(|reading| reading.absence_reason()))
                .to_owned()
        },
        |now| display_text::format_with_unit(now, unit),
    );
    let edge = format!("  of {}", display_text::format_with_unit(f64::from(top), unit));
    let available = columns
        .saturating_sub(display_text::text_width(name) + 2 + display_text::text_width(&text));
    DeviceGraph {
        title: Line::from(vec![
            Span::styled(format!("{name}  "), theme.style_for(StyleRole::Title)),
            Span::raw(text),
            Span::styled(
                display_text::truncate_text(&edge, available),
                theme.style_for(StyleRole::Dim),
            ),
        ]),
        lines: graph::render_graph(points, Some(top), columns, height, theme.is_ascii()),
        style: theme.style_for(StyleRole::Neutral),
    }
}
