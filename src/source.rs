//! Where answers come from: the owner in this process, or an aggregator over HTTP.

use crate::{
    answer::{Answer, Question},
    owner::{Gone, Handle},
};

mod aggregator;

pub use aggregator::{Aggregator, AggregatorError};

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

impl Source {
    /// Asks, and waits for the answer.
    pub async fn ask(&self, question: Question) -> Result<Answer, SourceError> {
        match self {
            Self::Owner(owner) => Ok(owner.ask(question).await?),
            Self::Aggregator(aggregator) => Ok(aggregator.ask(&question).await?),
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
