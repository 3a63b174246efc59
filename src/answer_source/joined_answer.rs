//! Joined answer: the answers of several clusters to one question as one, with totals added.

use std::{
    cmp::{Ordering, Reverse},
    collections::BTreeMap,
    sync::Arc,
};

use gaunt_api::{
    AlertList, Answer, AnswerCells, AnswerColumn, AnswerTable, FabricMatrix, Filter, Finding,
    FindingGroup, FindingList, GpuTime, NodeLine, NodeList, Overview, Question, Refusal,
    TargetList, UsageReport,
};
use gaunt_schema::{GpuState, SanitizedText, natural_order};

/// The name of the column that tells clusters apart.
const CLUSTER_COLUMN: &str = "cluster";

/// Findings, nodes and sentences of a joined overview, as in that of one cluster.
const MAX_LINES: usize = 64;

/// Joins the answers of the clusters with these names, in their order. Questions about the whole fleet that cannot be
/// answered together are refused.
pub(super) fn join_answers(question: &Question, answers: Vec<(SanitizedText, Answer)>) -> Answer {
    let mut names = Vec::with_capacity(answers.len());
    let mut parts = Vec::with_capacity(answers.len());
    for (name, answer) in answers {
        names.push(name);
        parts.push(answer);
    }
    macro_rules! parts_of {
        ($variant:ident) => {
            parts.iter().filter_map(|part| match part {
                Answer::$variant(part) => Some((**part).clone()),
                _ => None,
            })
        };
    }
    match (question, parts.first()) {
        (Question::AtTime(_, question), _) => {
            join_answers(question, names.into_iter().zip(parts).collect())
        }
        (_, Some(Answer::Overview(_))) => {
            Answer::Overview(Arc::new(join_overviews(&names, parts_of!(Overview))))
        }
        (question, Some(Answer::Nodes(_))) => {
            let joined = parts_of!(Nodes).reduce(join_nodes).unwrap_or_default();
            let nodes = cut_page(question, joined.nodes);
            Answer::Nodes(Arc::new(NodeList { nodes, ..joined }))
        }
        (question, Some(Answer::Findings(_))) => {
            let joined = parts_of!(Findings).reduce(join_findings).unwrap_or_default();
            let findings = cut_page(question, sort_findings(joined.findings));
            Answer::Findings(Arc::new(FindingList { findings, ..joined }))
        }
        (question, Some(Answer::Targets(_))) => {
            let mut joined = parts_of!(Targets).reduce(join_targets).unwrap_or_default();
            joined.targets = cut_page(question, joined.targets);
            Answer::Targets(Arc::new(joined))
        }
        (Question::Table(filter), Some(Answer::Table(_))) => {
            let tables: Vec<AnswerTable> = parts_of!(Table).collect();
            Answer::Table(Arc::new(join_tables(filter, &names, &tables)))
        }
        (_, Some(Answer::GpuTime(_))) => {
            Answer::GpuTime(Arc::new(parts_of!(GpuTime).reduce(join_times).unwrap_or_default()))
        }
        (_, Some(Answer::Usage(_))) => {
            Answer::Usage(Arc::new(parts_of!(Usage).reduce(join_usage).unwrap_or_default()))
        }
        (_, Some(Answer::Fabric(_))) => {
            Answer::Fabric(Arc::new(parts_of!(Fabric).reduce(join_fabrics).unwrap_or_default()))
        }
        (_, Some(Answer::Alerts(_))) => {
            Answer::Alerts(Arc::new(parts_of!(Alerts).reduce(join_alerts).unwrap_or_default()))
        }
        _ => Answer::Refused(Refusal::BadParameter {
            parameter: CLUSTER_COLUMN.into(),
            why: SanitizedText::new(&format!(
                "this is answered for one cluster; choose one with :cluster NAME in the console, or its aggregator alone \
                 ({})",
                names.iter().map(|name| &**name).collect::<Vec<_>>().join(", ")
            )),
        }),
    }
}

