//! The lifecycle of findings: opened on evidence, kept while it lasts, closed once it is gone for a while, retained.

use std::{
    collections::{BTreeMap, HashMap, HashSet, btree_map::Entry},
    time::Duration,
};

use gaunt_schema::{
    EvidenceContext, Finding, FindingKind, LossShare, SanitizedText, Severity, UnixMs,
    natural_order,
};
use serde::{Deserialize, Serialize};

use super::{
    Thresholds,
    pending_finding::{CERTAIN, PendingFinding, rests_on_work},
    sample_interval::SampleInterval,
};

mod close_wait;
mod finding_quotas;
mod peer_findings;
mod pending_span;
#[cfg(test)]
mod tests;
mod tracked_finding;

use close_wait::{CloseWait, MOST_LAPSE_S, close_samples_s};
use pending_span::{PendingSpan, most_severe};
pub use tracked_finding::FindingRecord;
use tracked_finding::TrackedFinding;

/// The maximum of open findings: when a whole network is cut, the first thousand suffice. `finding_quotas` divides them
/// between kinds and nodes.
const MAX_OPEN: usize = 1_000;

/// The maximum of closed findings that are retained, about two kilobytes each.
const MAX_CLOSED: usize = 1_000;

/// Retention of closed findings: in the morning those of the night are still there.
const REMEMBERED: Duration = Duration::from_hours(24);

/// The maximum of findings that are explained in one step: each takes about a millisecond.
const MAX_CHAINS: usize = 8;

/// The maximum of pending findings that are saved over a restart, and of members saved for each: the longest pending
/// first.
const MAX_PENDING: usize = 1_000;
const MAX_MEMBERS: usize = 64;

/// What detectors found in one step.
#[derive(Debug, Default)]
pub(super) struct DetectorOutcome {
    /// Faults with evidence.
    pub(super) findings: Vec<Finding>,
    /// All jobs that these affect, by name, where their victims are too few for all of them; by finding id.
    pub(super) jobs: HashMap<String, Vec<SanitizedText>>,
    /// Faults whose evidence must last for a while first.
    pub(super) suspicions: Vec<PendingFinding>,
    /// Faults that cannot be decided now, by id: open ones stay open.
    pub(super) undecidable: Vec<String>,
    /// Pending findings that other evidence contradicts now, by id: unless they are seen they start anew.
    pub(super) refuted: Vec<String>,
    /// Open findings that another one explains, by id, and why they close now.
    pub(super) superseded: Vec<(String, SanitizedText)>,
    /// How far the evidence of findings from before a restart is read again, by id.
    pub(super) coverage: Vec<(String, EvidenceCoverage)>,
}

impl DetectorOutcome {
    /// Closes a finding, if it is open, because another one explains it.
    pub(super) fn supersede_open(&mut self, tracker: &FindingTracker, id: &str, reason: &str) {
        if tracker.open_one(id).is_some() {
            self.superseded.push((id.to_owned(), SanitizedText::new(reason)));
        }
    }
}

/// How far the evidence of a finding from before a restart is read again.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EvidenceCoverage {
    /// All of its evidence is read; for so many seconds it must be before its absence counts.
    ReadFor(f64),
    /// Not all of it is read.
    Unread,
    /// It will never be read again, for this reason.
    NeverRead(SanitizedText),
}

/// The open and the closed findings.
#[derive(Debug, Default)]
pub(super) struct FindingTracker {
    known: BTreeMap<String, TrackedFinding>,
    open: usize,
    pending: BTreeMap<String, PendingSpan>,
    /// Pending findings from before a restart that were not seen since.
    before: BTreeMap<String, PendingSpan>,
    /// The time of the first step.
    began: Option<UnixMs>,
    stepped: Option<UnixMs>,
    opened: BTreeMap<FindingKind, u64>,
    /// Findings that have evidence but exceed the quotas, by kind.
    without_place: finding_quotas::OverLimitCounts,
    /// Changes with the closed findings.
    revision: u64,
}

