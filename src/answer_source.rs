//! Answer source: the engine in this process, or an aggregator over HTTP.

use std::{sync::Arc, time::Duration};

use gaunt_console::{ConsoleSource, PendingAnswer, SourceError};
use gaunt_schema::{
    UnixMs,
    probe_pairing::{PairingReply, PairingRequest},
};
use tokio::time::sleep;

use gaunt_api::{Answer, FindingAction, Question};
use gaunt_engine::{EngineHandle, EngineStopped};

mod aggregator_choice;
mod aggregator_client;
mod aggregator_connection;
mod aggregator_streams;
mod remote_recording;
mod safe_json;

pub use aggregator_choice::AggregatorReportFn;
pub use aggregator_client::AggregatorClient;
pub use aggregator_connection::AggregatorError;
pub use remote_recording::RemoteRecording;

/// A source of answers.
#[derive(Clone, Debug)]
pub enum AnswerSource {
    /// The engine in this process.
    Engine(EngineHandle),
    /// A remote `gaunt serve`.
    Aggregator(AggregatorClient),
}

/// Why a source has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AnswerSourceError {
    /// The engine in this process ended.
    #[error(transparent)]
    Engine(#[from] EngineStopped),
    /// The aggregator did not answer, or its answer is invalid.
    #[error(transparent)]
    Aggregator(#[from] AggregatorError),
}

/// Poll interval of an aggregator while waiting for its next tick.
const AGAIN: Duration = Duration::from_secs(1);

impl AnswerSource {
    /// Sends a question, and waits for the answer.
    pub async fn ask_question(&self, question: Question) -> Result<Answer, AnswerSourceError> {
        match self {
            Self::Engine(engine) => Ok(engine.ask_question(question).await?),
            Self::Aggregator(aggregator) => Ok(aggregator.ask_question(&question).await?),
        }
    }

    /// Sends an action, and waits for the result.
    pub async fn send_action(&self, action: FindingAction) -> Result<Answer, AnswerSourceError> {
        match self {
            Self::Engine(engine) => Ok(engine.send_action(action).await?),
            Self::Aggregator(aggregator) => Ok(aggregator.send_action(&action).await?),
        }
    }

    /// Sends a pairing request, and waits for the reply.
    pub async fn send_pairing_request(
        &self,
        request: PairingRequest,
    ) -> Result<PairingReply, AnswerSourceError> {
        match self {
            Self::Engine(engine) => Ok(engine.send_pairing_request(request).await?),
            Self::Aggregator(aggregator) => Ok(aggregator.send_pairing_request(&request).await?),
        }
    }

    /// The same source for repeated questions: an aggregator is followed by streams.
    #[must_use]
    pub fn with_streams(self) -> Self {
        match self {
            Self::Engine(engine) => Self::Engine(engine),
            Self::Aggregator(aggregator) => Self::Aggregator(aggregator.with_streams()),
        }
    }

    /// Waits until there may be a change after `last`, that is, until the engine has ticked. Returns its last tick.
    pub async fn wait_for_tick(&self, last: UnixMs) -> Result<UnixMs, AnswerSourceError> {
        match self {
            Self::Engine(engine) => Ok(engine.wait_for_tick(last).await?),
            Self::Aggregator(aggregator) => loop {
                if let Answer::Overview(overview) =
                    aggregator.ask_question(&Question::Overview).await?
                    && overview.at > last
                {
                    return Ok(overview.at);
                }
                sleep(AGAIN).await;
            },
        }
    }

    /// Display name of this source: an address, or none for this process.
    pub fn display_address(&self) -> Option<&str> {
        match self {
            Self::Engine(_) => None,
            Self::Aggregator(aggregator) => Some(aggregator.display_address()),
        }
    }
}

impl ConsoleSource for AnswerSource {
    fn ask_question(self: Arc<Self>, question: Question) -> PendingAnswer {
        Box::pin(async move { Ok(Self::ask_question(&self, question).await?) })
    }

    fn send_action(self: Arc<Self>, action: FindingAction) -> PendingAnswer {
        Box::pin(async move { Ok(Self::send_action(&self, action).await?) })
    }

    fn display_address(&self) -> Option<&str> {
        Self::display_address(self)
    }

    fn last_move(&self) -> Option<(u64, Arc<str>)> {
        match self {
            Self::Engine(_) => None,
            Self::Aggregator(aggregator) => aggregator.last_move(),
        }
    }
}

impl From<AnswerSourceError> for SourceError {
    fn from(error: AnswerSourceError) -> Self {
        match error {
            AnswerSourceError::Engine(stopped) => Self::Ended(stopped.to_string()),
            AnswerSourceError::Aggregator(error) => Self::Unanswered(error.to_string()),
        }
    }
}
