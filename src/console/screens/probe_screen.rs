//! Probe matrix: measured bandwidth of every pair of nodes or leaves as a share of its baseline, one rail at a time.

use std::time::Duration;

use gaunt_schema::{SanitizedText, UnixMs};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use crate::{
    action::KeyIntent,
    console_state::{
        ClickArea, ClickTarget, ConsoleState, ScreenLayout, source_clock::RARE_POLL_AGE,
    },
    cursor::first_visible_row,
    cursor_rows, display_text,
    display_units::DisplayUnits,
    key_binding::{BACK, FOLD, KeyBinding, OPEN, bind},
    key_press::KeyPress,
    pair_matrix::{PairMatrix, PairMatrixCell},
    screen::{NodeScreen, ProbeScreen, Screen},
    screen_view::{ScreenCommand, ScreenOutcome, ScreenView},
    theme::{self, StyleRole, Theme},
    view::draw_lines,
};
use gaunt_api::{PairEnd, ProbeMatrix, ProbePair, ProbeSuspect, Question, RailMatrix, SuspectKind};

/// A matrix with more nodes than this is grouped by leaf.
const MANY_ENDS: usize = 120;

/// Maximum width of the name of an end.
const NAME: usize = 18;
/// Number of suspects named above the matrix.
const SUSPECTS: usize = 5;
/// Minimum share of the baseline that counts as normal: repeated measurements differ by a few per cent.
const USUAL: f64 = 0.95;
/// Share of the baseline below which a pair is slow.
const SLOW: f64 = 0.8;

/// Name of the cursor in the rows of the matrix.
const ROW_CURSOR: &str = "probe row";
/// Name of the cursor in the columns of the matrix.
const COLUMN_CURSOR: &str = "probe column";

impl ScreenView for ProbeScreen {
    fn commands() -> &'static [ScreenCommand] {
        const { &[ScreenCommand::other("probe", "cross-node probe results", |_| Ok(ProbeScreen.into()))] }
    }

    fn header_title(&self) -> String {
        "probe".into()
    }

    fn keys(&self) -> &'static [&'static [KeyBinding]] {
        &[&[OPEN, BACK, FOLD, RAIL]]
    }

    fn questions(&self, state: &ConsoleState) -> Vec<Question> {
        let came = state.data.probe.as_ref().map(|(at, _)| *at);
        // No history is stored for this answer.
        let asks = state.past_instant.is_none() && state.is_due(came);
        asks.then_some(Question::Probe).into_iter().collect()
    }

    fn shown_at(&self, state: &ConsoleState) -> Option<UnixMs> {
        state.data.probe.as_ref().map(|(_, matrix)| matrix.at)
    }

    fn extra_age(&self) -> Duration {
        RARE_POLL_AGE
    }

    fn item_target(&self, state: &ConsoleState) -> Option<Screen> {
        let (rail, square) = shown_matrix(state)?;
        let (row, column) = selected_pair(state, &square);
        let pair = &rail.pairs[*square.cell_between(row, column)?.pairs.first()?];
        (!square.by_leaf).then(|| NodeScreen(pair.from.node.clone()).into())
    }

    fn handle_intent(&self, state: &mut ConsoleState, intent: KeyIntent) -> ScreenOutcome {
        match intent {
            KeyIntent::Fold => {
                let by_leaf = shown_matrix(state).is_some_and(|(_, square)| square.by_leaf);
                state.cursors.by_leaf = Some(!by_leaf);
            }
            KeyIntent::Measure => {
                let rails = probe_matrix(state).map_or(0, |matrix| matrix.rails.len());
                state.cursors.rail = (state.cursors.rail + 1) % rails.max(1);
            }
            _ => return move_cursor(state, intent),
        }
        ScreenOutcome::Redraw
    }

    fn handle_click(&self, state: &mut ConsoleState, target: ClickTarget) -> ScreenOutcome {
        let ClickTarget::Cell(row, column) = target else { return ScreenOutcome::Unchanged };
        let Some((_, square)) = shown_matrix(state) else { return ScreenOutcome::Unchanged };
        let again = select_pair(state, &square, row as isize, column as isize);
        if again { self.open_item(state) } else { ScreenOutcome::Redraw }
    }

    /// Draws one rail.
    ///
    /// ```text
    ///  PROBE     rail 3   28 pairs of 8 nodes   within a leaf 384 Gb/s, across leaves 376 Gb/s
    ///  ▲ port    gpu003 mlx5_3/1     41 % of baseline, in 7 pairs
    ///                  ▼
    ///  gpu003           44444x4
    ///  gpu001          4 =====9
    ///  gpu002          4= =====
    ///
    ///  gpu003 mlx5_3/1 – gpu001 mlx5_3/1   within leaf-00   158 Gb/s, 41 % of baseline   by nccl, 4m ago
    /// ```
    fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout {
        if state.past_instant.is_some() {
            let text = " past probe results are not stored; press . to return to now";
            draw_lines(
                buffer,
                area,
                &[Line::default(), Line::styled(text, theme.style_for(StyleRole::Dim))],
            );
            return ScreenLayout::default();
        }
        let Some(matrix) = probe_matrix(state) else {
            return self.draw_waiting(buffer, area, "the probe matrix", state, theme);
        };
        let width = usize::from(area.width);
        let Some((rail, square)) = shown_matrix(state) else {
            draw_lines(buffer, area, &render_empty(matrix, width, theme));
            return ScreenLayout::default();
        };
        let mut lines = vec![render_title(matrix, rail, &square, width, theme)];
        lines.extend(rail.suspects.iter().take(SUSPECTS).map(|one| render_suspect(one, theme)));
        if rail.suspects.len() > SUSPECTS {
            let text = format!("   and {} more", rail.suspects.len() - SUSPECTS);
            lines.push(Line::styled(text, theme.style_for(StyleRole::Dim)));
        }
        let chosen = selected_pair(state, &square);
        let below = render_detail(rail, &square, chosen, matrix, width, theme);
        let height = usize::from(area.height).saturating_sub(lines.len() + 1 + 1 + below.len());
        let (map, layout) = render_matrix(&square, chosen, (area, lines.len()), height, theme);
        lines.extend(map);
        lines.push(Line::default());
        lines.extend(below);
        draw_lines(buffer, area, &lines);
        layout
    }
}

