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
    Owner, RecordedPast, Remembered,
    handle::{Asked, Change, Published, QUESTIONS},
    run::Questions,
};
use crate::answer::{Answer, Filter, Key, Own, Question, Subject};

/// Answers that are kept until the next tick: more different questions than a site's consoles ask at once.
const MAX_ANSWERS: usize = 64;

/// A question about the GPUs of so many nodes is short.
const FEW_NODES: usize = 4;

/// The owner, and those who ask him.
pub(super) struct Desk {
    /// Shared with whoever works something out; changed only while nobody does.
    owner: Arc<Owner>,
    asked: Questions,
    published: watch::Sender<Published>,
    /// Answers since the last tick: whoever asks the same once more gets the same.
    known: HashMap<Question, Answer>,
    /// Long questions that wait.
    waiting: VecDeque<(Question, oneshot::Sender<Answer>)>,
    /// What is to be done as soon as nobody reads.
    changes: VecDeque<Change>,
    /// Those who want what outlives a restart, until the judge is back.
    remembering: Vec<oneshot::Sender<Remembered>>,
    /// Those who want the past that is kept, and how many bytes of it: that is long as well.
    recording: VecDeque<(usize, oneshot::Sender<RecordedPast>)>,
    /// The long question that is being worked out; without an answer that others may have.
    working: Option<JoinHandle<Option<(Question, Answer)>>>,
    /// Deliveries that came while one was worked out: they are taken before the next one. None until they are counted.
    owed: Option<usize>,
}

impl Desk {
    pub(super) fn new(owner: Owner, asked: Questions, published: watch::Sender<Published>) -> Self {
        Self {
            owner: Arc::new(owner),
            asked,
            published,
            known: HashMap::new(),
            waiting: VecDeque::new(),
            changes: VecDeque::new(),
            remembering: Vec::new(),
            recording: VecDeque::new(),
            working: None,
            owed: Some(0),
        }
    }

    /// The owner, for whoever only reads.
    pub(super) fn shared(&self) -> Arc<Owner> {
        self.owner.clone()
    }

    /// Whether nobody reads what the owner knows, so that it can be changed.
    pub(super) fn is_free(&self) -> bool {
        self.working.is_none()
    }

    /// So many deliveries wait: if a long question kept them waiting, the next one waits for them.
    pub(super) fn count(&mut self, deliveries: usize) {
        self.owed = Some(self.owed.map_or(deliveries, |owed| owed.min(deliveries)));
        self.start();
    }

    /// One delivery was taken.
    pub(super) fn took(&mut self) {
        self.owed = self.owed.map(|owed| owed.saturating_sub(1));
    }

    /// Publishes what the owner has for everybody; what was answered before stands no longer.
    pub(super) fn publish(&mut self) {
        self.published.send_replace(self.owner.published());
        self.known.clear();
        self.owed = None;
        self.change();
        self.remember();
    }

    /// Does the next thing that questions need; false when nobody is left to ask, or when an answer panicked.
    pub(super) async fn serve(&mut self) -> bool {
        let has_room = self.has_room();
        tokio::select! {
            biased;
            asked = self.asked.recv(), if has_room => match asked {
                Some(asked) => self.take(asked),
                None => return false,
            },
            done = worked(&mut self.working) => {
                self.working = None;
                let Some(done) = done else { return false };
                self.keep(done);
                self.change();
            }
        }
        true
    }

