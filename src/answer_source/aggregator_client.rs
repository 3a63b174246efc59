//! Aggregator client: the same questions and answers over HTTP, as JSON.
//!
//! An address may name several equal aggregators. One is asked until it does not answer; then the next one that does.

use std::{future::Future, path::Path, sync::Arc};

use gaunt_schema::probe_pairing::{PairingReply, PairingRequest};
use reqwest::{StatusCode, header::IF_MATCH};
use tokio::{
    task::AbortHandle,
    time::{sleep, timeout},
};

use super::{
    aggregator_choice::{
        ALIVE_EVERY, ALIVE_WITHIN, AggregatorChoice, AggregatorReportFn, MAX_AGGREGATORS, PATIENCE,
    },
    aggregator_connection::{AggregatorConnection, AggregatorError, json_problem},
    aggregator_streams::AggregatorStreams,
    safe_json::{decode_json, decode_value},
};
use gaunt_api::{
    Answer, FindingAction, FindingCommand, Question, SeenFinding,
    finding_action::AcknowledgementBody,
};

/// One or several equal aggregators reached over HTTP.
#[derive(Clone, Debug)]
pub struct AggregatorClient {
    members: Arc<[AggregatorMember]>,
    choice: AggregatorChoice,
    /// Ends with the last copy.
    _watch: Option<Arc<LivenessWatch>>,
}

/// One of the aggregators.
#[derive(Clone, Debug)]
struct AggregatorMember {
    connection: AggregatorConnection,
    followed: Option<AggregatorStreams>,
}

/// What became of an aggregator that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberLeft {
    /// Another one is chosen.
    Moved,
    /// It is alive: it only failed to answer this request.
    Alive,
    /// None is alive.
    NoOther,
}

/// The task that asks whether the chosen aggregator is alive.
#[derive(Debug)]
struct LivenessWatch(AbortHandle);

impl Drop for LivenessWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl AggregatorClient {
    /// Creates a client for `address`: `http://10.0.0.5:9771`, or only `10.0.0.5:9771`; several are separated by commas.
    pub fn new(address: &str) -> Result<Self, AggregatorError> {
        Self::with_authorities(address, None)
    }

    /// The same; with a file of CA certificates, these alone are trusted.
    pub fn with_authorities(
        address: &str,
        ca_file: Option<&Path>,
    ) -> Result<Self, AggregatorError> {
        let single = address.split(',').map(str::trim).filter(|single| !single.is_empty());
        let connect = |single| AggregatorConnection::new(single, ca_file, None);
        Self::of_connections(address, single.map(connect).collect::<Result<_, _>>()?)
    }

    /// The same for aggregators that are reached through Unix sockets, in a simulation.
    pub fn through_sockets(members: &[(&str, &Path)]) -> Result<Self, AggregatorError> {
        let connections = members
            .iter()
            .map(|(address, socket)| AggregatorConnection::new(address, None, Some(socket)));
        Self::of_connections("", connections.collect::<Result<_, _>>()?)
    }

    fn of_connections(
        address: &str,
        connections: Vec<AggregatorConnection>,
    ) -> Result<Self, AggregatorError> {
        if connections.is_empty() || connections.len() > MAX_AGGREGATORS {
            return Err(AggregatorError::Address(address.to_owned()));
        }
        let member = |connection| AggregatorMember { connection, followed: None };
        let members = connections.into_iter().map(member).collect();
        Ok(Self { members, choice: AggregatorChoice::default(), _watch: None })
    }

    /// Reports each move to another aggregator in one line.
    #[must_use]
    pub fn with_move_report(self, report: AggregatorReportFn) -> Self {
        Self { choice: self.choice.with_report(Some(report)), ..self }
    }

    /// The address of the chosen aggregator for display.
    pub fn display_address(&self) -> &str {
        &self.chosen_member().1.connection.address
    }

    /// Number of moves to another aggregator, and the last one in words; none before the first.
    pub fn last_move(&self) -> Option<(u64, Arc<str>)> {
        self.choice.last_move()
    }

    /// The connection to the chosen aggregator, once a request was answered.
    pub(super) async fn open_connection<T, F: Future<Output = Result<T, AggregatorError>>>(
        &self,
        request: impl Fn(AggregatorConnection) -> F,
    ) -> Result<(AggregatorConnection, T), AggregatorError> {
        self.ask_members(|member| {
            let (connection, answer) = (member.connection.clone(), request(member.connection));
            async move { Ok((connection, answer.await?)) }
        })
        .await
    }

