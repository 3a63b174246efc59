//! Starved jobs: most hosts of a slower job wait for CPUs together. No node is to blame: all of its data loaders are too
//! slow, or too few CPUs were asked for.

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::FindingKind;

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    host_evidence::PressureSource,
    host_pressure::CpuPressure,
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_percent},
    robust_stats::median,
};

/// Adds the jobs of which most hosts wait for CPUs.
pub(super) fn detect_starved_jobs(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let groups = judge.job_groups.all_groups().iter();
    outcome.suspicions.extend(groups.filter_map(|group| starved_job(judge, cluster, group)));
}

/// Returns the nodes of a job whose hosts wait for CPUs, if most of its hosts do.
pub(super) fn nodes_waiting_for_cpus<'a>(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &'a JobGroup,
) -> Option<Vec<&'a NodeId>> {
    let waits = |id: &&NodeId| {
        judge.hosts.get(**id).is_some_and(|host| {
            CpuPressure::of(host, cluster, &judge.limits).pressed
                && host.evidence.is_likely(PressureSource::Cpu)
        })
    };
    let waiting: Vec<&NodeId> = group.nodes.iter().filter(waits).collect();
    (waiting.len() > 1 && waiting.len() * 2 > group.nodes.len()).then_some(waiting)
}

fn starved_job(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> Option<PendingFinding> {
    let limits = &judge.limits;
    if group.nodes.len() < 2 || group.may_pause || !judge.gangs.of(group).is_slower(group, limits) {
        return None;
    }
    let waiting = nodes_waiting_for_cpus(judge, cluster, group)?;
    let compared = || {
        let hosts = waiting.iter().filter_map(|id| judge.hosts.get(**id));
        hosts.filter_map(|host| host.compare_cpu_pressure(cluster))
    };
    let now = median(compared().map(|cpu| cpu.now));
    let before = median(compared().filter_map(|cpu| cpu.baseline)).unwrap_or_default();
    let slowed = group.slowdown_ratio();
    let limit =
        median(compared().map(|cpu| cpu.limit_beside_baseline(limits.cpu_pressure_ratio, limits)));
    let lost = group.lost_gpus();
    let summary = format!(
        "{} is data-starved: {} of its {} hosts wait for CPUs together (CPU pressure {}, before {}); it is {} slower.",
        group.render_title(),
        waiting.len(),
        group.nodes.len(),
        format_percent(now?),
        format_percent(before),
        format_percent(slowed?),
    );
    let next = "Check the data loaders of the job: how many there are, and how many CPUs it asked for; and what else runs on its nodes.";
    let mut pending = PendingFinding::of(FindingKind::DataStarved, group.to_entity(), 2, true);
    // The job itself may have more to load for each step than before.
    pending.cap_severity();
    Some(
        pending
            .with_hold_seconds(limits.shared_storage_seconds)
            .with_interval(group.interval)
            .with_members([group.group_key()])
            .with_slowed_jobs(std::iter::once(group.group_key()))
            .with_cost(lost, group.list_victims(cluster, None))
            .with_summary(summary, next.to_owned())
            .with_evidence([
                EvidenceRow::CpuPressure.to_evidence(now, limit),
                EvidenceRow::JobSlowdown.to_evidence(slowed, Some(limits.slowed_ratio)),
            ]),
    )
}
