//! Overview screen: GPU time and losses, the worst findings with their cost and evidence, heat map, worst nodes.

use ratatui::{buffer::Buffer, layout::Rect, text::Line};

use super::{
    draw_lines, draw_page, findings_screen::FindingRenderer, fleet_summary, heat_detail, heat_map,
    node_screen, placeholders, worst_nodes,
};
use crate::{
    console_state::{ClickArea, ClickTarget, ConsoleState, OverviewPanel, ScreenLayout},
    display_text,
    theme::{StyleRole, Theme},
};
use gaunt_api::Overview;

/// Minimum width for the worst nodes beside the heat map.
const BESIDE: u16 = 140;
/// Columns of the worst nodes beside the heat map.
const WORST_WIDTH: u16 = 78;
/// Number of worst nodes below the heat map, as long as the map keeps enough lines.
const WORST_BELOW: usize = 4;
/// Minimum lines of the heat map, title included, before the worst nodes are dropped.
const HEAT_MIN: usize = 3;
/// Maximum number of lines about failed targets.
const TROUBLES: usize = 2;

/// Draws the panels in the order of reading. If there are too few lines, the heat map loses lines first, then the
/// worst nodes.
///
/// ```text
///  GPU TIME  ██████████████████████████▒▒▒▒▒▒░░░░░░░░░░░░ddddiii········
///            █ computing 64.1 %  ▒ communicating 9.8 %  ░ waiting for peers 15.2 %
///  LOST      2,071 of 10,000 GPUs (20.7 %)   $4,142/h   ▁▁▁▁▂▂▃▅▇▇▇▇▇▇▇▇  last 15m
/// ▸FINDINGS  3 open                                       since  GPUs lost  conf
///  ✖ port_down           gpu003 · mlx5_1/1                 6m10          8  97 %
///    port mlx5_1/1 of gpu003 is down: …
///  HEAT      one cell = one GPU
///  gpu001 ████████  gpu009 ████████  gpu017 ████████  gpu025 ████████
///  NODES             state       GPUs       lost  util %  finding
///  gpu003            live        ░░░░░░░░      8     100  port_down
///  ▲ 10.0.0.7:9770: cannot connect: connection refused; …
/// ```
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    state: &ConsoleState,
    overview: &Overview,
    theme: Theme,
) -> ScreenLayout {
    let width = usize::from(area.width);
    let mut lines = fleet_summary::render_summary(overview, width, theme);
    let troubles = overview.trouble.len().min(TROUBLES);
    let left = usize::from(area.height).saturating_sub(lines.len() + troubles);

    let focused = state.panel == OverviewPanel::Findings;
    let (findings, more) = state.overview_rows();
    let at = state.cursors.findings.row_index(findings.len(), |at| findings[at].row_key());
    let single = state.only_node().and_then(|name| state.node_detail(name));
    let selected = (focused && !findings.is_empty()).then_some(at);
    let rows = FindingRenderer { width, selected, at: overview.at, alerts: None, theme };
    let read = overview.nodes.live > 0;
    lines.push(rows.render_heading(
        overview.findings_open.into(),
        focused && single.is_none(),
        read,
    ));
    // At 80×24 this leaves the title and two rows for the map.
    let most = left.saturating_sub(1 + HEAT_MIN + 2).max(left / 2);
    let shown = rows.render_worst(&findings, more, rows.lines_needed(&findings, more).min(most));
    let mut spots = Vec::new();
    for (line, row) in shown {
        let y = area.y + lines.len() as u16;
        let area = Rect { y, height: 1, ..area };
        spots.extend(row.map(|row| ClickArea {
            area,
            target: ClickTarget::Panel(OverviewPanel::Findings, row),
        }));
        lines.push(line);
    }

    let used = lines.len().min(usize::from(area.height)) as u16;
    draw_lines(buffer, area, &lines);
    let rest = Rect { y: area.y + used, height: area.height - used, ..area };
    let rest = draw_failed_targets(buffer, rest, overview, troubles, theme);
    let counts = overview.nodes;
    if counts.live + counts.stale + counts.down == 0 {
        let lines = placeholders::render_empty_fleet(overview, area.width, theme);
        draw_lines(buffer, rest, &lines);
        return ScreenLayout { click_areas: spots, ..ScreenLayout::default() };
    }
    if let Some(detail) = single {
        let lines = node_screen::render_body(detail, width, None, theme);
        let lines: Vec<Line<'_>> = lines.into_iter().map(|(line, _)| line).collect();
        return draw_page(buffer, rest, &lines, state.scroll, theme);
    }
    let room = draw_maps(buffer, rest, state, overview, theme);
    spots.extend(room.click_areas);
    ScreenLayout { click_areas: spots, ..room }
}

