//! Device screen: labels, current values and history graphs of one GPU or port.

use std::time::Duration;

use gaunt_schema::{DeviceClass, Entity, EntityKind, GpuState, SanitizedText};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use crate::{
    action::KeyIntent,
    console_state::{ConsoleState, ScreenLayout},
    cursor_rows, display_text,
    key_binding::{BACK, KeyBinding, NODE_KEYS, OPEN},
    screen::{DeviceScreen, GraphScreen, Screen},
    screen_view::{ScreenCommand, ScreenOutcome, ScreenView},
    theme::{StyleRole, Theme},
    view::{device_graphs, draw_lines, event_rows, node_details, node_tables, render_titled_line},
};
use gaunt_api::{DeviceDetail, Finding};

/// Most findings above the graphs.
const FINDINGS: usize = 2;
/// Most lines of labels.
const LABEL_LINES: usize = 4;
/// Number of events below the graphs.
const EVENTS: usize = 6;

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
        &[&[OPEN, BACK], NODE_KEYS]
    }

    fn node_name(&self) -> Option<&SanitizedText> {
        Some(&self.0)
    }

    /// Opens the graph under the cursor over the whole screen.
    fn item_target(&self, state: &ConsoleState) -> Option<Screen> {
        let Self(node, class, name) = self;
        let graphs = device_graphs::recorded_graphs(self.device(state)?);
        let chosen = graphs.get(state.cursors.graph.min(graphs.len().checked_sub(1)?))?;
        let key = SanitizedText::new(&chosen.metric.series_key());
        Some(GraphScreen(node.clone(), *class, name.clone(), key).into())
    }

    fn handle_intent(&self, state: &mut ConsoleState, intent: KeyIntent) -> ScreenOutcome {
        let graphs = self.device(state).map_or(0, |it| device_graphs::recorded_graphs(it).len());
        let per_row = device_graphs::graphs_per_row(graphs, state.layout.heat_row);
        let by = cursor_rows::step_size(state, intent, per_row as isize, 1);
        let last = graphs.saturating_sub(1);
        let at = &mut state.cursors.graph;
        *at = (*at).min(last).saturating_add_signed(by).min(last);
        ScreenOutcome::Redraw
    }

    /// Draws the device screen.
    ///
    /// ```text
    ///  gpu003  live, age 0.4s   8 GPUs lost   3,412 W   job 8812
    ///  gpu003 GPU 5   ░ waiting   job llama-pt   H100-SXM   GPU-1234…
    ///  utilization  100.0 %  scale 0 to 100.0 %   power  312 W  limit 700 W
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
        let Self(node, _, name) = self;
        let answered = state.node_detail(node).filter(|_| state.data.refused.is_none());
        let Some(detail) = answered else {
            return self.draw_waiting(buffer, area, node, state, theme);
        };
        let Some(device) = self.device(state) else {
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
        let findings = detail.findings.iter().filter(|finding| self.is_concerned(finding, device));
        for finding in findings.take(FINDINGS) {
            let gpu = name.strip_prefix("GPU ").filter(|_| device.class == DeviceClass::Gpu);
            let waits = gpu.is_some() && node_details::waits_for(finding, node, gpu);
            lines.extend(node_details::render_finding(finding, waits, detail.at, width, theme));
        }
        lines.push(Line::default());
        let happened = event_rows::render_device_events(detail, name, EVENTS, width, theme);
        let left = usize::from(area.height).saturating_sub(lines.len() + happened.len());
        let chosen = state.cursors.graph;
        lines.extend(device_graphs::render_graphs(device, chosen, width, left, theme));
        lines.extend(happened);
        draw_lines(buffer, area, &lines);
        let page = usize::from(area.height);
        ScreenLayout { page, heat_row: width, ..ScreenLayout::default() }
    }
}

impl DeviceScreen {
    /// Returns whether a finding of the node names this device, as its cause or as a victim, or the node of this GPU, or
    /// if this GPU loses time, the node or a job as a victim.
    fn is_concerned(&self, finding: &Finding, device: &DeviceDetail) -> bool {
        let Self(node, class, name) = self;
        let is_this = |entity: &Entity| {
            let part = match class {
                DeviceClass::Gpu => entity.gpu.as_ref().map(|gpu| format!("GPU {gpu}")),
                _ => entity
                    .device
                    .as_ref()
                    .zip(entity.port.as_ref())
                    .map(|(d, p)| format!("{d}/{p}")),
            };
            entity.node.as_ref() == Some(node) && part.as_deref() == Some(name.as_str())
        };
        let cause = &finding.entity;
        let is_node = cause.kind == EntityKind::Node && cause.node.as_ref() == Some(node);
        let loses = device.state.is_some_and(GpuState::is_lost_time);
        let is_whole = |victim: &Entity| {
            victim.job.is_some()
                || victim.kind == EntityKind::Node && victim.node.as_ref() == Some(node)
        };
        is_this(cause)
            || finding.victims.iter().any(is_this)
            || (loses && finding.victims.iter().any(is_whole))
            || (*class == DeviceClass::Gpu && is_node)
    }

    fn device<'a>(&self, state: &'a ConsoleState) -> Option<&'a DeviceDetail> {
        let detail = state.node_detail(&self.0)?;
        detail.devices.iter().find(|device| device.class == self.1 && device.name == self.2)
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
    let columns = width.saturating_sub(12);
    let mut groups = Vec::new();
    for labels in device.info.values() {
        let non_empty = labels.iter().filter(|(_, value)| !value.is_empty());
        let text = non_empty.map(|(label, value)| format!("{label} {value}"));
        groups.extend(text.flat_map(|text| display_text::wrap_text(&text, columns)));
    }
    let text = display_text::join_groups(&groups, "   ", columns);
    let titles = std::iter::once("LABELS").chain(std::iter::repeat(""));
    let style = theme.style_for(StyleRole::Dim);
    titles
        .zip(text.into_iter().take(LABEL_LINES))
        .map(|(title, line)| render_titled_line(title, vec![Span::styled(line, style)], theme))
        .collect()
}
