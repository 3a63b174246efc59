//! Acknowledgements of findings, and their history.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use gaunt_schema::{FindingEvent, LifeState, SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

use super::{
    Engine,
    finding_answers::{collect_findings, group_findings},
};
use gaunt_api::{
    Acknowledgement, Answer, Finding, FindingAction, FindingCommand, FindingList, LifecycleChange,
    PeerAction, PeerCommand, PeerOutcome, Refusal, SeenFinding,
    finding_action::is_acknowledgement_event,
};
use gaunt_judge::is_acceptable;

/// Maximum number of changes that are kept per acknowledgement, the newest.
const MAX_EVENTS: usize = 16;

/// How long an accepted level is passed on to peers: its finding closes, and opens nowhere else after that.
const ACCEPTANCE_PASSED: Duration = Duration::from_mins(10);

/// Actions on findings, by finding id.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Acknowledgements(BTreeMap<String, AcknowledgementRecord>);

/// Actions on one finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct AcknowledgementRecord {
    /// When the finding was opened: a finding that opens again is another one.
    opened: UnixMs,
    /// The acknowledgement, if it is in effect.
    holds: Option<Acknowledgement>,
    /// Its changes, oldest first.
    turns: Vec<LifecycleChange>,
    /// The user that accepted its level, until the judge applies that.
    #[serde(default)]
    accepted: Option<SanitizedText>,
    /// The last action, here or at a peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<PeerAction>,
}

impl AcknowledgementRecord {
    /// A record without actions.
    fn new(opened: UnixMs) -> Self {
        Self { opened, holds: None, turns: Vec::new(), accepted: None, last: None }
    }

    /// The time of an action that is made now: later than what is known of other clocks.
    fn next_time(&self, now: UnixMs) -> UnixMs {
        self.last.as_ref().map_or(now, |last| now.max(UnixMs(last.at.0 + 1)))
    }

    /// The last action; of a state that an earlier version saved it follows from the acknowledgement.
    fn last_action(&self, id: &str) -> Option<PeerAction> {
        let from_acknowledgement = |held: &Acknowledgement| PeerAction {
            finding: id.to_owned(),
            at: held.at,
            by: held.by.clone(),
            command: PeerCommand::Acknowledge { note: held.note.clone(), severity: held.severity },
        };
        self.last.clone().or_else(|| self.holds.as_ref().map(from_acknowledgement))
    }

    /// Applies an action that is later than all others.
    fn apply_command(&mut self, action: PeerAction) {
        let (by, at) = (&action.by, action.at);
        match &action.command {
            PeerCommand::Acknowledge { note, severity } => {
                let (by, note) = (by.clone(), note.clone());
                self.holds = Some(Acknowledgement { by, at, note, severity: *severity });
                self.record_event(at, FindingEvent::Acknowledged, &action.by);
            }
            PeerCommand::Withdraw if self.holds.take().is_some() => {
                self.record_event(at, FindingEvent::Withdrawn, &action.by);
            }
            PeerCommand::Withdraw => {}
            PeerCommand::Accept { note } => {
                let suffix = if note.is_empty() { String::new() } else { format!(": {note}") };
                self.accepted = Some(SanitizedText::new(&format!("{by}{suffix}")));
            }
        }
        self.last = Some(action);
    }

    fn record_event(&mut self, at: UnixMs, what: FindingEvent, to: &SanitizedText) {
        if self.turns.len() == MAX_EVENTS {
            self.turns.remove(0);
        }
        self.turns.push(LifecycleChange {
            at,
            what,
            from: SanitizedText::default(),
            to: to.clone(),
        });
    }
}

impl Acknowledgements {
    /// Writes acknowledgements into findings. A finding whose urgency rose since then is no longer acknowledged.
    pub(super) fn apply_to_findings(&mut self, findings: &mut [Finding], at: UnixMs) {
        for finding in findings {
            let Some(record) = self.0.get_mut(&finding.id) else { continue };
            if record.opened != finding.life.opened {
                self.0.remove(&finding.id);
                continue;
            }
            let open = finding.life.state != LifeState::Closed;
            if open && record.holds.as_ref().is_some_and(|ack| finding.severity > ack.severity) {
                record.holds = None;
                record.record_event(
                    at,
                    FindingEvent::Lapsed,
                    &SanitizedText::new(finding.severity.as_str()),
                );
            }
            finding.acknowledged.clone_from(&record.holds);
            finding.life.changes.retain(|change| !is_acknowledgement_event(change.what));
            finding.life.changes.extend(record.turns.iter().cloned());
            finding.life.changes.sort_by_key(|change| change.at);
        }
    }

    /// Drops actions on findings that no longer exist.
    pub(super) fn retain_known(&mut self, known: &BTreeSet<&str>) {
        self.0.retain(|id, _| known.contains(id.as_str()));
    }

    /// Accepted levels that the judge has not applied yet: finding id and user.
    fn take_accepted(&mut self) -> Vec<(String, SanitizedText)> {
        let records = self.0.iter_mut();
        records.filter_map(|(id, record)| Some((id.clone(), record.accepted.take()?))).collect()
    }

