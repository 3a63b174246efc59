//! Uneven work: pipeline stages that differ, or a slowest rank that changes with the data. The cause is software:
//! informational findings that never page. Where neither is shown, the slowdown is unexplained.

use std::cell::OnceCell;

use gaunt_schema::{Entity, EntityKind, EvidenceItem, Finding, FindingKind};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    host_pressure::HostPressure,
    idle_ranks::IdleRanks,
    job_group::JobGroup,
    job_survey::{JobSurvey, SlowdownProfile},
    pending_finding::{PendingFinding, format_percent},
    robust_stats::median,
    slowdown_causes::SlowdownCauses,
    unexplained_slowdown::{render_cause, unexplained_finding},
    work_shares::{LEAST_NODES, WorkHistory},
};
use gaunt_cluster::{Cluster, NodeId};

/// Adds job groups that are slower than their baseline where no other finding explains it: their work is uneven, or
/// the cause is unknown.
pub(super) fn detect_job_imbalance(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    // What is added here explains nothing: the causes are the same for all groups.
    let causes = OnceCell::new();
    for group in judge
        .job_groups
        .all_groups()
        .iter()
        .filter(|group| group.is_progressing() && group.nodes.len() >= LEAST_NODES)
    {
        let Some(uneven) = UnevenGroup::from_group(judge, cluster, group) else { continue };
        if uneven.slowed < judge.limits.slowed_ratio {
            continue;
        }
        let causes = causes.get_or_init(|| SlowdownCauses::collect(judge, cluster, outcome));
        uneven.add_finding(causes, outcome);
    }
}

/// A job group in which some nodes may work more than others.
pub(super) struct UnevenGroup<'a> {
    pub(super) judge: &'a JudgeState,
    pub(super) cluster: &'a Cluster,
    pub(super) group: &'a JobGroup,
    history: &'a WorkHistory,
    /// The share of its baseline speed that it has lost, over a longer time.
    pub(super) slowed: f64,
    /// The median pace of its nodes.
    pub(super) median_pace: f64,
    /// Nodes that work much more than the median, and how much they do.
    overloaded: Vec<(NodeId, f64)>,
    node_count: usize,
    /// Its work is only known from single instants.
    pub(super) instants: bool,
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

    /// Adds what explains the slowdown of the group best: uneven work, or nothing. One finding at a time is about it.
    fn add_finding(&self, causes: &SlowdownCauses, outcome: &mut DetectorOutcome) {
        let cause = causes.cause_of(self.group);
        let entity = self.group.to_entity();
        let stage = Entity { kind: EntityKind::Stage, ..entity.clone() };
        let unexplained = Finding::build_id(FindingKind::UnexplainedSlowdown, &entity);
        let uneven = [
            Finding::build_id(FindingKind::StageImbalance, &stage),
            Finding::build_id(FindingKind::DataSkew, &entity),
        ];
        let is_open = |id: &String| self.judge.tracker.open_one(id).is_some();
        let profile = SlowdownProfile::of(self.judge, self.cluster, self.group);
        let found = if cause.is_seen { None } else { self.detect_imbalance(&profile) };
        let is_uneven = uneven.iter().any(is_open);
        let uneven_kind = found.as_ref().map(|found| found.finding.kind).filter(|_| is_uneven);
        let explaining = cause
            .settled
            .filter(|_| cause.is_seen)
            .or(uneven_kind)
            .filter(|_| is_open(&unexplained));
        if let Some(kind) = explaining {
            outcome.superseded.push((unexplained, render_cause(kind)));
            outcome.suspicions.extend(found);
            return;
        }
        outcome.suspicions.extend(found);
        // While something may explain it, it neither opens, though its time counts, nor closes.
        let waits = cause.is_suspected || is_uneven;
        let is_paused = self.judge.pauses.has(self.group, self.cluster.now(), &self.judge.limits);
        if is_open(&unexplained) && (waits || is_paused) {
            outcome.undecidable.push(unexplained);
            return;
        }
        let survey = JobSurvey::of(self.judge, self.cluster, self.group, &profile);
        let possible = causes.possible_causes(self.group);
        let Some(found) = unexplained_finding(self, &profile, survey, &possible) else { return };
        outcome.suspicions.push(if waits { found.with_hold_seconds(f64::INFINITY) } else { found });
    }

    fn detect_imbalance(&self, profile: &SlowdownProfile) -> Option<PendingFinding> {
        if self.overloaded.is_empty() {
            // For single instants, chance exceeds the loss of a job.
            return if self.instants { None } else { self.detect_data_skew(profile) };
        }
        self.overloaded_nodes().map(|(names, work)| self.stage_imbalance(&names, work))
    }

    /// Returns the names of the nodes that work more than the others, and how much they do; none where most do.
    pub(super) fn overloaded_nodes(&self) -> Option<(Vec<&str>, f64)> {
        let is_few = self.overloaded.len() * 2 <= self.node_count;
        let work = median(self.overloaded.iter().map(|(_, pace)| pace / self.median_pace));
        let names = self.overloaded.iter();
        let names = names.filter_map(|(id, _)| Some(self.cluster.node_by_id(*id)?.name.as_str()));
        work.filter(|_| is_few).map(|work| (names.take(MOST_NAMED).collect(), work))
    }

    /// Builds the finding that some nodes always work more than the others.
    fn stage_imbalance(&self, names: &[&str], work: f64) -> PendingFinding {
        let entity = Entity { kind: EntityKind::Stage, ..self.group.to_entity() };
        let summary = format!(
            "The pipeline stage on {} is overloaded: the other stages wait for it {} of the time.",
            names.join(", "),
            format_percent(self.slowed)
        );
        let next = "Rebalance the layers between the pipeline stages.".to_owned();
        let limit = Some(self.judge.limits.uneven_times);
        self.of(FindingKind::StageImbalance, entity).with_summary(summary, next).with_evidence([
            self.slowdown_evidence(),
            EvidenceRow::NodeActivity.to_evidence(Some(work), limit),
        ])
    }

    /// Returns the maximum share of samples with the same busiest node: above it that node is the cause.
    fn most_favourite(&self) -> f64 {
        // Of two nodes one is the busiest at least half of the time.
        self.judge.limits.favourite_ratio.max(1.5 / self.group.nodes.len() as f64)
    }

    /// Returns the share of samples with the same busiest node, if the busiest node changes.
    pub(super) fn rotating_share(&self) -> Option<f64> {
        let share = self.history.busiest_share(&self.judge.limits)?;
        (share < self.most_favourite()).then_some(share)
    }

    /// Returns a finding if all lose the same and no hardware or host signal explains it: the data shows that they
    /// wait for a different node each time, or the loss is small.
    fn detect_data_skew(&self, profile: &SlowdownProfile) -> Option<PendingFinding> {
        let limits = &self.judge.limits;
        let favourite = self.history.busiest_share(limits);
        let entity = self.group.to_entity();
        // Chance favours one node for a while: an open finding is only left for a node that is nearly always the
        // busiest.
        let open = self
            .judge
            .tracker
            .open_one(&Finding::build_id(FindingKind::DataSkew, &entity))
            .is_some();
        let most = self.most_favourite();
        let most = if open { f64::midpoint(most, 1.0) } else { most };
        let is_unknown = favourite.is_none() && self.slowed >= limits.unexplained_ratio;
        if favourite.is_some_and(|share| share >= most)
            || is_unknown
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

/// The maximum of nodes that a sentence lists.
const MOST_NAMED: usize = 4;
