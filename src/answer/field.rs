//! Fields: what can be asked of each kind of row, and by which names.

use std::{collections::HashMap, sync::LazyLock};

use gaunt_schema::{
    Class, FindingKind, GpuState, LifeState, MetricId, Severity,
    unit::{Kind, Unit},
};
use serde::{Deserialize, Serialize};

mod own;

/// What the rows of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// GPUs, node by node in name order.
    Gpus,
    /// Nodes, worst first.
    Nodes,
    /// Jobs, in the order of their names.
    Jobs,
    /// RDMA ports, node by node in name order.
    Ports,
    /// Processes on GPUs, node by node in name order.
    Processes,
    /// Open findings, worst first.
    Findings,
    /// Findings that closed, newest first.
    Closed,
    /// Targets, in the order in which they were named.
    Targets,
}

impl Subject {
    /// Every subject.
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

    /// The word in paths and on the command line.
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

    /// The subject of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|subject| subject.as_str() == word)
    }

    /// Every field of its rows: identities first, then metrics in the order of the catalogue.
    pub fn fields(self) -> &'static [Field] {
        &VOCABULARIES[self as usize].fields
    }

    /// The field of this name, in its short or its full form.
    pub fn field(self, name: &str) -> Option<&'static Field> {
        let vocabulary = &VOCABULARIES[self as usize];
        Some(&vocabulary.fields[*vocabulary.names.get(name)?])
    }

    /// The field that stands for `key` here.
    pub fn field_of(self, key: Key) -> Option<&'static Field> {
        self.fields().iter().find(|field| field.key == key)
    }

    /// The fields that a table shows unless told otherwise.
    pub fn usual(self) -> impl Iterator<Item = &'static Field> {
        own::usual(self).iter().filter_map(move |name| self.field(name))
    }

    /// The classes of device whose metrics its rows have, each with the words that all their names share.
    const fn classes(self) -> &'static [(Class, &'static str)] {
        match self {
            Self::Gpus => &[(Class::Gpu, "gaunt_gpu_"), (Class::Node, "gaunt_")],
            Self::Nodes => &[(Class::Node, "gaunt_node_")],
            Self::Ports => &[(Class::Port, "gaunt_port_")],
            Self::Processes => &[(Class::Process, "gaunt_gpu_process_")],
            Self::Jobs | Self::Findings | Self::Closed | Self::Targets => &[],
        }
    }
}

/// What a field holds, for those who fill tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A metric of the row's device: a gauge's value, or what a counter grows by in a second.
    Metric(MetricId),
    /// A field that is no metric; the table of fields says what it is.
    Own(Own),
}

/// Fields that are no metrics: identities, judgements, counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the table of fields has a sentence for each, per subject")]
pub enum Own {
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
    Rejected,
    Runtime,
    Samples,
    Serial,
    Severity,
    State,
    Summary,
    User,
    Useful,
    Uuid,
    Victims,
}

/// What a field is compared as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// One text.
    Text,
    /// Several texts; a comparison holds if it holds for one of them.
    Texts,
    /// A number in this unit; a counter is what it grows by in a second.
    Number(Unit),
}

/// One field of a subject's rows.
#[derive(Clone, Debug)]
pub struct Field {
    /// What it holds.
    pub key: Key,
    /// Its short name.
    pub name: String,
    /// What it is compared as.
    pub kind: FieldKind,
    /// One sentence for people.
    pub help: &'static str,
}

impl PartialEq for Field {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.name == other.name
    }
}

impl Field {
    /// The catalogue key of its metric, if it is one.
    pub fn metric(&self) -> Option<String> {
        match self.key {
            Key::Metric(metric) => Some(metric.key()),
            Key::Own(_) => None,
        }
    }

    /// Whether it is compared as text.
    pub const fn is_text(&self) -> bool {
        matches!(self.kind, FieldKind::Text | FieldKind::Texts)
    }

    /// Every value that it can have, where they are a closed list.
    pub fn words(&self, subject: Subject) -> Vec<&'static str> {
        let Key::Own(own) = self.key else { return Vec::new() };
        match (own, subject) {
            (Own::State, Subject::Gpus) => GpuState::ALL.iter().map(|s| s.as_str()).collect(),
            (Own::State, Subject::Nodes) => vec!["live", "stale", "down"],
            (Own::State, Subject::Targets) => vec!["pending", "live", "down"],
            (Own::State, Subject::Ports) => vec!["down", "initializing", "armed", "active"],
            (Own::Life, _) => LifeState::ALL.iter().map(|state| state.as_str()).collect(),
            (Own::Finding, _) => FindingKind::ALL.iter().map(|kind| kind.as_str()).collect(),
            (Own::Severity, _) => Severity::ALL.iter().map(|severity| severity.as_str()).collect(),
            _ => Vec::new(),
        }
    }
}

