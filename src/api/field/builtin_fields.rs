//! Fields that are not metrics: identities, judgements and counts of each subject.

use gaunt_schema::unit::Unit;

use super::{
    BuiltinField,
    FieldKind::{self, Number, Text, Texts},
    Subject,
};

/// Field, name, comparison type, help text.
type BuiltinFieldRow = (BuiltinField, &'static str, FieldKind, &'static str);

const RATIO: FieldKind = Number(Unit::Ratio);
const COUNT: FieldKind = Number(Unit::Count);
const SECONDS: FieldKind = Number(Unit::Seconds);
const WATTS: FieldKind = Number(Unit::Watts);
const BYTES: FieldKind = Number(Unit::Bytes);

/// Short aliases of frequently used fields.
pub(super) const ALIASES: &[(&str, &str)] = &[
    ("util", "utilization"),
    ("util", "gpu_utilization"),
    ("temp", "temperature"),
    ("mem", "memory_used"),
    ("clock", "sm_clock"),
    ("name", "job_name"),
    ("name", "program"),
    ("ns", "namespace"),
    ("kind", "finding"),
    ("sure", "confidence"),
    ("target", "address"),
];

/// Fields of a subject that are not metrics.
pub(super) const fn builtin_fields(subject: Subject) -> &'static [BuiltinFieldRow] {
    match subject {
        Subject::Gpus => GPUS,
        Subject::Nodes => NODES,
        Subject::Jobs => JOBS,
        Subject::Ports => PORTS,
        Subject::Processes => PROCESSES,
        Subject::Findings | Subject::Closed => FINDINGS,
        Subject::Targets => TARGETS,
    }
}

/// Names of the default columns.
pub(super) const fn default_columns(subject: Subject) -> &'static [&'static str] {
    match subject {
        Subject::Gpus => &[
            "node",
            "gpu",
            "state",
            "job",
            "utilization",
            "sm_active",
            "tensor_active",
            "power",
            "temperature",
            "memory_used",
            "finding",
        ],
        Subject::Nodes => &[
            "node",
            "state",
            "gpus",
            "lost",
            "gpu_utilization",
            "gpu_power",
            "ports_active",
            "ports",
            "io_pressure_some",
            "age",
            "finding",
            "job",
        ],
        Subject::Jobs => {
            &["job", "job_name", "user", "nodes", "gpus", "useful", "lost", "gpu_power", "finding"]
        }
        Subject::Ports => &[
            "node",
            "device",
            "port",
            "leaf",
            "rail",
            "state",
            "load",
            "receive",
            "transmit",
            "symbol_errors",
            "link_downed",
            "finding",
        ],
        Subject::Findings => USUAL_FINDINGS,
        Subject::Closed => USUAL_CLOSED,
        Subject::Processes => {
            &["node", "gpu", "pid", "program", "user", "memory", "utilization", "job", "pod"]
        }
        Subject::Targets => &[
            "address", "node", "state", "dialect", "age", "duration", "samples", "rejected",
            "failure",
        ],
    }
}

const USUAL_FINDINGS: &[&str] =
    &["severity", "finding", "entity", "age", "cost", "confidence", "acknowledged", "summary"];

const USUAL_CLOSED: &[&str] =
    &["severity", "finding", "entity", "age", "closed", "openings", "summary"];

/// The part of [`BuiltinField`] that one subject has: code that fills its rows matches each of them.
pub trait SubjectBuiltin: Copy {
    /// The field of this subject; none if it has no such field.
    fn from_builtin(own: BuiltinField) -> Option<Self>;
}

