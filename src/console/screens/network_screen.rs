//! Network screen: leaves by rails, each cell with the worse of its two directions.

use gaunt_schema::{SanitizedText, UnixMs};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use crate::{
    action::KeyIntent,
    console_state::{ClickArea, ClickTarget, ConsoleState, NetworkMeasure, ScreenLayout},
    cursor::first_visible_row,
    cursor_rows, display_text,
    fabric_map::{self, FabricMapRow},
    key_binding::{BACK, KeyBinding, MEASURE, OPEN, bind},
    key_press::KeyPress,
    screen::{ListScreen, NetworkScreen, ProbeScreen, Screen},
    screen_view::{ScreenCommand, ScreenOutcome, ScreenView},
    theme::{self, StyleRole, Theme},
    view::draw_lines,
};
use gaunt_api::{FabricCellColumns, FabricMatrix, Filter, Question, Subject, filter::quote_text};

/// Columns of a cell, its gap included.
const CELL: usize = 7;
/// Maximum width of a leaf name.
const LEAF: usize = 16;
/// Pause time share that is highlighted.
const PAUSED: f32 = 0.01;
/// Load, as a share of the line rate, that counts as saturated.
const FULL: f32 = 0.9;

impl ScreenView for NetworkScreen {
    fn commands() -> &'static [ScreenCommand] {
        const {
            &[ScreenCommand::main(
                4,
                "network",
                "leaves by rails",
                "network: leaves by rails",
                |_| Ok(NetworkScreen.into()),
            )]
        }
    }

    fn header_title(&self) -> String {
        "network".into()
    }

    fn keys(&self) -> &'static [&'static [KeyBinding]] {
        &[&[OPEN, BACK, MEASURE, PROBE]]
    }

    fn questions(&self, _state: &ConsoleState) -> Vec<Question> {
        vec![Question::Fabric(Filter::all_rows(Subject::Ports))]
    }

    fn shown_at(&self, state: &ConsoleState) -> Option<UnixMs> {
        state.data.fabric.as_deref().map(|fabric| fabric.at)
    }

    fn item_target(&self, state: &ConsoleState) -> Option<Screen> {
        selected_filter(state).map(|_| ListScreen(Subject::Ports).into())
    }

    /// Opens the ports of the cell.
    fn open_item(&self, state: &mut ConsoleState) -> ScreenOutcome {
        ScreenOutcome::open_filtered_list(state, Subject::Ports, selected_filter(state))
    }

    fn handle_intent(&self, state: &mut ConsoleState, intent: KeyIntent) -> ScreenOutcome {
        match intent {
            KeyIntent::Probe => return ScreenOutcome::Open(ProbeScreen.into()),
            KeyIntent::Measure => state.measure = next_measure(state.measure),
            _ => return move_cursor(state, intent),
        }
        ScreenOutcome::Redraw
    }

    fn handle_click(&self, state: &mut ConsoleState, target: ClickTarget) -> ScreenOutcome {
        let ClickTarget::Cell(leaf, rail) = target else { return ScreenOutcome::Unchanged };
        let again = std::mem::replace(&mut state.cursors.cell, (leaf, rail)) == (leaf, rail);
        if again { self.open_item(state) } else { ScreenOutcome::Redraw }
    }

    /// Draws the map, and below it the numbers of the cell under the cursor.
    ///
    /// ```text
    ///  NETWORK  load, % of the line rate; x port down   256 ports · 1 not active
    ///             r0     r1     r2     r3
    ///  leaf-06    41     40     42     41
    ///  leaf-07    38     39     38    ◀9%
    ///
    ///  leaf-07 · rail 3   16 ports, 15 active   in 38 %  out 37 %   PFC pause received 9.1 % …
    /// ```
    fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout {
        let Some(fabric) = state.data.fabric.as_deref() else {
            return self.draw_waiting(buffer, area, "the fabric", state, theme);
        };
        let mut lines = vec![render_title(fabric, state.measure, theme)];
        if fabric.cells.ports.is_empty() {
            let text = " no node has an RDMA port";
            lines.extend([Line::default(), Line::styled(text, theme.style_for(StyleRole::Dim))]);
            draw_lines(buffer, area, &lines);
            return ScreenLayout::default();
        }
        let rows = fabric_map::fabric_map_rows(fabric);
        let names = |row: &FabricMapRow| {
            if row.name.is_empty() { 9 } else { display_text::text_width(&row.name) }
        };
        let label = rows.iter().map(names).max().unwrap_or(0).clamp(6, LEAF);
        let width = usize::from(area.width);
        let fits = (width.saturating_sub(label + 2) / CELL).max(1);
        let (leaf, rail) = state.cursors.cell;
        let leaf = leaf.min(rows.len().saturating_sub(1));
        let rail = rail.min(fabric.rails.len().saturating_sub(1));
        let chosen = rows.get(leaf).and_then(|row| row.cells.get(rail).copied().flatten());
        let below = render_detail(fabric, chosen, width, theme);
        let page = usize::from(area.height).saturating_sub(2 + below.len() + 1).max(1);
        let (top, left) = (
            first_visible_row(leaf, rows.len(), page),
            first_visible_row(rail, fabric.rails.len(), fits),
        );
        lines.push(render_rails(fabric, label, left, fits, theme));
        let mut click_areas = Vec::new();
        for (at, row) in rows.iter().enumerate().skip(top).take(page) {
            let y = area.y + lines.len() as u16;
            let name = if row.name.is_empty() { "(unknown)" } else { row.name.as_str() };
            let head = format!(" {} ", display_text::align_left(name, label));
            let mut spans = vec![Span::styled(head, theme.style_for(StyleRole::Dim))];
            for (column, index) in row.cells.iter().enumerate().skip(left).take(fits) {
                let x = area.x + (label + 2 + (column - left) * CELL) as u16;
                let cell_area = Rect { x, y, width: CELL as u16, height: 1 };
                click_areas
                    .push(ClickArea { area: cell_area, target: ClickTarget::Cell(at, column) });
                let (text, style) = index.map_or_else(
                    || (String::new(), Style::new()),
                    |index| render_cell(fabric, index, state.measure, theme),
                );
                let chosen = (at, column) == (leaf, rail);
                let style = if chosen { theme::selected_style(style) } else { style };
                spans.push(Span::styled(display_text::align_right(&text, CELL - 1), style));
                spans.push(Span::raw(" "));
            }
            lines.push(Line::from(spans));
        }
        lines.push(Line::default());
        lines.extend(below);
        draw_lines(buffer, area, &lines);
        ScreenLayout { page, click_areas, ..ScreenLayout::default() }
    }
}

