//! Unexplained slowdowns: a job lost much of its speed, and no finding says why. Says what was looked at, and which
//! missing telemetry would decide.

use std::collections::BTreeSet;

use gaunt_schema::{EvidenceItem, Finding, FindingKind, SanitizedText, UnixMs};

use super::{
    EvidenceRow, explanation_builder,
    finding_lifecycle::DetectorOutcome,
    job_survey::{JobSurvey, SlowdownProfile},
    pending_finding::{PendingFinding, format_percent, format_time_of_day},
    robust_stats::median,
    slowdown_causes::{SlowdownCauses, SlowdownExplanation},
    uneven_group::UnevenGroup,
};

/// The maximum of missing telemetry that the next step lists.
const MOST_LISTED: usize = 5;

/// A slowdown of which both the job's members and its work are estimates must last so long in seconds to be a warning.
const ESTIMATED_SECONDS: f64 = 150.0;

/// After so many seconds a slowdown is told in any case, however long the one before lasted.
const MOST_HOLD_SECONDS: f64 = 600.0;

/// A job on one node that was busy for so much of the time, and always as much, trains: it never has less to do.
const BUSY_RATIO: f64 = 0.8;

/// While something is suspected that would explain it, a slowdown must last so many times as long.
const SUSPECTED_TIMES: f64 = 2.0;

/// Adds that the slowdown of a group is unexplained. While something may explain it, that neither opens, though its
/// time counts, nor closes.
pub(super) fn add_unexplained(
    uneven: &UnevenGroup<'_>,
    profile: &SlowdownProfile,
    causes: &SlowdownCauses,
    explanation: SlowdownExplanation,
    outcome: &mut DetectorOutcome,
) {
    let (judge, cluster, group) = (uneven.judge, uneven.cluster, uneven.group);
    let id = Finding::build_id(FindingKind::UnexplainedSlowdown, &group.to_entity());
    let is_unknown = explanation == SlowdownExplanation::Unknown;
    if judge.tracker.open_one(&id).is_some() {
        if let SlowdownExplanation::Settled(kind) = explanation {
            outcome.superseded.push((id, SanitizedText::new(&format!("explained by {kind}"))));
            return;
        }
        // A cap of all its clocks does not end a slowdown that began before.
        let is_capped = profile.is_capped(&judge.limits, uneven.median_pace);
        let is_distorted = judge.pauses.distort_averages(group, cluster.now(), &judge.limits);
        if !is_unknown || is_capped || is_distorted {
            outcome.undecidable.push(id);
            return;
        }
    }
    let survey = JobSurvey::of(judge, cluster, group, profile);
    let possible = causes.possible_causes(group);
    let found = unexplained_finding(uneven, profile, survey, &possible);
    outcome.suspicions.extend(found.map(|found| match explanation {
        SlowdownExplanation::Unknown => found,
        // What explains it has had its time to show that.
        SlowdownExplanation::Suspected => {
            let hold = found.hold * SUSPECTED_TIMES;
            found.with_hold_seconds(hold)
        }
        SlowdownExplanation::Told | SlowdownExplanation::Settled(_) => {
            found.with_hold_seconds(f64::INFINITY)
        }
    }));
}

