//! The life of findings: opened when seen, kept while seen, closed when the evidence was gone for a while, remembered.

use std::{
    collections::{BTreeMap, HashSet, btree_map::Entry},
    time::Duration,
};

use gaunt_schema::{FindingKind, SanitizedText, Severity, UnixMs, natural_order};
use serde::{Deserialize, Serialize};

use super::{
    DetectedFinding, Thresholds, finding_explanation::FindingExplanation,
    pending_finding::PendingFinding,
};

mod finding_quotas;
#[cfg(test)]
mod tests;
mod tracked_finding;

use tracked_finding::TrackedFinding;
pub use tracked_finding::{FindingHistory, FindingRecord, FindingTransition};

/// The most findings that are open at once: when a whole network is cut, the first thousand say it. How they are divided
/// between kinds and nodes stands in `places`.
const MAX_OPEN: usize = 1_000;

/// The most closed findings that are remembered, about two kilobytes each.
const MAX_CLOSED: usize = 1_000;

/// Closed findings are remembered for so long: who comes in the morning sees the night.
const REMEMBERED: Duration = Duration::from_hours(24);

/// Findings of which everything around them is looked at in one step: it takes about a millisecond each.
const MAX_CHAINS: usize = 8;

/// The most suspicions that are kept over a restart, and of how many each is seen: those that wait longest.
const MAX_PENDING: usize = 1_000;
const MAX_MEMBERS: usize = 64;

/// A finding ends after as many periods without its evidence, where that is longer than the limit.
const CLOSE_PERIODS: f64 = 1.5;

/// Seconds of a lapse that no settings may pass: a duration holds no more.
const MOST_LAPSE_S: f64 = 86_400.0;

/// What a detector saw in one step.
#[derive(Debug, Default)]
pub(super) struct DetectorOutcome {
    /// Faults whose evidence is there.
    pub(super) findings: Vec<DetectedFinding>,
    /// Faults whose evidence must stand for a while first.
    pub(super) suspicions: Vec<PendingFinding>,
    /// Faults of which nothing can be said now, by id: if they are open they stay open.
    pub(super) undecidable: Vec<String>,
    /// Suspicions that something speaks against now, by id: unless they are seen they begin anew.
    pub(super) refuted: Vec<String>,
    /// How far findings from before a restart are looked at, by id.
    pub(super) coverage: Vec<(String, EvidenceCoverage)>,
}

/// How far a finding from before a restart is looked at.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EvidenceCoverage {
    /// All that it rests on is read; for so many seconds that must be so before its absence says anything.
    ReadFor(f64),
    /// Not all of it is read.
    Unread,
    /// It never will be, for this reason.
    NeverRead(SanitizedText),
}

/// The findings that are open, and those that were.
#[derive(Debug, Default)]
pub(super) struct FindingTracker {
    known: BTreeMap<String, TrackedFinding>,
    open: usize,
    pending: BTreeMap<String, PendingSpan>,
    /// Suspicions from before a restart that were not seen since.
    before: BTreeMap<String, PendingSpan>,
    /// The first step.
    began: Option<UnixMs>,
    stepped: Option<UnixMs>,
    opened: BTreeMap<FindingKind, u64>,
    /// Findings whose evidence is there and that have no place, by kind.
    without_place: finding_quotas::OverLimitCounts,
    /// Changes with those that are closed.
    revision: u64,
}

/// Everything that outlives a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FindingSnapshot {
    /// Every finding that is open or remembered.
    pub findings: Vec<FindingRecord>,
    /// How many were opened since the very start, by kind.
    pub opened: BTreeMap<FindingKind, u64>,
    /// Suspicions whose evidence was there last, by the ids of the findings that they may become.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pending: BTreeMap<String, PendingSpan>,
    /// Since when each job waits as a whole.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    hangs: BTreeMap<SanitizedText, UnixMs>,
}

impl FindingSnapshot {
    /// The same with since when jobs wait as a whole; of more than can be open not all are kept.
    pub(super) fn with_hangs(mut self, hangs: &BTreeMap<SanitizedText, UnixMs>) -> Self {
        self.hangs = hangs.iter().take(MAX_OPEN).map(|(job, at)| (job.clone(), *at)).collect();
        self
    }

    /// Since when jobs wait as a whole, and the rest.
    pub(super) fn into_hangs(mut self) -> (BTreeMap<SanitizedText, UnixMs>, Self) {
        (std::mem::take(&mut self.hangs), self)
    }
}

