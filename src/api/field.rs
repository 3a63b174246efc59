//! Fields: the fields of each kind of row, and their names.

use std::{collections::HashMap, sync::LazyLock};

use gaunt_schema::{
    DeviceClass, FindingKind, GpuState, LifeState, MetricId, Severity,
    unit::{MetricKind, Unit},
};
use serde::{Deserialize, Serialize};

mod builtin_fields;

pub use builtin_fields::{
    FindingField, GpuField, JobField, NodeField, PortField, ProcessField, SubjectBuiltin,
    TargetField,
};

/// The subject of a table: the kind of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// GPUs, by node name.
    Gpus,
    /// Nodes, worst first.
    Nodes,
    /// Jobs, by name.
    Jobs,
    /// RDMA ports, by node name.
    Ports,
    /// GPU processes, by node name.
    Processes,
    /// Open findings, worst first.
    Findings,
    /// Closed findings, newest first.
    Closed,
    /// Targets, in configured order.
    Targets,
}

impl Subject {
    /// All subjects.
    pub const ALL: [Self; 8] = [
        Self::Gpus,
        Self::Nodes,
        Self::Jobs,
        Self::Ports,
        Self::Processes,
        Self::Findings,
        Self::Closed,
        Self::Targets,
    ];

    /// The name in paths and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gpus => "gpus",
            Self::Nodes => "nodes",
            Self::Jobs => "jobs",
            Self::Ports => "ports",
            Self::Processes => "processes",
            Self::Findings => "findings",
            Self::Closed => "closed",
            Self::Targets => "targets",
        }
    }

    /// Parses a subject name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|subject| subject.as_str() == word)
    }

    /// All fields of its rows: identities first, then metrics in catalogue order.
    pub fn all_fields(self) -> &'static [SubjectField] {
        &VOCABULARIES[self as usize].fields
    }

    /// Finds a field by its short or full name.
    pub fn find_field(self, name: &str) -> Option<&'static SubjectField> {
        let vocabulary = &VOCABULARIES[self as usize];
        Some(&vocabulary.fields[*vocabulary.names.get(name)?])
    }

    /// Finds the field with this key.
    pub fn field_of_key(self, key: FieldKey) -> Option<&'static SubjectField> {
        self.all_fields().iter().find(|field| field.key == key)
    }

    /// Fields that a table shows by default.
    pub fn default_fields(self) -> impl Iterator<Item = &'static SubjectField> {
        builtin_fields::default_columns(self).iter().filter_map(move |name| self.find_field(name))
    }

    /// Device classes whose metrics its rows have, each with the common prefix of the metric names.
    const fn device_classes(self) -> &'static [(DeviceClass, &'static str)] {
        match self {
            Self::Gpus => &[(DeviceClass::Gpu, "gaunt_gpu_"), (DeviceClass::Node, "gaunt_")],
            Self::Nodes => &[(DeviceClass::Node, "gaunt_node_")],
            Self::Ports => &[(DeviceClass::Port, "gaunt_port_")],
            Self::Processes => &[(DeviceClass::Process, "gaunt_gpu_process_")],
            Self::Jobs | Self::Findings | Self::Closed | Self::Targets => &[],
        }
    }
}

/// Source of a field's value, for code that fills tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldKey {
    /// A metric of the row's device: the value of a gauge, or the rate of a counter per second.
    Metric(MetricId),
    /// A field that is not a metric, described in the table of fields.
    Builtin(BuiltinField),
}

