//! Uneven work: pipeline stages that differ, or a slowest rank that changes with the data. The cause is software:
//! informational findings that never page.

use std::{cell::OnceCell, collections::HashSet};

use gaunt_schema::{Entity, EntityKind, EvidenceItem, Finding, FindingKind};

use super::{
    EvidenceRow, JudgeState, Thresholds,
    finding_lifecycle::DetectorOutcome,
    host_pressure::HostPressure,
    idle_ranks::IdleRanks,
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_percent},
    robust_stats::median,
    work_shares::{LEAST_NODES, WorkHistory},
};
use gaunt_cluster::{Cluster, NodeId};

/// Adds job groups whose work is uneven and that are slower for it.
pub(super) fn detect_job_imbalance(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    // What is added here is informational and explains nothing: the nodes are the same for all groups.
    let explained = OnceCell::new();
    let is_explained = |group: &JobGroup, outcome: &DetectorOutcome| {
        let explained = explained.get_or_init(|| explained_nodes(cluster, outcome));
        group.nodes.iter().any(|id| explained.contains(id))
    };
    for group in judge
        .job_groups
        .all_groups()
        .iter()
        .filter(|group| group.is_progressing() && group.nodes.len() >= LEAST_NODES)
    {
        let Some(uneven) = UnevenGroup::from_group(judge, cluster, group) else { continue };
        if uneven.slowed >= judge.limits.slowed_ratio && !is_explained(group, outcome) {
            outcome.suspicions.extend(uneven.detect_imbalance());
        }
    }
}

/// Returns the nodes that a pending finding blames or lists as victims: that explains the lost time of groups there.
fn explained_nodes(cluster: &Cluster, seen: &DetectorOutcome) -> HashSet<NodeId> {
    let pending = seen.suspicions.iter().map(|pending| &pending.finding);
    let all = seen.findings.iter().chain(pending);
    let urgent = all.filter(|finding| finding.severity > gaunt_schema::Severity::Info);
    let entities =
        urgent.flat_map(|finding| std::iter::once(&finding.entity).chain(&finding.victims));
    let nodes = entities.filter_map(|entity| Some(cluster.node_by_name(entity.node.as_ref()?)?.0));
    nodes.collect()
}

/// A job group in which some nodes may work more than others.
struct UnevenGroup<'a> {
    judge: &'a JudgeState,
    cluster: &'a Cluster,
    group: &'a JobGroup,
    history: &'a WorkHistory,
    /// The share of its baseline speed that it has lost, over a longer time.
    slowed: f64,
    /// The median pace of its nodes.
    median_pace: f64,
    /// Nodes that work much more than the median, and how much they do.
    overloaded: Vec<(NodeId, f64)>,
    node_count: usize,
    /// Its work is only known from single instants.
    instants: bool,
}

