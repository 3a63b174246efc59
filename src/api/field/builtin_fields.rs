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
    (BuiltinField::State, "state", Text, "Detected state of the GPU."),
    (
        BuiltinField::Finding,
        "finding",
        Text,
        "The worst open finding on the GPU or its node, else the one that its loss is attributed \
         to.",
    ),
    (BuiltinField::Lost, "lost", COUNT, "Lost share of the GPU's time, in lost GPUs from 0 to 1."),
    (BuiltinField::Job, "job", Text, "The job that holds the GPU."),
    (BuiltinField::JobName, "job_name", Text, "The name of that job."),
    (BuiltinField::User, "user", Text, "User of the job."),
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
    (BuiltinField::PciBusId, "pci_bus_id", Text, "PCI address of the GPU."),
    (BuiltinField::Age, "age", SECONDS, "Time since the node's last values."),
];

const NODES: &[BuiltinFieldRow] = &[
    (BuiltinField::Node, "node", Text, "The name of the node."),
    (BuiltinField::State, "state", Text, "Freshness of the node's values."),
    (BuiltinField::Finding, "finding", Text, "The worst open finding on the node or a part of it."),
    (BuiltinField::Job, "job", Texts, "The jobs on the node."),
    (BuiltinField::User, "user", Texts, "Users of the jobs."),
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
    (BuiltinField::GpuPower, "gpu_power", WATTS, "Total power of the node's GPUs."),
    (BuiltinField::Ports, "ports", COUNT, "RDMA ports of the node."),
    (BuiltinField::PortsActive, "ports_active", COUNT, "RDMA ports of the node that are active."),
    (BuiltinField::Age, "age", SECONDS, "Time since the node's last values."),
];

const JOBS: &[BuiltinFieldRow] = &[
    (BuiltinField::Job, "job", Text, "Job id."),
    (BuiltinField::JobName, "job_name", Text, "The name of the job."),
    (BuiltinField::User, "user", Text, "User of the job."),
    (BuiltinField::Account, "account", Text, "Account that is charged for the job."),
    (BuiltinField::Partition, "partition", Text, "The queue that the job runs in."),
    (
        BuiltinField::Finding,
        "finding",
        Text,
        "The worst open finding on the job or one of its GPUs.",
    ),
    (BuiltinField::Node, "node", Texts, "The nodes of the job."),
    (BuiltinField::Nodes, "nodes", COUNT, "Number of nodes of the job."),
    (BuiltinField::Runtime, "runtime", SECONDS, "Time since the job started."),
    (BuiltinField::Gpus, "gpus", COUNT, "GPUs that the job holds."),
    (BuiltinField::Lost, "lost", COUNT, "Lost GPUs of the job."),
    (
        BuiltinField::Useful,
        "useful",
        RATIO,
        "Share of GPU time that is not lost, over the job's GPUs with known state.",
    ),
    (BuiltinField::GpuUtilization, "gpu_utilization", RATIO, "Mean utilization of the job's GPUs."),
    (BuiltinField::GpuPower, "gpu_power", WATTS, "Total power of the job's GPUs."),
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
    (BuiltinField::Finding, "finding", Text, "The worst open finding on the port."),
    (
        BuiltinField::Load,
        "load",
        RATIO,
        "Throughput of the busier direction as a share of the link rate.",
    ),
    (BuiltinField::Age, "age", SECONDS, "Time since the node's last values."),
];

const PROCESSES: &[BuiltinFieldRow] = &[
    (BuiltinField::Node, "node", Text, "The node that the process runs on."),
    (BuiltinField::Gpu, "gpu", Text, "The index of its GPU on that node."),
    (BuiltinField::Pid, "pid", Text, "Process id on that node."),
    (BuiltinField::Program, "program", Text, "Name of the program."),
    (BuiltinField::User, "user", Text, "User of the process."),
    (BuiltinField::Job, "job", Text, "The job that it belongs to, from its cgroup."),
    (BuiltinField::Namespace, "namespace", Text, "The namespace of its pod."),
    (BuiltinField::Pod, "pod", Text, "The pod that it belongs to."),
    (BuiltinField::Container, "container", Text, "The container that it runs in."),
    (BuiltinField::Age, "age", SECONDS, "Time since the node's last values."),
];

const FINDINGS: &[BuiltinFieldRow] = &[
    (BuiltinField::Id, "id", Text, "The id of the finding."),
    (BuiltinField::Finding, "finding", Text, "Kind of the fault."),
    (BuiltinField::Severity, "severity", Text, "Severity: info, warning or critical."),
    (BuiltinField::Entity, "entity", Text, "Faulty entity, as a readable name."),
    (BuiltinField::Node, "node", Text, "Faulty node, or the node of the faulty entity."),
    (BuiltinField::Gpu, "gpu", Text, "Faulty GPU."),
    (BuiltinField::Device, "device", Text, "Faulty RDMA device."),
    (BuiltinField::Port, "port", Text, "Faulty port."),
    (BuiltinField::Job, "job", Text, "Faulty job."),
    (BuiltinField::Leaf, "leaf", Text, "Faulty leaf switch."),
    (BuiltinField::Rail, "rail", Text, "Faulty rail."),
    (BuiltinField::Summary, "summary", Text, "The fault and its start, in one sentence."),
    (BuiltinField::Lost, "lost", COUNT, "Lost GPUs attributed to it."),
    (BuiltinField::Cost, "cost", COUNT, "The same as GPU-hours lost per hour."),
    (BuiltinField::Confidence, "confidence", RATIO, "Confidence from 0 to 1."),
    (BuiltinField::Victims, "victims", COUNT, "Number of affected entities that are known."),
    (BuiltinField::Age, "age", SECONDS, "Time since the evidence began."),
    (BuiltinField::Life, "life", Text, "Lifecycle: open, changing, flapping or closed."),
    (BuiltinField::Openings, "openings", COUNT, "Number of openings within the flapping window."),
    (BuiltinField::Closed, "closed", SECONDS, "Time since it closed."),
    (BuiltinField::Acknowledged, "acknowledged", Text, "User who acknowledged it."),
    (BuiltinField::Note, "note", Text, "Note of the acknowledgement."),
];

const TARGETS: &[BuiltinFieldRow] = &[
    (BuiltinField::Address, "address", Text, "The address of the target."),
    (BuiltinField::Node, "node", Text, "The node that the target reports."),
    (BuiltinField::State, "state", Text, "Scrape state of the target."),
    (BuiltinField::Dialect, "dialect", Text, "Exporter format of the target."),
    (BuiltinField::Origin, "origin", Text, "Source that lists the target."),
    (BuiltinField::Failure, "failure", Text, "Reason of the last failed scrape."),
    (BuiltinField::Age, "age", SECONDS, "Time since the last successful scrape."),
    (BuiltinField::Duration, "duration", SECONDS, "Duration of the last scrape."),
    (BuiltinField::Samples, "samples", COUNT, "Samples on the last page."),
    (BuiltinField::Bytes, "bytes", BYTES, "Size of the last page."),
    (BuiltinField::Rejected, "rejected", COUNT, "Rejected lines of the last page."),
    (
        BuiltinField::Missed,
        "missed",
        COUNT,
        "Periods in which the target was neither scraped nor flagged.",
    ),
];
