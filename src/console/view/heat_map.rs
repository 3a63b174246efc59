//! Heat map: one cell per GPU while they fit, then one per node, then one for several nodes, with the worst state of
//! each.

use gaunt_schema::GpuState;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
    text::{Line, Span},
};

use super::heat_values::{HeatValues, render_node};
use crate::{
    console_state::{
        ClickArea, ClickTarget, ConsoleState, HEAT_CURSOR, OverviewPanel, ScreenLayout,
    },
    display_text,
    heat_index::{HeatGrouping, HeatIndex, WorstOfNodes},
    theme::{self, StyleRole, Theme},
    widget::grid::{GridCell, GridLayout},
};

/// Style of a cell without a name that an open finding names.
const MARK: Modifier = Modifier::UNDERLINED.union(Modifier::BOLD);

/// Maximum width of a row label.
const LABEL: usize = 16;

/// Draws the map into its area, title first. A node, leaf or rack that an open finding names has the finding's sign after
/// its name; a cell without a name is underlined.
///
/// ```text
///  HEAT      one cell = one GPU, by node              gpu003: 8 waiting
///  gpu001 ████████  gpu009 ████████  gpu017 ████████  gpu025 ████████
///  gpu002 ████████  gpu010 ████████  gpu018 ████████  gpu026 ████████
///  gpu003✖░░░░░░░░  gpu011 ████████  gpu019 ████████  gpu027 ········
/// ```
pub(crate) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    state: &ConsoleState,
    theme: Theme,
) -> ScreenLayout {
    if state.data.overview.is_none() || area.height < 2 {
        return ScreenLayout::default();
    }
    let index = &state.heat;
    let values = HeatValues::of(index, theme.units());
    let body =
        Rect { x: area.x + 1, width: area.width - 1, y: area.y + 1, height: area.height - 1 };
    let (width, height) = (usize::from(body.width), usize::from(body.height));
    let (grid, whole) = plan_grid(index, width, height);
    let focused = state.panel == OverviewPanel::Heat;
    let nodes = &index.heat().nodes;
    let node = state.cursors.of(HEAT_CURSOR).row_index(nodes.len(), |at| &nodes[at]);
    let chosen = focused.then_some(node as u32);
    let title = render_title(grid, whole, state, values, chosen, area, theme);
    buffer.set_line(area.x, area.y, &title, area.width);
    let mut map = HeatRenderer {
        index,
        grid,
        whole,
        values,
        chosen,
        theme,
        buffer,
        right: body.right(),
        click_areas: Vec::new(),
    };
    for (y, row) in (body.top()..body.bottom()).zip(0..grid.rows) {
        map.draw_row(row * grid.groups_per_row(), (body.x, y));
    }
    let click_areas = map.click_areas;
    let (heat_row, heat_step) = index.cursor_steps(grid.groups_per_row(), grid.groups_per_step());
    ScreenLayout { heat_row, heat_step, page: height, click_areas, ..ScreenLayout::default() }
}

/// Computes the layout of the groups, and whether a cell of a group is a whole node.
fn plan_grid(index: &HeatIndex, width: usize, height: usize) -> (GridLayout, bool) {
    let (label, groups) = (index.label_width.min(LABEL), index.group_count());
    let grid = GridLayout::fit_groups(groups, index.most_gpus, label, width, height);
    if grid.cell == GridCell::One || index.most_nodes <= 1 {
        return (grid, false);
    }
    (GridLayout::fit_groups(groups, index.most_nodes, label, width, height), true)
}

/// Returns the number of lines of a map with one cell per GPU, title included.
pub(crate) fn full_height(state: &ConsoleState, width: u16) -> usize {
    let index = &state.heat;
    let (width, label) = (usize::from(width).saturating_sub(1), index.label_width.min(LABEL));
    let groups = index.group_count();
    let grid = GridLayout::fit_groups(groups, index.most_gpus, label, width, usize::MAX);
    if grid.rows == 0 { 0 } else { 1 + grid.rows }
}

/// Returns the smallest number of lines with one cell per GPU, title included: only the first node of a row has its name.
pub(crate) fn dense_height(state: &ConsoleState, width: u16) -> usize {
    let index = &state.heat;
    let (width, label) = (usize::from(width).saturating_sub(1), index.label_width.min(LABEL));
    let rows = GridLayout::dense_rows(index.group_count(), index.most_gpus, label, width);
    rows.map_or(usize::MAX, |rows| 1 + rows)
}

