//! The heat map: one cell per GPU while they fit, then one per node, then one for several nodes, the worst of each.

use std::sync::LazyLock;

use gaunt_schema::GpuState;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use crate::{
    answer::overview::Heat,
    console::{
        cursor::Cursor,
        format,
        state::Room,
        theme::{self, Meaning, Theme},
        widget::grid::{Cell, Grid},
    },
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
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    heat: &Heat,
    cursor: (&Cursor, bool),
    theme: Theme,
) -> Room {
    if area.height < 2 {
        return Room::default();
    }
    let rows: Vec<(&str, &str)> = heat.rows().map(|(node, states)| (&**node, states)).collect();
    let (members, label) = sizes(heat);
    let body =
        Rect { x: area.x + 1, width: area.width - 1, y: area.y + 1, height: area.height - 1 };
    let (width, height) = (usize::from(body.width), usize::from(body.height));
    let grid = Grid::plan(rows.len(), members, label, width, height);
    let (cursor, focused) = cursor;
    let at = cursor.index(rows.len(), |at| rows[at].0);
    let title = title(grid, focused.then(|| rows.get(at)).flatten(), focused, area, theme);
    buffer.set_line(area.x, area.y, &title, area.width);
    let chosen = focused.then_some(at);
    for (y, row) in (body.top()..body.bottom()).zip(0..grid.rows) {
        let first = row * grid.groups_per_row();
        let line = match grid.cell {
            Cell::One => tiles(&rows, first, grid, chosen, theme),
            Cell::Groups(shared) => cells(&rows, first, shared, grid, chosen, theme),
        };
        buffer.set_line(body.x, y, &line, body.width);
    }
    Room { heat_row: grid.groups_per_row(), heat_step: grid.step(), page: height, hidden: 0 }
}

/// The most GPUs of a node, and the width of the names.
fn sizes(heat: &Heat) -> (usize, usize) {
    let members = heat.gpus.iter().copied().max().map_or(0, usize::from);
    let label = heat.nodes.iter().map(|node| format::width(node)).max().unwrap_or(0).min(LABEL);
    (members, label)
}

/// The lines that a map with a cell for every GPU takes, title included.
pub(super) fn full_height(heat: &Heat, width: u16) -> usize {
    let (members, label) = sizes(heat);
    let width = usize::from(width).saturating_sub(1);
    let grid = Grid::plan(heat.nodes.len(), members, label, width, usize::MAX);
    if grid.rows == 0 { 0 } else { 1 + grid.rows }
}

fn title(
    grid: Grid,
    chosen: Option<&(&str, &str)>,
    focused: bool,
    area: Rect,
    theme: Theme,
) -> Line<'static> {
    let name = if focused { "▸HEAT      " } else { " HEAT      " };
    let unit = match grid.cell {
        Cell::One => "one cell = one GPU".to_owned(),
        Cell::Groups(1) => "one cell = one node, its worst GPU".to_owned(),
        Cell::Groups(shared) => format!("one cell = {shared} nodes, their worst GPU"),
    };
    let here = chosen.map_or_else(String::new, |(node, states)| described(node, states));
    let room = usize::from(area.width).saturating_sub(12 + format::width(&unit));
    Line::from(vec![
        Span::styled(name, theme.style(Meaning::Title)),
        Span::styled(unit, theme.style(Meaning::Dim)),
        Span::raw(format::right(&here, room)),
    ])
}

/// A node and what its GPUs do: `gpu003: 7 waiting for peers, 1 hung`.
fn described(node: &str, states: &str) -> String {
    let counts = GpuState::ALL.iter().filter_map(|&state| {
        let count = states.chars().filter(|code| *code == state.code()).count();
        (count > 0).then(|| format!("{count} {}", theme::state_words(state)))
    });
    format!("{node}: {}", counts.collect::<Vec<_>>().join(", "))
}

/// One row of nodes side by side with a cell per GPU, each with its name, or behind the name of the first.
fn tiles(
    rows: &[(&str, &str)],
    first: usize,
    grid: Grid,
    chosen: Option<usize>,
    theme: Theme,
) -> Line<'static> {
    let mut spans = Vec::new();
    for (at, (node, states)) in rows.iter().enumerate().skip(first).take(grid.per_row) {
        let (name, here) = (theme.style(Meaning::Dim), chosen == Some(at));
        if grid.named || at == first {
            let name = if here && grid.named { theme::selected(name) } else { name };
            spans.push(Span::styled(format::left(node, grid.label - 1), name));
            spans.push(Span::raw(" "));
        }
        // Where a node has no name to mark, its cells are marked.
        let marked = here && !grid.named;
        runs(&mut spans, states.chars().map(|code| (state(code), marked)), theme);
        let room = grid.tile - if grid.named { grid.label } else { 0 };
        let gap = room - states.len().min(room);
        spans.push(Span::raw(" ".repeat(gap)));
    }
    Line::from(spans)
}

/// One row of cells, each for `shared` nodes, behind the name of the first.
fn cells(
    rows: &[(&str, &str)],
    first: usize,
    shared: usize,
    grid: Grid,
    chosen: Option<usize>,
    theme: Theme,
) -> Line<'static> {
    let row = rows.get(first..).unwrap_or_default();
    let Some((name, _)) = row.first() else { return Line::default() };
    let name = format!("{} ", format::left(name, grid.label - 1));
    let mut spans = vec![Span::styled(name, theme.style(Meaning::Dim))];
    let groups = row.chunks(shared).take(grid.per_row).enumerate();
    let worst = groups.map(|(at, group)| {
        let codes = group.iter().flat_map(|(_, states)| states.chars());
        let worst = codes.map(state).max_by_key(|state| theme::state_rank(*state));
        let here = first + at * shared;
        let selected = chosen.is_some_and(|at| (here..here + shared).contains(&at));
        (worst.unwrap_or(GpuState::Unknown), selected)
    });
    runs(&mut spans, worst, theme);
    Line::from(spans)
}

/// Cells as spans, neighbours of one state in one span.
fn runs(
    spans: &mut Vec<Span<'static>>,
    cells: impl Iterator<Item = (GpuState, bool)>,
    theme: Theme,
) {
    let mut run: Option<(GpuState, bool, usize)> = None;
    let mut flush = |run: Option<(GpuState, bool, usize)>| {
        if let Some((state, selected, length)) = run {
            let style = theme.state(state);
            let style = if selected { theme::selected(style) } else { style };
            spans.push(Span::styled(theme::state_sign(state).repeat(length), style));
        }
    };
    for (state, selected) in cells {
        match &mut run {
            Some((known, chosen, length)) if *known == state && *chosen == selected => *length += 1,
            _ => flush(run.replace((state, selected, 1))),
        }
    }
    flush(run);
}

/// The state of each code letter, looked up once: a frame of a large fleet asks a hundred thousand times.
static STATES: LazyLock<[GpuState; 128]> = LazyLock::new(|| {
    let mut states = [GpuState::Unknown; 128];
    for &state in GpuState::ALL {
        if let Some(place) = states.get_mut(state.code() as usize) {
            *place = state;
        }
    }
    states
});

/// The state of a code letter; a letter that nobody knows is a state that nobody knows.
fn state(code: char) -> GpuState {
    STATES.get(code as usize).copied().unwrap_or(GpuState::Unknown)
}
