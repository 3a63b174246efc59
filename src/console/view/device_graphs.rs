//! Graphs of a GPU or port: which metrics are drawn, with which limit and scale, small beside each other.

use gaunt_schema::{
    DeviceClass, MetricId,
    catalogue::{gpu, port},
    unit::MetricKind,
};
use ratatui::{
    style::Style,
    text::{Line, Span},
};

use super::{
    axis_graph,
    node_tables::{self, port_table},
};
use crate::{
    display_text,
    display_units::DisplayUnits,
    theme::{self, StyleRole, Theme},
    widget::graph,
};
use gaunt_api::{DeviceDetail, field::shown_unit};

/// The narrowest graph with a readable shape.
const NARROW: usize = 34;
/// Lines of a graph if there is space, without its title.
const TALL: usize = 8;

/// One graph of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphMetric {
    /// The metric.
    pub(crate) metric: MetricId,
    /// Its short name.
    pub(crate) name: &'static str,
    /// The metric that states its limit.
    limit: Option<MetricId>,
}

const fn graph_of(metric: MetricId, name: &'static str, limit: Option<MetricId>) -> GraphMetric {
    GraphMetric { metric, name, limit }
}

/// Graphs of a GPU, the most important first.
const GPU: [GraphMetric; 10] = [
    graph_of(gpu::UTILIZATION, "utilization", None),
    graph_of(gpu::POWER, "power", Some(gpu::POWER_LIMIT)),
    graph_of(gpu::SM_ACTIVE, "SM active", None),
    graph_of(gpu::TENSOR_ACTIVE, "tensor active", None),
    graph_of(gpu::SM_CLOCK, "SM clock", Some(gpu::SM_CLOCK_MAX)),
    graph_of(gpu::TEMPERATURE, "temperature", None),
    graph_of(gpu::MEMORY_USED, "memory used", Some(gpu::MEMORY_TOTAL)),
    graph_of(gpu::DRAM_ACTIVE, "memory active", None),
    graph_of(gpu::NVLINK_RECEIVE, "NVLink in", None),
    graph_of(gpu::PCIE_RECEIVE, "PCIe in", None),
];

/// Graphs of a port.
const PORT: [GraphMetric; 8] = [
    graph_of(port::RECEIVE_BYTES, "in", Some(port::RATE)),
    graph_of(port::TRANSMIT_BYTES, "out", Some(port::RATE)),
    graph_of(port::ECN_MARKED, "ECN marks/s", None),
    graph_of(port::CNP_HANDLED, "CNP handled/s", None),
    graph_of(port::TRANSMIT_WAIT, "transmit wait/s", None),
    graph_of(port::SYMBOL_ERRORS, "symbol errors/s", None),
    graph_of(port::LINK_DOWNED, "link downs/s", None),
    graph_of(port::TRANSMIT_DISCARDS, "discards/s", None),
];

/// Returns the graphs of a device for which points are known.
pub(crate) fn recorded_graphs(device: &DeviceDetail) -> Vec<GraphMetric> {
    let all: &[GraphMetric] = if device.class == DeviceClass::Gpu { &GPU } else { &PORT };
    let recorded = |one: &&GraphMetric| !device.recent_points(&one.metric.series_key()).is_empty();
    all.iter().filter(recorded).copied().collect()
}

/// Returns the graph of a metric by its key.
pub(crate) fn find_graph(class: DeviceClass, key: &str) -> Option<GraphMetric> {
    let all: &[GraphMetric] = if class == DeviceClass::Gpu { &GPU } else { &PORT };
    all.iter().find(|one| one.metric.series_key() == key).copied()
}

impl GraphMetric {
    /// Returns the limit of the device, in the unit of the points.
    pub(crate) fn limit_value(self, device: &DeviceDetail) -> Option<f32> {
        let limit = match self.limit? {
            port::RATE => port_table::usable_rate(device)? as f32,
            limit => device.last_value(&limit.series_key())? as f32,
        };
        (limit.is_finite() && limit > 0.0).then_some(limit)
    }

    /// Returns the current value: of a counter its rate.
    pub(crate) fn current_value(self, device: &DeviceDetail) -> Option<f64> {
        let key = self.metric.series_key();
        match self.metric.catalogue_row().kind {
            MetricKind::Counter(_) => device.rates.get(&key).copied(),
            _ => device.last_value(&key),
        }
    }

