//! Index of the heat map: what follows from every GPU, computed once for each answer. A frame reads of it what it shows.

use std::{
    collections::{BTreeSet, HashMap},
    iter,
    ops::Range,
    sync::Arc,
};

use gaunt_api::{AnswerCells, AnswerTable, FieldKind, Finding, HeatMap, Overview, SubjectField};
use gaunt_schema::{GpuState, SanitizedText, Severity, natural_order, unit::Unit};

use super::{display_text, fabric_map::common_prefix, theme};

/// How the heat map groups its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HeatGrouping {
    /// By node.
    #[default]
    Node,
    /// By leaf switch.
    Leaf,
    /// By rack.
    Rack,
}

/// The answers that the map shows.
#[derive(Debug, Default)]
pub(crate) struct HeatAnswers<'a> {
    /// The states of all GPUs.
    pub(crate) overview: Option<&'a Arc<Overview>>,
    /// How nodes are grouped.
    pub(crate) grouping: HeatGrouping,
    /// Leaf and rack of every node.
    pub(crate) sites: Option<&'a Arc<AnswerTable>>,
    /// The GPU field that colours the map, and its values.
    pub(crate) values: Option<(&'static SubjectField, &'a Arc<AnswerTable>)>,
}

/// The nodes of the map by their indexes in the overview, their groups, and the worst of each.
#[derive(Debug, Default)]
pub(crate) struct HeatIndex {
    overview: Arc<Overview>,
    grouping: HeatGrouping,
    sites: Option<Arc<AnswerTable>>,
    values: Option<HeatRange>,
    /// Index of the first GPU of each node, and the number of all GPUs.
    starts: Vec<u32>,
    /// The worst of each node.
    worst: Vec<WorstOfNodes>,
    /// Indexes of the nodes, group by group.
    order: Vec<u32>,
    /// The groups in their order, if any is known; else each node is its own.
    groups: Option<Vec<HeatGroup>>,
    /// Maximum number of GPUs in a group.
    pub(crate) most_gpus: usize,
    /// Maximum number of nodes in a group.
    pub(crate) most_nodes: usize,
    /// Width of the widest name of a group, in columns.
    pub(crate) label_width: usize,
}

/// Nodes with a common name.
#[derive(Debug)]
struct HeatGroup {
    name: SanitizedText,
    /// Range of the nodes in the order.
    nodes: Range<usize>,
    /// The worst severity of an open finding that names the leaf or rack itself.
    finding: Option<Severity>,
}

/// The worst of some nodes: what one cell for all of them shows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorstOfNodes {
    /// State and rank of the worst GPU; none without GPUs.
    state: Option<(u8, GpuState)>,
    /// The worst severity of an open finding.
    pub(crate) finding: Option<Severity>,
}

/// One value for each GPU.
#[derive(Debug)]
pub(crate) struct HeatRange {
    /// The field.
    pub(crate) field: &'static SubjectField,
    table: Arc<AnswerTable>,
    /// The values at both ends of the scale; the lower one is higher if no value is known.
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// The highest value of each node.
    highest: Vec<Option<f64>>,
}

impl HeatIndex {
    /// Computes the index anew if its answers have changed.
    pub(crate) fn renew(&mut self, answers: &HeatAnswers<'_>) {
        let Some(overview) = answers.overview else {
            *self = Self::default();
            return;
        };
        let sites = answers.sites.filter(|_| answers.grouping != HeatGrouping::Node);
        let is_same = |a: Option<&Arc<AnswerTable>>, b: Option<&Arc<AnswerTable>>| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let has_states = Arc::ptr_eq(&self.overview, overview);
        let has_groups = self.grouping == answers.grouping && is_same(self.sites.as_ref(), sites);
        if !has_states || !has_groups {
            self.overview = Arc::clone(overview);
            (self.grouping, self.sites) = (answers.grouping, sites.cloned());
            self.index_nodes();
            self.group_nodes();
        }
        let shown = self.values.as_ref().map(|values| (values.field, &values.table));
        let is_same_field = shown.map(|(field, _)| field) == answers.values.map(|(field, _)| field);
        let (shown, wanted) = (shown.map(|(_, it)| it), answers.values.map(|(_, it)| it));
        if !has_states || !is_same_field || !is_same(shown, wanted) {
            self.values = answers.values.and_then(|(field, table)| self.index_values(field, table));
        }
    }

