//! The life of findings: opened when seen, kept while seen, closed when the evidence was gone for a while, remembered.

use std::{
    collections::{BTreeMap, HashSet, btree_map::Entry},
    time::Duration,
};

use gaunt_schema::{FindingKind, Safe, Severity, UnixMs, natural};
use serde::{Deserialize, Serialize};

use super::{Finding, Thresholds, chain::Chain, finding::Suspicion};

mod known;
mod places;
#[cfg(test)]
mod tests;

use known::Known;
pub use known::{Lived, Told, Turned};

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

/// A finding closes after as many periods without its evidence, where that is longer than the limit.
const CLOSE_PERIODS: f64 = 1.5;

/// Seconds of a lapse that no settings may pass: a duration holds no more.
const MOST_LAPSE_S: f64 = 86_400.0;

/// What a detector saw in one step.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Faults whose evidence is there.
    pub(super) findings: Vec<Finding>,
    /// Faults whose evidence must stand for a while first.
    pub(super) suspicions: Vec<Suspicion>,
    /// Faults of which nothing can be said now, by id: if they are open they stay open.
    pub(super) unclear: Vec<String>,
    /// Suspicions that something speaks against now, by id: unless they are seen they begin anew.
    pub(super) refuted: Vec<String>,
    /// How far findings from before a restart are looked at, by id.
    pub(super) looks: Vec<(String, Look)>,
}

/// How far a finding from before a restart is looked at.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Look {
    /// All that it rests on is read; for so many seconds that must be so before its absence says anything.
    At(f64),
    /// Not all of it is read.
    Nothing,
    /// It never will be, for this reason.
    Never(Safe),
}

/// The findings that are open, and those that were.
#[derive(Debug, Default)]
pub(super) struct Life {
    known: BTreeMap<String, Known>,
    open: usize,
    pending: BTreeMap<String, Pending>,
    /// Suspicions from before a restart that were not seen since.
    before: BTreeMap<String, Pending>,
    /// The first step.
    began: Option<UnixMs>,
    stepped: Option<UnixMs>,
    opened: BTreeMap<FindingKind, u64>,
    /// Findings whose evidence is there and that have no place, by kind.
    without_place: places::WithoutPlace,
    /// Changes with those that are closed.
    revision: u64,
}

/// Everything that outlives a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Past {
    /// Every finding that is open or remembered.
    pub findings: Vec<Told>,
    /// How many were opened since the very start, by kind.
    pub opened: BTreeMap<FindingKind, u64>,
    /// Suspicions whose evidence was there last, by the ids of the findings that they may become.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pending: BTreeMap<String, Pending>,
    /// Since when each job waits as a whole.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    hangs: BTreeMap<Safe, UnixMs>,
}

impl Past {
    /// The same with since when jobs wait as a whole; of more than can be open not all are kept.
    pub(super) fn with_hangs(mut self, hangs: &BTreeMap<Safe, UnixMs>) -> Self {
        self.hangs = hangs.iter().take(MAX_OPEN).map(|(job, at)| (job.clone(), *at)).collect();
        self
    }

    /// Since when jobs wait as a whole, and the rest.
    pub(super) fn into_hangs(mut self) -> (BTreeMap<Safe, UnixMs>, Self) {
        (std::mem::take(&mut self.hangs), self)
    }
}

/// A suspicion, since when and until when its evidence was there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Pending {
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

impl Pending {
    /// One that is seen for the first time.
    fn new(now: UnixMs, members: &[String]) -> Self {
        Self { since: now, last_seen: now, members: members.to_vec(), ..Self::default() }
    }

    /// One from before a restart that is seen again: what nobody saw does not count as having lasted.
    fn resume(mut self, now: UnixMs) -> Self {
        (self.since, self.last_seen) = (self.since.min(now), self.last_seen.min(now));
        self.unseen_ms += now.since(self.last_seen).as_millis() as u64;
        self.again = Some(now);
        self
    }

    /// Seconds for which its evidence was seen to stand, by now.
    fn lasted(&self, now: UnixMs) -> f64 {
        now.since(self.since).as_secs_f64() - self.unseen_ms as f64 / 1e3
    }

    /// Its evidence is there, of these.
    fn see(&mut self, now: UnixMs, members: &[String]) {
        self.last_seen = now;
        let seen: HashSet<&String> = members.iter().collect();
        self.members.retain(|member| seen.contains(member));
        if self.members.is_empty() && !members.is_empty() {
            // Another one does now what one did before.
            *self = Self::new(now, members);
        }
    }
}

impl Life {
    /// Goes on where a life before this one ended. Findings that were open stay so until they can be judged again.
    pub(super) fn resume(past: Past) -> Self {
        let known = past.findings.into_iter().map(|told| (told.finding.id.clone(), told));
        let known: BTreeMap<_, _> = known.map(|(id, told)| (id, Known::resumed(told))).collect();
        let open = known.values().filter(|known| known.is_open()).count();
        let revision = u64::from(open < known.len());
        let before = past.pending;
        Self { known, open, opened: past.opened, revision, before, ..Self::default() }
    }