/// All finding state that persists over a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FindingSnapshot {
    /// All open and retained findings.
    pub findings: Vec<FindingRecord>,
    /// How many findings were ever opened, by kind.
    pub opened: BTreeMap<FindingKind, u64>,
    /// Pending findings whose evidence was present last, by the ids of the findings that they may become.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pending: BTreeMap<String, PendingSpan>,
    /// Since when each job is hung.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    hangs: BTreeMap<SanitizedText, UnixMs>,
}

impl FindingSnapshot {
    /// Adds since when jobs are hung; if more than can be open, not all are kept.
    pub(super) fn with_hangs(mut self, hangs: &BTreeMap<SanitizedText, UnixMs>) -> Self {
        self.hangs = hangs.iter().take(MAX_OPEN).map(|(job, at)| (job.clone(), *at)).collect();
        self
    }

    /// Splits off since when jobs are hung.
    pub(super) fn into_hangs(mut self) -> (BTreeMap<SanitizedText, UnixMs>, Self) {
        (std::mem::take(&mut self.hangs), self)
    }
}

impl FindingTracker {
    /// Continues from a snapshot. Findings that were open stay open until they can be evaluated again.
    pub(super) fn from_snapshot(past: FindingSnapshot) -> Self {
        let tracked = past.findings.into_iter().map(|record| (record.finding.id.clone(), record));
        let tracked: BTreeMap<_, _> =
            tracked.map(|(id, record)| (id, TrackedFinding::from_record(record))).collect();
        let open = tracked.values().filter(|tracked| tracked.is_open()).count();
        let revision = u64::from(open < tracked.len());
        let before = past.pending;
        Self { known: tracked, open, opened: past.opened, revision, before, ..Self::default() }
    }

    /// Returns what persists over a restart.
    pub(super) fn to_snapshot(&self) -> FindingSnapshot {
        let findings = self.known.values().map(|tracked| tracked.record.clone()).collect();
        let mut pending: BTreeMap<_, _> = self.before.clone();
        pending.extend(self.pending.iter().map(|(id, it)| (id.clone(), it.clone())));
        // The longest pending matter most; beyond the maximum the youngest start anew.
        while pending.len() > MAX_PENDING {
            let Some(id) = pending.iter().max_by_key(|(_, it)| it.since).map(|(id, _)| id.clone())
            else {
                break;
            };
            pending.remove(&id);
        }
        for candidate in pending.values_mut() {
            candidate.members.truncate(MAX_MEMBERS);
        }
        FindingSnapshot {
            findings,
            opened: self.opened.clone(),
            pending,
            ..FindingSnapshot::default()
        }
    }

