//! Table of the worst nodes on the overview.

use gaunt_schema::GpuState;
use ratatui::{style::Style, text::Line};

use crate::{
    cursor::first_visible_row,
    display_text,
    theme::{self, StyleRole, Theme},
    widget::text_table::{self, ColumnLayout, number_column, text_column},
};
use gaunt_api::{Finding, NodeLine, NodeState, finding_place};

/// Columns of a node, the most important first: columns that do not fit are dropped from the end.
const COLUMNS: [ColumnLayout; 8] = [
    text_column("NODES BY LOSS", 16),
    text_column("state", 10),
    text_column("GPUs", 8),
    number_column("GPUs lost", 9),
    number_column("util %", 6),
    text_column("finding", 21),
    number_column("ports", 5),
    number_column("power kW", 8),
];

/// Index of the column for the freshness of the data.
const STATE_COLUMN: usize = 1;

/// Minimum width of the jobs column, which takes the remaining width.
const JOBS_MIN: usize = 10;

/// Renders the heading and as many nodes as fit into `height` more lines.
pub(crate) fn render_nodes(
    nodes: &[NodeLine],
    findings: &[Finding],
    selected: Option<usize>,
    height: usize,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    // Live nodes need no word: the column is for the others.
    let all_live = nodes.iter().all(|node| node.state == NodeState::Live);
    let skipped = |at: usize| all_live && at == STATE_COLUMN;
    let all: Vec<ColumnLayout> = COLUMNS
        .iter()
        .enumerate()
        .filter(|(at, _)| !skipped(*at))
        .map(|(_, column)| *column)
        .collect();
    let (fits, used) = text_table::fit_columns(&all, width.saturating_sub(2));
    let mut columns = all[..fits].to_vec();
    let rest = width.saturating_sub(used + 4);
    if fits == all.len() && rest >= JOBS_MIN {
        columns.push(text_column("jobs", rest));
    }
    let mut lines = vec![text_table::render_heading(&columns, theme.style_for(StyleRole::Title))];
    let from = first_visible_row(selected.unwrap_or(0), nodes.len(), height);
    for (at, node) in nodes.iter().enumerate().skip(from).take(height) {
        let cells = node_cells(node, findings, selected == Some(at), theme).into_iter().enumerate();
        let cells = cells.filter(|(at, _)| !skipped(*at)).map(|(_, cell)| cell);
        lines.push(text_table::render_row(&columns, cells));
    }
    lines
}

/// Renders the finding of a node or GPU, with an arrow if it is about something else that this one waits for.
pub(crate) fn render_finding(kind: &str, is_elsewhere: bool, theme: Theme) -> (String, Style) {
    if is_elsewhere {
        return (format!("← {kind}"), theme.style_for(StyleRole::Waiting));
    }
    (kind.to_owned(), theme.style_for(StyleRole::Bad))
}

fn node_cells(
    node: &NodeLine,
    findings: &[Finding],
    selected: bool,
    theme: Theme,
) -> [(String, Style); 9] {
    let plain = Style::new();
    let name = if selected { theme::selected_style(plain) } else { plain };
    let (data, data_style) = render_freshness(node, theme);
    let lost = if node.lost_gpus > 0.0 { theme.style_for(StyleRole::Bad) } else { plain };
    let worst = node.gpu_states.chars().filter_map(GpuState::from_letter_code);
    let worst = worst.max_by_key(|state| theme::state_rank(*state));
    let (active, ports) = node.ports;
    let short = if active < ports { theme.style_for(StyleRole::Bad) } else { plain };
    let ports = if ports == 0 { display_text::ABSENT.into() } else { format!("{active}/{ports}") };
    let power = node.power_watts.filter(|power| power.is_finite());
    let power = power.map_or_else(
        || display_text::ABSENT.into(),
        // A node's power changes by a few watts all the time, which says nothing.
        |w| format!("{:.1}", w.max(0.0) / 1e3),
    );
    let jobs: Vec<&str> = node.jobs.iter().map(|job| &**job).collect();
    [
        (node.node.to_string(), name),
        (data, data_style),
        (gpu_state_signs(&node.gpu_states), worst.map_or(plain, |state| theme.state_style(state))),
        (display_text::format_gpu_count(node.lost_gpus), lost),
        (display_text::format_whole_percent(node.utilization_ratio), plain),
        node.finding.map_or_else(Default::default, |kind| {
            let kind = kind.as_str();
            let is_elsewhere = finding_place::is_elsewhere(findings, kind, &node.node, None);
            render_finding(kind, is_elsewhere, theme)
        }),
        (ports, short),
        (power, plain),
        (jobs.join(", "), theme.style_for(StyleRole::Dim)),
    ]
}

/// Renders the freshness of a node's data, with its age if it is stale.
pub(crate) fn render_freshness(node: &NodeLine, theme: Theme) -> (String, Style) {
    let age =
        node.age_ms.map_or_else(String::new, |age| format!(" {}", display_text::format_age(age)));
    match node.state {
        NodeState::Live => ("live".into(), theme.style_for(StyleRole::Dim)),
        NodeState::Stale => (format!("stale{age}"), theme.style_for(StyleRole::Waiting)),
        NodeState::Down => (format!("down{age}"), theme.style_for(StyleRole::Bad)),
    }
}

/// Returns the symbols of a node's GPUs, one column each.
pub(crate) fn gpu_state_signs(codes: &str) -> String {
    let states =
        codes.chars().map(|code| GpuState::from_letter_code(code).unwrap_or(GpuState::Unknown));
    states.map(theme::state_sign).collect()
}