    /// What outlives a restart.
    pub(super) fn past(&self) -> Past {
        let findings = self.known.values().map(|known| known.told.clone()).collect();
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
        Past { findings, opened: self.opened.clone(), pending, ..Past::default() }
    }

    /// Takes in what was seen at `now`, where nodes are read each `period`.
    pub(super) fn step(
        &mut self,
        now: UnixMs,
        period: Duration,
        limits: &Thresholds,
        mut seen: Seen,
    ) {
        let suspicions = std::mem::take(&mut seen.suspicions);
        let began = *self.began.get_or_insert(now);
        // Who was away for long cannot say that it was the same all the time.
        let kept = Duration::from_secs_f64(limits.flap_window_seconds.min(MOST_LAPSE_S));
        let late = now.since(began).as_secs_f64() >= limits.resume_seconds;
        self.before.retain(|_, held| !late && now.since(held.last_seen) <= kept);
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
            suspicions.into_iter().filter_map(|held| self.ripen(now, period, limits, held)),
        );
        // Between two samples averages stand; evidence that is missing at a step is gone.
        let step = self.stepped.map_or(Duration::ZERO, |last| now.since(last));
        self.stepped = Some(now);
        // Where nodes are read seldom, one page without the evidence is no end of it.
        let close_s = limits.close_seconds.max(CLOSE_PERIODS * period.max(step).as_secs_f64());
        let forgotten =
            (step + step / 2).max(Duration::from_secs_f64(limits.lapse_seconds.min(MOST_LAPSE_S)));
        self.pending.retain(|_, pending| now.since(pending.last_seen) <= forgotten);
        for id in seen.unclear {
            if let Some(known) = self.known.get_mut(&id) {
                known.keep(now);
            }
        }
        for (id, look) in seen.looks {
            if let Some(known) = self.known.get_mut(&id) {
                known.look(look, now);
            }
        }
        let placed;
        (placed, self.without_place) =
            places::assign(&self.known, seen.findings, limits.sure_of_own_ratio);
        for finding in placed {
            self.take(finding, now, close_s, limits);
        }
        for known in self.known.values_mut() {
            let closes = known.age(now, close_s, limits);
            self.open -= usize::from(closes);
            self.revision += u64::from(closes);
        }
        self.forget(now);
    }

    /// Takes in one finding whose evidence is there.
    fn take(&mut self, finding: Finding, now: UnixMs, close_s: f64, limits: &Thresholds) {
        let (kind, room) = (finding.kind, self.open < MAX_OPEN);
        let opens = match self.known.entry(finding.id.clone()) {
            Entry::Occupied(known) if known.get().is_open() => {
                known.into_mut().update(finding, now, close_s, limits);
                false
            }
            Entry::Occupied(known) if room => {
                known.into_mut().reopen(finding, now, limits);
                self.revision += 1;
                true
            }
            Entry::Vacant(place) if room => {
                place.insert(Known::open(finding, now));
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
    pub(super) fn due(&self, now: UnixMs) -> Vec<Finding> {
        let due = self.known.values().filter(|known| known.is_due(now));
        due.take(MAX_CHAINS).map(|known| known.told.finding.clone()).collect()
    }

    /// The findings that closed at this very step.
    pub(super) fn just_closed(&self, now: UnixMs) -> Vec<Finding> {
        let closed = self.known.values().filter(|known| known.told.life.closed == Some(now));
        closed.map(|known| known.told.finding.clone()).collect()
    }

    /// Keeps why a finding closed.
    pub(super) fn say_recovered(&mut self, id: &str, signal: &str) {
        if let Some(known) = self.known.get_mut(id) {
            known.say_recovered(signal);
        }
    }

    /// Somebody takes the present level for usual: an open finding closes. Says whether it was open.
    pub(super) fn accept(&mut self, id: &str, now: UnixMs, by: &str) -> bool {
        let open = self.known.get_mut(id).filter(|known| known.is_open());
        let Some(known) = open else { return false };
        known.accept(now, by);
        self.pending.remove(id);
        self.open -= 1;
        self.revision += 1;
        true
    }

    /// Keeps what was seen around a finding.
    pub(super) fn attach(&mut self, id: &str, chain: Chain) {
        if let Some(known) = self.known.get_mut(id) {
            known.attach(chain);
        }
    }

    /// Forgets closed findings that are old, or too many.
    fn forget(&mut self, now: UnixMs) {
        let before = self.known.len();
        self.known.retain(|_, known| {
            known.told.life.closed.is_none_or(|closed| now.since(closed) <= REMEMBERED)
        });
        if self.known.len() - self.open > MAX_CLOSED {
            for id in places::crowded_out(&self.known, MAX_CLOSED) {
                self.known.remove(&id);
            }
        }
        self.revision += u64::from(self.known.len() < before);
    }

    /// The finding that a suspicion has become, once its evidence has stood for long enough: for as long as it asks,
    /// and for two samples at least.
    fn ripen(
        &mut self,
        now: UnixMs,
        period: Duration,
        limits: &Thresholds,
        held: Suspicion,
    ) -> Option<Finding> {
        let before = self.before.remove(&held.finding.id);
        let first = || match before {
            Some(before) => before.resume(now),
            None => Pending::new(now, &held.members),
        };
        let pending = self.pending.entry(held.finding.id.clone()).or_insert_with(first);
        pending.see(now, &held.members);
        let samples = if held.hold > 0.0 { period.as_secs_f64() } else { 0.0 };
        // The first samples after a restart are no averages yet.
        let again = pending.again.map(|at| now.since(at).as_secs_f64());
        let steady = again.is_none_or(|seconds| seconds >= limits.average_seconds.min(held.hold));
        let ripe = steady && pending.lasted(now) >= held.hold.max(samples);
        let since = pending.since;
        let open = self.known.get(&held.finding.id).is_some_and(Known::is_open);
        let calm = pending.lasted(now) < held.wakes;
        let confidence = held.confidence(limits);
        let severity = held.finding.severity;
        let severity = if calm { severity.min(Severity::Warning) } else { severity };
        (ripe || open).then_some(Finding { severity, since, confidence, ..held.finding })
    }

    /// The open findings with what their detectors last estimated that they cost, by id.
    pub(super) fn open_with_estimates(&self) -> impl Iterator<Item = (&Told, f64)> {
        let open = self.known.values().filter(|known| known.is_open());
        open.map(|known| (&known.told, known.estimate))
    }

    /// What open findings cost: the lost GPUs that are attributed to each.
    pub(super) fn charge<'a>(
        &mut self,
        now: UnixMs,
        costs: impl Iterator<Item = (&'a String, f64)>,
    ) {
        for (id, lost_gpus) in costs {
            if let Some(known) = self.known.get_mut(id) {
                known.charge(lost_gpus, now);
            }
        }
    }

    /// The open findings, worst first: by severity, then by cost, then by name.
    pub(super) fn open(&self) -> Vec<&Told> {
        let open = self.known.values().filter(|known| known.is_open());
        let mut open: Vec<_> = open.map(|known| &known.told).collect();
        open.sort_by(|a, b| {
            let (a, b) = (&a.finding, &b.finding);
            let cost = b.lost_gpus.total_cmp(&a.lost_gpus);
            b.severity.cmp(&a.severity).then(cost).then_with(|| natural(&a.id, &b.id))
        });
        open
    }

    /// The open findings, in no order that means anything.
    pub(super) fn each_open(&self) -> impl Iterator<Item = &Finding> {
        let open = self.known.values().filter(|known| known.is_open());
        open.map(|known| &known.told.finding)
    }

    /// The closed findings that are remembered, newest first.
    pub(super) fn closed(&self) -> Vec<&Told> {
        let closed = self.known.values().filter(|known| !known.is_open());
        let mut closed: Vec<_> = closed.map(|known| &known.told).collect();
        closed.sort_by(|a, b| {
            let id = || natural(&a.finding.id, &b.finding.id);
            b.life.closed.cmp(&a.life.closed).then_with(id)
        });
        closed
    }

    /// Open findings of which this is true, by id.
    pub(super) fn ids(&self, wanted: impl Fn(&Finding) -> bool) -> Vec<String> {
        let open = self.known.iter().filter(|(_, known)| known.is_open());
        let wanted = open.filter(|(_, known)| wanted(&known.told.finding));
        wanted.map(|(id, _)| id.clone()).collect()
    }

    /// The open finding with this id.
    pub(super) fn open_one(&self, id: &str) -> Option<&Finding> {
        self.known.get(id).filter(|known| known.is_open()).map(|known| &known.told.finding)
    }

    /// Open findings from before a restart that were not looked at for long enough since.
    pub(super) fn unsettled(&self) -> impl Iterator<Item = &Finding> {
        let open = self.known.values().filter(|known| known.is_open() && known.is_unsettled());
        open.map(|known| &known.told.finding)
    }

    /// Changes whenever a finding closes, opens again or is forgotten.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Findings whose evidence is there and that have no place, by kind.
    pub(super) fn without_place(&self) -> &BTreeMap<FindingKind, u32> {
        &self.without_place
    }

    /// How many were opened since the start, by kind.
    pub(super) fn opened(&self) -> &BTreeMap<FindingKind, u64> {
        &self.opened
    }
}
