//! Lower part of the overview: heat map, the finding or node under the cursor beside it, and the worst nodes.

use ratatui::{buffer::Buffer, layout::Rect, text::Line};

use super::{draw_lines, finding_details, heat_detail, heat_map, worst_nodes};
use crate::{
    console_state::{ClickArea, ClickTarget, ConsoleState, OverviewPanel, ScreenLayout},
    cursor::first_visible_row,
    display_text,
    theme::{StyleRole, Theme},
};
use gaunt_api::{Finding, Overview};

/// Minimum width for the worst nodes beside the heat map.
pub(crate) const BESIDE: u16 = 140;
/// Columns of the worst nodes beside the heat map.
const WORST_WIDTH: u16 = 78;
/// The same on a very wide screen.
const WORST_WIDEST: u16 = 110;
/// Number of worst nodes below the heat map, as long as the map keeps enough lines.
const WORST_BELOW: usize = 4;
/// Minimum lines beside the heat map for the finding or node under the cursor and the worst nodes.
const DETAIL_MIN: u16 = 14;
/// Minimum lines of the heat map, title included, before the worst nodes are dropped.
pub(crate) const HEAT_MIN: usize = 3;

/// Name of the cursor in the worst nodes.
pub(crate) const WORST_CURSOR: &str = "worst nodes";

/// Draws the failed targets at the bottom and returns the remaining area.
pub(crate) fn draw_failed_targets(
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

/// Draws the heat map, and the worst nodes beside or below it; beside it also the finding under the cursor.
pub(crate) fn draw_maps(
    buffer: &mut Buffer,
    area: Rect,
    state: &ConsoleState,
    overview: &Overview,
    detail: Option<&Finding>,
    theme: Theme,
) -> ScreenLayout {
    let (map, table) = split_area(area, state, overview);
    let mut layout = if overview.heat.nodes.is_empty() {
        ScreenLayout::default()
    } else {
        heat_map::draw(buffer, map, state, theme)
    };
    layout.page = layout.page.max(1);
    layout.has_side_pane = area.width >= BESIDE;
    let shows_node = layout.has_side_pane && state.panel == OverviewPanel::Heat;
    let finding = detail.filter(|_| layout.has_side_pane);
    let table = if table.height >= DETAIL_MIN && (shows_node || finding.is_some()) {
        let (beside, nodes) = split_detail(map, table, heat_map::full_height(state, map.width));
        match finding {
            Some(finding) => {
                finding_details::draw_below_list(buffer, beside, finding, state, theme);
            }
            None => heat_detail::draw(buffer, beside, state, theme),
        }
        nodes
    } else if shows_node {
        heat_detail::draw(buffer, table, state, theme);
        return layout;
    } else {
        table
    };
    let worst = &overview.worst;
    let at = state.cursors.of(WORST_CURSOR).row_index(worst.len(), |at| &worst[at].node);
    let selected = (state.panel == OverviewPanel::Worst && !worst.is_empty()).then_some(at);
    if table.height > 1 {
        let height = usize::from(table.height) - 1;
        let lines = worst_nodes::render_nodes(
            worst,
            &overview.findings,
            selected,
            height,
            usize::from(table.width),
            theme,
        );
        draw_lines(buffer, table, &lines);
        let from = first_visible_row(selected.unwrap_or(0), worst.len(), height);
        for row in 0..height.min(worst.len() - from) {
            let area = Rect { y: table.y + 1 + row as u16, height: 1, ..table };
            layout.click_areas.push(ClickArea {
                area,
                target: ClickTarget::Panel(OverviewPanel::Worst, from + row),
            });
        }
    }
    layout
}

/// Returns the areas of the finding under the cursor and of the worst nodes: these are below the map where it leaves
/// space for them, else below the finding.
fn split_detail(map: Rect, beside: Rect, map_lines: usize) -> (Rect, Rect) {
    let below = map.height.saturating_sub(map_lines.min(usize::from(u16::MAX)) as u16 + 1);
    if below > WORST_BELOW as u16 {
        return (beside, Rect { y: map.bottom() - below, height: below, ..map });
    }
    let height = (beside.height * 3 / 5).max(DETAIL_MIN);
    let rest = beside.height.saturating_sub(height + 1);
    (Rect { height, ..beside }, Rect { y: beside.bottom() - rest, height: rest, ..beside })
}

/// Returns the areas of the heat map and of the table of the worst nodes.
fn split_area(area: Rect, state: &ConsoleState, overview: &Overview) -> (Rect, Rect) {
    if area.width >= BESIDE {
        let worst_width = (area.width / 2).clamp(WORST_WIDTH, WORST_WIDEST);
        let left = area.width - worst_width;
        let right = Rect { x: area.x + left, width: worst_width, ..area };
        return (Rect { width: left - 2, ..area }, right);
    }
    let height = usize::from(area.height);
    let worst = overview.worst.len();
    let desired = if worst == 0 { 0 } else { 1 + worst.min(WORST_BELOW) };
    let most = desired.min(height.saturating_sub(HEAT_MIN));
    // One cell per GPU has priority over lines of the table; the table gets the lines that the map does not need.
    let needed = heat_map::full_height(state, area.width);
    let most_lines = height.saturating_sub(most.min(2));
    let dense = heat_map::dense_height(state, area.width);
    let map = if needed <= most_lines {
        needed.max(1)
    } else if dense <= most_lines {
        dense.max(height - most)
    } else {
        height - most
    };
    let table = (height - map).min(1 + worst);
    let table = if table < 2 { 0 } else { table as u16 };
    let map = Rect { height: (height as u16 - table).min(map as u16), ..area };
    (map, Rect { y: map.bottom(), height: table, ..area })
}
