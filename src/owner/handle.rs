//! The door to the owner: an inbox for what senders bring, and a way to ask.

use std::sync::Arc;

use gaunt_schema::{Delivery, UnixMs};
use tokio::sync::{mpsc, oneshot, watch};

use crate::answer::{Act, Answer, FindingList, Overview, Question};

/// Deliveries that may wait. A sender whose delivery finds the inbox full waits, and so falls behind visibly.
pub const INBOX: usize = 1024;

/// Questions that may wait. They are taken before deliveries, so that few wait for long.
pub const QUESTIONS: usize = 256;

/// What the owner is asked, with the way back for its answer.
#[derive(Debug)]
pub(super) enum Asked {
    /// A question.
    Question(Question, oneshot::Sender<Answer>),
    /// Something to be done.
    Act(Act, oneshot::Sender<Answer>),
}

/// What the owner publishes each tick: who asks for it does not wait for the owner.
#[derive(Clone, Debug, Default)]
pub(super) struct Published {
    /// The fleet at a glance, the heat map in it.
    pub(super) overview: Arc<Overview>,
    /// Every open finding.
    pub(super) findings: Arc<FindingList>,
}

/// The receiving ends for the owner's loop.
pub(super) struct Ends {
    pub(super) deliveries: mpsc::Receiver<Delivery>,
    pub(super) asked: mpsc::Receiver<Asked>,
    pub(super) published: watch::Sender<Published>,
}

/// A way to reach a running owner. Cheap to copy; the owner ends when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Handle {
    inbox: mpsc::Sender<Delivery>,
    questions: mpsc::Sender<Asked>,
    published: watch::Receiver<Published>,
}

/// The owner is gone: its task ended or panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the owner of the cluster's data has ended; see the log for the reason and start gaunt again"
)]
pub struct Gone;

impl Handle {
    /// A handle, and the receiving ends for the owner's loop.
    pub(super) fn new(first: Published) -> (Self, Ends) {
        let (inbox, deliveries) = mpsc::channel(INBOX);
        let (questions, asked) = mpsc::channel(QUESTIONS);
        let (publish, published) = watch::channel(first);
        (Self { inbox, questions, published }, Ends { deliveries, asked, published: publish })
    }

    /// The inbox, for a sender.
    pub fn inbox(&self) -> mpsc::Sender<Delivery> {
        self.inbox.clone()
    }

    /// Waits until the owner has ticked after `last`; says when it last ticked.
    pub async fn ticked_after(&self, last: UnixMs) -> Result<UnixMs, Gone> {
        let mut published = self.published.clone();
        let newer = published.wait_for(|published| published.overview.at > last).await;
        newer.map(|published| published.overview.at).map_err(|_| Gone)
    }

    /// Asks, and waits for the answer; what is published each tick is there at once.
    pub async fn ask(&self, question: Question) -> Result<Answer, Gone> {
        if self.published.has_changed().is_err() {
            return Err(Gone);
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
        self.questions.send(Asked::Question(question, back)).await.map_err(|_| Gone)?;
        answer.await.map_err(|_| Gone)
    }

    /// Does something, and waits until it is done and published.
    pub async fn act(&self, act: Act) -> Result<Answer, Gone> {
        let (back, answer) = oneshot::channel();
        self.questions.send(Asked::Act(act, back)).await.map_err(|_| Gone)?;
        answer.await.map_err(|_| Gone)
    }
}
