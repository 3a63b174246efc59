//! The table of fields that are no metrics: identities, judgements and counts of each subject.

use gaunt_schema::unit::Unit;

use super::{
    FieldKind::{self, Number, Text, Texts},
    Own, Subject,
};

/// What the field is, its name, what it is compared as, and a sentence.
type Row = (Own, &'static str, FieldKind, &'static str);

const RATIO: FieldKind = Number(Unit::Ratio);
const COUNT: FieldKind = Number(Unit::Count);
const SECONDS: FieldKind = Number(Unit::Seconds);
const WATTS: FieldKind = Number(Unit::Watts);
const BYTES: FieldKind = Number(Unit::Bytes);

/// Short names for what is typed often.
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

/// The fields of a subject that are no metrics.
pub(super) const fn fields(subject: Subject) -> &'static [Row] {
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

/// The names of the columns that are shown unless told otherwise.
pub(super) const fn usual(subject: Subject) -> &'static [&'static str] {
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

const GPUS: &[Row] = &[
    (Own::Node, "node", Text, "The node that the GPU is in."),
    (Own::Gpu, "gpu", Text, "The index of the GPU on its node."),
    (Own::State, "state", Text, "What the GPU is doing, as judged."),
    (
        Own::Finding,
        "finding",
        Text,
        "The worst open finding that blames the GPU or its node, else the one that its loss is attributed to.",
    ),
    (Own::Lost, "lost", COUNT, "The share of the GPU's time that is lost: lost GPUs, at most one."),
    (Own::Job, "job", Text, "The job that holds the GPU."),
    (Own::JobName, "job_name", Text, "The name of that job."),
    (Own::User, "user", Text, "Whose job it is."),
    (Own::Rank, "rank", Text, "The rank of the GPU in its job."),
    (Own::Namespace, "namespace", Text, "The Kubernetes namespace of the pod that holds the GPU."),
    (Own::Pod, "pod", Text, "The pod that holds the GPU."),
    (Own::Leaf, "leaf", Texts, "The leaf switches of the GPU's nearest ports, or of its node."),
    (Own::Rail, "rail", Text, "The rail of the GPU's nearest ports."),
    (Own::Rack, "rack", Text, "The rack that the node is in."),
    (
        Own::Domain,
        "domain",
        Text,
        "The NVLink domain of the GPU, where that is larger than the node.",
    ),
    (Own::Uuid, "uuid", Text, "The UUID of the GPU."),
    (Own::Model, "model", Text, "The model of the GPU."),
    (Own::Serial, "serial", Text, "The serial number of the GPU."),
    (Own::PciBusId, "pci_bus_id", Text, "Where the GPU is on the PCI bus."),
    (Own::Age, "age", SECONDS, "The time since the node's values came."),
];

const NODES: &[Row] = &[
    (Own::Node, "node", Text, "The name of the node."),
    (Own::State, "state", Text, "How fresh the node's values are."),
    (Own::Finding, "finding", Text, "The worst open finding that blames the node or a part of it."),
    (Own::Job, "job", Texts, "The jobs on the node."),
    (Own::User, "user", Texts, "Whose jobs they are."),
    (Own::Model, "model", Texts, "The models of its GPUs."),
    (Own::Leaf, "leaf", Texts, "The leaf switches that its ports are on."),
    (Own::Rail, "rail", Texts, "The rails that its ports are on."),
    (Own::Rack, "rack", Text, "The rack that the node is in."),
    (
        Own::GpuStates,
        "gpu_states",
        Text,
        "The state of each GPU by index, a letter each, as in the heat map.",
    ),
    (Own::Gpus, "gpus", COUNT, "GPUs in the node."),
    (Own::Lost, "lost", COUNT, "Lost GPUs of the node."),
    (Own::GpuUtilization, "gpu_utilization", RATIO, "Mean utilization of the node's GPUs."),
    (Own::GpuPower, "gpu_power", WATTS, "Power of the node's GPUs together."),
    (Own::Ports, "ports", COUNT, "RDMA ports of the node."),
    (Own::PortsActive, "ports_active", COUNT, "RDMA ports of the node that are active."),
    (Own::Age, "age", SECONDS, "The time since the node's values came."),
];

const JOBS: &[Row] = &[
    (Own::Job, "job", Text, "The number of the job."),
    (Own::JobName, "job_name", Text, "The name of the job."),
    (Own::User, "user", Text, "Whose job it is."),
    (Own::Account, "account", Text, "Who pays for the job."),
    (Own::Partition, "partition", Text, "The queue that the job runs in."),
    (
        Own::Finding,
        "finding",
        Text,
        "The worst open finding that blames the job or one of its GPUs.",
    ),
    (Own::Node, "node", Texts, "The nodes of the job."),
    (Own::Nodes, "nodes", COUNT, "How many nodes the job is on."),
    (Own::Runtime, "runtime", SECONDS, "The time since the job started."),
    (Own::Gpus, "gpus", COUNT, "GPUs that the job holds."),
    (Own::Lost, "lost", COUNT, "Lost GPUs of the job."),
    (
        Own::Useful,
        "useful",
        RATIO,
        "Share of the job's GPUs whose time is not lost, of those that are known.",
    ),
    (Own::GpuUtilization, "gpu_utilization", RATIO, "Mean utilization of the job's GPUs."),
    (Own::GpuPower, "gpu_power", WATTS, "Power of the job's GPUs together."),
];

const PORTS: &[Row] = &[
    (Own::Node, "node", Text, "The node that the port is in."),
    (Own::Device, "device", Text, "The RDMA device of the port."),
    (Own::Port, "port", Text, "The number of the port on its device."),
    (Own::State, "state", Text, "The logical state of the port."),
    (Own::Leaf, "leaf", Text, "The leaf switch that the port is on."),
    (Own::Rail, "rail", Text, "The rail that the port is on."),
    (Own::Rack, "rack", Text, "The rack that the node is in."),
    (Own::Netdev, "netdev", Text, "The network device of the port."),
    (Own::Finding, "finding", Text, "The worst open finding that blames the port."),
    (Own::Load, "load", RATIO, "The busier direction of the port as a share of its rate."),
    (Own::Age, "age", SECONDS, "The time since the node's values came."),
];

const PROCESSES: &[Row] = &[
    (Own::Node, "node", Text, "The node that the process runs on."),
    (Own::Gpu, "gpu", Text, "The index of its GPU on that node."),
    (Own::Pid, "pid", Text, "The number of the process on that node."),
    (Own::Program, "program", Text, "What it is called."),
    (Own::User, "user", Text, "Whose process it is."),
    (Own::Job, "job", Text, "The job that it belongs to, as its cgroup tells."),
    (Own::Namespace, "namespace", Text, "The namespace of its pod."),
    (Own::Pod, "pod", Text, "The pod that it belongs to."),
    (Own::Container, "container", Text, "The container that it runs in."),
    (Own::Age, "age", SECONDS, "The time since the node's values came."),
];

const FINDINGS: &[Row] = &[
    (Own::Id, "id", Text, "The id of the finding."),
    (Own::Finding, "finding", Text, "What is wrong."),
    (Own::Severity, "severity", Text, "How urgent it is."),
    (Own::Entity, "entity", Text, "What is to blame, as a person says it."),
    (Own::Node, "node", Text, "The node that is to blame, or the node of what is."),
    (Own::Gpu, "gpu", Text, "The GPU that is to blame."),
    (Own::Device, "device", Text, "The RDMA device that is to blame."),
    (Own::Port, "port", Text, "The port that is to blame."),
    (Own::Job, "job", Text, "The job that is to blame."),
    (Own::Leaf, "leaf", Text, "The leaf switch that is to blame."),
    (Own::Rail, "rail", Text, "The rail that is to blame."),
    (Own::Summary, "summary", Text, "What is wrong and since when, in a sentence."),
    (Own::Lost, "lost", COUNT, "Lost GPUs that are attributed to it."),
    (Own::Cost, "cost", COUNT, "The same number as GPU-hours that are lost in an hour."),
    (Own::Confidence, "confidence", RATIO, "How sure the judge is."),
    (Own::Victims, "victims", COUNT, "How many suffer from it, as far as they are named."),
    (Own::Age, "age", SECONDS, "The time since the evidence began."),
    (Own::Life, "life", Text, "Where it stands: open, changing, flapping or closed."),
    (Own::Openings, "openings", COUNT, "How often it was opened within the last minutes."),
    (Own::Closed, "closed", SECONDS, "The time since it was closed."),
    (Own::Acknowledged, "acknowledged", Text, "Who took it on."),
    (Own::Note, "note", Text, "What he says about it."),
];

const TARGETS: &[Row] = &[
    (Own::Address, "address", Text, "The address of the target."),
    (Own::Node, "node", Text, "The node that the target speaks for."),
    (Own::State, "state", Text, "Whether the target is read."),
    (Own::Dialect, "dialect", Text, "In whose words the target speaks."),
    (Own::Origin, "origin", Text, "Where the target comes from."),
    (Own::Failure, "failure", Text, "Why the last attempt failed, in a word."),
    (Own::Age, "age", SECONDS, "The time since the target was last read."),
    (Own::Duration, "duration", SECONDS, "How long the last attempt took."),
    (Own::Samples, "samples", COUNT, "Samples on the last page."),
    (Own::Bytes, "bytes", BYTES, "The size of the last page."),
    (Own::Rejected, "rejected", COUNT, "Lines of the last page that were not taken."),
    (Own::Missed, "missed", COUNT, "Periods in which the target was neither read nor flagged."),
];