impl<'a> UnevenGroup<'a> {
    fn from_group(
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
        if paces.len() < LEAST_NODES {
            return None;
        }
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

    fn detect_imbalance(&self) -> Option<PendingFinding> {
        if self.overloaded.is_empty() {
            // For single instants, chance exceeds the loss of a job.
            return if self.instants { None } else { self.detect_data_skew() };
        }
        (self.overloaded.len() * 2 <= self.node_count).then(|| self.stage_imbalance())
    }

    /// Builds the finding that some nodes always work more than the others.
    fn stage_imbalance(&self) -> PendingFinding {
        let names: Vec<&str> = self
            .overloaded
            .iter()
            .filter_map(|(id, _)| Some(self.cluster.node_by_id(*id)?.name.as_str()))
            .take(MOST_NAMED)
            .collect();
        let entity = Entity { kind: EntityKind::Stage, ..self.group.to_entity() };
        let summary = format!(
            "The pipeline stage on {} is overloaded: the other stages wait for it {} of the time.",
            names.join(", "),
            format_percent(self.slowed)
        );
        let next = "Rebalance the layers between the pipeline stages.".to_owned();
        let work = median(self.overloaded.iter().map(|(_, pace)| pace / self.median_pace));
        let limit = Some(self.judge.limits.uneven_times);
        self.of(FindingKind::StageImbalance, entity).with_summary(summary, next).with_evidence([
            self.slowdown_evidence(),
            EvidenceRow::NodeActivity.to_evidence(work, limit),
        ])
    }

    /// Returns a finding if all lose the same and no hardware or host signal explains it; at best the data shows that
    /// they wait for a different node each time.
    fn detect_data_skew(&self) -> Option<PendingFinding> {
        let limits = &self.judge.limits;
        let favourite = self.history.busiest_share(limits);
        // Of two nodes one is the busiest at least half of the time.
        let most = limits.favourite_ratio.max(1.5 / self.group.nodes.len() as f64);
        let entity = self.group.to_entity();
        // Chance favours one node for a while: an open finding is only left for a node that is nearly always the
        // busiest.
        let open = self
            .judge
            .tracker
            .open_one(&Finding::build_id(FindingKind::DataSkew, &entity))
            .is_some();
        let most = if open { f64::midpoint(most, 1.0) } else { most };
        let profile = SlowdownProfile::of(self.judge, self.cluster, self.group);
        if favourite.is_some_and(|share| share >= most)
            || self.has_other_evidence()
            || !profile.is_only_slower(limits, self.median_pace)
        {
            return None;
        }
        let summary = match favourite {
            Some(_) => format!(
                "{} waits {} of the time for the slowest rank of a step, each time another one: data skew, no node is the cause.",
                self.group.render_title(),
                format_percent(self.slowed)
            ),
            None => format!(
                "{} is {} slower on all ranks alike, and no node or port shows a cause: uneven or changed workload.",
                self.group.render_title(),
                format_percent(self.slowed)
            ),
        };
        let next =
            "Check how samples of different length are distributed over the ranks.".to_owned();
        Some(
            self.of(FindingKind::DataSkew, entity).with_summary(summary, next).with_evidence([
                self.slowdown_evidence(),
                EvidenceRow::BusiestNode
                    .to_evidence(favourite, Some(most))
                    .with_note("must stay below the limit"),
                EvidenceRow::TrafficChange
                    .to_evidence(profile.traffic, Some(self.median_pace * limits.like_pace_share))
                    .with_note("limit: share of the job's median pace"),
                EvidenceRow::ClockChange
                    .to_evidence(profile.clock, Some(limits.capped_clock_ratio))
                    .with_note("must stay above the limit"),
            ]),
        )
    }

    /// Whether something else has changed in the job: a rank idles, or a host is under pressure.
    fn has_other_evidence(&self) -> bool {
        let is_pressed = |id: &NodeId| {
            let host = self.judge.hosts.get(id);
            host.is_some_and(|host| HostPressure::of(self.judge, self.cluster, host).is_clear(host))
        };
        let idle = IdleRanks::find(self.judge, self.cluster, self.group);
        idle.is_some_and(|idle| !idle.is_empty()) || self.group.nodes.iter().any(is_pressed)
    }

    fn of(&self, kind: FindingKind, entity: Entity) -> PendingFinding {
        let lost = self.slowed * self.group.gpus.len() as f64;
        PendingFinding::of(kind, entity, 1, false)
            .with_hold_seconds(self.judge.limits.uneven_seconds)
            .with_cost(lost, self.group.list_victims(self.cluster, None))
    }

    fn slowdown_evidence(&self) -> EvidenceItem {
        let limit = Some(self.judge.limits.slowed_ratio);
        EvidenceRow::JobSlowdown.to_evidence(Some(self.slowed), limit)
    }
}

/// The unchanged signals of a slower job group: medians of its members, each relative to its baseline.
struct SlowdownProfile {
    utilization: Option<f64>,
    clock: Option<f64>,
    traffic: Option<f64>,
}

impl SlowdownProfile {
    fn of(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> Self {
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let gpus = || group.gpus.iter().filter_map(|row| judge.gpus.get(*row as usize));
        let hosts = group.nodes.iter().filter_map(|id| judge.hosts.get(id));
        let traffic = hosts.filter_map(|host| {
            let traffic = host.compare_traffic(cluster)?;
            Some(
                traffic.now
                    / traffic
                        .baseline
                        .filter(|baseline| *baseline > judge.limits.silent_network_ratio)?,
            )
        });
        Self {
            utilization: median(gpus().filter_map(|gpu| {
                Some(gpu.averages.utilization_at(now, gap)? / gpu.averages.usual_utilization()?)
            })),
            clock: median(gpus().filter_map(|gpu| {
                Some(gpu.averages.clock_hertz(now, &judge.limits)? / gpu.averages.usual_clock()?)
            })),
            traffic: median(traffic),
        }
    }

    /// Whether only time was lost: it busy-waits as much and at the same clock as in its baseline, and moves about as
    /// much less data as it is slower.
    fn is_only_slower(&self, limits: &Thresholds, pace: f64) -> bool {
        self.utilization.is_some_and(|share| share >= limits.hungry_slow_ratio)
            && self.clock.is_none_or(|share| share >= limits.capped_clock_ratio)
            && self.traffic.is_none_or(|share| share >= pace * limits.like_pace_share)
    }
}

/// The maximum of nodes that a sentence lists.
const MOST_NAMED: usize = 4;
