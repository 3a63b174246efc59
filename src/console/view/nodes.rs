//! Nodes as rows: the worst of them, on the overview.

use gaunt_schema::GpuState;
use ratatui::{style::Style, text::Line};

use crate::{
    answer::{NodeLine, NodeState},
    console::{
        cursor::window,
        format,
        theme::{self, Meaning, Theme},
        widget::table::{self, Column, number, text},
    },
};

/// The columns of a node, the most important first: what does not fit is left out from the end.
const COLUMNS: [Column; 8] = [
    text("NODES", 16),
    text("data", 10),
    text("GPUs", 8),
    number("lost", 5),
    number("busy %", 6),
    text("finding", 19),
    number("ports", 5),
    number("power W", 7),
];

/// The column of the jobs, as wide as what is left.
const JOBS_MIN: usize = 12;

/// The heading and as many nodes as fit into `height` more lines.
pub(super) fn lines(
    title: &'static str,
    nodes: &[NodeLine],
    selected: Option<usize>,
    height: usize,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let (fits, used) = table::fitting(&COLUMNS, width.saturating_sub(2));
    let mut columns = COLUMNS[..fits].to_vec();
    if let Some(first) = columns.first_mut() {
        first.title = title;
    }
    let rest = width.saturating_sub(used + 4);
    if fits == COLUMNS.len() && rest >= JOBS_MIN {
        columns.push(text("jobs", rest));
    }
    let mut lines = vec![table::heading(&columns, theme.style(Meaning::Title))];
    let from = window(selected.unwrap_or(0), nodes.len(), height);
    for (at, node) in nodes.iter().enumerate().skip(from).take(height) {
        lines.push(table::row(&columns, cells(node, selected == Some(at), theme)));
    }
    lines
}

fn cells(node: &NodeLine, selected: bool, theme: Theme) -> [(String, Style); 9] {
    let plain = Style::new();
    let name = if selected { theme::selected(plain) } else { plain };
    let (data, data_style) = freshness(node, theme);
    let lost = if node.lost_gpus > 0.0 { theme.style(Meaning::Bad) } else { plain };
    let worst = node.gpu_states.chars().filter_map(GpuState::from_code);
    let worst = worst.max_by_key(|state| theme::state_rank(*state));
    let (active, ports) = node.ports;
    let short = if active < ports { theme.style(Meaning::Bad) } else { plain };
    let ports = if ports == 0 { format::ABSENT.into() } else { format!("{active}/{ports}") };
    let power = node.power_watts.filter(|power| power.is_finite());
    let power = power.map_or_else(|| format::ABSENT.into(), |w| format::count(w.max(0.0) as u64));
    let jobs: Vec<&str> = node.jobs.iter().map(|job| &**job).collect();
    [
        (node.node.to_string(), name),
        (data, data_style),
        (signs(&node.gpu_states), worst.map_or(plain, |state| theme.state(state))),
        (format::gpus(node.lost_gpus), lost),
        (format::whole_percent(node.utilization_ratio), plain),
        (node.finding.map_or_else(String::new, |kind| kind.to_string()), plain),
        (ports, short),
        (power, plain),
        (jobs.join(", "), theme.style(Meaning::Dim)),
    ]
}

/// How fresh a node's data is, with its age where that matters.
pub(super) fn freshness(node: &NodeLine, theme: Theme) -> (String, Style) {
    let age = node.age_ms.map_or_else(String::new, |age| format!(" {}", format::age(age)));
    match node.state {
        NodeState::Live => ("live".into(), theme.style(Meaning::Dim)),
        NodeState::Stale => (format!("stale{age}"), theme.style(Meaning::Waiting)),
        NodeState::Down => (format!("down{age}"), theme.style(Meaning::Bad)),
    }
}

/// The signs of a node's GPUs, one column each.
pub(super) fn signs(codes: &str) -> String {
    let states = codes.chars().map(|code| GpuState::from_code(code).unwrap_or(GpuState::Unknown));
    states.map(theme::state_sign).collect()
}