/// Shows the next rail.
const RAIL: KeyBinding =
    bind(&[KeyPress::Char('m')], "m", KeyIntent::Measure, "next rail", Some("rail"));

fn probe_matrix(state: &ConsoleState) -> Option<&ProbeMatrix> {
    state.data.probe.as_ref().map(|(_, matrix)| &**matrix)
}

/// Returns the shown rail and its square; none while there are no measurements.
fn shown_matrix(state: &ConsoleState) -> Option<(&RailMatrix, PairMatrix)> {
    let rails = &probe_matrix(state)?.rails;
    let rail = rails.get(state.cursors.rail % rails.len().max(1))?;
    let square = PairMatrix::of(rail, state.cursors.by_leaf.unwrap_or(false));
    // A square of so many nodes is not readable.
    let many = state.cursors.by_leaf.is_none() && square.ends.len() > MANY_ENDS;
    Some((rail, if many { PairMatrix::of(rail, true) } else { square }))
}

/// Returns the row and the column under the cursor; defaults to the first pair.
fn selected_pair(state: &ConsoleState, square: &PairMatrix) -> (usize, usize) {
    let of =
        |cursor| state.cursors.of(cursor).row_index(square.ends.len(), |at| &square.ends[at].name);
    let (row, column) = (of(ROW_CURSOR), of(COLUMN_CURSOR));
    let first = (row, column) == (0, 0) && square.cell_between(0, 0).is_none();
    if first && square.ends.len() > 1 { (0, 1) } else { (row, column) }
}

fn move_cursor(state: &mut ConsoleState, intent: KeyIntent) -> ScreenOutcome {
    let by = cursor_rows::row_steps(state, intent);
    let Some((_, square)) = shown_matrix(state) else { return ScreenOutcome::Unchanged };
    let (row, column) = selected_pair(state, &square);
    let one = match intent {
        KeyIntent::Left => -1,
        KeyIntent::Right => 1,
        _ => 0,
    };
    select_pair(state, &square, (row as isize).saturating_add(by), column as isize + one);
    ScreenOutcome::Redraw
}

/// Moves the cursor to a cell. Returns whether it was already there.
fn select_pair(state: &mut ConsoleState, square: &PairMatrix, row: isize, column: isize) -> bool {
    let before = selected_pair(state, square);
    let count = square.ends.len();
    let clamp_index = |at: isize| at.clamp(0, count.saturating_sub(1) as isize) as usize;
    let after = (clamp_index(row), clamp_index(column));
    for (cursor, to) in [(ROW_CURSOR, after.0), (COLUMN_CURSOR, after.1)] {
        state.cursors.of_mut(cursor).move_to(to, count, |at| &square.ends[at].name);
    }
    before == after
}

