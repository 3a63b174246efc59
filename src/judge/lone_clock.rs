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
const HELD_DOWN: f64 = 0.3;

/// The same of a GPU so hot that it lowers its clock, whatever its limits: NVIDIA's data-centre boards do from 87 degrees
/// Celsius on at the latest.
const HELD_DOWN_BY_HEAT: f64 = 0.6;
const HEAT_CELSIUS: f64 = 90.0;

/// A clock far below what its model reaches.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldDown {
    /// The highest clock of its model.
    pub(super) highest: f64,
    /// The clock below which it is held down.
    pub(super) least: f64,
    /// The temperature from which heat explains that, if the GPU is as hot.
    pub(super) hot_from: Option<f64>,
}

/// Returns how the clock of a GPU that is busy half of the time and more is held down, if it is.
pub(super) fn held_down(
    judge: &JudgeState,
    cluster: &Cluster,
    row: u32,
    clock: f64,
    signals: &GpuSignals,
) -> Option<HeldDown> {
    signals.utilization.filter(|busy| *busy >= judge.limits.utilization_launch_ratio)?;
    let hot = cluster.current_value(gpu::TEMPERATURE, row).filter(|now| *now >= HEAT_CELSIUS);
    let share = if hot.is_some() { HELD_DOWN_BY_HEAT } else { HELD_DOWN };
    let reported = cluster.current_value(gpu::SM_CLOCK_MAX, row).filter(|max| *max > 0.0);
    // Nearly all clocks are above that of any model, whose names need no comparison then.
    if reported.is_none() && clock >= HIGHEST_RATED_CLOCK * share {
        return None;
    }
    let highest = reported.or_else(|| rated_clock(model_of(cluster, row)))?;
    let least = highest * share;
    let hot_from = hot.map(|_| HEAT_CELSIUS);
    (clock > 0.0 && clock < least).then_some(HeldDown { highest, least, hot_from })
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

/// Returns whether the clock of a GPU has fallen far below the lowest of its past for what its peers need not show: it is so
/// hot that it lowers its clock, or its job is on one node and its work goes on: it is as busy as ever and draws clearly less
/// power, or it is clearly busier and draws no more. Under a heavier load, to which a clock may yield, it draws more.
pub(super) fn fallen_alone(
    judge: &JudgeState,
    cluster: &Cluster,
    row: u32,
    group: Option<&JobGroup>,
    signals: &GpuSignals,
) -> Option<LoneFall> {
    let limits = &judge.limits;
    let averages = &judge.gpus.get(row as usize)?.averages;
    let least = averages.lowest_clock()? * limits.slow_clock_ratio;
    if averages.clock_hertz(cluster.now(), limits)? >= least {
        return None;
    }
    let power = signals.power? / averages.usual_power()?;
    let reports_reason = signals.hw_slowdown.or(signals.sw_thermal).is_some();
    let is_hot = power <= 1.0
        && !reports_reason
        && cluster.current_value(gpu::TEMPERATURE, row).is_some_and(|now| now >= HOT_CELSIUS);
    let goes_on = || {
        group.filter(|group| group.nodes.len() == 1)?;
        let busy = signals.utilization? / averages.usual_utilization()?;
        Some(
            (busy >= limits.hungry_ratio && power < LESS_POWER) || (busy >= BUSIER && power <= 1.0),
        )
    };
    (is_hot || goes_on() == Some(true))
        .then_some(LoneFall { least, hot_from: is_hot.then_some(HOT_CELSIUS) })
}
