//! Inference queues: requests that wait at model servers.

use gaunt_cluster::{Cluster, Node};
use gaunt_schema::{DeviceClass, catalogue::service};

/// The queue of the model servers of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ServingQueue {
    /// Waiting requests.
    pub(super) waiting: f64,
    /// Running requests.
    pub(super) running: f64,
    /// Completed requests per second, if known.
    pub(super) answered: Option<f64>,
}

/// Sums the queues of all model servers of a node; none if it has none, or none reports waiting requests.
pub(super) fn sum_queues(cluster: &Cluster, node: &Node) -> Option<ServingQueue> {
    let mut queue: Option<ServingQueue> = None;
    for row in node.device_rows(DeviceClass::Service) {
        let Some(waiting) = cluster.current_value(service::WAITING, *row) else { continue };
        let all = queue.get_or_insert_default();
        all.waiting += waiting;
        all.running += cluster.current_value(service::RUNNING, *row).unwrap_or_default();
        if let Some(answered) = cluster.current_rate(service::REQUESTS, *row) {
            *all.answered.get_or_insert(0.0) += answered;
        }
    }
    queue
}
