//! Answer source: the engine in this process, or an aggregator over HTTP.

use std::{path::Path, sync::Arc, time::Duration};

use gaunt_console::{ConsoleSource, PendingAnswer, SourceError};
use gaunt_schema::{
    SanitizedText, UnixMs,
    probe_pairing::{PairingReply, PairingRequest},
};
use tokio::time::sleep;

use gaunt_api::{Answer, FindingAction, Question, Refusal};
use gaunt_engine::{EngineHandle, EngineStopped};

mod aggregator_choice;
mod aggregator_client;
mod aggregator_connection;
mod aggregator_streams;
mod cluster_names;
mod cluster_union;
mod joined_answer;
mod past_answers;
mod past_replay;
mod remote_recording;
mod safe_json;
mod stored_fabric;
mod stored_fleet;
mod stored_past;
mod stored_rows;
mod stored_usage;

pub use aggregator_choice::AggregatorReportFn;
pub use aggregator_client::AggregatorClient;
pub use aggregator_connection::AggregatorError;
pub use cluster_union::{CLUSTER_SEPARATOR, ClusterUnion, split_clusters};
pub use past_answers::{PastAnswers, PastSources};
pub(crate) use past_replay::play_window;
pub use remote_recording::RemoteRecording;
pub use stored_past::StoredPastOptions;

/// A source of answers.
#[derive(Clone, Debug)]
pub enum AnswerSource {
    /// The engine in this process.
    Engine(EngineHandle),
    /// The same, with a store or a Prometheus for the time before what it keeps.
    EngineWithPast(EngineHandle, PastAnswers),
    /// A remote `gaunt serve`.
    Aggregator(AggregatorClient),
    /// The aggregators of several clusters.
    Clusters(ClusterUnion),
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
    /// The engine of this process, with the past of a server if one is named.
    pub fn of_engine(engine: EngineHandle, past: PastSources) -> Self {
        match PastAnswers::start(past, &engine) {
            Some(past) => Self::EngineWithPast(engine, past),
            None => Self::Engine(engine),
        }
    }

    /// The source at an address: the aggregators of one cluster, or of several named ones. Moves to another aggregator
    /// and clusters that do not answer are reported. With a file of CA certificates, these verify them.
    pub fn open_address(
        address: &str,
        ca_file: Option<&Path>,
        token: Option<String>,
        report: Option<AggregatorReportFn>,
    ) -> Result<Self, AggregatorError> {
        if let Some(named) = split_clusters(address) {
            let clusters = ClusterUnion::new(&named, ca_file)?.with_token(token.as_deref());
            return Ok(Self::Clusters(clusters.with_report(report)));
        }
        let client = AggregatorClient::with_authorities(address, ca_file)?.with_token(token);
        Ok(Self::Aggregator(match report {
            Some(report) => client.with_move_report(report),
            None => client,
        }))
    }

    /// Sends a question, and waits for the answer.
    pub async fn ask_question(&self, question: Question) -> Result<Answer, AnswerSourceError> {
        match self {
            Self::Engine(engine) => Ok(engine.ask_question(question).await?),
            Self::EngineWithPast(engine, past) => {
                let answer = engine.ask_question(question.clone()).await?;
                let (at, question) = match question {
                    Question::AtTime(at, question) => (Some(at), *question),
                    question => (None, question),
                };
                let is_kept = !matches!(answer, Answer::Refused(Refusal::NotKept { .. }));
                if is_kept && !past.has_more(&question, &answer) {
                    return Ok(answer);
                }
                let now = engine.wait_for_tick(UnixMs(0)).await?;
                let at = at.map_or(now, |at| at.to_instant(now));
                Ok(past.ask_question(at, question).await)
            }
            Self::Aggregator(aggregator) => Ok(aggregator.ask_question(&question).await?),
            Self::Clusters(clusters) => Ok(clusters.ask_question(&question).await?),
        }
    }

    /// Sends an action, and waits for the result.
    pub async fn send_action(&self, action: FindingAction) -> Result<Answer, AnswerSourceError> {
        match self {
            Self::Engine(engine) | Self::EngineWithPast(engine, _) => {
                Ok(engine.send_action(action).await?)
            }
            Self::Aggregator(aggregator) => Ok(aggregator.send_action(&action).await?),
            Self::Clusters(clusters) => Ok(clusters.send_action(&action).await?),
        }
    }

    /// Sends a pairing request, and waits for the reply.
    pub async fn send_pairing_request(
        &self,
        request: PairingRequest,
    ) -> Result<PairingReply, AnswerSourceError> {
        match self {
            Self::Engine(engine) | Self::EngineWithPast(engine, _) => {
                Ok(engine.send_pairing_request(request).await?)
            }
            Self::Aggregator(aggregator) => Ok(aggregator.send_pairing_request(&request).await?),
            // Probes of two clusters are never paired.
            Self::Clusters(_) => Err(AggregatorError::Address(String::new()).into()),
        }
    }

    /// The same source for repeated questions: an aggregator is followed by streams.
    #[must_use]
    pub fn with_streams(self) -> Self {
        match self {
            Self::Engine(engine) => Self::Engine(engine),
            Self::EngineWithPast(engine, past) => Self::EngineWithPast(engine, past),
            Self::Aggregator(aggregator) => Self::Aggregator(aggregator.with_streams()),
            Self::Clusters(clusters) => Self::Clusters(clusters.with_streams()),
        }
    }

    /// Waits until there may be a change after `last`, that is, until the engine has ticked. Returns its last tick.
    pub async fn wait_for_tick(&self, last: UnixMs) -> Result<UnixMs, AnswerSourceError> {
        match self {
            Self::Engine(engine) | Self::EngineWithPast(engine, _) => {
                Ok(engine.wait_for_tick(last).await?)
            }
            Self::Aggregator(_) | Self::Clusters(_) => loop {
                if let Answer::Overview(overview) = self.ask_question(Question::Overview).await?
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
            Self::Engine(_) | Self::EngineWithPast(..) | Self::Clusters(_) => None,
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
            Self::Engine(_) | Self::EngineWithPast(..) | Self::Clusters(_) => None,
            Self::Aggregator(aggregator) => aggregator.last_move(),
        }
    }

    fn cluster_names(&self) -> Vec<SanitizedText> {
        match self {
            Self::Clusters(clusters) => clusters.names(),
            Self::Engine(_) | Self::EngineWithPast(..) | Self::Aggregator(_) => Vec::new(),
        }
    }

    fn select_cluster(&self, name: &str) -> Option<Arc<dyn ConsoleSource>> {
        match self {
            Self::Clusters(clusters) => {
                let client = clusters.select_cluster(name)?;
                Some(Arc::new(Self::Aggregator(client)))
            }
            Self::Engine(_) | Self::EngineWithPast(..) | Self::Aggregator(_) => None,
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
