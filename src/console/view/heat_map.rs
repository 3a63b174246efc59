//! Heat map: one cell per GPU while they fit, then one per node, then one for several nodes, with the worst state of
//! each.

use std::sync::LazyLock;

use gaunt_schema::{GpuState, SanitizedText, Severity, natural_order};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
    text::{Line, Span},
};

use super::heat_groups::{HeatValues, NodeGroups};
use crate::{
    console_state::{
        ClickArea, ClickTarget, ConsoleState, HEAT_CURSOR, HeatGrouping, OverviewPanel,
        ScreenLayout,
    },
    display_text,
    theme::{self, StyleRole, Theme},
    widget::grid::{GridCell, GridLayout},
};
use gaunt_api::Overview;

/// Style of a cell without a name that an open finding names.
const MARK: Modifier = Modifier::UNDERLINED.union(Modifier::BOLD);

/// Maximum width of a row label.
const LABEL: usize = 16;

/// Draws the map into its area, title first. A node that an open finding names has the finding's sign after its name;
/// a cell without a name is underlined.
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
    let Some(overview) = state.data.overview.as_deref().filter(|_| area.height >= 2) else {
        return ScreenLayout::default();
    };
    let heat = &overview.heat;
    let groups = NodeGroups::of(heat, state);
    let values = HeatValues::of(state, heat, theme.units());
    let body =
        Rect { x: area.x + 1, width: area.width - 1, y: area.y + 1, height: area.height - 1 };
    let (width, height) = (usize::from(body.width), usize::from(body.height));
    let (grid, whole) = plan_grid(&groups, width, height);
    let focused = state.panel == OverviewPanel::Heat;
    let node = state.cursors.of(HEAT_CURSOR).row_index(heat.nodes.len(), |at| &heat.nodes[at]);
    let title = render_title(
        &groups,
        grid,
        whole,
        state,
        values.as_ref(),
        focused.then_some(node),
        area,
        theme,
    );
    buffer.set_line(area.x, area.y, &title, area.width);
    let map = HeatRenderer {
        groups: &groups,
        grid,
        whole,
        values: values.as_ref(),
        chosen: focused.then_some(node),
        marks: mark_findings(overview),
        theme,
    };
    let mut click_areas = Vec::new();
    for (y, row) in (body.top()..body.bottom()).zip(0..grid.rows) {
        let first = row * grid.groups_per_row();
        let line = map.render_row(first, (body.x, y), &mut click_areas);
        buffer.set_line(body.x, y, &line, body.width);
    }
    let (heat_row, heat_step) = groups.cursor_steps(grid.groups_per_row(), grid.groups_per_step());
    ScreenLayout { heat_row, heat_step, page: height, click_areas, ..ScreenLayout::default() }
}

/// Computes the layout of the groups, and whether a cell of a group is a whole node.
fn plan_grid(groups: &NodeGroups<'_>, width: usize, height: usize) -> (GridLayout, bool) {
    let label = groups.label.min(LABEL);
    let grid = GridLayout::fit_groups(groups.list.len(), groups.gpus, label, width, height);
    if grid.cell == GridCell::One || groups.nodes <= 1 {
        return (grid, false);
    }
    (GridLayout::fit_groups(groups.list.len(), groups.nodes, label, width, height), true)
}

/// Returns the number of lines of a map with one cell per GPU, title included.
pub(crate) fn full_height(state: &ConsoleState, width: u16) -> usize {
    let Some(overview) = state.data.overview.as_deref() else { return 0 };
    let groups = NodeGroups::of(&overview.heat, state);
    let width = usize::from(width).saturating_sub(1);
    let label = groups.label.min(LABEL);
    let grid = GridLayout::fit_groups(groups.list.len(), groups.gpus, label, width, usize::MAX);
    if grid.rows == 0 { 0 } else { 1 + grid.rows }
}

/// Returns the smallest number of lines with one cell per GPU, title included: only the first node of a row has its name.
pub(crate) fn dense_height(state: &ConsoleState, width: u16) -> usize {
    let Some(overview) = state.data.overview.as_deref() else { return 0 };
    let groups = NodeGroups::of(&overview.heat, state);
    let width = usize::from(width).saturating_sub(1);
    let rows =
        GridLayout::dense_rows(groups.list.len(), groups.gpus, groups.label.min(LABEL), width);
    rows.map_or(usize::MAX, |rows| 1 + rows)
}