    /// Returns the states of all GPUs.
    pub(crate) fn heat(&self) -> &HeatMap {
        &self.overview.heat
    }

    /// Returns the values that colour the map, if they are known for the GPUs that it shows.
    pub(crate) fn values(&self) -> Option<&HeatRange> {
        self.values.as_ref()
    }

    /// Whether the group of any node is known.
    pub(crate) fn knows_groups(&self) -> bool {
        self.groups.is_some()
    }

    /// Returns the number of groups.
    pub(crate) fn group_count(&self) -> usize {
        self.groups.as_ref().map_or(self.order.len(), Vec::len)
    }

    /// Returns the name of a group.
    pub(crate) fn group_name(&self, group: usize) -> &str {
        match &self.groups {
            Some(groups) => &groups[group].name,
            None => self.node_name(group as u32).unwrap_or_default(),
        }
    }

    /// Returns the nodes of adjacent groups, by their indexes.
    pub(crate) fn nodes_of(&self, groups: Range<usize>) -> &[u32] {
        match &self.groups {
            None => &self.order[groups],
            Some(sites) => match &sites[groups] {
                [] => &[],
                [first, .., last] => &self.order[first.nodes.start..last.nodes.end],
                [only] => &self.order[only.nodes.clone()],
            },
        }
    }

    /// Returns the name of a node.
    pub(crate) fn node_name(&self, node: u32) -> Option<&str> {
        // The list may be longer than that of their GPUs.
        let nodes = self.heat().nodes.get(..self.worst.len())?;
        nodes.get(node as usize).map(SanitizedText::as_str)
    }

    /// Returns the indexes of the GPUs of a node.
    pub(crate) fn gpus_of(&self, node: u32) -> Range<usize> {
        let node = node as usize;
        self.starts[node] as usize..self.starts[node + 1] as usize
    }

    /// Returns the code letters of the states of a node's GPUs.
    pub(crate) fn states_of(&self, node: u32) -> &str {
        self.heat().states.get(self.gpus_of(node)).unwrap_or_default()
    }

    /// Returns the worst of some nodes.
    pub(crate) fn worst_of(&self, nodes: &[u32]) -> WorstOfNodes {
        let worst = nodes.iter().map(|node| self.worst[*node as usize]);
        worst.reduce(WorstOfNodes::join).unwrap_or_default()
    }

    /// Returns the worst severity of an open finding that names a group: a leaf or rack itself, or a node that is its own
    /// group.
    pub(crate) fn finding_of(&self, group: usize) -> Option<Severity> {
        match &self.groups {
            Some(groups) => groups[group].finding,
            None => self.worst_of(self.nodes_of(group..group + 1)).finding,
        }
    }

    /// Returns how many nodes a step down and a step to the right pass, with this number of groups per row.
    pub(crate) fn cursor_steps(&self, per_row: usize, step: usize) -> (usize, usize) {
        if self.knows_groups() { (self.most_nodes.max(1), step) } else { (per_row, step) }
    }

    fn index_nodes(&mut self) {
        let heat = &self.overview.heat;
        let mut end = 0;
        self.starts.clear();
        self.starts.push(0);
        self.worst.clear();
        for ((_, states), gpus) in heat.node_rows().zip(&heat.gpus) {
            end = (end + usize::from(*gpus)).min(heat.states.len());
            self.starts.push(end as u32);
            // The GPUs of a node mostly have one state.
            let (mut state, mut last) = (None, None);
            for code in states.bytes().filter(|code| last.replace(*code) != Some(*code)) {
                state = state.max(Some(theme::ranked_state(code)));
            }
            self.worst.push(WorstOfNodes { state, finding: None });
        }
        for finding in &self.overview.findings {
            let Some(name) = &finding.entity.node else { continue };
            let found = heat.nodes.binary_search_by(|node| natural_order(node, name));
            if let Some(node) = found.ok().and_then(|node| self.worst.get_mut(node)) {
                node.finding = node.finding.max(Some(finding.severity));
            }
        }
    }

