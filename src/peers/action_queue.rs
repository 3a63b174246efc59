//! Action queue: the actions that one peer does not have yet. No I/O, no clock.

use std::{collections::BTreeMap, time::Duration};

use gaunt_api::{PeerAction, PeerOutcome, PeerReply};
use gaunt_schema::UnixMs;

/// The most actions: one for each finding that can be open, and as many that were accepted lately.
const MAX_QUEUED: usize = 2_000;

/// Time after which an action is repeated whose finding is not open at the peer.
const REPEAT_WAITING: Duration = Duration::from_secs(30);

/// The actions for one peer, one for each finding: a later one replaces an earlier one. Times count from any start.
#[derive(Debug, Default)]
pub struct ActionQueue {
    actions: BTreeMap<String, (PeerAction, ActionProgress)>,
    /// When the peer started, as it said last.
    peer_started: Option<UnixMs>,
}

/// What the peer knows of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActionProgress {
    /// Nothing: it is to be sent.
    Due,
    /// Its finding is not open there; it is sent again then.
    RepeatAt(Duration),
    /// It has the action, or a later one.
    Passed,
}

impl ActionQueue {
    /// Sets what the peer is to have; actions that are no longer in effect are dropped.
    pub fn update_actions(&mut self, actions: &[PeerAction]) {
        let mut before = std::mem::take(&mut self.actions);
        for action in actions.iter().take(MAX_QUEUED) {
            let known = before.remove(&action.finding).filter(|(known, _)| known == action);
            let progress = known.map_or(ActionProgress::Due, |(_, progress)| progress);
            self.actions.insert(action.finding.clone(), (action.clone(), progress));
        }
    }

    /// An action that is due at `now`.
    pub fn next_action(&self, now: Duration) -> Option<PeerAction> {
        let due = self.actions.values().find(|(_, progress)| match progress {
            ActionProgress::Due => true,
            ActionProgress::RepeatAt(at) => *at <= now,
            ActionProgress::Passed => false,
        });
        due.map(|(action, _)| action.clone())
    }

    /// When the next action is due; none if the peer has all.
    pub fn next_due(&self) -> Option<Duration> {
        let due = self.actions.values().filter_map(|(_, progress)| match progress {
            ActionProgress::Due => Some(Duration::ZERO),
            ActionProgress::RepeatAt(at) => Some(*at),
            ActionProgress::Passed => None,
        });
        due.min()
    }

    /// Records the reply to an action, unless another one replaced it meanwhile.
    pub fn record_reply(&mut self, action: &PeerAction, reply: PeerReply, now: Duration) {
        self.note_start(reply.started);
        let entry = self.actions.get_mut(&action.finding);
        if let Some((_, progress)) = entry.filter(|(queued, _)| queued == action) {
            *progress = match reply.outcome {
                PeerOutcome::Taken | PeerOutcome::Superseded => ActionProgress::Passed,
                PeerOutcome::Waiting => ActionProgress::RepeatAt(now + REPEAT_WAITING),
            };
        }
    }

    /// Notes when the peer started: one that started again may have forgotten everything.
    pub fn note_start(&mut self, started: UnixMs) {
        if self.peer_started.replace(started).is_some_and(|before| before != started) {
            for (_, progress) in self.actions.values_mut() {
                *progress = ActionProgress::Due;
            }
        }
    }

    /// Number of actions that the peer does not have.
    pub fn waiting_count(&self) -> usize {
        self.actions.values().filter(|(_, progress)| *progress != ActionProgress::Passed).count()
    }
}

#[cfg(test)]
mod tests {
    use gaunt_api::PeerCommand;

    use super::*;

    fn action(finding: &str, at: i64) -> PeerAction {
        let command = PeerCommand::Withdraw;
        PeerAction { finding: finding.to_owned(), at: UnixMs(at), by: "sam".into(), command }
    }

    fn reply(outcome: PeerOutcome, started: i64) -> PeerReply {
        PeerReply { outcome, started: UnixMs(started) }
    }

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn action_is_due_until_the_peer_has_it() {
        let mut queue = ActionQueue::default();
        assert_eq!((queue.next_action(NOW), queue.next_due()), (None, None));
        queue.update_actions(&[action("a", 1), action("b", 1)]);
        assert_eq!(queue.next_action(NOW), Some(action("a", 1)));
        queue.record_reply(&action("a", 1), reply(PeerOutcome::Taken, 7), NOW);
        queue.record_reply(&action("b", 1), reply(PeerOutcome::Waiting, 7), NOW);
        assert_eq!((queue.next_action(NOW), queue.next_due()), (None, Some(NOW + REPEAT_WAITING)));
        assert_eq!(queue.next_action(NOW + REPEAT_WAITING), Some(action("b", 1)));
        // A later action replaces an earlier one, whose reply means nothing then.
        queue.update_actions(&[action("a", 2), action("b", 1)]);
        queue.record_reply(&action("a", 1), reply(PeerOutcome::Taken, 7), NOW);
        assert_eq!(queue.next_action(NOW), Some(action("a", 2)));
        queue.record_reply(&action("a", 2), reply(PeerOutcome::Superseded, 7), NOW);
        assert_eq!(queue.waiting_count(), 1, "b still waits");
        queue.update_actions(&[]);
        assert_eq!((queue.waiting_count(), queue.next_due()), (0, None));
    }

    #[test]
    fn peer_that_started_again_is_sent_everything() {
        let mut queue = ActionQueue::default();
        queue.update_actions(&[action("a", 1), action("b", 1)]);
        for finding in ["a", "b"] {
            queue.record_reply(&action(finding, 1), reply(PeerOutcome::Taken, 7), NOW);
        }
        queue.note_start(UnixMs(7));
        assert_eq!(queue.waiting_count(), 0);
        queue.record_reply(&action("b", 1), reply(PeerOutcome::Taken, 8), NOW);
        assert_eq!(queue.next_action(NOW), Some(action("a", 1)));
        assert_eq!(queue.waiting_count(), 1);
    }

    #[test]
    fn queue_is_bounded() {
        let actions: Vec<_> = (0..5_000).map(|n| action(&format!("a{n}"), 1)).collect();
        let mut queue = ActionQueue::default();
        queue.update_actions(&actions);
        assert_eq!(queue.waiting_count(), MAX_QUEUED);
    }
}
