//! Waiting senders: where no switch marks packets, ports that wait for credits or are paused tell that packets queue up
//! further on, and not where. If all ports of a job on one rail wait but one, they wait for that one (incast).

use std::collections::BTreeMap;

use gaunt_schema::{DeviceClass, SanitizedText};

use super::{JudgeState, loaded_ports::LoadedPort};
use gaunt_cluster::Cluster;

/// The least number of ports that wait for one.
pub(super) const LEAST_SENDERS: usize = 2;

/// A receiver that all other ports of its job on its rail wait for.
pub(super) struct AwaitedReceiver {
    /// The index of its port.
    pub(super) receiver: usize,
    /// The indices of the ports that wait for it.
    pub(super) senders: Vec<usize>,
}

/// Finds the receivers that the ports of a job wait for.
pub(super) fn find_awaited_receivers(
    judge: &JudgeState,
    cluster: &Cluster,
    ports: &[LoadedPort<'_>],
) -> Vec<AwaitedReceiver> {
    let mut rails: BTreeMap<(usize, &SanitizedText), Vec<usize>> = BTreeMap::new();
    for (at, port) in ports.iter().enumerate() {
        let Some(node) = cluster.node_by_id(port.node) else { continue };
        let mut jobs = node
            .device_rows(DeviceClass::Gpu)
            .iter()
            .filter_map(|row| judge.job_groups.group_index(*row));
        // A port that several jobs use waits for any of them.
        let Some(job) = jobs.next().filter(|job| jobs.all(|other| other == *job)) else { continue };
        rails.entry((job, &port.rail)).or_default().push(at);
    }
    rails.into_values().filter_map(|members| find_awaited(ports, members)).collect()
}

/// Returns the only port that does not wait, if the others wait below the same leaf, as far as leaves are known.
fn find_awaited(ports: &[LoadedPort<'_>], members: Vec<usize>) -> Option<AwaitedReceiver> {
    let (senders, calm): (Vec<usize>, Vec<usize>) =
        members.into_iter().partition(|at| ports[*at].congested.is_some());
    let [receiver] = calm[..] else { return None };
    let waits = |at: &usize| {
        ports[*at].congested.is_some_and(|congested| congested.is_of_sender)
            && ports[*at].leaf == ports[receiver].leaf
    };
    let is_awaited = senders.len() >= LEAST_SENDERS && senders.iter().all(waits);
    is_awaited.then_some(AwaitedReceiver { receiver, senders })
}
