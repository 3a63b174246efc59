//! The query scheduler: short queries are answered at once, long ones one after the other on a thread of their own, so
//! that short queries do not wait for long ones.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use tokio::{
    sync::{oneshot, watch},
    task::{JoinHandle, spawn_blocking},
};

use super::{
    Engine, PersistedState,
    engine_end::EngineEnd,
    engine_handle::{
        EngineChange, EngineReadFn, EngineRequest, PublishedState, QUESTIONS, RequestReceiver,
    },
};
use gaunt_api::{Answer, BuiltinField, FieldKey, Filter, Question, Subject};

/// Cached answers per tick: more different queries than a site's consoles send at once.
const MAX_ANSWERS: usize = 64;

/// A query about the GPUs of at most this many nodes is short.
const FEW_NODES: usize = 4;

/// The engine and its pending requests.
pub(super) struct QueryScheduler {
    /// Shared with the running query and the running judgement, which drop their handles when they end; changed only
    /// while none is running.
    engine: Arc<Engine>,
    requests: RequestReceiver,
    published: watch::Sender<PublishedState>,
    /// Answers since the last tick: an equal query gets the same answer.
    answer_cache: HashMap<Question, Answer>,
    /// Long queries that wait.
    waiting: VecDeque<(Question, oneshot::Sender<Answer>)>,
    /// Changes to apply as soon as the engine is not shared: after the running query, or after the judgement.
    changes: VecDeque<EngineChange>,
    /// Requests for the persisted state, until the judgement ends.
    persist_requests: Vec<oneshot::Sender<PersistedState>>,
    /// What reads the engine for long, and is no query.
    reads: VecDeque<EngineReadFn>,
    /// The running long query; without an answer if that is not cached.
    running_query: Option<JoinHandle<Option<(Question, Answer)>>>,
    /// Deliveries that arrived during a long query: they are ingested before the next one. None until they are
    /// counted.
    backlog: Option<usize>,
}

impl QueryScheduler {
    pub(super) fn new(
        engine: Engine,
        requests: RequestReceiver,
        published: watch::Sender<PublishedState>,
    ) -> Self {
        Self {
            engine: Arc::new(engine),
            requests,
            published,
            answer_cache: HashMap::new(),
            waiting: VecDeque::new(),
            changes: VecDeque::new(),
            persist_requests: Vec::new(),
            reads: VecDeque::new(),
            running_query: None,
            backlog: Some(0),
        }
    }

    /// Whether the engine is not shared, so that it can be changed.
    pub(super) fn is_free(&self) -> bool {
        self.running_query.is_none()
    }

    /// Records the number of waiting deliveries: if a long query delayed them, the next one waits for them.
    pub(super) fn update_backlog(&mut self, deliveries: usize) {
        self.backlog = Some(self.backlog.map_or(deliveries, |owed| owed.min(deliveries)));
        self.start_next_query();
    }

    /// Records one ingested delivery.
    pub(super) fn record_ingested(&mut self) {
        self.backlog = self.backlog.map(|owed| owed.saturating_sub(1));
    }

    /// Publishes the precomputed answers and drops cached ones.
    pub(super) fn publish_state(&mut self) {
        self.published.send_replace(self.engine.published_state());
        self.answer_cache.clear();
        self.backlog = None;
        self.apply_changes();
        self.deliver_persisted_state();
    }

    /// Handles the next event.
    pub(super) async fn serve_next(&mut self) -> Result<(), EngineEnd> {
        let can_accept = self.has_capacity();
        tokio::select! {
            biased;
            request = self.requests.recv(), if can_accept => {
                self.handle_request(request.ok_or(EngineEnd::HandlesDropped)?);
            }
            done = wait_for_query(&mut self.running_query) => {
                self.running_query = None;
                self.cache_answer(done?);
                self.apply_changes();
            }
        }
        Ok(())
    }

