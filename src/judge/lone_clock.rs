//! Clocks of jobs on one node: there is no other node to compare them with, only their own past.

use gaunt_cluster::Cluster;

use super::{JudgeState, gpu_signals::GpuSignals, job_group::JobGroup};

/// Power / usual power below which a GPU draws clearly less.
const LESS_POWER: f64 = 0.9;

/// Utilization / usual utilization from which a GPU is clearly busier: the same work takes it longer.
const BUSIER: f64 = 1.3;

/// Returns the clock below which a GPU of a job on one node has fallen far below the lowest of its past, if it has while its
/// work goes on: it is as busy as ever and draws clearly less power, or it is clearly busier and draws no more. Under a
/// heavier load, to which a clock may yield, it draws more.
pub(super) fn fallen_alone(
    judge: &JudgeState,
    cluster: &Cluster,
    row: u32,
    group: &JobGroup,
    signals: &GpuSignals,
) -> Option<f64> {
    let limits = &judge.limits;
    let averages = &judge.gpus.get(row as usize)?.averages;
    let least = averages.lowest_clock()? * limits.slow_clock_ratio;
    if group.nodes.len() > 1 || averages.clock_hertz(cluster.now(), limits)? >= least {
        return None;
    }
    let busy = signals.utilization? / averages.usual_utilization()?;
    let power = signals.power? / averages.usual_power()?;
    let goes_on =
        (busy >= limits.hungry_ratio && power < LESS_POWER) || (busy >= BUSIER && power <= 1.0);
    goes_on.then_some(least)
}
