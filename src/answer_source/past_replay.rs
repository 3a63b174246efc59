//! Past replay: answers about a time before what the engine keeps, out of a Prometheus.
//!
//! The raw series of the quarter of an hour before that time are read, and an engine of their own lives through them: every
//! answer is computed as it was then, explanations included.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use gaunt_api::{Answer, Filter, NodeDetail, Overview, Question, Refusal};
use gaunt_engine::{Engine, EngineHandle, EngineOptions};
use gaunt_schema::{Delivery, SanitizedText, UnixMs};
use gaunt_series::{QueryError, SeriesOptions, SeriesReader, SeriesWindow, match_instances};
use tokio::task::block_in_place;

/// The time that is lived through before the instant: judgements need to know what is usual.
const SPAN: Duration = Duration::from_mins(15);

/// The time that is read at once.
const SLICE: Duration = Duration::from_mins(5);

/// Ticks of one scrape interval, as many as judgements in a running engine, and the limits of the time between two.
const TICKS: u32 = 4;
const TICK_INTERVALS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

/// Instants whose engines are kept: those that a console moves between.
const MAX_INSTANTS: usize = 4;

/// The part of a fleet that is replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReplayedPart {
    Fleet,
    Node(SanitizedText),
    Job(SanitizedText),
}

impl ReplayedPart {
    /// What a question is about.
    fn of_question(question: &Question) -> Self {
        let of_filter = |filter: &Filter| {
            let node = find_node(filter).map(Self::Node);
            node.or_else(|| find_text(filter, "job").map(Self::Job)).unwrap_or(Self::Fleet)
        };
        match question {
            Question::Node(node) => Self::Node(node.clone()),
            Question::Job(job) => Self::Job(job.clone()),
            Question::Table(filter) => of_filter(filter),
            Question::History(query) => of_filter(&query.of),
            _ => Self::Fleet,
        }
    }
}

/// An engine that stands at an instant, for a part of the fleet.
struct ReplayedInstant {
    at: UnixMs,
    part: ReplayedPart,
    /// The engine, or why there is none.
    engine: Result<EngineHandle, SanitizedText>,
}

pub(super) fn refuse(why: &SanitizedText) -> Answer {
    Answer::Refused(Refusal::BadParameter { parameter: "at".into(), why: why.clone() })
}

/// Replays instants of one server.
pub(super) struct PastReplay {
    series: SeriesOptions,
    options: EngineOptions,
    /// Says which targets a node has.
    live: EngineHandle,
    /// The newest last.
    instants: VecDeque<ReplayedInstant>,
}

impl PastReplay {
    /// Nothing is sent yet.
    pub(super) fn new(series: SeriesOptions, engine: EngineOptions, live: EngineHandle) -> Self {
        let options = EngineOptions { alerts: None, peers: None, store: None, ..engine };
        Self { series, options, live, instants: VecDeque::new() }
    }

    /// Answers a question about `at`. An overview says where it comes from and what it lacks.
    pub(super) async fn answer(&mut self, at: UnixMs, question: Question) -> Answer {
        match self.answer_from_replay(at, question).await {
            Answer::Overview(overview) => {
                let server = self.series.url.split(['?', '#']).next().unwrap_or_default();
                let note = SanitizedText::new(&format!(
                    "past, replayed from 15 minutes of series of {server}: baselines are those of these minutes; no processes, \
                     topology files, job lists and acknowledgements",
                ));
                let mut overview: Overview = Arc::unwrap_or_clone(overview);
                overview.source_notes.insert(0, note.clone());
                overview.trouble.insert(0, note);
                Answer::Overview(Arc::new(overview))
            }
            answer => answer,
        }
    }

    async fn answer_from_replay(&mut self, at: UnixMs, question: Question) -> Answer {
        let part = ReplayedPart::of_question(&question);
        let is_known = |known: &ReplayedInstant| {
            let is_all = known.part == ReplayedPart::Fleet && known.engine.is_ok();
            known.at == at && (known.part == part || is_all)
        };
        let known = self.instants.iter().position(is_known);
        let position = if let Some(position) = known {
            position
        } else {
            if self.instants.len() == MAX_INSTANTS {
                self.instants.pop_front();
            }
            let engine = self.replay(at, &part).await;
            self.instants.push_back(ReplayedInstant { at, part, engine });
            self.instants.len() - 1
        };
        match &self.instants[position].engine {
            Ok(engine) => match engine.ask_question(question).await {
                Ok(answer) => answer,
                Err(stopped) => refuse(&SanitizedText::new(&stopped.to_string())),
            },
            Err(why) => {
                let why = why.clone();
                // A server that was away is asked again.
                self.instants.remove(position);
                refuse(&why)
            }
        }
    }

