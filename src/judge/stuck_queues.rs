//! Stuck queues: hosts on which requests wait at model servers while GPUs are idle.

use gaunt_schema::{DeviceClass, Entity, FindingKind, SanitizedText, catalogue::service};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    host_pressure::CpuPressure,
    pending_finding::{PendingFinding, format_count, format_percent},
    sample_interval::SampleInterval,
    serving_queue::sum_queues,
};
use gaunt_cluster::{Cluster, Node, NodeId};

/// Adds the nodes on which requests wait while GPUs are almost idle.
pub(super) fn detect_stuck_queues(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    for (id, node) in cluster
        .sorted_nodes()
        .filter(|(_, node)| !node.device_rows(DeviceClass::Service).is_empty())
    {
        outcome.suspicions.extend(detect_stuck_queue(judge, cluster, id, node));
    }
}

fn detect_stuck_queue(
    judge: &JudgeState,
    cluster: &Cluster,
    id: NodeId,
    node: &Node,
) -> Option<PendingFinding> {
    let limits = &judge.limits;
    let (now, gap) = (cluster.now(), cluster.freshness_window());
    let queue = sum_queues(cluster, node).filter(|queue| queue.waiting >= limits.queue_requests)?;
    let busy = node
        .device_rows(DeviceClass::Gpu)
        .iter()
        .filter_map(|row| judge.gpus.get(*row as usize)?.averages.utilization_at(now, gap));
    let busy: Vec<f64> = busy.collect();
    // Which GPU serves which model is not reported: while any of them is busy, the queue may be its own.
    let most = busy.iter().copied().reduce(f64::max)?;
    if most >= limits.queue_idle_ratio {
        return None;
    }
    let host = judge.hosts.get(id).copied().unwrap_or_default();
    let cpu = CpuPressure::of(&host, cluster, limits);
    let stands = queue.answered.is_some_and(|answered| answered <= 0.0);
    let kinds = 1 + usize::from(cpu.is_any_unusual()) + usize::from(stands);
    let kind = if cpu.pegged { FindingKind::HostBound } else { FindingKind::DataStarved };
    let services = node.device_rows(DeviceClass::Service).iter();
    let names: Vec<&str> = services
        .filter(|row| {
            cluster.current_value(service::WAITING, **row).is_some_and(|waiting| waiting > 0.0)
        })
        .filter_map(|row| {
            cluster
                .device_at(DeviceClass::Service, *row)?
                .device
                .key
                .last()
                .map(SanitizedText::as_str)
        })
        .take(MOST_NAMED)
        .collect();
    let of = if names.is_empty() { String::new() } else { format!(" for {}", names.join(", ")) };
    Some(
        PendingFinding::of(kind, Entity::new_node(&node.name), kinds, true)
            .with_hold_seconds(limits.queue_seconds.max(SampleInterval::of_pages(cluster).two_sample_seconds(limits)))
            .with_cost(busy.iter().map(|busy| 1.0 - busy).sum(), Vec::new())
            .with_summary(
                format!(
                    "{} queued{of} on {} while its {} have a utilization of at most {}.",
                    format_count(queue.waiting as usize, "request"),
                    node.name,
                    format_count(busy.len(), "GPU"),
                    format_percent(most),
                ),
                format!("Check the model server on {}: its log, the CPU load of its front end and tokenizer, and whether its KV cache is full.", node.name),
            )
            .with_evidence([
                EvidenceRow::QueuedRequests.to_evidence(Some(queue.waiting), Some(limits.queue_requests)),
                EvidenceRow::RunningRequests.to_evidence(Some(queue.running), None),
                EvidenceRow::RequestRate.to_evidence(queue.answered, None),
                EvidenceRow::BusiestGpu.to_evidence(Some(most), Some(limits.queue_idle_ratio)),
                cpu.busiest_evidence(limits).context_if(!cpu.pegged),
            ]),
    )
}

/// The maximum of models that a sentence lists.
const MOST_NAMED: usize = 3;