/// Renders the message for an empty matrix with the next step.
fn render_empty(matrix: &ProbeMatrix, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = vec![
        Line::from(vec![
            Span::styled(" PROBE     ", theme.style_for(StyleRole::Title)),
            Span::raw("no node pair measured yet"),
        ]),
        Line::default(),
    ];
    let availability = match (matrix.free, matrix.measuring) {
        (0, 0) => "No node waits for a measurement.".to_owned(),
        (free, 0) => format!("Waiting nodes: {free} of 2 needed."),
        (free, measuring) => format!("{measuring} pairs are being measured, {free} nodes wait."),
    };
    let how = "Run on each idle node:";
    let command = "gaunt-probe cross-node --aggregator http://HOST:9771 --token-file FILE";
    let what = "It measures the bandwidth between two nodes, pair by pair. It skips GPUs in use. \
                --rounds limits its run. This screen then shows what is slow with all peers: \
                a port, a leaf, an uplink or a path between leaves.";
    let available = width.saturating_sub(4);
    let plain = |text: &str| -> Vec<Line<'static>> {
        let lines = display_text::wrap_text(text, available).into_iter();
        lines.map(|line| Line::raw(format!("   {line}"))).collect()
    };
    lines.extend(plain(&availability));
    lines.push(Line::default());
    lines.extend(plain(how));
    lines.push(Line::styled(format!("     {command}"), theme.style_for(StyleRole::Title)));
    lines.push(Line::default());
    lines.extend(plain(what));
    lines
}

fn render_title(
    matrix: &ProbeMatrix,
    rail: &RailMatrix,
    square: &PairMatrix,
    width: usize,
    theme: Theme,
) -> Line<'static> {
    let name =
        if rail.rail.is_empty() { "rail unknown".into() } else { format!("rail {}", rail.rail) };
    let of = if square.by_leaf { "leaves" } else { "ends" };
    let median = |words: &str, value: Option<f64>| {
        value.map_or_else(String::new, |value| {
            format!("   {words} {}", theme.units().format_rate(value))
        })
    };
    let mut facts = format!(
        "{name}   {} pair{} of {} {of}{}{}",
        display_text::format_count(rail.pairs.len() as u64),
        if rail.pairs.len() == 1 { "" } else { "s" },
        square.ends.len(),
        median("within a leaf", rail.within_leaf),
        median("across leaves", rail.across_leaves),
    );
    if matrix.measuring > 0 {
        facts.extend(["   ", &matrix.measuring.to_string(), " being measured"]);
    }
    let rails = match matrix.rails.len() {
        1 => String::new(),
        rails => format!("   m: {rails} rails"),
    };
    let available = width.saturating_sub(11 + display_text::text_width(&rails));
    let facts = display_text::truncate_text(&facts, available);
    Line::from(vec![
        Span::styled(" PROBE     ", theme.style_for(StyleRole::Title)),
        Span::raw(facts),
        Span::styled(rails, theme.style_for(StyleRole::Dim)),
    ])
}

fn render_suspect(suspect: &ProbeSuspect, theme: Theme) -> Line<'static> {
    let kind = match suspect.kind {
        SuspectKind::Port => "port",
        SuspectKind::Leaf => "leaf",
        SuspectKind::Uplink => "uplink",
        SuspectKind::Path => "path",
    };
    let share = display_text::format_whole_percent(Some(suspect.ratio));
    let pairs = if suspect.pairs == 1 { "pair" } else { "pairs" };
    Line::from(vec![
        Span::styled(format!(" ▲ {kind:<8}"), theme.style_for(StyleRole::Waiting)),
        Span::styled(format!("{}", suspect.name), theme.style_for(StyleRole::Title)),
        Span::raw(format!("   {share} % of baseline, in {} {pairs}", suspect.pairs)),
    ])
}

/// Renders the part of the matrix around the cursor, and its click areas.
fn render_matrix(
    square: &PairMatrix,
    chosen: (usize, usize),
    (area, above): (Rect, usize),
    height: usize,
    theme: Theme,
) -> (Vec<Line<'static>>, ScreenLayout) {
    let longest =
        square.ends.iter().map(|end| display_text::text_width(&end.name)).max().unwrap_or(0);
    let label = longest.clamp(6, NAME);
    let available = usize::from(area.width).saturating_sub(label + 3);
    // Two columns per cell as long as they fit, so that the matrix appears square.
    let cell = if 2 * square.ends.len() <= available { 2 } else { 1 };
    let (across, down) = ((available / cell).max(1), height.max(1));
    let (row, column) = chosen;
    let (top, left) = (
        first_visible_row(row, square.ends.len(), down),
        first_visible_row(column, square.ends.len(), across),
    );
    let mark = " ".repeat(label + 2 + (column - left) * cell) + "▼";
    let mut lines = vec![Line::styled(mark, theme.style_for(StyleRole::Dim))];
    let mut click_areas = Vec::new();
    for (at, end) in square.ends.iter().enumerate().skip(top).take(down) {
        let name = format!(" {} ", display_text::align_left(&end.name, label));
        let meaning = if end.suspected { StyleRole::Waiting } else { StyleRole::Dim };
        let style = theme.style_for(meaning);
        let mut spans =
            vec![Span::styled(name, if at == row { theme::selected_style(style) } else { style })];
        let y = area.y + (above + lines.len()) as u16;
        for to in (left..square.ends.len()).take(across) {
            let x = area.x + (label + 2 + (to - left) * cell) as u16;
            let cell_area = Rect { x, y, width: cell as u16, height: 1 };
            click_areas.push(ClickArea { area: cell_area, target: ClickTarget::Cell(at, to) });
            let (sign, style) = render_cell(square.cell_between(at, to), at == to, theme);
            let style = if (at, to) == chosen { theme::selected_style(style) } else { style };
            spans.push(Span::styled(sign, style));
            spans.extend((cell > 1).then(|| Span::raw(" ")));
        }
        lines.push(Line::from(spans));
    }
    let shown = (square.ends.len().min(down), square.ends.len().min(across));
    if shown != (square.ends.len(), square.ends.len()) {
        let text = format!(
            " {} by {} of {} ends shown; f: group by leaf",
            shown.0,
            shown.1,
            square.ends.len()
        );
        lines.pop();
        lines.push(Line::styled(text, theme.style_for(StyleRole::Dim)));
    }
    (lines, ScreenLayout { page: down, click_areas, ..ScreenLayout::default() })
}