    /// Answers questions while something is worked out elsewhere; none if nobody is left to ask, or if it panicked.
    pub(super) async fn during<T>(&mut self, mut work: JoinHandle<T>) -> Option<T> {
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done.ok(),
                going_on = self.serve() => {
                    if !going_on {
                        return None;
                    }
                    // Deliveries wait for this work anyway.
                    self.owed = Some(0);
                    self.start();
                }
            }
        }
    }

    /// The owner to be changed, once nobody reads any more; questions are answered meanwhile.
    pub(super) async fn owner(&mut self) -> Option<&mut Owner> {
        while self.working.is_some() {
            let has_room = self.has_room();
            // The next long one has to wait.
            tokio::select! {
                biased;
                done = worked(&mut self.working) => {
                    self.working = None;
                    self.keep(done?);
                }
                asked = self.asked.recv(), if has_room => self.take(asked?),
            }
        }
        Arc::get_mut(&mut self.owner)
    }

    fn has_room(&self) -> bool {
        let asked = self.remembering.len().max(self.recording.len());
        self.waiting.len().max(self.changes.len()).max(asked) < QUESTIONS
    }

    fn take(&mut self, asked: Asked) {
        let (question, back) = match asked {
            Asked::Question(question, back) => (question, back),
            Asked::Change(change) => {
                self.changes.push_back(change);
                return self.change();
            }
            Asked::Remember(back) => {
                self.remembering.push(back);
                return self.remember();
            }
            Asked::Past(most, back) => {
                self.recording.push_back((most, back));
                return self.start();
            }
        };
        if let Some(answer) = self.known.get(&question) {
            // Whoever asked may have given up; then the answer is dropped.
            return drop(back.send(answer.clone()));
        }
        if is_short(&question) {
            let answer = self.owner.answer(&question);
            drop(back.send(answer.clone()));
            return self.keep(Some((question, answer)));
        }
        self.waiting.push_back((question, back));
        self.start();
    }

    /// Does what is to be done, unless somebody reads; it is seen at once.
    fn change(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        let Some(owner) = Arc::get_mut(&mut self.owner) else { return };
        for change in self.changes.drain(..) {
            match change {
                Change::Act(act, back) => {
                    let answer = owner.act(&act);
                    self.published.send_replace(owner.published());
                    self.known.clear();
                    drop(back.send(answer));
                }
                Change::Meeting(word, back) => drop(back.send(owner.hear(word))),
                Change::Kept(starved) => owner.tell_spent(starved),
            }
        }
    }

    /// Hands out what outlives a restart, unless the judge is away with his findings.
    fn remember(&mut self) {
        if self.remembering.is_empty() {
            return;
        }
        let Some(remembered) = self.owner.remember() else { return };
        for back in self.remembering.drain(..) {
            drop(back.send(remembered.clone()));
        }
    }

    /// Starts on the next long question, if it is its turn.
    fn start(&mut self) {
        if self.working.is_some() || self.owed != Some(0) || !self.changes.is_empty() {
            return;
        }
        if let Some((most, back)) = self.recording.pop_front() {
            let owner = self.owner.clone();
            self.owed = None;
            self.working = Some(spawn_blocking(move || {
                let past = owner.recorded_past(most);
                drop(owner);
                drop(back.send(past));
                None
            }));
            return;
        }
        while let Some((question, back)) = self.waiting.pop_front() {
            if let Some(answer) = self.known.get(&question) {
                drop(back.send(answer.clone()));
                continue;
            }
            if back.is_closed() {
                continue;
            }
            let owner = self.owner.clone();
            self.owed = None;
            self.working = Some(spawn_blocking(move || {
                let answer = owner.answer(&question);
                // Whoever waits for the end of this may change the owner.
                drop(owner);
                drop(back.send(answer.clone()));
                Some((question, answer))
            }));
            return;
        }
    }

    fn keep(&mut self, done: Option<(Question, Answer)>) {
        let Some((question, answer)) = done else { return };
        // What targets and single nodes do is told as it is; tables stand until the next tick.
        let stands = !matches!(question, Question::Targets | Question::Node(_));
        if stands && self.known.len() < MAX_ANSWERS {
            self.known.insert(question, answer);
        }
    }
}

/// The end of the work, if any is done; else never.
async fn worked(
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
        let nodes = filter.pinned(Key::Own(Own::Node));
        filter.subject() == Subject::Gpus && nodes.is_some_and(|nodes| nodes.len() <= FEW_NODES)
    };
    match question {
        Question::Overview | Question::Findings | Question::Closed => true,
        Question::Table(filter) => few(filter),
        Question::History(ask) => few(&ask.of),
        _ => false,
    }
}
