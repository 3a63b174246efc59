//! Growing pauses: a job stands still now and then while its hosts wait for IO, and for longer than it used to, or does so
//! now for far longer. Its checkpoints have grown, or the storage that they are written to has become slower.

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{Entity, EntityKind, Finding, FindingKind};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    gpu_signals,
    job_group::JobGroup,
    past_pauses::PauseGrowth,
    pending_finding::{PendingFinding, format_percent},
};

/// A pause that takes more of the time than this is no checkpoint: the job does something else, or nothing.
const MOST_SHARE: f64 = 0.5;

/// Seconds from which a pause of a job whose pauses are not known is a long one: few checkpoints take as long.
const LONG_SECONDS: f64 = 180.0;

/// Adds jobs whose pauses have grown, or that pause for too long now.
pub(super) fn detect_growing_pauses(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let storage = Entity::new(EntityKind::Storage);
    let id = Finding::build_id(FindingKind::StorageSlow, &storage);
    if !outcome.suspicions.iter().any(|pending| pending.finding.id == id) {
        let found = lasting_pause(judge, cluster).or_else(|| grown_pauses(judge, cluster));
        outcome.suspicions.extend(found);
    }
}

/// Returns a finding about the largest job that stands still while its hosts wait for IO, for far longer than in its
/// pauses before. It never pages: it may write more than before.
fn lasting_pause(judge: &JudgeState, cluster: &Cluster) -> Option<PendingFinding> {
    let limits = &judge.limits;
    // A notebook stands still whenever its user thinks.
    let works = |group: &&JobGroup| group.gpus.len() > 1 && judge.gangs.of(group).is_learned();
    let groups = judge.job_groups.all_groups().iter().filter(works);
    let id = Finding::build_id(FindingKind::StorageSlow, &Entity::new(EntityKind::Storage));
    let told = judge.tracker.open_one(&id).filter(|told| tells_of_a_pause(told));
    let long = groups.filter_map(|group| {
        let past = judge.pauses.past_of(group);
        let usual = past.and_then(|past| past.usual_seconds(group.interval.seconds()));
        let least = usual.map_or(LONG_SECONDS, |(_, least)| least.max(limits.pause_settle_seconds));
        let seconds = judge.pauses.lasting_seconds(group, cluster.now(), limits);
        // A restart of the aggregator forgets when a pause began; the finding began once it had lasted long enough.
        let told = told.filter(|_| !group.is_progressing());
        let since_told = |told: &Finding| cluster.now().duration_since(told.since).as_secs_f64();
        let seconds = seconds.or_else(|| Some(least + since_told(told?)))?;
        (seconds >= least && waits_for_io(judge, cluster, group))
            .then_some((group, seconds, usual, least))
    });
    let (group, seconds, usual, least) = long.max_by_key(|(group, ..)| group.gpus.len())?;
    let before =
        usual.map(|(longest, _)| format!("; its pauses of late took {longest:.0} s at most"));
    let summary = format!(
        "{} has stood still for {seconds:.0} s while its hosts wait for IO{}.",
        group.render_title(),
        before.unwrap_or_default(),
    );
    let next = "Check whether the job writes a checkpoint, and the file system that it is written to: its servers, its network, and its other clients.";
    let note = usual.map_or("limit: no other pause is known".to_owned(), |(longest, _)| {
        format!("limit: from the longest of late, {longest:.0} s")
    });
    let cost = group.gpus.len() as f64;
    Some(
        pause_finding(cluster, group, cost)
            .with_slowed_jobs(std::iter::once(group.group_key()))
            .with_summary(summary, next.to_owned())
            .with_evidence([EvidenceRow::PauseSeconds
                .to_evidence(Some(seconds), Some(least))
                .with_note(note)]),
    )
}

/// Whether a finding tells how long a job has stood still, and not how long its pauses have become.
fn tells_of_a_pause(told: &Finding) -> bool {
    let has = |row: EvidenceRow| told.evidence.iter().any(|item| item.what == row.label().0);
    has(EvidenceRow::PauseSeconds) && !has(EvidenceRow::PauseShare)
}

/// Returns a finding about the storage that a job waits for in its pauses: a warning at most.
fn pause_finding(cluster: &Cluster, group: &JobGroup, cost: f64) -> PendingFinding {
    let storage = Entity::new(EntityKind::Storage);
    let mut found = PendingFinding::of(FindingKind::StorageSlow, storage, 1, true)
        .with_members([group.group_key()])
        .with_cost(cost, group.list_victims(cluster, None));
    found.cap_severity();
    found
}

/// Whether most hosts of a job wait for IO, and its processes still hold most of its GPUs: a job that has ended may have
/// left writes behind.
fn waits_for_io(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> bool {
    let limits = &judge.limits;
    let waits = |id: &&NodeId| {
        let host = judge.hosts.get(**id);
        host.is_some_and(|host| host.excess_io_pressure(cluster, limits).is_some())
    };
    let left = |row: &&u32| {
        gpu_signals::used_memory(cluster, **row, limits).is_some_and(|used| !used.is_held)
    };
    group.nodes.iter().filter(waits).count() * 2 > group.nodes.len()
        && group.gpus.iter().filter(left).count() * 2 <= group.gpus.len()
}

/// Returns a finding about the job whose grown pauses cost most.
fn grown_pauses(judge: &JudgeState, cluster: &Cluster) -> Option<PendingFinding> {
    let grown = judge.job_groups.all_groups().iter().filter_map(|group| {
        let interval = group.interval.seconds();
        let growth = judge.pauses.past_of(group)?.growth(cluster.now(), interval)?;
        let share = growth.last / growth.every;
        let is_checkpoint = share >= judge.limits.unexplained_ratio && share <= MOST_SHARE;
        is_checkpoint.then_some((group, growth, share))
    });
    let cost = |(group, _, share): &(&JobGroup, PauseGrowth, f64)| share * group.gpus.len() as f64;
    let (group, growth, share) = grown.max_by(|a, b| cost(a).total_cmp(&cost(b)))?;
    let PauseGrowth { shortest, last, least, every } = growth;
    let summary = format!(
        "{} stands still for {last:.0} s each {every:.0} s while its hosts wait for IO, at first for {shortest:.0} s: {} of its time goes to checkpoints.",
        group.render_title(),
        format_percent(share),
    );
    let next = "Check how large the checkpoints of the job have become, and how fast the file system is that they are written to; write them less often, or asynchronously.";
    let cost = share * group.gpus.len() as f64;
    Some(
        pause_finding(cluster, group, cost).with_summary(summary, next.to_owned()).with_evidence([
            EvidenceRow::PauseSeconds
                .to_evidence(Some(last), Some(least))
                .with_note(format!("limit: from the shortest, {shortest:.0} s")),
            EvidenceRow::PauseShare.to_evidence(Some(share), Some(judge.limits.unexplained_ratio)),
        ]),
    )
}