    /// Reads the engine on another thread, and answers queries meanwhile.
    pub(super) async fn serve_during<T: Send + 'static>(
        &mut self,
        task: &'static str,
        read: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Result<T, EngineEnd> {
        let engine = self.engine.clone();
        let mut reading = spawn_blocking(move || read(&engine));
        loop {
            tokio::select! {
                biased;
                done = &mut reading => {
                    return done.map_err(|error| EngineEnd::of_task(task, error));
                }
                served = self.serve_next() => {
                    served?;
                    // Deliveries wait for this work anyway.
                    self.backlog = Some(0);
                    self.start_next_query();
                }
            }
        }
    }

    /// Waits for exclusive access to the engine; queries are answered meanwhile.
    pub(super) async fn engine_mut(&mut self) -> Result<&mut Engine, EngineEnd> {
        while self.running_query.is_some() {
            let can_accept = self.has_capacity();
            // No further long query starts.
            tokio::select! {
                biased;
                done = wait_for_query(&mut self.running_query) => {
                    self.running_query = None;
                    self.cache_answer(done?);
                }
                request = self.requests.recv(), if can_accept => {
                    self.handle_request(request.ok_or(EngineEnd::HandlesDropped)?);
                }
            }
        }
        self.apply_changes();
        Arc::get_mut(&mut self.engine).ok_or(EngineEnd::StillShared)
    }

    fn has_capacity(&self) -> bool {
        let pending = self.persist_requests.len().max(self.reads.len());
        self.waiting.len().max(self.changes.len()).max(pending) < QUESTIONS
    }

    fn handle_request(&mut self, request: EngineRequest) {
        let (question, back) = match request {
            EngineRequest::Question(question, back) => (question, back),
            EngineRequest::Change(change) => {
                self.changes.push_back(change);
                return self.apply_changes();
            }
            EngineRequest::PersistedState(back) => {
                self.persist_requests.push(back);
                return self.deliver_persisted_state();
            }
            EngineRequest::Read(read) => {
                self.reads.push_back(read);
                return self.start_next_query();
            }
        };
        if let Some(answer) = self.answer_cache.get(&question) {
            // The receiver may be dropped; then the answer is dropped, too.
            return drop(back.send(answer.clone()));
        }
        if is_short(&question) {
            let answer = self.engine.answer_question(&question);
            drop(back.send(answer.clone()));
            return self.cache_answer(Some((question, answer)));
        }
        self.waiting.push_back((question, back));
        self.start_next_query();
    }

    /// Applies pending changes unless the engine is shared, and publishes the result at once.
    fn apply_changes(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        let Some(engine) = Arc::get_mut(&mut self.engine) else { return };
        for change in self.changes.drain(..) {
            match change {
                EngineChange::Action(act, back) => {
                    let answer = engine.handle_action(&act);
                    self.published.send_replace(engine.published_state());
                    self.answer_cache.clear();
                    drop(back.send(answer));
                }
                EngineChange::PeerAction(action, back) => {
                    let outcome = engine.handle_peer_action(action);
                    self.published.send_replace(engine.published_state());
                    self.answer_cache.clear();
                    _ = back.send(outcome);
                }
                EngineChange::Pairing(request, back) => {
                    drop(back.send(engine.handle_pairing_request(request)));
                }
                EngineChange::Past(past) => engine.recall_past(&past),
                EngineChange::Persisted(lost_time) => engine.confirm_lost_time(lost_time),
                EngineChange::SaveFailure(why) => engine.note_save_failure(why),
            }
        }
    }

    /// Sends the persisted state, unless a judgement holds the findings.
    fn deliver_persisted_state(&mut self) {
        if self.persist_requests.is_empty() {
            return;
        }
        let Some(state) = self.engine.persisted_state() else { return };
        for back in self.persist_requests.drain(..) {
            drop(back.send(state.clone()));
        }
    }