    /// Returns the unit of the points.
    pub(crate) fn unit(self) -> gaunt_schema::unit::Unit {
        let row = self.metric.catalogue_row();
        shown_unit(row.kind, row.unit)
    }

    /// Returns the value at the upper edge: the limit, or a round number above all points.
    pub(crate) fn scale_top(self, largest: f32, limit: Option<f32>) -> f32 {
        match limit {
            Some(limit) if largest <= limit => limit,
            _ => axis_graph::choose_top(largest.max(limit.unwrap_or(0.0)), self.unit()),
        }
    }

    /// Renders the current value, or why it is absent.
    pub(crate) fn render_current(self, device: &DeviceDetail, units: DisplayUnits) -> String {
        let key = self.metric.series_key();
        let reason = device.values.get(&key).and_then(|reading| reading.absence_reason());
        self.current_value(device).map_or_else(
            || node_tables::absence_label(reason).to_owned(),
            |now| units.format_value(now, self.unit()),
        )
    }
}

/// Number of graphs beside each other.
pub(crate) fn graphs_per_row(count: usize, width: usize) -> usize {
    (width / NARROW).clamp(1, 4).min(count.max(1))
}

/// One graph: its title and its lines.
struct SmallGraph {
    title: Line<'static>,
    lines: Vec<String>,
    style: Style,
}

/// Renders as many graphs as fit, side by side and below each other; the row of the chosen one is always there.
pub(crate) fn render_graphs(
    device: &DeviceDetail,
    chosen: usize,
    width: usize,
    height: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let recorded = recorded_graphs(device);
    if recorded.is_empty() {
        let text = " no history of this device";
        return vec![Line::styled(text, theme.style_for(StyleRole::Dim)), Line::default()];
    }
    let per_row = graphs_per_row(recorded.len(), width);
    let graph_width = width.saturating_sub(1) / per_row - 2;
    let rows = recorded.len().div_ceil(per_row);
    // Show all graphs in few lines, or fewer graphs with a readable shape.
    let graph_height = (height / rows).saturating_sub(2).clamp(1, TALL);
    let fits = rows.min(height / (graph_height + 2)).max(1);
    let first = (chosen / per_row + 1).saturating_sub(fits).min(rows - fits);
    let mut lines = Vec::new();
    for (at, row) in recorded.chunks(per_row).enumerate().skip(first).take(fits) {
        let row: Vec<SmallGraph> = row
            .iter()
            .enumerate()
            .map(|(column, one)| {
                let is_chosen = at * per_row + column == chosen;
                render_small_graph(device, *one, is_chosen, graph_width, graph_height, theme)
            })
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

/// Renders a graph with its current value and its limit, or else the upper end of its scale.
fn render_small_graph(
    device: &DeviceDetail,
    one: GraphMetric,
    is_chosen: bool,
    columns: usize,
    height: usize,
    theme: Theme,
) -> SmallGraph {
    let unit = one.unit();
    let points = device.recent_points(&one.metric.series_key());
    let largest = points.iter().flatten().copied().filter(|v| v.is_finite()).fold(0.0, f32::max);
    let limit = one.limit_value(device);
    let top = one.scale_top(largest, limit);
    let text = one.render_current(device, theme.units());
    let number = |value: f32| theme.units().format_value(f64::from(value), unit);
    let edge = match limit {
        Some(limit) => format!("  limit {}", number(limit)),
        None if largest <= 0.0 => String::new(),
        None => format!("  scale 0 to {}", number(top)),
    };
    let used = display_text::text_width(one.name) + 2 + display_text::text_width(&text);
    let edge = if used + edge.len() > columns { String::new() } else { edge };
    let name = theme.style_for(StyleRole::Title);
    let name = if is_chosen { theme::selected_style(name) } else { name };
    SmallGraph {
        title: Line::from(vec![
            Span::styled(one.name, name),
            Span::raw("  "),
            Span::raw(text),
            Span::styled(edge, theme.style_for(StyleRole::Dim)),
        ]),
        lines: graph::render_graph(points, Some(top), columns, height, theme.is_ascii()),
        style: theme.style_for(StyleRole::Neutral),
    }
}
