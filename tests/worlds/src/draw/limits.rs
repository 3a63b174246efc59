//! How fast a fault can be detected: the time limits, and the healthy past that a judge needs before the onset.

use crate::{
    cluster_plan::ClusterPlan,
    exporter_plan::ExporterPlan,
    fault_plan::{FaultCourse, FaultKind, FaultPlan},
    job_plan::{JobPlan, PausePlan},
};

/// Least seconds of healthy past before an onset.
const LEAST_PAST_S: f64 = 180.0;

/// Least scrapes, and least collections, in that past.
const LEAST_LOOKS: f64 = 12.0;

/// Least steps of the longest cycle of a job in that past.
const LEAST_STEPS: f64 = 6.0;

/// Steps that a limit leaves, beside its base.
const LIMIT_STEPS: f64 = 2.5;

/// What a fault is told by.
struct LimitBase {
    /// Seconds for a fault of 20 % at a scrape and a collection each second.
    base_s: f64,
    /// Whether less loss takes longer.
    is_sized: bool,
    /// Whether values of the GPUs are needed.
    is_on_gpus: bool,
}

/// Whether a kind has a loss that is chosen.
pub(super) fn is_sized(kind: FaultKind) -> bool {
    limit_base(kind).is_sized
}

fn limit_base(kind: FaultKind) -> LimitBase {
    use FaultKind as Kind;
    let (base_s, is_sized, is_on_gpus) = match kind {
        Kind::PortDown | Kind::PortFlap | Kind::ExporterDown => (5.0, false, false),
        Kind::PortRateLow => (10.0, false, false),
        Kind::GpuLost | Kind::GpuMemoryErrors => (5.0, false, true),
        Kind::LeafCongested | Kind::RailSlow | Kind::Incast | Kind::SlowReceiver => {
            (30.0, true, false)
        }
        Kind::LinkErrors => (60.0, true, false),
        Kind::StorageSlowForJob | Kind::StorageSlowForAll | Kind::PcieDegraded => {
            (60.0, true, true)
        }
        Kind::DriverHung => (30.0, false, true),
        Kind::Hang => (90.0, false, true),
        Kind::StageImbalance | Kind::DataSkew => (120.0, true, true),
        Kind::IdleAllocated => (600.0, false, true),
        Kind::LoaderSlowLoud
        | Kind::LoaderSlowSilent
        | Kind::GpuClockLow
        | Kind::GpuThermal
        | Kind::PowerBrake
        | Kind::LaunchBound
        | Kind::NvlinkErrors
        | Kind::NvswitchSlow => (30.0, true, true),
    };
    LimitBase { base_s, is_sized, is_on_gpus }
}

/// Seconds of a cycle of a job: a step, a period of accumulation, both turns of an alternating job.
pub(super) fn cycle_s(job: &JobPlan) -> f64 {
    job.step_s * (1 + job.step.accumulation_steps) as f64
}

/// Seconds before an onset for which nothing is wrong, at least.
pub(super) fn healthy_past_s(cluster: &ClusterPlan, exporters: &ExporterPlan) -> f64 {
    let cycles = cluster.jobs.iter().map(cycle_s);
    let longest_s = cycles.fold(0.0, f64::max);
    LEAST_PAST_S
        .max(LEAST_LOOKS * exporters.scrape_s)
        .max(LEAST_LOOKS * exporters.collect_s)
        .max(LEAST_STEPS * longest_s)
}

/// Seconds after its onset by which a fault that first shows at an instant must be found.
pub(super) fn limit_s(
    cluster: &ClusterPlan,
    exporters: &ExporterPlan,
    fault: &FaultPlan,
    shown_from_s: Option<f64>,
) -> f64 {
    let base = limit_base(fault.kind);
    let mut seconds = base.base_s;
    if base.is_sized && fault.loss > 0.0 {
        seconds *= match fault.loss {
            loss if loss < 0.1 => 4.0,
            loss if loss < 0.2 => 2.0,
            _ => 1.0,
        };
        // Without a past of its own, a machine can only be compared with its sisters.
        if fault.onset_s < 0.0 {
            seconds *= 2.0;
        }
    }
    seconds += 2.0 * (exporters.scrape_s - 1.0).max(0.0);
    if base.is_on_gpus {
        seconds += 2.0 * (exporters.collect_s - 1.0).max(0.0) + exporters.gauge_window_s;
    }
    seconds += match fault.course {
        FaultCourse::Steady | FaultCourse::Healed { .. } => 0.0,
        FaultCourse::Intermittent { every_s, .. } => every_s,
        FaultCourse::Growing { over_s } => over_s,
    };
    let from_s = shown_from_s.unwrap_or(fault.onset_s).max(fault.onset_s).max(0.0);
    if let Some(job) = fault.job.and_then(|job| cluster.jobs.get(job)) {
        // What a device states itself does not wait for a period of accumulation.
        let is_stated = base.base_s <= 10.0;
        seconds += LIMIT_STEPS * if is_stated { job.step_s } else { cycle_s(job) };
        seconds = with_pauses(job, from_s, seconds);
    }
    from_s - fault.onset_s + seconds
}

/// A time with the pauses of the job that fall into it.
fn with_pauses(job: &JobPlan, from_s: f64, seconds: f64) -> f64 {
    let mut total_s = seconds;
    // A pause makes it longer, and another pause may fall into that.
    for _ in 0..4 {
        let pauses = [&job.checkpoint, &job.evaluation].into_iter().flatten();
        let within = |pause: &PausePlan| pause_seconds(pause, from_s, from_s + total_s);
        total_s = seconds + pauses.map(within).sum::<f64>();
    }
    total_s
}

/// Seconds of pauses that begin or last between two instants.
fn pause_seconds(pause: &PausePlan, from_s: f64, until_s: f64) -> f64 {
    let first = ((from_s - pause.lasts_s - pause.first_s) / pause.every_s).ceil().max(0.0);
    let starts = (0..).map(|n| pause.first_s + (first + f64::from(n)) * pause.every_s);
    let lasts = starts
        .take_while(|start| *start < until_s)
        .map(|start| (start + pause.lasts_s - start.max(from_s)).max(0.0));
    lasts.sum()
}

/// The first pause that begins after an instant.
pub(super) fn next_pause_s(pause: &PausePlan, after_s: f64) -> f64 {
    let number = ((after_s - pause.first_s) / pause.every_s).ceil().max(0.0);
    pause.first_s + number * pause.every_s
}