    /// Groups the nodes as the user selected.
    fn group_nodes(&mut self) {
        let nodes = self.worst.len();
        let column = match self.grouping {
            HeatGrouping::Node => None,
            HeatGrouping::Leaf => Some("leaf"),
            HeatGrouping::Rack => Some("rack"),
        };
        let by_site = column.zip(self.sites.as_deref());
        let by_site = by_site.map(|(column, sites)| group_by_site(&self.overview, sites, column));
        let known = by_site.filter(|(groups, _)| groups.iter().any(|group| !group.name.is_empty()));
        (self.groups, self.order) = match known {
            Some((groups, order)) => (Some(groups), order),
            None => (None, (0..nodes as u32).collect()),
        };
        let (mut gpus, mut nodes, mut label) = (0, nodes.min(1), 0);
        for group in self.groups.iter().flatten() {
            let of_group = self.order[group.nodes.clone()].iter();
            gpus = gpus.max(of_group.map(|node| self.gpus_of(*node).len()).sum());
            nodes = nodes.max(group.nodes.len());
            label = label.max(display_text::text_width(&group.name));
        }
        if self.groups.is_none() {
            let names = self.heat().nodes.iter().take(self.worst.len());
            gpus = self.starts.windows(2).map(|node| node[1] - node[0]).max().unwrap_or(0) as usize;
            label = names.map(|name| display_text::text_width(name)).max().unwrap_or(0);
        }
        (self.most_gpus, self.most_nodes, self.label_width) = (gpus, nodes, label);
    }

    /// Returns the range of a field, if the table has a value for each GPU.
    fn index_values(
        &self,
        field: &'static SubjectField,
        table: &Arc<AnswerTable>,
    ) -> Option<HeatRange> {
        let mut range = HeatRange {
            field,
            table: Arc::clone(table),
            low: f64::MAX,
            high: f64::MIN,
            highest: Vec::new(),
        };
        let values = range.gpu_values();
        if values.len() != self.heat().states.len() {
            return None;
        }
        let known = || values.iter().flatten().copied().filter(|value| value.is_finite());
        let (low, high) = (known().fold(f64::MAX, f64::min), known().fold(f64::MIN, f64::max));
        let highest =
            |node| values.get(self.gpus_of(node))?.iter().flatten().copied().reduce(f64::max);
        let highest = (0..self.worst.len() as u32).map(highest).collect();
        (range.low, range.high, range.highest) = (low, high, highest);
        if matches!(field.kind, FieldKind::Number(Unit::Ratio)) {
            (range.low, range.high) = (0.0, range.high.max(1.0));
        }
        Some(range)
    }
}

impl WorstOfNodes {
    /// Returns the worst state of a GPU.
    pub(crate) fn state(self) -> GpuState {
        self.state.map_or(GpuState::Unknown, |(_, state)| state)
    }

    fn join(self, other: Self) -> Self {
        let rank = |of: Self| of.state.map(|(rank, _)| rank);
        let state = if rank(other) > rank(self) { other.state } else { self.state };
        Self { state, finding: self.finding.max(other.finding) }
    }
}

impl HeatRange {
    /// Returns the values of all GPUs.
    pub(crate) fn gpu_values(&self) -> &[Option<f64>] {
        match self.table.columns.first().map(|column| &column.cells) {
            Some(AnswerCells::Numbers { values, .. }) => values,
            _ => &[],
        }
    }

    /// Returns the highest value of some nodes.
    pub(crate) fn highest_of(&self, nodes: &[u32]) -> Option<f64> {
        let highest = nodes.iter().filter_map(|node| self.highest[*node as usize]);
        highest.reduce(f64::max)
    }
}

/// Nodes of a group, by their indexes, and the names of all their leaves or racks.
type SiteNodes<'a> = (Vec<u32>, BTreeSet<&'a str>);

