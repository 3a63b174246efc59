//! Waiting senders: where no switch marks packets, ports that wait for credits or are paused tell that packets queue up
//! further on, and not where. If all ports of a job on one rail wait but one, they wait for that one (incast).

use std::collections::BTreeMap;

use gaunt_schema::{DeviceClass, SanitizedText};

use super::{
    JudgeState,
    loaded_ports::{Congestion, LoadedPort},
};
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

/// A port of a job on one rail.
#[derive(Clone, Copy, Debug)]
struct RailMember<'a> {
    /// Its index among all ports.
    index: usize,
    leaf: Option<&'a SanitizedText>,
    congested: Option<Congestion>,
}

/// Finds the receivers that the ports of a job wait for.
pub(super) fn find_awaited_receivers(
    judge: &JudgeState,
    cluster: &Cluster,
    ports: &[LoadedPort<'_>],
) -> Vec<AwaitedReceiver> {
    let mut rails: BTreeMap<(usize, &SanitizedText), Vec<RailMember<'_>>> = BTreeMap::new();
    for (index, port) in ports.iter().enumerate() {
        let Some(node) = cluster.node_by_id(port.node) else { continue };
        let mut jobs = node
            .device_rows(DeviceClass::Gpu)
            .iter()
            .filter_map(|row| judge.job_groups.group_index(*row));
        // A port that several jobs use waits for any of them.
        let Some(job) = jobs.next().filter(|job| jobs.all(|other| other == *job)) else { continue };
        let member = RailMember { index, leaf: port.leaf, congested: port.congested };
        rails.entry((job, &port.rail)).or_default().push(member);
    }
    let mut awaited: Vec<AwaitedReceiver> = rails.into_values().filter_map(find_awaited).collect();
    drop_lone_nodes(&mut awaited, |receiver| (ports[receiver].node, ports[receiver].leaf));
    awaited
}

/// Drops the receivers of a node that the others wait for on several rails, if its switches are not known: it is more likely
/// that it alone is connected to another switch than that all of its ports receive too much.
fn drop_lone_nodes<'a, N: Ord>(
    awaited: &mut Vec<AwaitedReceiver>,
    place: impl Fn(usize) -> (N, Option<&'a SanitizedText>),
) {
    let mut rails: BTreeMap<N, usize> = BTreeMap::new();
    for receiver in awaited.iter() {
        *rails.entry(place(receiver.receiver).0).or_default() += 1;
    }
    awaited.retain(|receiver| {
        let (node, leaf) = place(receiver.receiver);
        leaf.is_some() || rails[&node] == 1
    });
}

/// Returns the only port that does not wait, if the others wait below the same leaf, as far as leaves are known.
fn find_awaited(members: Vec<RailMember<'_>>) -> Option<AwaitedReceiver> {
    let (senders, calm): (Vec<RailMember<'_>>, Vec<RailMember<'_>>) =
        members.into_iter().partition(|port| port.congested.is_some());
    let [receiver] = calm[..] else { return None };
    let waits = |port: &RailMember<'_>| {
        port.congested.is_some_and(|congested| congested.is_of_sender) && port.leaf == receiver.leaf
    };
    let is_awaited = senders.len() >= LEAST_SENDERS && senders.iter().all(waits);
    let senders = senders.into_iter().map(|port| port.index).collect();
    is_awaited.then_some(AwaitedReceiver { receiver: receiver.index, senders })
}

#[cfg(test)]
mod tests {
    use super::super::strongest_ports::CongestionSign;
    use super::*;

    /// A port that waits to send, receives marks, or does neither.
    fn member(
        index: usize,
        leaf: Option<&SanitizedText>,
        is_of_sender: Option<bool>,
    ) -> RailMember<'_> {
        let congested = is_of_sender.map(|is_of_sender| Congestion {
            is_certain: true,
            is_of_sender,
            is_standing: false,
            sign: CongestionSign::Waits,
            strength: 1.0,
        });
        RailMember { index, leaf, congested }
    }

    fn awaited(signs: [Option<bool>; 4]) -> Option<(usize, Vec<usize>)> {
        let members = (0..).zip(signs).map(|(index, sign)| member(index, None, sign)).collect();
        find_awaited(members).map(|awaited| (awaited.receiver, awaited.senders))
    }

    #[test]
    fn all_but_one_port_of_a_job_wait_for_that_one() {
        let (waits, marked) = (Some(true), Some(false));
        assert_eq!(awaited([waits, waits, None, waits]), Some((2, vec![0, 1, 3])));
        assert_eq!(awaited([waits; 4]), None, "they wait for what they share");
        assert_eq!(awaited([waits, waits, None, None]), None, "of two neither is known");
        assert_eq!(awaited([waits, marked, None, waits]), None, "marks locate the queue");
    }

    #[test]
    fn port_below_another_leaf_is_not_awaited_by_those_of_one_leaf() {
        let leaves: [SanitizedText; 2] = ["leaf-1".into(), "leaf-2".into()];
        let of_leaves = |receiver: usize| {
            let sender = |index| member(index, Some(&leaves[0]), Some(true));
            vec![sender(0), sender(1), member(2, Some(&leaves[receiver]), None)]
        };
        assert!(find_awaited(of_leaves(0)).is_some());
        assert!(find_awaited(of_leaves(1)).is_none(), "the leaf itself may be congested");
        let one_sender = vec![member(0, None, Some(true)), member(1, None, None)];
        assert!(find_awaited(one_sender).is_none());
    }

    #[test]
    fn node_that_is_awaited_on_several_rails_is_below_another_switch() {
        let leaf: SanitizedText = "leaf-1".into();
        let left = |places: [(u32, Option<&SanitizedText>); 3]| {
            let awaited = |receiver| AwaitedReceiver { receiver, senders: vec![7, 8] };
            let mut all = (0..3).map(awaited).collect();
            drop_lone_nodes(&mut all, |at| places[at]);
            all.iter().map(|awaited| awaited.receiver).collect::<Vec<_>>()
        };
        assert_eq!(left([(1, None), (2, None), (1, None)]), [1]);
        assert_eq!(left([(1, Some(&leaf)), (2, None), (1, Some(&leaf))]), [0, 1, 2]);
    }
}
