//! Waited-for nodes: a node whose GPUs idle for minutes while the rest of its job busy-waits for them.
//!
//! Its own past need not show it, as where it was so at the first look; the rest of the job does: in a synchronous job all nodes do the same work, and those
//! that wait for a collective keep their engines busy. A node that does the same work with far less utilization waits for
//! its host, and the others wait for it.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{Entity, FindingKind, SanitizedText, Severity};

use super::{
    EvidenceRow, JudgeState, Thresholds,
    finding_lifecycle::DetectorOutcome,
    host_averages::BaselineComparison,
    job_group::JobGroup,
    node_means::NodeMean,
    pending_finding::{PendingFinding, format_percent},
    ranks_on_node::rows_in_group,
    robust_stats::median,
    sample_interval::NEARLY_ALL,
    starved_node::{HOST_KINDS, told_kind},
};

/// The least nodes of a job of which one stands out.
const LEAST_NODES: usize = 2;

/// The least samples of a node.
const LEAST_SAMPLES: f64 = 8.0;

/// A node for which the rest of its job waits.
struct WaitedForNode {
    id: NodeId,
    utilization: f64,
    /// The median utilization of the other nodes.
    others: f64,
    /// Its work / the median of the others.
    work: f64,
}

/// Adds nodes for which the rest of their job waits, where nothing more urgent is told of their host.
pub(super) fn detect_waited_for_nodes(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    for group in judge.job_groups.all_groups() {
        if group.nodes.len() < LEAST_NODES || !group.is_progressing() {
            continue;
        }
        let Some(found) = WaitedForNode::find(judge, cluster, group) else { continue };
        let Some(pending) = found.pending_finding(judge, cluster, group) else { continue };
        let is_same = |other: &PendingFinding| {
            other.finding.entity == pending.finding.entity
                && HOST_KINDS.contains(&other.finding.kind)
        };
        let is_more = |other: &PendingFinding| other.finding.severity > Severity::Info;
        if outcome.suspicions.iter().any(|other| is_same(other) && is_more(other)) {
            continue;
        }
        outcome.suspicions.retain(|other| !is_same(other));
        outcome.suspicions.push(pending);
    }
}

/// Returns the share of their time that jobs lose to a node, by index, where a finding tells it: their baseline need not
/// show it.
pub(super) fn told_losses(judge: &JudgeState, cluster: &Cluster) -> BTreeMap<usize, f64> {
    let told: BTreeSet<&str> = judge
        .tracker
        .iter_open()
        .filter(|finding| HOST_KINDS.contains(&finding.kind))
        .filter_map(|finding| finding.entity.node.as_ref().map(SanitizedText::as_str))
        .collect();
    let loss_of = |group: &JobGroup| {
        let found = WaitedForNode::find(judge, cluster, group)?;
        let name = &cluster.node_by_id(found.id)?.name;
        told.contains(name.as_str()).then(|| found.lost_share())
    };
    let groups = judge.job_groups.all_groups().iter().enumerate();
    let groups = groups.filter(|_| !told.is_empty());
    groups.filter_map(|(position, group)| Some((position, loss_of(group)?))).collect()
}

