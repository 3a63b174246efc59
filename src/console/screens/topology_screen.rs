//! Topology screen of a node: each GPU, its nearest port and the leaf of that port, with live load.

use gaunt_schema::{
    DeviceClass, GpuState, SanitizedText,
    catalogue::{gpu, port},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use crate::{
    console_state::{ConsoleState, ScreenLayout},
    display_text,
    key_binding::{BACK, KeyBinding, NODE_KEYS},
    screen::TopologyScreen,
    screen_view::ScreenView,
    theme::{StyleRole, Theme},
    view::{draw_page, node_details, node_tables},
};
use gaunt_api::DeviceDetail;

/// Columns of the load bar of an edge.
const EDGE: usize = 10;
/// Minimum width for the load bars; a narrower screen has all columns but the bars, under headings.
const WITH_BARS: usize = 104;
/// Minimum width for the names of the GPU states.
const WITH_STATES: usize = 80;

impl ScreenView for TopologyScreen {
    fn header_title(&self) -> String {
        format!("{} topology", self.0)
    }

    fn keys(&self) -> &'static [&'static [KeyBinding]] {
        &[&[BACK], NODE_KEYS]
    }

    fn node_name(&self) -> Option<&SanitizedText> {
        Some(&self.0)
    }

    fn copied_name(&self) -> String {
        self.0.to_string()
    }

    /// Draws a line for each GPU and its ports, then the ports without a GPU.
    ///
    /// ```text
    ///  gpu003  live, age 0.4s   8 GPUs lost   3,412 W   job 8812
    ///
    ///  TOPOLOGY   GPU ─ NVLink in ─ PCIe in ─ port ─ load in/out ─ leaf
    ///  GPU 5  ░ waiting  ─ 12.1 Gb/s ─ 3.2 Gb/s ─ mlx5_5/1  ━━━━────── 41/40 % ─ leaf-07 r5
    /// ```
    fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout {
        let Some(detail) = state.node_detail(&self.0).filter(|_| state.data.refused.is_none())
        else {
            return self.draw_waiting(buffer, area, &self.0, state, theme);
        };
        let width = usize::from(area.width);
        let mut lines = vec![node_details::render_headline(detail, theme), Line::default()];
        lines.push(render_heading(width, theme));
        let gpus: Vec<&DeviceDetail> = node_tables::of(detail, DeviceClass::Gpu).collect();
        let ports: Vec<&DeviceDetail> = node_tables::of(detail, DeviceClass::Port).collect();
        let mut unpaired: Vec<&DeviceDetail> = ports.clone();
        let has_near_port =
            |gpu: &&DeviceDetail| ports.iter().any(|port| is_near(gpu, port, false));
        let by_rail = !gpus.iter().any(has_near_port);
        for gpu in &gpus {
            let nearest: Vec<&DeviceDetail> =
                ports.iter().copied().filter(|port| is_near(gpu, port, by_rail)).collect();
            unpaired.retain(|port| !nearest.iter().any(|other| other.name == port.name));
            let mut gpu_spans =
                vec![Span::raw(format!(" {} ", display_text::align_left(&gpu.name, 6)))];
            gpu_spans.extend(render_gpu(gpu, width, theme));
            let indent = gpu_spans.iter().map(Span::width).sum::<usize>();
            if nearest.is_empty() {
                gpu_spans.push(Span::styled(
                    format!("{}nearest port not reported", separator(width)),
                    theme.style_for(StyleRole::Dim),
                ));
                lines.push(Line::from(gpu_spans));
                continue;
            }
            for (at, port) in nearest.iter().enumerate() {
                let mut spans = if at == 0 {
                    std::mem::take(&mut gpu_spans)
                } else {
                    vec![Span::raw(" ".repeat(indent))]
                };
                spans.extend(render_port(port, indent, width, theme));
                lines.push(Line::from(spans));
            }
        }
        if by_rail && unpaired.len() < ports.len() {
            let text = "   paired by rail number: no target reports which port is near which GPU";
            lines.push(Line::styled(text, theme.style_for(StyleRole::Dim)));
        }
        if !unpaired.is_empty() {
            lines.push(Line::default());
            lines.push(Line::styled(" OTHER PORTS", theme.style_for(StyleRole::Title)));
            lines
                .extend(unpaired.iter().map(|port| Line::from(render_port(port, 0, width, theme))));
        }
        if gpus.is_empty() && ports.is_empty() {
            let text = "   no GPU and no RDMA port on this node";
            lines.push(Line::styled(text, theme.style_for(StyleRole::Dim)));
        }
        draw_page(buffer, area, &lines, state.scroll, theme)
    }
}