fn join_overviews(names: &[SanitizedText], overviews: impl Iterator<Item = Overview>) -> Overview {
    let mut joined = overviews
        .reduce(|mut left, right| {
            left.at = left.at.max(right.at);
            left.period_ms = left.period_ms.max(right.period_ms);
            left.nodes.live += right.nodes.live;
            left.nodes.stale += right.nodes.stale;
            left.nodes.down += right.nodes.down;
            left.nodes.pending += right.nodes.pending;
            for count in right.states {
                match left.states.iter_mut().find(|known| known.state == count.state) {
                    Some(known) => known.gpus += count.gpus,
                    None => left.states.push(count),
                }
            }
            join_lost(&mut left.lost, &right.lost);
            left.findings_open += right.findings_open;
            left.findings_acknowledged += right.findings_acknowledged;
            left.findings_without_place += right.findings_without_place;
            left.findings.extend(right.findings);
            left.groups.extend(right.groups);
            left.contexts.extend(right.contexts);
            left.changes.extend(right.changes);
            left.heat.nodes.extend(right.heat.nodes);
            left.heat.gpus.extend(right.heat.gpus);
            left.heat.states.push_str(&right.heat.states);
            left.worst.extend(right.worst);
            left.trouble.extend(right.trouble);
            left.source_trouble.extend(right.source_trouble);
            left.source_notes.extend(right.source_notes);
            left
        })
        .unwrap_or_default();
    let order = |state: GpuState| GpuState::ALL.iter().position(|known| *known == state);
    joined.states.sort_by_key(|count| order(count.state));
    joined.findings = sort_findings(joined.findings);
    sort_groups(&mut joined.groups);
    joined.changes.sort_by_key(|change| change.at);
    joined.worst.sort_by(compare_nodes);
    joined.worst.truncate(MAX_LINES);
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    joined.cluster = SanitizedText::new(&names.join(" + "));
    joined
}

/// Adds lost GPUs; costs only in one currency, and history only with one step.
fn join_lost(left: &mut gaunt_api::LostGpuTime, right: &gaunt_api::LostGpuTime) {
    left.gpus += right.gpus;
    left.findings_gpus += right.findings_gpus;
    left.idle_gpus += right.idle_gpus;
    left.unexplained_gpus += right.unexplained_gpus;
    left.unknown_gpus += right.unknown_gpus;
    let is_same = left.currency == right.currency;
    left.cost_per_hour = left
        .cost_per_hour
        .zip(right.cost_per_hour)
        .filter(|_| is_same)
        .map(|(one, other)| one + other);
    if left.price_per_gpu_hour != right.price_per_gpu_hour || !is_same {
        left.price_per_gpu_hour = None;
    }
    if left.history_step_ms != right.history_step_ms {
        left.history.clear();
        return;
    }
    // Both end now.
    let length = left.history.len().min(right.history.len());
    let (skip, right_skip) = (left.history.len() - length, right.history.len() - length);
    left.history.drain(..skip);
    for (point, other) in left.history.iter_mut().zip(&right.history[right_skip..]) {
        *point = point.zip(*other).map(|(one, other)| one + other);
    }
}

fn join_nodes(mut left: NodeList, right: NodeList) -> NodeList {
    left.nodes.extend(right.nodes);
    left.nodes.sort_by(compare_nodes);
    left.at = left.at.max(right.at);
    left.total += right.total;
    left.matched += right.matched;
    left
}

/// The order of one cluster: by tenths of a GPU, so that noise moves no row; among equals what has a finding comes first.
fn compare_nodes(left: &NodeLine, right: &NodeLine) -> Ordering {
    let key = |node: &NodeLine| {
        let lost = Reverse((node.lost_gpus * 10.0) as u64);
        (lost, node.finding.is_none(), Reverse(node.state))
    };
    key(left).cmp(&key(right)).then_with(|| natural_order(&left.node, &right.node))
}

