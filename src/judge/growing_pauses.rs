//! Growing pauses: a job stands still now and then while its hosts wait for IO, and for longer than it used to. Its checkpoints
//! have grown, or the storage that they are written to has become slower.

use gaunt_cluster::Cluster;
use gaunt_schema::{Entity, EntityKind, Finding, FindingKind};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    past_pauses::PauseGrowth,
    pending_finding::{PendingFinding, format_percent},
};

/// A pause that takes more of the time than this is no checkpoint: the job does something else, or nothing.
const MOST_SHARE: f64 = 0.5;

/// Adds jobs whose pauses have grown.
pub(super) fn detect_growing_pauses(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let storage = Entity::new(EntityKind::Storage);
    let id = Finding::build_id(FindingKind::StorageSlow, &storage);
    if outcome.suspicions.iter().any(|pending| pending.finding.id == id) {
        return;
    }
    let grown = judge.job_groups.all_groups().iter().filter_map(|group| {
        let interval = group.interval.seconds();
        let growth = judge.pauses.past_of(group)?.growth(cluster.now(), interval)?;
        let share = growth.last / growth.every;
        let is_checkpoint = share >= judge.limits.unexplained_ratio && share <= MOST_SHARE;
        is_checkpoint.then_some((group, growth, share))
    });
    let cost = |(group, _, share): &(&JobGroup, PauseGrowth, f64)| share * group.gpus.len() as f64;
    let Some((group, growth, share)) = grown.max_by(|a, b| cost(a).total_cmp(&cost(b))) else {
        return;
    };
    let PauseGrowth { shortest, last, every } = growth;
    let summary = format!(
        "{} stands still for {last:.0} s each {every:.0} s while its hosts wait for IO, at first for {shortest:.0} s: {} of its time goes to checkpoints.",
        group.render_title(),
        format_percent(share),
    );
    let next = "Check how large the checkpoints of the job have become, and how fast the file system is that they are written to; write them less often, or asynchronously.";
    let limit = growth.least_seconds();
    let mut found = PendingFinding::of(FindingKind::StorageSlow, storage, 1, true)
        .with_members([group.group_key()])
        .with_cost(share * group.gpus.len() as f64, group.list_victims(cluster, None))
        .with_summary(summary, next.to_owned())
        .with_evidence([
            EvidenceRow::PauseSeconds
                .to_evidence(Some(last), Some(limit))
                .with_note(format!("limit: from the shortest, {shortest:.0} s")),
            EvidenceRow::PauseShare.to_evidence(Some(share), Some(judge.limits.unexplained_ratio)),
        ]);
    found.cap_severity();
    outcome.suspicions.push(found);
}
