//! The heat map: one cell per GPU while they fit, then one per node, then one for several nodes, the worst of each.

use std::sync::LazyLock;

use gaunt_schema::GpuState;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::folded::{Groups, Values};
use crate::console::{
    format,
    state::{Fold, Panel, Room, Spot, State, What},
    theme::{self, Meaning, Theme},
    widget::grid::{Cell, Grid},
};

/// The widest label of a row.
const LABEL: usize = 16;

/// Draws the map into its area, title first.
///
/// ```text
///  HEAT      one cell = one GPU, by node              gpu003: 8 waiting for peers
///  gpu001 ████████  gpu009 ████████  gpu017 ████████  gpu025 ████████
///  gpu002 ████████  gpu010 ████████  gpu018 ████████  gpu026 ████████
///  gpu003 ░░░░░░░░  gpu011 ████████  gpu019 ████████  gpu027 ········
/// ```
pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, theme: Theme) -> Room {
    let Some(overview) = state.data.overview.as_deref().filter(|_| area.height >= 2) else {
        return Room::default();
    };
    let heat = &overview.heat;
    let groups = Groups::of(heat, state);
    let values = Values::of(state, heat);
    let body =
        Rect { x: area.x + 1, width: area.width - 1, y: area.y + 1, height: area.height - 1 };
    let (width, height) = (usize::from(body.width), usize::from(body.height));
    let (grid, whole) = plan(&groups, width, height);
    let focused = state.panel == Panel::Heat;
    let node = state.at.heat.index(heat.nodes.len(), |at| &heat.nodes[at]);
    let title =
        title(&groups, grid, whole, state, values.as_ref(), focused.then_some(node), area, theme);
    buffer.set_line(area.x, area.y, &title, area.width);
    let map = Map {
        groups: &groups,
        grid,
        whole,
        values: values.as_ref(),
        chosen: focused.then_some(node),
        theme,
    };
    let mut spots = Vec::new();
    for (y, row) in (body.top()..body.bottom()).zip(0..grid.rows) {
        let first = row * grid.groups_per_row();
        let line = map.row(first, (body.x, y), &mut spots);
        buffer.set_line(body.x, y, &line, body.width);
    }
    let (heat_row, heat_step) = groups.steps(grid.groups_per_row(), grid.step());
    Room { heat_row, heat_step, page: height, spots, ..Room::default() }
}

/// How the groups are laid out, and whether a cell of a group is a whole node.
fn plan(groups: &Groups<'_>, width: usize, height: usize) -> (Grid, bool) {
    let label = groups.label.min(LABEL);
    let grid = Grid::plan(groups.list.len(), groups.gpus, label, width, height);
    if grid.cell == Cell::One || groups.nodes <= 1 {
        return (grid, false);
    }
    (Grid::plan(groups.list.len(), groups.nodes, label, width, height), true)
}

/// The lines that a map with a cell for every GPU takes, title included.
pub(super) fn full_height(state: &State, width: u16) -> usize {
    let Some(overview) = state.data.overview.as_deref() else { return 0 };
    let groups = Groups::of(&overview.heat, state);
    let width = usize::from(width).saturating_sub(1);
    let label = groups.label.min(LABEL);
    let grid = Grid::plan(groups.list.len(), groups.gpus, label, width, usize::MAX);
    if grid.rows == 0 { 0 } else { 1 + grid.rows }
}

#[expect(clippy::too_many_arguments, reason = "a title tells of all that the map is made of")]
fn title(
    groups: &Groups<'_>,
    grid: Grid,
    whole: bool,
    state: &State,
    values: Option<&Values<'_>>,
    chosen: Option<usize>,
    area: Rect,
    theme: Theme,
) -> Line<'static> {
    let name = if chosen.is_some() { "▸HEAT      " } else { " HEAT      " };
    let (one, many) = match state.fold {
        Fold::Node => ("node", "nodes"),
        Fold::Leaf => ("leaf", "leaves"),
        Fold::Rack => ("rack", "racks"),
    };
    let shown = if values.is_some() { "highest" } else { "worst" };
    let mut unit = match grid.cell {
        Cell::One if whole => format!("one cell = one node, its {shown} GPU"),
        Cell::One => "one cell = one GPU".to_owned(),
        Cell::Groups(1) => format!("one cell = one {one}, its {shown} GPU"),
        Cell::Groups(shared) => format!("one cell = {shared} {many}, their {shown} GPU"),
    };
    if state.fold != Fold::Node {
        unit.push_str(if groups.known { ", by " } else { ", nobody says the " });
        unit.push_str(one);
    }
    if let Some(values) = values {
        unit.push_str(&values.scale());
    } else if state.tint.is_some() {
        unit.push_str("; reading the values …");
    }
    let here = chosen.map_or_else(String::new, |node| groups.described(node, values));
    let here = format!("  {here}");
    let room = usize::from(area.width).saturating_sub(12 + format::width(&unit));
    Line::from(vec![
        Span::styled(name, theme.style(Meaning::Title)),
        Span::styled(unit, theme.style(Meaning::Dim)),
        Span::raw(format::right(&here, room)),
    ])
}

/// What rows of the map are drawn from.
struct Map<'a> {
    groups: &'a Groups<'a>,
    grid: Grid,
    /// Whether a cell of a group is a whole node.
    whole: bool,
    values: Option<&'a Values<'a>>,
    /// The node with the cursor.
    chosen: Option<usize>,
    theme: Theme,
}