/// Opens the probe screen.
const PROBE: KeyBinding =
    bind(&[KeyPress::Char('p')], "p", KeyIntent::Probe, "cross-node probe results", Some("probe"));

const fn next_measure(measure: NetworkMeasure) -> NetworkMeasure {
    match measure {
        NetworkMeasure::Load => NetworkMeasure::Pauses,
        NetworkMeasure::Pauses => NetworkMeasure::Congestion,
        NetworkMeasure::Congestion => NetworkMeasure::Errors,
        NetworkMeasure::Errors => NetworkMeasure::Flaps,
        NetworkMeasure::Flaps => NetworkMeasure::Load,
    }
}

fn move_cursor(state: &mut ConsoleState, intent: KeyIntent) -> ScreenOutcome {
    let by = cursor_rows::row_steps(state, intent);
    let Some(fabric) = state.data.fabric.as_deref() else { return ScreenOutcome::Unchanged };
    let rows = fabric_map::fabric_map_rows(fabric).len();
    let (row, rail) = &mut state.cursors.cell;
    let last = |count: usize| count.saturating_sub(1);
    match intent {
        KeyIntent::Left => *rail = rail.saturating_sub(1),
        KeyIntent::Right => *rail = (*rail + 1).min(last(fabric.rails.len())),
        _ => *row = row.saturating_add_signed(by).min(last(rows)),
    }
    ScreenOutcome::Redraw
}