#[expect(clippy::too_many_arguments, reason = "the title depends on all parts of the map")]
fn render_title(
    groups: &NodeGroups<'_>,
    grid: GridLayout,
    whole: bool,
    state: &ConsoleState,
    values: Option<&HeatValues<'_>>,
    chosen: Option<usize>,
    area: Rect,
    theme: Theme,
) -> Line<'static> {
    let name = if chosen.is_some() { "▸HEAT      " } else { " HEAT      " };
    let grouped = (state.grouping != HeatGrouping::Node).then_some(match state.grouping {
        HeatGrouping::Rack => ("rack", "racks"),
        _ => ("leaf", "leaves"),
    });
    // Without a known group each node is its own.
    let (one, many) = grouped.filter(|_| groups.known).unwrap_or(("node", "nodes"));
    let shown = if values.is_some() { "highest" } else { "worst" };
    let unit = match grid.cell {
        GridCell::One if whole => format!("one node, its {shown} GPU"),
        GridCell::One => "one GPU".to_owned(),
        GridCell::Groups(1) => format!("one {one}, its {shown} GPU"),
        GridCell::Groups(shared) => format!("{shared} {many}, their {shown} GPU"),
    };
    let groups_text = match grouped {
        Some((group, _)) if groups.known => format!(", by {group}"),
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
        chosen.map_or_else(String::new, |node| groups.render_node(node, values, columns));
    let node_text = if display_text::text_width(&node_text) <= columns { &*node_text } else { "" };
    Line::from(vec![
        Span::styled(name, theme.style_for(StyleRole::Title)),
        Span::styled(unit, theme.style_for(StyleRole::Dim)),
        Span::raw(display_text::align_right(node_text, available)),
    ])
}

/// Renders the rows of the map.
struct HeatRenderer<'a> {
    groups: &'a NodeGroups<'a>,
    grid: GridLayout,
    /// Whether a cell of a group is a whole node.
    whole: bool,
    values: Option<&'a HeatValues<'a>>,
    /// The node under the cursor.
    chosen: Option<usize>,
    /// The nodes that an open finding names, by index, each with its worst severity.
    marks: Vec<(usize, Severity)>,
    theme: Theme,
}

/// Returns the nodes that the findings of the overview name, by their index in the map.
fn mark_findings(overview: &Overview) -> Vec<(usize, Severity)> {
    let nodes = &overview.heat.nodes;
    let index =
        |name: &SanitizedText| nodes.binary_search_by(|node| natural_order(node, name)).ok();
    let blamed = overview
        .findings
        .iter()
        .filter_map(|finding| Some((index(finding.entity.node.as_ref()?)?, finding.severity)));
    let mut marks: Vec<(usize, Severity)> = blamed.collect();
    // The worst severity of a node comes first, and the others are dropped.
    marks.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    marks.dedup_by_key(|(node, _)| *node);
    marks
}