    /// Applies what was detected at `now`, where nodes are read each `period`.
    pub(super) fn apply_outcome(
        &mut self,
        now: UnixMs,
        period: Duration,
        limits: &Thresholds,
        mut outcome: DetectorOutcome,
    ) {
        let mut suspicions = std::mem::take(&mut outcome.suspicions);
        for candidate in suspicions.iter_mut().filter(|candidate| !candidate.jobs.is_empty()) {
            outcome.jobs.insert(candidate.finding.id.clone(), std::mem::take(&mut candidate.jobs));
        }
        let began = *self.began.get_or_insert(now);
        // After a long gap it is not known whether the evidence lasted all the time.
        let max_age = Duration::from_secs_f64(limits.flap_close_seconds.min(MOST_LAPSE_S));
        let late = now.duration_since(began).as_secs_f64() >= limits.resume_seconds;
        self.before
            .retain(|_, candidate| !late && now.duration_since(candidate.last_seen) <= max_age);
        if !outcome.refuted.is_empty() {
            let suspected: HashSet<&String> =
                suspicions.iter().map(|candidate| &candidate.finding.id).collect();
            for id in &outcome.refuted {
                self.before.remove(id);
            }
            for id in outcome.refuted.iter().filter(|id| !suspected.contains(id)) {
                self.pending.remove(id);
            }
        }
        outcome.findings.extend(
            most_severe(suspicions)
                .into_iter()
                .filter_map(|candidate| self.promote_pending(now, period, limits, candidate)),
        );
        // Averages hold between two samples; evidence that is missing at a step is gone.
        let step = self.stepped.map_or(Duration::ZERO, |last| now.duration_since(last));
        self.stepped = Some(now);
        // Where nodes are read rarely, one page without the evidence does not close the finding.
        let period_s = period.max(step).as_secs_f64();
        let close_s = CloseWait::new(period_s, limits);
        let forgotten =
            (step + step / 2).max(Duration::from_secs_f64(limits.lapse_seconds.min(MOST_LAPSE_S)));
        self.pending.retain(|_, pending| {
            pending.last_seen == now || pending.observe_absence(now, forgotten)
        });
        for id in outcome.undecidable {
            if let Some(tracked) = self.known.get_mut(&id) {
                tracked.keep_open(now);
            }
        }
        for (id, coverage) in outcome.coverage {
            if let Some(tracked) = self.known.get_mut(&id) {
                tracked.observe_coverage(coverage, now);
            }
        }
        for (id, why) in outcome.superseded {
            self.pending.remove(&id);
            if let Some(tracked) = self.known.get_mut(&id) {
                tracked.give_up(why);
            }
        }
        let placed;
        (placed, self.without_place) =
            finding_quotas::apply_quotas(&self.known, outcome.findings, CERTAIN);
        for finding in placed {
            let jobs = outcome.jobs.remove(&finding.id).unwrap_or_default();
            let interval = self.pending.get(&finding.id).map(PendingSpan::interval);
            let close_s =
                close_s.of(finding.kind).max(close_samples_s(interval.unwrap_or_default()));
            self.apply_finding(finding, jobs, now, close_s, limits);
        }
        for tracked in self.known.values_mut() {
            let close_s = close_s.of(tracked.record.finding.kind).max(tracked.close_s);
            let ends = tracked.update_state(now, close_s, limits);
            self.open -= usize::from(ends);
            self.revision += u64::from(ends);
        }
        self.drop_expired(now);
    }

    /// Applies one finding that has evidence.
    fn apply_finding(
        &mut self,
        finding: Finding,
        jobs: Vec<SanitizedText>,
        now: UnixMs,
        close_s: f64,
        limits: &Thresholds,
    ) {
        let (kind, has_room) = (finding.kind, self.open < MAX_OPEN);
        let (tracked, opens) = match self.known.entry(finding.id.clone()) {
            Entry::Occupied(tracked) if tracked.get().is_open() => {
                let tracked = tracked.into_mut();
                tracked.update_finding(finding, now, close_s, limits);
                (tracked, false)
            }
            Entry::Occupied(tracked) if has_room => {
                let tracked = tracked.into_mut();
                tracked.reopen_finding(finding, now, limits);
                self.revision += 1;
                (tracked, true)
            }
            Entry::Vacant(vacant) if has_room => {
                (vacant.insert(TrackedFinding::open_finding(finding, now)), true)
            }
            _ => return,
        };
        tracked.record.jobs = jobs;
        tracked.close_s = close_s;
        if opens {
            self.open += 1;
            *self.opened.entry(kind).or_default() += 1;
        }
    }

    /// Returns the findings to explain now.
    pub(super) fn due_for_explanation(&self, now: UnixMs) -> Vec<Finding> {
        let due = self.known.values().filter(|tracked| tracked.needs_explanation(now));
        due.take(MAX_CHAINS).map(|tracked| tracked.record.finding.clone()).collect()
    }

    /// Returns the findings that closed at this very step.
    pub(super) fn just_closed(&self, now: UnixMs) -> Vec<Finding> {
        let closed = self.known.values().filter(|tracked| tracked.life().closed == Some(now));
        closed.map(|tracked| tracked.record.finding.clone()).collect()
    }

    /// Records why a finding closed.
    pub(super) fn set_recovery_reason(&mut self, id: &str, signal: &str) {
        if let Some(tracked) = self.known.get_mut(id) {
            tracked.set_recovery_reason(signal);
        }
    }

    /// Closes an open finding because a user accepted the present level as its baseline. Returns whether it was open.
    pub(super) fn accept_finding(&mut self, id: &str, now: UnixMs, by: &str) -> bool {
        let open = self.known.get_mut(id).filter(|tracked| tracked.is_open());
        let Some(tracked) = open else { return false };
        tracked.close_accepted(now, by);
        self.pending.remove(id);
        self.open -= 1;
        self.revision += 1;
        true
    }

