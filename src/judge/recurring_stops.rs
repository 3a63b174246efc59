//! Recurring stops: the GPUs of a job stand still again and again, all of them together, as they never did before. Its
//! processes start anew, or what they wait for comes in bursts: a slowdown without a cause.

use gaunt_cluster::Cluster;
use gaunt_schema::{Finding, FindingKind};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_percent, format_time_of_day},
    slowdown_causes::SlowdownCauses,
    stop_history::{LONGEST_CYCLE_S, RecurringStops},
};

/// Adds jobs that stop again and again while no other finding says why.
pub(super) fn detect_recurring_stops(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let mut stopping = Vec::new();
    // What was told before a restart of the aggregator is shown again by the next stops only.
    let age = judge.first_step.map(|first| cluster.now().duration_since(first).as_secs_f64());
    let may_be_restored = age.is_some_and(|seconds| seconds <= LONGEST_CYCLE_S);
    let groups = judge.job_groups.all_groups().iter();
    // What waits for requests stands still whenever there are none.
    let is_steady = |group: &&JobGroup| judge.gangs.of(group).is_steady(group);
    let groups = groups.filter(|group| may_be_restored || judge.stops.has_stopped(group));
    for group in groups.filter(is_steady) {
        let id = Finding::build_id(FindingKind::UnexplainedSlowdown, &group.to_entity());
        let is_told = is_told(judge, &id);
        let is_other = |pending: &PendingFinding| pending.finding.id != id;
        if is_told {
            // Averages over stops and the work between them say less.
            outcome.suspicions.retain(is_other);
        }
        match judge.stops.recurring_stops(group) {
            Some(stops) if outcome.suspicions.iter().all(is_other) => stopping.push((group, stops)),
            // The next stop may come.
            _ if is_told => outcome.undecidable.push(id),
            _ => {}
        }
    }
    if stopping.is_empty() {
        return;
    }
    let causes = SlowdownCauses::collect(judge, cluster, outcome);
    for (group, stops) in stopping {
        let found = stops_finding(judge, cluster, group, &stops);
        if !causes.cause_of(group).is_suspected {
            outcome.suspicions.push(found);
        } else if is_told(judge, &found.finding.id) {
            outcome.undecidable.push(found.finding.id);
        }
    }
}

/// Whether it is open that a job stops again and again.
fn is_told(judge: &JudgeState, id: &str) -> bool {
    let told = judge.tracker.open_one(id);
    told.is_some_and(|told| told.evidence.iter().any(|row| EvidenceRow::PauseShare.is_row_of(row)))
}

/// Returns the finding that a job stops again and again: a warning, since it may be what the job is meant to do.
fn stops_finding(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
    stops: &RecurringStops,
) -> PendingFinding {
    let summary = format!(
        "{} has lost {} of its work since {}: all its GPUs stand still again and again, for {} of the time, as they did not before, and no finding explains it.",
        group.render_title(),
        format_percent(stops.lost_share),
        format_time_of_day(stops.since),
        format_percent(stops.stood_share),
    );
    let next = "Read the log of the job around such a stop: its processes may end and be started again, or wait for the storage or for another service.";
    let lost = stops.lost_share * group.gpus.len() as f64;
    let limit = judge.limits.unexplained_ratio;
    PendingFinding::of(FindingKind::UnexplainedSlowdown, group.to_entity(), 1, true)
        .with_interval(group.interval)
        .with_cost(lost, group.list_victims(cluster, None))
        .with_summary(summary, next.to_owned())
        .with_evidence([
            EvidenceRow::UnexplainedLoss.to_evidence(Some(stops.lost_share), Some(limit)),
            EvidenceRow::PauseShare.to_evidence(Some(stops.stood_share), Some(limit)),
        ])
}
