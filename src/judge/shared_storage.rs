//! Storage that jobs on one node each share: one job does not tell whether its node or the storage is slow, several that
//! begin to wait for IO at about the same time do.

use std::collections::BTreeSet;

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::{Entity, EntityKind, Finding, FindingKind, UnixMs};

use super::{
    JudgeState,
    host_evidence::PressureSource,
    job_group::JobGroup,
    memory_pressure::is_short_of_memory,
    starved_node::{StarvedNode, told_kind},
};

/// Seconds within which the jobs on one node each must have begun to wait for what they share.
const TOGETHER_SECONDS: f64 = 120.0;

/// The least share of all jobs on one node each that do: where there are thousands of them, a few do by chance.
const LEAST_SHARE: f64 = 0.02;

/// A job on one node whose tasks wait for IO.
pub(super) struct LoneWaiter<'a> {
    pub(super) group: &'a JobGroup,
    pub(super) starved: StarvedNode<'a>,
    /// Whether its GPUs show it now.
    pub(super) is_shown: bool,
    /// How long a page about its node alone waits.
    pub(super) page_delay: f64,
}

impl<'a> LoneWaiter<'a> {
    /// Finds a job on one node whose host waits for IO longer than before while that is told of its node or of storage: its
    /// GPUs do not show it in each sample.
    pub(super) fn find_pressed(
        judge: &'a JudgeState,
        cluster: &'a Cluster,
        group: &'a JobGroup,
    ) -> Option<Self> {
        let [id] = group.nodes[..] else { return None };
        let host = judge.hosts.get(id)?;
        host.excess_io_pressure(cluster, &judge.limits)?;
        if !host.evidence.is_likely(PressureSource::Io) {
            return None;
        }
        if told_of(judge, cluster, id).is_none() && !is_told(judge) {
            return None;
        }
        let starved = StarvedNode::of_idle_rows(judge, cluster, group, id, None, false)?;
        Some(Self { group, starved, is_shown: false, page_delay: 0.0 })
    }
}

/// Splits jobs on one node each into those that wait for storage that they share, and those that wait for their own node.
pub(super) fn split_waiters<'a>(
    judge: &JudgeState,
    cluster: &Cluster,
    mut waiters: Vec<LoneWaiter<'a>>,
) -> (Vec<LoneWaiter<'a>>, Vec<LoneWaiter<'a>>) {
    // Several jobs on one node say no more than one of them.
    let mut nodes = BTreeSet::new();
    waiters.sort_by_key(|waiter| !waiter.is_shown);
    waiters.retain(|waiter| nodes.insert(waiter.starved.id));
    let (swapping, waiters): (Vec<_>, Vec<_>) = waiters
        .into_iter()
        .partition(|waiter| is_short_of_memory(judge, cluster, waiter.starved.id));
    let (shared, mut rest) = split_waiters_for_storage(judge, cluster, waiters);
    rest.extend(swapping);
    (shared, rest)
}

fn split_waiters_for_storage<'a>(
    judge: &JudgeState,
    cluster: &Cluster,
    waiters: Vec<LoneWaiter<'a>>,
) -> (Vec<LoneWaiter<'a>>, Vec<LoneWaiter<'a>>) {
    if waiters.iter().any(|waiter| waits_for_server(judge, cluster, waiter)) {
        return waiters.into_iter().partition(|waiter| waits_for_server(judge, cluster, waiter));
    }
    if is_told(judge) && waiters.len() as f64 >= judge.limits.sharing_members {
        return (waiters, Vec::new());
    }
    if waiters.iter().all(|waiter| !waiter.is_shown) {
        return (Vec::new(), waiters);
    }
    let mut begins: Vec<(UnixMs, LoneWaiter<'a>)> = waiters
        .into_iter()
        .map(|waiter| {
            let since = told_of(judge, cluster, waiter.starved.id);
            (since.unwrap_or(cluster.now()), waiter)
        })
        .collect();
    begins.sort_by_key(|(since, _)| *since);
    let (from, count) = longest_run(&begins.iter().map(|(since, _)| *since).collect::<Vec<_>>());
    let mut rest: Vec<LoneWaiter<'a>> = begins.into_iter().map(|(_, waiter)| waiter).collect();
    let lone = judge.job_groups.all_groups().iter().filter(|group| group.nodes.len() == 1).count();
    let least = judge.limits.sharing_members.max(lone as f64 * LEAST_SHARE);
    if (count as f64) < least {
        return (Vec::new(), rest);
    }
    let shared = rest.drain(from..from + count).collect();
    (shared, rest)
}

/// Whether the network file systems of its node answer late, and those of no other node as usual.
fn waits_for_server(judge: &JudgeState, cluster: &Cluster, waiter: &LoneWaiter<'_>) -> bool {
    let limits = &judge.limits;
    let is_as_usual = |(id, _): (NodeId, &Node)| {
        let host = judge.hosts.get(id);
        let known = host.filter(|_| id != waiter.starved.id);
        known.is_some_and(|host| {
            let is_known =
                host.compare_response_time(cluster).is_some_and(|it| it.baseline.is_some());
            is_known && host.slow_response(cluster, limits).is_none()
        })
    };
    waiter.starved.slow_response(judge, cluster).is_some()
        && !cluster.sorted_nodes().any(is_as_usual)
}

fn is_told(judge: &JudgeState) -> bool {
    let storage = Entity::new(EntityKind::Storage);
    judge.tracker.open_one(&Finding::build_id(FindingKind::StorageSlow, &storage)).is_some()
}

/// Returns since when a node is suspected, or told, to wait for input.
fn told_of(judge: &JudgeState, cluster: &Cluster, id: NodeId) -> Option<UnixMs> {
    let node = cluster.node_by_id(id)?;
    let kind = told_kind(judge, &node.name, FindingKind::DataStarved);
    judge.tracker.suspected_since(&Finding::build_id(kind, &Entity::new_node(&node.name)))
}

/// Returns the start and the length of the longest run of sorted instants that lie close together.
fn longest_run(sorted: &[UnixMs]) -> (usize, usize) {
    let (mut from, mut longest) = (0, (0, 0));
    for (at, last) in sorted.iter().enumerate() {
        while last.duration_since(sorted[from]).as_secs_f64() > TOGETHER_SECONDS {
            from += 1;
        }
        if at + 1 - from > longest.1 {
            longest = (from, at + 1 - from);
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_began_to_wait_at_about_one_time_are_the_longest_run() {
        let run = |seconds: &[i64]| {
            longest_run(&seconds.iter().map(|at| UnixMs(at * 1_000)).collect::<Vec<_>>())
        };
        assert_eq!(run(&[]), (0, 0));
        assert_eq!(run(&[10]), (0, 1));
        assert_eq!(run(&[10, 200, 260, 300, 500]), (1, 3));
        assert_eq!(run(&[10, 200, 300, 400, 410, 420]), (2, 4));
    }
}
