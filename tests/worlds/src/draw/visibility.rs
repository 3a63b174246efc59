//! Whether the pages of a world have anything that points to the culprit of a fault.

use super::places::collective_ports;
use crate::{
    cluster_plan::LinkLayer,
    exporter_plan::{GpuExporter, GpuMetricSet},
    fault_plan::{FaultKind, FaultPlan},
    world::World,
};

/// Whether some metric on the pages of a world differs between the culprit of a fault and its sisters, or states the
/// fault. Of a fault without such a metric only the slower pace of its job shows: no judge can name its culprit.
pub fn is_culprit_on_pages(world: &World, fault: &FaultPlan) -> bool {
    let job = fault.job.map(|job| &world.cluster.jobs[job]);
    match fault.kind {
        FaultKind::LeafCongested
        | FaultKind::RailSlow
        | FaultKind::Incast
        | FaultKind::SlowReceiver => is_congestion_on_pages(world, fault),
        // With a single machine all GPUs of the job wait alike, and no error is counted.
        FaultKind::NvswitchSlow => job.is_some_and(|job| job.nodes.len() > 1),
        FaultKind::PcieDegraded | FaultKind::NvlinkErrors => {
            let is_minimal = world.exporters.gpu_metrics == GpuMetricSet::Minimal
                && world.exporters.gpu_exporter != GpuExporter::GauntNode;
            !is_minimal || job.is_some_and(|job| job.nodes.len() * job.gpus.len() > 1)
        }
        _ => true,
    }
}

fn is_congestion_on_pages(world: &World, fault: &FaultPlan) -> bool {
    let fabric = &world.cluster.fabric;
    let metrics = world.exporters.host_metrics;
    let is_own = world.exporters.gpu_exporter == GpuExporter::GauntNode;
    if fabric.link_layer == LinkLayer::InfiniBand {
        // Time without credits, unless the counter stands at its maximum on most of the ports.
        let is_member = |rail: usize, leaf: usize| match fault.kind {
            FaultKind::RailSlow => rail == fault.rail,
            _ => leaf == fault.leaf,
        };
        let members = collective_ports(&world.cluster)
            .filter(|(_, _, rail, leaf)| is_member(*rail, *leaf))
            .map(|(node, port, ..)| world.exporters.nodes[node].is_wait_saturated[port]);
        let saturated: Vec<bool> = members.collect();
        let count = saturated.iter().filter(|is_saturated| **is_saturated).count();
        return 2 * count < saturated.len();
    }
    let has_rdma_counters = is_own || metrics.has_rdma_counters;
    let has_pauses = is_own || metrics.has_ethtool;
    // Marks and notifications; drops and timeouts where nothing prevents them; pause frames.
    let shows_counters = has_rdma_counters && (fabric.has_ecn || !fabric.has_pfc);
    let shows_pauses = has_pauses && fabric.has_pfc;
    let shows_drops = fault.kind == FaultKind::SlowReceiver && has_rdma_counters;
    shows_counters || shows_pauses || shows_drops
}
