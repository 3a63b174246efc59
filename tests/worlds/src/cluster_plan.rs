//! The machines of a world: GPUs, ports, switches and hosts, with what is unusual about them and no fault.

use std::ops::Range;

use crate::job_plan::JobPlan;

/// Everything that exists in a world before its exporters and its fault.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterPlan {
    /// The nodes.
    pub nodes: Vec<NodePlan>,
    /// The jobs that run on them.
    pub jobs: Vec<JobPlan>,
    /// The fabric between them.
    pub fabric: FabricPlan,
    /// An instant in seconds since the start of the run from which the power of all GPUs is limited to this share of
    /// their limit: an order of the site, not a fault.
    pub power_cap: Option<(f64, f64)>,
}

/// One machine.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    /// Its GPUs, in the order of their PCI addresses.
    pub gpus: Vec<GpuPlan>,
    /// Its RDMA ports, in the order of their PCI addresses.
    pub ports: Vec<PortPlan>,
    /// Whether NVLink joins its GPUs.
    pub has_nvlink: bool,
    /// Its processors, memory, disks and background load.
    pub host: HostPlan,
    /// Rack number.
    pub rack: usize,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuPlan {
    /// Board.
    pub model: GpuModel,
    /// Speed of this chip relative to the median of its model: 0.94 to 1.04.
    pub silicon_speed: f64,
    /// Power limit in watts, which may be below that of the board.
    pub power_limit_w: f64,
    /// How much hotter its slot is than the others, in °C.
    pub hotter_c: f64,
    /// Whether it is divided into MIG instances, which no training job uses.
    pub has_mig: bool,
    /// Corrected memory errors per hour, which are harmless.
    pub corrected_errors_per_hour: f64,
    /// An XID that an application caused: its instant in seconds since the start of the run, and its number.
    pub application_xid: Option<(f64, u32)>,
}

/// A board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GpuModel {
    /// NVIDIA A100-SXM4-80GB.
    A100,
    /// NVIDIA H100 80GB HBM3.
    H100,
    /// NVIDIA H200.
    H200,
    /// NVIDIA B200.
    B200,
    /// NVIDIA L40S: no NVLink.
    L40S,
    /// AMD Instinct MI300X.
    Mi300x,
}

/// One RDMA port.
#[derive(Clone, Debug, PartialEq)]
pub struct PortPlan {
    /// What it is used for.
    pub role: PortRole,
    /// Rate in Gbit/s, while it is up.
    pub rate_gbps: f64,
    /// Whether it was never up.
    pub is_never_up: bool,
    /// The leaf switch that it is cabled to, as an index; none for a port of another network.
    pub leaf: Option<usize>,
    /// Traffic in bytes per second and direction that has nothing to do with the jobs.
    pub background_bytes_per_s: f64,
    /// Share of received packets that carry an ECN mark without any fault, before congestion.
    pub background_mark_share: f64,
    /// Packets out of sequence per million received, without any fault.
    pub background_out_of_sequence_ppm: f64,
}

/// What a port is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortRole {
    /// Collectives between the nodes: the rail is the same number on every node.
    Collective {
        /// Rail number, from 0.
        rail: usize,
    },
    /// Reads of training data and writes of checkpoints.
    Storage,
    /// Management, logins, images: RDMA is enabled and hardly used.
    FrontEnd,
    /// Nothing is connected.
    Unused,
}

/// Kind of network between the nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct FabricPlan {
    /// InfiniBand or Ethernet.
    pub link_layer: LinkLayer,
    /// Number of leaf switches.
    pub leaves: usize,
    /// Which rails a leaf switch has.
    pub leaf_layout: LeafLayout,
    /// Nodes below the same leaf switches.
    pub nodes_per_leaf: usize,
    /// Whether PFC is enabled (RoCE).
    pub has_pfc: bool,
    /// Whether switches mark packets (RoCE).
    pub has_ecn: bool,
    /// Marks per lost share of speed under congestion: 0.0005 (quiet) to 0.3 (loud) of received packets.
    pub mark_gain: f64,
    /// Whether packets take several paths, so that many arrive out of sequence without any loss.
    pub has_adaptive_routing: bool,
    /// Duration of a tick of `port_xmit_wait`, in seconds: unknown to readers.
    pub wait_tick_s: f64,
}

/// InfiniBand or Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkLayer {
    /// InfiniBand: credits, `port_xmit_wait`, no marks.
    InfiniBand,
    /// RoCE: marks, CNPs, pause frames.
    Ethernet,
}

/// Which ports of a group of nodes go to the same leaf switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeafLayout {
    /// One leaf switch for each rail of the group.
    PerRail,
    /// One leaf switch for all rails of the group (top of rack).
    PerRack,
    /// Two leaf switches for the group: even and odd rails.
    DualRack,
}

/// Processors, memory and disks of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct HostPlan {
    /// Logical processors.
    pub cpus: usize,
    /// Busy processors without any job: daemons, monitoring.
    pub base_busy_cpus: f64,
    /// PSI "some" of CPU without any job: share of time, over two decades between hosts.
    pub base_cpu_pressure: f64,
    /// PSI "some" of IO without any job.
    pub base_io_pressure: f64,
    /// A daemon that keeps one processor busy for ever.
    pub has_spinning_daemon: bool,
    /// Bursts of work that have nothing to do with the jobs.
    pub chores: Vec<ChorePlan>,
    /// Temperature of the air at the inlet, in °C.
    pub inlet_c: f64,
    /// Amplitude and period of its daily or faster change, in °C and seconds.
    pub inlet_wave: (f64, f64),
    /// Offset of the machine's clock, in seconds.
    pub clock_offset_s: f64,
}

/// A burst of work of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct ChorePlan {
    /// From when to when, in seconds since the start of the run.
    pub span_s: Range<f64>,
    /// Additional busy processors.
    pub busy_cpus: f64,
    /// Additional share of time with CPU pressure.
    pub cpu_pressure: f64,
    /// Additional share of time with IO pressure.
    pub io_pressure: f64,
    /// Share of the host's part of a step by which it slows the jobs on this machine; mostly 0.
    pub slows_host_part: f64,
}