/// A suspicion, since when and until when its evidence was there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct PendingSpan {
    since: UnixMs,
    last_seen: UnixMs,
    /// Those that it was seen of all the time, where it is seen of several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<String>,
    /// Milliseconds since then in which nobody looked, because of restarts.
    #[serde(skip_serializing_if = "is_zero")]
    unseen_ms: u64,
    /// When it was seen again after the last restart.
    #[serde(skip)]
    again: Option<UnixMs>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks it so")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl PendingSpan {
    /// One that is seen for the first time.
    fn new(now: UnixMs, members: &[String]) -> Self {
        Self { since: now, last_seen: now, members: members.to_vec(), ..Self::default() }
    }

    /// One from before a restart that is seen again: what nobody saw does not count as having lasted.
    fn resume_after_restart(mut self, now: UnixMs) -> Self {
        (self.since, self.last_seen) = (self.since.min(now), self.last_seen.min(now));
        self.unseen_ms += now.duration_since(self.last_seen).as_millis() as u64;
        self.again = Some(now);
        self
    }

    /// Seconds for which its evidence was seen to stand, by now.
    fn lasted_seconds(&self, now: UnixMs) -> f64 {
        now.duration_since(self.since).as_secs_f64() - self.unseen_ms as f64 / 1e3
    }

    /// Its evidence is there, of these.
    fn observe_members(&mut self, now: UnixMs, members: &[String]) {
        self.last_seen = now;
        let seen: HashSet<&String> = members.iter().collect();
        self.members.retain(|member| seen.contains(member));
        if self.members.is_empty() && !members.is_empty() {
            // Another one does now what one did before.
            *self = Self::new(now, members);
        }
    }
}

impl FindingTracker {
    /// Goes on where a life before this one ended. Findings that were open stay so until they can be judged again.
    pub(super) fn from_snapshot(past: FindingSnapshot) -> Self {
        let known = past.findings.into_iter().map(|told| (told.finding.id.clone(), told));
        let known: BTreeMap<_, _> =
            known.map(|(id, told)| (id, TrackedFinding::from_record(told))).collect();
        let open = known.values().filter(|known| known.is_open()).count();
        let revision = u64::from(open < known.len());
        let before = past.pending;
        Self { known, open, opened: past.opened, revision, before, ..Self::default() }
    }

    /// What outlives a restart.
    pub(super) fn to_snapshot(&self) -> FindingSnapshot {
        let findings = self.known.values().map(|known| known.record.clone()).collect();
        let mut pending: BTreeMap<_, _> = self.before.clone();
        pending.extend(self.pending.iter().map(|(id, it)| (id.clone(), it.clone())));
        // What waits for long matters most; of what is too much the youngest begins anew.
        while pending.len() > MAX_PENDING {
            let Some(id) = pending.iter().max_by_key(|(_, it)| it.since).map(|(id, _)| id.clone())
            else {
                break;
            };
            pending.remove(&id);
        }
        for held in pending.values_mut() {
            held.members.truncate(MAX_MEMBERS);
        }
        FindingSnapshot {
            findings,
            opened: self.opened.clone(),
            pending,
            ..FindingSnapshot::default()
        }
    }

    /// Takes in what was seen at `now`, where nodes are read each `period`.
    pub(super) fn apply_outcome(
        &mut self,
        now: UnixMs,
        period: Duration,
        limits: &Thresholds,
        mut seen: DetectorOutcome,
    ) {
        let suspicions = std::mem::take(&mut seen.suspicions);
        let began = *self.began.get_or_insert(now);
        // Who was away for long cannot say that it was the same all the time.
        let kept = Duration::from_secs_f64(limits.flap_window_seconds.min(MOST_LAPSE_S));
        let late = now.duration_since(began).as_secs_f64() >= limits.resume_seconds;
        self.before.retain(|_, held| !late && now.duration_since(held.last_seen) <= kept);
        if !seen.refuted.is_empty() {
            let suspected: HashSet<&String> =
                suspicions.iter().map(|held| &held.finding.id).collect();
            for id in &seen.refuted {
                self.before.remove(id);
            }
            for id in seen.refuted.iter().filter(|id| !suspected.contains(id)) {
                self.pending.remove(id);
            }
        }
        seen.findings.extend(
            suspicions
                .into_iter()
                .filter_map(|held| self.promote_pending(now, period, limits, held)),
        );
        // Between two samples averages stand; evidence that is missing at a step is gone.
        let step = self.stepped.map_or(Duration::ZERO, |last| now.duration_since(last));
        self.stepped = Some(now);
        // Where nodes are read seldom, one page without the evidence is no end of it.
        let close_s = limits.close_seconds.max(CLOSE_PERIODS * period.max(step).as_secs_f64());
        let forgotten =
            (step + step / 2).max(Duration::from_secs_f64(limits.lapse_seconds.min(MOST_LAPSE_S)));
        self.pending.retain(|_, pending| now.duration_since(pending.last_seen) <= forgotten);
        for id in seen.undecidable {
            if let Some(known) = self.known.get_mut(&id) {
                known.keep_open(now);
            }
        }
        for (id, look) in seen.coverage {
            if let Some(known) = self.known.get_mut(&id) {
                known.observe_coverage(look, now);
            }
        }
        let placed;
        (placed, self.without_place) =
            finding_quotas::apply_quotas(&self.known, seen.findings, limits.sure_of_own_ratio);
        for finding in placed {
            self.apply_finding(finding, now, close_s, limits);
        }
        for known in self.known.values_mut() {
            let ends = known.update_state(now, close_s, limits);
            self.open -= usize::from(ends);
            self.revision += u64::from(ends);
        }
        self.drop_expired(now);
    }