    /// Attaches an explanation to a finding.
    pub(super) fn attach_explanation(
        &mut self,
        id: &str,
        chain: EvidenceContext,
        missing: Vec<String>,
    ) {
        if let Some(tracked) = self.known.get_mut(id) {
            tracked.attach_explanation(chain, missing);
        }
    }

    /// Drops closed findings that are too old or too many.
    fn drop_expired(&mut self, now: UnixMs) {
        let before = self.known.len();
        self.known.retain(|_, tracked| {
            tracked.life().closed.is_none_or(|closed| now.duration_since(closed) <= REMEMBERED)
        });
        if self.known.len() - self.open > MAX_CLOSED {
            for id in finding_quotas::oldest_closed(&self.known, MAX_CLOSED) {
                self.known.remove(&id);
            }
        }
        self.revision += u64::from(self.known.len() < before);
    }

    /// Returns the finding that a pending one becomes once its evidence has lasted long enough: its own hold time, and
    /// two samples at least.
    fn promote_pending(
        &mut self,
        now: UnixMs,
        period: Duration,
        limits: &Thresholds,
        candidate: PendingFinding,
    ) -> Option<Finding> {
        let before = self.before.remove(&candidate.finding.id);
        let first = || match before {
            Some(before) => before.resume_after_restart(now),
            None => PendingSpan::new(now, &candidate.members),
        };
        let pending = self.pending.entry(candidate.finding.id.clone()).or_insert_with(first);
        let interval_s = candidate.interval.seconds().max(period.as_secs_f64());
        let samples = if candidate.hold > 0.0 { interval_s } else { 0.0 };
        let hold = candidate.hold.max(samples);
        // One that has stood for long rises only if other evidence outlasts a pause of its job, and stays where it is
        // meanwhile. Before that another sample suffices: what its evidence adds up has lasted already.
        let known = self.known.get(&candidate.finding.id).filter(|tracked| tracked.is_open());
        let stands_at = known.map(|tracked| &tracked.record.finding).filter(|finding| {
            let open_s = now.duration_since(finding.life.opened).as_secs_f64();
            finding.severity < candidate.finding.severity && open_s >= limits.pause_settle_seconds
        });
        let least = stands_at.map_or(Severity::Info, |finding| finding.severity);
        let rise_hold =
            if stands_at.is_some() { hold.max(limits.pause_settle_seconds) } else { samples };
        pending.observe_severity(now, candidate.finding.severity, rise_hold);
        pending.observe_candidate(now, &candidate);
        // The first samples after a restart are no averages yet.
        let again = pending.again.map(|at| now.duration_since(at).as_secs_f64());
        let steady = again.is_none_or(|it| it >= limits.average_seconds.min(candidate.hold));
        let lasted = pending.lasted_seconds();
        // What a job does for a moment, such as a checkpoint, shows in two samples of each node where they are rare.
        let rests_on_work = rests_on_work(candidate.finding.kind)
            || candidate.finding.kind == FindingKind::CollectiveHang;
        let interval = candidate.interval.longer(SampleInterval::of_period(period));
        let samples = if rests_on_work { interval.two_sample_seconds_of_all(limits) } else { 0.0 };
        let confidence = candidate.compute_confidence(limits);
        let pages = lasted >= candidate.page_delay.max(samples);
        let most = if pages { Severity::Critical } else { Severity::Warning };
        let most = if lasted < candidate.warning_delay { Severity::Info } else { most };
        let lasting = pending.lasting_severity(rise_hold).max(least);
        let severity = candidate.finding.severity.min(lasting).min(most);
        let finding = Finding { severity, since: pending.since, confidence, ..candidate.finding };
        (steady && lasted >= hold || known.is_some()).then_some(finding)
    }

    /// Returns the open findings with the cost that their detectors estimated last, by id.
    pub(super) fn open_with_estimates(&self) -> impl Iterator<Item = (&FindingRecord, f64)> {
        let open = self.known.values().filter(|tracked| tracked.is_open());
        open.map(|tracked| (&tracked.record, tracked.estimate))
    }

