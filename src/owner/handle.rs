//! The door to the owner: an inbox for what senders bring, and a way to ask.

use std::{sync::Arc, time::Duration};

use gaunt_schema::{
    Delivery, UnixMs,
    meeting::{Reply, Word},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::timeout,
};

use super::{RecordedPast, Remembered};
use crate::answer::{Act, Answer, FindingList, Overview, Question, Starved};

/// Deliveries that may wait. A sender whose delivery finds the inbox full waits, and so falls behind visibly. A third of a
/// second of 12,500 targets that are read every second: as long as the judge looks at such a fleet, they are read on. A
/// target has one delivery under way at most, so that all of them together hold what one period brings.
pub const INBOX: usize = 4096;

/// Questions that may wait. They are taken before deliveries, so that few wait for long.
pub const QUESTIONS: usize = 256;

/// What the owner is asked, with the way back for its answer.
#[derive(Debug)]
pub(super) enum Asked {
    /// A question.
    Question(Question, oneshot::Sender<Answer>),
    /// Something that changes what is known.
    Change(Change),
    /// What outlives a restart.
    Remember(oneshot::Sender<Remembered>),
    /// The past that is kept, in so many bytes.
    Past(usize, oneshot::Sender<RecordedPast>),
}

/// Something that changes what is known.
#[derive(Debug)]
pub(super) enum Change {
    /// Somebody acts.
    Act(Act, oneshot::Sender<Answer>),
    /// What a probe says.
    Meeting(Word, oneshot::Sender<Reply>),
    /// This much of what is counted is kept.
    Kept(Vec<Starved>),
}

/// A request to keep everything now, with the way back once that is done.
pub type Flush = oneshot::Sender<()>;

/// The longest that who acts waits until that is kept; it is done in any case.
const KEPT_WITHIN: Duration = Duration::from_secs(5);

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
    /// Who keeps what outlives a restart.
    keeper: Option<mpsc::Sender<Flush>>,
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
        let handle = Self { inbox, questions, published, keeper: None };
        (handle, Ends { deliveries, asked, published: publish })
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

    /// Says what a probe says, and waits for the reply.
    pub async fn meet(&self, word: Word) -> Result<Reply, Gone> {
        let (back, reply) = oneshot::channel();
        self.change(Change::Meeting(word, back)).await?;
        reply.await.map_err(|_| Gone)
    }

    /// Does something, and waits until it is done and published.
    pub async fn act(&self, act: Act) -> Result<Answer, Gone> {
        let (back, answer) = oneshot::channel();
        self.change(Change::Act(act, back)).await?;
        let answer = answer.await.map_err(|_| Gone)?;
        if let (Some(keeper), false) = (&self.keeper, matches!(answer, Answer::Refused(_))) {
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
    pub fn kept_by(&self, keeper: mpsc::Sender<Flush>) -> Self {
        Self { keeper: Some(keeper), ..self.clone() }
    }

    /// What outlives a restart, as of now.
    pub async fn remember(&self) -> Result<Remembered, Gone> {
        let (back, remembered) = oneshot::channel();
        self.questions.send(Asked::Remember(back)).await.map_err(|_| Gone)?;
        remembered.await.map_err(|_| Gone)
    }

    /// The past that is kept, in about `most` bytes.
    pub async fn recorded_past(&self, most: usize) -> Result<RecordedPast, Gone> {
        let (back, past) = oneshot::channel();
        self.questions.send(Asked::Past(most, back)).await.map_err(|_| Gone)?;
        past.await.map_err(|_| Gone)
    }

    /// Tells the owner that this is kept: what it counts is told from now on as it is there.
    pub async fn kept(&self, remembered: &Remembered) {
        // An owner that is gone tells nothing.
        _ = self.change(Change::Kept(remembered.starved())).await;
    }

    async fn change(&self, change: Change) -> Result<(), Gone> {
        self.questions.send(Asked::Change(change)).await.map_err(|_| Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::{Options, Owner, start_led};

    /// Four times as many questions, acts and requests as may wait: who asks waits, and each gets its answer.
    #[tokio::test]
    async fn questions_beyond_their_queue_wait_and_all_are_answered() {
        let start = UnixMs(1_700_000_000_000);
        let (handle, ticks) = start_led(Owner::new(Options::default()), start);
        // The owner's task runs on this thread, which does not let go meanwhile.
        let held = (0..2 * QUESTIONS)
            .take_while(|_| {
                let (back, _) = oneshot::channel();
                handle.questions.try_send(Asked::Remember(back)).is_ok()
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
                        _ => return handle.remember().await.is_ok(),
                    };
                    let question = Question::read_line(&line, &[]).unwrap();
                    matches!(handle.ask(question).await, Ok(answer) if !matches!(answer, Answer::Refused(_)))
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
        handle.ticked_after(start + Duration::from_secs(19)).await.unwrap();
    }
}