    /// Sends a question, and waits for the answer.
    pub async fn ask_question(&self, question: &Question) -> Result<Answer, AggregatorError> {
        self.ask_members(|member| async move { member.ask_question(question).await }).await
    }

    /// The same aggregator with streams: each question is followed from its first use on, and answered from the last
    /// update. Moves are not reported, but returned by [`Self::last_move`].
    #[must_use]
    pub fn with_streams(self) -> Self {
        let follow = |member: &AggregatorMember| AggregatorMember {
            followed: Some(AggregatorStreams::spawn_streams(member.connection.clone())),
            ..member.clone()
        };
        let members = self.members.iter().map(follow).collect();
        let choice = self.choice.with_report(None);
        let client = Self { members, choice, _watch: None };
        if client.members.len() == 1 {
            return client;
        }
        let watch = tokio::spawn(watch_liveness(client.clone())).abort_handle();
        Self { _watch: Some(Arc::new(LivenessWatch(watch))), ..client }
    }

    /// The same aggregators, with the token that each request presents.
    #[must_use]
    pub fn with_token(self, token: Option<String>) -> Self {
        let token: Option<Arc<str>> = token.map(Into::into);
        let with_token = |member: &AggregatorMember| {
            let mut member = member.clone();
            member.connection.token.clone_from(&token);
            member
        };
        Self { members: self.members.iter().map(with_token).collect(), ..self }
    }

    /// Sends an action, and waits for the result.
    pub async fn send_action(&self, action: &FindingAction) -> Result<Answer, AggregatorError> {
        self.ask_members(|member| async move { member.connection.send_action(action).await }).await
    }

    /// Sends a pairing request, and waits for the reply.
    pub async fn send_pairing_request(
        &self,
        request: &PairingRequest,
    ) -> Result<PairingReply, AggregatorError> {
        self.ask_members(|member| async move { member.connection.send_pairing(request).await })
            .await
    }

    fn chosen_member(&self) -> (usize, &AggregatorMember) {
        // Positions are those of members.
        let position = self.choice.position().min(self.members.len() - 1);
        (position, &self.members[position])
    }

    /// Asks the chosen aggregator, and after it every other one while none answers.
    async fn ask_members<T, F: Future<Output = Result<T, AggregatorError>>>(
        &self,
        request: impl Fn(AggregatorMember) -> F,
    ) -> Result<T, AggregatorError> {
        let mut error = None;
        for _ in 0..self.members.len() {
            let (position, member) = self.chosen_member();
            let asked = request(member.clone());
            if self.members.len() == 1 {
                return asked.await;
            }
            let left = match member.connection.wait_while_alive(asked).await {
                Some(Err(failure)) if failure.is_connection_failure() => {
                    (self.leave_member(position, &failure).await, failure)
                }
                Some(answered) => return answered,
                // It was just asked whether it is alive.
                None => {
                    let failure = member.connection.silent_error();
                    (self.move_from(position, &failure).await, failure)
                }
            };
            let (outcome, failure) = left;
            match outcome {
                MemberLeft::Moved => error = Some(failure),
                MemberLeft::Alive => return Err(failure),
                MemberLeft::NoOther => return Err(failure.at_addresses(&self.all_addresses())),
            }
        }
        Err(error.unwrap_or_else(|| self.members[0].connection.timeout_error()))
    }

    fn all_addresses(&self) -> String {
        let addresses: Vec<&str> =
            self.members.iter().map(|member| &*member.connection.address).collect();
        addresses.join(" and ")
    }

    /// Moves from an aggregator that failed, unless it is alive, to the next one that is.
    async fn leave_member(&self, position: usize, failure: &AggregatorError) -> MemberLeft {
        if self.choice.position() != position {
            return MemberLeft::Moved;
        }
        if self.members[position].connection.is_alive().await {
            return MemberLeft::Alive;
        }
        self.move_from(position, failure).await
    }

    /// Moves from an aggregator that is not alive to the next one that is.
    async fn move_from(&self, position: usize, failure: &AggregatorError) -> MemberLeft {
        let left = &self.members[position].connection;
        if self.choice.position() != position {
            return MemberLeft::Moved;
        }
        for step in 1..self.members.len() {
            let next = (position + step) % self.members.len();
            let connection = &self.members[next].connection;
            if connection.is_alive().await {
                let (from, to) = (&left.address, &connection.address);
                let why = failure.connection_failure();
                let notice = format!("aggregator {from} does not answer: {why}; using {to}");
                self.choice.move_to(position, next, &notice);
                return MemberLeft::Moved;
            }
        }
        MemberLeft::NoOther
    }
}