    /// Applies an action to an open finding.
    fn apply_action(
        &mut self,
        act: &FindingAction,
        finding: &Finding,
        at: UnixMs,
    ) -> Result<(), Refusal> {
        let id = SanitizedText::new(&finding.id);
        let fresh = AcknowledgementRecord::new(finding.life.opened);
        let record = self.0.entry(finding.id.clone()).or_insert(fresh);
        let made_at = record.next_time(at);
        let command = match (&act.command, &record.holds) {
            (FindingCommand::Accept { .. }, _) if !is_acceptable(finding.kind) => {
                return Err(Refusal::NotAcceptable { finding: id });
            }
            (FindingCommand::Accept { note }, _) => PeerCommand::Accept { note: note.clone() },
            (FindingCommand::Acknowledge { .. }, Some(acknowledged)) => {
                return Err(Refusal::AlreadyAcknowledged {
                    finding: id,
                    by: acknowledged.by.clone(),
                });
            }
            (FindingCommand::Withdraw, None) => {
                return Err(Refusal::NotAcknowledged { finding: id });
            }
            (FindingCommand::Acknowledge { note }, None) => {
                PeerCommand::Acknowledge { note: note.clone(), severity: finding.severity }
            }
            (FindingCommand::Withdraw, Some(_)) => PeerCommand::Withdraw,
        };
        let (finding, by) = (finding.id.clone(), act.by.clone());
        record.apply_command(PeerAction { finding, at: made_at, by, command });
        Ok(())
    }

    /// Applies an action that a peer passed on to an open finding, unless a later one was applied before.
    pub(super) fn merge_action(&mut self, action: &PeerAction, finding: &Finding) -> PeerOutcome {
        let opened = finding.life.opened;
        let record = self.0.entry(finding.id.clone());
        let record = record.or_insert_with(|| AcknowledgementRecord::new(opened));
        if record.opened != opened {
            *record = AcknowledgementRecord::new(opened);
        }
        let last = record.last_action(&finding.id);
        if let Some(last) = last.filter(|last| last >= action) {
            return if last == *action { PeerOutcome::Taken } else { PeerOutcome::Superseded };
        }
        if matches!(action.command, PeerCommand::Accept { .. }) && !is_acceptable(finding.kind) {
            return PeerOutcome::Superseded;
        }
        record.apply_command(action.clone());
        PeerOutcome::Taken
    }

    /// The actions to pass on to peers: the last one on each open finding unless it lapsed, and levels accepted lately.
    pub(super) fn actions_to_pass(&self, open: &[Finding], now: UnixMs) -> Vec<PeerAction> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let open: BTreeSet<(&str, UnixMs)> =
            open.iter().map(|finding| (finding.id.as_str(), finding.life.opened)).collect();
        let actions = self.0.iter().filter_map(|(id, record)| {
            let last = record.last_action(id)?;
            let is_current = match last.command {
                PeerCommand::Accept { .. } => now.duration_since(last.at) < ACCEPTANCE_PASSED,
                PeerCommand::Acknowledge { .. } if record.holds.is_none() => false,
                _ => open.contains(&(id.as_str(), record.opened)),
            };
            is_current.then_some(last)
        });
        actions.collect()
    }
}

impl Engine {
    /// Applies an action to a finding and returns the finding, or why the action is not possible.
    pub fn handle_action(&mut self, act: &FindingAction) -> Answer {
        match self.try_action(act) {
            Ok(()) => {
                let explained = self.explain_finding(&self.view(), &act.finding);
                explained.map_or_else(Answer::Refused, Answer::Finding)
            }
            Err(refusal) => Answer::Refused(refusal),
        }
    }

    /// Passes accepted levels to the judge; during a judgement that waits for the next tick.
    pub(super) fn apply_accepted_levels(&mut self) {
        let Some(judge) = &mut self.judge else { return };
        let accepted = self.acknowledgements.take_accepted();
        if accepted.is_empty() {
            return;
        }
        for (id, by) in &accepted {
            judge.accept_finding(&self.cluster, id, by);
        }
        let open = collect_findings(judge.open_records());
        let closed = collect_findings(judge.closed_records());
        self.closed_revision = judge.closed_revision();
        self.store_findings(open, Some(closed));
        let overview = Arc::make_mut(&mut self.overview);
        overview.findings.retain(|finding| accepted.iter().all(|(id, _)| *id != finding.id));
    }

    fn try_action(&mut self, act: &FindingAction) -> Result<(), Refusal> {
        let id = || SanitizedText::new(&act.finding);
        let finding = self.view().find_finding(&act.finding).cloned();
        let finding = finding.ok_or_else(|| Refusal::UnknownFinding { finding: id() })?;
        if finding.life.state == LifeState::Closed {
            return Err(Refusal::ClosedFinding { finding: id() });
        }
        if act.seen.is_some_and(|seen| seen != SeenFinding::of(&finding)) {
            return Err(Refusal::ActedMeanwhile { finding: id() });
        }
        let now = self.cluster.now();
        self.acknowledgements.apply_action(act, &finding, now)?;
        self.publish_acknowledgements();
        Ok(())
    }

    /// Applies what actions changed, and publishes it again at once, so that users see the effect.
    pub(super) fn publish_acknowledgements(&mut self) {
        self.apply_accepted_levels();
        let now = self.cluster.now();
        self.acknowledgements
            .apply_to_findings(&mut Arc::make_mut(&mut self.findings).findings, now);
        let groups = group_findings(&self.cluster, &self.findings.findings);
        let acknowledged = count_acknowledged(&self.findings);
        let overview = Arc::make_mut(&mut self.overview);
        self.acknowledgements.apply_to_findings(&mut overview.findings, now);
        overview.findings_acknowledged = acknowledged;
        for shown in &mut overview.groups {
            if let Some(group) = groups.iter().find(|group| group.id == shown.id) {
                shown.clone_from(group);
            }
        }
        Arc::make_mut(&mut self.findings).groups = groups;
    }
}

/// Number of these findings that are acknowledged.
pub(super) fn count_acknowledged(list: &FindingList) -> u32 {
    list.findings.iter().filter(|finding| finding.acknowledged.is_some()).count() as u32
}
