//! The overview: is anything starving, what does it cost, who is to blame, on what evidence.

use ratatui::{buffer::Buffer, layout::Rect, text::Line};

use super::{beside, findings::Rows, fleet, heat, hints, node, nodes, put, put_page};
use crate::{
    answer::Overview,
    console::{
        format,
        state::{Panel, Room, Spot, State, What},
        theme::{Meaning, Theme},
    },
};

/// From this width on the worst nodes stand beside the heat map.
const BESIDE: u16 = 140;
/// Columns of the worst nodes beside the heat map.
const WORST_WIDTH: u16 = 78;
/// Worst nodes below the heat map, as long as there is room for a map of some height.
const WORST_BELOW: usize = 4;
/// Lines that a heat map keeps, title included, before the worst nodes give way.
const HEAT_MIN: usize = 3;
/// Sentences about targets that cannot be read.
const TROUBLES: usize = 2;

/// Draws the panels in the order of reading. Where lines lack, the heat map gives them first, then the worst nodes.
///
/// ```text
///  GPU TIME  ██████████████████████████▒▒▒▒▒▒░░░░░░░░░░░░ddddiii········
///            █ computing 64.1 %  ▒ communicating 9.8 %  ░ waiting for peers 15.2 %
///  LOST      2,071 of 10,000 GPUs (20.7 %)   $4,142/h   ▁▁▁▁▂▂▃▅▇▇▇▇▇▇▇▇  last 15m
/// ▸FINDINGS  3 open                                       since  GPUs lost  sure
///  ✖ port_down           gpu003 · mlx5_1/1                 6m10          8  97 %
///    port mlx5_1/1 of gpu003 is down: …
///  HEAT      one cell = one GPU
///  gpu001 ████████  gpu009 ████████  gpu017 ████████  gpu025 ████████
///  NODES             data        GPUs       lost  busy %  finding
///  gpu003            live        ░░░░░░░░      8     100  port_down
///  ▲ 10.0.0.7:9770: cannot connect: connection refused; …
/// ```
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    state: &State,
    overview: &Overview,
    theme: Theme,
) -> Room {
    let width = usize::from(area.width);
    let mut lines = fleet::lines(overview, width, theme);
    let troubles = overview.trouble.len().min(TROUBLES);
    let left = usize::from(area.height).saturating_sub(lines.len() + troubles);

    let focused = state.panel == Panel::Findings;
    let (findings, more) = state.overview_rows();
    let at = state.at.findings.index(findings.len(), |at| findings[at].key());
    let single = state.only_node().and_then(|name| state.node(name));
    let selected = (focused && !findings.is_empty()).then_some(at);
    let rows = Rows { width, selected, at: overview.at, alerts: None, theme };
    let read = overview.nodes.live > 0;
    lines.push(rows.heading(overview.findings_open.into(), focused && single.is_none(), read));
    // At 80×24 this leaves the map its title and two rows.
    let most = left.saturating_sub(1 + HEAT_MIN + 2).max(left / 2);
    let shown = rows.worst(&findings, more, rows.wanted(&findings, more).min(most));
    let mut spots = Vec::new();
    for (line, row) in shown {
        let y = area.y + lines.len() as u16;
        let area = Rect { y, height: 1, ..area };
        spots.extend(row.map(|row| Spot { area, what: What::Panel(Panel::Findings, row) }));
        lines.push(line);
    }

    let used = lines.len().min(usize::from(area.height)) as u16;
    put(buffer, area, &lines);
    let rest = Rect { y: area.y + used, height: area.height - used, ..area };
    let rest = put_troubles(buffer, rest, overview, troubles, theme);
    let counts = overview.nodes;
    if counts.live + counts.stale + counts.down == 0 {
        let lines = hints::nobody(overview, area.width, theme);
        put(buffer, rest, &lines);
        return Room { spots, ..Room::default() };
    }
    if let Some(detail) = single {
        let lines = node::body(detail, width, None, theme);
        let lines: Vec<Line<'_>> = lines.into_iter().map(|(line, _)| line).collect();
        return put_page(buffer, rest, &lines, state.scroll, theme);
    }
    let room = maps(buffer, rest, state, overview, theme);
    spots.extend(room.spots);
    Room { spots, ..room }
}

/// Targets that cannot be read, at the bottom; what is above is left.
fn put_troubles(
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
                format!(" ▲ {}", format::cut(text, usize::from(area.width).saturating_sub(4))),
                theme.style(Meaning::Waiting),
            )
        })
        .collect();
    put(buffer, below, &lines);
    Rect { height: area.height - height, ..area }
}

/// The heat map, and the worst nodes beside or below it.
fn maps(buffer: &mut Buffer, area: Rect, state: &State, overview: &Overview, theme: Theme) -> Room {
    let (map, table) = split(area, state, overview);
    let mut room = if overview.heat.nodes.is_empty() {
        Room::default()
    } else {
        heat::draw(buffer, map, state, theme)
    };
    room.page = room.page.max(1);
    room.beside = area.width >= BESIDE;
    if room.beside && state.panel == Panel::Heat {
        beside::draw(buffer, table, state, theme);
        return room;
    }
    let worst = &overview.worst;
    let at = state.at.worst.index(worst.len(), |at| &worst[at].node);
    let selected = (state.panel == Panel::Worst && !worst.is_empty()).then_some(at);
    if table.height > 1 {
        let height = usize::from(table.height) - 1;
        let lines =
            nodes::lines("NODES BY LOSS", worst, selected, height, usize::from(table.width), theme);
        put(buffer, table, &lines);
        let from = crate::console::cursor::window(selected.unwrap_or(0), worst.len(), height);
        for row in 0..height.min(worst.len() - from) {
            let area = Rect { y: table.y + 1 + row as u16, height: 1, ..table };
            room.spots.push(Spot { area, what: What::Panel(Panel::Worst, from + row) });
        }
    }
    room
}

/// The areas of the heat map and of the table of the worst nodes.
fn split(area: Rect, state: &State, overview: &Overview) -> (Rect, Rect) {
    if area.width >= BESIDE {
        let left = area.width - WORST_WIDTH;
        let right = Rect { x: area.x + left, width: WORST_WIDTH, ..area };
        return (Rect { width: left - 2, ..area }, right);
    }
    let height = usize::from(area.height);
    let worst = overview.worst.len();
    let wanted = if worst == 0 { 0 } else { 1 + worst.min(WORST_BELOW) };
    let most = wanted.min(height.saturating_sub(HEAT_MIN));
    // A cell for every GPU is worth some lines of the table; what the map leaves over is the table's.
    let needed = heat::full_height(state, area.width);
    let map =
        if needed <= height.saturating_sub(most.min(2)) { needed.max(1) } else { height - most };
    let table = (height - map).min(1 + worst);
    let table = if table < 2 { 0 } else { table as u16 };
    let map = Rect { height: (height as u16 - table).min(map as u16), ..area };
    (map, Rect { y: map.bottom(), height: table, ..area })
}