/// The fields of one subject, and all names for them.
struct Vocabulary {
    fields: Vec<Field>,
    names: HashMap<String, usize>,
}

static VOCABULARIES: LazyLock<[Vocabulary; 8]> = LazyLock::new(|| Subject::ALL.map(vocabulary));

fn vocabulary(subject: Subject) -> Vocabulary {
    let mut built = Vocabulary { fields: Vec::new(), names: HashMap::new() };
    for (own, name, kind, help) in own::fields(subject) {
        built.names.insert((*name).to_owned(), built.fields.len());
        let (key, name) = (Key::Own(*own), (*name).to_owned());
        built.fields.push(Field { key, name, kind: *kind, help });
    }
    for (class, prefix) in subject.classes() {
        for id in MetricId::all() {
            let row = id.row();
            if row.class != *class || row.kind == Kind::Info {
                continue;
            }
            let bare = row.name.strip_prefix(prefix).unwrap_or(row.name);
            let tag = row.tag.map(|(_, value)| format!("_{value}")).unwrap_or_default();
            let stem = bare.trim_end_matches("_total");
            let stem = stem.strip_suffix(row.unit.suffix()).unwrap_or(stem);
            let (short, long) = (format!("{stem}{tag}"), format!("{bare}{tag}"));
            // A gauge and its integral have one stem: the first has it, the second keeps its whole name.
            let taken = built.names.contains_key(&short);
            let name = if taken { long.clone() } else { short };
            let at = built.fields.len();
            for known in [name.clone(), long, id.key()] {
                built.names.entry(known).or_insert(at);
            }
            let kind = FieldKind::Number(shown_unit(row.kind, row.unit));
            built.fields.push(Field { key: Key::Metric(id), name, kind, help: row.help });
        }
    }
    for (alias, name) in own::ALIASES {
        if let Some(at) = built.names.get(*name).copied() {
            built.names.entry((*alias).to_owned()).or_insert(at);
        }
    }
    built
}

/// The unit of what is shown of a metric: a counter is shown by what it grows in a second.
pub fn shown_unit(kind: Kind, unit: Unit) -> Unit {
    match (kind, unit) {
        (Kind::Counter(_), Unit::Bytes) => Unit::BytesPerSecond,
        (Kind::Counter(_), Unit::Joules) => Unit::Watts,
        // Seconds in a second are a share.
        (Kind::Counter(_), Unit::Seconds) => Unit::Ratio,
        (_, unit) => unit,
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::catalogue::{gpu, host};

    use super::*;

    #[test]
    fn a_metric_is_found_by_its_short_its_bare_and_its_full_name() {
        for name in ["power", "power_watts", "gaunt_gpu_power_watts"] {
            let field = Subject::Gpus.field(name).unwrap();
            assert_eq!((field.key, field.name.as_str()), (Key::Metric(gpu::POWER), "power"));
        }
        let node = Subject::Gpus.field("node_io_pressure_some").unwrap();
        assert_eq!(node.key, Key::Metric(host::IO_PRESSURE));
        assert_eq!(node.kind, FieldKind::Number(Unit::Ratio), "seconds in a second are a share");
        let tagged = Subject::Gpus.field("gaunt_gpu_clock_event{reason=\"hw_thermal\"}").unwrap();
        assert_eq!(tagged.name, "clock_event_hw_thermal");
    }

    #[test]
    fn no_two_fields_of_a_subject_share_a_name_and_the_usual_ones_are_there() {
        for subject in Subject::ALL {
            for field in subject.fields() {
                let found = subject.field(&field.name).unwrap();
                assert_eq!(found, field, "{} of {subject:?} is hidden", field.name);
                assert!(field.help.ends_with('.'), "{}", field.name);
            }
            assert_eq!(subject.usual().count(), own::usual(subject).len(), "{subject:?}");
            assert_eq!(Subject::parse(subject.as_str()), Some(subject));
        }
    }

    #[test]
    fn every_metric_that_is_measured_on_a_row_is_a_field_of_it() {
        for id in MetricId::all().filter(|id| id.row().kind != Kind::Info) {
            let found = |subject: Subject| subject.field(&id.key()).map(|field| field.key);
            match id.row().class {
                Class::Gpu => assert_eq!(found(Subject::Gpus), Some(Key::Metric(id))),
                Class::Port => assert_eq!(found(Subject::Ports), Some(Key::Metric(id))),
                Class::Node => assert_eq!(found(Subject::Nodes), Some(Key::Metric(id))),
                Class::Process => assert_eq!(found(Subject::Processes), Some(Key::Metric(id))),
                _ => assert_eq!(found(Subject::Gpus), None),
            }
        }
    }
}
