//! What stands beside the heat map: the node under its cursor, in few lines.

use gaunt_schema::Class;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use super::{node_tables, nodes, put};
use crate::console::{
    format,
    state::State,
    theme::{self, Meaning, Theme},
    widget::spark,
};

/// Draws the node under the cursor.
///
/// ```text
///  gpu003   live   8 GPUs lost   job 8812
///  ✖ port_down  mlx5_1/1
///  GPU 0  ░ waiting for peers   ▇▇▇▇▇▇▇▇▇▇  180 W
///  PORTS  7 of 8 active
/// ```
pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, theme: Theme) {
    let Some(name) = state.heat_node() else { return };
    let mut lines = vec![Line::styled(format!(" {name}"), theme.style(Meaning::Title))];
    let Some(detail) = state.node(name) else {
        lines.push(Line::styled(" reading it …", theme.style(Meaning::Dim)));
        return put(buffer, area, &lines);
    };
    let line = &detail.line;
    let (fresh, style) = nodes::freshness(line, theme);
    lines[0].push_span(Span::styled(format!("   {fresh}"), style));
    if line.lost_gpus > 0.0 {
        let text = format!("   {} GPUs lost", format::gpus(line.lost_gpus));
        lines[0].push_span(Span::styled(text, theme.style(Meaning::Bad)));
    }
    let jobs: Vec<&str> = line.jobs.iter().map(gaunt_schema::Safe::as_str).collect();
    if !jobs.is_empty() {
        lines[0].push_span(Span::raw(format!("   job {}", jobs.join(", "))));
    }
    for finding in &detail.findings {
        let sign = theme::severity_sign(finding.severity);
        let text = format!(" {sign} {}  {}", finding.kind, finding.entity);
        lines.push(Line::styled(text, theme.severity(finding.severity)));
    }
    let past = usize::from(area.width).saturating_sub(42).min(30);
    for gpu in node_tables::of(detail, Class::Gpu) {
        let doing = gpu.state.map(|state| super::device::doing(state, theme));
        let doing = doing.unwrap_or_else(|| Span::raw(format::ABSENT));
        let pad = " ".repeat(22_usize.saturating_sub(doing.width()));
        let busy = gpu.past(node_tables::key(gaunt_schema::catalogue::gpu::UTILIZATION));
        let power = gpu.value(node_tables::key(gaunt_schema::catalogue::gpu::POWER));
        lines.push(Line::from(vec![
            Span::raw(format!(" {} ", format::left(&gpu.name, 7))),
            doing,
            Span::raw(pad),
            Span::styled(spark::line(busy, Some(1.0), past), theme.style(Meaning::Neutral)),
            Span::raw(format!("  {:>4} W", format::whole(power))),
        ]));
    }
    let (active, ports) = line.ports;
    if ports > 0 {
        let meaning = if active < ports { Meaning::Bad } else { Meaning::Dim };
        let text = format!(" PORTS  {active} of {ports} active");
        lines.push(Line::styled(text, theme.style(meaning)));
    }
    lines.push(Line::styled(" Enter opens it", theme.style(Meaning::Dim)));
    put(buffer, area, &lines);
}