/// Fields that are not metrics: identities, findings, counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the table of fields has a sentence for each, per subject")]
pub enum BuiltinField {
    Account,
    Acknowledged,
    Address,
    Age,
    Bytes,
    Closed,
    Confidence,
    Container,
    Cost,
    Device,
    Dialect,
    Domain,
    Duration,
    Entity,
    Failure,
    Message,
    Finding,
    Gpu,
    GpuPower,
    GpuStates,
    GpuUtilization,
    Gpus,
    Id,
    Job,
    JobName,
    Leaf,
    Life,
    Load,
    Lost,
    Missed,
    Model,
    Namespace,
    Netdev,
    Node,
    Nodes,
    Note,
    Openings,
    Origin,
    Partition,
    PciBusId,
    Pid,
    Pod,
    Port,
    Ports,
    PortsActive,
    Program,
    Rack,
    Rail,
    Rank,
    RecentPower,
    Rejected,
    Runtime,
    Samples,
    Serial,
    Severity,
    State,
    Summary,
    SwitchPort,
    User,
    UnknownFields,
    Useful,
    Uuid,
    Victims,
}

/// Comparison type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// One text.
    Text,
    /// Several texts; a comparison matches if one of them matches.
    Texts,
    /// A number in this unit; a counter is its rate per second.
    Number(Unit),
}

/// One field of a subject's rows.
#[derive(Clone, Debug)]
pub struct SubjectField {
    /// Source of its value.
    pub key: FieldKey,
    /// Its short name.
    pub name: String,
    /// Comparison type.
    pub kind: FieldKind,
    /// Help text of one sentence.
    pub help: &'static str,
}

impl PartialEq for SubjectField {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.name == other.name
    }
}

impl SubjectField {
    /// Catalogue key of its metric, if it is one.
    pub fn metric_key(&self) -> Option<String> {
        match self.key {
            FieldKey::Metric(metric) => Some(metric.series_key()),
            FieldKey::Builtin(_) => None,
        }
    }

    /// Whether it is compared as text.
    pub const fn is_text(&self) -> bool {
        matches!(self.kind, FieldKind::Text | FieldKind::Texts)
    }

