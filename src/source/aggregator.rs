//! Asking an aggregator over HTTP: the same questions, the same answers, as JSON.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, StatusCode, Url};
use serde::de::DeserializeOwned;

use crate::answer::{API, Answer, Question, Refusal};

/// The longest that a question may take, connecting and reading included.
const DEADLINE: Duration = Duration::from_secs(5);

/// The largest answer that is read, in bytes: 100,000 GPUs need less than 1 MB for the overview.
const MAX_ANSWER: usize = 64 << 20;

/// An aggregator reached over HTTP.
#[derive(Clone, Debug)]
pub struct Aggregator {
    client: Client,
    base: Url,
    address: Arc<str>,
}

/// Why an aggregator has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AggregatorError {
    /// The address cannot be used.
    #[error("{0:?} is not an aggregator's address; use http://HOST:9771")]
    Address(String),
    /// No answer in time, or no connection.
    #[error("aggregator {address} unreachable: {why}; is `gaunt serve` running there?")]
    Unreachable {
        /// Who was asked.
        address: Arc<str>,
        /// The innermost reason.
        why: String,
    },
    /// An answer with a status that the API does not use.
    #[error(
        "aggregator {address} answered with HTTP status {status}; is it gaunt, and of this version?"
    )]
    Status {
        /// Who was asked.
        address: Arc<str>,
        /// What it said.
        status: u16,
    },
    /// An answer that cannot be understood.
    #[error(
        "aggregator {address} gave an answer that cannot be read: {why}; is it of this version?"
    )]
    Answer {
        /// Who was asked.
        address: Arc<str>,
        /// What is wrong with it.
        why: String,
    },
}

impl Aggregator {
    /// An aggregator at `address`: `http://10.0.0.5:9771`, or only `10.0.0.5:9771`.
    pub fn new(address: &str) -> Result<Self, AggregatorError> {
        let bad = || AggregatorError::Address(address.to_owned());
        let full =
            if address.contains("://") { address.into() } else { format!("http://{address}") };
        let base = Url::parse(&full).map_err(|_| bad())?;
        if base.scheme() != "http" || base.host_str().is_none() {
            return Err(bad());
        }
        let client = Client::builder()
            .timeout(DEADLINE)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|_| bad())?;
        let shown = base.as_str().trim_start_matches("http://").trim_end_matches('/');
        Ok(Self { client, address: shown.into(), base })
    }

    /// The address, as a person writes it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Asks, and waits for the answer.
    pub async fn ask(&self, question: &Question) -> Result<Answer, AggregatorError> {
        Ok(match question {
            Question::Overview => Answer::Overview(self.get(&["overview"]).await??),
            Question::Nodes => Answer::Nodes(self.get(&["nodes"]).await??),
            Question::Findings => Answer::Findings(self.get(&["findings"]).await??),
            Question::Targets => Answer::Targets(self.get(&["targets"]).await??),
            Question::Node(name) => match self.get(&["nodes", name]).await? {
                Ok(node) => Answer::Node(node),
                Err(Refused(refusal, _)) => Answer::Refused(refusal),
            },
        })
    }

    /// One GET of a path below the API, its segments escaped.
    async fn get<T: DeserializeOwned>(
        &self,
        segments: &[&str],
    ) -> Result<Result<Arc<T>, Refused>, AggregatorError> {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(API.split('/').skip(1)).extend(segments);
        }
        let unreachable = |error: &reqwest::Error| AggregatorError::Unreachable {
            address: self.address.clone(),
            why: innermost(error),
        };
        let mut response = self.client.get(url).send().await.map_err(|e| unreachable(&e))?;
        let status = response.status();
        if status != StatusCode::OK && status != StatusCode::NOT_FOUND {
            return Err(AggregatorError::Status {
                address: self.address.clone(),
                status: status.as_u16(),
            });
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| unreachable(&e))? {
            if body.len() + chunk.len() > MAX_ANSWER {
                return Err(self.unreadable(&format!("it is larger than {MAX_ANSWER} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        if status == StatusCode::NOT_FOUND {
            let refusal = serde_json::from_slice(&body).map_err(|_| AggregatorError::Status {
                address: self.address.clone(),
                status: status.as_u16(),
            })?;
            return Ok(Err(Refused(refusal, self.address.clone())));
        }
        serde_json::from_slice(&body).map(Ok).map_err(|error| self.unreadable(&error.to_string()))
    }

    fn unreadable(&self, why: &str) -> AggregatorError {
        AggregatorError::Answer { address: self.address.clone(), why: why.to_owned() }
    }
}

/// A refusal where the question cannot be refused is an answer that cannot be understood.
struct Refused(Refusal, Arc<str>);

impl From<Refused> for AggregatorError {
    fn from(Refused(refusal, address): Refused) -> Self {
        Self::Answer { address, why: refusal.to_string() }
    }
}

/// The last cause in an error's chain: the one that names the operating system's reason.
fn innermost(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no answer within {} s", DEADLINE.as_secs());
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
