//! The families of worlds: each forces or raises one kind of nuisance; all others are drawn as everywhere.

use crate::{
    cluster_plan::{GpuModel, LinkLayer},
    exporter_plan::{GpuExporter, GpuMetricSet, HostMetricSet, JobLabels, TopologyPlan},
};

/// Which worlds a family is for: a judge is not measured on the families that it was tuned on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FamilySplit {
    /// For choosing limits.
    Tune,
    /// For published figures.
    Test,
}

/// One family of worlds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilySummary {
    /// Its name.
    pub name: &'static str,
    /// What is unusual about its worlds, in one line.
    pub about: &'static str,
    /// What it is for.
    pub split: FamilySplit,
}

const fn tune(name: &'static str, about: &'static str) -> FamilySummary {
    FamilySummary { name, about, split: FamilySplit::Tune }
}

const fn test(name: &'static str, about: &'static str) -> FamilySummary {
    FamilySummary { name, about, split: FamilySplit::Test }
}

/// Every family, those for tuning first.
pub const FAMILIES: [FamilySummary; 29] = [
    tune("ib_tree", "InfiniBand, no marks, Slurm's tree names the leaf switches"),
    tune("roce_quiet", "RoCE whose congestion control marks hardly any packets"),
    tune("roce_loud", "RoCE whose switches mark many packets, some of them always"),
    tune(
        "other_ports",
        "HCAs of a second purpose at any rate in any slot, unused and never-up ports",
    ),
    tune(
        "device_names",
        "device names by PCI address, GUID or vendor, numbered otherwise on each node",
    ),
    tune("slow_cadence", "scrapes every 30 or 60 s"),
    tune("fast_cadence", "scrapes every 1 or 2 s of exporters that collect less often"),
    tune("minimal_metrics", "the shortest list of GPU metrics, no profiling"),
    tune("bare_hosts", "no PSI, no NFS, no ethtool, no device information"),
    tune("host_noise", "hosts whose load differs by two decades, chores, spinning daemons"),
    tune("gpu_mix", "mixed GPU models, power limits, silicon and slots"),
    tune("deep_jobs", "pipelines with uneven stages, tensor groups, experts, accumulation, ZeRO"),
    tune("input_bound", "jobs that are limited by their input by design"),
    tune("serving_mix", "inference beside training"),
    tune("gaunt_node", "gaunt's own exporter on every node"),
    tune("plain", "dcgm-exporter's and node_exporter's defaults, nothing forced"),
    test("roce_lossy", "RoCE without PFC: congestion drops packets"),
    test("host_joins", "pages of one machine that call it by different names"),
    test("long_gauges", "GPU gauges that are means of 10 to 60 s"),
    test("new_names", "dcgm-exporter 4.9: other names and units"),
    test("all_metrics", "every metric, blanks, restarts, sticky XIDs, saturated counters"),
    test("mig_slices", "nodes divided into MIG instances beside whole ones"),
    test("alternating_jobs", "jobs of which two halves work in turn"),
    test("shared_nodes", "two jobs on the same nodes"),
    test(
        "doubtful_topology",
        "a topology that is stale, of blocks, or of another kind than the fabric",
    ),
    test("drift", "curricula, changes of the batch mix, waves of the inlet air"),
    test("tiny_clusters", "one to three nodes"),
    test("big_clusters", "24 to 32 nodes"),
    test("amd", "AMD GPUs and their exporter"),
];

/// The summary of a family; none if there is no such family.
pub fn find_family(name: &str) -> Option<&'static FamilySummary> {
    FAMILIES.iter().find(|family| family.name == name)
}

/// Names of RDMA devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum DeviceStyle {
    /// `mlx5_3`.
    Kernel,
    /// `rocep75s0`, `ibp75s0`.
    Pci,
    /// `rocex…`, `ibx…` with the GUID.
    Guid,
    /// `bnxt_re3`.
    Broadcom,
    /// `irdma3`.
    Intel,
}

/// How the pages of one machine call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum JoinStyle {
    /// The same name everywhere.
    Same,
    /// A short name on the GPU page, a full one on the host page.
    ShortAndFull,
    /// A full name on the GPU page, a short one on the host page.
    FullAndShort,
    /// Upper case on the host page.
    Upper,
    /// The GPU page has the pod of the exporter.
    Pod,
    /// The GPU page has `localhost`: the host engine is asked over the network.
    Localhost,
    /// The GPU page has no name; the target's address has.
    Absent,
}

/// How jobs spend their steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum JobStyle {
    /// Data parallel.
    Plain,
    /// Pipelines, tensor groups, experts, accumulation.
    Deep,
    /// Limited by input.
    InputBound,
    /// Two halves that work in turn.
    Alternate,
}

