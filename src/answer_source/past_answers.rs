//! Past answers: which source answers about a time that the engine does not keep.
//!
//! Verdicts of a store say what was judged then, for the whole fleet and at little cost; the raw series of a Prometheus are
//! replayed for everything else.

use std::time::Duration;

use gaunt_api::{Answer, Question, Subject};
use gaunt_engine::{EngineHandle, EngineOptions};
use gaunt_schema::{SanitizedText, UnixMs};
use gaunt_series::SeriesOptions;
use tokio::sync::{mpsc, oneshot};

use super::{
    past_replay::{PastReplay, find_node, refuse},
    stored_past::{StoredPast, StoredPastOptions},
};

/// Questions that wait.
const WAITING: usize = 32;

/// What is known of the time before what the engine keeps.
#[derive(Clone, Debug)]
pub struct PastSources {
    /// A store with verdicts.
    pub stored: Option<StoredPastOptions>,
    /// A Prometheus with raw series.
    pub series: Option<SeriesOptions>,
    /// The options of the engine.
    pub engine: EngineOptions,
}

/// Answers questions about the past, one after the other.
#[derive(Clone, Debug)]
pub struct PastAnswers {
    questions: mpsc::Sender<PastQuestion>,
    has_store: bool,
    /// How long the engine keeps usage.
    kept_usage: Duration,
}

/// A question about an instant.
struct PastQuestion {
    at: UnixMs,
    question: Question,
    reply: oneshot::Sender<Answer>,
}

impl PastAnswers {
    /// Starts to answer; none if no source is named. The task ends with the last copy.
    pub(super) fn start(sources: PastSources, live: &EngineHandle) -> Option<Self> {
        let PastSources { stored, series, engine } = sources;
        if stored.is_none() && series.is_none() {
            return None;
        }
        let (has_store, kept_usage) = (stored.is_some(), engine.usage);
        let (questions, mut waiting) = mpsc::channel::<PastQuestion>(WAITING);
        let mut answerer = PastAnswerer {
            stored: stored.map(|stored| StoredPast::new(stored, engine.clone(), live.clone())),
            replay: series.map(|series| PastReplay::new(series, engine, live.clone())),
        };
        tokio::spawn(async move {
            while let Some(asked) = waiting.recv().await {
                // The client may have gone.
                if !asked.reply.is_closed() {
                    _ = asked.reply.send(answerer.answer(asked.at, asked.question).await);
                }
            }
        });
        Some(Self { questions, has_store, kept_usage })
    }

    /// Whether an answer of the engine shows less than the span that was asked for, and a store may have more.
    pub(super) fn has_more(&self, question: &Question, answer: &Answer) -> bool {
        let is_longer = match (question, answer) {
            (Question::History(query), Answer::History(known)) => {
                query.span.is_some_and(|span| span > known.span())
            }
            (Question::Usage(span), Answer::Usage(_)) => *span > self.kept_usage,
            _ => false,
        };
        self.has_store && is_longer
    }

    /// Answers a question about `at`.
    pub(super) async fn ask_question(&self, at: UnixMs, question: Question) -> Answer {
        let (reply, answer) = oneshot::channel();
        let asked = PastQuestion { at, question, reply };
        let sent = self.questions.send(asked).await.is_ok();
        let answer = if sent { answer.await.ok() } else { None };
        answer.unwrap_or_else(|| refuse(&SanitizedText::new("gaunt is stopping")))
    }
}

/// The state of the task.
struct PastAnswerer {
    stored: Option<StoredPast>,
    replay: Option<PastReplay>,
}

impl PastAnswerer {
    async fn answer(&mut self, at: UnixMs, question: Question) -> Answer {
        // Rows of one node have their values in a replay, and all ports are there.
        let replay_has_more = match &question {
            Question::Table(filter) => {
                filter.subject() == Subject::Ports || find_node(filter).is_some()
            }
            _ => false,
        };
        if let Some(stored) = &mut self.stored {
            let summed_up = match &question {
                Question::History(query) => match query.span {
                    Some(span) => Some(stored.history(at, query, span).await),
                    None => None,
                },
                Question::Usage(span) => Some(stored.usage(at, *span).await),
                _ => None,
            };
            if let Some(answer) = summed_up {
                return answer
                    .unwrap_or_else(|error| refuse(&SanitizedText::new(&error.to_string())));
            }
        }
        let mut failure = None;
        if let Some(stored) = &mut self.stored
            && StoredPast::answers(&question)
            && !(replay_has_more && self.replay.is_some())
        {
            match stored.answer(at, &question).await {
                Ok(answer) => return answer,
                Err(error) => failure = Some(error.to_string()),
            }
        }
        if let Some(replay) = &mut self.replay {
            return replay.answer(at, question).await;
        }
        let why = failure.unwrap_or_else(|| {
            "the store keeps verdicts: overview, findings, jobs, nodes, states of GPUs and the network without a filter. Set \
             prometheus.url to the server that scrapes the exporters for values of nodes, GPUs, ports and jobs"
                .to_owned()
        });
        refuse(&SanitizedText::new(&why))
    }
}
