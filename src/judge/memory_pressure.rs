//! Memory pressure: hosts of jobs whose tasks wait for memory. What a job reads and launches is swapped out meanwhile, so
//! its GPUs wait, whatever they show; a healthy host never waits for memory.

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::{DeviceClass, Entity, FindingKind, Severity, catalogue::host};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_percent},
    starved_node::{HOST_KINDS, told_kind},
};

/// Adds hosts of jobs whose tasks wait for memory. Another finding about such a host has that as its evidence instead.
pub(super) fn detect_memory_pressure(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    for (id, node) in cluster.sorted_nodes() {
        let Some(waiting) = waiting_share(cluster, node) else { continue };
        if waiting < judge.limits.memory_pressure_ratio {
            continue;
        }
        let Some(group) = largest_group(judge, node) else { continue };
        let evidence = EvidenceRow::MemoryPressure
            .to_evidence(Some(waiting), Some(judge.limits.memory_pressure_ratio));
        let is_same = |other: &PendingFinding| {
            other.finding.entity.node.as_ref() == Some(&node.name)
                && HOST_KINDS.contains(&other.finding.kind)
        };
        let mut told = outcome.suspicions.iter_mut().filter(|other| is_same(other));
        if let Some(other) = told.find(|other| other.finding.severity > Severity::Info) {
            other.finding.evidence.push(evidence);
            continue;
        }
        outcome.suspicions.retain(|other| !is_same(other));
        let found = pending_finding(judge, cluster, group, (id, node), waiting);
        outcome.suspicions.push(found.with_evidence([evidence]));
    }
}

/// Whether tasks of a host wait for memory: what it reads meanwhile is mostly what was swapped out.
pub(super) fn is_short_of_memory(judge: &JudgeState, cluster: &Cluster, id: NodeId) -> bool {
    let waiting = cluster.node_by_id(id).and_then(|node| waiting_share(cluster, node));
    waiting.is_some_and(|waiting| waiting >= judge.limits.memory_pressure_ratio)
}

/// Returns the share of the time in which a task of a host waits for memory.
fn waiting_share(cluster: &Cluster, node: &Node) -> Option<f64> {
    cluster.current_rate(host::MEMORY_PRESSURE, node.own_row()?)
}

/// Returns the job that has most of the GPUs of a node.
fn largest_group<'a>(judge: &'a JudgeState, node: &Node) -> Option<&'a JobGroup> {
    let rows = node.device_rows(DeviceClass::Gpu).iter();
    let groups: Vec<usize> = rows.filter_map(|row| judge.job_groups.group_index(*row)).collect();
    let gpus_of = |index: &&usize| groups.iter().filter(|other| *other == *index).count();
    let index = groups.iter().max_by_key(gpus_of)?;
    judge.job_groups.all_groups().get(*index)
}

fn pending_finding(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
    (id, node): (NodeId, &Node),
    waiting: f64,
) -> PendingFinding {
    let limits = &judge.limits;
    let name = &node.name;
    let kind = told_kind(judge, name, FindingKind::HostBound);
    let slowed = group.confirmed_slowdown(limits.slowed_ratio);
    let hold = limits.unexplained_seconds.max(group.interval.two_sample_seconds(limits));
    let summary = format!(
        "{name} is short of memory: its tasks wait for it {} of the time, and the GPUs of {} with them.",
        format_percent(waiting),
        group.render_title(),
    );
    let next = format!(
        "Find what takes the memory of {name} (a leak in a data loader, a container's limit, another process), and end it or give it less."
    );
    PendingFinding::of(kind, Entity::new_node(name), 1 + usize::from(slowed.is_some()), true)
        .with_hold_seconds(hold)
        .with_interval(group.interval)
        .with_cost(group.lost_gpus(), group.list_victims(cluster, Some(id)))
        .with_summary(summary, next)
        .with_evidence([EvidenceRow::JobSlowdown.to_evidence(slowed, Some(limits.slowed_ratio))])
}
