//! Growing pauses: a job stands still now and then while its hosts wait for IO, and for longer than it used to. Its checkpoints
//! have grown, or the storage that they are written to has become slower.

use gaunt_schema::{Entity, EntityKind, Finding, FindingKind, UnixMs};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_percent},
};
use gaunt_cluster::Cluster;

/// How many times as long as the shortest one of the job the last two pauses must be, and the last one by how many seconds:
/// samples show their length only so well.
const LAST_TIMES: f64 = 2.0;
const LAST_BUT_ONE_TIMES: f64 = 1.5;
const LONGER_SECONDS: f64 = 20.0;

/// A pause that takes more of the time than this is no checkpoint: the job does something else, or nothing.
const MOST_SHARE: f64 = 0.5;

/// Intervals between pauses after which one that does not come has ended them.
const LATE_TIMES: f64 = 2.0;

/// A pause that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PastPause {
    pub(super) began: UnixMs,
    pub(super) ended: UnixMs,
    /// Whether most hosts of the job waited for IO, or wrote much.
    pub(super) io: bool,
}

impl PastPause {
    fn seconds(self) -> f64 {
        self.ended.duration_since(self.began).as_secs_f64()
    }
}

/// The pauses of one job: the last two, and the shortest one in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PastPauses {
    last: [Option<PastPause>; 2],
    shortest: Option<f64>,
}

/// How the pauses of a job have grown, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PauseGrowth {
    shortest: f64,
    last: f64,
    /// From the begin of one pause to that of the next.
    every: f64,
}

impl PastPauses {
    /// Adds a pause that has ended; the same one again is not another.
    pub(super) fn add_pause(&mut self, pause: PastPause) {
        if self.last[1].is_some_and(|last| last.began == pause.began) {
            return;
        }
        self.last = [self.last[1], Some(pause)];
        self.shortest = Some(self.shortest.unwrap_or(f64::INFINITY).min(pause.seconds()));
    }

    /// Returns how the pauses have grown, where samples of the job come each `interval` seconds: none unless the last two are
    /// far longer than the shortest one, and hosts waited for IO in them.
    fn growth(&self, now: UnixMs, interval: f64) -> Option<PauseGrowth> {
        let [Some(before), Some(last)] = self.last else { return None };
        // Samples do not show a shorter one.
        let shortest = self.shortest?.max(interval);
        let every = last.began.duration_since(before.began).as_secs_f64();
        let since = now.duration_since(last.began).as_secs_f64();
        let is_longer = before.seconds() >= shortest * LAST_BUT_ONE_TIMES
            && last.seconds() >= shortest * LAST_TIMES
            && last.seconds() - shortest >= LONGER_SECONDS;
        let is_present = since <= every * LATE_TIMES + last.seconds();
        (is_longer && is_present && before.io && last.io).then_some(PauseGrowth {
            shortest,
            last: last.seconds(),
            every,
        })
    }
}

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
    let limit = (shortest * LAST_TIMES).max(shortest + LONGER_SECONDS);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds pauses that begin each 240 s and last so many seconds; returns their growth after each.
    fn growths(lengths: &[i64]) -> Vec<Option<f64>> {
        let mut pauses = PastPauses::default();
        let at = |second: i64| UnixMs(1_800_000_000_000 + second * 1_000);
        let each = lengths.iter().enumerate().map(|(number, seconds)| {
            let began = number as i64 * 240;
            let ended = at(began + seconds);
            pauses.add_pause(PastPause { began: at(began), ended, io: true });
            assert_eq!(pauses.growth(at(began + 2_000), 5.0), None, "no pause came");
            pauses.growth(at(began + seconds + 10), 5.0).map(|growth| growth.shortest)
        });
        each.collect()
    }

    #[test]
    fn pauses_that_became_longer_are_told_for_as_long_as_they_stay_so() {
        let told = growths(&[17, 34, 50, 67, 67, 66]);
        let known = Some(17.0);
        assert_eq!(told, [None, None, known, known, known, known]);
    }

    #[test]
    fn even_pauses_and_one_long_one_are_not_told() {
        assert_eq!(growths(&[40, 44, 38, 47, 41]), [None; 5]);
        assert_eq!(growths(&[20, 90, 21, 22]), [None; 4]);
        assert_eq!(growths(&[4, 9, 12, 12]), [None; 4], "a few seconds more");
    }
}
