//! Groups of the heat map: nodes by leaf or rack, and the values that colour the cells.

use std::{collections::HashMap, ops::Range};

use gaunt_schema::{GpuState, natural_order};
use ratatui::style::Style;

use crate::{
    console_state::{ConsoleState, HeatGrouping},
    display_text,
    display_units::DisplayUnits,
    theme::{StyleRole, Theme},
};
use gaunt_api::{AnswerCells, AnswerTable, FieldKind, HeatMap, SubjectField};

/// Group of nodes.
pub(super) struct NodeGroup<'a> {
    /// Common name of the nodes.
    pub(super) name: &'a str,
    /// Range of the nodes in the node order.
    nodes: Range<usize>,
}

/// All nodes of the map with their groups.
pub(super) struct NodeGroups<'a> {
    /// Each node with the state codes of its GPUs, and the index of its first GPU among all.
    pub(super) rows: Vec<(&'a str, &'a str, usize)>,
    /// The groups, in their order.
    pub(super) list: Vec<NodeGroup<'a>>,
    /// Indexes of the nodes, group by group: one list for all, because a large fleet has a group for every node.
    order: Vec<usize>,
    /// Whether the group of any node is known.
    pub(super) known: bool,
    /// Maximum number of GPUs in a group.
    pub(super) gpus: usize,
    /// Maximum number of nodes in a group.
    pub(super) nodes: usize,
    /// Width of the widest name.
    pub(super) label: usize,
}

impl<'a> NodeGroups<'a> {
    /// Groups the nodes of a map as the user selected.
    pub(super) fn of(heat: &'a HeatMap, state: &'a ConsoleState) -> Self {
        let mut from = 0;
        let rows: Vec<(&str, &str, usize)> = heat
            .node_rows()
            .map(|(node, states)| {
                from += states.len();
                (node.as_str(), states, from - states.len())
            })
            .collect();
        let sites = state.data.sites.as_ref().map(|(_, table)| &**table);
        let column = match state.grouping {
            HeatGrouping::Node => None,
            HeatGrouping::Leaf => Some("leaf"),
            HeatGrouping::Rack => Some("rack"),
        };
        let folded = column.zip(sites).map(|(column, sites)| group_by_site(&rows, sites, column));
        let folded = folded.filter(|(list, _)| list.iter().any(|group| !group.name.is_empty()));
        let known = folded.is_some();
        let (list, order) = folded.unwrap_or_else(|| {
            let each = rows.iter().enumerate();
            let list = each.map(|(at, (name, ..))| NodeGroup { name, nodes: at..at + 1 });
            (list.collect(), (0..rows.len()).collect())
        });
        let gpus = |group: &NodeGroup<'_>| {
            order[group.nodes.clone()].iter().map(|node| rows[*node].1.len()).sum::<usize>()
        };
        Self {
            gpus: list.iter().map(gpus).max().unwrap_or(0),
            nodes: list.iter().map(|group| group.nodes.len()).max().unwrap_or(0),
            label: list.iter().map(|group| display_text::text_width(group.name)).max().unwrap_or(0),
            known,
            rows,
            list,
            order,
        }
    }

    /// Returns the nodes of a group, by their indexes in the map.
    pub(super) fn nodes_of(&self, group: &NodeGroup<'_>) -> &[usize] {
        &self.order[group.nodes.clone()]
    }

    /// Returns the nodes of adjacent groups.
    pub(super) fn nodes_of_all(&self, groups: &[NodeGroup<'_>]) -> &[usize] {
        match groups {
            [first, .., last] => &self.order[first.nodes.start..last.nodes.end],
            [only] => self.nodes_of(only),
            [] => &[],
        }
    }

    /// Returns how many nodes a step down and a step to the right pass, with this number of groups per row.
    pub(super) fn cursor_steps(&self, per_row: usize, step: usize) -> (usize, usize) {
        if self.known { (self.nodes.max(1), step) } else { (per_row, step) }
    }

    /// Renders a node and the states of its GPUs: `gpu003: 7 waiting, 1 hung`; or their values, and the lowest and highest
    /// of them where all do not fit into `columns`.
    pub(super) fn render_node(
        &self,
        node: usize,
        values: Option<&HeatValues<'_>>,
        columns: usize,
    ) -> String {
        let Some((name, states, from)) = self.rows.get(node) else { return String::new() };
        if let Some(values) = values {
            let gpus = *from..from + states.len();
            let text = format!("{name}: {}", values.render_values(gpus.clone()));
            if display_text::text_width(&text) <= columns {
                return text;
            }
            return format!("{name}: {}", values.render_extremes(gpus));
        }
        let counts = GpuState::ALL.iter().filter_map(|&state| {
            let count = states.chars().filter(|code| *code == state.letter_code()).count();
            (count > 0).then(|| format!("{count} {}", state.as_str()))
        });
        format!("{name}: {}", counts.collect::<Vec<_>>().join(", "))
    }
}