/// Returns the filter for the ports of the cell under the cursor.
fn selected_filter(state: &ConsoleState) -> Option<String> {
    let fabric = state.data.fabric.as_deref()?;
    let (row, rail) = state.cursors.cell;
    let cell = fabric_map::fabric_map_rows(fabric).get(row)?.cells.get(rail).copied().flatten()?;
    let part = |field: &str, names: &[SanitizedText], at: u32| {
        let name = names.get(at as usize)?;
        Some(if name.is_empty() {
            format!("not has {field}")
        } else {
            format!("{field}={}", quote_text(name))
        })
    };
    let leaf = part("leaf", &fabric.leaves, fabric.cells.leaf[cell])?;
    let rail = part("rail", &fabric.rails, fabric.cells.rail[cell])?;
    Some(format!("{leaf} and {rail}"))
}

fn render_title(fabric: &FabricMatrix, measure: NetworkMeasure, theme: Theme) -> Line<'static> {
    let ports: u32 = fabric.cells.ports.iter().sum();
    let active: u32 = fabric.cells.active.iter().sum();
    let down = ports - active.min(ports);
    let mut spans = vec![
        Span::styled(" NETWORK  ", theme.style_for(StyleRole::Title)),
        Span::raw(format!("{}   ", measure_label(measure))),
        Span::raw(format!("{} ports", display_text::format_count(ports.into()))),
    ];
    if down > 0 {
        let text = format!(" · {} not active", display_text::format_count(down.into()));
        spans.push(Span::styled(text, theme.style_for(StyleRole::Bad)));
    }
    if fabric.leaves.iter().all(|leaf| leaf.is_empty()) {
        let text = "   no leaf known: see [topology] in the settings";
        spans.push(Span::styled(text, theme.style_for(StyleRole::Dim)));
    }
    Line::from(spans)
}

/// Returns the name of a measure, with its unit and its symbols.
const fn measure_label(measure: NetworkMeasure) -> &'static str {
    match measure {
        NetworkMeasure::Load => "load, % of the line rate; x port down",
        NetworkMeasure::Pauses => "PFC pause, % of time: ◀ received  ▶ sent",
        NetworkMeasure::Congestion => "CNPs and ECN-marked packets per second",
        NetworkMeasure::Errors => "link errors per second",
        NetworkMeasure::Flaps => "link downs per second",
    }
}

fn render_rails(
    fabric: &FabricMatrix,
    label: usize,
    left: usize,
    fits: usize,
    theme: Theme,
) -> Line<'static> {
    let mut text = " ".repeat(label + 2);
    for rail in fabric.rails.iter().skip(left).take(fits) {
        let name = if rail.is_empty() { "rail ?".to_owned() } else { format!("r{rail}") };
        text.push_str(&display_text::align_right(&name, CELL - 1));
        text.push(' ');
    }
    Line::styled(text, theme.style_for(StyleRole::Title))
}

fn value_at(column: &[Option<f32>], index: usize) -> Option<f32> {
    column.get(index).copied().flatten().filter(|value| value.is_finite())
}

fn larger_of(a: Option<f32>, b: Option<f32>) -> Option<f32> {
    a.into_iter().chain(b).reduce(f32::max)
}

fn render_cell(
    fabric: &FabricMatrix,
    index: usize,
    measure: NetworkMeasure,
    theme: Theme,
) -> (String, Style) {
    let cells = &fabric.cells;
    let (ports, active) = (cells.ports[index], cells.active[index]);
    if active == 0 && ports > 0 {
        return ("x".into(), theme.style_for(StyleRole::Bad));
    }
    let blamed = cells.finding.get(index).copied().flatten().is_some();
    let (mut text, meaning) = render_measure(cells, index, measure);
    if active < ports {
        text = format!("x{text}");
    }
    let meaning = if blamed || active < ports { StyleRole::Bad } else { meaning };
    (text, theme.style_for(meaning))
}

