//! State as rows: the columns for the filter language and for tables.

use std::collections::HashMap;

use gaunt_schema::{
    AbsenceReason, EntityKind, FindingKind, MetricId, Reading, SanitizedText, unit::MetricKind,
};

use super::view::View;
use gaunt_api::{
    FieldKey, Filter, FindingList, Subject, SubjectBuiltin,
    filter::{NO_TEXT, RowSource, TextColumn},
};

mod finding_rows;
mod gpu_rows;
mod job_rows;
mod node_rows;
mod port_rows;
mod process_rows;
mod target_rows;

pub(super) use gpu_rows::GpuRows;
pub(super) use port_rows::{PortRows, port_load};

/// The findings of a list as rows.
pub fn finding_rows(list: &FindingList) -> impl RowSource + '_ {
    TableRows(finding_rows::FindingRows::new(list))
}

impl<'a> View<'a> {
    /// The rows of a filter's subject that can match it.
    pub(super) fn subject_rows(self, filter: &Filter) -> Box<dyn RowSource + 'a> {
        match filter.subject() {
            Subject::Gpus => Box::new(TableRows(GpuRows::new(self, filter))),
            Subject::Nodes => Box::new(TableRows(node_rows::NodeRows::new(self))),
            Subject::Jobs => Box::new(TableRows(job_rows::JobRows::new(self))),
            Subject::Ports => Box::new(TableRows(PortRows::new(self))),
            Subject::Processes => Box::new(TableRows(process_rows::ProcessRows::new(self))),
            Subject::Findings => Box::new(TableRows(finding_rows::FindingRows::new(self.findings))),
            Subject::Closed => Box::new(TableRows(finding_rows::FindingRows::new(self.closed))),
            Subject::Targets => Box::new(TableRows(target_rows::TargetRows::new(self))),
        }
    }

    /// Total number of rows of a subject.
    pub(super) fn total_rows(&self, subject: Subject, rows: &dyn RowSource) -> u32 {
        match subject {
            // A filter that names nodes or jobs has fewer rows.
            Subject::Gpus => self.gpu_count.max(rows.len() as u32),
            _ => rows.len() as u32,
        }
    }
}

/// The rows of one subject. Each of its own fields is filled by a match on all of them.
pub(super) trait SubjectRows<'a> {
    /// The subject's fields that are not metrics.
    type Field: SubjectBuiltin;

    fn row_count(&self) -> usize;

    /// The values of one field in these rows.
    fn builtin_column(&self, field: Self::Field, rows: &[u32]) -> FieldColumn;

    /// The view, and the row in the cluster's columns of the device that a metric is measured on.
    fn metric_row(&self, _metric: MetricId, _row: u32) -> Option<(&View<'a>, u32)> {
        None
    }
}

/// The rows of a subject, for the filter language.
pub(super) struct TableRows<T>(pub(super) T);

impl<'a, T: SubjectRows<'a>> TableRows<T> {
    fn builtin_column(&self, key: FieldKey, rows: &[u32]) -> Option<FieldColumn> {
        let FieldKey::Builtin(own) = key else { return None };
        Some(self.0.builtin_column(T::Field::from_builtin(own)?, rows))
    }
}

impl<'a, T: SubjectRows<'a>> RowSource for TableRows<T> {
    fn len(&self) -> usize {
        self.0.row_count()
    }

    fn collect_numbers(&self, key: FieldKey, rows: &[u32]) -> Vec<f64> {
        if let Some(FieldColumn::Numbers(numbers)) = self.builtin_column(key, rows) {
            return numbers;
        }
        let number = |row| {
            let FieldKey::Metric(metric) = key else { return None };
            let (view, cluster_row) = self.0.metric_row(metric, row)?;
            shown_value(view, metric, cluster_row)
        };
        FieldColumn::collect_numbers(rows, number)
    }

    fn collect_texts(&self, key: FieldKey, rows: &[u32]) -> TextColumn {
        match self.builtin_column(key, rows) {
            Some(FieldColumn::Texts(texts)) => texts,
            Some(FieldColumn::Numbers(_)) | None => TextColumn::default(),
        }
    }

    fn absent_reason(&self, key: FieldKey, row: u32) -> Option<AbsenceReason> {
        let FieldKey::Metric(metric) = key else { return None };
        let (view, cluster_row) = self.0.metric_row(metric, row)?;
        view.last_reading(metric, cluster_row).and_then(Reading::absence_reason)
    }
}

