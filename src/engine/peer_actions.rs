//! Peer actions: what users do to findings at another aggregator of the cluster.

use std::{collections::BTreeMap, time::Duration};

use gaunt_api::{Finding, PeerAction, PeerCommand, PeerOutcome};
use gaunt_schema::{LifeState, UnixMs};

use super::{Engine, acknowledgements::Acknowledgements};

/// How long an action waits for its finding to open here. The peer repeats it while the finding is open there, so that
/// this only bridges the time for which the peer is away.
const WAITS_FOR: Duration = Duration::from_mins(10);

/// The most actions that wait: as many findings can be open.
const MAX_WAITING: usize = 1_000;

/// Actions on findings that are not open here, by finding, and until when they wait.
#[derive(Debug, Default)]
pub(super) struct WaitingActions(BTreeMap<String, (PeerAction, UnixMs)>);

impl WaitingActions {
    /// Keeps an action, unless a later one on the finding waits already. If too many wait, the one that was sent least
    /// recently goes.
    fn keep_action(&mut self, action: PeerAction, now: UnixMs) {
        let until = now + WAITS_FOR;
        match self.0.get_mut(&action.finding) {
            Some((waiting, _)) if *waiting > action => return,
            Some(entry) => {
                *entry = (action, until);
                return;
            }
            None => {}
        }
        if self.0.len() >= MAX_WAITING {
            let oldest = self.0.iter().min_by_key(|(_, (_, until))| *until);
            let oldest = oldest.map(|(finding, _)| finding.clone());
            oldest.and_then(|finding| self.0.remove(&finding));
        }
        self.0.insert(action.finding.clone(), (action, until));
    }

    /// Applies the actions whose findings are open now, and drops those that waited too long.
    pub(super) fn apply_to_open(
        &mut self,
        acknowledgements: &mut Acknowledgements,
        open: &[Finding],
        now: UnixMs,
    ) {
        if self.0.is_empty() {
            return;
        }
        for finding in open {
            if let Some((action, _)) = self.0.remove(&finding.id) {
                acknowledgements.merge_action(&action, finding);
            }
        }
        self.0.retain(|_, (_, until)| *until > now);
    }
}

impl Engine {
    /// Applies an action that a peer passed on, once and in the order in which actions were made.
    pub fn handle_peer_action(&mut self, action: PeerAction) -> PeerOutcome {
        let found = self.view().find_finding(&action.finding).cloned();
        let open = found.filter(|finding| finding.life.state != LifeState::Closed);
        let Some(finding) = open else {
            if matches!(action.command, PeerCommand::Accept { .. }) {
                // Its finding closes by that anyway.
                return PeerOutcome::Superseded;
            }
            self.waiting_actions.keep_action(action, self.cluster.now());
            return PeerOutcome::Waiting;
        };
        let outcome = self.acknowledgements.merge_action(&action, &finding);
        if outcome == PeerOutcome::Taken {
            self.publish_acknowledgements();
        }
        outcome
    }

    /// The actions to pass on to peers now.
    pub fn actions_to_pass(&self) -> Vec<PeerAction> {
        self.acknowledgements.actions_to_pass(&self.findings.findings, self.cluster.now())
    }
}
