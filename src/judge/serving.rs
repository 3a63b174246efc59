//! Model servers: whether requests wait at them, and hosts on which requests wait beside GPUs that have nothing to do.

use gaunt_schema::{Class, Entity, FindingKind, Safe, catalogue::service, unit::Unit};

use super::{
    Evidence, Judge,
    finding::{Suspicion, count, percent},
    life::Seen,
    starved::Cpu,
};
use crate::cluster::{Cluster, Node, NodeId};

/// What the model servers of a node say of their work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Queue {
    /// Requests that wait.
    pub(super) waiting: f64,
    /// Requests that are being answered.
    pub(super) running: f64,
    /// Requests that were answered in a second, if that is known.
    pub(super) answered: Option<f64>,
}

/// The queues of all model servers of a node together; none if it has none, or none says how many wait.
pub(super) fn queue(cluster: &Cluster, node: &Node) -> Option<Queue> {
    let mut queue: Option<Queue> = None;
    for row in node.rows(Class::Service) {
        let Some(waiting) = cluster.value(service::WAITING, *row) else { continue };
        let all = queue.get_or_insert_default();
        all.waiting += waiting;
        all.running += cluster.value(service::RUNNING, *row).unwrap_or_default();
        if let Some(answered) = cluster.rate(service::REQUESTS, *row) {
            *all.answered.get_or_insert(0.0) += answered;
        }
    }
    queue
}

/// Adds the nodes on which requests wait and GPUs do next to nothing.
pub(super) fn find(judge: &Judge, cluster: &Cluster, seen: &mut Seen) {
    for (id, node) in cluster.nodes().filter(|(_, node)| !node.rows(Class::Service).is_empty()) {
        seen.suspicions.extend(stuck(judge, cluster, id, node));
    }
}

fn stuck(judge: &Judge, cluster: &Cluster, id: NodeId, node: &Node) -> Option<Suspicion> {
    let limits = &judge.limits;
    let (now, gap) = (cluster.now(), cluster.fresh_for());
    let queue = queue(cluster, node).filter(|queue| queue.waiting >= limits.queue_requests)?;
    let busy = node
        .rows(Class::Gpu)
        .iter()
        .filter_map(|row| judge.gpus.get(*row as usize)?.averages.utilization_at(now, gap));
    let busy: Vec<f64> = busy.collect();
    // Which GPU serves which model nobody says: while any of them works hard, the queue may be its own.
    let most = busy.iter().copied().reduce(f64::max)?;
    if most >= limits.queue_idle_ratio {
        return None;
    }
    let host = judge.hosts.get(&id).copied().unwrap_or_default();
    let cpu = Cpu::of(&host, cluster, limits);
    let stands = queue.answered.is_some_and(|answered| answered <= 0.0);
    let kinds = 1 + usize::from(cpu.any()) + usize::from(stands);
    let kind = if cpu.pegged { FindingKind::HostBound } else { FindingKind::DataStarved };
    let services = node.rows(Class::Service).iter();
    let names: Vec<&str> = services
        .filter(|row| cluster.value(service::WAITING, **row).is_some_and(|waiting| waiting > 0.0))
        .filter_map(|row| cluster.device(Class::Service, *row)?.device.key.last().map(Safe::as_str))
        .take(MOST_NAMED)
        .collect();
    let of = if names.is_empty() { String::new() } else { format!(" for {}", names.join(", ")) };
    Some(
        Suspicion::of(kind, Entity::node(&node.name), kinds, true)
            .hold(limits.queue_seconds.max(judge.two_samples(cluster)))
            .costs(busy.iter().map(|busy| 1.0 - busy).sum(), Vec::new())
            .says(
                format!(
                    "{} wait{of} on {}, and its {} are busy {} of the time at most.",
                    count(queue.waiting as usize, "request"),
                    node.name,
                    count(busy.len(), "GPU"),
                    percent(most),
                ),
                format!("Look at the model server on {}: its log, its front end and tokenizer on the CPU, and whether its cache is full.", node.name),
            )
            .on([
                Evidence::new("requests that wait", Some(queue.waiting), Unit::Count, Some(limits.queue_requests)),
                Evidence::new("requests that are being answered", Some(queue.running), Unit::Count, None),
                Evidence::new("requests answered in a second", queue.answered, Unit::Count, None),
                Evidence::new("utilization of the busiest GPU", Some(most), Unit::Ratio, Some(limits.queue_idle_ratio)).note("the limit is an upper one"),
                Evidence::new("busiest CPU of the host", cpu.busiest, Unit::Ratio, Some(limits.busiest_cpu_ratio)),
            ]),
    )
}

/// Models that are named in a sentence.
const MOST_NAMED: usize = 3;
