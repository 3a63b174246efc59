//! The rows of a subject as a table: order, columns and filter as the reader chose them.

use gaunt_schema::GpuState;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::{columns::Shown, hints, nodes, put};
use crate::{
    answer::{Subject, Table},
    console::{
        cursor::window,
        format,
        list::List,
        state::{Room, Spot, State, What},
        theme::{self, Meaning, Theme},
        widget::table,
    },
};

/// Draws the rows of a subject.
///
/// ```text
///  GPUS  12 of 10,000: power>300W                                  sorted by power ▼
///  node      GPU  state                job    busy %  power W ▼   °C  mem GiB  finding
///  gpu003    5    ░ waiting for peers  8812      100        312   61     61.2
/// ```
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    state: &State,
    subject: Subject,
    theme: Theme,
) -> Room {
    let what = format!("the {}", subject.as_str());
    let Some(table) = state.table(subject).map(|table| &**table) else {
        put(buffer, area, &hints::waiting_for(&what, state, area.width, theme));
        return Room::default();
    };
    let list = state.list(subject);
    let width = usize::from(area.width);
    let shown: Vec<Shown<'_>> = list
        .columns()
        .into_iter()
        .enumerate()
        .filter_map(|(at, field)| Shown::of(at, field, table))
        .collect();
    let columns: Vec<table::Column> = shown.iter().map(|column| column.layout).collect();
    let (fits, _) = table::fitting(&columns, width.saturating_sub(2));
    let (shown, columns) = (&shown[..fits], &columns[..fits]);
    let mut spots = Vec::new();
    let mut lines = vec![title(table, list, width, theme)];
    lines.push(heading(shown, columns, list, theme, (area.x, area.y + 1), &mut spots));
    let height = usize::from(area.height).saturating_sub(lines.len());
    if table.matched == 0 {
        lines.push(Line::default());
        lines.push(Line::styled(format!(" {}", nothing(table)), theme.style(Meaning::Dim)));
    }
    let at = list.place(table);
    let (offset, rows) = (table.offset as usize, table.rows as usize);
    let from = window(at.saturating_sub(offset), rows, height);
    for row in from..(from + height).min(rows) {
        let y = area.y + lines.len() as u16;
        let area = Rect { y, height: 1, ..area };
        spots.push(Spot { area, what: What::Row(offset + row) });
        let chosen = offset + row == at;
        let cells = shown.iter().enumerate().map(|(number, column)| {
            let (text, style) = cell(column, table, row, theme);
            let marked = chosen && number == 0;
            (text, if marked { theme::selected(style) } else { style })
        });
        lines.push(table::row(columns, cells));
    }
    put(buffer, area, &lines);
    Room { page: height, spots, ..Room::default() }
}

/// Why there is no row.
fn nothing(table: &Table) -> String {
    let what = table.subject.as_str();
    if table.total > 0 {
        return format!(
            "none of {} {what} matches; / changes the filter",
            format::count(table.total.into())
        );
    }
    match table.subject {
        Subject::Jobs => {
            "no job holds a GPU now, or nobody says so: see [jobs] in the settings".into()
        }
        Subject::Ports => "no node has an RDMA port".into(),
        Subject::Processes => {
            "no process holds a GPU, or nobody may say so; of the past none are kept".into()
        }
        Subject::Gpus => "no node has a GPU".into(),
        Subject::Closed => "no finding closed in the last day".into(),
        _ => format!("there are no {what}"),
    }
}

