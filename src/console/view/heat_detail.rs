//! Side pane of the heat map: a short summary of the node under the cursor.

use gaunt_schema::DeviceClass;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use super::{draw_lines, node_details, node_tables, worst_nodes};
use crate::{
    console_state::ConsoleState,
    display_text,
    theme::{StyleRole, Theme},
    widget::sparkline,
};

/// Draws the node under the cursor.
///
/// ```text
///  gpu003   live   8 GPUs lost   job 8812
///  ✖ port_down  mlx5_1/1
///  GPU 0  ░ waiting   ▇▇▇▇▇▇▇▇▇▇  180 W
///  PORTS  7 of 8 active
/// ```
pub(crate) fn draw(buffer: &mut Buffer, area: Rect, state: &ConsoleState, theme: Theme) {
    let Some(name) = state.heat_node() else { return };
    let mut lines = vec![Line::styled(format!(" {name}"), theme.style_for(StyleRole::Title))];
    let Some(detail) = state.node_detail(name) else {
        lines.push(Line::styled(" loading …", theme.style_for(StyleRole::Dim)));
        return draw_lines(buffer, area, &lines);
    };
    let line = &detail.line;
    let (fresh, style) = worst_nodes::render_freshness(line, theme);
    lines[0].push_span(Span::styled(format!("   {fresh}"), style));
    if line.lost_gpus > 0.0 {
        let text = format!("   {} GPUs lost", display_text::format_gpu_count(line.lost_gpus));
        lines[0].push_span(Span::styled(text, theme.style_for(StyleRole::Bad)));
    }
    let jobs: Vec<&str> = line.jobs.iter().map(gaunt_schema::SanitizedText::as_str).collect();
    if !jobs.is_empty() {
        lines[0].push_span(Span::raw(format!("   job {}", jobs.join(", "))));
    }
    for finding in &detail.findings {
        let waits = node_details::waits_for(finding, &line.node, None);
        lines.extend(
            node_details::render_finding(finding, waits, detail.at, area.width.into(), theme)
                .into_iter()
                .take(1),
        );
    }
    let graph_width = usize::from(area.width).saturating_sub(42).min(30);
    for gpu in node_tables::of(detail, DeviceClass::Gpu) {
        let doing = gpu.state.map(|state| node_tables::render_gpu_state(state, theme));
        let doing = doing.unwrap_or_else(|| Span::raw(display_text::ABSENT));
        let pad = " ".repeat(22_usize.saturating_sub(doing.width()));
        let busy =
            gpu.recent_points(node_tables::metric_key(gaunt_schema::catalogue::gpu::UTILIZATION));
        let power = gpu.last_value(node_tables::metric_key(gaunt_schema::catalogue::gpu::POWER));
        lines.push(Line::from(vec![
            Span::raw(format!(" {} ", display_text::align_left(&gpu.name, 7))),
            doing,
            Span::raw(pad),
            Span::styled(
                sparkline::render_sparkline(busy, Some(1.0), graph_width),
                theme.style_for(StyleRole::Neutral),
            ),
            Span::raw(format!("  {:>4} W", display_text::format_whole(power))),
        ]));
    }
    let (active, ports) = line.ports;
    if ports > 0 {
        let meaning = if active < ports { StyleRole::Bad } else { StyleRole::Dim };
        let text = format!(" PORTS  {active} of {ports} active");
        lines.push(Line::styled(text, theme.style_for(meaning)));
    }
    lines.push(Line::styled(" Enter: open", theme.style_for(StyleRole::Dim)));
    draw_lines(buffer, area, &lines);
}
