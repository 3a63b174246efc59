//! GPUs whose clock declines relative to their peers: samples of the clock ratio, and its comparison with the baseline.

use gaunt_cluster::Cluster;
use gaunt_schema::{DeviceClass, UnixMs};

use super::{JudgeState, moving_average::CompactTimestamp};

/// Samples every GPU whose load is at its baseline.
pub(super) fn observe_clocks(judge: &mut JudgeState, cluster: &Cluster) {
    for (_, node) in cluster.sorted_nodes() {
        let Some(at) = node.last_fed(DeviceClass::Gpu) else { continue };
        let stamp = CompactTimestamp::of(at);
        for row in node.device_rows(DeviceClass::Gpu) {
            let known = judge.gpus.get(*row as usize).map(|gpu| gpu.drift);
            let Some(mut drift) = known.filter(|drift| !drift.is_sampled_at(stamp)) else {
                continue;
            };
            let Some(beside) = clock_over_peers(judge, cluster, *row, at) else { continue };
            drift.add_clock_ratio(beside, stamp, judge.frozen.has_gpu(*row), &judge.limits);
            judge.gpus[*row as usize].drift = drift;
        }
    }
}

/// Returns the clock / peer median, present and baseline, of a GPU whose clock has declined.
pub(super) fn declined_clock(
    judge: &JudgeState,
    cluster: &Cluster,
    row: u32,
) -> Option<(f64, f64)> {
    let drift = judge.gpus.get(row as usize)?.drift;
    let now = clock_over_peers(judge, cluster, row, cluster.now())?;
    // A GPU that is as fast as its peers, or has recovered, does not delay others: it was faster for a while.
    let baseline = drift.baseline_ratio();
    let least = 1.0 - judge.limits.drift_slack_ratio;
    let slower = now < baseline.min(1.0) * least;
    (slower && fell_itself(judge, cluster, row) && drift.has_declined(&judge.limits))
        .then_some((now, baseline))
}

/// Whether the clock of a GPU is clearly below its own baseline, if that is known: without job labels others join or leave
/// the GPUs that it is compared with, and their median changes.
fn fell_itself(judge: &JudgeState, cluster: &Cluster, row: u32) -> bool {
    let Some(averages) = judge.gpus.get(row as usize).map(|gpu| &gpu.averages) else {
        return false;
    };
    let clock = averages.clock_hertz(cluster.now(), &judge.limits);
    let least = 1.0 - judge.limits.as_ever_ratio;
    clock.zip(averages.usual_clock()).is_none_or(|(clock, usual)| clock < usual * least)
}

/// Returns the clock / peer median, while its load and power are not above their baselines: with more load the clock
/// falls, and while waiting it rises.
fn clock_over_peers(judge: &JudgeState, cluster: &Cluster, row: u32, at: UnixMs) -> Option<f64> {
    let (limits, gap) = (&judge.limits, cluster.freshness_window());
    let averages = &judge.gpus.get(row as usize)?.averages;
    judge.job_groups.of(row)?;
    let busy =
        averages.utilization_at(at, gap)? >= averages.usual_utilization()? * limits.hungry_ratio;
    let at_baseline_power =
        averages.power_at(at, gap)? <= averages.usual_power()? * (1.0 + limits.as_ever_ratio);
    if !busy || !at_baseline_power {
        return None;
    }
    let peer_median = judge.job_groups.clocks_of_peers(&judge.gpus, cluster, limits, row)?.median;
    (peer_median > 0.0).then_some(averages.clock_hertz(at, limits)? / peer_median)
}