/// Moves away from an aggregator that stops answering: a host that is gone ends no stream.
async fn watch_liveness(client: AggregatorClient) {
    loop {
        sleep(ALIVE_EVERY).await;
        let (position, member) = client.chosen_member();
        if !member.connection.is_alive().await {
            let failure = member.connection.silent_error();
            client.leave_member(position, &failure).await;
        }
    }
}

impl AggregatorConnection {
    /// Whether it answers at all, soon.
    async fn is_alive(&self) -> bool {
        let request = self.client.get(self.health_url()).send();
        matches!(timeout(ALIVE_WITHIN, request).await, Ok(Ok(_)))
    }

    /// The answer; none as soon as the aggregator is no longer alive.
    async fn wait_while_alive<T>(
        &self,
        answer: impl Future<Output = Result<T, AggregatorError>>,
    ) -> Option<Result<T, AggregatorError>> {
        tokio::pin!(answer);
        loop {
            let patience = async {
                sleep(PATIENCE).await;
                self.is_alive().await
            };
            tokio::select! {
                answer = &mut answer => return Some(answer),
                is_alive = patience => if !is_alive {
                    return None;
                }
            }
        }
    }

    async fn ask_question(&self, question: &Question) -> Result<Answer, AggregatorError> {
        let (segments, parameters) = question.to_path();
        let response = self.get(&segments, &parameters).await?;
        let is_refused = response.status() != StatusCode::OK;
        let body = self.read_body(response).await?;
        let decoded = if is_refused {
            decode_value(&body).map(Answer::Refused)
        } else {
            decode_json(&body).and_then(|value| Answer::from_json(question, &value))
        };
        match decoded {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.undecodable_error(&error).await),
        }
    }

    /// Acts on the finding as it is there now: a request that arrives after another action is refused.
    async fn send_action(&self, action: &FindingAction) -> Result<Answer, AggregatorError> {
        let seen = match self.ask_question(&Question::Finding(action.finding.clone())).await? {
            Answer::Finding(explanation) => SeenFinding::of(&explanation.finding),
            answer => return Ok(answer),
        };
        let seen = action.seen.unwrap_or(seen).to_string();
        let mut url = self.api_url(&["findings", &action.finding, "acknowledge"]);
        let request = match &action.command {
            FindingCommand::Acknowledge { note } | FindingCommand::Accept { note } => {
                let accept = matches!(action.command, FindingCommand::Accept { .. });
                let note = AcknowledgementBody {
                    by: action.by.to_string(),
                    note: note.to_string(),
                    accept,
                };
                self.client.post(url).json(&note)
            }
            FindingCommand::Withdraw => {
                url.query_pairs_mut().append_pair("by", &action.by);
                self.client.delete(url)
            }
        };
        let request = self.authorize_request(request.header(IF_MATCH, seen));
        let response = self.send_request(request).await?;
        let is_refused = response.status() != StatusCode::OK;
        let body = self.read_body(response).await?;
        let unreadable = |error: serde_json::Error| self.unreadable_error(json_problem(&error));
        if is_refused {
            return decode_value(&body).map(Answer::Refused).map_err(unreadable);
        }
        let explanation = decode_value(&body).map_err(unreadable)?;
        Ok(Answer::Finding(Arc::new(explanation)))
    }

    async fn send_pairing(
        &self,
        pairing_request: &PairingRequest,
    ) -> Result<PairingReply, AggregatorError> {
        let request = self.client.post(self.api_url(&["probe", "meeting"])).json(pairing_request);
        let response = self.send_request(self.authorize_request(request)).await?;
        let status = response.status();
        if status != StatusCode::OK {
            let (address, status) = (self.address.clone(), status.as_u16());
            return Err(AggregatorError::Status { address, status });
        }
        let body = self.read_body(response).await?;
        decode_value(&body).map_err(|error| self.unreadable_error(json_problem(&error)))
    }
}

impl AggregatorMember {
    async fn ask_question(&self, question: &Question) -> Result<Answer, AggregatorError> {
        let connection = &self.connection;
        // The past does not change: there is nothing to follow.
        if let (Some(followed), false) = (&self.followed, matches!(question, Question::AtTime(..)))
        {
            return followed.ask_question(connection, question).await;
        }
        connection.ask_question(question).await
    }
}
