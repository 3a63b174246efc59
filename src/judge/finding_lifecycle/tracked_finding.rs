//! One tracked finding: its present content, its state, and what changed since it was opened.

use std::{sync::Arc, time::Duration};

use gaunt_schema::{
    EvidenceContext, Finding, FindingEvent, FindingLifecycle, LifeState, LifecycleChange,
    SanitizedText, Severity, UnixMs,
};
use serde::{Deserialize, Serialize};

use super::{super::Thresholds, EvidenceCoverage, close_wait::CloseWait};

/// The maximum of changes that are kept: the opening and the newest of the others.
const MAX_CHANGES: usize = 24;

/// The maximum of openings that are counted for flapping; more add nothing.
const MAX_OPENINGS: usize = 16;

/// A finding counts as changing for so long after a change.
const CHANGING: Duration = Duration::from_mins(1);

/// An explanation is renewed after so long while the evidence lasts.
const LOOKED_EVERY: Duration = Duration::from_secs(30);

/// Cost and victims move with every sample; their changes are recorded no more often than this.
const NOTED_EVERY: Duration = Duration::from_secs(30);

/// A cost that changes by less than this share of itself, or by less than one GPU, counts as equal.
const SAME_COST: f64 = 0.25;

/// GPUs by which a small cost may change before its finding moves in a list.
const SAME_LISTED_COST: f64 = 0.5;

/// A finding with what is saved besides what its answers contain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindingRecord {
    /// Its present or last content.
    pub finding: Finding,
    /// All affected jobs, by name, where its victims are too few for all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<SanitizedText>,
    /// When its evidence appeared, the first time and each time after it had been gone, within the flapping window.
    openings: Vec<UnixMs>,
    /// Seconds for which it was open last, if it closed because its evidence had gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lasted_s: Option<f64>,
    /// The context of its last explanation.
    #[serde(default)]
    pub chain: Option<Arc<EvidenceContext>>,
}

/// A finding record with the state of its lifecycle.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says something else of its life")]
pub(super) struct TrackedFinding {
    pub(super) record: FindingRecord,
    /// The cost that its detector estimated last. Not saved: after a restart the attributed cost replaces it.
    pub(super) estimate: f64,
    /// Seconds without its evidence after which it closes, as of its last sample.
    pub(super) close_s: f64,
    /// Until when the absence of its evidence could not be decided.
    undecided_until: UnixMs,
    /// Since when it would be less urgent.
    calmer: Option<UnixMs>,
    /// The cost that was recorded last, and when.
    noted_cost: (f64, UnixMs),
    /// The number of victims that was recorded last, and when.
    noted_victims: (usize, UnixMs),
    /// Whether it was open before a restart and was not seen since.
    resumed: bool,
    /// Whether it was open before a restart, and its evidence was not read for long enough since.
    unsettled: bool,
    /// Since when all of its evidence is read, while it is unsettled.
    read_since: Option<UnixMs>,
    /// Whether its evidence was missing at a step since it was last present.
    missed: bool,
    /// Why it is given up.
    given_up: Option<SanitizedText>,
    flapping: bool,
    /// Whether it needs an explanation, however recent the last one is.
    rose: bool,
}

impl TrackedFinding {
    /// Opens a finding that is seen for the first time.
    pub(super) fn open_finding(finding: Finding, now: UnixMs) -> Self {
        let life =
            FindingLifecycle { opened: now, seen: now, openings: 1, ..FindingLifecycle::default() };
        let noted_cost = (finding.lost_gpus, now);
        let noted_victims = (finding.victims.len(), now);
        let listed_lost_gpus = Some(finding.lost_gpus);
        let finding = Finding { life, listed_lost_gpus, ..finding };
        let mut tracked = Self {
            estimate: finding.lost_gpus,
            close_s: 0.0,
            record: FindingRecord {
                finding,
                jobs: Vec::new(),
                openings: vec![now],
                lasted_s: None,
                chain: None,
            },
            undecided_until: now,
            calmer: None,
            noted_cost,
            noted_victims,
            resumed: false,
            unsettled: false,
            read_since: None,
            missed: false,
            given_up: None,
            flapping: false,
            rose: true,
        };
        let severity = tracked.record.finding.severity;
        tracked.record_transition(now, FindingEvent::Opened, "", severity.as_str());
        tracked
    }