/// Returns the finding that a group is slower and nothing explains it; none while the job pauses, while it does other
/// work, or while its clocks are capped.
fn unexplained_finding(
    uneven: &UnevenGroup<'_>,
    profile: &SlowdownProfile,
    survey: JobSurvey,
    possible: &BTreeSet<FindingKind>,
) -> Option<PendingFinding> {
    let (judge, cluster, group) = (uneven.judge, uneven.cluster, uneven.group);
    let limits = &judge.limits;
    let entity = group.to_entity();
    let id = Finding::build_id(FindingKind::UnexplainedSlowdown, &entity);
    let open = judge.tracker.open_one(&id);
    // Hysteresis: an open finding closes below a lower limit.
    let slack = if open.is_some() { limits.leave_share.clamp(0.1, 1.0) } else { 1.0 };
    let least = limits.unexplained_ratio * slack;
    let evidence = judge.gangs.of(group);
    let is_likely = evidence.is_slower(group, limits);
    // The average over a longer time follows slowly; the present loss counts where samples show that it is no chance.
    let present = evidence.present_slowdown(group, limits).filter(|_| is_likely);
    let present = present.unwrap_or_default();
    let slowed = uneven.slowed.max(present);
    let usual = |row: &u32| judge.gpus.get(*row as usize)?.averages.usual_utilization();
    let busy = median(group.gpus.iter().filter_map(usual));
    let takes_same_steps = profile.takes_same_steps(limits, uneven.median_pace);
    let waits_for_longer = !takes_same_steps
        && group.nodes.len() == 1
        && busy.is_some_and(|busy| busy >= BUSY_RATIO)
        && evidence.hardly_varies(group, slowed)
        && profile.waits_for_longer(limits, uneven.median_pace);
    // The ranks of several nodes do, unless these send each other nothing: then each has requests or input of its own,
    // whose number varies.
    let works_together = group.nodes.len() > 1 && profile.may_exchange;
    // A pace that swings is far below the fastest at times, also long after what was told is over.
    let is_still_suspected = open.is_some() && evidence.slowdown(group).is_suspected();
    if slowed < least
        || !((is_likely || is_still_suspected) && evidence.knows_its_pace())
        || !(works_together || evidence.is_steady(group))
        || judge.pauses.distort_averages(group, cluster.now(), limits)
        || !(takes_same_steps || waits_for_longer)
    {
        return None;
    }
    let since = judge.tracker.suspected_since(&id).unwrap_or(cluster.now());
    let summary = render_summary(uneven, slowed, &survey, possible, since);
    let missing = explanation_builder::deciding_telemetry(judge, cluster, group);
    let missing = missing.into_iter().take(MOST_LISTED).collect::<Vec<_>>().join(", ");
    let next = if missing.is_empty() {
        "Ask the owner of the job what changed; if nothing did, profile one rank, and probe its nodes once they are free.".to_owned()
    } else {
        format!(
            "Ask the owner of the job what changed; if nothing did, export what would decide: {missing}."
        )
    };
    // A warning that never pages: its cause may be harmless. Informational at first where both the members of the job
    // and its work are estimates: chance and nodes of other jobs then look like a slowdown, for a while. Also where its
    // GPUs idle most of the time: such a job waits for requests or input, whose number varies.
    let is_busy = busy.is_none_or(|busy| busy >= limits.utilization_launch_ratio);
    let is_estimated = group.job.is_none() && uneven.instants;
    let warning_delay = if is_estimated { ESTIMATED_SECONDS } else { 0.0 };
    // The more speed is lost, the sooner it is told: after the loss of as much work. What its host does to a job on one node
    // may show a little later.
    let urgency = if waits_for_longer { 1.0 } else { (limits.unexplained_ratio / slowed).min(1.0) };
    let hold = limits.unexplained_seconds * urgency;
    let hold = hold.max(group.interval.two_sample_seconds_of_all(limits));
    // What went by itself before, such as an evaluation, is told again only if it lasts longer.
    let before = judge.tracker.lasted_before(&id).unwrap_or_default();
    let hold = hold.max(before.min(MOST_HOLD_SECONDS));
    let lost = slowed * group.gpus.len() as f64;
    let gpus = group.gpus.len();
    let closes = if open.is_some() { "; limit for staying open" } else { "" };
    let slowdown = EvidenceRow::UnexplainedLoss
        .to_evidence(Some(slowed), Some(least))
        .with_note(format!("{lost:.1} of {gpus} GPUs{closes}"));
    let overloaded = uneven.overloaded_nodes().map(|(_, work)| {
        EvidenceRow::NodeActivity.to_evidence(Some(work), Some(limits.uneven_times))
    });
    let pending = PendingFinding::of(FindingKind::UnexplainedSlowdown, entity, 1, is_busy)
        .with_hold_seconds(hold)
        .with_warning_delay(warning_delay)
        .with_cost(lost, group.list_victims(cluster, None))
        .with_summary(summary, next)
        .with_evidence([slowdown])
        .with_evidence(overloaded)
        .with_evidence(survey.into_usual_evidence())
        .with_evidence(traffic_evidence(uneven, profile));
    let pending =
        if group.nodes.len() == 1 { pending.delay_small_loss(judge.gpus.len()) } else { pending };
    // Without a job label the members of the job are inferred.
    Some(if group.job.is_some() { pending } else { pending.mark_learned() })
}

fn traffic_evidence(uneven: &UnevenGroup<'_>, profile: &SlowdownProfile) -> [EvidenceItem; 1] {
    let limit = uneven.median_pace * uneven.judge.limits.like_pace_share;
    [EvidenceRow::TrafficChange
        .to_evidence(profile.traffic, Some(limit))
        .with_note("limit: share of the job's median pace")]
}

fn render_summary(
    uneven: &UnevenGroup<'_>,
    slowed: f64,
    survey: &JobSurvey,
    possible: &BTreeSet<FindingKind>,
    since: UnixMs,
) -> String {
    let since = format_time_of_day(since);
    let loss = format!(
        "{} has lost {} of its speed ({:.1} GPUs) since {since}, and no finding explains it",
        uneven.group.render_title(),
        format_percent(slowed),
        slowed * uneven.group.gpus.len() as f64,
    );
    let (usual, unusual) = (survey.usual_subjects(), survey.unusual_labels());
    let usual = (!usual.is_empty()).then(|| format!("usual: {}", usual.join(", ")));
    let unusual = (!unusual.is_empty()).then(|| format!("unusual: {}", unusual.join(", ")));
    let names: Vec<String> = possible.iter().map(ToString::to_string).collect();
    let possible = (!names.is_empty()).then(|| format!("possibly {}", names.join(" or ")));
    let parts = [Some(loss), usual, unusual, possible, Some(render_possibility(uneven))];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ") + "."
}

/// Describes how the slowdown is distributed over the ranks, and what that may mean.
fn render_possibility(uneven: &UnevenGroup<'_>) -> String {
    if let Some((names, work)) = uneven.overloaded_nodes() {
        return format!(
            "{} {} down less than the others (activity {work:.2} of the job median): possibly an overloaded stage or a straggler",
            names.join(", "),
            if names.len() == 1 { "slows" } else { "slow" },
        );
    }
    match uneven.rotating_share() {
        Some(share) => format!(
            "the busiest node changes (the same one in {} of the samples): possibly data skew",
            format_percent(share)
        ),
        None => "all ranks alike".to_owned(),
    }
}