    /// Starts the next long query, if one may run.
    fn start_next_query(&mut self) {
        if self.running_query.is_some() || self.backlog != Some(0) {
            return;
        }
        if let Some(EngineReadFn(read)) = self.reads.pop_front() {
            let engine = self.engine.clone();
            self.backlog = None;
            self.running_query = Some(spawn_blocking(move || {
                read(&engine);
                None
            }));
            return;
        }
        while let Some((question, back)) = self.waiting.pop_front() {
            if let Some(answer) = self.answer_cache.get(&question) {
                drop(back.send(answer.clone()));
                continue;
            }
            if back.is_closed() {
                continue;
            }
            let engine = self.engine.clone();
            self.backlog = None;
            self.running_query = Some(spawn_blocking(move || {
                let answer = engine.answer_question(&question);
                // Released first: the code that waits for this query may then change the engine.
                drop(engine);
                drop(back.send(answer.clone()));
                Some((question, answer))
            }));
            return;
        }
    }

    fn cache_answer(&mut self, done: Option<(Question, Answer)>) {
        let Some((question, answer)) = done else { return };
        // Targets and single nodes are answered from current state; tables stay valid until the next tick.
        let is_cacheable = !matches!(question, Question::Targets | Question::Node(_));
        if is_cacheable && self.answer_cache.len() < MAX_ANSWERS {
            self.answer_cache.insert(question, answer);
        }
    }
}

/// The end of the running query; pending forever if there is none.
async fn wait_for_query(
    working: &mut Option<JoinHandle<Option<(Question, Answer)>>>,
) -> Result<Option<(Question, Answer)>, EngineEnd> {
    match working {
        Some(work) => work.await.map_err(|error| EngineEnd::of_task("a query", error)),
        None => std::future::pending().await,
    }
}

/// Whether a query takes well under a millisecond whatever the size of the fleet.
fn is_short(question: &Question) -> bool {
    let few = |filter: &Filter| {
        let nodes = filter.required_texts(FieldKey::Builtin(BuiltinField::Node));
        filter.subject() == Subject::Gpus && nodes.is_some_and(|nodes| nodes.len() <= FEW_NODES)
    };
    match question {
        Question::Overview | Question::Findings | Question::Closed => true,
        Question::Table(filter) => few(filter),
        Question::History(ask) => few(&ask.of),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::UnixMs;

    use super::*;
    use crate::{EngineOptions, engine_handle::EngineHandle};
    use gaunt_api::{FindingAction, FindingCommand};

    fn new_scheduler() -> (EngineHandle, QueryScheduler) {
        let engine = Engine::new(EngineOptions::default());
        let (handle, ends) = EngineHandle::new(engine.published_state());
        (handle, QueryScheduler::new(engine, ends.requests, ends.published))
    }

    #[tokio::test]
    async fn questions_are_answered_during_a_judgement_and_changes_after_it() {
        let (handle, mut scheduler) = new_scheduler();
        let (release, unblocked) = std::sync::mpsc::channel();
        let asking = tokio::spawn(async move {
            let command = FindingCommand::Withdraw;
            let act = FindingAction { finding: "a".into(), by: "sam".into(), command, seen: None };
            let other = handle.clone();
            let acting = tokio::spawn(async move { other.send_action(act).await });
            tokio::task::yield_now().await;
            for line in ["fabric", "fabric?filter=symbol_errors<1", "gpus?filter=node=a"] {
                let question = Question::parse_line(line, &[]).unwrap();
                let answer = handle.ask_question(question).await.unwrap();
                assert!(!matches!(answer, Answer::Refused(_)), "{line}: {answer:?}");
            }
            assert!(!acting.is_finished(), "the judgement still reads");
            release.send(()).unwrap();
            (handle, acting)
        });
        let judged = scheduler.serve_during("the judgement", move |_| unblocked.recv()).await;
        assert_eq!(judged, Ok(Ok(())));
        scheduler.engine_mut().await.unwrap().tick_without_judgement(UnixMs(1_000));
        let (_handle, acting) = asking.await.unwrap();
        assert!(matches!(acting.await.unwrap(), Ok(Answer::Refused(_))), "no such finding");
    }

    #[tokio::test]
    async fn leaked_engine_handle_is_an_error_and_no_panic() {
        let (_handle, mut scheduler) = new_scheduler();
        let stray = scheduler.engine.clone();
        assert_eq!(scheduler.engine_mut().await.unwrap_err(), EngineEnd::StillShared);
        drop(stray);
        scheduler.engine_mut().await.unwrap();
    }
}
