//! Draws the exporters: programs, metric sets, labels, cadence and quirks.

use super::{
    device_names::DeviceNaming,
    family::Forced,
    names::{draw_host_names, draw_join},
};
use crate::{
    cluster_plan::{ClusterPlan, GpuModel, LeafLayout, NodePlan},
    exporter_plan::{
        ExporterPlan, GpuExporter, GpuMetricSet, HostMetricSet, JobLabels, NodeExporterPlan,
        TopologyPlan,
    },
    job_plan::PausePlan,
    random::RandomKey,
};

/// Within so many seconds of a run its exporters have their restarts and stalls.
const QUIRKS_WITHIN_S: f64 = 900.0;

/// Draws the exporters of a cluster.
pub(super) fn draw_exporters(
    key: RandomKey,
    forced: &Forced,
    cluster: &ClusterPlan,
) -> ExporterPlan {
    let key = key.child("exporters");
    let gpu_exporter = draw_program(key, forced, cluster);
    let host_metrics = draw_host_metrics(key, forced);
    let scrape_s = draw_scrape(key, forced, gpu_exporter);
    let collect_s = draw_collect(key, forced, gpu_exporter, scrape_s);
    let quirks = forced.quirks.unwrap_or(0.1);
    let labels = forced.labels.unwrap_or_else(|| match key.child("labels").index(20) {
        0..=7 => JobLabels::HpcJob,
        8..=12 => JobLabels::Pods,
        _ => JobLabels::None,
    });
    let (low_window, high_window) = forced.gauge_window_s.unwrap_or((0.1, 1.0));
    let is_instant = forced.gauge_window_s.is_none() && key.child("instant").chance(0.3);
    let mut plan = ExporterPlan {
        gpu_exporter,
        gpu_metrics: forced.gpu_metrics.unwrap_or_else(|| match key.child("metrics").index(10) {
            0 | 1 => GpuMetricSet::Minimal,
            2..=6 => GpuMetricSet::Default,
            _ => GpuMetricSet::Full,
        }),
        host_metrics,
        labels,
        label_lag_s: if key.child("lags").chance(0.3) {
            key.child("lag").uniform(5.0, 70.0)
        } else {
            0.0
        },
        scrape_s,
        collect_s,
        gauge_window_s: if is_instant {
            0.0
        } else {
            key.child("window").log_uniform(low_window, high_window)
        },
        jitter_s: key.child("jitter").log_uniform(0.001, 0.03) * scrape_s,
        lost_scrapes: if key.child("loses").chance(2.0 * quirks) {
            key.child("lost").log_uniform(0.001, 0.05)
        } else {
            0.0
        },
        topology: draw_topology(key, forced, cluster),
        has_job_list: labels != JobLabels::Pods && key.child("job list").chance(0.3),
        nodes: Vec::new(),
    };
    plan.nodes = draw_nodes(key, forced, cluster, &plan);
    plan
}

fn draw_program(key: RandomKey, forced: &Forced, cluster: &ClusterPlan) -> GpuExporter {
    if cluster.nodes[0].gpus[0].model == GpuModel::Mi300x {
        return GpuExporter::Amd;
    }
    forced.gpu_exporter.unwrap_or_else(|| match key.child("program").index(20) {
        0..=2 => GpuExporter::GauntNode,
        3..=9 => GpuExporter::Dcgm3,
        10..=18 => GpuExporter::Dcgm48,
        _ => GpuExporter::Dcgm49,
    })
}

fn draw_host_metrics(key: RandomKey, forced: &Forced) -> HostMetricSet {
    let key = key.child("host metrics");
    forced.host_metrics.unwrap_or_else(|| HostMetricSet {
        has_pressure: key.child("pressure").chance(0.85),
        has_nfs: key.child("nfs").chance(0.4),
        has_ethtool: key.child("ethtool").chance(0.4),
        has_device_info: key.child("info").chance(0.85),
        has_rdma_counters: key.child("rdma").chance(0.9),
        has_processors: key.child("processors").chance(0.9),
    })
}

fn draw_scrape(key: RandomKey, forced: &Forced, exporter: GpuExporter) -> f64 {
    const USUAL: [f64; 10] = [2.0, 5.0, 5.0, 10.0, 10.0, 15.0, 15.0, 15.0, 15.0, 30.0];
    let own = exporter == GpuExporter::GauntNode;
    let usual: &[f64] = if own { &[1.0, 1.0, 1.0, 5.0, 10.0, 15.0] } else { &USUAL };
    key.child("scrape").pick(forced.scrape_s.unwrap_or(usual))
}

fn draw_collect(key: RandomKey, forced: &Forced, exporter: GpuExporter, scrape_s: f64) -> f64 {
    const USUAL: [f64; 8] = [1.0, 5.0, 10.0, 15.0, 15.0, 30.0, 30.0, 30.0];
    if exporter == GpuExporter::GauntNode {
        // It collects each second, or as seldom as it is scraped.
        return if key.child("own pace").chance(0.8) { 1.0 } else { scrape_s.min(10.0) };
    }
    key.child("collect").pick(forced.collect_s.unwrap_or(&USUAL))
}

