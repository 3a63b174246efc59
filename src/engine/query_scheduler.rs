//! The desk: where questions are answered. Short ones at once; long ones one after the other on a thread of their own,
//! so that nobody who asks little waits for somebody who asks much.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use tokio::{
    sync::{oneshot, watch},
    task::{JoinHandle, spawn_blocking},
};

use super::{
    Engine, PersistedState, RecordedPast,
    engine_handle::{EngineChange, EngineRequest, PublishedState, QUESTIONS},
    engine_loop::RequestReceiver,
};
use crate::answer::{Answer, BuiltinField, FieldKey, Filter, Question, Subject};

/// Answers that are kept until the next tick: more different questions than a site's consoles ask at once.
const MAX_ANSWERS: usize = 64;

/// A question about the GPUs of so many nodes is short.
const FEW_NODES: usize = 4;

/// The owner, and those who ask him.
pub(super) struct QueryScheduler {
    /// Shared with whoever works something out; changed only while nobody does.
    engine: Arc<Engine>,
    requests: RequestReceiver,
    published: watch::Sender<PublishedState>,
    /// Answers since the last tick: whoever asks the same once more gets the same.
    answer_cache: HashMap<Question, Answer>,
    /// Long questions that wait.
    waiting: VecDeque<(Question, oneshot::Sender<Answer>)>,
    /// What is to be done as soon as nobody reads.
    changes: VecDeque<EngineChange>,
    /// Those who want what outlives a restart, until the judge is back.
    persist_requests: Vec<oneshot::Sender<PersistedState>>,
    /// Those who want the past that is kept, and how many bytes of it: that is long as well.
    recording: VecDeque<(usize, oneshot::Sender<RecordedPast>)>,
    /// The long question that is being worked out; without an answer that others may have.
    running_query: Option<JoinHandle<Option<(Question, Answer)>>>,
    /// Deliveries that came while one was worked out: they are taken before the next one. None until they are counted.
    backlog: Option<usize>,
}

impl QueryScheduler {
    pub(super) fn new(
        owner: Engine,
        asked: RequestReceiver,
        published: watch::Sender<PublishedState>,
    ) -> Self {
        Self {
            engine: Arc::new(owner),
            requests: asked,
            published,
            answer_cache: HashMap::new(),
            waiting: VecDeque::new(),
            changes: VecDeque::new(),
            persist_requests: Vec::new(),
            recording: VecDeque::new(),
            running_query: None,
            backlog: Some(0),
        }
    }

    /// The owner, for whoever only reads.
    pub(super) fn shared_engine(&self) -> Arc<Engine> {
        self.engine.clone()
    }

    /// Whether nobody reads what the owner knows, so that it can be changed.
    pub(super) fn is_free(&self) -> bool {
        self.running_query.is_none()
    }

    /// So many deliveries wait: if a long question kept them waiting, the next one waits for them.
    pub(super) fn update_backlog(&mut self, deliveries: usize) {
        self.backlog = Some(self.backlog.map_or(deliveries, |owed| owed.min(deliveries)));
        self.start_next_query();
    }

    /// One delivery was taken.
    pub(super) fn record_ingested(&mut self) {
        self.backlog = self.backlog.map(|owed| owed.saturating_sub(1));
    }

    /// Publishes what the owner has for everybody; what was answered before stands no longer.
    pub(super) fn publish_state(&mut self) {
        self.published.send_replace(self.engine.published_state());
        self.answer_cache.clear();
        self.backlog = None;
        self.apply_changes();
        self.deliver_persisted_state();
    }

    /// Does the next thing that questions need; false when nobody is left to ask, or when an answer panicked.
    pub(super) async fn serve_next(&mut self) -> bool {
        let has_room = self.has_capacity();
        tokio::select! {
            biased;
            asked = self.requests.recv(), if has_room => match asked {
                Some(asked) => self.handle_request(asked),
                None => return false,
            },
            done = wait_for_query(&mut self.running_query) => {
                self.running_query = None;
                let Some(done) = done else { return false };
                self.cache_answer(done);
                self.apply_changes();
            }
        }
        true
    }

