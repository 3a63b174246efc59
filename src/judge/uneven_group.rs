//! Uneven groups: a job group whose nodes are slower than their baseline, and the nodes that work more than the others.

use super::{JudgeState, job_group::JobGroup, robust_stats::median, work_shares::WorkHistory};
use gaunt_cluster::{Cluster, NodeId};

/// A job group in which some nodes may work more than others.
pub(super) struct UnevenGroup<'a> {
    pub(super) judge: &'a JudgeState,
    pub(super) cluster: &'a Cluster,
    pub(super) group: &'a JobGroup,
    pub(super) history: &'a WorkHistory,
    /// The share of its baseline speed that it has lost, over a longer time.
    pub(super) slowed: f64,
    /// The median pace of its nodes.
    pub(super) median_pace: f64,
    /// Nodes that work much more than the median, and how much they do.
    pub(super) overloaded: Vec<(NodeId, f64)>,
    node_count: usize,
    /// Its work is only known from single instants.
    pub(super) instants: bool,
}

impl<'a> UnevenGroup<'a> {
    /// Compares the nodes of a group; none where none of them is known.
    pub(super) fn from_group(
        judge: &'a JudgeState,
        cluster: &'a Cluster,
        group: &'a JobGroup,
    ) -> Option<Self> {
        let limits = &judge.limits;
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let history = judge.shares.history_of(group)?;
        let observed =
            history.paces.iter().filter_map(|(id, pace)| Some((*id, pace.value_at(now, gap)?)));
        // Without job labels, nodes of another, unchanged job may be among them.
        let is_unchanged =
            |pace: f64| group.job.is_none() && (pace - 1.0).abs() < limits.as_ever_ratio;
        let paces: Vec<(NodeId, f64)> = observed.filter(|(_, pace)| !is_unchanged(*pace)).collect();
        let median_pace = median(paces.iter().map(|(_, pace)| *pace))?;
        let instants = group.interval.is_slow(limits) && !group.is_profiled(&judge.gpus, now, gap);
        let times = if instants { limits.uneven_slow_times } else { limits.uneven_times };
        let node_count = paces.len();
        let slowed = (1.0 - median_pace).max(0.0);
        // The stage that the others wait for has lost next to nothing. Where all have lost alike, chance makes some
        // node an outlier: steps are few within the span of the averages.
        let least = (median_pace * times).max(1.0 - slowed * limits.uneven_lost_share);
        let overloaded = paces.into_iter().filter(|(_, pace)| *pace >= least).collect();
        Some(Self {
            judge,
            cluster,
            group,
            history,
            slowed,
            median_pace,
            overloaded,
            node_count,
            instants,
        })
    }

    /// Returns the names of the nodes that work more than the others, and how much they do; none where most do.
    pub(super) fn overloaded_nodes(&self) -> Option<(Vec<&str>, f64)> {
        let is_few = self.overloaded.len() * 2 <= self.node_count;
        let work = median(self.overloaded.iter().map(|(_, pace)| pace / self.median_pace));
        let names = self.overloaded.iter();
        let names = names.filter_map(|(id, _)| Some(self.cluster.node_by_id(*id)?.name.as_str()));
        work.filter(|_| is_few).map(|work| (names.take(MOST_NAMED).collect(), work))
    }

    /// Returns the maximum share of samples with the same busiest node: above it that node is the cause.
    pub(super) fn most_favourite(&self) -> f64 {
        // Of two nodes one is the busiest at least half of the time.
        self.judge.limits.favourite_ratio.max(1.5 / self.group.nodes.len() as f64)
    }

    /// Returns the share of samples with the same busiest node, if the busiest node changes.
    pub(super) fn rotating_share(&self) -> Option<f64> {
        let share = self.history.busiest_share(&self.judge.limits)?;
        (share < self.most_favourite()).then_some(share)
    }
}

/// The maximum of nodes that a sentence lists.
const MOST_NAMED: usize = 4;
