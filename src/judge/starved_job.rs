//! Starved jobs: most hosts of a slower job wait for CPUs together. No node is to blame: all of its data loaders are too
//! slow, or too few CPUs were asked for.

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::FindingKind;

use super::{
    EvidenceRow, JudgeState, Thresholds,
    finding_lifecycle::DetectorOutcome,
    host_averages::BaselineComparison,
    host_evidence::PressureSource,
    host_pressure::CpuPressure,
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_percent},
    robust_stats::median,
    usual_pressure::compare_pressure,
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

/// The nodes of a job whose hosts are short of CPUs together.
pub(super) struct CpuWaiters<'a> {
    nodes: Vec<&'a NodeId>,
    /// What shows it: tasks that wait for a CPU, or where that is not known, the busiest CPU.
    source: PressureSource,
}

impl<'a> CpuWaiters<'a> {
    /// Finds those of a job, if most of its hosts are short of CPUs.
    pub(super) fn find(judge: &JudgeState, cluster: &Cluster, group: &'a JobGroup) -> Option<Self> {
        [PressureSource::Cpu, PressureSource::BusiestCpu].into_iter().find_map(|source| {
            let waits = |id: &&NodeId| {
                judge.hosts.get(**id).is_some_and(|host| {
                    let cpu = CpuPressure::of(host, cluster, &judge.limits);
                    let busiest = host.compare_busiest_cpu(cluster);
                    let is_over = if source == PressureSource::Cpu {
                        cpu.pressed
                    } else {
                        // One that idles most of the time that it did keeps nobody waiting.
                        cpu.pegged && leaves_little_idle(busiest, &judge.limits)
                    };
                    is_over && host.evidence.is_likely(source)
                })
            };
            let nodes: Vec<&NodeId> = group.nodes.iter().filter(waits).collect();
            // How busy one CPU is varies far more than how long tasks wait.
            let all = group.nodes.len();
            let are_most = nodes.len() > 1
                && match source {
                    PressureSource::BusiestCpu => nodes.len() * 4 >= all * 3,
                    _ => nodes.len() * 2 > all,
                };
            are_most.then_some(Self { nodes, source })
        })
    }

    pub(super) fn has_node(&self, id: NodeId) -> bool {
        self.nodes.contains(&&id)
    }

    /// Returns the medians of what shows it now and before, and of its limit.
    fn pressure(&self, judge: &JudgeState, cluster: &Cluster) -> Option<(f64, f64, Option<f64>)> {
        let limits = &judge.limits;
        let hosts = || self.nodes.iter().filter_map(|id| judge.hosts.get(**id));
        let compared = || hosts().filter_map(|host| compare_pressure(self.source, host, cluster));
        let now = median(compared().map(|cpu| cpu.now))?;
        let before = median(compared().filter_map(|cpu| cpu.baseline)).unwrap_or_default();
        let limit = if self.source == PressureSource::Cpu {
            let least = limits.cpu_pressure_ratio;
            median(compared().map(|cpu| cpu.limit_beside_baseline(least, limits)))
        } else {
            median(compared().filter_map(|cpu| least_busy(cpu, limits)))
        };
        Some((now, before, limit))
    }
}

/// Whether half of the time that a CPU idled before is gone, and a large part of all time.
fn leaves_little_idle(busiest: Option<BaselineComparison>, limits: &Thresholds) -> bool {
    busiest.is_some_and(|busiest| {
        least_busy(busiest, limits).is_some_and(|least| busiest.now >= least)
    })
}

/// Returns the busy share from which a CPU is far busier than before.
fn least_busy(busiest: BaselineComparison, limits: &Thresholds) -> Option<f64> {
    let baseline = busiest.baseline?;
    Some(f64::midpoint(baseline, 1.0).max(baseline + limits.busiest_cpu_rise_ratio))
}

fn starved_job(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> Option<PendingFinding> {
    let limits = &judge.limits;
    // What has just begun loads and compiles.
    if group.nodes.len() < 2
        || group.may_pause
        || !group.is_progressing()
        || !judge.gangs.of(group).is_slower(group, limits)
    {
        return None;
    }
    let waiting = CpuWaiters::find(judge, cluster, group)?;
    let (now, before, limit) = waiting.pressure(judge, cluster)?;
    let slowed = group.slowdown_ratio();
    let (row, does, name) = match waiting.source {
        PressureSource::BusiestCpu => {
            (EvidenceRow::BusiestCpu, "have far busier CPUs than before", "busiest CPU")
        }
        _ => (EvidenceRow::CpuPressure, "wait for CPUs together", "CPU pressure"),
    };
    let summary = format!(
        "{} is data-starved: {} of its {} hosts {does} ({name} {}, before {}); it is {} slower.",
        group.render_title(),
        waiting.nodes.len(),
        group.nodes.len(),
        format_percent(now),
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
            .with_cost(group.lost_gpus(), group.list_victims(cluster, None))
            .with_summary(summary, next.to_owned())
            .with_evidence([
                row.to_evidence(Some(now), limit),
                EvidenceRow::JobSlowdown.to_evidence(slowed, Some(limits.slowed_ratio)),
            ]),
    )
}
