//! Aggregator streams: each repeated question is followed as a stream of changes.
//!
//! A question is answered at once from the last update. A stream that was not used for a while is closed; one that
//! breaks is resumed where it ended, and meanwhile the answer is the error.

use std::{collections::HashMap, time::Duration};

use reqwest::{Response, StatusCode};
use serde_json::Value;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

use super::{
    aggregator_connection::{
        AggregatorConnection, AggregatorError, DEADLINE, MAX_ANSWER, json_problem,
    },
    safe_json::{decode_json, decode_value},
};
use gaunt_api::{Answer, Question, json_diff};

/// Questions that are followed at once; a console asks three or four.
const STREAMS: usize = 16;

/// A stream that was not used for this long is closed.
const UNASKED: Duration = Duration::from_secs(15);

/// An aggregator sends a line every five seconds; one that is silent for longer is unreachable.
const SILENCE: Duration = Duration::from_secs(8);

/// Pause before a broken stream is resumed.
const PAUSE: Duration = Duration::from_secs(1);

/// The last update of a question; none before the first answer.
type StreamedAnswer = Option<Result<Answer, AggregatorError>>;

type StreamRequest = (Question, oneshot::Sender<watch::Receiver<StreamedAnswer>>);

/// The streams of one aggregator. They end when the last copy is dropped.
#[derive(Clone, Debug)]
pub(super) struct AggregatorStreams {
    requests: mpsc::Sender<StreamRequest>,
}

impl AggregatorStreams {
    /// Starts the task, with no streams yet.
    pub(super) fn spawn_streams(aggregator: AggregatorConnection) -> Self {
        let (requests, receiver) = mpsc::channel(STREAMS);
        tokio::spawn(run_streams(aggregator, receiver));
        Self { requests }
    }

    /// The last update; the first call opens the stream and waits for its first answer.
    pub(super) async fn ask_question(
        &self,
        aggregator: &AggregatorConnection,
        question: &Question,
    ) -> Result<Answer, AggregatorError> {
        let (reply, answers) = oneshot::channel();
        let ended = || aggregator.unreadable_error("the stream has ended");
        self.requests.send((question.clone(), reply)).await.map_err(|_| ended())?;
        let mut answers = answers.await.map_err(|_| ended())?;
        let first = timeout(DEADLINE, answers.wait_for(Option::is_some)).await;
        let newest = first.map_err(|_| aggregator.timeout_error())?.map_err(|_| ended())?;
        newest.clone().unwrap_or_else(|| Err(aggregator.timeout_error()))
    }
}

/// One open stream.
struct FollowedStream {
    answers: watch::Receiver<StreamedAnswer>,
    last_used: Instant,
    task: AbortHandle,
}

impl Drop for FollowedStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens a stream for each question that is asked, and closes unused ones.
async fn run_streams(
    aggregator: AggregatorConnection,
    mut requests: mpsc::Receiver<StreamRequest>,
) {
    let mut streams: HashMap<Question, FollowedStream> = HashMap::new();
    while let Some((question, reply)) = requests.recv().await {
        streams.retain(|other, stream| *other == question || stream.last_used.elapsed() < UNASKED);
        if !streams.contains_key(&question) && streams.len() >= STREAMS {
            let oldest = streams.iter().min_by_key(|(_, stream)| stream.last_used);
            let oldest = oldest.map(|(question, _)| question.clone());
            oldest.and_then(|question| streams.remove(&question));
        }
        let stream = streams.entry(question).or_insert_with_key(|question| {
            let (sender, answers) = watch::channel(None);
            let task = tokio::spawn(follow_stream(aggregator.clone(), question.clone(), sender));
            FollowedStream { answers, last_used: Instant::now(), task: task.abort_handle() }
        });
        stream.last_used = Instant::now();
        // The receiver may have been dropped.
        drop(reply.send(stream.answers.clone()));
    }
}

/// Reads a stream, and resumes it whenever it breaks.
async fn follow_stream(
    aggregator: AggregatorConnection,
    question: Question,
    sender: watch::Sender<StreamedAnswer>,
) {
    let mut state = StreamedState::default();
    loop {
        let failure = match open_stream(&aggregator, &question, &state).await {
            Ok(StreamOpening::Stream(response)) => {
                read_stream(&aggregator, &question, response, &mut state, &sender).await
            }
            Ok(StreamOpening::Refused(answer)) => {
                sender.send_replace(Some(Ok(answer)));
                sleep(PAUSE).await;
                continue;
            }
            Err(error) => error,
        };
        sender.send_replace(Some(Err(failure)));
        sleep(PAUSE).await;
    }
}

/// State of a stream.
#[derive(Default)]
struct StreamedState {
    /// Stream id and answer number.
    position: Option<(String, u64)>,
    answer: Value,
}

enum StreamOpening {
    Stream(Response),
    Refused(Answer),
}

async fn open_stream(
    aggregator: &AggregatorConnection,
    question: &Question,
    state: &StreamedState,
) -> Result<StreamOpening, AggregatorError> {
    let (segments, mut parameters) = question.to_path();
    parameters.push(("ask", segments.join("/")));
    if let Some((stream, number)) = &state.position {
        parameters.push(("from", format!("{stream}-{number}")));
    }
    let response = aggregator.get(&["stream"], &parameters).await?;
    if response.status() == StatusCode::OK {
        return Ok(StreamOpening::Stream(response));
    }
    let body = aggregator.read_body(response).await?;
    match decode_value(&body) {
        Ok(refusal) => Ok(StreamOpening::Refused(Answer::Refused(refusal))),
        Err(error) => Err(aggregator.undecodable_error(&error).await),
    }
}

