//! Stored past: answers about a time that the engine does not keep, out of the verdicts that were written to a store.
//!
//! All verdicts of one step were written together. The newest step before the time is read whole, one sample a series:
//! overview, findings, jobs, nodes and states of GPUs are as they were judged then.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use gaunt_api::{
    Answer, FindingList, Question, Subject,
    filter::{USUAL_ROWS, select_rows},
};
use gaunt_engine::{EngineHandle, EngineOptions, finding_rows};
use gaunt_schema::{SanitizedText, UnixMs, catalogue::fleet_metrics, time::format_time_of_day};
use gaunt_series::{QueryError, SeriesOptions, StoredSeries};

use super::stored_fleet::StoredFleet;

/// The span of the history of lost GPUs in an overview.
const LOSSES: Duration = Duration::from_mins(30);

/// Instants whose verdicts are kept: those that a console moves between.
const MAX_INSTANTS: usize = 4;

/// Where verdicts are read, and of which cluster.
#[derive(Clone, Debug)]
pub struct StoredPastOptions {
    /// The store.
    pub series: SeriesOptions,
    /// The label that tells the writers of a pair apart, if there is one.
    pub replica_label: Option<String>,
    /// The time between two steps.
    pub interval: Duration,
}

/// Why the store gives no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoredPastError {
    /// It cannot be read.
    #[error("the store cannot be read: {0}")]
    Query(#[from] QueryError),
    /// It has no verdicts of that time.
    #[error("{server} has no verdicts of the 5 minutes before {at}")]
    NoStep {
        /// The address of the store.
        server: SanitizedText,
        /// The time.
        at: String,
    },
}

/// Reads verdicts back.
#[derive(Debug)]
pub(super) struct StoredPast {
    options: StoredPastOptions,
    engine: EngineOptions,
    live: EngineHandle,
    stored: Option<StoredSeries>,
    /// The time that was asked for, and what the store has of it; the newest last.
    instants: VecDeque<(UnixMs, Arc<StoredInstant>)>,
}

/// What the store has of one time.
#[derive(Debug)]
struct StoredInstant {
    fleet: StoredFleet,
    /// Lost GPUs of the time before, oldest first.
    losses: Vec<(UnixMs, f64)>,
}

impl StoredPast {
    /// Nothing is sent yet.
    pub(super) fn new(
        options: StoredPastOptions,
        engine: EngineOptions,
        live: EngineHandle,
    ) -> Self {
        Self { options, engine, live, stored: None, instants: VecDeque::new() }
    }

    /// Whether verdicts answer a question.
    pub(super) fn answers(question: &Question) -> bool {
        match question {
            Question::Overview | Question::Nodes | Question::Findings | Question::GpuTime => true,
            Question::List(filter) => {
                matches!(filter.subject(), Subject::Nodes | Subject::Findings)
            }
            Question::Table(filter) => matches!(
                filter.subject(),
                Subject::Jobs | Subject::Nodes | Subject::Gpus | Subject::Findings
            ),
            _ => false,
        }
    }

    /// Answers a question that [`Self::answers`] names as of `at`.
    pub(super) async fn answer(
        &mut self,
        at: UnixMs,
        question: &Question,
    ) -> Result<Answer, StoredPastError> {
        let instant = self.read_instant(at).await?;
        let fleet = &instant.fleet;
        Ok(match question {
            Question::Nodes => Answer::Nodes(Arc::new(fleet.node_list())),
            Question::List(filter) if filter.subject() == Subject::Nodes => {
                Answer::Nodes(Arc::new(fleet.matching_nodes(filter)))
            }
            Question::Findings => Answer::Findings(Arc::new(fleet.finding_list())),
            Question::GpuTime => Answer::GpuTime(Arc::new(fleet.gpu_time())),
            Question::Table(filter) => match fleet.build_table(filter) {
                Some(table) => Answer::Table(Arc::new(table)),
                None => self.overview(&instant),
            },
            Question::List(filter) if filter.subject() == Subject::Findings => {
                let list = fleet.finding_list();
                let selected = select_rows(filter, &finding_rows(&list), USUAL_ROWS);
                let found = selected.rows.iter().filter_map(|row| list.findings.get(*row as usize));
                let findings: Vec<_> = found.cloned().collect();
                let matched = selected.matched;
                Answer::Findings(Arc::new(FindingList { findings, matched, ..list }))
            }
            _ => self.overview(&instant),
        })
    }

    fn overview(&self, instant: &StoredInstant) -> Answer {
        let StoredInstant { fleet, losses } = instant;
        let server = self.options.series.url.split(['?', '#']).next().unwrap_or_default();
        let note = SanitizedText::new(&format!(
            "past, from the verdicts of {} in the store {server}: states, losses, findings and jobs; no values of GPUs, \
             ports and hosts, no changes; sentences of findings are from the journal of this aggregator",
            format_time_of_day(fleet.at)
        ));
        let overview = fleet.overview(&self.engine, losses, self.options.interval, vec![note]);
        Answer::Overview(Arc::new(overview))
    }

    async fn read_instant(&mut self, at: UnixMs) -> Result<Arc<StoredInstant>, StoredPastError> {
        if let Some((_, known)) = self.instants.iter().find(|(known, _)| *known == at) {
            return Ok(known.clone());
        }
        let stored = match &mut self.stored {
            Some(stored) => stored,
            None => {
                let replica_label = self.options.replica_label.clone();
                let cluster = &self.engine.cluster;
                let opened =
                    StoredSeries::open(&self.options.series, cluster, replica_label).await?;
                self.stored.insert(opened)
            }
        };
        let step = stored.find_step(at).await?.ok_or_else(|| StoredPastError::NoStep {
            server: stored.server().clone(),
            at: at.to_rfc3339(),
        })?;
        let mut fleet = StoredFleet::at_step(step);
        let names = StoredFleet::read_names();
        let load = stored.read_step(&names, step, |sample| fleet.add_sample(sample)).await?;
        let lost = fleet_metrics::LOST_GPUS.catalogue_row().name;
        let losses = stored.read_verdict(lost, step - LOSSES, step).await?;
        tracing::debug!(?load, step = step.0, "read verdicts of the past");
        fleet.join_journal(&self.read_journal().await);
        let instant = Arc::new(StoredInstant { fleet, losses });
        if self.instants.len() == MAX_INSTANTS {
            self.instants.pop_front();
        }
        self.instants.push_back((at, instant.clone()));
        Ok(instant)
    }

    /// The open findings and the closed ones of the journal, the newest first.
    async fn read_journal(&self) -> Vec<Arc<FindingList>> {
        let mut lists = Vec::new();
        for question in [Question::Findings, Question::Closed] {
            if let Ok(Answer::Findings(list)) = self.live.ask_question(question).await {
                lists.push(list);
            }
        }
        lists
    }
}