fn join_findings(mut left: FindingList, right: FindingList) -> FindingList {
    left.findings.extend(right.findings);
    left.groups.extend(right.groups);
    sort_groups(&mut left.groups);
    left.contexts.extend(right.contexts);
    left.at = left.at.max(right.at);
    left.total += right.total;
    left.matched += right.matched;
    left
}

/// Sorts open findings worst first, then closed ones newest first, each in the order of one cluster.
fn sort_findings(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by(|left, right| {
        let closed = (left.life.closed, right.life.closed);
        let order = if let (Some(left), Some(right)) = closed {
            right.cmp(&left)
        } else {
            let cost = right.listed_cost().total_cmp(&left.listed_cost());
            let is_closed = closed.0.is_some().cmp(&closed.1.is_some());
            is_closed.then(right.severity.cmp(&left.severity)).then(cost)
        };
        order.then_with(|| natural_order(&left.id, &right.id))
    });
    findings
}

fn sort_groups(groups: &mut [FindingGroup]) {
    groups.sort_by(|left, right| {
        let cost = right.listed_cost().total_cmp(&left.listed_cost());
        let order = right.severity.cmp(&left.severity).then(cost);
        order.then_with(|| natural_order(&left.id, &right.id))
    });
}

fn join_targets(mut left: TargetList, right: TargetList) -> TargetList {
    left.targets.extend(right.targets);
    left.sources.extend(right.sources);
    left.site_files.extend(right.site_files);
    left.peers.extend(right.peers);
    left.at = left.at.max(right.at);
    left.total += right.total;
    left.matched += right.matched;
    add_counts(&mut left.totals.scrapes, right.totals.scrapes);
    left.totals.samples += right.totals.samples;
    add_counts(&mut left.totals.rejected, right.totals.rejected);
    add_counts(&mut left.totals.findings_opened, right.totals.findings_opened);
    add_counts(&mut left.left_out.findings_without_place, right.left_out.findings_without_place);
    add_counts(&mut left.left_out.refused_devices, right.left_out.refused_devices);
    add_counts(&mut left.left_out.dropped_batches, right.left_out.dropped_batches);
    left.left_out.unjudged_targets += right.left_out.unjudged_targets;
    (left.keeping, left.store) = (None, None);
    left
}

fn add_counts<K: Ord, N: std::ops::AddAssign + Default>(
    left: &mut BTreeMap<K, N>,
    right: BTreeMap<K, N>,
) {
    for (key, count) in right {
        *left.entry(key).or_default() += count;
    }
}

fn join_times(mut left: GpuTime, right: GpuTime) -> GpuTime {
    left.jobs.extend(right.jobs);
    left.starved.extend(right.starved);
    left.unlisted_jobs += right.unlisted_jobs;
    left.at = left.at.max(right.at);
    left
}

fn join_usage(mut left: UsageReport, right: UsageReport) -> UsageReport {
    left.rows.extend(right.rows);
    left.rows.sort_by(|one, other| other.gpu_seconds.total_cmp(&one.gpu_seconds));
    left.at = left.at.max(right.at);
    left.from = left.from.min(right.from);
    left.watched_seconds = left.watched_seconds.max(right.watched_seconds);
    left.cluster = SanitizedText::new(&format!("{} + {}", left.cluster, right.cluster));
    left
}

fn join_alerts(mut left: AlertList, right: AlertList) -> AlertList {
    left.servers.extend(right.servers);
    left.alerts.extend(right.alerts);
    left
}

