//! One finding that is known: what is said of it now, and what changed since it was opened.

use std::{sync::Arc, time::Duration};

use gaunt_schema::{FindingEvent, LifeState, SanitizedText, Severity, UnixMs};
use serde::{Deserialize, Serialize};

use super::{
    super::{DetectedFinding, Thresholds, finding_explanation::FindingExplanation},
    EvidenceCoverage,
};

/// Changes that are kept: the opening and the newest of the others.
const MAX_CHANGES: usize = 24;

/// Openings that are counted for flapping; more say nothing more.
const MAX_OPENINGS: usize = 16;

/// A finding is said to change for so long after it did.
const CHANGING: Duration = Duration::from_mins(1);

/// What is around a finding is looked at again after so long while its evidence stands.
const LOOKED_EVERY: Duration = Duration::from_secs(30);

/// Cost and victims move with every sample; a change of them is noted no more often than this.
const NOTED_EVERY: Duration = Duration::from_secs(30);

/// A cost that changes by less than this share of itself, or by less than one GPU, is the same.
const SAME_COST: f64 = 0.25;

/// A finding with what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindingRecord {
    /// What is said of it, or was said last.
    pub finding: DetectedFinding,
    /// What became of it.
    pub life: FindingHistory,
    /// What was around it when that was last looked at.
    #[serde(default)]
    pub chain: Option<Arc<FindingExplanation>>,
}

/// What became of a finding so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FindingHistory {
    /// Where it stands.
    pub state: LifeState,
    /// When it was first said.
    pub opened: UnixMs,
    /// When its evidence was last there.
    pub seen: UnixMs,
    /// When it was closed, if it was.
    pub closed: Option<UnixMs>,
    /// When its evidence came, the first time and each time after it had been gone, within the window of flapping.
    pub openings: Vec<UnixMs>,
    /// What changed, oldest first.
    pub changes: Vec<FindingTransition>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingTransition {
    /// When.
    pub at: UnixMs,
    /// What changed.
    pub what: FindingEvent,
    /// What it was before; may be empty.
    pub from: SanitizedText,
    /// What it is from then on; may be empty.
    pub to: SanitizedText,
}

/// The same with what is needed to lead its life.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says something else of its life")]
pub(super) struct TrackedFinding {
    pub(super) record: FindingRecord,
    /// What its detector last estimated that it costs. Not kept: after a restart what was attributed to it stands in.
    pub(super) estimate: f64,
    /// Until when nobody could say that its evidence is gone.
    kept: UnixMs,
    /// Since when it would be less urgent.
    calmer: Option<UnixMs>,
    /// The cost that was noted last, and when.
    noted_cost: (f64, UnixMs),
    /// How many victims were noted last, and when.
    noted_victims: (usize, UnixMs),
    /// Whether it was open before a restart and was not seen since.
    resumed: bool,
    /// Whether it was open before a restart, and what it rests on was not looked at for long enough since.
    unsettled: bool,
    /// Since when all that it rests on is looked at, while it is unsettled.
    looked_since: Option<UnixMs>,
    /// Whether its evidence was missing at a step since it was last there.
    missed: bool,
    /// Why it is given up.
    given_up: Option<SanitizedText>,
    flapping: bool,
    /// Whether what is around it is to be looked at, however recently that was done.
    rose: bool,
}

impl TrackedFinding {
    /// A finding that is seen for the first time.
    pub(super) fn open_finding(finding: DetectedFinding, now: UnixMs) -> Self {
        let life = FindingHistory {
            opened: now,
            seen: now,
            openings: vec![now],
            ..FindingHistory::default()
        };
        let noted_cost = (finding.lost_gpus, now);
        let noted_victims = (finding.victims.len(), now);
        let mut known = Self {
            estimate: finding.lost_gpus,
            record: FindingRecord { finding, life, chain: None },
            kept: now,
            calmer: None,
            noted_cost,
            noted_victims,
            resumed: false,
            unsettled: false,
            looked_since: None,
            missed: false,
            given_up: None,
            flapping: false,
            rose: true,
        };
        let severity = known.record.finding.severity;
        known.record_transition(now, FindingEvent::Opened, "", severity.as_str());
        known
    }

