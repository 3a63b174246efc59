//! The GPUs of a job on one of its nodes: which they are, which are low, and how busy the others are.

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::{DeviceClass, catalogue::gpu};

use super::{
    JudgeState, host_averages::HostAverages, host_pressure::CpuPressure, job_group::JobGroup,
    robust_stats::median,
};

/// Below this number of nodes a node is left out of the median that it is compared with.
const FEW_NODES: usize = 4;

/// Returns the GPUs of a node that are in a job group, without those whose process has just begun: it loads and compiles.
pub(super) fn rows_in_group(
    judge: &JudgeState,
    cluster: &Cluster,
    node: &Node,
    group: &JobGroup,
) -> Vec<u32> {
    let starts = |row: u32| {
        let gpu = judge.gpus.get(row as usize);
        gpu.is_some_and(|gpu| gpu.start.is_starting(cluster.now()))
    };
    let is_in = |row: &&u32| {
        let of = judge.job_groups.of(**row);
        of.is_some_and(|other| std::ptr::eq(other, group)) && !starts(**row)
    };
    node.device_rows(DeviceClass::Gpu).iter().filter(is_in).copied().collect()
}

/// Returns the median utilization of a job group, without these GPUs if they could move it: among many nodes one does
/// not, of a few it is left out. None where the group has no other node.
pub(super) fn utilization_elsewhere(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
    rows: &[u32],
) -> Option<f64> {
    let (now, gap) = (cluster.now(), cluster.freshness_window());
    let busy = |row: &u32| judge.gpus.get(*row as usize)?.averages.utilization_at(now, gap);
    match group.nodes.len() {
        0 | 1 => None,
        2..FEW_NODES => {
            median(group.gpus.iter().filter(|row| !rows.contains(row)).filter_map(busy))
        }
        _ => group.utilization,
    }
}

/// Returns by how much a GPU is less busy than usual.
pub(super) fn gpu_utilization_drop(judge: &JudgeState, cluster: &Cluster, row: u32) -> Option<f64> {
    let averages = &judge.gpus.get(row as usize)?.averages;
    let busy = averages.utilization_at(cluster.now(), cluster.freshness_window())?;
    Some(averages.usual_utilization()? - busy)
}

/// Returns by how much the GPUs of a job on one of its nodes are less busy than usual.
pub(super) fn utilization_drop(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
    id: NodeId,
) -> Option<f64> {
    let rows = rows_in_group(judge, cluster, cluster.node_by_id(id)?, group);
    median(rows.iter().filter_map(|row| gpu_utilization_drop(judge, cluster, *row)))
}

/// Returns the median pace of a job group without these GPUs.
pub(super) fn pace_elsewhere(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
    rows: &[u32],
) -> Option<f64> {
    let (now, gap) = (cluster.now(), cluster.freshness_window());
    let pace =
        |row: &u32| judge.gpus.get(*row as usize)?.averages.activity_ratio(now, gap, &judge.limits);
    median(group.gpus.iter().filter(|row| !rows.contains(row)).filter_map(pace))
}

/// Where pages come rarely, GPU activity may be known from single instants only, while host pressure and job pace are
/// counted: GPUs that were low a moment ago still count as low while both last.
pub(super) fn low_between_samples(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
    host: &HostAverages,
    rows: &[u32],
) -> Option<Vec<u32>> {
    let limits = &judge.limits;
    let counted = |row: &u32| cluster.current_rate(gpu::UTILIZATION_SECONDS, *row).is_some();
    let io = host.excess_io_pressure(cluster, limits).is_some();
    let cpu = CpuPressure::of(host, cluster, limits);
    let slowed = group.slowdown_ratio().is_some_and(|slowed| slowed >= limits.slowed_ratio);
    if rows.iter().any(counted) || !slowed || !(io || cpu.pressed || cpu.crowded) {
        return None;
    }
    let lately = |row: &&u32| {
        let gpu = judge.gpus.get(**row as usize);
        let since = gpu.and_then(|gpu| gpu.averages.since_low(cluster.now()));
        since.is_some_and(|seconds| {
            seconds <= 2.0 * group.interval.seconds() + limits.sample_slack_seconds
        })
    };
    let low: Vec<u32> = rows.iter().filter(lately).copied().collect();
    (!low.is_empty()).then_some(low)
}
