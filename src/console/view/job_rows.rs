//! Rows of the job screen: the GPUs that differ from the others of the job, and the nodes of the job.

use std::{collections::BTreeMap, time::Duration};

use gaunt_schema::{GpuState, NaturalName, SanitizedText};
use ratatui::{
    style::Style,
    text::{Line, Span},
};

use crate::{
    display_text,
    theme::{self, StyleRole, Theme},
    view::worst_nodes,
    widget::text_table::{self, ColumnLayout, number_column, text_column},
};
use gaunt_api::{GpuTimeline, JobDetail, finding_place, victim_groups::compress_names};

/// Columns of the name of a timeline.
pub(crate) const NAME: usize = 22;
/// Minimum share of differing points for an outlier GPU.
const ODD: f64 = 0.3;
/// Most GPUs of a node that have a column each.
const SHOWN_GPUS: usize = 16;

/// A row under the cursor.
#[derive(Clone, Debug)]
pub(crate) enum JobRow<'a> {
    /// GPUs of one node that differ from most GPUs of the job in the same way.
    Outliers(OutlierGpus<'a>),
    /// A node of the job.
    Node(JobNode<'a>),
}

/// GPUs of one node with the same timeline.
#[derive(Clone, Debug)]
pub(crate) struct OutlierGpus<'a> {
    /// The timeline.
    pub(crate) timeline: &'a GpuTimeline,
    /// The indices of the GPUs.
    pub(crate) gpus: Vec<&'a SanitizedText>,
}

/// A node of the job.
#[derive(Clone, Debug)]
pub(crate) struct JobNode<'a> {
    /// Its name.
    pub(crate) name: &'a SanitizedText,
    /// Its rows in the table of the job's GPUs.
    rows: Vec<usize>,
    /// The worst finding on it, else the one that it waits for.
    finding: Option<SanitizedText>,
    /// Whether it waits for that finding.
    waits: bool,
}

impl JobRow<'_> {
    /// Returns its unique key.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Outliers(outliers) => {
                format!("{}/{}", outliers.timeline.node, outliers.timeline.gpu)
            }
            Self::Node(node) => node.name.to_string(),
        }
    }
}

/// Returns the rows of a job: outliers, the largest difference first, then its nodes, those with a finding first.
pub(crate) fn collect_rows(job: &JobDetail) -> Vec<JobRow<'_>> {
    let mut outliers: Vec<OutlierGpus<'_>> = Vec::new();
    // The answer has the largest differences first.
    for timeline in job.past.strips.iter().take_while(|strip| strip.odd_ratio >= ODD) {
        let same = |known: &&mut OutlierGpus<'_>| {
            known.timeline.node == timeline.node && known.timeline.states == timeline.states
        };
        match outliers.iter_mut().find(same) {
            Some(known) => known.gpus.push(&timeline.gpu),
            None => outliers.push(OutlierGpus { timeline, gpus: vec![&timeline.gpu] }),
        }
    }
    let rows = outliers.into_iter().map(JobRow::Outliers);
    rows.chain(collect_nodes(job).into_iter().map(JobRow::Node)).collect()
}

fn collect_nodes(job: &JobDetail) -> Vec<JobNode<'_>> {
    let names = job.gpus.find_column("node");
    let mut nodes: BTreeMap<&SanitizedText, JobNode<'_>> = BTreeMap::new();
    for row in 0..job.gpus.rows as usize {
        let Some(name) = names.and_then(|column| column.text_at(row)) else { continue };
        let new = || JobNode { name, rows: Vec::new(), finding: None, waits: false };
        nodes.entry(name).or_insert_with(new).rows.push(row);
    }
    for finding in &job.findings {
        let node = finding.entity.node.as_ref().and_then(|name| nodes.get_mut(name));
        if let Some(node) = node.filter(|node| node.finding.is_none()) {
            node.finding = Some(SanitizedText::new(finding.kind.as_str()));
        }
    }
    let kinds = job.gpus.find_column("finding");
    for node in nodes.values_mut().filter(|node| node.finding.is_none()) {
        node.finding = node.rows.iter().find_map(|row| kinds?.text_at(*row).cloned());
        node.waits = node
            .finding
            .as_ref()
            .is_some_and(|kind| finding_place::is_elsewhere(&job.findings, kind, node.name, None));
    }
    let mut nodes: Vec<JobNode<'_>> = nodes.into_values().collect();
    nodes.sort_by_cached_key(|node| {
        (node.finding.is_none() || node.waits, NaturalName(node.name.clone()))
    });
    nodes
}

