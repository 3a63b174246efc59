//! GPUs that stand still: busy at most with waiting, and without any of their usual work.

use gaunt_cluster::Cluster;

use super::{JudgeState, Thresholds, gpu_tracker::GpuTracker, job_group::JobGroup};

/// Whether the nodes of a job have stopped to send, which they usually do.
pub(super) fn has_fallen_silent(group: &JobGroup, limits: &Thresholds) -> bool {
    group.nodes.len() > 1 && group.traffic.is_some_and(|share| share < limits.standstill_ratio)
}

/// Whether a GPU does none of its baseline work. Without profiling counters, a busy-waiting GPU shows constant power that
/// is low, or lower than usual while it no longer uses its memory or while the nodes of its job have fallen `silent`. Low
/// and constant is also the power of one that works under power smoothing or a workload power profile: data that goes over
/// its NVLinks tells them apart. One whose process has just begun has nothing to stand still from; one whose process began
/// long ago and never worked stands still in its start. None without a baseline otherwise.
pub(super) fn is_still(
    judge: &JudgeState,
    cluster: &Cluster,
    gpu: &GpuTracker,
    silent: bool,
) -> Option<bool> {
    let limits = &judge.limits;
    let (now, gap) = (cluster.now(), cluster.freshness_window());
    if gpu.start.is_starting(now) {
        return Some(false);
    }
    if gpu.start.has_never_worked(now) {
        return Some(true);
    }
    let pace = gpu.averages.activity_ratio(now, gap, &judge.limits)?;
    if gpu.averages.is_profiled(now, gap) {
        return Some(pace < limits.hung_pace_ratio);
    }
    if gpu.averages.has_nvlink_traffic(now, gap, limits) == Some(true) {
        return Some(false);
    }
    let power = gpu.averages.power_at(now, gap)?;
    let flat = gpu.averages.power_spread(now, gap).is_some_and(|it| it < limits.flat_power_ratio);
    let is_low =
        (silent || power < most_waiting_power(gpu, limits)) && pace < limits.hung_power_pace_ratio;
    let memory = gpu.averages.memory_activity(now, gap, limits);
    if gpu.averages.uses_memory(now, gap, limits) {
        return Some(false);
    }
    let uses_no_memory =
        memory.is_some_and(|(activity, most)| activity < most * limits.standstill_ratio);
    Some(flat && (is_low || uses_no_memory && pace < 1.0 - limits.slowed_ratio))
}

/// Returns the power below which a GPU may busy-wait: little of its limit, or of what its work usually draws.
pub(super) fn most_waiting_power(gpu: &GpuTracker, limits: &Thresholds) -> f64 {
    let usual = gpu.averages.usual_power().unwrap_or_default();
    limits.power_waiting_ratio.max(usual * limits.hung_power_pace_ratio)
}