    /// Restores a finding from before a restart.
    pub(super) fn from_record(record: FindingRecord) -> Self {
        let Finding { life, lost_gpus: estimate, victims, .. } = &record.finding;
        let (estimate, undecided_until, resumed) = (*estimate, life.seen, life.closed.is_none());
        let (noted_cost, noted_victims) =
            ((estimate, undecided_until), (victims.len(), undecided_until));
        let flapping = life.state == LifeState::Flapping;
        Self {
            record,
            estimate,
            close_s: 0.0,
            undecided_until,
            calmer: None,
            noted_cost,
            noted_victims,
            resumed,
            unsettled: resumed,
            read_since: None,
            missed: false,
            given_up: None,
            flapping,
            rose: false,
        }
    }

    pub(super) fn life(&self) -> &FindingLifecycle {
        &self.record.finding.life
    }

    pub(super) fn is_open(&self) -> bool {
        self.life().closed.is_none()
    }

    /// Returns the seconds for which it was open last, if it closed because its evidence had gone.
    pub(super) fn lasted_before(&self) -> Option<f64> {
        self.record.lasted_s.filter(|_| !self.is_open())
    }

    /// Whether it was open before a restart, and its evidence was not read for long enough since.
    pub(super) fn is_unsettled(&self) -> bool {
        self.unsettled
    }

    /// Records how far its evidence is read after a restart: until that suffices, it stays open.
    pub(super) fn observe_coverage(&mut self, coverage: EvidenceCoverage, now: UnixMs) {
        match coverage {
            EvidenceCoverage::ReadFor(seconds) => {
                let since = *self.read_since.get_or_insert(now);
                self.unsettled = now.duration_since(since).as_secs_f64() < seconds;
            }
            EvidenceCoverage::Unread => self.read_since = None,
            EvidenceCoverage::NeverRead(why) => {
                (self.given_up, self.unsettled) = (Some(why), false);
                return;
            }
        }
        // Also at the step at which it was read for long enough: what is missing from then on was present until then.
        self.keep_open(now);
    }

    /// Whether it needs an explanation: its evidence must be present at this very step.
    pub(super) fn needs_explanation(&self, now: UnixMs) -> bool {
        let old = self
            .record
            .chain
            .as_ref()
            .is_none_or(|chain| now.duration_since(chain.at) >= LOOKED_EVERY);
        self.is_open() && self.life().seen == now && (self.rose || old)
    }

    /// Attaches an explanation, and the telemetry that would have raised the confidence.
    pub(super) fn attach_explanation(&mut self, chain: EvidenceContext, missing: Vec<String>) {
        self.rose = false;
        self.record.chain = Some(Arc::new(chain));
        self.record.finding.missing = missing;
    }

    /// Replaces what a detector creates of it; its lifecycle and its explanation remain.
    fn replace_content(&mut self, finding: Finding) {
        self.estimate = finding.lost_gpus;
        let before = std::mem::replace(&mut self.record.finding, finding);
        self.record.finding.life = before.life;
        self.record.finding.missing = before.missing;
        self.record.finding.listed_lost_gpus = before.listed_lost_gpus;
    }

    /// Lets it close at this step, for this reason.
    pub(super) fn give_up(&mut self, why: SanitizedText) {
        self.given_up = Some(why);
    }

    /// Keeps it open: it cannot be decided now whether its evidence is present.
    pub(super) fn keep_open(&mut self, now: UnixMs) {
        self.undecided_until = now;
    }

    /// Reopens it because its evidence is back. Soon after closing it continues, later it starts anew.
    pub(super) fn reopen_finding(&mut self, finding: Finding, now: UnixMs, limits: &Thresholds) {
        let closed = self.life().closed.unwrap_or(now);
        if now.duration_since(closed).as_secs_f64() > limits.flap_window_seconds {
            *self = Self::open_finding(finding, now);
            return;
        }
        let severity = finding.severity;
        self.noted_cost = (finding.lost_gpus, now);
        self.noted_victims = (finding.victims.len(), now);
        (self.undecided_until, self.calmer, self.resumed, self.rose) = (now, None, false, true);
        self.missed = false;
        self.replace_content(finding);
        let life = &mut self.record.finding.life;
        (life.closed, life.seen) = (None, now);
        self.record_transition(now, FindingEvent::Reopened, "", severity.as_str());
        self.record_recurrence(now, limits);
    }

