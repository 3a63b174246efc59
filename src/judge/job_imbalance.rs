//! Uneven work: pipeline stages that differ, or a slowest rank that changes with the data. The cause is software:
//! informational findings that never page. Where neither is shown, the slowdown is unexplained.

use std::cell::OnceCell;

use gaunt_schema::{Entity, EntityKind, EvidenceItem, Finding, FindingKind};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    host_pressure::HostPressure,
    idle_ranks::IdleRanks,
    job_survey::SlowdownProfile,
    pending_finding::{PendingFinding, format_percent},
    slowdown_causes::{SlowdownCauses, SlowdownExplanation},
    uneven_group::UnevenGroup,
    unexplained_slowdown::add_unexplained,
    work_shares::LEAST_NODES,
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
    for group in judge.job_groups.all_groups().iter().filter(|group| group.is_progressing()) {
        let Some(uneven) = UnevenGroup::from_group(judge, cluster, group) else { continue };
        if uneven.slowed < judge.limits.slowed_ratio {
            continue;
        }
        let causes = causes.get_or_init(|| SlowdownCauses::collect(judge, cluster, outcome));
        uneven.add_finding(causes, outcome);
    }
}

impl UnevenGroup<'_> {
    /// Adds that the work of the group is uneven or, while nothing explains its slowdown, that it is unexplained.
    fn add_finding(&self, causes: &SlowdownCauses, outcome: &mut DetectorOutcome) {
        let cause = causes.cause_of(self.group);
        let profile = SlowdownProfile::of(self.judge, self.cluster, self.group);
        let is_open = |id: &String| self.judge.tracker.open_one(id).is_some();
        // Before the pace of a job is known, whatever it is at its first samples looks like one; and by chance some node
        // works more than the others at any time. A job that has been far below its baseline ever since its pace is
        // known cannot be known to have become slower.
        let (limits, evidence) = (&self.judge.limits, self.judge.gangs.of(self.group));
        let is_slow = evidence.is_slower(self.group, limits)
            || evidence.usual_slowdown(self.group) >= limits.unexplained_ratio;
        let is_told = self.imbalance_ids().iter().any(is_open);
        let is_shown = evidence.is_learned() && (is_slow || is_told);
        let imbalance =
            if cause.is_seen || !is_shown { None } else { self.detect_imbalance(&profile) };
        // Nodes that work more than the others may be an overloaded stage as well as stragglers: a large loss is told.
        let loses_much = self.slowed >= self.judge.limits.unexplained_ratio;
        let [stage, skew] = self.imbalance_ids();
        let is_uneven = is_open(&skew) || (!loses_much && is_open(&stage));
        let kind = imbalance.as_ref().map(|found| found.finding.kind);
        let kind = kind.filter(|kind| *kind == FindingKind::DataSkew || !loses_much);
        // After a restart of the aggregator nobody knows who was busiest: what was told then still holds.
        let is_unread = is_open(&skew) && self.history.busiest_share(limits).is_none();
        let found = kind.or(is_unread.then_some(FindingKind::DataSkew)).filter(|_| is_uneven);
        let explanation = match cause.settled.filter(|_| cause.is_seen).or(found) {
            Some(kind) => SlowdownExplanation::Settled(kind),
            None if cause.is_told => SlowdownExplanation::Told,
            None if cause.is_suspected || is_uneven || kind.is_some() => {
                SlowdownExplanation::Suspected
            }
            None => SlowdownExplanation::Unknown,
        };
        outcome.suspicions.extend(imbalance);
        add_unexplained(self, &profile, causes, explanation, outcome);
    }

    fn imbalance_ids(&self) -> [String; 2] {
        let entity = self.group.to_entity();
        let stage = Entity { kind: EntityKind::Stage, ..entity.clone() };
        [
            Finding::build_id(FindingKind::StageImbalance, &stage),
            Finding::build_id(FindingKind::DataSkew, &entity),
        ]
    }

    fn detect_imbalance(&self, profile: &SlowdownProfile) -> Option<PendingFinding> {
        if self.group.nodes.len() < LEAST_NODES {
            return None;
        }
        if self.overloaded.is_empty() {
            // For single instants, chance exceeds the loss of a job.
            return if self.instants { None } else { self.detect_data_skew(profile) };
        }
        self.overloaded_nodes().map(|(names, work)| self.stage_imbalance(&names, work))
    }

    /// Builds the finding that some nodes always work more than the others.
    fn stage_imbalance(&self, names: &[&str], work: f64) -> PendingFinding {
        let entity = Entity { kind: EntityKind::Stage, ..self.group.to_entity() };
        let summary = format!(
            "{} {} more than the others, which wait {} of the time: an overloaded pipeline stage, or a straggler.",
            names.join(", "),
            if names.len() == 1 { "works" } else { "work" },
            format_percent(self.slowed)
        );
        let next = "Rebalance the layers between the pipeline stages; if these nodes have no more work than the others, look at their GPUs and NVLinks.".to_owned();
        let limit = Some(self.judge.limits.uneven_times);
        self.of(FindingKind::StageImbalance, entity).with_summary(summary, next).with_evidence([
            self.slowdown_evidence(),
            EvidenceRow::NodeActivity.to_evidence(Some(work), limit),
        ])
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
                    .with_note("limit: by the number of nodes"),
                EvidenceRow::TrafficChange
                    .to_evidence(profile.traffic, Some(self.median_pace * limits.like_pace_share))
                    .with_note("limit: share of the job's median pace"),
                EvidenceRow::ClockChange.to_evidence(profile.clock, Some(limits.slow_clock_ratio)),
            ]),
        )
    }

    /// Whether something else has changed in the job: a rank idles, or a host is under pressure.
    fn has_other_evidence(&self) -> bool {
        let is_pressed = |id: &NodeId| {
            let host = self.judge.hosts.get(*id);
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