impl WaitedForNode {
    fn find(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> Option<Self> {
        let limits = &judge.limits;
        let least = limits.pace_slow_seconds.max(LEAST_SAMPLES * group.interval.seconds());
        let known: Vec<(NodeId, NodeMean)> = judge
            .node_means
            .of(group)?
            .iter()
            .filter(|(_, mean)| f64::from(mean.seconds) >= least && mean.utilization.is_finite())
            .map(|(id, mean)| (*id, *mean))
            .collect();
        let needed = (group.nodes.len() as f64 * NEARLY_ALL).max(LEAST_NODES as f64);
        if (known.len() as f64) < needed {
            return None;
        }
        let busy = |mean: &NodeMean| f64::from(mean.utilization);
        let (id, own) = *known.iter().min_by(|a, b| busy(&a.1).total_cmp(&busy(&b.1)))?;
        let others = known.iter().filter(|(other, _)| *other != id).map(|(_, mean)| *mean);
        let others: Vec<NodeMean> = others.collect();
        // All others are busy all the time: they wait, and none of them idles as well.
        let least_busy = others.iter().map(busy).fold(f64::INFINITY, f64::min);
        let median_busy = median(others.iter().map(busy))?;
        let most = median_busy * limits.waited_for_ratio;
        let recent = own.recent.value_at(cluster.now(), cluster.freshness_window())?;
        if least_busy < limits.utilization_busy_ratio || busy(&own) > most || recent > most {
            return None;
        }
        // Ranks that differ in their work are stages, or no ranks of one job. Two nodes may be alike by chance.
        let by_tensor =
            work_share(&own, &others, |mean| mean.tensor, limits.least_work_ratio, limits);
        let by_traffic =
            work_share(&own, &others, |mean| mean.traffic, limits.silent_network_ratio, limits);
        let work = match (by_tensor, by_traffic) {
            (Some(tensor), Some(traffic)) if others.len() == 1 => tensor.min(traffic),
            (tensor, traffic) => tensor.or(traffic).filter(|_| others.len() > 1)?,
        };
        (work >= limits.waited_for_ratio).then_some(Self {
            id,
            utilization: busy(&own),
            others: median_busy,
            work,
        })
    }

    /// Returns the share of its time for which the job waits.
    fn lost_share(&self) -> f64 {
        1.0 - self.utilization / self.others
    }

    fn pending_finding(
        &self,
        judge: &JudgeState,
        cluster: &Cluster,
        group: &JobGroup,
    ) -> Option<PendingFinding> {
        let limits = &judge.limits;
        let node = cluster.node_by_id(self.id)?;
        let rows = rows_in_group(judge, cluster, node, group);
        let accepted = |row: &u32| {
            let baselines =
                judge.gpus.get(*row as usize).map(|gpu| gpu.averages.learned_baselines());
            baselines.is_some_and(|([utilization, ..], _)| utilization.is_accepted())
        };
        if rows.is_empty() || rows.iter().any(accepted) {
            return None;
        }
        let host = judge.hosts.get(self.id).copied().unwrap_or_default();
        let over = |pressure: Option<BaselineComparison>, limit: f64| {
            pressure.is_some_and(|pressure| pressure.now >= limit)
        };
        let io = over(host.compare_io_pressure(cluster), limits.io_pressure_ratio);
        let cpu = over(host.compare_cpu_pressure(cluster), limits.cpu_pressure_ratio);
        let kind = if io || cpu { FindingKind::DataStarved } else { FindingKind::HostBound };
        let name = &node.name;
        let kind = told_kind(judge, name, kind);
        let (fault, what) = match kind {
            FindingKind::DataStarved => ("data-starved", "input"),
            _ => ("host-bound", "their host"),
        };
        let (own, others) = (format_percent(self.utilization), format_percent(self.others));
        let summary = format!(
            "{name} is {fault}: its GPUs wait for {what}; utilization {own}, that of the other nodes {others} for the same work."
        );
        let next = format!(
            "Check the data loader processes on {name}, the CPUs that they may use, and what else runs there."
        );
        let lost = self.lost_share() * group.gpus.len() as f64;
        let hold = limits.unexplained_seconds.max(group.interval.two_sample_seconds(limits));
        let victims = group.list_victims(cluster, Some(self.id));
        let evidence = [
            EvidenceRow::StarvedUtilization
                .to_evidence(Some(self.utilization), Some(self.others * limits.waited_for_ratio))
                .with_threshold("waited_for_ratio")
                .with_note(format!("limit: share of the other nodes' {others}")),
            EvidenceRow::OtherUtilization.to_evidence(Some(self.others), None),
            EvidenceRow::NodeWork.to_evidence(Some(self.work), Some(limits.waited_for_ratio)),
        ];
        let pending = PendingFinding::of(kind, Entity::new_node(name), 1, true)
            .with_hold_seconds(hold)
            .with_interval(group.interval)
            .with_cost(group.lost_gpus().max(lost), victims)
            .with_summary(summary, next)
            .with_evidence(evidence);
        Some(pending)
    }
}

/// Returns the work of a node / the median of the others, if all of these do the same within the same share.
fn work_share(
    own: &NodeMean,
    others: &[NodeMean],
    work: impl Fn(&NodeMean) -> f32,
    least: f64,
    limits: &Thresholds,
) -> Option<f64> {
    let ratio = limits.waited_for_ratio;
    let work = |mean: &NodeMean| Some(f64::from(work(mean))).filter(|work| work.is_finite());
    let known: Vec<f64> = others.iter().filter_map(work).collect();
    let usual = median(known.iter().copied()).filter(|usual| *usual >= least)?;
    let is_alike = |work: &f64| *work >= usual * ratio && *work <= usual / ratio;
    let is_one_job = known.len() == others.len() && known.iter().all(is_alike);
    work(own).filter(|_| is_one_job).map(|work| work / usual)
}