    /// Sets the cost of open findings: the lost GPUs that are attributed to each, and its share of an undecided loss.
    pub(super) fn set_costs<'a>(
        &mut self,
        now: UnixMs,
        costs: impl Iterator<Item = ((&'a String, f64), Vec<LossShare>)>,
    ) {
        for ((id, lost_gpus), shares) in costs {
            if let Some(tracked) = self.known.get_mut(id) {
                tracked.record.finding.loss_shares = shares;
                tracked.set_cost(lost_gpus, now);
            }
        }
    }

    /// Returns the open findings, worst first: by severity, then by cost, then by name. Costs that are about equal keep
    /// their order while they vary from sample to sample.
    pub(super) fn open_records(&self) -> Vec<&FindingRecord> {
        let mut open: Vec<_> = self.known.values().filter(|tracked| tracked.is_open()).collect();
        open.sort_by(|a, b| {
            let (a, b) = (&a.record.finding, &b.record.finding);
            let cost = b.listed_cost().total_cmp(&a.listed_cost());
            b.severity.cmp(&a.severity).then(cost).then_with(|| natural_order(&a.id, &b.id))
        });
        open.into_iter().map(|tracked| &tracked.record).collect()
    }

    /// Iterates the open findings in no particular order.
    pub(super) fn iter_open(&self) -> impl Iterator<Item = &Finding> {
        let open = self.known.values().filter(|tracked| tracked.is_open());
        open.map(|tracked| &tracked.record.finding)
    }

    /// Returns the retained closed findings, newest first.
    pub(super) fn closed_records(&self) -> Vec<&FindingRecord> {
        let closed = self.known.values().filter(|tracked| !tracked.is_open());
        let mut closed: Vec<_> = closed.map(|tracked| &tracked.record).collect();
        closed.sort_by(|a, b| {
            let id = || natural_order(&a.finding.id, &b.finding.id);
            b.finding.life.closed.cmp(&a.finding.life.closed).then_with(id)
        });
        closed
    }

    /// Returns the ids of the open findings that match the predicate.
    pub(super) fn open_ids_where(&self, wanted: impl Fn(&Finding) -> bool) -> Vec<String> {
        let open = self.known.iter().filter(|(_, tracked)| tracked.is_open());
        let wanted = open.filter(|(_, tracked)| wanted(&tracked.record.finding));
        wanted.map(|(id, _)| id.clone()).collect()
    }

    /// Returns the open finding with this id.
    pub(super) fn open_one(&self, id: &str) -> Option<&Finding> {
        self.known
            .get(id)
            .filter(|tracked| tracked.is_open())
            .map(|tracked| &tracked.record.finding)
    }

    /// Returns the seconds for which a finding was open last, if it closed because its evidence had gone.
    pub(super) fn lasted_before(&self, id: &str) -> Option<f64> {
        self.known.get(id)?.lasted_before()
    }

    /// Returns since when the evidence of a finding with this id is present, whether it is open or pending.
    pub(super) fn suspected_since(&self, id: &str) -> Option<UnixMs> {
        let pending = self.pending.get(id).or_else(|| self.before.get(id)).map(|it| it.since);
        self.open_one(id).map(|finding| finding.since).or(pending)
    }

    /// Returns the open findings from before a restart whose evidence was not read for long enough since.
    pub(super) fn unsettled_findings(&self) -> impl Iterator<Item = &Finding> {
        let open =
            self.known.values().filter(|tracked| tracked.is_open() && tracked.is_unsettled());
        open.map(|tracked| &tracked.record.finding)
    }

    /// Changes whenever a finding closes, reopens or is dropped.
    pub(super) fn closed_revision(&self) -> u64 {
        self.revision
    }

    /// Returns the findings that have evidence but exceed the quotas, by kind.
    pub(super) fn over_limit_counts(&self) -> &BTreeMap<FindingKind, u32> {
        &self.without_place
    }

    /// Returns how many were opened since the start, by kind.
    pub(super) fn opened_counts(&self) -> &BTreeMap<FindingKind, u64> {
        &self.opened
    }
}