    /// Answers questions while something is worked out elsewhere; none if nobody is left to ask, or if it panicked.
    pub(super) async fn serve_during<T>(&mut self, mut work: JoinHandle<T>) -> Option<T> {
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done.ok(),
                going_on = self.serve_next() => {
                    if !going_on {
                        return None;
                    }
                    // Deliveries wait for this work anyway.
                    self.backlog = Some(0);
                    self.start_next_query();
                }
            }
        }
    }

    /// The owner to be changed, once nobody reads any more; questions are answered meanwhile.
    pub(super) async fn engine_mut(&mut self) -> Option<&mut Engine> {
        while self.running_query.is_some() {
            let has_room = self.has_capacity();
            // The next long one has to wait.
            tokio::select! {
                biased;
                done = wait_for_query(&mut self.running_query) => {
                    self.running_query = None;
                    self.cache_answer(done?);
                }
                asked = self.requests.recv(), if has_room => self.handle_request(asked?),
            }
        }
        Arc::get_mut(&mut self.engine)
    }

    fn has_capacity(&self) -> bool {
        let asked = self.persist_requests.len().max(self.recording.len());
        self.waiting.len().max(self.changes.len()).max(asked) < QUESTIONS
    }

    fn handle_request(&mut self, asked: EngineRequest) {
        let (question, back) = match asked {
            EngineRequest::Question(question, back) => (question, back),
            EngineRequest::Change(change) => {
                self.changes.push_back(change);
                return self.apply_changes();
            }
            EngineRequest::PersistedState(back) => {
                self.persist_requests.push(back);
                return self.deliver_persisted_state();
            }
            EngineRequest::Past(most, back) => {
                self.recording.push_back((most, back));
                return self.start_next_query();
            }
        };
        if let Some(answer) = self.answer_cache.get(&question) {
            // Whoever asked may have given up; then the answer is dropped.
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

    /// Does what is to be done, unless somebody reads; it is seen at once.
    fn apply_changes(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        let Some(owner) = Arc::get_mut(&mut self.engine) else { return };
        for change in self.changes.drain(..) {
            match change {
                EngineChange::Action(act, back) => {
                    let answer = owner.handle_action(&act);
                    self.published.send_replace(owner.published_state());
                    self.answer_cache.clear();
                    drop(back.send(answer));
                }
                EngineChange::Pairing(word, back) => {
                    drop(back.send(owner.handle_pairing_request(word)));
                }
                EngineChange::Persisted(starved) => owner.confirm_lost_time(starved),
            }
        }
    }

    /// Hands out what outlives a restart, unless the judge is away with his findings.
    fn deliver_persisted_state(&mut self) {
        if self.persist_requests.is_empty() {
            return;
        }
        let Some(remembered) = self.engine.persisted_state() else { return };
        for back in self.persist_requests.drain(..) {
            drop(back.send(remembered.clone()));
        }
    }

    /// Starts on the next long question, if it is its turn.
    fn start_next_query(&mut self) {
        if self.running_query.is_some() || self.backlog != Some(0) || !self.changes.is_empty() {
            return;
        }
        if let Some((most, back)) = self.recording.pop_front() {
            let owner = self.engine.clone();
            self.backlog = None;
            self.running_query = Some(spawn_blocking(move || {
                let past = owner.recorded_past(most);
                drop(owner);
                drop(back.send(past));
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
            let owner = self.engine.clone();
            self.backlog = None;
            self.running_query = Some(spawn_blocking(move || {
                let answer = owner.answer_question(&question);
                // Whoever waits for the end of this may change the owner.
                drop(owner);
                drop(back.send(answer.clone()));
                Some((question, answer))
            }));
            return;
        }
    }

    fn cache_answer(&mut self, done: Option<(Question, Answer)>) {
        let Some((question, answer)) = done else { return };
        // What targets and single nodes do is told as it is; tables stand until the next tick.
        let stands = !matches!(question, Question::Targets | Question::Node(_));
        if stands && self.answer_cache.len() < MAX_ANSWERS {
            self.answer_cache.insert(question, answer);
        }
    }
}

/// The end of the work, if any is done; else never.
async fn wait_for_query(
    working: &mut Option<JoinHandle<Option<(Question, Answer)>>>,
) -> Option<Option<(Question, Answer)>> {
    match working {
        Some(work) => work.await.ok(),
        None => std::future::pending().await,
    }
}

/// Whether a question is answered in well under a millisecond whatever the size of the fleet.
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
