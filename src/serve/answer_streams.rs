//! Answer streams: an answer, and then its changes, line by line, until the client disconnects.
//!
//! Each line is a JSON object with the `number` of the answer that it leads to. `whole` is a complete answer and comes
//! first, or when a client was too slow for the changes; `change` is the diff to the number before (see
//! `gaunt_api::json_diff`); `refused` is the reason why there is no answer now; `alive` is a heartbeat. A client that
//! reconnects with `from=STREAM-NUMBER` gets only what it missed, if that is still retained.
//!
//! Clients of one question share one feed: it asks once a tick, and each line is serialized once. A client holds only
//! the number that it was last sent, so that a slow one costs no memory and gets the newest state when it is ready.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use axum::{
    extract::{Query, State},
    http::header::CONTENT_TYPE,
    response::{IntoResponse as _, Response},
};
use gaunt_schema::{SanitizedText, UnixMs};
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::sleep,
};

use super::{
    api_responses::{busy_response, refusal_json, refusal_response, unavailable_response},
    chunked_body::{self, ChunkSource, NextChunk},
};
use crate::answer_source::{AnswerSource, AnswerSourceError};
use gaunt_api::{Answer, Question, Refusal, json_diff};

/// Streams that may be open at once: a hundred consoles follow two questions each. It is half of the connections, so
/// that other clients can still ask.
const STREAMS: usize = 256;

/// Distinct questions that may be followed at once: each is asked again every tick.
const FEEDS: usize = 64;

/// Changes retained for clients that reconnect or are slow: a quarter of a minute at one per second.
const KEPT: usize = 16;

/// Bytes of changes retained per question; beyond, the whole answer is no more expensive.
const KEPT_BYTES: usize = 1 << 20;

/// Heartbeat interval, so that a client can tell a quiet aggregator from a dead one.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// All feeds.
#[derive(Clone)]
pub(super) struct StreamHub {
    source: AnswerSource,
    feeds: Arc<Mutex<HashMap<Question, watch::Receiver<Arc<FeedState>>>>>,
    stream_permits: Arc<Semaphore>,
    stopped: watch::Receiver<bool>,
}

/// The newest answer to one question, and the changes that led to it.
struct FeedState {
    /// Feed id; numbers are valid within one feed only.
    feed: Arc<str>,
    /// Number of this answer within the feed.
    number: u64,
    /// The answer, or the refusal.
    value: Result<Arc<Value>, Refusal>,
    /// Serialized on first use.
    whole: OnceLock<Bytes>,
    /// The last changes, oldest first, each with the number that it leads to.
    changes: VecDeque<(u64, Bytes)>,
}

impl FeedState {
    fn whole_line(&self) -> Bytes {
        let line = || match &self.value {
            // Written as it is: a copy of the states of a large fleet takes as long as writing them.
            Ok(value) => {
                let (stream, number) = (json!(*self.feed), self.number);
                format!("{{\"stream\":{stream},\"number\":{number},\"whole\":{value}}}\n")
            }
            Err(refusal) => {
                let refused = refusal_json(refusal);
                format!(
                    "{}\n",
                    json!({ "stream": *self.feed, "number": self.number, "refused": refused })
                )
            }
        };
        self.whole.get_or_init(|| Bytes::from(line())).clone()
    }

    /// The changes from `number` to this one; none if they are not retained.
    fn changes_since(&self, number: u64) -> Option<Bytes> {
        let (first, _) = self.changes.front()?;
        if *first > number + 1 || number >= self.number {
            return None;
        }
        let missed = self.changes.iter().filter(|(to, _)| *to > number);
        let missed: Vec<&Bytes> = missed.map(|(_, line)| line).collect();
        match missed.as_slice() {
            [single] => Some((*single).clone()),
            several => {
                Some(Bytes::from(several.iter().map(|line| &line[..]).collect::<Vec<_>>().concat()))
            }
        }
    }

    /// The next state, if the answer differs.
    fn next(&self, answer: Result<Value, Refusal>) -> Option<Self> {
        let number = self.number + 1;
        let mut changes = VecDeque::new();
        let value = match (&self.value, answer) {
            (Ok(old), Ok(new)) => {
                let change = json_diff::diff_values(old, &new)?;
                let line = json!({ "number": number, "change": change });
                changes.clone_from(&self.changes);
                changes.push_back((number, Bytes::from(format!("{line}\n"))));
                let mut bytes: usize = changes.iter().map(|(_, line)| line.len()).sum();
                while changes.len() > KEPT || bytes > KEPT_BYTES {
                    bytes -= changes.pop_front().map_or(bytes, |(_, line)| line.len());
                }
                Ok(Arc::new(new))
            }
            (Err(old), Err(new)) if *old == new => return None,
            (_, new) => new.map(Arc::new),
        };
        Some(Self { feed: self.feed.clone(), number, value, whole: OnceLock::new(), changes })
    }
}

impl StreamHub {
    pub(super) fn new(source: AnswerSource, stopped: watch::Receiver<bool>) -> Self {
        let stream_permits = Arc::new(Semaphore::new(STREAMS));
        Self { source, feeds: Arc::default(), stream_permits, stopped }
    }

