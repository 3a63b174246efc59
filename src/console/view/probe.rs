//! The probe matrix: what every pair of nodes, or of leaves, carried as a share of what is usual, one rail at a time.

use gaunt_schema::Safe;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::{hints, put};
use crate::{
    answer::{Pair, PairEnd, ProbeMatrix, RailMatrix, Suspect, SuspectKind},
    console::{
        cursor::window,
        format,
        matrix::{Cell, Square},
        state::{Room, Spot, State, What},
        theme::{self, Meaning, Theme},
    },
};

/// The widest name of an end.
const NAME: usize = 18;
/// Suspects that are named above the square.
const SUSPECTS: usize = 5;
/// From this share on a pair is as usual: two measurements of the same wires differ by a few per cent.
const USUAL: f64 = 0.95;
/// Below this share a pair is slow.
const SLOW: f64 = 0.8;

/// Draws one rail.
///
/// ```text
///  PROBE     rail 3   28 pairs of 8 nodes   within a leaf 48 GB/s, across leaves 47 GB/s
///  ▲ port    gpu003 mlx5_3:1     41 % of what is usual, in 7 pairs
///                  ▼
///  gpu003           44444x4
///  gpu001          4 =====9
///  gpu002          4= =====
///
///  gpu003 mlx5_3:1 – gpu001 mlx5_3:1   19.7 GB/s, 41 % of what is usual within leaf-00; nccl, 4m ago
/// ```
pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, theme: Theme) -> Room {
    if state.then.is_some() {
        let text =
            " what probes measured at an instant of the past is not kept; . goes back to now";
        put(buffer, area, &[Line::default(), Line::styled(text, theme.style(Meaning::Dim))]);
        return Room::default();
    }
    let Some(matrix) = state.probe() else {
        put(buffer, area, &hints::waiting_for("the probe matrix", state, area.width, theme));
        return Room::default();
    };
    let width = usize::from(area.width);
    let Some((rail, square)) = state.square() else {
        put(buffer, area, &empty(matrix, width, theme));
        return Room::default();
    };
    let mut lines = vec![title(matrix, rail, &square, width, theme)];
    lines.extend(rail.suspects.iter().take(SUSPECTS).map(|one| suspect(one, theme)));
    if rail.suspects.len() > SUSPECTS {
        let text = format!("   and {} more", rail.suspects.len() - SUSPECTS);
        lines.push(Line::styled(text, theme.style(Meaning::Dim)));
    }
    let chosen = state.pair(&square);
    let below = detail(rail, &square, chosen, matrix, width, theme);
    let height = usize::from(area.height).saturating_sub(lines.len() + 1 + 1 + below.len());
    let (map, room) = map(&square, chosen, (area, lines.len()), height, theme);
    lines.extend(map);
    lines.push(Line::default());
    lines.extend(below);
    put(buffer, area, &lines);
    room
}

/// Nothing was measured: what begins it.
fn empty(matrix: &ProbeMatrix, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = vec![
        Line::from(vec![
            Span::styled(" PROBE     ", theme.style(Meaning::Title)),
            Span::raw("no pair of nodes was measured yet"),
        ]),
        Line::default(),
    ];
    let offers = match (matrix.free, matrix.measuring) {
        (0, 0) => "Nobody offers to be measured.".to_owned(),
        (free, 0) => format!("{free} of the two nodes that a measurement needs offer themselves."),
        (free, measuring) => format!("{measuring} pairs are being measured, {free} nodes wait."),
    };
    let how = "On each of some idle nodes run";
    let command = "gaunt-probe meet --aggregator http://THIS-AGGREGATOR:9771 --token-file FILE";
    let what = "It measures what the network between two of them carries, pair by pair, keeps its \
                hands off GPUs that are in use, and ends by itself with --rounds. What is slow with \
                everybody else then stands here: a port, a leaf, an uplink or a way between leaves.";
    let room = width.saturating_sub(4);
    let plain = |text: &str| -> Vec<Line<'static>> {
        let lines = format::wrap(text, room).into_iter();
        lines.map(|line| Line::raw(format!("   {line}"))).collect()
    };
    lines.extend(plain(&offers));
    lines.push(Line::default());
    lines.extend(plain(how));
    lines.push(Line::styled(format!("     {command}"), theme.style(Meaning::Title)));
    lines.push(Line::default());
    lines.extend(plain(what));
    lines
}

