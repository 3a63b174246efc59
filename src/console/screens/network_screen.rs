//! Network screen: leaves by rails, each cell with the worse of its two directions.

use gaunt_schema::{SanitizedText, Severity, UnixMs};
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
    fabric_cables::{cables_question, domains_question},
    fabric_map::is_rail_optimised,
    fabric_peers::{ComparedRow, cell_value, compare_rows, value_at},
    key_binding::{BACK, FILTER, KeyBinding, MEASURE, OPEN, bind},
    key_press::KeyPress,
    screen::{ListScreen, NetworkScreen, ProbeScreen, Screen},
    screen_view::{ScreenCommand, ScreenOutcome, ScreenView},
    theme::{self, StyleRole, Theme},
    view::{cable_rows, draw_lines},
};
use gaunt_api::{
    FabricCellColumns, FabricMatrix, Filter, Finding, Question, Subject, filter::quote_text,
};

/// Columns of a cell, its gap included.
const CELL: usize = 8;
/// Maximum width of a leaf name.
const LEAF: usize = 16;
/// Cables that are shown before the NVLink domains have lines.
const MIN_CABLES: usize = 6;

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
        &[&[OPEN, BACK, FILTER, MEASURE, PROBE]]
    }

    fn questions(&self, state: &ConsoleState) -> Vec<Question> {
        let filter = Filter::parse(Subject::Ports, entered_filter(state));
        let mut questions =
            vec![Question::Fabric(filter.unwrap_or_else(|_| Filter::all_rows(Subject::Ports)))];
        questions.extend(selected_cables(state));
        if state.is_due(state.data.domains.as_ref().map(|(at, _)| *at)) {
            questions.extend(domains_question());
        }
        if state.layout.has_side_pane {
            questions.extend(ProbeScreen.questions(state));
        }
        questions
    }

    fn shown_at(&self, state: &ConsoleState) -> Option<UnixMs> {
        state.data.fabric.as_deref().map(|fabric| fabric.at)
    }

    fn rows_command(&self) -> Option<&'static str> {
        Some("network")
    }

    fn filter_subject(&self) -> Option<Subject> {
        Some(Subject::Ports)
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
        let again = state.cursors.cell.replace((leaf, rail)) == Some((leaf, rail));
        if again { self.open_item(state) } else { ScreenOutcome::Ask }
    }

    /// Draws the map, below it the numbers and the cables of the cell under the cursor and the NVLink domains, and on a wide
    /// screen the probe matrix beside it.
    ///
    /// ```text
    ///  NETWORK  load, % of the line rate; x port down   256 ports · 1 not active
    ///  unit        r0      r1      r2      r3
    ///  leaf-07     38      39      38     ✖x9
    ///  leaf-06     41      40      42      41
    ///
    ///  leaf-07 · rail 3   16 ports, 15 active   in 38 %  out 37 %   PFC pause received 9.1 % …
    ///    gpu003 mlx5_3/1 ─ leaf-07-r3 port 17   down             ✖ port_down
    ///
    ///  NVLINK   18 domains larger than a node, by GPUs lost
    /// ```
    fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout {
        let wide = area.width >= PROBE_FROM;
        let probed = state.data.probe.as_ref().is_some_and(|(_, matrix)| !matrix.rails.is_empty());
        let map = Rect { width: if wide && probed { area.width / 2 } else { area.width }, ..area };
        let layout = self.draw_map(buffer, map, state, theme);
        if map.width < area.width {
            let beside = Rect { x: map.right() + 1, width: area.width - map.width - 1, ..area };
            // Its cells are chosen on its own screen.
            ProbeScreen.draw(buffer, beside, state, theme);
        }
        ScreenLayout { has_side_pane: wide, ..layout }
    }
}

/// Minimum width for the probe matrix beside the map.
const PROBE_FROM: u16 = 180;