fn title(table: &Table, list: &List, width: usize, theme: Theme) -> Line<'static> {
    let name = table.subject.as_str().to_uppercase();
    let (matched, total) = (format::count(table.matched.into()), format::count(table.total.into()));
    let count = if list.rows.is_empty() { total } else { format!("{matched} of {total}") };
    let order = list.sort.map_or_else(
        || {
            let worst = matches!(table.subject, Subject::Nodes | Subject::Findings);
            if worst { "worst first ".to_owned() } else { "by name ".to_owned() }
        },
        |(field, falls)| format!("by {} {} ", field.name, arrow(falls)),
    );
    let filter = if list.rows.is_empty() { String::new() } else { format!(": {}", list.rows) };
    let head = format!(" {name}  ");
    let room = width.saturating_sub(format::width(&head) + format::width(&order));
    Line::from(vec![
        Span::styled(head, theme.style(Meaning::Title)),
        Span::raw(format::left(&format!("{count}{filter}"), room)),
        Span::styled(order, theme.style(Meaning::Dim)),
    ])
}

const fn arrow(falls: bool) -> &'static str {
    if falls { "▼" } else { "▲" }
}

fn heading(
    shown: &[Shown<'_>],
    columns: &[table::Column],
    list: &List,
    theme: Theme,
    (x, y): (u16, u16),
    spots: &mut Vec<Spot>,
) -> Line<'static> {
    let mut left = x + 1;
    for column in shown {
        let width = column.layout.width as u16;
        let area = Rect { x: left, y, width, height: 1 };
        spots.push(Spot { area, what: What::Heading(column.place) });
        left += width + 2;
    }
    let style = theme.style(Meaning::Title);
    let names = shown.iter().map(|column| {
        let mark = list.sort.filter(|(field, _)| *field == column.field);
        match mark {
            None => (column.title.clone(), style),
            Some((_, falls)) => {
                let room = column.layout.width.saturating_sub(1);
                (format!("{}{}", format::cut(&column.title, room), arrow(falls)), style)
            }
        }
    });
    table::row(columns, names)
}

/// One cell as it is shown.
fn cell(column: &Shown<'_>, table: &Table, row: usize, theme: Theme) -> (String, Style) {
    let name = column.field.name.as_str();
    let plain = Style::new();
    let Some(text) = column.column.text(row) else {
        return number(column, row, theme);
    };
    match (name, table.subject) {
        ("state", Subject::Gpus) => match GpuState::parse(text) {
            Some(state) => {
                let words = format!("{} {}", theme::state_sign(state), theme::state_words(state));
                (words, theme.state(state))
            }
            None => (text.to_string(), plain),
        },
        ("state" | "severity", _) => (text.to_string(), theme.style(standing(text))),
        ("gpu_states", _) => {
            let states = text.chars().filter_map(GpuState::from_code);
            let worst = states.max_by_key(|state| theme::state_rank(*state));
            (nodes::signs(text), worst.map_or(plain, |state| theme.state(state)))
        }
        ("finding" | "failure", _) => (text.to_string(), theme.style(Meaning::Bad)),
        _ => (text.to_string(), plain),
    }
}

/// What a word of a state means.
fn standing(word: &str) -> Meaning {
    match word {
        "live" | "active" => Meaning::Dim,
        "stale" | "pending" | "armed" | "initializing" | "warning" => Meaning::Waiting,
        "down" | "critical" => Meaning::Bad,
        _ => Meaning::Plain,
    }
}

fn number(column: &Shown<'_>, row: usize, theme: Theme) -> (String, Style) {
    let dim = theme.style(Meaning::Dim);
    if column.field.is_text() {
        return (String::new(), dim);
    }
    let Some(value) = column.column.number(row).filter(|value| value.is_finite()) else {
        return (super::node_tables::absence(column.column.reason(row)).into(), dim);
    };
    let bad = value > 0.0 && WRONG.contains(&column.field.name.as_str());
    let style = if bad { theme.style(Meaning::Bad) } else { Style::new() };
    (column.number(value), style)
}

/// Numbers of which anything above none is wrong.
const WRONG: [&str; 10] = [
    "lost",
    "symbol_errors",
    "link_downed",
    "link_error_recovery",
    "receive_errors",
    "rejected",
    "missed",
    "transmit_discards",
    "ecc_uncorrected",
    "packet_sequence_errors",
];