    /// All possible values, if they are a closed list.
    pub fn allowed_values(&self, subject: Subject) -> Vec<&'static str> {
        let FieldKey::Builtin(builtin) = self.key else { return Vec::new() };
        match (builtin, subject) {
            (BuiltinField::State, Subject::Gpus) => {
                GpuState::ALL.iter().map(|s| s.as_str()).collect()
            }
            (BuiltinField::State, Subject::Nodes) => vec!["live", "stale", "down"],
            (BuiltinField::State, Subject::Targets) => vec!["pending", "live", "down"],
            (BuiltinField::State, Subject::Ports) => {
                vec!["down", "initializing", "armed", "active"]
            }
            (BuiltinField::Life, _) => LifeState::ALL.iter().map(|state| state.as_str()).collect(),
            (BuiltinField::Finding, _) => {
                FindingKind::ALL.iter().map(|kind| kind.as_str()).collect()
            }
            (BuiltinField::Severity, _) => {
                Severity::ALL.iter().map(|severity| severity.as_str()).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Fields of one subject, indexed by all of their names.
struct FieldIndex {
    fields: Vec<SubjectField>,
    names: HashMap<String, usize>,
}

static VOCABULARIES: LazyLock<[FieldIndex; 8]> = LazyLock::new(|| Subject::ALL.map(build_index));

fn build_index(subject: Subject) -> FieldIndex {
    let mut index = FieldIndex { fields: Vec::new(), names: HashMap::new() };
    for (builtin, name, kind, help) in builtin_fields::builtin_fields(subject) {
        index.names.insert((*name).to_owned(), index.fields.len());
        let (key, name) = (FieldKey::Builtin(*builtin), (*name).to_owned());
        index.fields.push(SubjectField { key, name, kind: *kind, help });
    }
    for (class, prefix) in subject.device_classes() {
        for id in MetricId::all_ids() {
            let row = id.catalogue_row();
            if row.class != *class || row.kind == MetricKind::Info {
                continue;
            }
            let bare = row.name.strip_prefix(prefix).unwrap_or(row.name);
            let tag = row.tag.map(|(_, value)| format!("_{value}")).unwrap_or_default();
            let stem = bare.trim_end_matches("_total");
            let stem = stem.strip_suffix(row.unit.name_suffix()).unwrap_or(stem);
            let (short, long) = (format!("{stem}{tag}"), format!("{bare}{tag}"));
            // A gauge and its integral have one stem: the first takes it, the second keeps its full name.
            let taken = index.names.contains_key(&short);
            let name = if taken { long.clone() } else { short };
            let at = index.fields.len();
            for known in [name.clone(), long, id.series_key()] {
                index.names.entry(known).or_insert(at);
            }
            let kind = FieldKind::Number(shown_unit(row.kind, row.unit));
            index.fields.push(SubjectField {
                key: FieldKey::Metric(id),
                name,
                kind,
                help: row.help,
            });
        }
    }
    for (alias, name) in builtin_fields::ALIASES {
        if let Some(at) = index.names.get(*name).copied() {
            index.names.entry((*alias).to_owned()).or_insert(at);
        }
    }
    index
}

/// Unit in which a metric is shown: a counter is shown as its rate per second.
pub fn shown_unit(kind: MetricKind, unit: Unit) -> Unit {
    match (kind, unit) {
        (MetricKind::Counter(_), Unit::Bytes) => Unit::BytesPerSecond,
        (MetricKind::Counter(_), Unit::Joules) => Unit::Watts,
        // Seconds per second are a ratio.
        (MetricKind::Counter(_), Unit::Seconds) => Unit::Ratio,
        (_, unit) => unit,
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::catalogue::{gpu, host};

    use super::*;

    #[test]
    fn metric_is_found_by_its_short_bare_and_full_name() {
        for name in ["power", "power_watts", "gaunt_gpu_power_watts"] {
            let field = Subject::Gpus.find_field(name).unwrap();
            assert_eq!((field.key, field.name.as_str()), (FieldKey::Metric(gpu::POWER), "power"));
        }
        let node = Subject::Gpus.find_field("node_io_pressure_some").unwrap();
        assert_eq!(node.key, FieldKey::Metric(host::IO_PRESSURE));
        assert_eq!(node.kind, FieldKind::Number(Unit::Ratio), "seconds in a second are a share");
        let tagged =
            Subject::Gpus.find_field("gaunt_gpu_clock_event{reason=\"hw_thermal\"}").unwrap();
        assert_eq!(tagged.name, "clock_event_hw_thermal");
    }

    #[test]
    fn field_names_are_unique_per_subject_and_include_the_common_ones() {
        for subject in Subject::ALL {
            for field in subject.all_fields() {
                let found = subject.find_field(&field.name).unwrap();
                assert_eq!(found, field, "{} of {subject:?} is hidden", field.name);
                assert!(field.help.ends_with('.'), "{}", field.name);
            }
            assert_eq!(
                subject.default_fields().count(),
                builtin_fields::default_columns(subject).len(),
                "{subject:?}"
            );
            assert_eq!(Subject::parse(subject.as_str()), Some(subject));
        }
    }

    #[test]
    fn metrics_of_a_row_are_its_fields() {
        for id in MetricId::all_ids().filter(|id| id.catalogue_row().kind != MetricKind::Info) {
            let found =
                |subject: Subject| subject.find_field(&id.series_key()).map(|field| field.key);
            match id.catalogue_row().class {
                DeviceClass::Gpu => assert_eq!(found(Subject::Gpus), Some(FieldKey::Metric(id))),
                DeviceClass::Port => assert_eq!(found(Subject::Ports), Some(FieldKey::Metric(id))),
                DeviceClass::Node => assert_eq!(found(Subject::Nodes), Some(FieldKey::Metric(id))),
                DeviceClass::Process => {
                    assert_eq!(found(Subject::Processes), Some(FieldKey::Metric(id)));
                }
                _ => assert_eq!(found(Subject::Gpus), None),
            }
        }
    }
}