    /// Takes in one finding whose evidence is there.
    fn apply_finding(
        &mut self,
        finding: DetectedFinding,
        now: UnixMs,
        close_s: f64,
        limits: &Thresholds,
    ) {
        let (kind, room) = (finding.kind, self.open < MAX_OPEN);
        let opens = match self.known.entry(finding.id.clone()) {
            Entry::Occupied(known) if known.get().is_open() => {
                known.into_mut().update_finding(finding, now, close_s, limits);
                false
            }
            Entry::Occupied(known) if room => {
                known.into_mut().reopen_finding(finding, now, limits);
                self.revision += 1;
                true
            }
            Entry::Vacant(place) if room => {
                place.insert(TrackedFinding::open_finding(finding, now));
                true
            }
            _ => false,
        };
        if opens {
            self.open += 1;
            *self.opened.entry(kind).or_default() += 1;
        }
    }

    /// Findings of which everything around them is to be looked at now.
    pub(super) fn due_for_explanation(&self, now: UnixMs) -> Vec<DetectedFinding> {
        let due = self.known.values().filter(|known| known.needs_explanation(now));
        due.take(MAX_CHAINS).map(|known| known.record.finding.clone()).collect()
    }

    /// The findings that closed at this very step.
    pub(super) fn just_closed(&self, now: UnixMs) -> Vec<DetectedFinding> {
        let closed = self.known.values().filter(|known| known.record.life.closed == Some(now));
        closed.map(|known| known.record.finding.clone()).collect()
    }

    /// Keeps why a finding closed.
    pub(super) fn set_recovery_reason(&mut self, id: &str, signal: &str) {
        if let Some(known) = self.known.get_mut(id) {
            known.set_recovery_reason(signal);
        }
    }

    /// Somebody takes the present level for usual: an open finding ends. Says whether it was open.
    pub(super) fn accept_finding(&mut self, id: &str, now: UnixMs, by: &str) -> bool {
        let open = self.known.get_mut(id).filter(|known| known.is_open());
        let Some(known) = open else { return false };
        known.close_accepted(now, by);
        self.pending.remove(id);
        self.open -= 1;
        self.revision += 1;
        true
    }

    /// Keeps what was seen around a finding.
    pub(super) fn attach_explanation(&mut self, id: &str, chain: FindingExplanation) {
        if let Some(known) = self.known.get_mut(id) {
            known.attach_explanation(chain);
        }
    }

    /// Forgets closed findings that are old, or too many.
    fn drop_expired(&mut self, now: UnixMs) {
        let before = self.known.len();
        self.known.retain(|_, known| {
            known.record.life.closed.is_none_or(|closed| now.duration_since(closed) <= REMEMBERED)
        });
        if self.known.len() - self.open > MAX_CLOSED {
            for id in finding_quotas::oldest_closed(&self.known, MAX_CLOSED) {
                self.known.remove(&id);
            }
        }
        self.revision += u64::from(self.known.len() < before);
    }

