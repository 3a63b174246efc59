//! Aggregator lateness: targets that gaunt itself does not scrape in time are not to blame.

use gaunt_schema::{Entity, EntityKind, FindingKind, UnixMs};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    pending_finding::{CERTAIN, PendingFinding, format_count},
};
use gaunt_cluster::{Cluster, TrackedTarget};

/// Stalls per minute that count as lateness: a single one is a machine that was suspended.
const STALLS: u32 = 2;

/// Adds gaunt itself if it scrapes targets too late.
pub(super) fn detect_late_aggregator(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    if !is_aggregator_late(judge, cluster) {
        return;
    }
    let targets = count_unread_targets(judge, cluster);
    let since = failed_targets(judge, cluster).filter(|target| target.is_missed());
    let since: Option<UnixMs> = since.filter_map(|target| target.down_since).min();
    let limits = &judge.limits;
    let ((unjudged, _), (stalled, _)) =
        (cluster.unjudged_attempts(), cluster.late_share().stalled());
    let share = |row: EvidenceRow, value| row.to_evidence(Some(value), Some(limits.own_late_ratio));
    let suspicion = PendingFinding::of(
        FindingKind::AggregatorLate,
        Entity::new(EntityKind::Aggregator),
        1,
        true,
    )
    .with_summary(
        summary(judge, cluster),
        "Give gaunt more CPU, a longer `[gather] period`, or fewer targets.".to_owned(),
    )
    .with_possible_evidence([
        EvidenceRow::UntriedTargets.to_evidence(Some(targets as f64), Some(limits.untried_targets)),
        share(EvidenceRow::LateScrapes, unjudged),
        share(EvidenceRow::StalledTime, stalled),
    ]);
    let periods = (unjudged < 1.0).then(|| 1.0 / (1.0 - unjudged));
    let widened = EvidenceRow::ScrapeInterval.to_evidence(periods, None);
    let mut finding = suspicion.finding;
    finding.evidence.push(widened.with_note("mean of the last minute"));
    finding.confidence = CERTAIN;
    finding.since = since.or(cluster.late_share().since()).unwrap_or_else(|| cluster.now());
    outcome.findings.push(finding);
}

fn summary(judge: &JudgeState, cluster: &Cluster) -> String {
    let (all, targets) = (cluster.tracked_targets().len(), count_unread_targets(judge, cluster));
    if targets as f64 >= judge.limits.untried_targets.max(1.0) {
        return format!(
            "gaunt is late: {} of {all} not scraped in time; the state of their nodes is unknown.",
            format_count(targets, "target"),
        );
    }
    let ((unjudged, _), (stalled, stalls)) =
        (cluster.unjudged_attempts(), cluster.late_share().stalled());
    if stalled >= unjudged {
        let seconds = stalled * 60.0;
        return format!(
            "gaunt is late: no ingest for {seconds:.0} s of the last minute, in {stalls} stalls; no target counts as failed for that."
        );
    }
    let (percent, period) = (unjudged * 100.0, cluster.scrape_period().as_secs_f64());
    let late = format!("{percent:.0} % of the scrapes of the last minute started too late");
    if unjudged < 1.0 {
        let actual = period / (1.0 - unjudged);
        return format!(
            "gaunt is behind: it reads a target every {actual:.1} s on average, not every {period} s; {late}, which is no evidence about their targets."
        );
    }
    format!("gaunt is late: {late}; they are no evidence about their targets.")
}

/// Whether gaunt did not scrape several targets at once, or was late for much of the last minute. A single target that
/// was not tried may be stuck.
pub(super) fn is_aggregator_late(judge: &JudgeState, cluster: &Cluster) -> bool {
    let least = judge.limits.untried_targets.max(1.0);
    let ((unjudged, attempts), (stalled, stalls)) =
        (cluster.unjudged_attempts(), cluster.late_share().stalled());
    count_unread_targets(judge, cluster) as f64 >= least
        || (unjudged >= judge.limits.own_late_ratio && f64::from(attempts) >= least)
        || (stalled >= judge.limits.own_late_ratio && stalls >= STALLS)
}

/// Counts the targets that were not scraped, or had their time cut short, as often as others would have to fail.
fn count_unread_targets(judge: &JudgeState, cluster: &Cluster) -> usize {
    let least = judge.limits.target_failures.max(1);
    let unjudged = |target: &&TrackedTarget| target.unjudged >= least && !target.is_missed();
    let unjudged = cluster.tracked_targets().iter().filter(unjudged).count();
    unjudged + failed_targets(judge, cluster).filter(|target| target.is_missed()).count()
}

/// Returns the targets whose scrapes failed, or were missed, often enough.
pub(super) fn failed_targets<'a>(
    judge: &JudgeState,
    cluster: &'a Cluster,
) -> impl Iterator<Item = &'a TrackedTarget> {
    let least = judge.limits.target_failures.max(1);
    cluster.tracked_targets().iter().filter(move |target| target.failures >= least)
}