/// Returns the symbol of a cell: tenths of the baseline, distinct without colour.
fn render_cell(cell: Option<&PairMatrixCell>, same: bool, theme: Theme) -> (&'static str, Style) {
    const TENTHS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let (sign, meaning) = match cell {
        None if same => (" ", StyleRole::Dim),
        None => ("·", StyleRole::Dim),
        Some(cell) => match cell.ratio {
            None => ("x", StyleRole::Worst),
            Some(ratio) if ratio >= USUAL => ("=", StyleRole::Good),
            Some(ratio) => {
                let meaning = if ratio < SLOW { StyleRole::Bad } else { StyleRole::Waiting };
                (TENTHS[((ratio * 10.0) as usize).min(9)], meaning)
            }
        },
    };
    (sign, theme.style_for(meaning))
}

/// Renders the pair under the cursor, and the legend of the symbols.
fn render_detail(
    rail: &RailMatrix,
    square: &PairMatrix,
    (one, other): (usize, usize),
    matrix: &ProbeMatrix,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let name = |at: usize| square.ends.get(at).map_or("", |end| end.name.as_str());
    let mut lines = Vec::new();
    let groups = match square.cell_between(one, other) {
        Some(cell) if cell.pairs.len() == 1 => {
            pair_groups(&rail.pairs[cell.pairs[0]], matrix, theme.units())
        }
        Some(cell) => {
            let share = display_text::format_whole_percent(cell.ratio);
            let failed = match cell.failed {
                0 => String::new(),
                failed => format!(", {failed} failed"),
            };
            let pairs = cell.pairs.len();
            vec![
                format!("{} – {}", name(one), name(other)),
                format!("{pairs} pairs{failed}, median {share} % of baseline"),
            ]
        }
        None if one == other => vec![format!("{}: not measured with itself", name(one))],
        None => vec![format!("{} – {}: not measured", name(one), name(other))],
    };
    let width = width.saturating_sub(2);
    let text = display_text::join_groups(&groups, "   ", width);
    let text = text.iter().flat_map(|line| match display_text::text_width(line) {
        fits if fits <= width => vec![line.clone()],
        _ => display_text::wrap_text(line, width),
    });
    lines.extend(text.take(4).map(|line| Line::raw(format!(" {line}"))));
    let legend = " = baseline   0–9 tenths of it   x failed   · not measured";
    lines.push(Line::styled(legend, theme.style_for(StyleRole::Dim)));
    lines
}

/// Returns what is known of a pair: its ends, where it is, its result, and by which tool and when.
fn pair_groups(pair: &ProbePair, matrix: &ProbeMatrix, units: DisplayUnits) -> Vec<String> {
    let end = |end: &PairEnd| format!("{} {}/{}", end.node, end.device, end.port);
    let leaf = |end: &PairEnd| end.leaf.as_ref().map_or("?", SanitizedText::as_str).to_owned();
    let where_to = match (leaf(&pair.from), leaf(&pair.to)) {
        (from, to) if from == to => format!("within {from}"),
        (from, to) => format!("{from} to {to}"),
    };
    let ago = display_text::format_duration(matrix.at.duration_since(pair.at));
    let result = match (&pair.failure, pair.bytes_per_second) {
        (Some(why), _) => format!("failed: {why}"),
        (None, Some(value)) => {
            let share = display_text::format_whole_percent(pair.ratio);
            format!("{}, {share} % of baseline", units.format_rate(value))
        }
        (None, None) => "no result".to_owned(),
    };
    let (from, to) = (end(&pair.from), end(&pair.to));
    vec![
        format!("{from} – {to}"),
        where_to,
        result,
        format!("by {}, {ago} ago", pair.tool.as_str()),
    ]
}
