//! How a world is seen: names, labels, metric sets, cadence and quirks of its exporters. Nothing here is a fault.

use crate::job_plan::PausePlan;

/// The exporters of a world.
#[derive(Clone, Debug, PartialEq)]
pub struct ExporterPlan {
    /// Which program serves the GPU metrics.
    pub gpu_exporter: GpuExporter,
    /// Which metrics it serves.
    pub gpu_metrics: GpuMetricSet,
    /// What node_exporter serves.
    pub host_metrics: HostMetricSet,
    /// How jobs are labelled on the GPU metrics.
    pub labels: JobLabels,
    /// Seconds by which job labels lag behind the jobs.
    pub label_lag_s: f64,
    /// Seconds between two scrapes of a target.
    pub scrape_s: f64,
    /// Seconds between two collections of the GPU exporter; a scrape in between repeats its values.
    pub collect_s: f64,
    /// Gauges are the mean of so many seconds before a collection; 0 for the instant.
    pub gauge_window_s: f64,
    /// Jitter of every scrape, in seconds.
    pub jitter_s: f64,
    /// Share of scrapes without a result.
    pub lost_scrapes: f64,
    /// What a site knows of its network.
    pub topology: TopologyPlan,
    /// Whether a job list as `squeue --json` prints it is available.
    pub has_job_list: bool,
    /// One entry for each node.
    pub nodes: Vec<NodeExporterPlan>,
}

/// Exporters of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeExporterPlan {
    /// The name by which truth and a right answer call the node.
    pub name: String,
    /// The `Hostname` label of the GPU exporter; none: no such label.
    pub gpu_page_name: Option<String>,
    /// The `nodename` of node_exporter's `node_uname_info`.
    pub host_page_name: String,
    /// Host part of the targets' address.
    pub address: String,
    /// Offset of its scrapes and of its collections, in seconds.
    pub scrape_offset_s: f64,
    /// Offset of its collections in seconds.
    pub collect_offset_s: f64,
    /// Whether its GPU exporter serves profiling metrics, where the set has them.
    pub has_profiling: bool,
    /// Names of its ports, in the order of the plan.
    pub ports: Vec<PortNames>,
    /// Order of the GPUs: the exporter's number of the GPU at each position of the plan.
    pub gpu_numbers: Vec<usize>,
    /// Instants at which its exporters restart: their own counters begin anew.
    pub restarts_s: Vec<f64>,
    /// XID of an old error that each GPU repeats for ever; 0 for none.
    pub sticky_xid: Vec<u32>,
    /// Whether `port_xmit_wait` of each port is 32 bits wide and stands at its maximum.
    pub is_wait_saturated: Vec<bool>,
    /// Share of GPU values that are blank for a collection.
    pub blank_share: f64,
    /// Pauses of the exporter: it answers, with old values.
    pub stalls: Option<PausePlan>,
}

/// Names of one port.
#[derive(Clone, Debug, PartialEq)]
pub struct PortNames {
    /// RDMA device: `mlx5_3`, `rocep75s0`, `ibp75s0`, `bnxt_re3`, `irdma3`, ...
    pub device: String,
    /// Network interface; none for a device without one.
    pub netdev: Option<String>,
    /// Whether the exporter says the link layer and type of the device.
    pub has_info: bool,
}

/// Programs that serve GPU metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GpuExporter {
    /// gaunt-node: host and port metrics too, on one page.
    GauntNode,
    /// dcgm-exporter 3.x.
    Dcgm3,
    /// dcgm-exporter 4.8: the same names, more labels.
    Dcgm48,
    /// dcgm-exporter 4.9: other names and units.
    Dcgm49,
    /// AMD's device-metrics-exporter.
    Amd,
}

/// Which metrics the GPU exporter serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GpuMetricSet {
    /// Utilization, memory, power, temperature, clock, XID.
    Minimal,
    /// The exporter's default list.
    Default,
    /// All that the exporter can serve, profiling, violation and clock event metrics included.
    Full,
}

/// What node_exporter serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of node_exporter")]
pub struct HostMetricSet {
    /// `node_pressure_*`.
    pub has_pressure: bool,
    /// `node_mountstats_nfs_*` and `node_nfs_*`.
    pub has_nfs: bool,
    /// `node_ethtool_*`: pause frames, FEC.
    pub has_ethtool: bool,
    /// `node_infiniband_info` and `node_network_info`.
    pub has_device_info: bool,
    /// RDMA hardware counters beside the port counters.
    pub has_rdma_counters: bool,
    /// One series for each processor; else only their sum.
    pub has_processors: bool,
}

/// How jobs are labelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobLabels {
    /// Not at all.
    None,
    /// `hpc_job="4711"`.
    HpcJob,
    /// `pod`, `namespace`, `container`; workers of a job have their own suffix.
    Pods,
}

/// What a site knows of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TopologyPlan {
    /// Nothing.
    None,
    /// Slurm's `topology/tree`, where the leaf is what the fabric's leaf is.
    SlurmTree,
    /// The same, but one node has moved since it was written.
    SlurmTreeStale,
    /// Slurm's `topology/block`.
    SlurmBlock,
    /// Leaf and rail of every port, declared by an operator.
    Declared,
}
