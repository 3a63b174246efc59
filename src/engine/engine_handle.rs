//! The door to the owner: an inbox for what senders bring, and a way to ask.

use std::{sync::Arc, time::Duration};

use gaunt_schema::{
    Delivery, UnixMs,
    probe_pairing::{PairingReply, PairingRequest},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::timeout,
};

use super::{PersistedState, RecordedPast};
use crate::answer::{Answer, FindingAction, FindingList, JobLostTime, Overview, Question};

/// Deliveries that may wait. A sender whose delivery finds the inbox full waits, and so falls behind visibly. A third of a
/// second of 12,500 targets that are read every second: as long as the judge looks at such a fleet, they are read on. A
/// target has one delivery under way at most, so that all of them together hold what one period brings.
pub const INBOX: usize = 4096;

/// Questions that may wait. They are taken before deliveries, so that few wait for long.
pub const QUESTIONS: usize = 256;

/// What the owner is asked, with the way back for its answer.
#[derive(Debug)]
pub(super) enum EngineRequest {
    /// A question.
    Question(Question, oneshot::Sender<Answer>),
    /// Something that changes what is known.
    Change(EngineChange),
    /// What outlives a restart.
    PersistedState(oneshot::Sender<PersistedState>),
    /// The past that is kept, in so many bytes.
    Past(usize, oneshot::Sender<RecordedPast>),
}

/// Something that changes what is known.
#[derive(Debug)]
pub(super) enum EngineChange {
    /// Somebody acts.
    Action(FindingAction, oneshot::Sender<Answer>),
    /// What a probe says.
    Pairing(PairingRequest, oneshot::Sender<PairingReply>),
    /// This much of what is counted is kept.
    Persisted(Vec<JobLostTime>),
}

/// A request to keep everything now, with the way back once that is done.
pub type FlushRequest = oneshot::Sender<()>;

/// The longest that who acts waits until that is kept; it is done in any case.
const KEPT_WITHIN: Duration = Duration::from_secs(5);

/// What the owner publishes each tick: who asks for it does not wait for the owner.
#[derive(Clone, Debug, Default)]
pub(super) struct PublishedState {
    /// The fleet at a glance, the heat map in it.
    pub(super) overview: Arc<Overview>,
    /// Every open finding.
    pub(super) findings: Arc<FindingList>,
}

/// The receiving ends for the owner's loop.
pub(super) struct EngineChannels {
    pub(super) deliveries: mpsc::Receiver<Delivery>,
    pub(super) requests: mpsc::Receiver<EngineRequest>,
    pub(super) published: watch::Sender<PublishedState>,
}

/// A way to reach a running owner. Cheap to copy; the owner ends when the last one is dropped.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    inbox: mpsc::Sender<Delivery>,
    requests: mpsc::Sender<EngineRequest>,
    published: watch::Receiver<PublishedState>,
    /// Who keeps what outlives a restart.
    flush_sender: Option<mpsc::Sender<FlushRequest>>,
}

/// The owner is gone: its task ended or panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the owner of the cluster's data has ended; see the log for the reason and start gaunt again"
)]
pub struct EngineStopped;

impl EngineHandle {
    /// A handle, and the receiving ends for the owner's loop.
    pub(super) fn new(first: PublishedState) -> (Self, EngineChannels) {
        let (inbox, deliveries) = mpsc::channel(INBOX);
        let (questions, asked) = mpsc::channel(QUESTIONS);
        let (publish, published) = watch::channel(first);
        let handle = Self { inbox, requests: questions, published, flush_sender: None };
        (handle, EngineChannels { deliveries, requests: asked, published: publish })
    }

    /// The inbox, for a sender.
    pub fn delivery_sender(&self) -> mpsc::Sender<Delivery> {
        self.inbox.clone()
    }

    /// Waits until the owner has ticked after `last`; says when it last ticked.
    pub async fn wait_for_tick(&self, last: UnixMs) -> Result<UnixMs, EngineStopped> {
        let mut published = self.published.clone();
        let newer = published.wait_for(|published| published.overview.at > last).await;
        newer.map(|published| published.overview.at).map_err(|_| EngineStopped)
    }

    /// Asks, and waits for the answer; what is published each tick is there at once.
    pub async fn ask_question(&self, question: Question) -> Result<Answer, EngineStopped> {
        if self.published.has_changed().is_err() {
            return Err(EngineStopped);
        }
        match question {
            Question::Overview => {
                return Ok(Answer::Overview(self.published.borrow().overview.clone()));
            }
            Question::Findings => {
                return Ok(Answer::Findings(self.published.borrow().findings.clone()));
            }
            _ => {}
        }
        let (back, answer) = oneshot::channel();
        self.requests
            .send(EngineRequest::Question(question, back))
            .await
            .map_err(|_| EngineStopped)?;
        answer.await.map_err(|_| EngineStopped)
    }