/// Declares the fields of a subject: the rows of its table, and an enum of them.
macro_rules! declare_fields {
    ($(#[$doc:meta])* $subject:ident in $table:ident:
     $($field:ident $name:literal $kind:ident: $help:literal,)+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $subject {
            $(#[doc = $help] $field,)+
        }

        impl SubjectBuiltin for $subject {
            fn from_builtin(own: BuiltinField) -> Option<Self> {
                match own {
                    $(BuiltinField::$field => Some(Self::$field),)+
                    _ => None,
                }
            }
        }

        const $table: &[BuiltinFieldRow] = &[$((BuiltinField::$field, $name, $kind, $help)),+];
    };
}

declare_fields! {
    /// Fields of GPUs that are not metrics.
    GpuField in GPUS:
    Node "node" Text: "The node that the GPU is in.",
    Gpu "gpu" Text: "The index of the GPU on its node.",
    State "state" Text: "What the GPU is doing, as judged.",
    Finding "finding" Text:
        "The worst open finding that blames the GPU or its node, else the one that its loss is attributed to.",
    Lost "lost" COUNT: "The share of the GPU's time that is lost: lost GPUs, at most one.",
    Job "job" Text: "The job that holds the GPU.",
    JobName "job_name" Text: "The name of that job.",
    User "user" Text: "Whose job it is.",
    Rank "rank" Text: "The rank of the GPU in its job.",
    Namespace "namespace" Text: "The Kubernetes namespace of the pod that holds the GPU.",
    Pod "pod" Text: "The pod that holds the GPU.",
    Leaf "leaf" Texts: "The leaf switches of the GPU's nearest ports, or of its node.",
    Rail "rail" Text: "The rail of the GPU's nearest ports.",
    Rack "rack" Text: "The rack that the node is in.",
    Domain "domain" Text: "The NVLink domain of the GPU, where that is larger than the node.",
    Uuid "uuid" Text: "The UUID of the GPU.",
    Model "model" Text: "The model of the GPU.",
    Serial "serial" Text: "The serial number of the GPU.",
    PciBusId "pci_bus_id" Text: "Where the GPU is on the PCI bus.",
    Age "age" SECONDS: "The time since the node's values came.",
}

declare_fields! {
    /// Fields of nodes that are not metrics.
    NodeField in NODES:
    Node "node" Text: "The name of the node.",
    State "state" Text: "How fresh the node's values are.",
    Finding "finding" Text: "The worst open finding that blames the node or a part of it.",
    Job "job" Texts: "The jobs on the node.",
    User "user" Texts: "Whose jobs they are.",
    Model "model" Texts: "The models of its GPUs.",
    Leaf "leaf" Texts: "The leaf switches that its ports are on.",
    Rail "rail" Texts: "The rails that its ports are on.",
    Rack "rack" Text: "The rack that the node is in.",
    GpuStates "gpu_states" Text:
        "The state of each GPU by index, a letter each, as in the heat map.",
    Gpus "gpus" COUNT: "GPUs in the node.",
    Lost "lost" COUNT: "Lost GPUs of the node.",
    GpuUtilization "gpu_utilization" RATIO: "Mean utilization of the node's GPUs.",
    GpuPower "gpu_power" WATTS: "Power of the node's GPUs together.",
    Ports "ports" COUNT: "RDMA ports of the node.",
    PortsActive "ports_active" COUNT: "RDMA ports of the node that are active.",
    Age "age" SECONDS: "The time since the node's values came.",
}

declare_fields! {
    /// Fields of jobs that are not metrics.
    JobField in JOBS:
    Job "job" Text: "The number of the job.",
    JobName "job_name" Text: "The name of the job.",
    User "user" Text: "Whose job it is.",
    Account "account" Text: "Who pays for the job.",
    Partition "partition" Text: "The queue that the job runs in.",
    Finding "finding" Text: "The worst open finding that blames the job or one of its GPUs.",
    Node "node" Texts: "The nodes of the job.",
    Nodes "nodes" COUNT: "How many nodes the job is on.",
    Runtime "runtime" SECONDS: "The time since the job started.",
    Gpus "gpus" COUNT: "GPUs that the job holds.",
    Lost "lost" COUNT: "Lost GPUs of the job.",
    Useful "useful" RATIO:
        "Share of the job's GPUs whose time is not lost, of those that are known.",
    GpuUtilization "gpu_utilization" RATIO: "Mean utilization of the job's GPUs.",
    GpuPower "gpu_power" WATTS: "Power of the job's GPUs together.",
}

declare_fields! {
    /// Fields of ports that are not metrics.
    PortField in PORTS:
    Node "node" Text: "The node that the port is in.",
    Device "device" Text: "The RDMA device of the port.",
    Port "port" Text: "The number of the port on its device.",
    State "state" Text: "The logical state of the port.",
    Leaf "leaf" Text: "The leaf switch that the port is on.",
    Rail "rail" Text: "The rail that the port is on.",
    Rack "rack" Text: "The rack that the node is in.",
    Netdev "netdev" Text: "The network device of the port.",
    Finding "finding" Text: "The worst open finding that blames the port.",
    Load "load" RATIO: "The busier direction of the port as a share of its rate.",
    Age "age" SECONDS: "The time since the node's values came.",
}

declare_fields! {
    /// Fields of processes that are not metrics.
    ProcessField in PROCESSES:
    Node "node" Text: "The node that the process runs on.",
    Gpu "gpu" Text: "The index of its GPU on that node.",
    Pid "pid" Text: "The number of the process on that node.",
    Program "program" Text: "What it is called.",
    User "user" Text: "Whose process it is.",
    Job "job" Text: "The job that it belongs to, as its cgroup tells.",
    Namespace "namespace" Text: "The namespace of its pod.",
    Pod "pod" Text: "The pod that it belongs to.",
    Container "container" Text: "The container that it runs in.",
    Age "age" SECONDS: "The time since the node's values came.",
}

declare_fields! {
    /// Fields of findings that are not metrics.
    FindingField in FINDINGS:
    Id "id" Text: "The id of the finding.",
    Finding "finding" Text: "What is wrong.",
    Severity "severity" Text: "How urgent it is.",
    Entity "entity" Text: "What is to blame, as a person says it.",
    Node "node" Text: "The node that is to blame, or the node of what is.",
    Gpu "gpu" Text: "The GPU that is to blame.",
    Device "device" Text: "The RDMA device that is to blame.",
    Port "port" Text: "The port that is to blame.",
    Job "job" Text: "The job that is to blame.",
    Leaf "leaf" Text: "The leaf switch that is to blame.",
    Rail "rail" Text: "The rail that is to blame.",
    Summary "summary" Text: "What is wrong and since when, in a sentence.",
    Lost "lost" COUNT: "Lost GPUs that are attributed to it.",
    Cost "cost" COUNT: "The same number as GPU-hours that are lost in an hour.",
    Confidence "confidence" RATIO: "How sure the judge is.",
    Victims "victims" COUNT: "How many suffer from it, as far as they are named.",
    Age "age" SECONDS: "The time since the evidence began.",
    Life "life" Text: "Where it stands: open, changing, flapping or closed.",
    Openings "openings" COUNT: "How often it was opened within the last minutes.",
    Closed "closed" SECONDS: "The time since it was closed.",
    Acknowledged "acknowledged" Text: "Who took it on.",
    Note "note" Text: "What he says about it.",
}

declare_fields! {
    /// Fields of targets that are not metrics.
    TargetField in TARGETS:
    Address "address" Text: "The address of the target.",
    Node "node" Text: "The node that the target speaks for.",
    State "state" Text: "Whether the target is read.",
    Dialect "dialect" Text: "In whose words the target speaks.",
    Origin "origin" Text: "Where the target comes from.",
    Failure "failure" Text: "Why the last attempt failed, in a word.",
    Age "age" SECONDS: "The time since the target was last read.",
    Duration "duration" SECONDS: "How long the last attempt took.",
    Samples "samples" COUNT: "Samples on the last page.",
    Bytes "bytes" BYTES: "The size of the last page.",
    Rejected "rejected" COUNT: "Lines of the last page that were not taken.",
    Missed "missed" COUNT: "Periods in which the target was neither read nor flagged.",
}