fn render_title(
    grid: GridLayout,
    whole: bool,
    state: &ConsoleState,
    values: Option<HeatValues<'_>>,
    chosen: Option<u32>,
    area: Rect,
    theme: Theme,
) -> Line<'static> {
    let name = if chosen.is_some() { "▸HEAT      " } else { " HEAT      " };
    let grouped = (state.grouping != HeatGrouping::Node).then_some(match state.grouping {
        HeatGrouping::Rack => ("rack", "racks"),
        _ => ("leaf", "leaves"),
    });
    // Without a known group each node is its own.
    let known = state.heat.knows_groups();
    let (one, many) = grouped.filter(|_| known).unwrap_or(("node", "nodes"));
    let shown = if values.is_some() { "highest" } else { "worst" };
    let unit = match grid.cell {
        GridCell::One if whole => format!("one node, its {shown} GPU"),
        GridCell::One => "one GPU".to_owned(),
        GridCell::Groups(1) => format!("one {one}, its {shown} GPU"),
        GridCell::Groups(shared) => format!("{shared} {many}, their {shown} GPU"),
    };
    let groups_text = match grouped {
        Some((group, _)) if known => format!(", by {group}"),
        Some((group, _)) => format!(", {group} unknown"),
        None => String::new(),
    };
    let scale = match values {
        Some(values) => values.render_scale(),
        None if state.tint.is_some() => "; loading values …".to_owned(),
        None => String::new(),
    };
    // On a narrow screen the scale is more important than what a cell is.
    let width = usize::from(area.width).saturating_sub(11);
    let short = unit.trim_start_matches("one ");
    let (bare, _) = short.split_once(',').unwrap_or((short, ""));
    let texts = [
        format!("one cell = {unit}{groups_text}{scale}"),
        format!("cell = {short}{groups_text}{scale}"),
        format!("cell = {bare}{scale}"),
        format!("cell = {short}{groups_text}"),
    ];
    let mut texts = texts.into_iter().filter(|text| display_text::text_width(text) <= width);
    let unit = texts.next().unwrap_or_default();
    let available = usize::from(area.width).saturating_sub(12 + display_text::text_width(&unit));
    let columns = available.saturating_sub(2);
    let node_text =
        chosen.map_or_else(String::new, |node| render_node(&state.heat, node, values, columns));
    let node_text = if display_text::text_width(&node_text) <= columns { &*node_text } else { "" };
    Line::from(vec![
        Span::styled(name, theme.style_for(StyleRole::Title)),
        Span::styled(unit, theme.style_for(StyleRole::Dim)),
        Span::raw(display_text::align_right(node_text, available)),
    ])
}

/// Draws the rows of the map.
struct HeatRenderer<'a> {
    index: &'a HeatIndex,
    grid: GridLayout,
    /// Whether a cell of a group is a whole node.
    whole: bool,
    values: Option<HeatValues<'a>>,
    /// The node under the cursor.
    chosen: Option<u32>,
    theme: Theme,
    buffer: &'a mut Buffer,
    /// The column after the last one of the map.
    right: u16,
    click_areas: Vec<ClickArea>,
}