/// Renders the title of the timelines, which last this long.
pub(crate) fn render_title(span: Duration, theme: Theme) -> Line<'static> {
    let lasted = format!("last {}, newest at the right", display_text::format_duration(span));
    Line::from(vec![
        Span::styled(format!(" {:<NAME$}", "OUTLIERS"), theme.style_for(StyleRole::Title)),
        Span::styled(lasted, theme.style_for(StyleRole::Dim)),
    ])
}

/// Renders the timeline of most GPUs.
pub(crate) fn render_most(states: &str, points: usize, theme: Theme) -> Line<'static> {
    let name = format!(" {}", display_text::align_left("most GPUs of the job", NAME));
    let mut spans = vec![Span::styled(name, theme.style_for(StyleRole::Dim))];
    spans.extend(render_timeline(states, points, theme));
    Line::from(spans)
}

/// Renders GPUs that differ.
pub(crate) fn render_outliers(
    outliers: &OutlierGpus<'_>,
    chosen: bool,
    points: usize,
    theme: Theme,
) -> Line<'static> {
    let gpus: Vec<String> = outliers.gpus.iter().map(ToString::to_string).collect();
    let name = format!("{} GPU {}", outliers.timeline.node, compress_names(&gpus));
    let style = if chosen { theme::selected_style(Style::new()) } else { Style::new() };
    let mut spans =
        vec![Span::raw(" "), Span::styled(display_text::align_left(&name, NAME), style)];
    spans.extend(render_timeline(&outliers.timeline.states, points, theme));
    let share = display_text::format_whole_percent(Some(outliers.timeline.odd_ratio));
    let text = format!("  ◂ differs {share} %");
    spans.push(Span::styled(text, theme.style_for(StyleRole::Title)));
    Line::from(spans)
}

/// Renders the newest part of a timeline; adjacent points of one state share a span.
fn render_timeline(states: &str, points: usize, theme: Theme) -> Vec<Span<'static>> {
    let skipped = states.chars().count().saturating_sub(points);
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut last = None;
    for code in states.chars().skip(skipped) {
        let state = GpuState::from_letter_code(code).unwrap_or(GpuState::Unknown);
        let sign = theme::state_sign(state);
        match spans.last_mut() {
            Some(span) if last == Some(state) => span.content.to_mut().push_str(sign),
            _ => spans.push(Span::styled(sign, theme.state_style(state))),
        }
        last = Some(state);
    }
    spans
}

/// Columns of the node table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeColumn {
    /// Name.
    Name,
    /// State of each GPU.
    States,
    /// Mean of a share over its GPUs: the column of the GPU table.
    Mean(&'static str),
    /// Power of its GPUs in W.
    Power,
    /// Lowest SM clock of its GPUs in MHz: the slowest GPU holds the others back.
    LowestClock,
    /// Finding on it.
    Finding,
}

/// Columns of the node table that numbers need, the most important first.
const NUMBER_COLUMNS: [(NodeColumn, ColumnLayout); 5] = [
    (NodeColumn::Mean("utilization"), number_column("util %", 6)),
    (NodeColumn::Mean("sm_active"), number_column("SM %", 5)),
    (NodeColumn::Mean("tensor_active"), number_column("tensor %", 8)),
    (NodeColumn::Power, number_column("power W", 7)),
    (NodeColumn::LowestClock, number_column("min MHz", 7)),
];

/// Table of a job's nodes: the columns that fit and of which anything is known.
pub(crate) struct JobNodeTable<'a> {
    job: &'a JobDetail,
    columns: Vec<(NodeColumn, ColumnLayout)>,
}

