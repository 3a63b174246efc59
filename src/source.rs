//! Where answers come from: the owner in this process, or an aggregator over HTTP.

use std::time::Duration;

use gaunt_schema::{
    UnixMs,
    meeting::{Reply, Word},
};
use tokio::time::sleep;

use crate::{
    answer::{Act, Answer, Question},
    owner::{Gone, Handle},
};

mod aggregator;
mod decode;
mod follow;
mod player;
mod recording;

pub use aggregator::{Aggregator, AggregatorError};
pub use player::{Player, Playing};
pub use recording::Recorded;

/// Something that answers questions.
#[derive(Clone, Debug)]
pub enum Source {
    /// The owner in this process.
    Owner(Handle),
    /// `gaunt serve` somewhere else.
    Aggregator(Aggregator),
}

/// Why a source has no answer.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The owner in this process ended.
    #[error(transparent)]
    Owner(#[from] Gone),
    /// The aggregator did not answer, or not in a way that can be understood.
    #[error(transparent)]
    Aggregator(#[from] AggregatorError),
}

/// How often an aggregator is asked again by who waits for news of it.
const AGAIN: Duration = Duration::from_secs(1);

impl Source {
    /// Asks, and waits for the answer.
    pub async fn ask(&self, question: Question) -> Result<Answer, SourceError> {
        match self {
            Self::Owner(owner) => Ok(owner.ask(question).await?),
            Self::Aggregator(aggregator) => Ok(aggregator.ask(&question).await?),
        }
    }

    /// Does something, and waits until it is done.
    pub async fn act(&self, act: Act) -> Result<Answer, SourceError> {
        match self {
            Self::Owner(owner) => Ok(owner.act(act).await?),
            Self::Aggregator(aggregator) => Ok(aggregator.act(&act).await?),
        }
    }

    /// Says what a probe says, and waits for the reply.
    pub async fn meet(&self, word: Word) -> Result<Reply, SourceError> {
        match self {
            Self::Owner(owner) => Ok(owner.meet(word).await?),
            Self::Aggregator(aggregator) => Ok(aggregator.meet(&word).await?),
        }
    }

    /// The same source for one who asks the same questions again and again: an aggregator is followed by streams.
    #[must_use]
    pub fn following(self) -> Self {
        match self {
            Self::Owner(owner) => Self::Owner(owner),
            Self::Aggregator(aggregator) => Self::Aggregator(aggregator.following()),
        }
    }

    /// Waits until there may be news after `last`: until the owner has ticked. Says when it last did.
    pub async fn ticked_after(&self, last: UnixMs) -> Result<UnixMs, SourceError> {
        match self {
            Self::Owner(owner) => Ok(owner.ticked_after(last).await?),
            Self::Aggregator(aggregator) => loop {
                if let Answer::Overview(overview) = aggregator.ask(&Question::Overview).await?
                    && overview.at > last
                {
                    return Ok(overview.at);
                }
                sleep(AGAIN).await;
            },
        }
    }

    /// What a person calls this source: an address, or none for this process.
    pub fn address(&self) -> Option<&str> {
        match self {
            Self::Owner(_) => None,
            Self::Aggregator(aggregator) => Some(aggregator.address()),
        }
    }
}
