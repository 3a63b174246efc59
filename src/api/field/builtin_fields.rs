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

const GPUS: &[BuiltinFieldRow] = &[
    (BuiltinField::Node, "node", Text, "The node that the GPU is in."),
    (BuiltinField::Gpu, "gpu", Text, "The index of the GPU on its node."),
    (BuiltinField::State, "state", Text, "What the GPU is doing, as judged."),
    (
        BuiltinField::Finding,
        "finding",
        Text,
        "The worst open finding that blames the GPU or its node, else the one that its loss is attributed to.",
    ),
    (
        BuiltinField::Lost,
        "lost",
        COUNT,
        "The share of the GPU's time that is lost: lost GPUs, at most one.",
    ),
    (BuiltinField::Job, "job", Text, "The job that holds the GPU."),
    (BuiltinField::JobName, "job_name", Text, "The name of that job."),
    (BuiltinField::User, "user", Text, "Whose job it is."),
    (BuiltinField::Rank, "rank", Text, "The rank of the GPU in its job."),
    (
        BuiltinField::Namespace,
        "namespace",
        Text,
        "The Kubernetes namespace of the pod that holds the GPU.",
    ),
    (BuiltinField::Pod, "pod", Text, "The pod that holds the GPU."),
    (
        BuiltinField::Leaf,
        "leaf",
        Texts,
        "The leaf switches of the GPU's nearest ports, or of its node.",
    ),
    (BuiltinField::Rail, "rail", Text, "The rail of the GPU's nearest ports."),
    (BuiltinField::Rack, "rack", Text, "The rack that the node is in."),
    (
        BuiltinField::Domain,
        "domain",
        Text,
        "The NVLink domain of the GPU, where that is larger than the node.",
    ),
    (BuiltinField::Uuid, "uuid", Text, "The UUID of the GPU."),
    (BuiltinField::Model, "model", Text, "The model of the GPU."),
    (BuiltinField::Serial, "serial", Text, "The serial number of the GPU."),
    (BuiltinField::PciBusId, "pci_bus_id", Text, "Where the GPU is on the PCI bus."),
    (BuiltinField::Age, "age", SECONDS, "The time since the node's values came."),
];

const NODES: &[BuiltinFieldRow] = &[
    (BuiltinField::Node, "node", Text, "The name of the node."),
    (BuiltinField::State, "state", Text, "How fresh the node's values are."),
    (
        BuiltinField::Finding,
        "finding",
        Text,
        "The worst open finding that blames the node or a part of it.",
    ),
    (BuiltinField::Job, "job", Texts, "The jobs on the node."),
    (BuiltinField::User, "user", Texts, "Whose jobs they are."),
    (BuiltinField::Model, "model", Texts, "The models of its GPUs."),
    (BuiltinField::Leaf, "leaf", Texts, "The leaf switches that its ports are on."),
    (BuiltinField::Rail, "rail", Texts, "The rails that its ports are on."),
    (BuiltinField::Rack, "rack", Text, "The rack that the node is in."),
    (
        BuiltinField::GpuStates,
        "gpu_states",
        Text,
        "The state of each GPU by index, a letter each, as in the heat map.",
    ),
    (BuiltinField::Gpus, "gpus", COUNT, "GPUs in the node."),
    (BuiltinField::Lost, "lost", COUNT, "Lost GPUs of the node."),
    (
        BuiltinField::GpuUtilization,
        "gpu_utilization",
        RATIO,
        "Mean utilization of the node's GPUs.",
    ),
    (BuiltinField::GpuPower, "gpu_power", WATTS, "Power of the node's GPUs together."),
    (BuiltinField::Ports, "ports", COUNT, "RDMA ports of the node."),
    (BuiltinField::PortsActive, "ports_active", COUNT, "RDMA ports of the node that are active."),
    (BuiltinField::Age, "age", SECONDS, "The time since the node's values came."),
];

const JOBS: &[BuiltinFieldRow] = &[
    (BuiltinField::Job, "job", Text, "The number of the job."),
    (BuiltinField::JobName, "job_name", Text, "The name of the job."),
    (BuiltinField::User, "user", Text, "Whose job it is."),
    (BuiltinField::Account, "account", Text, "Who pays for the job."),
    (BuiltinField::Partition, "partition", Text, "The queue that the job runs in."),
    (
        BuiltinField::Finding,
        "finding",
        Text,
        "The worst open finding that blames the job or one of its GPUs.",
    ),
    (BuiltinField::Node, "node", Texts, "The nodes of the job."),
    (BuiltinField::Nodes, "nodes", COUNT, "How many nodes the job is on."),
    (BuiltinField::Runtime, "runtime", SECONDS, "The time since the job started."),
    (BuiltinField::Gpus, "gpus", COUNT, "GPUs that the job holds."),
    (BuiltinField::Lost, "lost", COUNT, "Lost GPUs of the job."),
    (
        BuiltinField::Useful,
        "useful",
        RATIO,
        "Share of the job's GPUs whose time is not lost, of those that are known.",
    ),
    (BuiltinField::GpuUtilization, "gpu_utilization", RATIO, "Mean utilization of the job's GPUs."),
    (BuiltinField::GpuPower, "gpu_power", WATTS, "Power of the job's GPUs together."),
];