    /// The finding that a suspicion has become, once its evidence has stood for long enough: for as long as it asks,
    /// and for two samples at least.
    fn promote_pending(
        &mut self,
        now: UnixMs,
        period: Duration,
        limits: &Thresholds,
        held: PendingFinding,
    ) -> Option<DetectedFinding> {
        let before = self.before.remove(&held.finding.id);
        let first = || match before {
            Some(before) => before.resume_after_restart(now),
            None => PendingSpan::new(now, &held.members),
        };
        let pending = self.pending.entry(held.finding.id.clone()).or_insert_with(first);
        pending.observe_members(now, &held.members);
        let samples = if held.hold > 0.0 { period.as_secs_f64() } else { 0.0 };
        // The first samples after a restart are no averages yet.
        let again = pending.again.map(|at| now.duration_since(at).as_secs_f64());
        let steady = again.is_none_or(|seconds| seconds >= limits.average_seconds.min(held.hold));
        let ripe = steady && pending.lasted_seconds(now) >= held.hold.max(samples);
        let since = pending.since;
        let open = self.known.get(&held.finding.id).is_some_and(TrackedFinding::is_open);
        let calm = pending.lasted_seconds(now) < held.page_delay;
        let confidence = held.compute_confidence(limits);
        let severity = held.finding.severity;
        let severity = if calm { severity.min(Severity::Warning) } else { severity };
        (ripe || open).then_some(DetectedFinding { severity, since, confidence, ..held.finding })
    }

    /// The open findings with what their detectors last estimated that they cost, by id.
    pub(super) fn open_with_estimates(&self) -> impl Iterator<Item = (&FindingRecord, f64)> {
        let open = self.known.values().filter(|known| known.is_open());
        open.map(|known| (&known.record, known.estimate))
    }

    /// What open findings cost: the lost GPUs that are attributed to each.
    pub(super) fn set_costs<'a>(
        &mut self,
        now: UnixMs,
        costs: impl Iterator<Item = (&'a String, f64)>,
    ) {
        for (id, lost_gpus) in costs {
            if let Some(known) = self.known.get_mut(id) {
                known.set_cost(lost_gpus, now);
            }
        }
    }

    /// The open findings, worst first: by severity, then by cost, then by name.
    pub(super) fn open_records(&self) -> Vec<&FindingRecord> {
        let open = self.known.values().filter(|known| known.is_open());
        let mut open: Vec<_> = open.map(|known| &known.record).collect();
        open.sort_by(|a, b| {
            let (a, b) = (&a.finding, &b.finding);
            let cost = b.lost_gpus.total_cmp(&a.lost_gpus);
            b.severity.cmp(&a.severity).then(cost).then_with(|| natural_order(&a.id, &b.id))
        });
        open
    }

    /// The open findings, in no order that means anything.
    pub(super) fn iter_open(&self) -> impl Iterator<Item = &DetectedFinding> {
        let open = self.known.values().filter(|known| known.is_open());
        open.map(|known| &known.record.finding)
    }

    /// The closed findings that are remembered, newest first.
    pub(super) fn closed_records(&self) -> Vec<&FindingRecord> {
        let closed = self.known.values().filter(|known| !known.is_open());
        let mut closed: Vec<_> = closed.map(|known| &known.record).collect();
        closed.sort_by(|a, b| {
            let id = || natural_order(&a.finding.id, &b.finding.id);
            b.life.closed.cmp(&a.life.closed).then_with(id)
        });
        closed
    }

    /// Open findings of which this is true, by id.
    pub(super) fn open_ids_where(&self, wanted: impl Fn(&DetectedFinding) -> bool) -> Vec<String> {
        let open = self.known.iter().filter(|(_, known)| known.is_open());
        let wanted = open.filter(|(_, known)| wanted(&known.record.finding));
        wanted.map(|(id, _)| id.clone()).collect()
    }

    /// The open finding with this id.
    pub(super) fn open_one(&self, id: &str) -> Option<&DetectedFinding> {
        self.known.get(id).filter(|known| known.is_open()).map(|known| &known.record.finding)
    }

    /// Open findings from before a restart that were not looked at for long enough since.
    pub(super) fn unsettled_findings(&self) -> impl Iterator<Item = &DetectedFinding> {
        let open = self.known.values().filter(|known| known.is_open() && known.is_unsettled());
        open.map(|known| &known.record.finding)
    }

    /// Changes whenever a finding ends, opens again or is forgotten.
    pub(super) fn closed_revision(&self) -> u64 {
        self.revision
    }

    /// Findings whose evidence is there and that have no place, by kind.
    pub(super) fn over_limit_counts(&self) -> &BTreeMap<FindingKind, u32> {
        &self.without_place
    }

    /// How many were opened since the start, by kind.
    pub(super) fn opened_counts(&self) -> &BTreeMap<FindingKind, u64> {
        &self.opened
    }
}
