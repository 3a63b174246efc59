//! The door to the owner: an inbox for what senders bring, and a way to ask.

use gaunt_schema::Delivery;
use tokio::sync::{mpsc, oneshot};

use crate::answer::{Answer, Question};

/// Deliveries that may wait. A sender whose delivery finds the inbox full waits, and so falls behind visibly.
pub const INBOX: usize = 1024;

/// Questions that may wait. They are taken before deliveries, so that few wait for long.
pub const QUESTIONS: usize = 256;

/// One question with the way back for its answer.
pub(super) type Asked = (Question, oneshot::Sender<Answer>);

/// A way to reach a running owner. Cheap to copy; the owner ends when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Handle {
    inbox: mpsc::Sender<Delivery>,
    questions: mpsc::Sender<Asked>,
}

/// The owner is gone: its task ended or panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the owner of the cluster's data has ended; see the log for the reason and start gaunt again"
)]
pub struct Gone;

impl Handle {
    /// A handle, and the receiving ends for the owner's loop.
    pub(super) fn new() -> (Self, mpsc::Receiver<Delivery>, mpsc::Receiver<Asked>) {
        let (inbox, deliveries) = mpsc::channel(INBOX);
        let (questions, asked) = mpsc::channel(QUESTIONS);
        (Self { inbox, questions }, deliveries, asked)
    }

    /// The inbox, for a sender.
    pub fn inbox(&self) -> mpsc::Sender<Delivery> {
        self.inbox.clone()
    }

    /// Asks, and waits for the answer.
    pub async fn ask(&self, question: Question) -> Result<Answer, Gone> {
        let (back, answer) = oneshot::channel();
        self.questions.send((question, back)).await.map_err(|_| Gone)?;
        answer.await.map_err(|_| Gone)
    }
}