/// Groups nodes by a text field of the site table; of several texts the first one counts.
fn group_by_site(
    overview: &Overview,
    sites: &AnswerTable,
    column: &str,
) -> (Vec<HeatGroup>, Vec<u32>) {
    let (Some(nodes), Some(locations)) = (sites.find_column("node"), sites.find_column(column))
    else {
        return Default::default();
    };
    let of: HashMap<&str, &str> = (0..sites.rows as usize)
        .filter_map(|row| Some((nodes.text_at(row)?.as_str(), locations.text_at(row)?.as_str())))
        .collect();
    let mut groups: HashMap<(bool, &str), SiteNodes<'_>> = HashMap::new();
    for (at, (node, _)) in iter::zip(0.., overview.heat.node_rows()) {
        let all = of.get(node.as_str()).copied().unwrap_or("");
        let first = all.split(", ").next().unwrap_or(all);
        // Nodes without a known group come last.
        let (nodes, names) = groups.entry((first.is_empty(), first)).or_default();
        nodes.push(at);
        names.extend(all.split(", "));
    }
    let (mut list, mut order) = (Vec::with_capacity(groups.len()), Vec::new());
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|((one_unknown, one), _), ((other_unknown, other), _)| {
        one_unknown.cmp(other_unknown).then_with(|| natural_order(one, other))
    });
    let common: Vec<String> = groups.iter().map(|(_, (_, names))| common_name(names)).collect();
    let are_distinct = are_distinct(&common);
    for (((_, first), (nodes, names)), common) in groups.into_iter().zip(common) {
        let blames = |finding: &&Finding| {
            let entity = &finding.entity;
            let site = if column == "leaf" { &entity.leaf } else { &entity.rack };
            site.as_ref().is_some_and(|site| names.contains(site.as_str()))
        };
        let finding = overview.findings.iter().filter(blames).map(|finding| finding.severity).max();
        let name = SanitizedText::new(if are_distinct { &common } else { first });
        list.push(HeatGroup { name, nodes: order.len()..order.len() + nodes.len(), finding });
        order.extend(nodes);
    }
    (list, order)
}

/// Returns whether no name is that of another group, or the beginning of it.
fn are_distinct(names: &[String]) -> bool {
    let begins = |name: &str, other: &str| {
        let rest = other.strip_prefix(name);
        rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    let mut others = names.iter().enumerate();
    others.all(|(at, name)| {
        names.iter().enumerate().all(|(other_at, other)| at == other_at || !begins(name, other))
    })
}

/// Returns what the names of the leaves of some nodes have in common: of one leaf its name.
fn common_name(names: &BTreeSet<&str>) -> String {
    let common = names.iter().map(|name| (*name).to_owned());
    let common = common.reduce(|a, b| common_prefix(&a, &b)).unwrap_or_default();
    common.trim_end_matches(|c: char| !c.is_alphanumeric()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_answers::{self, build_table, text_cells};
    use gaunt_api::Subject;
    use gaunt_schema::{Entity, EntityKind};

    fn groups_of(overview: &Overview, leaves: &[&str]) -> Vec<(String, Option<Severity>)> {
        let nodes: Vec<&str> = overview.heat.nodes.iter().map(SanitizedText::as_str).collect();
        let sites = build_table(
            Subject::Nodes,
            vec![("node", text_cells(&nodes)), ("leaf", text_cells(leaves))],
        );
        let (groups, _) = group_by_site(overview, &sites, "leaf");
        groups.into_iter().map(|group| (group.name.to_string(), group.finding)).collect()
    }

    #[test]
    fn only_a_leaf_that_a_finding_names_is_marked() {
        let mut overview = sample_answers::two_faults_overview(4);
        let leaves = ["leaf-0-r0, leaf-0-r1", "leaf-0-r0, leaf-0-r1", "leaf-1-r0", "leaf-1-r0"];
        let named = |mark| vec![("leaf-0".into(), mark), ("leaf-1-r0".into(), None)];
        assert_eq!(groups_of(&overview, &leaves), named(None), "findings of nodes and ports");
        let leaf = Some("leaf-0-r1".into());
        overview.findings[0].entity = Entity { leaf, ..Entity::new(EntityKind::Leaf) };
        assert_eq!(groups_of(&overview, &leaves), named(Some(Severity::Critical)));
        let leaves = ["leaf-a", "leaf-b, leaf-c", "leaf-b, leaf-c", "leaf-b, leaf-c"];
        let groups = groups_of(&overview, &leaves).into_iter().map(|(name, _)| name);
        assert_eq!(groups.collect::<Vec<_>>(), ["leaf-a", "leaf-b"], "no name of their own");
    }
}
