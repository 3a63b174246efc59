//! Acknowledgements: who took which finding on, and what became of that.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use gaunt_schema::{LifeState, Safe, Turn, UnixMs};
use serde::{Deserialize, Serialize};

use super::{Owner, findings::answer};
use crate::{
    answer::{Acknowledgement, Act, Answer, Change, Deed, Finding, FindingList, Refusal},
    judge::is_acceptable,
};

/// Turns of one finding's acknowledgement that are kept, the newest.
const MAX_TURNS: usize = 16;

/// What was done about findings, by their ids.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Acknowledgements(BTreeMap<String, Taken>);

/// What was done about one finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Taken {
    /// When the finding was opened: one that begins anew is another.
    opened: UnixMs,
    /// The acknowledgement, if it holds.
    holds: Option<Acknowledgement>,
    /// What became of it, oldest first.
    turns: Vec<Change>,
    /// Who accepted its level, until the judge takes that in.
    #[serde(default)]
    accepted: Option<Safe>,
}

impl Taken {
    fn turn(&mut self, at: UnixMs, what: Turn, to: &Safe) {
        if self.turns.len() == MAX_TURNS {
            self.turns.remove(0);
        }
        self.turns.push(Change { at, what, from: Safe::default(), to: to.clone() });
    }
}

impl Acknowledgements {
    /// Writes into findings who took them on. One that became more urgent since is not acknowledged any more.
    pub(super) fn apply(&mut self, findings: &mut [Finding], at: UnixMs) {
        for finding in findings {
            let Some(taken) = self.0.get_mut(&finding.id) else { continue };
            if taken.opened != finding.life.opened {
                self.0.remove(&finding.id);
                continue;
            }
            let open = finding.life.state != LifeState::Closed;
            if open && taken.holds.as_ref().is_some_and(|ack| finding.severity > ack.severity) {
                taken.holds = None;
                taken.turn(at, Turn::Lapsed, &Safe::new(finding.severity.as_str()));
            }
            finding.acknowledged.clone_from(&taken.holds);
            finding.life.changes.retain(|change| !is_ours(change.what));
            finding.life.changes.extend(taken.turns.iter().cloned());
            finding.life.changes.sort_by_key(|change| change.at);
        }
    }

    /// Forgets what was done about findings that nobody knows any more.
    pub(super) fn keep_only(&mut self, known: &BTreeSet<&str>) {
        self.0.retain(|id, _| known.contains(id.as_str()));
    }

    /// Levels that somebody accepted and that the judge does not know of: the finding's id, and who it was.
    fn accepted(&mut self) -> Vec<(String, Safe)> {
        let taken = self.0.iter_mut();
        taken.filter_map(|(id, taken)| Some((id.clone(), taken.accepted.take()?))).collect()
    }

    /// Does something to a finding that is open.
    fn act(&mut self, act: &Act, finding: &Finding, at: UnixMs) -> Result<(), Refusal> {
        let id = Safe::new(&finding.id);
        let fresh =
            Taken { opened: finding.life.opened, holds: None, turns: Vec::new(), accepted: None };
        let taken = self.0.entry(finding.id.clone()).or_insert(fresh);
        match (&act.deed, &taken.holds) {
            (Deed::Accept { .. }, _) if !is_acceptable(finding.kind) => {
                return Err(Refusal::NotAcceptable { finding: id });
            }
            (Deed::Accept { note }, _) => {
                let says = if note.is_empty() { String::new() } else { format!(": {note}") };
                taken.accepted = Some(Safe::new(&format!("{}{says}", act.by)));
            }
            (Deed::Acknowledge { .. }, Some(held)) => {
                return Err(Refusal::AlreadyAcknowledged { finding: id, by: held.by.clone() });
            }
            (Deed::Withdraw, None) => return Err(Refusal::NotAcknowledged { finding: id }),
            (Deed::Acknowledge { note }, None) => {
                let (by, note, severity) = (act.by.clone(), note.clone(), finding.severity);
                taken.holds = Some(Acknowledgement { by, at, note, severity });
                taken.turn(at, Turn::Acknowledged, &act.by);
            }
            (Deed::Withdraw, Some(_)) => {
                taken.holds = None;
                taken.turn(at, Turn::Withdrawn, &act.by);
            }
        }
        Ok(())
    }
}

fn is_ours(what: Turn) -> bool {
    matches!(what, Turn::Acknowledged | Turn::Withdrawn | Turn::Lapsed)
}

impl Owner {
    /// Does something to a finding; the answer is the finding as it is then, or why it cannot be done.
    pub fn act(&mut self, act: &Act) -> Answer {
        match self.try_act(act) {
            Ok(()) => self.explanation(&act.finding).map_or_else(Answer::Refused, Answer::Finding),
            Err(refusal) => Answer::Refused(refusal),
        }
    }

    /// Tells the judge which levels were accepted; while he judges that waits for the next tick.
    pub(super) fn tell_accepted(&mut self) {
        let Some(judge) = &mut self.judge else { return };
        let accepted = self.acknowledgements.accepted();
        if accepted.is_empty() {
            return;
        }
        for (id, by) in &accepted {
            judge.accept(&self.cluster, id, by);
        }
        let open = judge.open().into_iter().map(answer).collect();
        let closed = judge.closed().into_iter().map(answer).collect();
        self.closed_revision = judge.closed_revision();
        self.take_findings(open, Some(closed));
        let overview = Arc::make_mut(&mut self.overview);
        overview.findings.retain(|finding| accepted.iter().all(|(id, _)| *id != finding.id));
    }

    fn try_act(&mut self, act: &Act) -> Result<(), Refusal> {
        let id = || Safe::new(&act.finding);
        let finding = self.finding(&act.finding);
        let finding = finding.ok_or_else(|| Refusal::UnknownFinding { finding: id() })?.clone();
        if finding.life.state == LifeState::Closed {
            return Err(Refusal::ClosedFinding { finding: id() });
        }
        let now = self.cluster.now();
        self.acknowledgements.act(act, &finding, now)?;
        self.tell_accepted();
        // What was published is told anew at once: who acts wants to see that he did.
        self.acknowledgements.apply(&mut Arc::make_mut(&mut self.findings).findings, now);
        let acknowledged = acknowledged(&self.findings);
        let overview = Arc::make_mut(&mut self.overview);
        self.acknowledgements.apply(&mut overview.findings, now);
        overview.findings_acknowledged = acknowledged;
        Ok(())
    }
}

/// How many of these findings somebody took on.
pub(super) fn acknowledged(list: &FindingList) -> u32 {
    list.findings.iter().filter(|finding| finding.acknowledged.is_some()).count() as u32
}
