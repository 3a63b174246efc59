//! Crash loops: the processes of a job end again and again soon after they were started. Its GPUs look healthy each time,
//! and nothing else tells: the job just never gets far.

use std::collections::BTreeMap;

use gaunt_cluster::Cluster;
use gaunt_schema::{Finding, FindingKind};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_percent, format_time_of_day},
};

/// Restarts in a row from which a job is in a crash loop, and from which that is a warning in any case: one follows a deploy
/// or a failure from which it recovers. Two are a warning of a job with a name that worked far longer before.
const LEAST_RESTARTS: usize = 2;
const WARNING_RESTARTS: usize = 3;

/// Adds jobs that restart again and again.
pub(super) fn detect_crash_loops(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let groups = judge.job_groups.all_groups().iter();
    outcome.suspicions.extend(groups.filter_map(|group| detect_crash_loop(judge, cluster, group)));
}

/// Whether an open finding is about a job whose processes have just ended: then it may have no GPUs for a while.
pub(super) fn is_between_runs(judge: &JudgeState, finding: &Finding) -> bool {
    let job = finding.entity.job.as_ref();
    finding.kind == FindingKind::CrashLoop && job.is_some_and(|job| judge.restarts.is_away(job))
}

/// Returns the share of their time that jobs lose to restarts, by index, where an open finding tells it.
pub(super) fn told_losses(judge: &JudgeState, cluster: &Cluster) -> BTreeMap<usize, f64> {
    if judge.tracker.iter_open().all(|finding| finding.kind != FindingKind::CrashLoop) {
        return BTreeMap::new();
    }
    let loss_of = |group: &JobGroup| {
        let count = judge.restarts.count_of(group, cluster.now())?;
        let id = Finding::build_id(FindingKind::CrashLoop, &group.to_entity());
        judge.tracker.open_one(&id).map(|_| count.lost_share)
    };
    let groups = judge.job_groups.all_groups().iter().enumerate();
    groups.filter_map(|(position, group)| Some((position, loss_of(group)?))).collect()
}

fn detect_crash_loop(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
) -> Option<PendingFinding> {
    let limits = &judge.limits;
    let count = judge.restarts.count_of(group, cluster.now())?;
    let entity = group.to_entity();
    let told = judge.tracker.open_one(&Finding::build_id(FindingKind::CrashLoop, &entity));
    // What was told before a restart of the aggregator is about restarts that are not counted here.
    let is_restored = told.is_some_and(|told| judge.first_step.is_some_and(|at| told.since < at));
    // One that is told goes on between an end and the next start.
    let in_a_row = if told.is_some() { count.ends } else { count.restarts };
    let is_loop = is_restored || in_a_row >= LEAST_RESTARTS;
    if !is_loop || count.lost_share < limits.unexplained_ratio {
        return None;
    }
    let fails = count.ends_sooner && group.job.is_some();
    // Whoever works in a notebook restarts it now and then.
    let is_warning = (is_restored || fails || in_a_row >= WARNING_RESTARTS) && group.gpus.len() > 1;
    let times = match count.ends {
        1 => "again".to_owned(),
        ends => format!("{ends} times"),
    };
    let summary = format!(
        "{} restarts again and again: its processes ended {times} since {}, and {} of its time passed without them, or while they started.",
        group.render_title(),
        format_time_of_day(count.since),
        format_percent(count.lost_share),
    );
    let next = "Read why its first process to end did so: the log of that run, XIDs and ECC errors of its GPUs, the out-of-memory killer of its nodes; keep it from starting again before that is mended.";
    Some(
        PendingFinding::of(FindingKind::CrashLoop, entity, 1, is_warning)
            .with_interval(group.interval)
            .with_cost(
                count.lost_share * group.gpus.len() as f64,
                group.list_victims(cluster, None),
            )
            .with_summary(summary, next.to_owned())
            .with_evidence([
                EvidenceRow::ProcessEnds.to_evidence(Some(count.ends as f64), None),
                EvidenceRow::RestartShare
                    .to_evidence(Some(count.lost_share), Some(limits.unexplained_ratio)),
            ]),
    )
}