/// The value to show for a metric of the device at a row: of a gauge its value, of a counter its rate per second.
fn shown_value(view: &View<'_>, metric: MetricId, row: u32) -> Option<f64> {
    match metric.catalogue_row().kind {
        MetricKind::Counter(_) => view.counter_rate(metric, row),
        MetricKind::Gauge | MetricKind::Info => view.metric_value(metric, row),
    }
}

/// The values of one field, one per row.
pub(super) enum FieldColumn {
    /// Numbers; absent ones are NaN.
    Numbers(Vec<f64>),
    Texts(TextColumn),
}

impl FieldColumn {
    fn collect_numbers(rows: &[u32], number: impl Fn(u32) -> Option<f64>) -> Vec<f64> {
        rows.iter().map(|row| number(*row).unwrap_or(f64::NAN)).collect()
    }

    /// A number per row.
    fn numbers(rows: &[u32], number: impl Fn(u32) -> Option<f64>) -> Self {
        Self::Numbers(Self::collect_numbers(rows, number))
    }

    /// A text per row.
    fn texts<'a>(rows: &[u32], text: impl Fn(u32) -> Option<&'a SanitizedText>) -> Self {
        let mut collected = TextColumnBuilder::default();
        for row in rows {
            let code = text(*row).map_or(NO_TEXT, |text| collected.intern_text(text));
            collected.texts.codes.push(code);
        }
        Self::Texts(collected.texts)
    }

    /// A text per row that is made for it.
    fn made_texts(rows: &[u32], text: impl Fn(u32) -> Option<SanitizedText>) -> Self {
        let texts: Vec<Option<SanitizedText>> = rows.iter().map(|row| text(*row)).collect();
        let indices: Vec<u32> = (0..texts.len() as u32).collect();
        Self::texts(&indices, |index| texts[index as usize].as_ref())
    }

    /// Several texts per row.
    fn many_texts<'a, T: Iterator<Item = &'a SanitizedText>>(
        rows: &[u32],
        texts: impl Fn(u32) -> T,
    ) -> Self {
        let mut collected = TextColumnBuilder::default();
        let mut starts = vec![0];
        for row in rows {
            let start = collected.texts.codes.len();
            for text in texts(*row) {
                let code = collected.intern_text(text);
                if !collected.texts.codes[start..].contains(&code) {
                    collected.texts.codes.push(code);
                }
            }
            starts.push(collected.texts.codes.len() as u32);
        }
        Self::Texts(TextColumn { starts: Some(starts), ..collected.texts })
    }

    /// A text from a fixed list per row.
    fn coded(rows: &[u32], words: &[&str], code: impl Fn(u32) -> Option<usize>) -> Self {
        Self::Texts(TextColumn {
            words: words.iter().map(|word| SanitizedText::new(word)).collect(),
            codes: rows.iter().map(|row| code(*row).map_or(NO_TEXT, |code| code as u32)).collect(),
            starts: None,
        })
    }

    /// A finding kind per row.
    fn kinds(rows: &[u32], kind: impl Fn(u32) -> Option<FindingKind>) -> Self {
        let words: Vec<&str> = FindingKind::ALL.iter().map(|kind| kind.as_str()).collect();
        Self::coded(rows, &words, |row| kind(row).map(|kind| kind as usize))
    }
}

/// Interns texts: each different one is stored once.
#[derive(Default)]
struct TextColumnBuilder {
    texts: TextColumn,
    known: HashMap<SanitizedText, u32>,
}

impl TextColumnBuilder {
    fn intern_text(&mut self, text: &SanitizedText) -> u32 {
        // Neighbours usually have the same text.
        if let Some(last) = self.texts.codes.last()
            && self.texts.words.get(*last as usize) == Some(text)
        {
            return *last;
        }
        if let Some(code) = self.known.get(text) {
            return *code;
        }
        let code = self.texts.words.len() as u32;
        self.texts.words.push(text.clone());
        self.known.insert(text.clone(), code);
        code
    }
}

/// Open findings by what they blame, the worst first.
struct BlameIndex<'a> {
    nodes: HashMap<&'a str, Vec<&'a gaunt_api::Finding>>,
    jobs: HashMap<&'a str, FindingKind>,
    /// About a leaf, on one of its rails or on all, or about a rail below all leaves.
    switches: Vec<&'a gaunt_api::Finding>,
}

impl<'a> BlameIndex<'a> {
    fn of(list: &'a FindingList) -> Self {
        let mut blame = Self { nodes: HashMap::new(), jobs: HashMap::new(), switches: Vec::new() };
        for finding in &list.findings {
            if let Some(node) = finding.entity.node.as_deref() {
                blame.nodes.entry(node).or_default().push(finding);
            }
            if let Some(job) = finding.entity.job.as_deref() {
                blame.jobs.entry(job).or_insert(finding.kind);
            }
            if matches!(finding.entity.kind, EntityKind::Leaf | EntityKind::Rail) {
                blame.switches.push(finding);
            }
        }
        blame
    }

