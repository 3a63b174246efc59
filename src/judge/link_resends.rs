//! Lone resends: the only port of a job that sends packets again. Packets get lost on its link, although no counter of the
//! link itself says so. Where a queue drops packets, or a receiver is slow, all that send to it do.

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{DeviceClass, catalogue::port};

use super::{
    JudgeState,
    job_group::JobGroup,
    link_averages::{LinkAverages, PACKET_BYTES, current_value},
    rare_events::PeerEvents,
};

/// The share of its packets that a port sends again from which its job may be slower for that.
const LEAST_SHARE: f64 = 1e-6;

/// How many times as much it sends again as any port of the job's other nodes.
const LONE_TIMES: f64 = 10.0;

/// Ports of a node send about the same again if none does so many times as much.
const ALIKE_TIMES: f64 = 2.0;

/// The least other nodes of the job.
const LEAST_OTHERS: usize = 1;

/// The packets that a port of a slower job sends again, and no other node of the job does.
pub(super) struct LoneResends {
    /// Packets per second.
    pub(super) rate: f64,
    /// How many ports of its node do about the same, itself included, where most of them do: they are lost on their way to
    /// other hosts, and not on the link of each. Only the first of them tells it.
    pub(super) of_node: Option<usize>,
}

/// Returns what this port of a slower job sends again, if no other node of the job does, and none has errors of a link,
/// which would explain it; `peers` are the recent errors of all ports.
pub(super) fn lone_resends(
    judge: &JudgeState,
    cluster: &Cluster,
    (id, row): (NodeId, u32),
    group: &JobGroup,
    peers: PeerEvents,
) -> Option<LoneResends> {
    let limits = &judge.limits;
    let resends_of = |link: &LinkAverages| current_value(link.retransmitted, cluster);
    let own = judge.links.of(row)?;
    let rate = resends_of(own).filter(|rate| *rate >= limits.errors_per_second)?;
    let packets = cluster.current_rate(port::TRANSMIT_PACKETS, row);
    let packets = packets.or_else(|| {
        cluster.current_rate(port::TRANSMIT_BYTES, row).map(|bytes| bytes / PACKET_BYTES)
    })?;
    if rate < packets * LEAST_SHARE || group.confirmed_slowdown(limits.slowed_ratio).is_none() {
        return None;
    }
    let links_of = |id: NodeId| {
        let node = cluster.node_by_id(id);
        let rows = node.map(|node| node.device_rows(DeviceClass::Port)).unwrap_or_default();
        rows.iter().filter_map(|row| judge.links.of(*row))
    };
    let has_errors = |link: &LinkAverages| {
        current_value(link.errors, cluster).is_some_and(|rate| rate >= limits.errors_per_second)
            || link.error_events.is_unusual(peers)
    };
    if group.nodes.iter().any(|id| links_of(*id).any(has_errors)) {
        return None;
    }
    let most_of = |id: &NodeId| links_of(*id).filter_map(resends_of).reduce(f64::max);
    let others = group.nodes.iter().filter(|other| **other != id);
    let others: Vec<f64> = others.filter_map(most_of).collect();
    let is_lone = others.len() >= LEAST_OTHERS && others.iter().all(|it| it * LONE_TIMES <= rate);
    if !is_lone {
        return None;
    }
    let rows = cluster.node_by_id(id).map(|node| node.device_rows(DeviceClass::Port))?;
    let rate_of = |row: &u32| resends_of(judge.links.of(*row)?);
    let resends_much = |row: &&u32| rate_of(row).is_some_and(|it| it * ALIKE_TIMES >= rate);
    let alike: Vec<&u32> = rows.iter().filter(resends_much).collect();
    if alike.len() > 1 && alike.len() * 2 > rows.len() {
        let of_node = Some(alike.len());
        return (**alike.first()? == row).then_some(LoneResends { rate, of_node });
    }
    // Of the ports of its node it is the one that sends most again.
    let is_most = most_of(&id).is_some_and(|most| rate >= most);
    is_most.then_some(LoneResends { rate, of_node: None })
}
