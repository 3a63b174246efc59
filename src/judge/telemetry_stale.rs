//! Stale telemetry: hung drivers, so that a page contains no GPU, and pages whose values no longer change.

use gaunt_schema::{
    AbsenceReason, DeviceClass, Dialect, Entity, FindingKind, MetricId, SanitizedText,
    catalogue::{exporter, gpu},
};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    pending_finding::{PendingFinding, format_count, format_time_of_day},
    sample_interval::SampleInterval,
};
use gaunt_cluster::{Cluster, Node, TargetHealth, TrackedTarget};

/// Adds the nodes with a hung driver, and those with unchanging pages.
pub(super) fn detect_stale_telemetry(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    for (_, node) in cluster.sorted_nodes() {
        outcome.suspicions.extend(detect_driver_hang(judge, cluster, node));
        let stale = detect_stale_data(judge, cluster, node);
        let stale = stale.or_else(|| detect_missing_values(judge, cluster, node));
        outcome.suspicions.extend(stale);
    }
}

/// Detects that the exporter answers and reports its GPU values as stale: a driver call has not returned.
fn detect_driver_hang(
    judge: &JudgeState,
    cluster: &Cluster,
    node: &Node,
) -> Option<PendingFinding> {
    let limits = &judge.limits;
    let gpus = node.device_rows(DeviceClass::Gpu);
    // A missing page is no evidence about the driver; this one arrived, and names the stale collector.
    if node.sampled.is_none_or(|at| cluster.is_stale(at)) {
        return None;
    }
    let late = gpus.iter().filter(|row| is_gpu_stale(cluster, **row)).count();
    let failing = node
        .device_rows(DeviceClass::Collector)
        .iter()
        .find(|row| cluster.current_value(exporter::COLLECTOR_SUCCESS, **row) == Some(0.0));
    if gpus.is_empty() || late < gpus.len() {
        return None;
    }
    let collector = cluster.device_at(DeviceClass::Collector, *failing?)?;
    let empty = SanitizedText::default();
    let name = collector.device.key.first().unwrap_or(&empty);
    let why = collector.info_label(exporter::COLLECTOR_INFO, "message");
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let kinds =
        1 + usize::from(judge.job_groups.most_slowed_on(gpus, limits.slowed_ratio).is_some());
    let jobs = judge
        .job_groups
        .groups_on(gpus)
        .into_iter()
        .flat_map(|group| group.list_victims(cluster, None));
    let jobs: Vec<Entity> = jobs.filter(|victim| victim.node.is_none()).collect();
    Some(
        PendingFinding::of(FindingKind::DriverHung, Entity::new_node(&node.name), kinds, true)
            .with_hold_seconds(limits.driver_hung_seconds)
            .with_cost(0.0, jobs)
            .with_summary(
                format!("The GPU driver of {} hangs{why}.", node.name),
                format!("Check the kernel log of {} (dmesg) and for unkillable processes (state D); drain it, then reset the GPUs or reboot.", node.name),
            )
            .with_evidence([
                EvidenceRow::StaleGpus.to_evidence(Some(late as f64), Some(gpus.len() as f64)).with_note("limit: all GPUs of the node"),
                EvidenceRow::CollectorSuccess.to_evidence(Some(0.0), Some(1.0)).with_name(name).with_note("limit: expected value"),
            ]),
    )
}

/// Whether the page itself reports its values of a GPU as stale.
fn is_gpu_stale(cluster: &Cluster, row: u32) -> bool {
    [gpu::UTILIZATION, gpu::POWER]
        .into_iter()
        .any(|metric| cluster.current_reading(metric, row) == Some(AbsenceReason::Stale.into()))
}

/// Share of the time without a changed value after which staleness is pending.
const WATCHED_SHARE: f64 = 0.25;

/// Detects pages that arrive without any changed value. It is pending long before its limit, so that a restart of the
/// aggregator, which forgets when a page changed last, does not begin the wait anew.
fn detect_stale_data(judge: &JudgeState, cluster: &Cluster, node: &Node) -> Option<PendingFinding> {
    let limits = &judge.limits;
    let period = cluster.scrape_period().as_secs_f64();
    let usual = limits.stale_seconds.max(limits.stale_periods * period);
    // The values of GPUs at work change at each collection, and how often that is was measured.
    let works = node.device_rows(DeviceClass::Gpu).iter().any(|row| {
        judge.gpus.get(*row as usize).is_some_and(|gpu| {
            gpu.averages
                .utilization_now()
                .is_some_and(|busy| busy >= limits.utilization_launch_ratio)
        })
    });
    let renewed = SampleInterval::of_gpus(cluster, node).seconds();
    let is_precise = reports_any(cluster, node, &[gpu::ENERGY, gpu::POWER]);
    let is_measured = node.renewals(DeviceClass::Gpu).interval().is_some();
    let least = if works && is_precise && is_measured {
        stale_seconds_at_work(judge, renewed).min(usual)
    } else {
        usual
    };
    let watched = (least * WATCHED_SHARE).max(1.5 * period).min(least);
    let frozen = |target: &&TrackedTarget| {
        let unchanged =
            target.last_change().map(|at| cluster.now().duration_since(at).as_secs_f64());
        target.health == TargetHealth::Live
            && target
                .dialect
                .is_some_and(|dialect| has_changing_values(cluster, node, dialect, works))
            && unchanged.is_some_and(|seconds| seconds >= watched)
    };
    let targets = node.sources.iter().filter_map(|source| cluster.target_by_id(source.target));
    let frozen: Vec<&TrackedTarget> = targets.filter(frozen).collect();
    let first = frozen.first()?;
    let since = frozen.iter().filter_map(|target| target.last_change()).min()?;
    let address = &first.target.address;
    let others = match frozen.len() {
        1 => String::new(),
        more => format!(" and {} more", format_count(more - 1, "target")),
    };
    Some(
        PendingFinding::of(FindingKind::DataStale, Entity::new_node(&node.name), 1, true)
            .with_hold_seconds(least - watched)
            .with_summary(
                format!("{address}{others} on {} serves stale metrics: no value changed since {}.", node.name, format_time_of_day(since)),
                format!("Restart the exporter at {address}; check that the driver or daemon it reads from responds."),
            )
            .with_evidence([EvidenceRow::StaleTime.to_evidence(Some(cluster.now().duration_since(since).as_secs_f64()),
                Some(least),
            )]),
    )
}