impl NetworkScreen {
    fn draw_map(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout {
        let Some(fabric) = state.data.fabric.as_deref() else {
            return self.draw_waiting(buffer, area, "the fabric", state, theme);
        };
        let filter = entered_filter(state);
        let mut lines =
            vec![render_title(fabric, state.measure, filter, usize::from(area.width), theme)];
        if fabric.cells.ports.is_empty() {
            let text = if filter.is_empty() {
                " no node has an RDMA port"
            } else {
                " no port matches; Esc clears the filter"
            };
            lines.extend([Line::default(), Line::styled(text, theme.style_for(StyleRole::Dim))]);
            draw_lines(buffer, area, &lines);
            return ScreenLayout::default();
        }
        let rows = compare_rows(fabric, state.measure);
        let names = |compared: &ComparedRow| {
            let name = &compared.row.name;
            if name.is_empty() { 9 } else { display_text::text_width(name) }
        };
        let label = rows.iter().map(names).max().unwrap_or(0).clamp(6, LEAF);
        let width = usize::from(area.width);
        let columns = width.saturating_sub(label + 2);
        let cell_width = fit_cell_width(fabric, state, columns);
        let fits = (columns / cell_width).max(1);
        let (leaf, rail) = cursor_cell(state, fabric, &rows);
        let chosen = rows.get(leaf).and_then(|it| it.row.cells.get(rail).copied().flatten());
        // On a low screen the map has half of the lines.
        let height = usize::from(area.height).saturating_sub(2 + 1);
        let below = height - rows.len().min(height / 2);
        let below = render_below(fabric, chosen, state, (width, below), theme);
        let page = height.saturating_sub(below.len()).max(1);
        let (top, left) = (
            first_visible_row(leaf, rows.len(), page),
            first_visible_row(rail, fabric.rails.len(), fits),
        );
        let title = if is_rail_optimised(fabric) { "unit" } else { "leaf" };
        let rails = (left, fits, cell_width);
        lines.push(render_rails(fabric, title, label, rails, theme));
        let mut click_areas = Vec::new();
        for (at, ComparedRow { row, deviates }) in rows.iter().enumerate().skip(top).take(page) {
            let y = area.y + lines.len() as u16;
            let name = if row.name.is_empty() { "(unknown)" } else { row.name.as_str() };
            let head = format!(" {} ", display_text::align_left(name, label));
            let mut spans = vec![Span::styled(head, theme.style_for(StyleRole::Dim))];
            for (column, index) in row.cells.iter().enumerate().skip(left).take(fits) {
                let x = area.x + (label + 2 + (column - left) * cell_width) as u16;
                let cell_area = Rect { x, y, width: cell_width as u16, height: 1 };
                click_areas
                    .push(ClickArea { area: cell_area, target: ClickTarget::Cell(at, column) });
                let (text, style) = index.map_or_else(
                    || (String::new(), Style::new()),
                    |index| {
                        let is_odd = deviates.get(column).copied().unwrap_or(false);
                        render_cell(fabric, index, state, is_odd, theme)
                    },
                );
                let chosen = (at, column) == (leaf, rail);
                let style = if chosen { theme::selected_style(style) } else { style };
                spans.push(Span::styled(display_text::align_right(&text, cell_width - 1), style));
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

/// Renders what is below the map in at most `height` lines: the numbers of the cell under the cursor, as many of its
/// cables as fit, and NVLink domains.
fn render_below(
    fabric: &FabricMatrix,
    chosen: Option<usize>,
    state: &ConsoleState,
    (width, height): (usize, usize),
    theme: Theme,
) -> Vec<Line<'static>> {
    let findings = open_findings(state);
    let mut below = cable_rows::render_cell_numbers(fabric, chosen, findings, width, theme);
    let asked = selected_cables(state);
    let cables = state.data.cables.as_ref().filter(|(of, _)| asked.as_ref() == Some(of));
    let domains = state.data.domains.as_ref();
    let domains = domains
        .map_or_else(Vec::new, |(_, gpus)| cable_rows::render_domains(gpus, findings, theme));
    if let Some((_, ports)) = cables {
        let at = below.len() - 1;
        let left = height.saturating_sub(below.len());
        let left = left.saturating_sub(domains.len()).max(left.min(MIN_CABLES));
        let cables = cable_rows::render_cables(ports, findings, width, theme);
        below.splice(at..at, cables.into_iter().take(left));
    }
    below.extend(domains);
    below.truncate(height);
    below
}

/// Returns the findings of the overview.
fn open_findings(state: &ConsoleState) -> &[Finding] {
    state.data.overview.as_deref().map_or(&[], |overview| &overview.findings)
}

/// Returns the columns of a cell: narrower than usual if the rails then fit, but never than its widest text.
fn fit_cell_width(fabric: &FabricMatrix, state: &ConsoleState, columns: usize) -> usize {
    let rails = fabric.rails.len().max(1);
    if rails * CELL <= columns {
        return CELL;
    }
    let cells = 0..fabric.cells.ports.len();
    let texts = cells.map(|at| display_text::text_width(&cell_text(fabric, at, state)));
    let names = fabric.rails.iter().map(|rail| if rail.is_empty() { 6 } else { rail.len() + 1 });
    let widest = texts.chain(names).max().unwrap_or(CELL);
    (widest + 1).clamp(4, CELL).max((columns / rails).min(CELL))
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
    let rows = compare_rows(fabric, state.measure);
    let (mut row, mut rail) = cursor_cell(state, fabric, &rows);
    let last = |count: usize| count.saturating_sub(1);
    match intent {
        KeyIntent::Left => rail = rail.saturating_sub(1),
        KeyIntent::Right => rail = (rail + 1).min(last(fabric.rails.len())),
        _ => row = row.saturating_add_signed(by).min(last(rows.len())),
    }
    state.cursors.cell = Some((row, rail));
    // Request the cables of the cell.
    ScreenOutcome::Ask
}

/// Returns the row and the rail under the cursor: until the user moves it, the first cell of the worst row that has a
/// finding, a port that is down or a number that deviates.
fn cursor_cell(
    state: &ConsoleState,
    fabric: &FabricMatrix,
    rows: &[ComparedRow],
) -> (usize, usize) {
    let (row, rail) = state.cursors.cell.unwrap_or_else(|| {
        let cells = &fabric.cells;
        let first = rows.first();
        let find = |is_bad: &dyn Fn(usize) -> bool| {
            first?.row.cells.iter().position(|cell| cell.is_some_and(is_bad))
        };
        let rail = find(&|at| cells.finding.get(at).copied().flatten().is_some())
            .or_else(|| find(&|at| cells.active.get(at) < cells.ports.get(at)))
            .or_else(|| first?.deviates.iter().position(|deviates| *deviates));
        (0, rail.unwrap_or(0))
    });
    let last = |count: usize| count.saturating_sub(1);
    (row.min(last(rows.len())), rail.min(last(fabric.rails.len())))
}

/// Returns the question for the cables of the cell under the cursor.
pub(crate) fn selected_cables(state: &ConsoleState) -> Option<Question> {
    cables_question(&selected_filter(state)?)
}

/// Returns the filter for the ports of the cell under the cursor.
fn selected_filter(state: &ConsoleState) -> Option<String> {
    let fabric = state.data.fabric.as_deref()?;
    let rows = compare_rows(fabric, state.measure);
    let (row, rail) = cursor_cell(state, fabric, &rows);
    let cell = rows.get(row)?.row.cells.get(rail).copied().flatten()?;
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
    let entered = entered_filter(state);
    let entered = if entered.is_empty() { String::new() } else { format!("({entered}) and ") };
    Some(format!("{entered}{leaf} and {rail}"))
}

/// Returns the filter that the user entered for ports; another screen's filter does not apply to the map.
fn entered_filter(state: &ConsoleState) -> &str {
    let list = state.list_state(Subject::Ports);
    if list.has_entered_filter() { &list.rows } else { "" }
}

/// The next step where no leaf is known.
const NO_LEAF: &str = "   no leaf known: :coverage";

fn render_title(
    fabric: &FabricMatrix,
    measure: NetworkMeasure,
    filter: &str,
    width: usize,
    theme: Theme,
) -> Line<'static> {
    let ports: u32 = fabric.cells.ports.iter().sum();
    let active: u32 = fabric.cells.active.iter().sum();
    let down = ports - active.min(ports);
    let label = measure_label(measure);
    let title = Span::styled(" NETWORK  ", theme.style_for(StyleRole::Title));
    let ports = format!("{} ports", display_text::format_count(ports.into()));
    let down_text = match down {
        0 => String::new(),
        down => format!("{} not active", display_text::format_count(down.into())),
    };
    let bad = Span::styled(down_text.clone(), theme.style_for(StyleRole::Bad));
    let no_leaf = if fabric.leaves.iter().all(|leaf| leaf.is_empty()) { NO_LEAF } else { "" };
    let needed = [title.content.as_ref(), label, "   ", &ports, " · ", &down_text, no_leaf];
    let is_narrow = needed.into_iter().map(display_text::text_width).sum::<usize>() > width;
    let mut spans = match (down, is_narrow) {
        (0, false) => vec![title, Span::raw(format!("{label}   {ports}"))],
        (_, false) => vec![title, Span::raw(format!("{label}   {ports} · ")), bad],
        // On a narrow screen what is wrong replaces what there is, and is never cut off.
        (_, true) => {
            let unit = label.split(';').next().unwrap_or(label);
            let ports = if down == 0 { Span::raw(ports) } else { bad };
            vec![title, ports, Span::raw(format!("   {unit}"))]
        }
    };
    if !filter.is_empty() {
        let text =
            format!("   of {} match {filter}", display_text::format_count(fabric.total.into()));
        spans.push(Span::styled(text, theme.style_for(StyleRole::Dim)));
    }
    spans.push(Span::styled(no_leaf, theme.style_for(StyleRole::Dim)));
    Line::from(spans)
}

/// Returns the name of a measure, with its unit and its symbols.
const fn measure_label(measure: NetworkMeasure) -> &'static str {
    match measure {
        NetworkMeasure::Load => "load, % of the line rate; x port down",
        NetworkMeasure::Pauses => "PFC pause, % of time: ↓ received  ↑ sent",
        NetworkMeasure::Congestion => "CNPs and ECN-marked packets per second",
        NetworkMeasure::Errors => "link errors per second",
        NetworkMeasure::Flaps => "link downs per second",
    }
}

fn render_rails(
    fabric: &FabricMatrix,
    title: &str,
    label: usize,
    (left, fits, cell_width): (usize, usize, usize),
    theme: Theme,
) -> Line<'static> {
    let mut text = format!(" {title:<label$} ");
    for rail in fabric.rails.iter().skip(left).take(fits) {
        let name = if rail.is_empty() { "rail ?".to_owned() } else { format!("r{rail}") };
        text.push_str(&display_text::align_right(&name, cell_width - 1));
        text.push(' ');
    }
    let more = fabric.rails.len().saturating_sub(left + fits);
    if more > 0 {
        // The gap behind the last column says that there are more at the right.
        text.pop();
        text.push('>');
    }
    Line::styled(text, theme.style_for(StyleRole::Title))
}

/// Renders a cell. What is as elsewhere is calm.
fn render_cell(
    fabric: &FabricMatrix,
    index: usize,
    state: &ConsoleState,
    deviates: bool,
    theme: Theme,
) -> (String, Style) {
    let text = cell_text(fabric, index, state);
    let style = match (cell_severity(fabric, index, state), text.starts_with('x'), deviates) {
        (Some(severity), ..) => theme.severity_style(severity),
        (None, true, _) => theme.style_for(StyleRole::Bad),
        (None, false, true) => theme.style_for(StyleRole::Waiting),
        (None, false, false) => theme.style_for(StyleRole::Dim),
    };
    (text, style)
}

/// Returns the severity of the worst finding of a cell.
fn cell_severity(fabric: &FabricMatrix, index: usize, state: &ConsoleState) -> Option<Severity> {
    let kind = fabric.cells.finding.get(index).copied().flatten()?;
    Some(cable_rows::severity_of(open_findings(state), kind.as_str(), None))
}

/// Returns the text of a cell: the sign of a finding, a cross for ports that are down, and the number of the measure.
fn cell_text(fabric: &FabricMatrix, index: usize, state: &ConsoleState) -> String {
    let cells = &fabric.cells;
    let (ports, active) = (cells.ports[index], cells.active[index]);
    let mark = cell_severity(fabric, index, state).map_or("", theme::severity_sign);
    if active == 0 && ports > 0 {
        return format!("{mark}x");
    }
    let down = if active < ports { "x" } else { "" };
    format!("{mark}{down}{}", render_measure(cells, index, state.measure))
}

/// Renders the number of a cell; pauses with their direction.
fn render_measure(cells: &FabricCellColumns, index: usize, measure: NetworkMeasure) -> String {
    let Some(value) = cell_value(cells, index, measure) else {
        return display_text::ABSENT.to_owned();
    };
    match measure {
        NetworkMeasure::Load => format!("{:.0}", value * 100.0),
        NetworkMeasure::Pauses if value < 0.000_5 => "0".to_owned(),
        NetworkMeasure::Pauses => {
            let received = value_at(&cells.pause_received_ratio, index) == Some(value);
            format!("{}{:.1}", if received { "↓" } else { "↑" }, value * 100.0)
        }
        NetworkMeasure::Congestion | NetworkMeasure::Errors | NetworkMeasure::Flaps => {
            display_text::format_short_rate(value.into())
        }
    }
}
