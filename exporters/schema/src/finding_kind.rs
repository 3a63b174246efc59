//! The vocabulary of the judge: GPU states, finding kinds, severities and the entities that a finding can blame.
//!
//! The types are in the schema because the judge produces them, the screens show them, the metrics carry them as
//! labels and the simulator writes its ground truth with them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::SanitizedText;

/// Declares an enum whose variants each have one name on the wire and in labels.
macro_rules! wire_enum {
    ($(#[$outer:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $wire_name:literal,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
        pub enum $name { $($(#[$doc])* #[serde(rename = $wire_name)] $variant,)* }

        impl $name {
            /// Every variant, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name on the wire and in labels.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $wire_name,)* }
            }

            /// The variant for a name.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|variant| variant.as_str() == text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

wire_enum! {
    /// The activity of a GPU. The order is that of the fleet bar: useful first, unknown last.
    GpuState {
        /// Its arithmetic units are busy.
        Computing = "computing",
        /// It is limited by memory bandwidth.
        MemoryBound = "memory_bound",
        /// It moves data to its peers and makes progress.
        Communicating = "communicating",
        /// It is busy; its counters do not show with what.
        Busy = "busy",
        /// It is busy, and its job is slower than its baseline.
        Slowed = "slowed",
        /// It busy-waits in a collective for a straggler.
        Waiting = "waiting",
        /// It waits for input.
        DataStarved = "data_starved",
        /// Its host does not launch work fast enough.
        LaunchBound = "launch_bound",
        /// Temperature or power limits its clock.
        Throttled = "throttled",
        /// It is allocated to a job, and makes no progress.
        Hung = "hung",
        /// It is allocated to a job that does not use it.
        IdleAllocated = "idle_allocated",
        /// It is not allocated.
        Idle = "idle",
        /// It was present and has disappeared.
        Lost = "lost",
        /// Its last values are too old.
        Stale = "stale",
        /// Telemetry is missing.
        Unknown = "unknown",
    }
}

impl GpuState {
    /// Whether a GPU in this state does no work for its job, or less than its baseline. The judge computes separately
    /// which share of each GPU's time is lost.
    pub const fn is_lost_time(self) -> bool {
        matches!(
            self,
            Self::Slowed
                | Self::Waiting
                | Self::DataStarved
                | Self::LaunchBound
                | Self::Throttled
                | Self::Hung
                | Self::IdleAllocated
                | Self::Lost
        )
    }

    /// The one-letter code of this state in packed answers; the screen chooses its own glyphs.
    pub const fn letter_code(self) -> char {
        match self {
            Self::Computing => 'C',
            Self::MemoryBound => 'M',
            Self::Communicating => 'N',
            Self::Busy => 'b',
            Self::Slowed => 's',
            Self::Waiting => 'w',
            Self::DataStarved => 'd',
            Self::LaunchBound => 'l',
            Self::Throttled => 't',
            Self::Hung => 'H',
            Self::IdleAllocated => 'i',
            Self::Idle => '.',
            Self::Lost => 'x',
            Self::Stale => '?',
            Self::Unknown => '-',
        }
    }

    /// The number of this state in stored series; a new state comes after all others.
    pub const fn number_code(self) -> u8 {
        self as u8
    }

    /// The state for a one-letter code.
    pub fn from_letter_code(code: char) -> Option<Self> {
        Self::ALL.iter().copied().find(|state| state.letter_code() == code)
    }
}

wire_enum! {
    /// The closed list of finding kinds.
    FindingKind {
        /// A node's GPUs wait for input.
        DataStarved = "data_starved",
        /// A whole job waits for shared storage.
        StorageSlow = "storage_slow",
        /// One GPU computes slower than the others of its job group.
        ComputeStraggler = "compute_straggler",
        /// Temperature or power limits a clock.
        Throttled = "throttled",
        /// A host cannot launch work fast enough.
        HostBound = "host_bound",
        /// A PCIe link runs below its generation or width.
        PcieDegraded = "pcie_degraded",
        /// An NVLink is missing or slow.
        NvlinkDegraded = "nvlink_degraded",
        /// A GPU's part of the NVLink fabric is unhealthy or does not become ready.
        FabricDegraded = "fabric_degraded",
        /// A port is down that was up, or whose sibling ports are up.
        PortDown = "port_down",
        /// A port runs below its rate.
        PortRateLow = "port_rate_low",
        /// A link has bit errors.
        LinkErrors = "link_errors",
        /// A leaf switch is congested.
        LeafCongested = "leaf_congested",
        /// A rail is slow under several leaves.
        RailSlow = "rail_slow",
        /// A host sends PFC pause frames.
        HostBlocksNetwork = "host_blocks_network",
        /// A collective does not complete.
        CollectiveHang = "collective_hang",
        /// A GPU failed.
        GpuFailed = "gpu_failed",
        /// A job does not use its allocated GPUs.
        IdleAllocated = "idle_allocated",
        /// The processes of a job end again and again.
        CrashLoop = "crash_loop",
        /// A file system has hardly any space or no inodes left.
        FilesystemFull = "filesystem_full",
        /// Pipeline stages are uneven.
        StageImbalance = "stage_imbalance",
        /// The slowest rank changes with the data.
        DataSkew = "data_skew",
        /// A job is slower than its baseline, and no finding explains it.
        UnexplainedSlowdown = "unexplained_slowdown",
        /// A target serves no page.
        TargetDown = "target_down",
        /// A driver call does not return.
        DriverHung = "driver_hung",
        /// A page is served, and its values do not change.
        DataStale = "data_stale",
        /// A node has more open findings than are listed.
        FindingsOverLimit = "findings_over_limit",
        /// gaunt itself scrapes its targets too late.
        AggregatorLate = "aggregator_late",
        /// A certificate of an exporter or of gaunt itself expires soon.
        CertificateExpiring = "certificate_expiring",
        /// gaunt's own rules fail, so that nothing is judged.
        JudgementFailed = "judgement_failed",
    }
}

wire_enum! {
    /// How urgent a finding is.
    Severity {
        /// Informational; never pages.
        Info = "info",
        /// To be investigated within the day.
        Warning = "warning",
        /// Pages the person on call.
        Critical = "critical",
    }
}

wire_enum! {
    /// The lifecycle state of a finding.
    LifeState {
        /// Its evidence is present.
        Open = "open",
        /// Its evidence is present, and its severity, blame, victims or cost changed recently.
        Changing = "changing",
        /// It opened repeatedly: it stays open until its evidence has been absent for long.
        Flapping = "flapping",
        /// Its evidence has been absent for a while.
        Closed = "closed",
    }
}

impl Default for LifeState {
    /// A new finding is open.
    fn default() -> Self {
        Self::Open
    }
}

wire_enum! {
    /// An event in the lifecycle of a finding.
    FindingEvent {
        /// It opened for the first time, or for the first time in long.
        Opened = "opened",
        /// Its evidence returned soon after it was closed.
        Reopened = "reopened",
        /// Its severity changed.
        Severity = "severity",
        /// It blames another entity.
        Blame = "blame",
        /// Its victims changed.
        Victims = "victims",
        /// Its cost changed.
        Cost = "cost",
        /// It opens and closes repeatedly, and is now kept open.
        Flapping = "flapping",
        /// A user acknowledged it.
        Acknowledged = "acknowledged",
        /// A user withdrew the acknowledgement.
        Withdrawn = "withdrawn",
        /// Its severity rose above that at its acknowledgement, which is no longer valid.
        Lapsed = "lapsed",
        /// A user accepted the present level as the baseline, and it closed.
        Accepted = "accepted",
        /// Its evidence has been absent for a while.
        Closed = "closed",
    }
}

wire_enum! {
    /// The types of things that can be blamed.
    EntityKind {
        /// One GPU.
        Gpu = "gpu",
        /// Two GPUs and the path between them.
        GpuPair = "gpu_pair",
        /// GPUs joined by one NVLink fabric.
        NvlinkDomain = "nvlink_domain",
        /// One machine.
        Node = "node",
        /// One RDMA port.
        Port = "port",
        /// One leaf switch.
        Leaf = "leaf",
        /// One rail of the fabric.
        Rail = "rail",
        /// The spine of the fabric.
        Spine = "spine",
        /// One rack.
        Rack = "rack",
        /// One job.
        Job = "job",
        /// One pipeline stage of a job.
        Stage = "stage",
        /// Shared storage.
        Storage = "storage",
        /// One source of targets: a file, a server or a name in DNS that lists them.
        Source = "source",
        /// gaunt itself.
        Aggregator = "aggregator",
    }
}

/// The entity that a finding blames: its type, and as much of its location as is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Entity {
    /// What it is.
    #[serde(rename = "type")]
    pub kind: EntityKind,
    /// The node: the entity itself, or the node that it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<SanitizedText>,
    /// The GPU's index on its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<SanitizedText>,
    /// The RDMA device on its node; the network device where no RDMA port is blamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<SanitizedText>,
    /// The port of that device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<SanitizedText>,
    /// The job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<SanitizedText>,
    /// The rail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rail: Option<SanitizedText>,
    /// The leaf switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaf: Option<SanitizedText>,
    /// The NVLink domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<SanitizedText>,
    /// The rack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<SanitizedText>,
    /// The source of targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SanitizedText>,
}

impl Entity {
    /// An entity of this type without a location; the caller fills that in.
    pub const fn new(kind: EntityKind) -> Self {
        Self {
            kind,
            node: None,
            gpu: None,
            device: None,
            port: None,
            job: None,
            rail: None,
            leaf: None,
            domain: None,
            rack: None,
            source: None,
        }
    }

    /// The source of targets of this name.
    pub fn new_source(name: &SanitizedText) -> Self {
        Self { source: Some(name.clone()), ..Self::new(EntityKind::Source) }
    }

    /// The rack of this name.
    pub fn new_rack(name: &SanitizedText) -> Self {
        Self { rack: Some(name.clone()), ..Self::new(EntityKind::Rack) }
    }

    /// The NVLink domain of this name.
    pub fn new_nvlink_domain(name: &SanitizedText) -> Self {
        Self { domain: Some(name.clone()), ..Self::new(EntityKind::NvlinkDomain) }
    }

    /// The node of this name.
    pub fn new_node(node: &SanitizedText) -> Self {
        Self { node: Some(node.clone()), ..Self::new(EntityKind::Node) }
    }

    /// A job, by its name.
    pub fn new_job(job: &SanitizedText) -> Self {
        Self { job: Some(job.clone()), ..Self::new(EntityKind::Job) }
    }

    /// A GPU of a node.
    pub fn new_gpu(node: &SanitizedText, gpu: &SanitizedText) -> Self {
        Self { node: Some(node.clone()), gpu: Some(gpu.clone()), ..Self::new(EntityKind::Gpu) }
    }

    /// A network device of a node that belongs to no RDMA port.
    pub fn new_netdev(node: &SanitizedText, device: &SanitizedText) -> Self {
        Self {
            node: Some(node.clone()),
            device: Some(device.clone()),
            ..Self::new(EntityKind::Port)
        }
    }

    /// A port of a node.
    pub fn new_port(node: &SanitizedText, device: &SanitizedText, port: &SanitizedText) -> Self {
        Self {
            node: Some(node.clone()),
            device: Some(device.clone()),
            port: Some(port.clone()),
            ..Self::new(EntityKind::Port)
        }
    }
}

/// The location for display: `gpu-0417 · GPU 5`, `leaf-07 · rail 3`.
impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.source.iter().map(|source| format!("source {source}")));
        parts.extend(self.job.iter().map(|job| format!("job {job}")));
        parts.extend(self.rack.iter().map(|rack| format!("rack {rack}")));
        parts.extend(self.leaf.iter().map(ToString::to_string));
        parts.extend(self.domain.iter().map(|domain| format!("NVLink domain {domain}")));
        parts.extend(self.rail.iter().map(|rail| format!("rail {rail}")));
        parts.extend(self.node.iter().map(ToString::to_string));
        parts.extend(self.gpu.iter().map(|gpu| format!("GPU {gpu}")));
        match (&self.device, &self.port) {
            (Some(device), Some(port)) => parts.push(format!("{device}/{port}")),
            (Some(device), None) => parts.push(device.to_string()),
            (None, _) => {}
        }
        if parts.is_empty() { f.pad(self.kind.as_str()) } else { f.pad(&parts.join(" · ")) }
    }
}