    /// Updates it with present evidence; the evidence was gone if it was missing for `close_s` seconds.
    pub(super) fn update_finding(
        &mut self,
        finding: Finding,
        now: UnixMs,
        close_s: f64,
        limits: &Thresholds,
    ) {
        if !self.resumed && self.was_gone(now, close_s) {
            self.record_recurrence(now, limits);
        }
        let severity = self.settle_severity(finding.severity, now, close_s);
        let before = &self.record.finding;
        let since = before.since.min(finding.since);
        let mut changes = Vec::new();
        if severity != before.severity {
            self.rose |= severity > before.severity;
            changes.push((
                FindingEvent::Severity,
                before.severity.to_string(),
                severity.to_string(),
            ));
        }
        if finding.entity != before.entity {
            changes.push((
                FindingEvent::Blame,
                before.entity.to_string(),
                finding.entity.to_string(),
            ));
        }
        let ((victims, at), more) = (self.noted_victims, finding.victims.len());
        if now.duration_since(at) >= NOTED_EVERY && more != victims {
            changes.push((FindingEvent::Victims, victims.to_string(), more.to_string()));
            self.noted_victims = (more, now);
        }
        let lost_gpus = before.lost_gpus;
        self.replace_content(Finding { severity, since, ..finding });
        self.record.finding.set_lost_gpus(lost_gpus);
        self.record.finding.life.seen = now;
        (self.undecided_until, self.resumed, self.missed, self.given_up) =
            (now, false, false, None);
        for (what, from, to) in changes {
            self.record_transition(now, what, &from, &to);
        }
    }

    /// Sets the lost GPUs that are attributed to it now.
    pub(super) fn set_cost(&mut self, lost_gpus: f64, now: UnixMs) {
        let listed = self.record.finding.listed_lost_gpus;
        self.record.finding.set_lost_gpus(lost_gpus);
        // No list is reordered by noise.
        let is_same =
            |listed: f64| (lost_gpus - listed).abs() < (listed * SAME_COST).max(SAME_LISTED_COST);
        if !listed.is_some_and(is_same) {
            self.record.finding.listed_lost_gpus = Some(lost_gpus);
        }
        let (cost, at) = self.noted_cost;
        if at == now {
            // It opened at this step: until now this was the estimate of its detector.
            self.noted_cost.0 = lost_gpus;
            return;
        }
        if now.duration_since(at) >= NOTED_EVERY
            && (lost_gpus - cost).abs() >= (cost * SAME_COST).max(1.0)
        {
            let (from, to) = (format!("{cost:.1} GPUs"), format!("{lost_gpus:.1} GPUs"));
            self.record_transition(now, FindingEvent::Cost, &from, &to);
            self.noted_cost = (lost_gpus, now);
        }
    }

    /// Returns the severity to report: it rises at once, and falls after the evidence was weaker for a while.
    fn settle_severity(&mut self, asked: Severity, now: UnixMs, close_s: f64) -> Severity {
        let reported = self.record.finding.severity;
        if asked >= reported {
            self.calmer = None;
            return asked;
        }
        // Weaker before a pause of its job and after it is not weaker all the time.
        if self.missed {
            self.calmer = None;
        }
        let since = *self.calmer.get_or_insert(now);
        // The first samples after a restart are weaker evidence than those before it.
        if self.unsettled {
            self.calmer = None;
            return reported;
        }
        if now.duration_since(since).as_secs_f64() < close_s {
            return reported;
        }
        self.calmer = None;
        asked
    }

    /// Whether its evidence was gone for long enough to close it, or would have been but for a restart: all of its
    /// evidence was read since it was last present.
    fn was_gone(&self, now: UnixMs, close_s: f64) -> bool {
        let last_seen = self.life().seen;
        let was_read = self.unsettled && self.read_since.is_some_and(|since| since <= last_seen);
        let since = if was_read { last_seen } else { self.undecided_until };
        self.missed && now.duration_since(since).as_secs_f64() >= close_s
    }

