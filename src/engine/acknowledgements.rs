//! Acknowledgements of findings, and their history.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use gaunt_schema::{FindingEvent, LifeState, SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

use super::{
    Engine,
    finding_answers::{collect_findings, group_findings},
};
use gaunt_api::{
    Acknowledgement, Answer, Finding, FindingAction, FindingCommand, FindingList, LifecycleChange,
    Refusal,
};
use gaunt_judge::is_acceptable;

/// Maximum number of changes that are kept per acknowledgement, the newest.
const MAX_EVENTS: usize = 16;

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
}

impl AcknowledgementRecord {
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
        let fresh = AcknowledgementRecord {
            opened: finding.life.opened,
            holds: None,
            turns: Vec::new(),
            accepted: None,
        };
        let record = self.0.entry(finding.id.clone()).or_insert(fresh);
        match (&act.command, &record.holds) {
            (FindingCommand::Accept { .. }, _) if !is_acceptable(finding.kind) => {
                return Err(Refusal::NotAcceptable { finding: id });
            }
            (FindingCommand::Accept { note }, _) => {
                let suffix = if note.is_empty() { String::new() } else { format!(": {note}") };
                record.accepted = Some(SanitizedText::new(&format!("{}{suffix}", act.by)));
            }
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
                let (by, note, severity) = (act.by.clone(), note.clone(), finding.severity);
                record.holds = Some(Acknowledgement { by, at, note, severity });
                record.record_event(at, FindingEvent::Acknowledged, &act.by);
            }
            (FindingCommand::Withdraw, Some(_)) => {
                record.holds = None;
                record.record_event(at, FindingEvent::Withdrawn, &act.by);
            }
        }
        Ok(())
    }
}

fn is_acknowledgement_event(what: FindingEvent) -> bool {
    matches!(what, FindingEvent::Acknowledged | FindingEvent::Withdrawn | FindingEvent::Lapsed)
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
        let now = self.cluster.now();
        self.acknowledgements.apply_action(act, &finding, now)?;
        self.apply_accepted_levels();
        // Published again at once, so that the user sees the effect.
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
        Ok(())
    }
}

/// Number of these findings that are acknowledged.
pub(super) fn count_acknowledged(list: &FindingList) -> u32 {
    list.findings.iter().filter(|finding| finding.acknowledged.is_some()).count() as u32
}
