//! Kernel time: the only host of a slower job whose kernel takes far more of its CPUs than before, while its programs do
//! not. It does by itself what devices do for the other hosts (copies and packets where RDMA is lost, packets of a smaller
//! MTU), or serves interrupts or reclaims memory. All GPUs of the job wait for it and look alike.

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{Entity, FindingKind, Severity};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    host_averages::{HostAverages, KernelTime},
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_percent},
    robust_stats::median,
    starved_node::{HOST_KINDS, told_kind},
};

/// How many times as much as before the kernel of the host takes, and at least how much more of its CPUs.
const LEAST_TIMES: f64 = 1.4;
const LEAST_RISE: f64 = 0.015;

/// How many times as large its part of the busy time is as before: a program that does more makes the kernel do more as
/// well. And how many times as much it takes as on most other hosts: a baseline from between two pauses may be low.
const LEAST_PART_TIMES: f64 = 1.25;
const LEAST_BESIDE: f64 = 1.25;

/// The largest rise of any other host, as a share of that of the host.
const MOST_ELSEWHERE: f64 = 0.25;

/// The source of the limit.
const NOTE: &str = "limit: far above its past, and far above that of the other hosts of the job";

/// The only host whose kernel time has risen.
struct BusyKernel {
    id: NodeId,
    time: KernelTime,
    /// The share from which it counts.
    limit: f64,
}

/// Adds the host of each slower job whose kernel takes far more time than before, as no other of the job does. Another
/// finding about its host has that as its evidence instead.
pub(super) fn detect_busy_kernels(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    for group in judge.job_groups.all_groups().iter().filter(|group| group.nodes.len() > 1) {
        let Some(slowed) = group.confirmed_slowdown(judge.limits.slowed_ratio) else { continue };
        let Some(found) = BusyKernel::find(judge, cluster, group) else { continue };
        let Some(node) = cluster.node_by_id(found.id) else { continue };
        let evidence = EvidenceRow::KernelTime
            .to_evidence(Some(found.time.now), Some(found.limit))
            .with_note(format!("baseline {}; {NOTE}", format_percent(found.time.baseline)));
        let is_about = |other: &PendingFinding| {
            other.finding.entity.node.as_ref() == Some(&node.name)
                && other.finding.severity > Severity::Info
        };
        let mut told = outcome.suspicions.iter_mut().filter(|other| is_about(other));
        if let Some(other) = told.next() {
            let kind = other.finding.kind;
            if HOST_KINDS.contains(&kind) || kind == FindingKind::HostBlocksNetwork {
                other.finding.evidence.push(evidence);
            }
            continue;
        }
        let is_same = |other: &PendingFinding| {
            other.finding.entity == Entity::new_node(&node.name)
                && HOST_KINDS.contains(&other.finding.kind)
        };
        outcome.suspicions.retain(|other| !is_same(other));
        let pending = found.pending_finding(judge, cluster, (group, slowed));
        outcome.suspicions.extend(pending.map(|pending| pending.with_evidence([evidence])));
    }
}

impl BusyKernel {
    fn find(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> Option<Self> {
        let time_of = |id: &NodeId| {
            judge.hosts.get(*id).and_then(|host| HostAverages::kernel_time(host, cluster))
        };
        let mut times: Vec<(NodeId, KernelTime)> =
            group.nodes.iter().filter_map(|id| Some((*id, time_of(id)?))).collect();
        times.sort_by(|(_, a), (_, b)| b.times().total_cmp(&a.times()));
        let [(id, time), others @ ..] = times.as_slice() else { return None };
        if times.len() * 2 <= group.nodes.len() {
            return None;
        }
        let (_, second) = others.first()?;
        let elsewhere = (second.times() - 1.0).max(0.0);
        let least_times = LEAST_TIMES.max(1.0 + elsewhere / MOST_ELSEWHERE);
        let beside = median(others.iter().map(|(_, other)| other.now))? * LEAST_BESIDE;
        let limit = (time.baseline * least_times).max(time.baseline + LEAST_RISE).max(beside);
        (time.now >= limit && time.part_times >= LEAST_PART_TIMES).then_some(Self {
            id: *id,
            time: *time,
            limit,
        })
    }

    fn pending_finding(
        &self,
        judge: &JudgeState,
        cluster: &Cluster,
        (group, slowed): (&JobGroup, f64),
    ) -> Option<PendingFinding> {
        let limits = &judge.limits;
        let name = &cluster.node_by_id(self.id)?.name;
        let kind = told_kind(judge, name, FindingKind::HostBound);
        let summary = format!(
            "The kernel of {name} takes {} of its CPUs, {} before, and that of no other host of {} takes so much more: the job waits for this host.",
            format_percent(self.time.now),
            format_percent(self.time.baseline),
            group.render_title(),
        );
        let next = format!(
            "On {name}, check whether NCCL still uses RDMA with GPUDirect (`NCCL_DEBUG=INFO` tells; is nvidia_peermem loaded?), the MTU and routes of its network devices, and what its kernel does (`perf top`, /proc/interrupts, compact_stall in /proc/vmstat)."
        );
        let hold = limits.unexplained_seconds.max(group.interval.two_sample_seconds(limits));
        Some(
            PendingFinding::of(kind, Entity::new_node(name), 2, true)
                .with_hold_seconds(hold)
                .with_interval(group.interval)
                .with_slowed_jobs(std::iter::once(group.group_key()))
                .with_cost(group.lost_gpus(), group.list_victims(cluster, Some(self.id)))
                .with_summary(summary, next)
                .with_evidence([
                    EvidenceRow::JobSlowdown.to_evidence(Some(slowed), Some(limits.slowed_ratio))
                ]),
        )
    }
}