/// What a family forces; none: drawn as everywhere.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Forced {
    /// Least and most nodes.
    pub(super) nodes: Option<(usize, usize)>,
    pub(super) link_layer: Option<LinkLayer>,
    /// Least and most marks per lost share of speed.
    pub(super) mark_gain: Option<(f64, f64)>,
    pub(super) has_pfc: Option<bool>,
    /// Probability of each kind of further port.
    pub(super) other_ports: Option<f64>,
    pub(super) has_odd_devices: Option<bool>,
    pub(super) has_odd_joins: Option<bool>,
    pub(super) scrape_s: Option<&'static [f64]>,
    pub(super) collect_s: Option<&'static [f64]>,
    /// Least and most seconds of the mean that a gauge is.
    pub(super) gauge_window_s: Option<(f64, f64)>,
    pub(super) gpu_exporter: Option<GpuExporter>,
    pub(super) gpu_metrics: Option<GpuMetricSet>,
    pub(super) host_metrics: Option<HostMetricSet>,
    pub(super) labels: Option<JobLabels>,
    pub(super) topology: Option<&'static [TopologyPlan]>,
    /// Probability of each quirk of an exporter.
    pub(super) quirks: Option<f64>,
    /// Probability of each kind of noise of a host.
    pub(super) host_noise: Option<f64>,
    /// Probability of each kind of difference between GPUs.
    pub(super) gpu_mix: Option<f64>,
    pub(super) model: Option<GpuModel>,
    pub(super) has_mig: Option<bool>,
    pub(super) job_style: Option<JobStyle>,
    pub(super) has_serving: Option<bool>,
    pub(super) shares_nodes: Option<bool>,
    /// Probability of each kind of drift.
    pub(super) drift: Option<f64>,
}

/// Metrics of a host whose exporter was trimmed.
const BARE_HOST: HostMetricSet = HostMetricSet {
    has_pressure: false,
    has_nfs: false,
    has_ethtool: false,
    has_device_info: false,
    has_rdma_counters: true,
    has_processors: true,
};

/// Metrics of a host whose exporter serves all that it can.
const FULL_HOST: HostMetricSet = HostMetricSet {
    has_pressure: true,
    has_nfs: true,
    has_ethtool: true,
    has_device_info: true,
    has_rdma_counters: true,
    has_processors: true,
};

/// What a family forces.
pub(super) fn forced_by(family: &str) -> Forced {
    fabric_forces(family).or_else(|| exporter_forces(family)).unwrap_or_else(|| work_forces(family))
}

fn fabric_forces(family: &str) -> Option<Forced> {
    let none = Forced::default();
    let ethernet = Some(LinkLayer::Ethernet);
    Some(match family {
        "ib_tree" => Forced {
            link_layer: Some(LinkLayer::InfiniBand),
            topology: Some(&[TopologyPlan::SlurmTree]),
            ..none
        },
        "roce_quiet" => Forced {
            link_layer: ethernet,
            has_pfc: Some(true),
            mark_gain: Some((0.0005, 0.006)),
            ..none
        },
        "roce_loud" => Forced {
            link_layer: ethernet,
            has_pfc: Some(true),
            mark_gain: Some((0.06, 0.3)),
            ..none
        },
        "roce_lossy" => Forced { link_layer: ethernet, has_pfc: Some(false), ..none },
        "other_ports" => Forced { other_ports: Some(0.7), ..none },
        "device_names" => Forced { has_odd_devices: Some(true), ..none },
        "doubtful_topology" => Forced {
            topology: Some(&[TopologyPlan::SlurmTreeStale, TopologyPlan::SlurmBlock]),
            ..none
        },
        _ => return None,
    })
}

fn exporter_forces(family: &str) -> Option<Forced> {
    let none = Forced::default();
    Some(match family {
        "host_joins" => Forced { has_odd_joins: Some(true), ..none },
        "slow_cadence" => {
            Forced { scrape_s: Some(&[30.0, 60.0]), collect_s: Some(&[15.0, 30.0, 30.0]), ..none }
        }
        "fast_cadence" => {
            Forced { scrape_s: Some(&[1.0, 2.0]), collect_s: Some(&[1.0, 5.0, 10.0, 30.0]), ..none }
        }
        "long_gauges" => Forced { gauge_window_s: Some((10.0, 60.0)), ..none },
        "minimal_metrics" => Forced { gpu_metrics: Some(GpuMetricSet::Minimal), ..none },
        "new_names" => Forced { gpu_exporter: Some(GpuExporter::Dcgm49), ..none },
        "all_metrics" => Forced {
            gpu_metrics: Some(GpuMetricSet::Full),
            host_metrics: Some(FULL_HOST),
            quirks: Some(0.5),
            ..none
        },
        "bare_hosts" => Forced { host_metrics: Some(BARE_HOST), ..none },
        "gaunt_node" => Forced {
            gpu_exporter: Some(GpuExporter::GauntNode),
            scrape_s: Some(&[1.0, 1.0, 5.0, 10.0]),
            ..none
        },
        "amd" => {
            Forced { gpu_exporter: Some(GpuExporter::Amd), model: Some(GpuModel::Mi300x), ..none }
        }
        _ => return None,
    })
}

fn work_forces(family: &str) -> Forced {
    let none = Forced::default();
    match family {
        "host_noise" => Forced { host_noise: Some(0.6), ..none },
        "gpu_mix" => Forced { gpu_mix: Some(0.6), ..none },
        "mig_slices" => Forced { has_mig: Some(true), ..none },
        "deep_jobs" => Forced { job_style: Some(JobStyle::Deep), ..none },
        "input_bound" => Forced { job_style: Some(JobStyle::InputBound), ..none },
        "serving_mix" => Forced { has_serving: Some(true), nodes: Some((5, 14)), ..none },
        "alternating_jobs" => Forced { job_style: Some(JobStyle::Alternate), ..none },
        "shared_nodes" => Forced { shares_nodes: Some(true), ..none },
        "drift" => Forced { drift: Some(0.7), ..none },
        "tiny_clusters" => Forced { nodes: Some((1, 3)), ..none },
        "big_clusters" => Forced { nodes: Some((24, 32)), ..none },
        _ => none,
    }
}