const PORTS: &[BuiltinFieldRow] = &[
    (BuiltinField::Node, "node", Text, "The node that the port is in."),
    (BuiltinField::Device, "device", Text, "The RDMA device of the port."),
    (BuiltinField::Port, "port", Text, "The number of the port on its device."),
    (BuiltinField::State, "state", Text, "The logical state of the port."),
    (BuiltinField::Leaf, "leaf", Text, "The leaf switch that the port is on."),
    (BuiltinField::Rail, "rail", Text, "The rail that the port is on."),
    (BuiltinField::Rack, "rack", Text, "The rack that the node is in."),
    (BuiltinField::Netdev, "netdev", Text, "The network device of the port."),
    (BuiltinField::Finding, "finding", Text, "The worst open finding that blames the port."),
    (BuiltinField::Load, "load", RATIO, "The busier direction of the port as a share of its rate."),
    (BuiltinField::Age, "age", SECONDS, "The time since the node's values came."),
];

const PROCESSES: &[BuiltinFieldRow] = &[
    (BuiltinField::Node, "node", Text, "The node that the process runs on."),
    (BuiltinField::Gpu, "gpu", Text, "The index of its GPU on that node."),
    (BuiltinField::Pid, "pid", Text, "The number of the process on that node."),
    (BuiltinField::Program, "program", Text, "What it is called."),
    (BuiltinField::User, "user", Text, "Whose process it is."),
    (BuiltinField::Job, "job", Text, "The job that it belongs to, as its cgroup tells."),
    (BuiltinField::Namespace, "namespace", Text, "The namespace of its pod."),
    (BuiltinField::Pod, "pod", Text, "The pod that it belongs to."),
    (BuiltinField::Container, "container", Text, "The container that it runs in."),
    (BuiltinField::Age, "age", SECONDS, "The time since the node's values came."),
];

const FINDINGS: &[BuiltinFieldRow] = &[
    (BuiltinField::Id, "id", Text, "The id of the finding."),
    (BuiltinField::Finding, "finding", Text, "What is wrong."),
    (BuiltinField::Severity, "severity", Text, "How urgent it is."),
    (BuiltinField::Entity, "entity", Text, "What is to blame, as a person says it."),
    (BuiltinField::Node, "node", Text, "The node that is to blame, or the node of what is."),
    (BuiltinField::Gpu, "gpu", Text, "The GPU that is to blame."),
    (BuiltinField::Device, "device", Text, "The RDMA device that is to blame."),
    (BuiltinField::Port, "port", Text, "The port that is to blame."),
    (BuiltinField::Job, "job", Text, "The job that is to blame."),
    (BuiltinField::Leaf, "leaf", Text, "The leaf switch that is to blame."),
    (BuiltinField::Rail, "rail", Text, "The rail that is to blame."),
    (BuiltinField::Summary, "summary", Text, "What is wrong and since when, in a sentence."),
    (BuiltinField::Lost, "lost", COUNT, "Lost GPUs that are attributed to it."),
    (BuiltinField::Cost, "cost", COUNT, "The same number as GPU-hours that are lost in an hour."),
    (BuiltinField::Confidence, "confidence", RATIO, "How sure the judge is."),
    (BuiltinField::Victims, "victims", COUNT, "How many suffer from it, as far as they are named."),
    (BuiltinField::Age, "age", SECONDS, "The time since the evidence began."),
    (BuiltinField::Life, "life", Text, "Where it stands: open, changing, flapping or closed."),
    (BuiltinField::Openings, "openings", COUNT, "How often it was opened within the last minutes."),
    (BuiltinField::Closed, "closed", SECONDS, "The time since it was closed."),
    (BuiltinField::Acknowledged, "acknowledged", Text, "Who took it on."),
    (BuiltinField::Note, "note", Text, "What he says about it."),
];

const TARGETS: &[BuiltinFieldRow] = &[
    (BuiltinField::Address, "address", Text, "The address of the target."),
    (BuiltinField::Node, "node", Text, "The node that the target speaks for."),
    (BuiltinField::State, "state", Text, "Whether the target is read."),
    (BuiltinField::Dialect, "dialect", Text, "In whose words the target speaks."),
    (BuiltinField::Origin, "origin", Text, "Where the target comes from."),
    (BuiltinField::Failure, "failure", Text, "Why the last attempt failed, in a word."),
    (BuiltinField::Age, "age", SECONDS, "The time since the target was last read."),
    (BuiltinField::Duration, "duration", SECONDS, "How long the last attempt took."),
    (BuiltinField::Samples, "samples", COUNT, "Samples on the last page."),
    (BuiltinField::Bytes, "bytes", BYTES, "The size of the last page."),
    (BuiltinField::Rejected, "rejected", COUNT, "Lines of the last page that were not taken."),
    (
        BuiltinField::Missed,
        "missed",
        COUNT,
        "Periods in which the target was neither read nor flagged.",
    ),
];