/// Renders the number of a cell and its style role.
fn render_measure(
    cells: &FabricCellColumns,
    index: usize,
    measure: NetworkMeasure,
) -> (String, StyleRole) {
    let absent = || (display_text::ABSENT.to_owned(), StyleRole::Dim);
    let rate = |value: Option<f32>, meaning| match value {
        None => absent(),
        Some(0.0) => ("0".into(), StyleRole::Dim),
        // The number alone is not a fault: a value beyond a limit has a finding, which sets the colour.
        Some(value) => (display_text::format_short_rate(value.into()), meaning),
    };
    match measure {
        NetworkMeasure::Load => {
            let load = larger_of(
                value_at(&cells.receive_ratio, index),
                value_at(&cells.transmit_ratio, index),
            );
            load.map_or_else(absent, |load| {
                let meaning = if load >= FULL { StyleRole::Waiting } else { StyleRole::Plain };
                (format!("{:.0}", load * 100.0), meaning)
            })
        }
        NetworkMeasure::Pauses => {
            let received = value_at(&cells.pause_received_ratio, index);
            let sent = value_at(&cells.pause_sent_ratio, index);
            let Some(most) = larger_of(received, sent) else { return absent() };
            let sign = match most {
                most if most < 0.000_5 => return ("0".into(), StyleRole::Dim),
                most if received == Some(most) => "◀",
                _ => "▶",
            };
            let meaning = if most >= PAUSED { StyleRole::Waiting } else { StyleRole::Plain };
            (format!("{sign}{:.1}", most * 100.0), meaning)
        }
        NetworkMeasure::Congestion => rate(
            larger_of(
                value_at(&cells.cnp_handled_per_second, index),
                value_at(&cells.ecn_marked_per_second, index),
            ),
            StyleRole::Plain,
        ),
        NetworkMeasure::Errors => {
            rate(value_at(&cells.errors_per_second, index), StyleRole::Waiting)
        }
        NetworkMeasure::Flaps => rate(value_at(&cells.downs_per_second, index), StyleRole::Waiting),
    }
}

/// Renders all numbers of the cell under the cursor.
fn render_detail(
    fabric: &FabricMatrix,
    cell: Option<usize>,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let cells = &fabric.cells;
    let Some(index) = cell else {
        return vec![Line::styled("   no port here", theme.style_for(StyleRole::Dim))];
    };
    let name = |names: &[SanitizedText], at: u32, word: &str| match names.get(at as usize) {
        Some(name) if !name.is_empty() => format!("{word}{name}"),
        _ => format!("{word}unknown"),
    };
    let leaf = name(&fabric.leaves, cells.leaf[index], "");
    let head = format!(" {leaf} · {}", name(&fabric.rails, cells.rail[index], "rail "));
    let share = |column: &[Option<f32>]| {
        value_at(column, index)
            .map_or_else(|| display_text::ABSENT.into(), |v| format!("{:.1}", v * 100.0))
    };
    let rate = |column: &[Option<f32>]| {
        value_at(column, index).map_or_else(
            || display_text::ABSENT.into(),
            |v| display_text::format_short_rate(v.into()),
        )
    };
    let groups = [
        format!("{} ports, {} active", cells.ports[index], cells.active[index]),
        format!(
            "load: in {} %, out {} %, busiest {} %",
            share(&cells.receive_ratio),
            share(&cells.transmit_ratio),
            share(&cells.busiest_ratio)
        ),
        format!(
            "PFC pause: received {} %, sent {} %",
            share(&cells.pause_received_ratio),
            share(&cells.pause_sent_ratio)
        ),
        format!(
            "CNP {}/s, ECN {}/s",
            rate(&cells.cnp_handled_per_second),
            rate(&cells.ecn_marked_per_second)
        ),
        format!(
            "link: errors {}/s, downs {}/s",
            rate(&cells.errors_per_second),
            rate(&cells.downs_per_second)
        ),
    ];
    let mut lines = vec![Line::styled(head, theme.style_for(StyleRole::Title))];
    // A line ends between two groups, so that each number stays with its name.
    let mut line = String::new();
    for group in groups {
        let gap = if line.is_empty() { "   " } else { "  ·  " };
        let needed = display_text::text_width(&line) + gap.len() + group.len();
        if !line.is_empty() && needed > width {
            lines.push(Line::raw(std::mem::take(&mut line)));
        }
        line.push_str(if line.is_empty() { "   " } else { "  ·  " });
        line.push_str(&group);
    }
    lines.push(Line::raw(line));
    if let Some(kind) = cells.finding.get(index).copied().flatten() {
        lines.push(Line::styled(format!("   ✖ {kind}"), theme.style_for(StyleRole::Bad)));
    }
    lines.push(Line::styled("   Enter: list the ports", theme.style_for(StyleRole::Dim)));
    lines
}