/// Groups nodes by a text field of the site table; of several texts the first one counts.
fn group_by_site<'a>(
    rows: &[(&'a str, &'a str, usize)],
    sites: &'a AnswerTable,
    column: &str,
) -> (Vec<NodeGroup<'a>>, Vec<usize>) {
    let (Some(nodes), Some(locations)) = (sites.find_column("node"), sites.find_column(column))
    else {
        return Default::default();
    };
    let of: HashMap<&str, &str> = (0..sites.rows as usize)
        .filter_map(|row| {
            let location = locations.text_at(row)?.as_str();
            Some((nodes.text_at(row)?.as_str(), location.split(", ").next().unwrap_or(location)))
        })
        .collect();
    let mut groups: HashMap<(bool, &str), Vec<usize>> = HashMap::new();
    for (at, (node, ..)) in rows.iter().enumerate() {
        let name = of.get(node).copied().unwrap_or("");
        // Nodes without a known group come last.
        groups.entry((name.is_empty(), name)).or_default().push(at);
    }
    let (mut list, mut order) = (Vec::with_capacity(groups.len()), Vec::with_capacity(rows.len()));
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|((one_unknown, one), _), ((other_unknown, other), _)| {
        one_unknown.cmp(other_unknown).then_with(|| natural_order(one, other))
    });
    for ((_, name), nodes) in groups {
        list.push(NodeGroup { name, nodes: order.len()..order.len() + nodes.len() });
        order.extend(nodes);
    }
    (list, order)
}

/// One value for each GPU.
pub(super) struct HeatValues<'a> {
    field: &'static SubjectField,
    values: &'a [Option<f64>],
    low: f64,
    high: f64,
    units: DisplayUnits,
}

/// Symbols from low to high: tenths of the range.
const TENTHS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

impl<'a> HeatValues<'a> {
    /// Returns the values of the selected field, if they are available for the shown GPUs.
    pub(super) fn of(state: &'a ConsoleState, heat: &HeatMap, units: DisplayUnits) -> Option<Self> {
        let wanted = state.tint?;
        let (field, _, table) = state.data.tint.as_ref().filter(|(known, ..)| *known == wanted)?;
        let AnswerCells::Numbers { values, .. } = &table.columns.first()?.cells else {
            return None;
        };
        if values.len() != heat.states.len() {
            return None;
        }
        let known = || values.iter().flatten().copied().filter(|value| value.is_finite());
        let high = known().fold(f64::MIN, f64::max);
        let low = if is_ratio(field) { 0.0 } else { known().fold(f64::MAX, f64::min) };
        let high = if is_ratio(field) { high.max(1.0) } else { high };
        Some(Self { field, values, low, high, units })
    }

    /// Renders the legend of the symbols.
    pub(super) fn render_scale(&self) -> String {
        if self.low > self.high {
            return format!("; {}: no values", self.field.name);
        }
        format!(
            "; {}: 0 = {}, 9 = {}",
            self.field.name,
            self.format_value(self.low),
            self.format_value(self.high)
        )
    }

    fn format_value(&self, value: f64) -> String {
        match self.field.kind {
            FieldKind::Number(unit) => self.units.format_value(value, unit),
            _ => String::new(),
        }
    }

    /// Returns the cell of one GPU.
    pub(super) fn gpu_cell(&self, gpu: usize, theme: Theme) -> (&'static str, Style) {
        self.value_cell(self.values.get(gpu).copied().flatten(), theme)
    }

    /// Returns the cell of the highest value among several GPUs.
    pub(super) fn highest_cell(
        &self,
        gpus: impl Iterator<Item = usize>,
        theme: Theme,
    ) -> (&'static str, Style) {
        let known = gpus.filter_map(|gpu| self.values.get(gpu).copied().flatten());
        self.value_cell(known.reduce(f64::max), theme)
    }

    fn value_cell(&self, value: Option<f64>, theme: Theme) -> (&'static str, Style) {
        let Some(value) = value.filter(|value| value.is_finite()) else {
            return ("-", theme.style_for(StyleRole::Dim));
        };
        let range = self.high - self.low;
        let share = if range > 0.0 { (value - self.low) / range } else { 0.0 };
        let tenth = ((share * 10.0) as usize).min(9);
        let meaning = match tenth {
            0..=1 => StyleRole::Dim,
            2..=3 => StyleRole::Neutral,
            4..=5 => StyleRole::SecondaryGood,
            6..=7 => StyleRole::Good,
            8 => StyleRole::Waiting,
            _ => StyleRole::Starved,
        };
        (TENTHS[tenth], theme.style_for(meaning))
    }

    /// Renders the lowest and the highest value of a few GPUs.
    fn render_extremes(&self, gpus: Range<usize>) -> String {
        let known = || gpus.clone().filter_map(|gpu| self.values.get(gpu).copied().flatten());
        match known().reduce(f64::min).zip(known().reduce(f64::max)) {
            Some((low, high)) => {
                let (low, high) = (self.format_value(low), self.format_value(high));
                if low == high { low } else { format!("{low} to {high}") }
            }
            None => display_text::ABSENT.to_owned(),
        }
    }

    /// Renders the values of a few GPUs.
    fn render_values(&self, gpus: Range<usize>) -> String {
        let texts = gpus.map(|gpu| {
            let value = self.values.get(gpu).copied().flatten();
            value.map_or_else(|| display_text::ABSENT.to_owned(), |value| self.format_value(value))
        });
        texts.collect::<Vec<_>>().join(" ")
    }
}

fn is_ratio(field: &SubjectField) -> bool {
    matches!(field.kind, FieldKind::Number(gaunt_schema::unit::Unit::Ratio))
}