impl HeatRenderer<'_> {
    fn render_row(
        &self,
        first: usize,
        at: (u16, u16),
        click_areas: &mut Vec<ClickArea>,
    ) -> Line<'static> {
        match self.grid.cell {
            GridCell::One => self.render_tiles(first, at, click_areas),
            GridCell::Groups(shared) => self.render_shared_cells(first, shared, at, click_areas),
        }
    }

    /// Returns the worst severity of a finding on one of these nodes.
    fn mark_of(&self, nodes: &[usize]) -> Option<Severity> {
        if self.marks.is_empty() {
            return None;
        }
        let mark = |node: &usize| {
            let at = self.marks.binary_search_by_key(node, |(marked, _)| *marked).ok()?;
            Some(self.marks[at].1)
        };
        nodes.iter().filter_map(mark).max()
    }

    /// Underlines a cell that a finding names: its sign and colour stay those of its state.
    fn mark_cell(&self, nodes: &[usize], style: Style) -> Style {
        if self.mark_of(nodes).is_some() { style.add_modifier(MARK) } else { style }
    }

    /// Renders one row of adjacent groups, each with its name, or after the name of the first one.
    fn render_tiles(
        &self,
        first: usize,
        (x, y): (u16, u16),
        click_areas: &mut Vec<ClickArea>,
    ) -> Line<'static> {
        let (mut spans, grid) = (Vec::new(), self.grid);
        let mut left = x;
        let groups = self.groups.list.iter().enumerate().skip(first).take(grid.per_row);
        for (at, group) in groups {
            let nodes = self.groups.nodes_of(group);
            let is_selected = self.chosen.is_some_and(|node| nodes.contains(&node));
            if grid.named || at == first {
                let dim = self.theme.style_for(StyleRole::Dim);
                let name = if is_selected && grid.named { theme::selected_style(dim) } else { dim };
                spans
                    .push(Span::styled(display_text::align_left(group.name, grid.label - 1), name));
                // The sign of a finding takes the place of the gap.
                let mark = self.mark_of(nodes).filter(|_| grid.named);
                spans.push(mark.map_or_else(
                    || Span::raw(" "),
                    |severity| {
                        let style = self.theme.severity_style(severity);
                        Span::styled(theme::severity_sign(severity), style)
                    },
                ));
                left += grid.label as u16;
            }
            let available = grid.tile - if grid.named { grid.label } else { 0 };
            // If a group has no name to highlight, its cells are highlighted; in a group of several nodes, the node's
            // own cells.
            let mut cells =
                self.member_cells(nodes, is_selected && (!grid.named || nodes.len() > 1));
            if !grid.named && self.mark_of(nodes).is_some() {
                for (_, style) in &mut cells {
                    *style = style.add_modifier(MARK);
                }
            }
            let used = cells.len().min(available);
            self.add_click_areas(nodes, left, y, used, click_areas);
            push_runs(&mut spans, cells.into_iter().take(available));
            spans.push(Span::raw(" ".repeat(available - used)));
            left += available as u16;
        }
        Line::from(spans)
    }

    /// Adds the click areas of a tile: the cells of each node.
    fn add_click_areas(
        &self,
        nodes: &[usize],
        left: u16,
        y: u16,
        used: usize,
        click_areas: &mut Vec<ClickArea>,
    ) {
        let mut x = left;
        for node in nodes {
            let width = if self.whole { 1 } else { self.groups.rows[*node].1.len() } as u16;
            if usize::from(x + width - left) > used {
                return;
            }
            let area = Rect { x, y, width, height: 1 };
            click_areas
                .push(ClickArea { area, target: ClickTarget::Panel(OverviewPanel::Heat, *node) });
            x += width;
        }
    }

    /// Returns the cells of a group: its GPUs, or its nodes.
    fn member_cells(&self, nodes: &[usize], marked: bool) -> Vec<(&'static str, Style)> {
        let mut cells = Vec::new();
        for node in nodes {
            let is_chosen = marked && self.chosen == Some(*node);
            let mark = |(sign, style)| {
                (sign, if is_chosen { theme::selected_style(style) } else { style })
            };
            if self.whole {
                let (sign, style) = self.worst_cell(&[*node]);
                cells.push(mark((sign, self.mark_cell(&[*node], style))));
                continue;
            }
            let (_, states, from) = self.groups.rows[*node];
            cells.extend(states.bytes().enumerate().map(|(at, code)| {
                mark(match self.values {
                    Some(values) => values.gpu_cell(from + at, self.theme),
                    None => state_cell(STATES[usize::from(code)].1, self.theme),
                })
            }));
        }
        cells
    }

    /// Returns the cell for all GPUs of some nodes, with their worst state.
    fn worst_cell(&self, nodes: &[usize]) -> (&'static str, Style) {
        let rows = nodes.iter().map(|node| self.groups.rows[*node]);
        let Some(values) = self.values else {
            let states = &*STATES;
            let codes = rows.flat_map(|(_, codes, _)| codes.bytes());
            let worst = codes.map(|code| states[usize::from(code)]).max_by_key(|(rank, _)| *rank);
            return state_cell(worst.map_or(GpuState::Unknown, |(_, state)| state), self.theme);
        };
        values.highest_cell(rows.flat_map(|(_, codes, from)| from..from + codes.len()), self.theme)
    }

    /// Renders one row of cells, each for `shared` groups, after the name of the first one.
    fn render_shared_cells(
        &self,
        first: usize,
        shared: usize,
        (x, y): (u16, u16),
        click_areas: &mut Vec<ClickArea>,
    ) -> Line<'static> {
        let row = self.groups.list.get(first..).unwrap_or_default();
        let Some(head) = row.first() else { return Line::default() };
        let name = format!("{} ", display_text::align_left(head.name, self.grid.label - 1));
        let mut spans = vec![Span::styled(name, self.theme.style_for(StyleRole::Dim))];
        let mut left = x + self.grid.label as u16;
        let cells = row.chunks(shared).take(self.grid.per_row).map(|groups| {
            let nodes = self.groups.nodes_of_all(groups);
            let is_selected = self.chosen.is_some_and(|node| nodes.contains(&node));
            if let Some(node) = nodes.first() {
                let area = Rect { x: left, y, width: 1, height: 1 };
                click_areas.push(ClickArea {
                    area,
                    target: ClickTarget::Panel(OverviewPanel::Heat, *node),
                });
            }
            left += 1;
            let (sign, style) = self.worst_cell(nodes);
            let style = self.mark_cell(nodes, style);
            (sign, if is_selected { theme::selected_style(style) } else { style })
        });
        let cells: Vec<(&'static str, Style)> = cells.collect();
        push_runs(&mut spans, cells.into_iter());
        Line::from(spans)
    }
}

/// Returns the symbol and the style of a state.
fn state_cell(state: GpuState, theme: Theme) -> (&'static str, Style) {
    (theme::state_sign(state), theme.state_style(state))
}

/// Appends cells as spans; adjacent cells of one style share a span.
fn push_runs(spans: &mut Vec<Span<'static>>, cells: impl Iterator<Item = (&'static str, Style)>) {
    let mut last: Option<(&'static str, Style)> = None;
    for (sign, style) in cells {
        match spans.last_mut() {
            Some(span) if last.is_some_and(|(_, known)| known == style) => {
                span.content.to_mut().push_str(sign);
            }
            _ => spans.push(Span::styled(sign, style)),
        }
        last = Some((sign, style));
    }
}

/// Rank and state of each code letter, precomputed: a frame of a large fleet needs about 100,000 look-ups.
static STATES: LazyLock<[(u8, GpuState); 256]> = LazyLock::new(|| {
    std::array::from_fn(|code| {
        let state = GpuState::from_letter_code(char::from(code as u8)).unwrap_or(GpuState::Unknown);
        (theme::state_rank(state), state)
    })
});
