//! Clocks that need no other GPU to compare them with: those of jobs on one node fall below their own past, and some are
//! far below what their model reaches, for as long as anybody has looked.

use gaunt_cluster::Cluster;
use gaunt_schema::catalogue::gpu;

use super::{
    JudgeState,
    gpu_ratings::{HIGHEST_RATED_CLOCK, rated_clock},
    gpu_signals::GpuSignals,
    job_group::JobGroup,
    peer_clocks::model_of,
};

/// SM clock / highest clock of the model below which a busy GPU is held down by its hardware: no load needs so little, and
/// a power limit leaves more.
pub(super) const HELD_DOWN: f64 = 0.3;

/// Returns the clock below which a GPU that is busy half of the time and more is held down, if its own is.
pub(super) fn held_down(
    judge: &JudgeState,
    cluster: &Cluster,
    row: u32,
    clock: f64,
    signals: &GpuSignals,
) -> Option<f64> {
    signals.utilization.filter(|busy| *busy >= judge.limits.utilization_launch_ratio)?;
    let reported = cluster.current_value(gpu::SM_CLOCK_MAX, row).filter(|max| *max > 0.0);
    // Nearly all clocks are above that of any model, whose names need no comparison then.
    if reported.is_none() && clock >= HIGHEST_RATED_CLOCK * HELD_DOWN {
        return None;
    }
    let highest = reported.or_else(|| rated_clock(model_of(cluster, row)))?;
    let least = highest * HELD_DOWN;
    (clock > 0.0 && clock < least).then_some(least)
}

/// Power / usual power below which a GPU draws clearly less.
const LESS_POWER: f64 = 0.9;

/// Utilization / usual utilization from which a GPU is clearly busier: the same work takes it longer.
const BUSIER: f64 = 1.3;

/// The temperature in degrees Celsius below which no GPU lowers its clock for it: NVIDIA's data-centre boards begin to at 83
/// and more.
const HOT_CELSIUS: f64 = 82.0;

/// A clock that has fallen far below the lowest of its own past.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoneFall {
    /// The clock below which it has.
    pub(super) least: f64,
    /// The temperature from which heat explains that, if the GPU is as hot.
    pub(super) hot_from: Option<f64>,
}

/// Returns whether the clock of a GPU of a job on one node has fallen far below the lowest of its past while its work goes
/// on: it is as busy as ever and draws clearly less power, it is clearly busier and draws no more, or it is so hot that it
/// lowers its clock. Under a heavier load, to which a clock may yield, it draws more.
pub(super) fn fallen_alone(
    judge: &JudgeState,
    cluster: &Cluster,
    row: u32,
    group: &JobGroup,
    signals: &GpuSignals,
) -> Option<LoneFall> {
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
    let reports_reason = signals.hw_slowdown.or(signals.sw_thermal).is_some();
    let is_hot = power <= 1.0
        && !reports_reason
        && cluster.current_value(gpu::TEMPERATURE, row).is_some_and(|now| now >= HOT_CELSIUS);
    (goes_on || is_hot).then_some(LoneFall { least, hot_from: is_hot.then_some(HOT_CELSIUS) })
}