/// Draws the failed targets at the bottom and returns the remaining area.
fn draw_failed_targets(
    buffer: &mut Buffer,
    area: Rect,
    overview: &Overview,
    troubles: usize,
    theme: Theme,
) -> Rect {
    let height = (troubles as u16).min(area.height);
    let below = Rect { y: area.bottom() - height, height, ..area };
    let lines: Vec<Line<'_>> = overview
        .trouble
        .iter()
        .take(troubles)
        .map(|text| {
            Line::styled(
                format!(
                    " ▲ {}",
                    display_text::truncate_text(text, usize::from(area.width).saturating_sub(4))
                ),
                theme.style_for(StyleRole::Waiting),
            )
        })
        .collect();
    draw_lines(buffer, below, &lines);
    Rect { height: area.height - height, ..area }
}

/// Draws the heat map, and the worst nodes beside or below it.
fn draw_maps(
    buffer: &mut Buffer,
    area: Rect,
    state: &ConsoleState,
    overview: &Overview,
    theme: Theme,
) -> ScreenLayout {
    let (map, table) = split_area(area, state, overview);
    let mut room = if overview.heat.nodes.is_empty() {
        ScreenLayout::default()
    } else {
        heat_map::draw(buffer, map, state, theme)
    };
    room.page = room.page.max(1);
    room.has_side_pane = area.width >= BESIDE;
    if room.has_side_pane && state.panel == OverviewPanel::Heat {
        heat_detail::draw(buffer, table, state, theme);
        return room;
    }
    let worst = &overview.worst;
    let at = state.cursors.worst.row_index(worst.len(), |at| &worst[at].node);
    let selected = (state.panel == OverviewPanel::Worst && !worst.is_empty()).then_some(at);
    if table.height > 1 {
        let height = usize::from(table.height) - 1;
        let lines = worst_nodes::render_nodes(
            "NODES BY LOSS",
            worst,
            selected,
            height,
            usize::from(table.width),
            theme,
        );
        draw_lines(buffer, table, &lines);
        let from = crate::cursor::first_visible_row(selected.unwrap_or(0), worst.len(), height);
        for row in 0..height.min(worst.len() - from) {
            let area = Rect { y: table.y + 1 + row as u16, height: 1, ..table };
            room.click_areas.push(ClickArea {
                area,
                target: ClickTarget::Panel(OverviewPanel::Worst, from + row),
            });
        }
    }
    room
}

/// Returns the areas of the heat map and of the table of the worst nodes.
fn split_area(area: Rect, state: &ConsoleState, overview: &Overview) -> (Rect, Rect) {
    if area.width >= BESIDE {
        let left = area.width - WORST_WIDTH;
        let right = Rect { x: area.x + left, width: WORST_WIDTH, ..area };
        return (Rect { width: left - 2, ..area }, right);
    }
    let height = usize::from(area.height);
    let worst = overview.worst.len();
    let wanted = if worst == 0 { 0 } else { 1 + worst.min(WORST_BELOW) };
    let most = wanted.min(height.saturating_sub(HEAT_MIN));
    // One cell per GPU has priority over lines of the table; the table gets the lines that the map does not need.
    let needed = heat_map::full_height(state, area.width);
    let map =
        if needed <= height.saturating_sub(most.min(2)) { needed.max(1) } else { height - most };
    let table = (height - map).min(1 + worst);
    let table = if table < 2 { 0 } else { table as u16 };
    let map = Rect { height: (height as u16 - table).min(map as u16), ..area };
    (map, Rect { y: map.bottom(), height: table, ..area })
}
