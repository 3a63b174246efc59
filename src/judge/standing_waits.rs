//! Standing waits: the ports of one rail wait far longer to send than the other ports of their nodes, which carry as much.
//! Where that was so before the first look, their own past shows nothing.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::SanitizedText;

use super::{
    Thresholds,
    link_averages::{ALIKE_LOADS, LinkAverages, current_value},
    robust_stats::median,
};

/// How many times as long as the others of its node a port must wait: the levels of healthy ports differ by a hundred.
const STANDS_OUT_TIMES: f64 = 1_000.0;

/// The least other ports of a node to compare one with, and the least nodes on which those of a rail stand out.
const LEAST_OTHERS: usize = 2;
const LEAST_NODES: usize = 3;

/// Whether a port waits for so long that it may stand out.
pub(super) fn waits_long(cluster: &Cluster, link: &LinkAverages, limits: &Thresholds) -> bool {
    let least = limits.usual_waited_per_kilobyte * STANDS_OUT_TIMES;
    current_value(link.transmit_wait, cluster).is_some_and(|wait| wait >= least)
}

/// Returns which of the ports of one node stand out, by their position.
pub(super) fn ports_that_stand_out(
    cluster: &Cluster,
    links: &[&LinkAverages],
    limits: &Thresholds,
) -> Vec<usize> {
    let wait = |link: &LinkAverages| current_value(link.transmit_wait, cluster);
    let least = limits.usual_waited_per_kilobyte;
    let load = |link: &LinkAverages| current_value(link.utilization, cluster);
    let stands_out = |at: &usize| {
        if !waits_long(cluster, links[*at], limits) {
            return false;
        }
        let Some((own, carried)) = wait(links[*at]).zip(load(links[*at])) else { return false };
        let alike = |other: &&&LinkAverages| {
            load(other)
                .is_some_and(|load| load * ALIKE_LOADS >= carried && load <= carried * ALIKE_LOADS)
        };
        let others = links[..*at].iter().chain(&links[*at + 1..]);
        let others: Vec<f64> = others.filter(alike).filter_map(|other| wait(other)).collect();
        let usual = median(others.iter().copied()).filter(|_| others.len() >= LEAST_OTHERS);
        usual.is_some_and(|usual| own >= usual.max(least) * STANDS_OUT_TIMES)
    };
    (0..links.len()).filter(stands_out).collect()
}

/// Returns the rails of which enough ports stand out, of these ports by node, rail, and whether they do.
pub(super) fn rails_that_stand_out<'a>(
    ports: impl Iterator<Item = (NodeId, &'a SanitizedText, bool)>,
    limits: &Thresholds,
) -> BTreeSet<SanitizedText> {
    let mut rails: BTreeMap<&SanitizedText, (BTreeSet<NodeId>, usize, usize)> = BTreeMap::new();
    for (node, rail, stands_out) in ports {
        let (nodes, outstanding, all) = rails.entry(rail).or_default();
        *all += 1;
        if stands_out {
            nodes.insert(node);
            *outstanding += 1;
        }
    }
    let is_enough = |nodes: &BTreeSet<NodeId>, outstanding: usize, all: usize| {
        nodes.len() >= LEAST_NODES && outstanding as f64 >= limits.members_bad_ratio * all as f64
    };
    let found = rails.into_iter().filter(|(_, (nodes, some, all))| is_enough(nodes, *some, *all));
    found.map(|(rail, _)| rail.clone()).collect()
}