fn title(
    matrix: &ProbeMatrix,
    rail: &RailMatrix,
    square: &Square,
    width: usize,
    theme: Theme,
) -> Line<'static> {
    let name =
        if rail.rail.is_empty() { "rail unknown".into() } else { format!("rail {}", rail.rail) };
    let of = if square.by_leaf { "leaves" } else { "ends" };
    let median = |words: &str, value: Option<f64>| {
        value.map_or_else(String::new, |value| format!("   {words} {}", carried(value)))
    };
    let mut facts = format!(
        "{name}   {} pairs of {} {of}{}{}",
        format::count(rail.pairs.len() as u64),
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
    let room = width.saturating_sub(11 + format::width(&rails));
    let facts = format::cut(&facts, room);
    Line::from(vec![
        Span::styled(" PROBE     ", theme.style(Meaning::Title)),
        Span::raw(facts),
        Span::styled(rails, theme.style(Meaning::Dim)),
    ])
}

fn suspect(suspect: &Suspect, theme: Theme) -> Line<'static> {
    let kind = match suspect.kind {
        SuspectKind::Port => "port",
        SuspectKind::Leaf => "leaf",
        SuspectKind::Uplink => "uplink",
        SuspectKind::Path => "way",
    };
    let share = format::whole_percent(Some(suspect.ratio));
    let pairs = if suspect.pairs == 1 { "pair" } else { "pairs" };
    Line::from(vec![
        Span::styled(format!(" ▲ {kind:<8}"), theme.style(Meaning::Waiting)),
        Span::styled(format!("{}", suspect.name), theme.style(Meaning::Title)),
        Span::raw(format!("   {share} % of what is usual, in {} {pairs}", suspect.pairs)),
    ])
}

/// The square, as much of it as fits around the cursor, and what of it can be pressed.
fn map(
    square: &Square,
    chosen: (usize, usize),
    (area, above): (Rect, usize),
    height: usize,
    theme: Theme,
) -> (Vec<Line<'static>>, Room) {
    let longest = square.ends.iter().map(|end| format::width(&end.name)).max().unwrap_or(0);
    let label = longest.clamp(6, NAME);
    let room = usize::from(area.width).saturating_sub(label + 3);
    // Two columns a cell as long as they fit: then the square looks like one.
    let cell = if 2 * square.ends.len() <= room { 2 } else { 1 };
    let (across, down) = ((room / cell).max(1), height.max(1));
    let (row, column) = chosen;
    let (top, left) =
        (window(row, square.ends.len(), down), window(column, square.ends.len(), across));
    let mark = " ".repeat(label + 2 + (column - left) * cell) + "▼";
    let mut lines = vec![Line::styled(mark, theme.style(Meaning::Dim))];
    let mut spots = Vec::new();
    for (at, end) in square.ends.iter().enumerate().skip(top).take(down) {
        let name = format!(" {} ", format::left(&end.name, label));
        let meaning = if end.suspected { Meaning::Waiting } else { Meaning::Dim };
        let style = theme.style(meaning);
        let mut spans =
            vec![Span::styled(name, if at == row { theme::selected(style) } else { style })];
        let y = area.y + (above + lines.len()) as u16;
        for to in (left..square.ends.len()).take(across) {
            let x = area.x + (label + 2 + (to - left) * cell) as u16;
            let spot = Rect { x, y, width: cell as u16, height: 1 };
            spots.push(Spot { area: spot, what: What::Cell(at, to) });
            let (sign, style) = sign(square.cell(at, to), at == to, theme);
            let style = if (at, to) == chosen { theme::selected(style) } else { style };
            spans.push(Span::styled(sign, style));
            spans.extend((cell > 1).then(|| Span::raw(" ")));
        }
        lines.push(Line::from(spans));
    }
    let shown = (square.ends.len().min(down), square.ends.len().min(across));
    if shown != (square.ends.len(), square.ends.len()) {
        let text = format!(
            " {} by {} of {} ends are shown: f puts them together by leaf",
            shown.0,
            shown.1,
            square.ends.len()
        );
        lines.pop();
        lines.push(Line::styled(text, theme.style(Meaning::Dim)));
    }
    (lines, Room { page: down, spots, ..Room::default() })
}