impl HeatRenderer<'_> {
    fn draw_row(&mut self, first: usize, at: (u16, u16)) {
        match self.grid.cell {
            GridCell::One => self.draw_tiles(first, at),
            GridCell::Groups(shared) => self.draw_shared_cells(first, shared, at),
        }
    }

    fn draw_text(&mut self, (x, y): (u16, u16), text: &str, style: Style) {
        let width = usize::from(self.right.saturating_sub(x));
        self.buffer.set_stringn(x, y, text, width, style);
    }

    fn draw_cell(&mut self, (x, y): (u16, u16), (sign, style): (&str, Style)) {
        if x < self.right {
            self.buffer[(x, y)].set_symbol(sign).set_style(style);
        }
    }

    /// Draws one row of adjacent groups, each with its name, or after the name of the first one.
    fn draw_tiles(&mut self, first: usize, (x, y): (u16, u16)) {
        let (index, grid) = (self.index, self.grid);
        let mut left = x;
        for group in (first..index.group_count()).take(grid.per_row) {
            let nodes = index.nodes_of(group..group + 1);
            let is_selected = self.chosen.is_some_and(|node| nodes.contains(&node));
            let mark = index.finding_of(group);
            if grid.named || group == first {
                let dim = self.theme.style_for(StyleRole::Dim);
                let style =
                    if is_selected && grid.named { theme::selected_style(dim) } else { dim };
                let name = display_text::align_left(index.group_name(group), grid.label - 1);
                self.draw_text((left, y), &name, style);
                left += grid.label as u16;
                // The sign of a finding takes the place of the gap.
                if let Some(severity) = mark.filter(|_| grid.named) {
                    let style = self.theme.severity_style(severity);
                    self.draw_text((left - 1, y), theme::severity_sign(severity), style);
                }
            }
            let available = grid.tile - if grid.named { grid.label } else { 0 };
            // If a group has no name to highlight, its cells are highlighted; in a group of several nodes, the node's
            // own cells.
            let highlights = is_selected && (!grid.named || nodes.len() > 1);
            let mark = if !grid.named && mark.is_some() { MARK } else { Modifier::empty() };
            let used = self.draw_members(nodes, highlights, mark, (left, y), available);
            self.add_click_areas(nodes, left, y, used);
            left += available as u16;
        }
    }

    /// Adds the click areas of a tile: the cells of each node.
    fn add_click_areas(&mut self, nodes: &[u32], left: u16, y: u16, used: usize) {
        let mut x = left;
        for node in nodes {
            let width = if self.whole { 1 } else { self.index.states_of(*node).len() } as u16;
            if usize::from(x + width - left) > used {
                return;
            }
            let area = Rect { x, y, width, height: 1 };
            let target = ClickTarget::Panel(OverviewPanel::Heat, *node as usize);
            self.click_areas.push(ClickArea { area, target });
            x += width;
        }
    }

    /// Draws the cells of a group, its GPUs or its nodes, and returns their number; at most `available`.
    fn draw_members(
        &mut self,
        nodes: &[u32],
        highlights: bool,
        mark: Modifier,
        (left, y): (u16, u16),
        available: usize,
    ) -> usize {
        let (index, theme, values) = (self.index, self.theme, self.values);
        let mut cells = Vec::new();
        for node in nodes.iter().take(available) {
            let is_chosen = highlights && self.chosen == Some(*node);
            let selected = |(sign, style)| {
                (sign, if is_chosen { theme::selected_style(style) } else { style })
            };
            if self.whole {
                let worst = index.worst_of(&[*node]);
                let cell = worst_cell(worst, &[*node], values, theme);
                cells.push(selected(mark_cell(worst, cell)));
                continue;
            }
            let is_marked = index.knows_groups() && index.worst_of(&[*node]).finding.is_some();
            let node_mark = if is_marked { MARK } else { Modifier::empty() };
            let gpus = index.states_of(*node).bytes().zip(index.gpus_of(*node));
            cells.extend(gpus.map(|(code, gpu)| {
                let (sign, style) = match values {
                    Some(values) => values.gpu_cell(gpu, theme),
                    None => state_cell(theme::ranked_state(code).1, theme),
                };
                selected((sign, style.add_modifier(node_mark)))
            }));
        }
        cells.truncate(available);
        for (x, (sign, style)) in (left..).zip(&cells) {
            self.draw_cell((x, y), (sign, style.add_modifier(mark)));
        }
        cells.len()
    }

    /// Draws one row of cells, each for `shared` groups, after the name of the first one.
    fn draw_shared_cells(&mut self, first: usize, shared: usize, (x, y): (u16, u16)) {
        let (index, theme) = (self.index, self.theme);
        let count = index.group_count();
        if first >= count {
            return;
        }
        let name = display_text::align_left(index.group_name(first), self.grid.label - 1);
        self.draw_text((x, y), &name, theme.style_for(StyleRole::Dim));
        let groups = (first..count).step_by(shared).take(self.grid.per_row);
        for (left, group) in (x + self.grid.label as u16..).zip(groups) {
            let nodes = index.nodes_of(group..(group + shared).min(count));
            if let Some(node) = nodes.first() {
                let area = Rect { x: left, y, width: 1, height: 1 };
                let target = ClickTarget::Panel(OverviewPanel::Heat, *node as usize);
                self.click_areas.push(ClickArea { area, target });
            }
            let worst = index.worst_of(nodes);
            let (sign, style) = mark_cell(worst, worst_cell(worst, nodes, self.values, theme));
            let is_selected = self.chosen.is_some_and(|node| nodes.contains(&node));
            let style = if is_selected { theme::selected_style(style) } else { style };
            self.draw_cell((left, y), (sign, style));
        }
    }
}

/// Underlines a cell that a finding names: its sign and colour stay those of its state.
fn mark_cell(worst: WorstOfNodes, (sign, style): (&str, Style)) -> (&str, Style) {
    (sign, if worst.finding.is_some() { style.add_modifier(MARK) } else { style })
}

/// Returns the cell for all GPUs of some nodes, with their worst state or their highest value.
fn worst_cell(
    worst: WorstOfNodes,
    nodes: &[u32],
    values: Option<HeatValues<'_>>,
    theme: Theme,
) -> (&'static str, Style) {
    match values {
        Some(values) => values.highest_cell(nodes, theme),
        None => state_cell(worst.state(), theme),
    }
}

/// Returns the symbol and the style of a state.
fn state_cell(state: GpuState, theme: Theme) -> (&'static str, Style) {
    (theme::state_sign(state), theme.state_style(state))
}