    /// Lives through the time before `at`, with the targets of this part.
    async fn replay(&self, at: UnixMs, part: &ReplayedPart) -> Result<EngineHandle, SanitizedText> {
        let mut series = self.series.clone();
        if let ReplayedPart::Node(node) = part {
            let instances = self.list_instances(node).await;
            if !instances.is_empty() {
                let matcher = match_instances(&instances);
                series.selector = match series.selector.trim().trim_matches(',') {
                    "" => matcher,
                    own => format!("{own},{matcher}"),
                };
            }
        }
        let engine = self.read_engine(&series, at, part).await.map_err(|error| {
            let next = match (&error, part) {
                (QueryError::OverBudget { .. }, ReplayedPart::Fleet) => {
                    "; open one node or job, or raise prometheus.max_samples"
                }
                (QueryError::OverBudget { .. }, ReplayedPart::Job(_)) => {
                    "; open one node of the job, or raise prometheus.max_samples"
                }
                _ => "",
            };
            SanitizedText::new(&format!("the past cannot be read: {error}{next}"))
        })?;
        Ok(gaunt_engine::spawn_existing(engine, Arc::new(move || at)))
    }

    /// The addresses of a node's targets, as its server names them.
    async fn list_instances(&self, node: &SanitizedText) -> Vec<SanitizedText> {
        match self.live.ask_question(Question::Node(node.clone())).await {
            Ok(Answer::Node(detail)) => list_addresses(&detail),
            _ => Vec::new(),
        }
    }

    async fn read_engine(
        &self,
        series: &SeriesOptions,
        at: UnixMs,
        part: &ReplayedPart,
    ) -> Result<Engine, QueryError> {
        let mut reader = SeriesReader::open(series).await?;
        let mut from = at - SPAN;
        reader.discover_names(from, at).await?;
        if let ReplayedPart::Job(job) = part {
            reader.narrow_to_job(job, from, at).await?;
        }
        let mut reader = reader.with_remote_read();
        let (mut engine, mut tick) = (None, None);
        while from < at {
            let until = (from + SLICE).min(at);
            match reader.read_window(from, until).await {
                Ok(window) if window.batches.is_empty() => {}
                Ok(window) => {
                    let engine = engine.get_or_insert_with(|| {
                        let period = window.scrape_period();
                        Engine::new(EngineOptions { period, ..self.options.clone() })
                    });
                    block_in_place(|| play_window(engine, window, &mut tick));
                }
                Err(QueryError::NoScrapes { .. }) => {}
                Err(error) => return Err(error),
            }
            from = until;
        }
        let mut engine = engine.ok_or_else(|| reader.no_series())?;
        block_in_place(|| engine.run_tick(at));
        Ok(engine)
    }
}

/// The node that all rows of a filter are on.
pub(super) fn find_node(filter: &Filter) -> Option<SanitizedText> {
    find_text(filter, "node")
}

/// The only text that a field of all rows of a filter can have.
fn find_text(filter: &Filter, field: &str) -> Option<SanitizedText> {
    let field = filter.subject().find_field(field)?;
    match filter.required_texts(field.key)?.as_slice() {
        [text] => Some(SanitizedText::new(text)),
        _ => None,
    }
}

fn list_addresses(detail: &NodeDetail) -> Vec<SanitizedText> {
    detail.targets.iter().map(|target| target.address.clone()).collect()
}

/// Plays a window in virtual time, from the tick that is next.
pub(crate) fn play_window(
    engine: &mut Engine,
    window: SeriesWindow,
    next_tick: &mut Option<UnixMs>,
) {
    let Some(first) = window.batches.first().map(|batch| batch.at) else { return };
    let (shortest, longest) = TICK_INTERVALS;
    let step = (engine.scrape_period() / TICKS).clamp(shortest, longest);
    let tick = next_tick.get_or_insert(first);
    engine.ingest_delivery(Delivery::Targets(window.targets));
    for batch in window.batches {
        while *tick < batch.at {
            engine.run_tick(*tick);
            *tick = *tick + step;
        }
        engine.ingest_delivery(Delivery::Batch(batch));
    }
}