    /// Returns the feed of a question and starts it if necessary; none if there are too many.
    async fn open_feed(
        &self,
        question: &Question,
    ) -> Result<Option<watch::Receiver<Arc<FeedState>>>, AnswerSourceError> {
        if let Some(feed) = self.running_feed(question) {
            return Ok(Some(feed));
        }
        let (at, first) = next_answer(&self.source, question, UnixMs(0)).await?;
        let mut feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
        // Another client may have started it meanwhile.
        if let Some(feed) = feeds.get(question).filter(|feed| feed.has_changed().is_ok()) {
            return Ok(Some(feed.clone()));
        }
        if feeds.len() >= FEEDS {
            return Ok(None);
        }
        let state = FeedState {
            feed: format!("{:x}", at.0).into(),
            number: 1,
            value: first.map(Arc::new),
            whole: OnceLock::new(),
            changes: VecDeque::new(),
        };
        let (sender, feed) = watch::channel(Arc::new(state));
        feeds.insert(question.clone(), feed.clone());
        drop(feeds);
        tokio::spawn(self.clone().run(question.clone(), sender, at));
        Ok(Some(feed))
    }

    fn running_feed(&self, question: &Question) -> Option<watch::Receiver<Arc<FeedState>>> {
        let feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
        feeds.get(question).filter(|feed| feed.has_changed().is_ok()).cloned()
    }

    /// Asks once a tick and publishes changes, until there are no followers or the source has ended.
    async fn run(self, question: Question, sender: watch::Sender<Arc<FeedState>>, mut at: UnixMs) {
        loop {
            let Ok((tick, answer)) = next_answer(&self.source, &question, at).await else { break };
            at = tick;
            {
                let mut feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
                // One receiver belongs to the list. New followers subscribe under the same lock.
                if sender.receiver_count() <= 1 {
                    feeds.remove(&question);
                    return;
                }
            }
            let next = sender.borrow().next(answer);
            if let Some(next) = next {
                sender.send_replace(Arc::new(next));
            }
        }
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner).remove(&question);
    }
}

/// The answer of the first tick after `last`, and that tick.
async fn next_answer(
    source: &AnswerSource,
    question: &Question,
    last: UnixMs,
) -> Result<(UnixMs, Result<Value, Refusal>), AnswerSourceError> {
    let tick = source.wait_for_tick(last).await?;
    Ok((
        tick,
        match source.ask_question(question.clone()).await? {
            Answer::Refused(refusal) => Err(refusal),
            answer => Ok(serde_json::to_value(answer).unwrap_or_default()),
        },
    ))
}

/// Answers with a stream, or a refusal.
pub(super) async fn handle_stream(
    State(hub): State<StreamHub>,
    Query(parameters): Query<Vec<(String, String)>>,
) -> Response {
    let (question, from) = match parse_stream_query(parameters) {
        Ok(read) => read,
        Err(refusal) => return refusal_response(&refusal),
    };
    let Ok(permit) = hub.stream_permits.clone().try_acquire_owned() else {
        return busy_response(&format!("{STREAMS} streams are open, the maximum; try again later"));
    };
    let feed = match hub.open_feed(&question).await {
        Ok(Some(feed)) => feed,
        Ok(None) => {
            return busy_response(&format!(
                "{FEEDS} different questions are streamed, the maximum; try again later"
            ));
        }
        Err(error) => return unavailable_response(&error),
    };
    if let Err(refusal) = &feed.borrow().value {
        return refusal_response(refusal);
    }
    let sent = from.and_then(|(name, number)| (*feed.borrow().feed == *name).then_some(number));
    let follower = StreamFollower { feed, sent, stopped: hub.stopped.clone(), _permit: permit };
    ([(CONTENT_TYPE, "application/x-ndjson")], chunked_body::of(follower)).into_response()
}

/// Parses the question to follow, and the client's last position.
fn parse_stream_query(
    mut parameters: Vec<(String, String)>,
) -> Result<(Question, Option<(String, u64)>), Refusal> {
    let mut take = |name: &str| {
        let index = parameters.iter().position(|(key, _)| key == name)?;
        Some(parameters.remove(index).1)
    };
    let bad_parameter = |parameter: &str, why: &str| Refusal::BadParameter {
        parameter: SanitizedText::new(parameter),
        why: SanitizedText::new(why),
    };
    let ask = take("ask")
        .ok_or_else(|| bad_parameter("ask", "missing; name a question, such as overview"))?;
    let from = take("from")
        .map(|from| {
            let parts = from.split_once('-');
            let parts =
                parts.and_then(|(feed, number)| Some((feed.to_owned(), number.parse().ok()?)));
            parts.ok_or_else(|| {
                bad_parameter(
                    "from",
                    "invalid; write the stream and the number that were last read, such as 18c2f-7",
                )
            })
        })
        .transpose()?;
    Ok((Question::parse_line(&ask, &parameters)?, from))
}

/// One client of a feed.
struct StreamFollower {
    feed: watch::Receiver<Arc<FeedState>>,
    /// The number that it was last sent.
    sent: Option<u64>,
    stopped: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
}

impl ChunkSource for StreamFollower {
    async fn next(mut self) -> NextChunk<Self> {
        loop {
            let state = self.feed.borrow_and_update().clone();
            if self.sent != Some(state.number) {
                let missed = self.sent.and_then(|sent| state.changes_since(sent));
                self.sent = Some(state.number);
                return Some((missed.unwrap_or_else(|| state.whole_line()), self));
            }
            let is_quiet = tokio::select! {
                changed = self.feed.changed() => {
                    changed.ok()?;
                    false
                }
                _ = self.stopped.wait_for(|stopped| *stopped) => return None,
                () = sleep(HEARTBEAT) => true,
            };
            if is_quiet {
                let line = json!({ "number": state.number, "alive": true });
                return Some((Bytes::from(format!("{line}\n")), self));
            }
        }
    }
}

#[cfg(test)]
mod tests;
