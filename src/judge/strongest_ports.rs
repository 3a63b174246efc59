//! Where a queue is, among the ports of a job that show one: those of the nodes that show it most. The others take part in
//! the same collectives and wait as well, for a shorter time.

use std::collections::{BTreeMap, BTreeSet};

use super::robust_stats::median;

/// What shows that packets queue up at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CongestionSign {
    /// A queue that its switch reports: that is where it is, whatever others show.
    Queued,
    /// ECN marks.
    Marked,
    /// Time for which it waits to send.
    Waits,
    /// Time for which it is paused.
    Paused,
    /// Packets that are lost and sent again.
    Resends,
}

/// What shows that packets queue up at a port of a node, and how much more of that there is than usual.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShownCongestion {
    /// The index of the node.
    pub(super) node: usize,
    pub(super) sign: CongestionSign,
    pub(super) strength: f64,
}

/// The weakest node of those where the queue is shows it so many times as much as the strongest one of the others.
const STRONGER_TIMES: f64 = 1.7;

/// The least nodes that share something: one alone is a receiver.
const LEAST_NODES: usize = 2;

/// Finds the ports that show congestion on nodes that only wait for what others of their job show far more of. `jobs` has
/// the jobs of each port's node.
pub(super) fn find_weaker_ports(
    ports: &[Option<ShownCongestion>],
    jobs: &[BTreeSet<usize>],
) -> Vec<usize> {
    let Some(sign) = most_common_sign(ports) else { return Vec::new() };
    let shown = || {
        let all = ports.iter().zip(jobs).enumerate();
        all.filter_map(|(at, (port, jobs))| Some((at, (*port)?, jobs)))
            .filter(|(_, port, _)| port.sign == sign)
    };
    let mut of_nodes: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let mut of_jobs: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (_, port, jobs) in shown() {
        of_nodes.entry(port.node).or_default().push(port.strength);
        for job in jobs {
            of_jobs.entry(*job).or_default().insert(port.node);
        }
    }
    let strengths: BTreeMap<usize, f64> =
        of_nodes.into_iter().filter_map(|(id, values)| Some((id, median(values)?))).collect();
    let cut_of = |nodes: &BTreeSet<usize>| {
        find_cut(nodes.iter().filter_map(|id| strengths.get(id)).copied().collect())
    };
    let cuts: BTreeMap<usize, f64> =
        of_jobs.iter().filter_map(|(job, nodes)| Some((*job, cut_of(nodes)?))).collect();
    // What shows less than any part of those jobs takes no part in it.
    let Some(least) = cuts.values().copied().reduce(f64::min) else { return Vec::new() };
    let is_weaker = |port: &ShownCongestion, jobs: &BTreeSet<usize>| {
        let Some(strength) = strengths.get(&port.node) else { return false };
        let cut_of = |job: &usize| cuts.get(job).copied().unwrap_or(least);
        *strength < jobs.iter().map(cut_of).reduce(f64::min).unwrap_or(least)
    };
    let weaker = shown().filter(|(_, port, jobs)| is_weaker(port, jobs));
    weaker.map(|(at, ..)| at).collect()
}

/// Returns what shows the congestion of most ports.
fn most_common_sign(ports: &[Option<ShownCongestion>]) -> Option<CongestionSign> {
    let mut counts: BTreeMap<CongestionSign, usize> = BTreeMap::new();
    for port in ports.iter().flatten() {
        *counts.entry(port.sign).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(sign, _)| sign)
}

/// Returns the strength that parts the nodes of a job, of which at most half are far stronger than all others.
fn find_cut(mut strengths: Vec<f64>) -> Option<f64> {
    strengths.sort_by(|a, b| b.total_cmp(a));
    let gap = |at: usize| strengths[at - 1] / strengths[at].max(f64::MIN_POSITIVE);
    let at = (LEAST_NODES..=strengths.len() / 2).max_by(|a, b| gap(*a).total_cmp(&gap(*b)))?;
    (gap(at) >= STRONGER_TIMES).then(|| strengths[at - 1] / STRONGER_TIMES.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_nodes_that_show_far_more_are_parted_from_the_others() {
        let parted = |strengths: &[f64]| {
            let cut = find_cut(strengths.to_vec());
            cut.map(|cut| strengths.iter().filter(|strength| **strength >= cut).count())
        };
        assert_eq!(parted(&[4.0, 1.0, 5.0, 1.2, 0.8, 4.4, 1.1]), Some(3));
        assert_eq!(parted(&[4.0, 1.0, 1.2, 0.8, 1.1]), None, "one alone");
        assert_eq!(parted(&[4.0, 3.0, 2.2, 1.5, 1.1, 0.8]), None, "no gap");
        assert_eq!(parted(&[4.0, 4.0, 5.0, 1.0]), None, "most of them");
        assert_eq!(parted(&[4.0, 4.0, 0.0, 0.0]), Some(2));
    }

    #[test]
    fn queue_that_a_switch_reports_is_kept_whatever_others_show() {
        let jobs = vec![BTreeSet::from([0]); 5];
        let shown = |node, sign, strength| Some(ShownCongestion { node, sign, strength });
        let ports = [
            shown(0, CongestionSign::Marked, 9.0),
            shown(1, CongestionSign::Marked, 8.0),
            shown(2, CongestionSign::Marked, 1.0),
            shown(3, CongestionSign::Marked, 1.0),
            shown(4, CongestionSign::Queued, 0.0),
        ];
        assert_eq!(find_weaker_ports(&ports, &jobs), [2, 3]);
    }
}