/// The sign of a cell: tenths of what is usual, told apart without colour.
fn sign(cell: Option<&Cell>, same: bool, theme: Theme) -> (&'static str, Style) {
    const TENTHS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let (sign, meaning) = match cell {
        None if same => (" ", Meaning::Dim),
        None => ("·", Meaning::Dim),
        Some(cell) => match cell.ratio {
            None => ("x", Meaning::Worst),
            Some(ratio) if ratio >= USUAL => ("=", Meaning::Good),
            Some(ratio) => {
                let meaning = if ratio < SLOW { Meaning::Bad } else { Meaning::Waiting };
                (TENTHS[((ratio * 10.0) as usize).min(9)], meaning)
            }
        },
    };
    (sign, theme.style(meaning))
}

/// The pair with the cursor, and what the signs mean.
fn detail(
    rail: &RailMatrix,
    square: &Square,
    (one, other): (usize, usize),
    matrix: &ProbeMatrix,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let name = |at: usize| square.ends.get(at).map_or("", |end| end.name.as_str());
    let mut lines = Vec::new();
    let told = match square.cell(one, other) {
        Some(cell) if cell.pairs.len() == 1 => pair(&rail.pairs[cell.pairs[0]], matrix),
        Some(cell) => {
            let share = format::whole_percent(cell.ratio);
            let failed = match cell.failed {
                0 => String::new(),
                failed => format!(", {failed} failed"),
            };
            let pairs = cell.pairs.len();
            format!(
                "{} – {}: {pairs} pairs{failed}, the median {share} % of what is usual",
                name(one),
                name(other)
            )
        }
        None if one == other => format!("{}: nothing is measured with itself", name(one)),
        None => format!("{} – {}: not measured", name(one), name(other)),
    };
    let told = format::wrap(&told, width.saturating_sub(2));
    lines.extend(told.into_iter().take(3).map(|line| Line::raw(format!(" {line}"))));
    let legend = " = as usual   0–9 tenths of it   x failed   · not measured";
    lines.push(Line::styled(legend, theme.style(Meaning::Dim)));
    lines
}

fn pair(pair: &Pair, matrix: &ProbeMatrix) -> String {
    let end = |end: &PairEnd| format!("{} {}:{}", end.node, end.device, end.port);
    let leaf = |end: &PairEnd| end.leaf.as_ref().map_or("?", Safe::as_str).to_owned();
    let where_to = match (leaf(&pair.from), leaf(&pair.to)) {
        (from, to) if from == to => format!("within {from}"),
        (from, to) => format!("{from} to {to}"),
    };
    let ago = format::span(matrix.at.since(pair.at));
    let result = match (&pair.failure, pair.bytes_per_second) {
        (Some(why), _) => format!("failed: {why}"),
        (None, Some(value)) => {
            let share = format::whole_percent(pair.ratio);
            format!("{}, {share} % of what is usual", carried(value))
        }
        (None, None) => "nothing is known".to_owned(),
    };
    let (from, to) = (end(&pair.from), end(&pair.to));
    format!("{from} – {to}   {where_to}   {result}   {}, {ago} ago", pair.tool.as_str())
}

/// What a pair carried.
fn carried(bytes_per_second: f64) -> String {
    format!("{:.1} GB/s", bytes_per_second / 1e9)
}
