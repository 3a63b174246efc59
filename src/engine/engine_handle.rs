//! The handle of the engine: an inbox for deliveries, and a channel for queries.

use std::{fmt, sync::Arc, time::Duration};

use gaunt_schema::{
    Delivery, SanitizedText, TargetId, UnixMs,
    probe_pairing::{PairingReply, PairingRequest},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::timeout,
};

use super::{Engine, HistoryReadings, PersistedState, RecordedPast};
use gaunt_api::{
    Answer, FindingAction, FindingList, JobLostTime, Overview, PeerAction, PeerOutcome, Question,
};

/// Capacity of the inbox. A sender that finds the inbox full waits, and so falls behind visibly. It holds a third of a
/// second of 12,500 targets that are scraped every second: as long as a judgement of such a fleet takes, scraping goes
/// on. A target has at most one delivery in flight, so that all of them together hold what one period brings.
pub const INBOX: usize = 4096;

/// Capacity of the query channel. Queries come before deliveries, so that few wait for long.
pub const QUESTIONS: usize = 256;

/// A request to the engine, with the channel for its answer.
#[derive(Debug)]
pub(super) enum EngineRequest {
    /// A query.
    Question(Question, oneshot::Sender<Answer>),
    /// A change of state.
    Change(EngineChange),
    /// A copy of the persisted state.
    PersistedState(oneshot::Sender<PersistedState>),
    /// Something that reads the engine for long.
    Read(EngineReadFn),
}

/// Reads the engine, and sends away what it read.
pub(super) struct EngineReadFn(pub(super) Box<dyn FnOnce(&Engine) + Send>);

impl fmt::Debug for EngineReadFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EngineReadFn")
    }
}

/// Receiver of queries.
pub(super) type RequestReceiver = mpsc::Receiver<EngineRequest>;

/// A change of state.
#[derive(Debug)]
pub(super) enum EngineChange {
    /// An action on a finding, such as an acknowledgement.
    Action(FindingAction, oneshot::Sender<Answer>),
    /// An action that a peer passed on.
    PeerAction(PeerAction, oneshot::Sender<PeerOutcome>),
    /// A pairing request of a probe.
    Pairing(PairingRequest, oneshot::Sender<PairingReply>),
    /// A past that was read back.
    Past(Box<RecordedPast>),
    /// This much of the lost time is saved.
    Persisted(Vec<JobLostTime>),
    /// Why the state cannot be saved; none once it can.
    SaveFailure(Option<SanitizedText>),
}

/// A request to save all state now, with a channel that reports completion.
pub type FlushRequest = oneshot::Sender<()>;

/// The longest time that an action waits until it is saved; it takes effect in any case.
const KEPT_WITHIN: Duration = Duration::from_secs(5);

/// The precomputed answers of a tick: reading them does not wait for the engine.
#[derive(Clone, Debug, Default)]
pub(super) struct PublishedState {
    /// The fleet overview, heat map included.
    pub(super) overview: Arc<Overview>,
    /// Every open finding.
    pub(super) findings: Arc<FindingList>,
    /// The targets that are to read the status of NCCL's RAS, sorted.
    pub(super) ras_targets: Arc<[TargetId]>,
    /// The actions to pass on to peers.
    pub(super) peer_actions: Arc<[PeerAction]>,
}

/// The receivers for the engine's loop.
pub(super) struct EngineChannels {
    pub(super) deliveries: mpsc::Receiver<Delivery>,
    pub(super) requests: RequestReceiver,
    pub(super) published: watch::Sender<PublishedState>,
}

/// A handle to a running engine. Cheap to clone; the engine ends when the last one is dropped.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    inbox: mpsc::Sender<Delivery>,
    requests: mpsc::Sender<EngineRequest>,
    published: watch::Receiver<PublishedState>,
    /// The task that persists state.
    flush_sender: Option<mpsc::Sender<FlushRequest>>,
}

/// The engine has stopped: its task ended or panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine has stopped; see the log for the reason and restart gaunt")]
pub struct EngineStopped;

impl EngineHandle {
    /// A handle, and the receivers for the engine's loop.
    pub(super) fn new(first: PublishedState) -> (Self, EngineChannels) {
        let (inbox, deliveries) = mpsc::channel(INBOX);
        let (questions, asked) = mpsc::channel(QUESTIONS);
        let (publish, published) = watch::channel(first);
        let handle = Self { inbox, requests: questions, published, flush_sender: None };
        (handle, EngineChannels { deliveries, requests: asked, published: publish })
    }

    /// The sender of deliveries.
    pub fn delivery_sender(&self) -> mpsc::Sender<Delivery> {
        self.inbox.clone()
    }

    /// Tells whether a target is to read the status of NCCL's RAS: a job on its node seems to hang. It does not keep the
    /// engine running.
    pub fn ras_request_check(&self) -> impl Fn(TargetId) -> bool + Send + Sync + use<> {
        let published = self.published.clone();
        move |target| published.borrow().ras_targets.binary_search(&target).is_ok()
    }

    /// Waits for a tick after `last` and returns its time.
    pub async fn wait_for_tick(&self, last: UnixMs) -> Result<UnixMs, EngineStopped> {
        let mut published = self.published.clone();
        let newer = published.wait_for(|published| published.overview.at > last).await;
        newer.map(|published| published.overview.at).map_err(|_| EngineStopped)
    }

    /// Sends a query and waits for the answer; precomputed answers are available at once.
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