/// Returns whether a port is nearest to a GPU, as reported for either of them. If the node does not report it at all,
/// the rail of a port is taken as the index of its GPU, which is the most common topology.
fn is_near(gpu: &DeviceDetail, port: &DeviceDetail, by_rail: bool) -> bool {
    let info_label = |device: &DeviceDetail, series: &str, label: &str| {
        let value = device.info.get(series).and_then(|labels| labels.get(label));
        value.filter(|value| !value.is_empty()).cloned()
    };
    if by_rail {
        let rail = info_label(port, port::INFO.catalogue_row().name, "rail");
        return rail.is_some() && rail == gpu.labels.get("gpu").cloned();
    }
    let list_contains = |list: Option<SanitizedText>, wanted: &str| {
        list.is_some_and(|list| list.split([',', ' ', ';']).any(|part| part == wanted))
    };
    let bus = info_label(gpu, gpu::INFO.catalogue_row().name, "pci_bus_id");
    let device = port.labels.get("device").map_or("", SanitizedText::as_str);
    list_contains(info_label(gpu, gpu::INFO.catalogue_row().name, "nics"), device)
        || bus.is_some_and(|bus| {
            list_contains(
                info_label(port, port::INFO.catalogue_row().name, "gpu_pci_bus_ids"),
                &bus,
            )
        })
}

/// Returns the separator of two columns.
const fn separator(width: usize) -> &'static str {
    if width >= WITH_BARS { " ─ " } else { " " }
}

/// Returns the columns of a GPU's state.
const fn state_width(width: usize) -> usize {
    match width {
        WITH_BARS.. => 20,
        WITH_STATES.. => 19,
        _ => 1,
    }
}

/// Renders the order of the columns, or on a narrow screen their headings.
fn render_heading(width: usize, theme: Theme) -> Line<'static> {
    let (title, text) = if width >= WITH_BARS {
        let text = "   GPU ─ NVLink in ─ PCIe in ─ port ─ load in/out ─ leaf, rail".to_owned();
        (" TOPOLOGY".to_owned(), text)
    } else {
        let names = ["NVLink in", "PCIe in", "port", "in/out %"];
        let [nvlink, pcie, port, load] = names;
        let text = format!(" {nvlink:>9} {pcie:>9} {port:<10} {load:<9} leaf, rail");
        (display_text::align_left(" TOPOLOGY", 8 + state_width(width)), text)
    };
    Line::from(vec![
        Span::styled(title, theme.style_for(StyleRole::Title)),
        Span::styled(text, theme.style_for(StyleRole::Dim)),
    ])
}

fn render_gpu(device: &DeviceDetail, width: usize, theme: Theme) -> Vec<Span<'static>> {
    let state = device.state.unwrap_or(GpuState::Unknown);
    let doing = node_tables::render_gpu_state(state, theme);
    let columns = state_width(width);
    let text: String = match columns {
        1 => doing.content.chars().take(1).collect(),
        _ => display_text::align_left(&doing.content, columns),
    };
    let rate = |metric| {
        let rate = node_tables::metric_rate(device, metric);
        format!(
            "{}{:>9}",
            separator(width),
            rate.map_or_else(
                || display_text::ABSENT.into(),
                |rate| theme.units().format_rate(rate)
            )
        )
    };
    vec![
        Span::styled(text, doing.style),
        Span::raw(rate(gpu::NVLINK_RECEIVE)),
        Span::raw(rate(gpu::PCIE_RECEIVE)),
    ]
}

/// Renders a port from the column `indent` on: its load, and what it is connected to, shortened to the screen.
fn render_port(
    device: &DeviceDetail,
    indent: usize,
    width: usize,
    theme: Theme,
) -> Vec<Span<'static>> {
    let line = node_tables::port_table::full_rate(device);
    let share = |metric| {
        node_tables::metric_rate(device, metric)
            .zip(line)
            .map(|(rate, line)| (rate / line).clamp(0.0, 1.0))
    };
    let (received, sent) = (share(port::RECEIVE_BYTES), share(port::TRANSMIT_BYTES));
    let busier = received.into_iter().chain(sent).reduce(f64::max);
    let (word, style) = node_tables::port_table::render_port_state(device, theme);
    let active = word == "active";
    let filled = busier.map_or(0, |share| (share * EDGE as f64).round() as usize);
    let port_label = |label: &str| {
        let labels = device.info.get(port::INFO.catalogue_row().name);
        labels.and_then(|labels| labels.get(label)).filter(|value| !value.is_empty())
    };
    let leaf = port_label("leaf").map_or_else(|| "leaf unknown".to_owned(), ToString::to_string);
    let rail = port_label("rail").map_or_else(String::new, |rail| format!(" r{rail}"));
    let load = if active {
        format!(
            " {:>3}/{:<3} %",
            display_text::format_whole_percent(received),
            display_text::format_whole_percent(sent)
        )
    } else {
        format!(" {word:<9}")
    };
    let edge = if active { theme.style_for(StyleRole::Neutral) } else { style };
    let gap = separator(width);
    let mut spans = vec![Span::raw(format!("{gap}{}", display_text::align_left(&device.name, 10)))];
    if width >= WITH_BARS {
        spans.push(Span::styled(format!(" {}", "━".repeat(filled)), edge));
        spans.push(Span::styled("─".repeat(EDGE - filled), theme.style_for(StyleRole::Dim)));
    }
    spans.push(Span::styled(load, if active { Style::new() } else { style }));
    let used = indent + spans.iter().map(Span::width).sum::<usize>();
    let place =
        display_text::truncate_text(&format!("{gap}{leaf}{rail}"), width.saturating_sub(used));
    spans.push(Span::styled(place, theme.style_for(StyleRole::Dim)));
    spans
}