impl<'a> JobNodeTable<'a> {
    /// Creates the table of these rows for a width.
    pub(crate) fn new(job: &'a JobDetail, rows: &[JobRow<'_>], width: usize) -> Self {
        let nodes: Vec<&JobNode<'_>> = rows
            .iter()
            .filter_map(|row| match row {
                JobRow::Node(node) => Some(node),
                JobRow::Outliers(_) => None,
            })
            .collect();
        let gpus = nodes.iter().map(|node| node.rows.len()).max().unwrap_or(0);
        let longest = nodes.iter().map(|node| display_text::text_width(node.name)).max();
        let mut columns = vec![
            (NodeColumn::Name, text_column("NODES", longest.unwrap_or(0).clamp(10, NAME))),
            (NodeColumn::States, text_column("GPUs", gpus.clamp(4, SHOWN_GPUS))),
        ];
        if nodes.iter().any(|node| node.finding.is_some()) {
            columns.push((NodeColumn::Finding, text_column("finding", 20)));
        }
        let known = |column| nodes.iter().any(|node| node_number(job, node, column).is_some());
        columns.extend(NUMBER_COLUMNS.iter().filter(|(column, _)| known(*column)));
        let layouts: Vec<ColumnLayout> = columns.iter().map(|(_, layout)| *layout).collect();
        let (fits, _) = text_table::fit_columns(&layouts, width.saturating_sub(2));
        columns.truncate(fits);
        Self { job, columns }
    }

    /// Renders the headings.
    pub(crate) fn render_heading(&self, theme: Theme) -> Line<'static> {
        text_table::render_heading(&self.layouts(), theme.style_for(StyleRole::Title))
    }

    /// Renders a node.
    pub(crate) fn render_node(
        &self,
        node: &JobNode<'_>,
        chosen: bool,
        theme: Theme,
    ) -> Line<'static> {
        let plain = Style::new();
        let cells = self.columns.iter().map(|(column, _)| match column {
            NodeColumn::Name => {
                let style = if chosen { theme::selected_style(plain) } else { plain };
                (node.name.to_string(), style)
            }
            NodeColumn::States => self.render_states(node, theme),
            NodeColumn::Finding => {
                let kind = node.finding.as_ref();
                kind.map_or_else(Default::default, |kind| {
                    worst_nodes::render_finding(kind, node.waits, theme)
                })
            }
            NodeColumn::Mean(_) | NodeColumn::Power | NodeColumn::LowestClock => {
                let text = match node_number(self.job, node, *column) {
                    Some(number) => display_text::format_count(number.round() as u64),
                    None => display_text::ABSENT.to_owned(),
                };
                (text, plain)
            }
        });
        text_table::render_row(&self.layouts(), cells)
    }

    fn layouts(&self) -> Vec<ColumnLayout> {
        self.columns.iter().map(|(_, layout)| *layout).collect()
    }

    /// Renders the signs of a node's GPUs, in the style of the worst state.
    fn render_states(&self, node: &JobNode<'_>, theme: Theme) -> (String, Style) {
        let states = self.job.gpus.find_column("state");
        let of_row = |row: &usize| {
            let text = states.and_then(|column| column.text_at(*row));
            text.and_then(|text| GpuState::parse(text)).unwrap_or(GpuState::Unknown)
        };
        let states: Vec<GpuState> = node.rows.iter().map(of_row).collect();
        let worst = states.iter().max_by_key(|state| theme::state_rank(**state));
        let signs = states.iter().map(|state| theme::state_sign(*state)).collect();
        (signs, worst.map_or_else(Style::new, |state| theme.state_style(*state)))
    }
}

/// Returns a number of a node over its GPUs; none if no GPU has it.
fn node_number(job: &JobDetail, node: &JobNode<'_>, column: NodeColumn) -> Option<f64> {
    let name = match column {
        NodeColumn::Mean(name) => name,
        NodeColumn::Power => "power",
        NodeColumn::LowestClock => "sm_clock",
        NodeColumn::Name | NodeColumn::States | NodeColumn::Finding => return None,
    };
    let values = job.gpus.find_column(name)?;
    let values = node.rows.iter().filter_map(|row| values.number_at(*row));
    let values: Vec<f64> = values.filter(|value| value.is_finite() && *value >= 0.0).collect();
    let sum: f64 = values.iter().sum();
    match column {
        _ if values.is_empty() => None,
        NodeColumn::Mean(_) => Some(100.0 * sum / values.len() as f64),
        NodeColumn::LowestClock => Some(values.iter().copied().fold(f64::MAX, f64::min) / 1e6),
        _ => Some(sum),
    }
}
