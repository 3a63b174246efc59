//! The exchange between the aggregators of a pair: actions are passed on while the two reach each other.

use std::time::Duration;

use gaunt::peers::action_queue::ActionQueue;
use gaunt_api::PeerReply;
use gaunt_schema::{LifeState, UnixMs};

use crate::{seeded_random::SeededRandom, simulated_host::SimulatedHost};

/// The longest time for which the two cannot reach each other, in seconds.
const APART: u64 = 60;

/// What each of the two knows of the other.
#[derive(Default)]
pub(crate) struct SimulatedPair {
    /// The queue of each, and the start of the process that has it.
    queues: [(ActionQueue, UnixMs); 2],
    apart_until: u64,
    parted: u64,
}

impl SimulatedPair {
    /// How often the two were parted.
    pub(crate) fn fault_count(&self) -> u64 {
        self.parted
    }

    /// Whether the two reach each other.
    pub(crate) fn is_together(&self, second: u64) -> bool {
        second >= self.apart_until
    }

    /// They reach each other from now on.
    pub(crate) fn join(&mut self, second: u64) {
        self.apart_until = self.apart_until.min(second);
    }

    /// Parts the two now and then, `density` times as often as in a long run.
    pub(crate) fn draw_faults(&mut self, second: u64, density: u64, random: &mut SeededRandom) {
        if self.is_together(second) && random.once_in(60 / density) {
            self.apart_until = second + random.below(APART);
            self.parted += 1;
        }
    }

    /// Each passes its actions to the other, which has them on its disk before it replies; a reply may be lost.
    pub(crate) fn exchange(
        &mut self,
        hosts: &mut [SimulatedHost],
        second: u64,
        is_faulty: bool,
        random: &mut SeededRandom,
    ) {
        let [first, other] = hosts else { return };
        let is_together = self.is_together(second);
        let now = Duration::from_secs(second);
        for (sender, (queue, started)) in self.queues.iter_mut().enumerate() {
            let (own, peer) =
                if sender == 0 { (&mut *first, &mut *other) } else { (&mut *other, &mut *first) };
            let Some(own) = &own.aggregator else { continue };
            if *started != own.started {
                (*queue, *started) = (ActionQueue::default(), own.started);
            }
            queue.update_actions(&own.actions_to_pass());
            let Some(peer) = peer.aggregator.as_mut().filter(|_| is_together) else { continue };
            queue.note_start(peer.started);
            while let Some(action) = queue.next_action(now) {
                let outcome = peer.handle_peer_action(&action);
                let is_lost = is_faulty && random.once_in(5);
                let (Some(outcome), false) = (outcome, is_lost) else { break };
                queue.record_reply(&action, PeerReply { outcome, started: peer.started }, now);
            }
        }
    }

    /// What must hold once the two have reached each other for a while: both say alike which findings are acknowledged.
    pub(crate) fn check_agreement(hosts: &[SimulatedHost]) -> Vec<String> {
        let lists: Vec<_> =
            hosts.iter().filter_map(|host| Some(host.aggregator.as_ref()?.findings())).collect();
        let [first, other] = &lists[..] else { return Vec::new() };
        let mut broken = Vec::new();
        for finding in first.findings.iter().filter(|it| it.life.state != LifeState::Closed) {
            let same = other.findings.iter().find(|same| same.id == finding.id);
            let same = same.filter(|same| same.life.state != LifeState::Closed);
            if same.is_some_and(|same| same.acknowledged != finding.acknowledged) {
                broken.push(format!("the pair disagrees about who handles {}", finding.id));
            }
        }
        broken
    }
}