/// Leaves are those of one cluster each; equal rails share a column.
fn join_fabrics(mut left: FabricMatrix, right: FabricMatrix) -> FabricMatrix {
    let first_leaf = left.leaves.len() as u32;
    let mut rails = Vec::with_capacity(right.rails.len());
    for rail in right.rails {
        let known = left.rails.iter().position(|known| *known == rail).unwrap_or_else(|| {
            left.rails.push(rail);
            left.rails.len() - 1
        });
        rails.push(known as u32);
    }
    left.leaves.extend(right.leaves);
    left.at = left.at.max(right.at);
    left.total += right.total;
    left.matched += right.matched;
    let (cells, more) = (&mut left.cells, right.cells);
    cells.leaf.extend(more.leaf.iter().map(|leaf| leaf + first_leaf));
    cells.rail.extend(
        more.rail.iter().map(|rail| rails.get(*rail as usize).copied().unwrap_or_default()),
    );
    cells.ports.extend(more.ports);
    cells.active.extend(more.active);
    cells.receive_ratio.extend(more.receive_ratio);
    cells.transmit_ratio.extend(more.transmit_ratio);
    cells.busiest_ratio.extend(more.busiest_ratio);
    cells.pause_received_ratio.extend(more.pause_received_ratio);
    cells.pause_sent_ratio.extend(more.pause_sent_ratio);
    cells.cnp_handled_per_second.extend(more.cnp_handled_per_second);
    cells.ecn_marked_per_second.extend(more.ecn_marked_per_second);
    cells.errors_per_second.extend(more.errors_per_second);
    cells.downs_per_second.extend(more.downs_per_second);
    cells.finding.extend(more.finding);
    left
}

/// The page of a filtered list: each cluster answered from its first row on.
fn cut_page<T>(question: &Question, rows: Vec<T>) -> Vec<T> {
    let Question::List(filter) = question else { return rows };
    let limit = filter.limit().map_or(usize::MAX, |limit| limit as usize);
    rows.into_iter().skip(filter.offset() as usize).take(limit).collect()
}

/// Joins tables in the order of the filter, with a column that names the cluster of each row.
fn join_tables(filter: &Filter, names: &[SanitizedText], tables: &[AnswerTable]) -> AnswerTable {
    let mut rows: Vec<(usize, usize)> = Vec::new();
    for (table, part) in tables.iter().enumerate() {
        rows.extend((0..part.rows as usize).map(|row| (table, row)));
    }
    for (field, is_descending) in filter.sort_fields().collect::<Vec<_>>().into_iter().rev() {
        let cells: Vec<Option<&AnswerColumn>> =
            tables.iter().map(|table| table.find_column(&field.name)).collect();
        rows.sort_by(|left, right| {
            compare_cells((cells[left.0], left.1), (cells[right.0], right.1), is_descending)
        });
    }
    let limit = filter.limit().unwrap_or(u32::MAX) as usize;
    let rows: Vec<(usize, usize)> =
        rows.into_iter().skip(filter.offset() as usize).take(limit).collect();
    let first = &tables[0];
    let clusters = AnswerCells::Texts {
        words: names.to_vec(),
        codes: rows.iter().map(|(table, _)| Some(*table as u32)).collect(),
    };
    let cluster_column =
        AnswerColumn { name: CLUSTER_COLUMN.to_owned(), metric: None, unit: None, cells: clusters };
    let columns = first.columns.iter().map(|column| {
        let parts: Vec<Option<&AnswerColumn>> =
            tables.iter().map(|table| table.find_column(&column.name)).collect();
        AnswerColumn { cells: join_cells(column, &parts, &rows), ..column.clone() }
    });
    AnswerTable {
        at: tables.iter().map(|table| table.at).max().unwrap_or_default(),
        subject: first.subject,
        total: tables.iter().map(|table| table.total).sum(),
        matched: tables.iter().map(|table| table.matched).sum(),
        offset: filter.offset(),
        rows: rows.len() as u32,
        columns: std::iter::once(cluster_column).chain(columns).collect(),
    }
}