/// Seconds without a changed value that are too long for GPUs at work whose values are renewed this often.
fn stale_seconds_at_work(judge: &JudgeState, renewed_s: f64) -> f64 {
    let limits = &judge.limits;
    (limits.stale_periods * renewed_s + limits.sample_slack_seconds)
        .max(limits.stale_working_seconds)
}

/// Detects that the exporters of a node's GPUs answer, and none of the values that they had of its GPUs is left: DCGM and
/// others leave out what the driver does not tell. Errors that were counted before stay.
fn detect_missing_values(
    judge: &JudgeState,
    cluster: &Cluster,
    node: &Node,
) -> Option<PendingFinding> {
    let rows = node.device_rows(DeviceClass::Gpu);
    let last_of = |row: &u32| {
        let times = GPU_VALUES.iter().filter_map(|it| cluster.last_value_at(*it, *row));
        times.max().filter(|at| cluster.is_stale(*at))
    };
    let since = rows.iter().map(last_of).collect::<Option<Vec<_>>>()?.into_iter().max()?;
    let targets = node.sources.iter().filter(|source| reads_gpus(source.dialect));
    let targets: Vec<&TrackedTarget> =
        targets.map(|source| cluster.target_by_id(source.target)).collect::<Option<_>>()?;
    let first = targets.first()?;
    // What does not answer is told as such.
    if targets.iter().any(|target| target.health != TargetHealth::Live) {
        return None;
    }
    let renewed = SampleInterval::of_gpus(cluster, node).seconds();
    let least = stale_seconds_at_work(judge, renewed);
    let lasts = cluster.now().duration_since(since).as_secs_f64();
    let (address, name) = (&first.target.address, &node.name);
    Some(
        PendingFinding::of(FindingKind::DataStale, Entity::new_node(name), 1, true)
            .with_hold_seconds((least - cluster.freshness_window().as_secs_f64()).max(0.0))
            .with_summary(
                format!("{address} on {name} answers without the values of its GPUs since {}.", format_time_of_day(since)),
                format!("Check whether the driver of {name} responds (nvidia-smi, dmesg), and the daemon that the exporter reads from; then restart the exporter at {address}."),
            )
            .with_evidence([EvidenceRow::StaleTime.to_evidence(Some(lasts), Some(least))]),
    )
}

/// Values that every exporter of GPUs has at least one of.
const GPU_VALUES: [MetricId; 5] =
    [gpu::UTILIZATION, gpu::POWER, gpu::TEMPERATURE, gpu::SM_CLOCK, gpu::ENERGY];

/// Whether a page of this dialect is about GPUs, and says of none of them why a value is missing.
fn reads_gpus(dialect: Dialect) -> bool {
    use Dialect::{AllSmi, Amd, Dcgm, Gaudi, NvidiaSmi};
    matches!(dialect, Dcgm | Amd | NvidiaSmi | AllSmi | Gaudi)
}

/// Whether some value on a page of this dialect changes between scrapes, whatever the node does: a clock, an energy
/// counter, a sensor. A list of utilization and memory alone never changes while a GPU is idle, and temperatures are rounded
/// to a degree. Exporters that round power to a watt show a change only while their GPUs work.
fn has_changing_values(cluster: &Cluster, node: &Node, dialect: Dialect, works: bool) -> bool {
    let reports = |sensors| reports_any(cluster, node, sensors);
    match dialect {
        Dialect::Gaunt | Dialect::NodeExporter => true,
        Dialect::Dcgm | Dialect::Amd => {
            reports(&[gpu::ENERGY, gpu::POWER]) || works && reports(&[gpu::TEMPERATURE])
        }
        Dialect::NvidiaSmi | Dialect::AllSmi | Dialect::Gaudi => works && reports(&[gpu::POWER]),
        _ => false,
    }
}

/// Whether any GPU of a node has one of these values.
fn reports_any(cluster: &Cluster, node: &Node, sensors: &[MetricId]) -> bool {
    let mut rows = node.device_rows(DeviceClass::Gpu).iter();
    rows.any(|row| sensors.iter().any(|it| cluster.current_value(*it, *row).is_some()))
}