    /// The worst finding that blames a node or a part of it.
    fn worst_of_node(&self, node: &str) -> Option<FindingKind> {
        self.nodes.get(node)?.first().map(|finding| finding.kind)
    }

    /// The worst finding that blames a GPU, or its node as a whole.
    fn worst_of_gpu(&self, node: &str, gpu: &str) -> Option<FindingKind> {
        let about = |finding: &&&gaunt_api::Finding| match &finding.entity.gpu {
            Some(blamed) => *blamed == *gpu,
            None => finding.entity.device.is_none(),
        };
        self.nodes.get(node)?.iter().find(about).map(|finding| finding.kind)
    }

    /// The worst finding that blames a port or the network of its node as a whole, else the one that blames its leaf or
    /// its rail as a whole.
    fn worst_of_port(
        &self,
        node: &str,
        (device, port): (&str, &str),
        (leaf, rail): (Option<&SanitizedText>, Option<&SanitizedText>),
    ) -> Option<FindingKind> {
        let about = |finding: &&&gaunt_api::Finding| {
            let entity = &finding.entity;
            let is_network =
                matches!(finding.kind, FindingKind::HostBlocksNetwork | FindingKind::PortDown);
            (entity.kind == EntityKind::Node && is_network)
                || entity.device.as_deref() == Some(device)
                    && entity.port.as_deref().is_none_or(|blamed| blamed == port)
        };
        let own = self.nodes.get(node).and_then(|findings| findings.iter().find(about));
        let above = |finding: &&&gaunt_api::Finding| {
            let entity = &finding.entity;
            (entity.leaf.is_some() || entity.rail.is_some())
                && entity.leaf.as_ref().is_none_or(|blamed| leaf == Some(blamed))
                && entity.rail.as_ref().is_none_or(|blamed| rail == Some(blamed))
        };
        own.or_else(|| self.switches.iter().find(above)).map(|finding| finding.kind)
    }
}

#[cfg(test)]
mod tests {
    use gaunt_api::Finding;
    use gaunt_schema::{Entity, Severity};

    use super::*;

    /// The kind that is shown at `mlx5_0/1` of gpu001, below leaf-0 on rail 0, where this is blamed.
    fn shown_at_port(kind: FindingKind, entity: Entity) -> Option<FindingKind> {
        let findings = vec![Finding::new(kind, Severity::Critical, entity)];
        let list = FindingList { findings, ..FindingList::default() };
        let (leaf, rail) = ("leaf-0".into(), "0".into());
        let blame = BlameIndex::of(&list);
        blame.worst_of_port("gpu001", ("mlx5_0", "1"), (Some(&leaf), Some(&rail)))
    }

    #[test]
    fn port_has_the_finding_of_what_it_belongs_to() {
        let leaf = |leaf: &str, rail: Option<&str>| Entity {
            leaf: Some(leaf.into()),
            rail: rail.map(Into::into),
            ..Entity::new(EntityKind::Leaf)
        };
        let rail = |rail: &str| Entity { rail: Some(rail.into()), ..Entity::new(EntityKind::Rail) };
        let node = |node: &str| Entity::new_node(&node.into());
        let port = |device: &str| Entity::new_port(&"gpu001".into(), &device.into(), &"1".into());
        for (kind, entity, is_shown) in [
            (FindingKind::PortDown, port("mlx5_0"), true),
            (FindingKind::PortDown, port("mlx5_1"), false),
            (FindingKind::LeafCongested, leaf("leaf-0", None), true),
            (FindingKind::LeafCongested, leaf("leaf-1", None), false),
            (FindingKind::PortDown, leaf("leaf-0", Some("0")), true),
            (FindingKind::PortDown, leaf("leaf-0", Some("1")), false),
            (FindingKind::RailSlow, rail("0"), true),
            (FindingKind::RailSlow, rail("1"), false),
            (FindingKind::LeafCongested, Entity::new(EntityKind::Leaf), false),
            (FindingKind::HostBlocksNetwork, node("gpu001"), true),
            (FindingKind::HostBlocksNetwork, node("gpu002"), false),
            (FindingKind::DataStarved, node("gpu001"), false),
        ] {
            let named = format!("{kind} {entity:?}");
            assert_eq!(shown_at_port(kind, entity), is_shown.then_some(kind), "{named}");
        }
    }
}