impl Map<'_> {
    fn row(&self, first: usize, at: (u16, u16), spots: &mut Vec<Spot>) -> Line<'static> {
        match self.grid.cell {
            Cell::One => self.tiles(first, at, spots),
            Cell::Groups(shared) => self.cells(first, shared, at, spots),
        }
    }

    /// One row of groups side by side, each with its name, or behind the name of the first.
    fn tiles(&self, first: usize, (x, y): (u16, u16), spots: &mut Vec<Spot>) -> Line<'static> {
        let (mut spans, grid) = (Vec::new(), self.grid);
        let mut left = x;
        let groups = self.groups.list.iter().enumerate().skip(first).take(grid.per_row);
        for (at, group) in groups {
            let nodes = self.groups.nodes_of(group);
            let here = self.chosen.is_some_and(|node| nodes.contains(&node));
            if grid.named || at == first {
                let dim = self.theme.style(Meaning::Dim);
                let name = if here && grid.named { theme::selected(dim) } else { dim };
                spans.push(Span::styled(format::left(group.name, grid.label - 1), name));
                spans.push(Span::raw(" "));
                left += grid.label as u16;
            }
            let room = grid.tile - if grid.named { grid.label } else { 0 };
            // Where a group has no name to mark, its cells are marked; in a group of many the node's own.
            let cells = self.members(nodes, here && (!grid.named || nodes.len() > 1));
            let used = cells.len().min(room);
            self.point(nodes, left, y, used, spots);
            runs(&mut spans, cells.into_iter().take(room));
            spans.push(Span::raw(" ".repeat(room - used)));
            left += room as u16;
        }
        Line::from(spans)
    }

    /// What can be pointed at in a tile: each node's cells.
    fn point(&self, nodes: &[usize], left: u16, y: u16, used: usize, spots: &mut Vec<Spot>) {
        let mut x = left;
        for node in nodes {
            let width = if self.whole { 1 } else { self.groups.rows[*node].1.len() } as u16;
            if usize::from(x + width - left) > used {
                return;
            }
            let area = Rect { x, y, width, height: 1 };
            spots.push(Spot { area, what: What::Panel(Panel::Heat, *node) });
            x += width;
        }
    }

    /// The cells of a group: its GPUs, or its nodes.
    fn members(&self, nodes: &[usize], marked: bool) -> Vec<(&'static str, Style)> {
        let mut cells = Vec::new();
        for node in nodes {
            let own = marked && self.chosen == Some(*node);
            let mark = |(sign, style)| (sign, if own { theme::selected(style) } else { style });
            if self.whole {
                cells.push(mark(self.worst(&[*node])));
                continue;
            }
            let (_, states, from) = self.groups.rows[*node];
            cells.extend(states.bytes().enumerate().map(|(at, code)| {
                mark(match self.values {
                    Some(values) => values.cell(from + at, self.theme),
                    None => look(STATES[usize::from(code)].1, self.theme),
                })
            }));
        }
        cells
    }

    /// The one cell that stands for all GPUs of some nodes.
    fn worst(&self, nodes: &[usize]) -> (&'static str, Style) {
        let rows = nodes.iter().map(|node| self.groups.rows[*node]);
        let Some(values) = self.values else {
            let states = &*STATES;
            let codes = rows.flat_map(|(_, codes, _)| codes.bytes());
            let worst = codes.map(|code| states[usize::from(code)]).max_by_key(|(rank, _)| *rank);
            return look(worst.map_or(GpuState::Unknown, |(_, state)| state), self.theme);
        };
        values.highest(rows.flat_map(|(_, codes, from)| from..from + codes.len()), self.theme)
    }

    /// One row of cells, each for `shared` groups, behind the name of the first.
    fn cells(
        &self,
        first: usize,
        shared: usize,
        (x, y): (u16, u16),
        spots: &mut Vec<Spot>,
    ) -> Line<'static> {
        let row = self.groups.list.get(first..).unwrap_or_default();
        let Some(head) = row.first() else { return Line::default() };
        let name = format!("{} ", format::left(head.name, self.grid.label - 1));
        let mut spans = vec![Span::styled(name, self.theme.style(Meaning::Dim))];
        let mut left = x + self.grid.label as u16;
        let cells = row.chunks(shared).take(self.grid.per_row).map(|groups| {
            let nodes = self.groups.nodes_of_all(groups);
            let here = self.chosen.is_some_and(|node| nodes.contains(&node));
            if let Some(node) = nodes.first() {
                let area = Rect { x: left, y, width: 1, height: 1 };
                spots.push(Spot { area, what: What::Panel(Panel::Heat, *node) });
            }
            left += 1;
            let (sign, style) = self.worst(nodes);
            (sign, if here { theme::selected(style) } else { style })
        });
        let cells: Vec<(&'static str, Style)> = cells.collect();
        runs(&mut spans, cells.into_iter());
        Line::from(spans)
    }
}

/// How a state looks.
fn look(state: GpuState, theme: Theme) -> (&'static str, Style) {
    (theme::state_sign(state), theme.state(state))
}

/// Cells as spans, neighbours of one look in one span.
fn runs(spans: &mut Vec<Span<'static>>, cells: impl Iterator<Item = (&'static str, Style)>) {
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

/// The rank and the state of each code letter, looked up once: a frame of a large fleet asks a hundred thousand times.
static STATES: LazyLock<[(u8, GpuState); 256]> = LazyLock::new(|| {
    std::array::from_fn(|code| {
        let state = GpuState::from_code(char::from(code as u8)).unwrap_or(GpuState::Unknown);
        (theme::state_rank(state), state)
    })
});