    /// A finding from before a restart.
    pub(super) fn from_record(told: FindingRecord) -> Self {
        let noted_cost = (told.finding.lost_gpus, told.life.seen);
        let noted_victims = (told.finding.victims.len(), told.life.seen);
        let (kept, resumed) = (told.life.seen, told.life.closed.is_none());
        let flapping = told.life.state == LifeState::Flapping;
        let estimate = told.finding.lost_gpus;
        Self {
            record: told,
            estimate,
            kept,
            calmer: None,
            noted_cost,
            noted_victims,
            resumed,
            unsettled: resumed,
            looked_since: None,
            missed: false,
            given_up: None,
            flapping,
            rose: false,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.record.life.closed.is_none()
    }

    /// Whether it was open before a restart, and what it rests on was not looked at for long enough since.
    pub(super) fn is_unsettled(&self) -> bool {
        self.unsettled
    }

    /// How far what it rests on is looked at after a restart: as long as that is not enough, it stays.
    pub(super) fn observe_coverage(&mut self, look: EvidenceCoverage, now: UnixMs) {
        match look {
            EvidenceCoverage::ReadFor(seconds) => {
                let since = *self.looked_since.get_or_insert(now);
                self.unsettled = now.duration_since(since).as_secs_f64() < seconds;
            }
            EvidenceCoverage::Unread => self.looked_since = None,
            EvidenceCoverage::NeverRead(why) => {
                (self.given_up, self.unsettled) = (Some(why), false);
                return;
            }
        }
        // Also at the step at which it was looked at for long enough: what is gone from then on was there until then.
        self.keep_open(now);
    }

    /// Whether everything around it is to be looked at: its evidence must be there at this very step.
    pub(super) fn needs_explanation(&self, now: UnixMs) -> bool {
        let old = self
            .record
            .chain
            .as_ref()
            .is_none_or(|chain| now.duration_since(chain.at) >= LOOKED_EVERY);
        self.is_open() && self.record.life.seen == now && (self.rose || old)
    }

    /// Keeps what was seen around it.
    pub(super) fn attach_explanation(&mut self, chain: FindingExplanation) {
        self.rose = false;
        self.record.chain = Some(Arc::new(chain));
    }

    /// Nobody can say now whether its evidence is there.
    pub(super) fn keep_open(&mut self, now: UnixMs) {
        self.kept = now;
    }

    /// Its evidence is there again after it was closed. Soon after that it goes on, later it begins anew.
    pub(super) fn reopen_finding(
        &mut self,
        finding: DetectedFinding,
        now: UnixMs,
        limits: &Thresholds,
    ) {
        let closed = self.record.life.closed.unwrap_or(now);
        if now.duration_since(closed).as_secs_f64() > limits.flap_window_seconds {
            *self = Self::open_finding(finding, now);
            return;
        }
        let severity = finding.severity;
        self.estimate = finding.lost_gpus;
        self.noted_cost = (finding.lost_gpus, now);
        self.noted_victims = (finding.victims.len(), now);
        (self.kept, self.calmer, self.resumed, self.rose) = (now, None, false, true);
        self.missed = false;
        self.record.finding = finding;
        self.record.life.closed = None;
        self.record.life.seen = now;
        self.record_transition(now, FindingEvent::Reopened, "", severity.as_str());
        self.record_recurrence(now, limits);
    }

    /// Its evidence is there; it was gone if it was not there for `close_s` seconds.
    pub(super) fn update_finding(
        &mut self,
        finding: DetectedFinding,
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
        let mut turns = Vec::new();
        if severity != before.severity {
            self.rose |= severity > before.severity;
            turns.push((FindingEvent::Severity, before.severity.to_string(), severity.to_string()));
        }
        if finding.entity != before.entity {
            turns.push((
                FindingEvent::Blame,
                before.entity.to_string(),
                finding.entity.to_string(),
            ));
        }
        let ((victims, at), more) = (self.noted_victims, finding.victims.len());
        if now.duration_since(at) >= NOTED_EVERY && more != victims {
            turns.push((FindingEvent::Victims, victims.to_string(), more.to_string()));
            self.noted_victims = (more, now);
        }
        self.estimate = finding.lost_gpus;
        let lost_gpus = before.lost_gpus;
        self.record.finding = DetectedFinding { severity, since, lost_gpus, ..finding };
        self.record.life.seen = now;
        (self.kept, self.resumed, self.missed, self.given_up) = (now, false, false, None);
        for (what, from, to) in turns {
            self.record_transition(now, what, &from, &to);
        }
    }

    /// The lost GPUs that are attributed to it now.
    pub(super) fn set_cost(&mut self, lost_gpus: f64, now: UnixMs) {
        self.record.finding.lost_gpus = lost_gpus;
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

    /// The severity that is told: it rises at once, and falls when the evidence was weaker for a while.
    fn settle_severity(&mut self, asked: Severity, now: UnixMs, close_s: f64) -> Severity {
        let told = self.record.finding.severity;
        if asked >= told {
            self.calmer = None;
            return asked;
        }
        let since = *self.calmer.get_or_insert(now);
        // The first samples after a restart say less than those before it did.
        if self.unsettled {
            self.calmer = None;
            return told;
        }
        if now.duration_since(since).as_secs_f64() < close_s {
            return told;
        }
        self.calmer = None;
        asked
    }

    /// Whether its evidence was gone for long enough to close it, or would have been but for a restart: all that it rests on
    /// was looked at since it was last seen.
    fn was_gone(&self, now: UnixMs, close_s: f64) -> bool {
        let seen = self.record.life.seen;
        let looked = self.unsettled && self.looked_since.is_some_and(|since| since <= seen);
        let since = if looked { seen } else { self.kept };
        self.missed && now.duration_since(since).as_secs_f64() >= close_s
    }

    /// Its evidence was gone and is back.
    fn record_recurrence(&mut self, now: UnixMs, limits: &Thresholds) {
        let openings = &mut self.record.life.openings;
        if openings.len() == MAX_OPENINGS {
            openings.remove(0);
        }
        openings.push(now);
        self.prune_openings(now, limits);
        let often = self.record.life.openings.len() as f64 >= limits.flap_openings;
        if often && !self.flapping {
            self.flapping = true;
            let times = format!("{} times", self.record.life.openings.len());
            self.record_transition(now, FindingEvent::Flapping, "", &times);
        }
    }

    /// Leaves only those openings that count now.
    fn prune_openings(&mut self, now: UnixMs, limits: &Thresholds) {
        let window = limits.flap_window_seconds;
        for at in &mut self.record.life.openings {
            // A clock that was set back must not keep it in the time to come.
            *at = (*at).min(now);
        }
        self.record.life.openings.retain(|at| now.duration_since(*at).as_secs_f64() <= window);
    }

    /// Lets it grow older; says whether it ends now.
    pub(super) fn update_state(&mut self, now: UnixMs, close_s: f64, limits: &Thresholds) -> bool {
        if !self.is_open() {
            return false;
        }
        self.missed |= self.record.life.seen != now;
        if self.record.life.openings.len() > 1 || self.flapping {
            self.prune_openings(now, limits);
            // How often it came while nobody looked is not known.
            let often = self.record.life.openings.len() as f64 >= limits.flap_openings;
            self.flapping &= often || self.unsettled;
        }
        // A clock that was set back must not keep it open.
        self.kept = self.kept.min(now);
        let wait = if self.flapping { limits.flap_close_seconds } else { 0.0 }.max(close_s);
        let ends = self.given_up.is_some() || now.duration_since(self.kept).as_secs_f64() >= wait;
        if ends {
            self.record.life.closed = Some(now);
            self.flapping = false;
            let why = self.given_up.take().unwrap_or_default();
            self.record_transition(now, FindingEvent::Closed, "", &why);
        }
        let changed = |turn: &&FindingTransition| {
            use FindingEvent::{Blame, Cost, Severity, Victims};
            matches!(turn.what, Severity | Blame | Victims | Cost)
        };
        let last = self.record.life.changes.iter().rev().find(changed);
        let changing = last.is_some_and(|turn| now.duration_since(turn.at) < CHANGING);
        self.record.life.state = match (ends, self.flapping, changing) {
            (true, ..) => LifeState::Closed,
            (_, true, _) => LifeState::Flapping,
            (.., true) => LifeState::Changing,
            _ => LifeState::Open,
        };
        ends
    }

    /// Why it closed: the signal that recovered.
    pub(super) fn set_recovery_reason(&mut self, signal: &str) {
        if let Some(last) = self.record.life.changes.last_mut()
            && last.what == FindingEvent::Closed
            && last.to.is_empty()
        {
            last.to = SanitizedText::new(signal);
        }
    }

    /// Somebody says that what it calls a fault is usual now.
    pub(super) fn close_accepted(&mut self, now: UnixMs, by: &str) {
        self.record.life.closed = Some(now);
        self.record.life.state = LifeState::Closed;
        (self.flapping, self.resumed) = (false, false);
        self.record_transition(now, FindingEvent::Accepted, "", by);
    }

    fn record_transition(&mut self, at: UnixMs, what: FindingEvent, from: &str, to: &str) {
        let changes = &mut self.record.life.changes;
        if changes.len() == MAX_CHANGES {
            changes.remove(1);
        }
        changes.push(FindingTransition {
            at,
            what,
            from: SanitizedText::new(from),
            to: SanitizedText::new(to),
        });
    }
}