/// The cells of these rows; a column that a cluster lacks is absent there.
fn join_cells(
    column: &AnswerColumn,
    parts: &[Option<&AnswerColumn>],
    rows: &[(usize, usize)],
) -> AnswerCells {
    if let AnswerCells::Numbers { .. } = column.cells {
        let number = |(table, row): &(usize, usize)| parts[*table]?.number_at(*row);
        let mut absent: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for (joined, (table, row)) in rows.iter().enumerate() {
            if let Some(reason) = parts[*table].and_then(|part| part.absent_reason(*row)) {
                absent.entry(reason).or_default().push(joined as u32);
            }
        }
        return AnswerCells::Numbers { values: rows.iter().map(number).collect(), absent };
    }
    let (mut words, mut known) = (Vec::new(), BTreeMap::new());
    let codes = rows.iter().map(|(table, row)| {
        let text = parts[*table]?.text_at(*row)?;
        Some(*known.entry(text.clone()).or_insert_with(|| {
            words.push(text.clone());
            words.len() as u32 - 1
        }))
    });
    let codes = codes.collect();
    AnswerCells::Texts { words, codes }
}

/// The order of two cells: what is absent comes last.
fn compare_cells(
    left: (Option<&AnswerColumn>, usize),
    right: (Option<&AnswerColumn>, usize),
    is_descending: bool,
) -> Ordering {
    let number = |(column, row): (Option<&AnswerColumn>, usize)| column?.number_at(row);
    let text = |(column, row): (Option<&AnswerColumn>, usize)| column?.text_at(row).cloned();
    let directed = |order: Ordering| if is_descending { order.reverse() } else { order };
    match (number(left), number(right)) {
        (Some(left), Some(right)) => return directed(left.total_cmp(&right)),
        (Some(_), None) => return Ordering::Less,
        (None, Some(_)) => return Ordering::Greater,
        (None, None) => {}
    }
    match (text(left), text(right)) {
        (Some(left), Some(right)) => directed(natural_order(&left, &right)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

#[cfg(test)]
mod tests {
    use gaunt_api::NodeState;
    use gaunt_schema::{Entity, FindingKind, Severity};

    use super::*;

    fn node_finding(node: &str, listed: f64, lost: f64) -> Finding {
        let entity = Entity::new_node(&node.into());
        let mut finding = Finding::new(FindingKind::HostBound, Severity::Warning, entity);
        finding.set_lost_gpus(lost);
        finding.listed_lost_gpus = Some(listed);
        finding
    }

    /// Two clusters answer at different times, so that the costs of their findings vary independently.
    #[test]
    fn rows_of_about_equal_cost_keep_their_places_among_clusters() {
        for (one, other) in [(10.0, 9.9), (9.2, 10.8), (8.0, 11.9), (11.0, 8.0)] {
            let overview = |node: &str, listed, lost| Overview {
                findings: vec![node_finding(node, listed, lost)],
                worst: vec![NodeLine {
                    node: node.into(),
                    state: NodeState::Live,
                    age_ms: None,
                    gpu_states: String::new(),
                    lost_gpus: 8.0 + lost / 1_000.0,
                    utilization_ratio: None,
                    power_watts: None,
                    ports: (0, 0),
                    jobs: Vec::new(),
                    finding: None,
                }],
                ..Overview::default()
            };
            let overviews = [overview("a/gpu001", 10.0, one), overview("b/gpu001", 9.9, other)];
            let names = ["a".into(), "b".into()];
            let joined = join_overviews(&names, overviews.into_iter());
            let order = joined.findings.iter().map(|finding| finding.id.as_str());
            assert_eq!(order.collect::<Vec<_>>(), ["host_bound/a/gpu001", "host_bound/b/gpu001"]);
            let order = joined.worst.iter().map(|node| node.node.as_str());
            assert_eq!(order.collect::<Vec<_>>(), ["a/gpu001", "b/gpu001"], "{one} {other}");
        }
        // An aggregator of an older version states no cost for lists.
        let older = Finding { listed_lost_gpus: None, ..node_finding("c/gpu001", 0.0, 12.0) };
        let sorted = sort_findings(vec![node_finding("a/gpu001", 10.0, 9.0), older]);
        assert_eq!(sorted[0].id, "host_bound/c/gpu001");
    }
}