    /// Records that its evidence was gone and is back.
    fn record_recurrence(&mut self, now: UnixMs, limits: &Thresholds) {
        if self.record.openings.len() == MAX_OPENINGS {
            self.record.openings.remove(0);
        }
        self.record.openings.push(now);
        let times = self.prune_openings(now, limits);
        if times as f64 >= limits.flap_openings && !self.flapping {
            self.flapping = true;
            let times = format!("{} times", self.record.openings.len());
            self.record_transition(now, FindingEvent::Flapping, "", &times);
        }
    }

    /// Drops openings outside the flapping window; returns the number of the others.
    fn prune_openings(&mut self, now: UnixMs, limits: &Thresholds) -> usize {
        let openings = &mut self.record.openings;
        for at in openings.iter_mut() {
            // A clock that was set back must not leave it in the future.
            *at = (*at).min(now);
        }
        let window = limits.flap_window_seconds;
        openings.retain(|at| now.duration_since(*at).as_secs_f64() <= window);
        self.record.finding.life.openings = openings.len() as u32;
        openings.len()
    }

    /// Returns the longest time from one of its openings to the next, in seconds.
    fn longest_gap_s(&self) -> f64 {
        let gaps = self.record.openings.windows(2);
        let gaps = gaps.filter_map(|pair| Some(pair.last()?.duration_since(*pair.first()?)));
        gaps.max().unwrap_or_default().as_secs_f64()
    }

    /// Updates its state with time; returns whether it closes now.
    pub(super) fn update_state(&mut self, now: UnixMs, close_s: f64, limits: &Thresholds) -> bool {
        if !self.is_open() {
            return false;
        }
        self.missed |= self.life().seen != now;
        // How long it pauses is remembered until its pause is over.
        let pauses = self.flapping && self.life().seen != now;
        if (self.record.openings.len() > 1 || self.flapping) && !pauses {
            let times = self.prune_openings(now, limits);
            // How often it recurred without evaluation is not known.
            self.flapping &= times > 1 || self.unsettled;
        }
        // A clock that was set back must not keep it open.
        self.undecided_until = self.undecided_until.min(now);
        let kind = self.record.finding.kind;
        let flaps = CloseWait::of_flapping(kind, self.longest_gap_s(), limits);
        let wait = if self.flapping { flaps } else { 0.0 }.max(close_s);
        let ends = self.given_up.is_some()
            || now.duration_since(self.undecided_until).as_secs_f64() >= wait;
        if ends {
            self.record.finding.life.closed = Some(now);
            self.flapping = false;
            let opened = self.record.openings.last().filter(|_| self.given_up.is_none());
            self.record.lasted_s = opened.map(|opened| now.duration_since(*opened).as_secs_f64());
            let why = self.given_up.take().unwrap_or_default();
            self.record_transition(now, FindingEvent::Closed, "", &why);
        }
        let changed = |change: &&LifecycleChange| {
            use FindingEvent::{Blame, Cost, Severity, Victims};
            matches!(change.what, Severity | Blame | Victims | Cost)
        };
        let last = self.life().changes.iter().rev().find(changed);
        let changing = last.is_some_and(|change| now.duration_since(change.at) < CHANGING);
        self.record.finding.life.state = match (ends, self.flapping, changing) {
            (true, ..) => LifeState::Closed,
            (_, true, _) => LifeState::Flapping,
            (.., true) => LifeState::Changing,
            _ => LifeState::Open,
        };
        ends
    }

    /// Records why it closed: the signal that recovered.
    pub(super) fn set_recovery_reason(&mut self, signal: &str) {
        if let Some(last) = self.record.finding.life.changes.last_mut()
            && last.what == FindingEvent::Closed
            && last.to.is_empty()
        {
            last.to = SanitizedText::new(signal);
        }
    }

    /// Closes it because a user accepted the present level as its baseline.
    pub(super) fn close_accepted(&mut self, now: UnixMs, by: &str) {
        let life = &mut self.record.finding.life;
        (life.closed, life.state) = (Some(now), LifeState::Closed);
        (self.flapping, self.resumed) = (false, false);
        self.record_transition(now, FindingEvent::Accepted, "", by);
    }

    fn record_transition(&mut self, at: UnixMs, what: FindingEvent, from: &str, to: &str) {
        let changes = &mut self.record.finding.life.changes;
        if changes.len() == MAX_CHANGES {
            changes.remove(1);
        }
        changes.push(LifecycleChange {
            at,
            what,
            from: SanitizedText::new(from),
            to: SanitizedText::new(to),
        });
    }
}