fn draw_topology(key: RandomKey, forced: &Forced, cluster: &ClusterPlan) -> TopologyPlan {
    const USUAL: [TopologyPlan; 10] = [
        TopologyPlan::None,
        TopologyPlan::None,
        TopologyPlan::None,
        TopologyPlan::None,
        TopologyPlan::None,
        TopologyPlan::SlurmTree,
        TopologyPlan::SlurmTree,
        TopologyPlan::SlurmBlock,
        TopologyPlan::Declared,
        TopologyPlan::Declared,
    ];
    let plan = key.child("topology").pick(forced.topology.unwrap_or(&USUAL));
    let has_two_groups = cluster.nodes.len() > cluster.fabric.nodes_per_leaf;
    let is_tree_of_rails = cluster.fabric.leaf_layout == LeafLayout::PerRail
        && plan == TopologyPlan::SlurmTree
        && forced.topology.is_none();
    match plan {
        TopologyPlan::SlurmTreeStale if !has_two_groups => TopologyPlan::SlurmBlock,
        // A tree of such a fabric names groups of nodes, which are no leaf switches.
        TopologyPlan::SlurmTree if is_tree_of_rails && key.child("no tree").chance(0.5) => {
            TopologyPlan::None
        }
        plan => plan,
    }
}

fn draw_nodes(
    key: RandomKey,
    forced: &Forced,
    cluster: &ClusterPlan,
    plan: &ExporterPlan,
) -> Vec<NodeExporterPlan> {
    let racks: Vec<usize> = cluster.nodes.iter().map(|node| node.rack).collect();
    let join = draw_join(key, forced, plan.gpu_exporter);
    let names = draw_host_names(key, &racks, join, plan.gpu_exporter);
    let layer = cluster.fabric.link_layer;
    let has_info = plan.host_metrics.has_device_info || plan.gpu_exporter == GpuExporter::GauntNode;
    let naming = DeviceNaming::draw(key, forced, layer, has_info);
    let is_partly_profiled = key.child("partly profiled").chance(0.06);
    let quirks = forced.quirks.unwrap_or(0.1);
    let new_node = |((index, node), host): ((usize, &NodePlan), super::names::HostNames)| {
        let node_key = key.child("node").child_index(index);
        NodeExporterPlan {
            name: host.name,
            gpu_page_name: host.gpu_page_name,
            host_page_name: host.host_page_name,
            address: host.address,
            scrape_offset_s: node_key.child("scrape").uniform(0.0, plan.scrape_s),
            collect_offset_s: node_key.child("collect").uniform(0.0, plan.collect_s),
            has_profiling: !(is_partly_profiled && node_key.child("profile").chance(0.3)),
            ports: naming.port_names(index, node),
            gpu_numbers: gpu_numbers(key, index, node.gpus.len()),
            restarts_s: if node_key.child("restarts").chance(0.2 * quirks) {
                vec![node_key.child("restart").uniform(30.0, QUIRKS_WITHIN_S)]
            } else {
                Vec::new()
            },
            sticky_xid: (0..node.gpus.len())
                .map(|gpu| draw_sticky_xid(node_key.child("xid").child_index(gpu), quirks))
                .collect(),
            is_wait_saturated: (0..node.ports.len())
                .map(|port| node_key.child("wait").child_index(port).chance(0.4 * quirks))
                .collect(),
            blank_share: if key.child("blanks").chance(quirks) {
                node_key.child("blank").log_uniform(0.0005, 0.03)
            } else {
                0.0
            },
            stalls: draw_stalls(node_key, quirks),
        }
    };
    cluster.nodes.iter().enumerate().zip(names).map(new_node).collect()
}

/// The exporter's number of each GPU: mostly the order of the PCI addresses.
fn gpu_numbers(key: RandomKey, node: usize, gpus: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..gpus).collect();
    let is_site_odd = key.child("gpu order").chance(0.06);
    if is_site_odd && key.child("gpu order").child_index(node).chance(0.5) {
        numbers.reverse();
    }
    numbers
}

/// An error of an application long ago, mostly none.
fn draw_sticky_xid(key: RandomKey, quirks: f64) -> u32 {
    if key.chance(0.15 * quirks) { key.child("code").pick(&[13, 31, 43, 45]) } else { 0 }
}

fn draw_stalls(key: RandomKey, quirks: f64) -> Option<PausePlan> {
    let key = key.child("stalls");
    key.chance(0.1 * quirks).then(|| PausePlan {
        first_s: key.child("first").uniform(60.0, QUIRKS_WITHIN_S),
        every_s: key.child("every").uniform(200.0, 900.0),
        lasts_s: key.child("lasts").uniform(3.0, 20.0),
        is_by_one_rank: false,
    })
}