    /// Sends a pairing request and waits for the reply.
    pub async fn send_pairing_request(
        &self,
        request: PairingRequest,
    ) -> Result<PairingReply, EngineStopped> {
        let (back, reply) = oneshot::channel();
        self.send_change(EngineChange::Pairing(request, back)).await?;
        reply.await.map_err(|_| EngineStopped)
    }

    /// Sends an action and waits until it is applied and published.
    pub async fn send_action(&self, act: FindingAction) -> Result<Answer, EngineStopped> {
        let (back, answer) = oneshot::channel();
        self.send_change(EngineChange::Action(act, back)).await?;
        let answer = answer.await.map_err(|_| EngineStopped)?;
        if !matches!(answer, Answer::Refused(_)) {
            self.save_action().await;
        }
        Ok(answer)
    }

    /// Sends an action that a peer passed on, and waits until it is applied and saved.
    pub async fn send_peer_action(&self, action: PeerAction) -> Result<PeerOutcome, EngineStopped> {
        let (back, outcome) = oneshot::channel();
        self.send_change(EngineChange::PeerAction(action, back)).await?;
        let outcome = outcome.await.map_err(|_| EngineStopped)?;
        if outcome == PeerOutcome::Taken {
            self.save_action().await;
        }
        Ok(outcome)
    }

    /// The actions to pass on to peers, as soon as they differ from `known`.
    pub async fn next_peer_actions(
        &self,
        known: &[PeerAction],
    ) -> Result<Arc<[PeerAction]>, EngineStopped> {
        let mut published = self.published.clone();
        let differ = published.wait_for(|published| *published.peer_actions != *known).await;
        differ.map(|published| published.peer_actions.clone()).map_err(|_| EngineStopped)
    }

    /// Saves the state with the last action.
    async fn save_action(&self) {
        let Some(flush_sender) = &self.flush_sender else { return };
        let (back, flushed) = oneshot::channel();
        let flushed = async { flush_sender.send(back).await.is_ok() && flushed.await.is_ok() };
        if timeout(KEPT_WITHIN, flushed).await != Ok(true) {
            tracing::warn!("the action is not saved yet; a restart may lose it");
        }
    }

    /// The same handle, whose actions are saved before they are answered.
    #[must_use]
    pub fn with_flush_sender(&self, flush_sender: mpsc::Sender<FlushRequest>) -> Self {
        Self { flush_sender: Some(flush_sender), ..self.clone() }
    }

    /// The persisted state as of now.
    pub async fn persisted_state(&self) -> Result<PersistedState, EngineStopped> {
        let (back, remembered) = oneshot::channel();
        self.requests.send(EngineRequest::PersistedState(back)).await.map_err(|_| EngineStopped)?;
        remembered.await.map_err(|_| EngineStopped)
    }

    /// The recorded past in about `most` bytes.
    pub async fn recorded_past(&self, most: usize) -> Result<RecordedPast, EngineStopped> {
        self.read_engine(move |engine| engine.recorded_past(most)).await
    }

    /// The current values of the metrics with history of some nodes, the first after `from` in the order of names.
    pub async fn history_readings(&self, from: usize) -> Result<HistoryReadings, EngineStopped> {
        self.read_engine(move |engine| engine.history_readings(from)).await
    }

    /// Adds a past from before the first page, which a store kept.
    pub async fn recall_past(&self, past: RecordedPast) -> Result<(), EngineStopped> {
        self.send_change(EngineChange::Past(Box::new(past))).await
    }

    /// Reads the engine on its thread for long queries, when its turn comes.
    async fn read_engine<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Result<T, EngineStopped> {
        let (back, result) = oneshot::channel();
        // The receiver may be dropped; then the result is dropped, too.
        let read = EngineReadFn(Box::new(move |engine| drop(back.send(read(engine)))));
        self.requests.send(EngineRequest::Read(read)).await.map_err(|_| EngineStopped)?;
        result.await.map_err(|_| EngineStopped)
    }

    /// Reports to the engine that this state is saved: from now on, counters are reported up to it.
    pub async fn confirm_persisted(&self, remembered: &PersistedState) {
        // A stopped engine needs no report.
        _ = self.send_change(EngineChange::Persisted(remembered.lost_time_rows())).await;
    }

    /// Reports to the engine why its state is not saved, for its screens; none once it is saved again.
    pub async fn report_save_failure(&self, why: Option<SanitizedText>) {
        // A stopped engine needs no report.
        _ = self.send_change(EngineChange::SaveFailure(why)).await;
    }

    async fn send_change(&self, change: EngineChange) -> Result<(), EngineStopped> {
        self.requests.send(EngineRequest::Change(change)).await.map_err(|_| EngineStopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EngineOptions, spawn_stepped};

    /// Four times as many queries, actions and requests as fit into the channel: senders wait, and each gets its
    /// answer.
    #[tokio::test]
    async fn questions_beyond_their_queue_wait_and_all_are_answered() {
        let start = UnixMs(1_700_000_000_000);
        let (handle, ticks) = spawn_stepped(Engine::new(EngineOptions::default()), start);
        // The engine's task runs on this thread, which does not yield meanwhile.
        let queued = (0..2 * QUESTIONS)
            .take_while(|_| {
                let (back, _) = oneshot::channel();
                handle.requests.try_send(EngineRequest::PersistedState(back)).is_ok()
            })
            .count();
        assert_eq!(queued, QUESTIONS);
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
