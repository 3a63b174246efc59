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
            "failure", "message",
        ],
    }
}

const USUAL_FINDINGS: &[&str] =
    &["severity", "finding", "entity", "age", "lost", "confidence", "acknowledged", "summary"];

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
    State "state" Text: "Detected state of the GPU.",
    Finding "finding" Text: "The worst open finding on the GPU or its node, else the one that its loss is attributed to.",
    Lost "lost" COUNT: "Lost share of the GPU's time, in lost GPUs from 0 to 1.",
    Job "job" Text: "The job that holds the GPU.",
    JobName "job_name" Text: "The name of that job.",
    User "user" Text: "User of the job.",
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
    PciBusId "pci_bus_id" Text: "PCI address of the GPU.",
    RecentPower "recent_power" Text: "Power over the last 5 minutes: a digit for each 15 s, tenths of the highest; - where unknown.",
    Age "age" SECONDS: "Time since the node's last values.",
}

declare_fields! {
    /// Fields of nodes that are not metrics.
    NodeField in NODES:
    Node "node" Text: "The name of the node.",
    State "state" Text: "Freshness of the node's values.",
    Finding "finding" Text: "The worst open finding on the node or a part of it, else the one that its loss is attributed to.",
    Job "job" Texts: "The jobs on the node.",
    User "user" Texts: "Users of the jobs.",
    Model "model" Texts: "The models of its GPUs.",
    Leaf "leaf" Texts: "The leaf switches that its ports are on.",
    Rail "rail" Texts: "The rails that its ports are on.",
    Rack "rack" Text: "The rack that the node is in.",
    GpuStates "gpu_states" Text: "The state of each GPU by index, a letter each, as in the heat map.",
    Gpus "gpus" COUNT: "GPUs in the node.",
    Lost "lost" COUNT: "Lost GPUs of the node.",
    GpuUtilization "gpu_utilization" RATIO: "Mean utilization of the node's GPUs.",
    GpuPower "gpu_power" WATTS: "Total power of the node's GPUs.",
    RecentPower "recent_power" Text: "Power over the last 5 minutes: a digit for each 15 s, tenths of the highest; - where unknown.",
    Ports "ports" COUNT: "RDMA ports of the node.",
    PortsActive "ports_active" COUNT: "RDMA ports of the node that are active.",
    Age "age" SECONDS: "Time since the node's last values.",
}

declare_fields! {
    /// Fields of jobs that are not metrics.
    JobField in JOBS:
    Job "job" Text: "Job id.",
    JobName "job_name" Text: "The name of the job.",
    User "user" Text: "User of the job.",
    Account "account" Text: "Account that is charged for the job.",
    Partition "partition" Text: "The queue that the job runs in.",
    Finding "finding" Text: "The worst open finding on the job or one of its GPUs.",
    Node "node" Texts: "The nodes of the job.",
    Nodes "nodes" COUNT: "Number of nodes of the job.",
    Runtime "runtime" SECONDS: "Time since the job started.",
    Gpus "gpus" COUNT: "GPUs that the job holds.",
    Lost "lost" COUNT: "Lost GPUs of the job.",
    Useful "useful" RATIO: "Share of GPU time that is not lost, over the job's GPUs with known state.",
    GpuUtilization "gpu_utilization" RATIO: "Mean utilization of the job's GPUs.",
    GpuPower "gpu_power" WATTS: "Total power of the job's GPUs.",
    RecentPower "recent_power" Text: "Power over the last 5 minutes: a digit for each 15 s, tenths of the highest; - where unknown.",
}

declare_fields! {
    /// Fields of ports that are not metrics.
    PortField in PORTS:
    Node "node" Text: "The node that the port is in.",
    Device "device" Text: "The RDMA device of the port.",
    Port "port" Text: "The number of the port on its device.",
    State "state" Text: "The logical state of the port.",
    Leaf "leaf" Text: "The leaf switch that the port is on.",
    SwitchPort "switch_port" Text: "The port of the leaf switch at the other end of the cable.",
    Rail "rail" Text: "The rail that the port is on.",
    Rack "rack" Text: "The rack that the node is in.",
    Netdev "netdev" Text: "The network device of the port.",
    Finding "finding" Text: "The worst open finding on the port.",
    Load "load" RATIO: "Throughput of the busier direction as a share of the link rate.",
    Age "age" SECONDS: "Time since the node's last values.",
}

declare_fields! {
    /// Fields of processes that are not metrics.
    ProcessField in PROCESSES:
    Node "node" Text: "The node that the process runs on.",
    Gpu "gpu" Text: "The index of its GPU on that node.",
    Pid "pid" Text: "Process id on that node.",
    Program "program" Text: "Name of the program.",
    User "user" Text: "User of the process.",
    Job "job" Text: "The job that it belongs to, from its cgroup.",
    Namespace "namespace" Text: "The namespace of its pod.",
    Pod "pod" Text: "The pod that it belongs to.",
    Container "container" Text: "The container that it runs in.",
    Age "age" SECONDS: "Time since the node's last values.",
}

declare_fields! {
    /// Fields of findings that are not metrics.
    FindingField in FINDINGS:
    Id "id" Text: "The id of the finding.",
    Finding "finding" Text: "Kind of the fault.",
    Severity "severity" Text: "Severity: info, warning or critical.",
    Entity "entity" Text: "Faulty entity, as a readable name.",
    Node "node" Text: "Faulty node, or the node of the faulty entity.",
    Gpu "gpu" Text: "Faulty GPU.",
    Device "device" Text: "Faulty RDMA device.",
    Port "port" Text: "Faulty port.",
    Job "job" Text: "Faulty job.",
    Leaf "leaf" Text: "Faulty leaf switch.",
    Rail "rail" Text: "Faulty rail.",
    Summary "summary" Text: "The fault and its start, in one sentence.",
    Lost "lost" COUNT: "Lost GPUs attributed to it.",
    Cost "cost" COUNT: "The same as GPU-hours lost per hour.",
    Confidence "confidence" RATIO: "Confidence from 0 to 1.",
    Victims "victims" COUNT: "Number of affected entities that are known.",
    Age "age" SECONDS: "Time since the evidence began.",
    Life "life" Text: "Lifecycle: open, changing, flapping or closed.",
    Openings "openings" COUNT: "Number of openings within the flapping window.",
    Closed "closed" SECONDS: "Time since it closed.",
    Acknowledged "acknowledged" Text: "User who acknowledged it.",
    Note "note" Text: "Note of the acknowledgement.",
}

declare_fields! {
    /// Fields of targets that are not metrics.
    TargetField in TARGETS:
    Address "address" Text: "The address of the target.",
    Node "node" Text: "The node that the target reports.",
    State "state" Text: "Scrape state of the target.",
    Dialect "dialect" Text: "Exporter format of the target.",
    Origin "origin" Text: "Source that lists the target.",
    Failure "failure" Text: "Reason of the last failed scrape.",
    Message "message" Text: "Why it is not read, or not all of it, with the next step.",
    Age "age" SECONDS: "Time since the last successful scrape.",
    Duration "duration" SECONDS: "Duration of the last scrape.",
    Samples "samples" COUNT: "Samples on the last page.",
    Bytes "bytes" BYTES: "Size of the last page.",
    Rejected "rejected" COUNT: "Rejected lines of the last page.",
    UnknownFields "unknown_fields" COUNT: "Fields of the last page that gaunt does not understand.",
    Missed "missed" COUNT: "Periods in which the target was neither scraped nor flagged.",
}
