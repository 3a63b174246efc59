//! Aggregator client: the same questions and answers over HTTP, as JSON.

use std::sync::Arc;

use gaunt_schema::probe_pairing::{PairingReply, PairingRequest};
use reqwest::StatusCode;

use super::{
    aggregator_connection::{AggregatorConnection, AggregatorError, json_problem},
    aggregator_streams::AggregatorStreams,
    safe_json::{decode_json, decode_value},
};
use gaunt_api::{
    Answer, FindingAction, FindingCommand, Question, finding_action::AcknowledgementBody,
};

/// An aggregator reached over HTTP.
#[derive(Clone, Debug)]
pub struct AggregatorClient {
    pub(super) connection: AggregatorConnection,
    followed: Option<AggregatorStreams>,
}

impl AggregatorClient {
    /// Creates a client for `address`: `http://10.0.0.5:9771`, or only `10.0.0.5:9771`.
    pub fn new(address: &str) -> Result<Self, AggregatorError> {
        Ok(Self { connection: AggregatorConnection::new(address)?, followed: None })
    }

    /// The address for display.
    pub fn display_address(&self) -> &str {
        &self.connection.address
    }

    /// Sends a question, and waits for the answer.
    pub async fn ask_question(&self, question: &Question) -> Result<Answer, AggregatorError> {
        let connection = &self.connection;
        // The past does not change: there is nothing to follow.
        if let (Some(followed), false) = (&self.followed, matches!(question, Question::AtTime(..)))
        {
            return followed.ask_question(connection, question).await;
        }
        let (segments, parameters) = question.to_path();
        let response = connection.get(&segments, &parameters).await?;
        let is_refused = response.status() != StatusCode::OK;
        let body = connection.read_body(response).await?;
        let decoded = if is_refused {
            decode_value(&body).map(Answer::Refused)
        } else {
            decode_json(&body).and_then(|value| Answer::from_json(question, &value))
        };
        match decoded {
            Ok(answer) => Ok(answer),
            Err(error) => Err(connection.undecodable_error(&error).await),
        }
    }

    /// The same aggregator with streams: each question is followed from its first use on, and answered from the last
    /// update.
    #[must_use]
    pub fn with_streams(self) -> Self {
        Self { followed: Some(AggregatorStreams::spawn_streams(self.connection.clone())), ..self }
    }

    /// The same aggregator, with the token that opens its write API.
    #[must_use]
    pub fn with_token(mut self, token: Option<String>) -> Self {
        self.connection.token = token.map(Into::into);
        self
    }

    /// Sends an action, and waits for the result.
    pub async fn send_action(&self, action: &FindingAction) -> Result<Answer, AggregatorError> {
        let connection = &self.connection;
        let mut url = connection.api_url(&["findings", &action.finding, "acknowledge"]);
        let request = match &action.command {
            FindingCommand::Acknowledge { note } | FindingCommand::Accept { note } => {
                let accept = matches!(action.command, FindingCommand::Accept { .. });
                let note = AcknowledgementBody {
                    by: action.by.to_string(),
                    note: note.to_string(),
                    accept,
                };
                connection.client.post(url).json(&note)
            }
            FindingCommand::Withdraw => {
                url.query_pairs_mut().append_pair("by", &action.by);
                connection.client.delete(url)
            }
        };
        let response = connection.send_request(connection.authorize_request(request)).await?;
        let is_refused = response.status() != StatusCode::OK;
        let body = connection.read_body(response).await?;
        let unreadable =
            |error: serde_json::Error| connection.unreadable_error(json_problem(&error));
        if is_refused {
            return decode_value(&body).map(Answer::Refused).map_err(unreadable);
        }
        let explanation = decode_value(&body).map_err(unreadable)?;
        Ok(Answer::Finding(Arc::new(explanation)))
    }

    /// Sends a pairing request, and waits for the reply.
    pub async fn send_pairing_request(
        &self,
        pairing_request: &PairingRequest,
    ) -> Result<PairingReply, AggregatorError> {
        let connection = &self.connection;
        let request =
            connection.client.post(connection.api_url(&["probe", "meeting"])).json(pairing_request);
        let response = connection.send_request(connection.authorize_request(request)).await?;
        let status = response.status();
        if status != StatusCode::OK {
            let (address, status) = (connection.address.clone(), status.as_u16());
            return Err(AggregatorError::Status { address, status });
        }
        let body = connection.read_body(response).await?;
        decode_value(&body).map_err(|error| connection.unreadable_error(json_problem(&error)))
    }
}