    /// Says what a probe says, and waits for the reply.
    pub async fn send_pairing_request(
        &self,
        word: PairingRequest,
    ) -> Result<PairingReply, EngineStopped> {
        let (back, reply) = oneshot::channel();
        self.send_change(EngineChange::Pairing(word, back)).await?;
        reply.await.map_err(|_| EngineStopped)
    }

    /// Does something, and waits until it is done and published.
    pub async fn send_action(&self, act: FindingAction) -> Result<Answer, EngineStopped> {
        let (back, answer) = oneshot::channel();
        self.send_change(EngineChange::Action(act, back)).await?;
        let answer = answer.await.map_err(|_| EngineStopped)?;
        if let (Some(keeper), false) = (&self.flush_sender, matches!(answer, Answer::Refused(_))) {
            let (back, kept) = oneshot::channel();
            let kept = async { keeper.send(back).await.is_ok() && kept.await.is_ok() };
            if timeout(KEPT_WITHIN, kept).await != Ok(true) {
                tracing::warn!("what was done may not outlive a restart: it is not kept yet");
            }
        }
        Ok(answer)
    }

    /// The same handle, whose acts are kept before they are answered.
    #[must_use]
    pub fn with_flush_sender(&self, keeper: mpsc::Sender<FlushRequest>) -> Self {
        Self { flush_sender: Some(keeper), ..self.clone() }
    }

    /// What outlives a restart, as of now.
    pub async fn persisted_state(&self) -> Result<PersistedState, EngineStopped> {
        let (back, remembered) = oneshot::channel();
        self.requests.send(EngineRequest::PersistedState(back)).await.map_err(|_| EngineStopped)?;
        remembered.await.map_err(|_| EngineStopped)
    }

    /// The past that is kept, in about `most` bytes.
    pub async fn recorded_past(&self, most: usize) -> Result<RecordedPast, EngineStopped> {
        let (back, past) = oneshot::channel();
        self.requests.send(EngineRequest::Past(most, back)).await.map_err(|_| EngineStopped)?;
        past.await.map_err(|_| EngineStopped)
    }

    /// Tells the owner that this is kept: what it counts is told from now on as it is there.
    pub async fn confirm_persisted(&self, remembered: &PersistedState) {
        // An owner that is gone tells nothing.
        _ = self.send_change(EngineChange::Persisted(remembered.lost_time_rows())).await;
    }

    async fn send_change(&self, change: EngineChange) -> Result<(), EngineStopped> {
        self.requests.send(EngineRequest::Change(change)).await.map_err(|_| EngineStopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, EngineOptions, spawn_stepped};

    /// Four times as many questions, acts and requests as may wait: who asks waits, and each gets its answer.
    #[tokio::test]
    async fn questions_beyond_their_queue_wait_and_all_are_answered() {
        let start = UnixMs(1_700_000_000_000);
        let (handle, ticks) = spawn_stepped(Engine::new(EngineOptions::default()), start);
        // The owner's task runs on this thread, which does not let go meanwhile.
        let held = (0..2 * QUESTIONS)
            .take_while(|_| {
                let (back, _) = oneshot::channel();
                handle.requests.try_send(EngineRequest::PersistedState(back)).is_ok()
            })
            .count();
        assert_eq!(held, QUESTIONS);
        let asking: Vec<_> = (0..4 * QUESTIONS)
            .map(|nth| {
                let handle = handle.clone();
                tokio::spawn(async move {
                    let line = match nth % 3 {
                        0 => format!("fabric?filter=symbol_errors<{nth}"),
                        1 => format!("gpus?filter=node=a and power>{nth}"),
                        _ => return handle.persisted_state().await.is_ok(),
                    };
                    let question = Question::parse_line(&line, &[]).unwrap();
                    matches!(handle.ask_question(question).await, Ok(answer) if !matches!(answer, Answer::Refused(_)))
                })
            })
            .collect();
        // Time passes meanwhile, too.
        for second in 1..=20 {
            ticks.send(start + Duration::from_secs(second)).await.unwrap();
        }
        for asked in asking {
            assert!(asked.await.unwrap());
        }
        handle.wait_for_tick(start + Duration::from_secs(19)).await.unwrap();
    }
}