/// Reads lines until the stream breaks; returns the cause.
async fn read_stream(
    aggregator: &AggregatorConnection,
    question: &Question,
    mut response: Response,
    state: &mut StreamedState,
    sender: &watch::Sender<StreamedAnswer>,
) -> AggregatorError {
    let mut buffer: Vec<u8> = Vec::new();
    // Bytes of the buffer already searched for the end of a line.
    let mut searched = 0;
    loop {
        let chunk = match timeout(SILENCE, response.chunk()).await {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => return aggregator.unreadable_error("the stream has ended"),
            Ok(Err(error)) => return aggregator.unreachable_error(&error),
            Err(_) => return aggregator.timeout_error(),
        };
        if buffer.len() + chunk.len() > MAX_ANSWER {
            return aggregator.too_large_error();
        }
        buffer.extend_from_slice(&chunk);
        let mut start = 0;
        while let Some(end) = buffer[searched..].iter().position(|byte| *byte == b'\n') {
            let end = searched + end;
            match state.apply_line(question, &buffer[start..end]) {
                Ok(Some(answer)) => drop(sender.send_replace(Some(Ok(answer)))),
                // The connection works, so that an earlier failure is over.
                Ok(None) => {}
                Err(why) => {
                    // The state is invalid: restart with a whole answer.
                    *state = StreamedState::default();
                    return aggregator.unreadable_error(&why);
                }
            }
            (start, searched) = (end + 1, end + 1);
        }
        buffer.drain(..start);
        searched = buffer.len();
    }
}

impl StreamedState {
    /// Applies one line; returns an answer if it changed.
    fn apply_line(&mut self, question: &Question, line: &[u8]) -> Result<Option<Answer>, String> {
        let mut line = decode_json(line).map_err(|error| json_problem(&error))?;
        let number = line["number"].as_u64().ok_or("a line of the stream has no number")?;
        if let (Some(stream), Some(members)) =
            (line["stream"].as_str().map(str::to_owned), line.as_object_mut())
        {
            self.position = Some((stream, number));
            if let Some(refused) = members.get("refused") {
                let refusal = serde_json::from_value(refused.clone());
                let refusal = refusal.map_err(|error| json_problem(&error))?;
                return Ok(Some(Answer::Refused(refusal)));
            }
            self.answer = members.remove("whole").ok_or("a line of the stream has no answer")?;
        } else {
            let position =
                self.position.as_mut().ok_or("the stream does not begin with a whole answer")?;
            let alive = line["alive"] == true;
            if alive && position.1 == number {
                // The state is unchanged: report it again, because a failure may have been reported meanwhile.
                return self.read(question);
            }
            if alive || position.1 + 1 != number {
                return Err(format!("the stream jumps from {} to {number}", position.1));
            }
            json_diff::apply_diff(&mut self.answer, &line["change"])
                .map_err(|error| error.to_string())?;
            position.1 = number;
        }
        self.read(question)
    }

    /// The state as an answer.
    fn read(&self, question: &Question) -> Result<Option<Answer>, String> {
        let answer = Answer::from_json(question, &self.answer);
        answer.map(Some).map_err(|error| json_problem(&error).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::AggregatorClient, *};

    fn apply_targets_line(state: &mut StreamedState, line: &str) -> Result<usize, String> {
        match state.apply_line(&Question::Targets, line.as_bytes())? {
            Some(Answer::Targets(list)) => Ok(list.total as usize),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn stream_lines_update_the_whole_answer() {
        let mut state = StreamedState::default();
        let whole = r#"{"stream":"a","number":4,"whole":{"at":1,"targets":[],"total":7,
            "totals":{"scrapes":{},"samples":0,"rejected":{},"findings_opened":{}}}}"#;
        assert_eq!(apply_targets_line(&mut state, whole), Ok(7));
        assert_eq!(
            apply_targets_line(&mut state, r#"{"number":5,"change":{"to":{"total":8}}}"#),
            Ok(8)
        );
        assert_eq!(apply_targets_line(&mut state, r#"{"number":5,"alive":true}"#), Ok(8));
        assert_eq!(state.position, Some(("a".to_owned(), 5)));
        let jump = apply_targets_line(&mut state, r#"{"number":9,"change":{}}"#).unwrap_err();
        assert_eq!(jump, "the stream jumps from 5 to 9");
    }

    /// Many more questions than streams, at an aggregator that is down: each is answered, and streams stay bounded.
    #[tokio::test]
    async fn questions_beyond_the_streams_are_all_answered() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let aggregator = AggregatorClient::new(&address.to_string()).unwrap().with_streams();
        let tasks: Vec<_> = (0..8 * STREAMS)
            .map(|index| {
                let aggregator = aggregator.clone();
                let question = Question::Node(format!("gpu{index}").into());
                tokio::spawn(async move { aggregator.ask_question(&question).await })
            })
            .collect();
        for task in tasks {
            assert!(task.await.unwrap().is_err(), "nobody is there to answer");
        }
    }

    #[test]
    fn invalid_stream_lines_are_reported() {
        let mut state = StreamedState::default();
        let wrong_type = "a value is missing or has the wrong type";
        for (line, why) in [
            ("no json", "it is not JSON"),
            (r#"{"number":5"#, "it ends too early"),
            ("{}", "a line of the stream has no number"),
            (r#"{"number":5,"change":{}}"#, "the stream does not begin with a whole answer"),
            (r#"{"stream":"a","number":1}"#, "a line of the stream has no answer"),
            (r#"{"stream":"a","number":1,"whole":{"at":"soon"}}"#, wrong_type),
            (r#"{"stream":"a","number":1,"refused":{"code":7}}"#, wrong_type),
            (r#"{"number":1,"alive":true}"#, wrong_type),
        ] {
            assert_eq!(apply_targets_line(&mut state, line), Err(why.to_owned()), "{line}");
        }
    }
}
