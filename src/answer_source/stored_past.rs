//! Stored past: answers about a time that the engine does not keep, out of the verdicts that were written to a store.
//!
//! All verdicts of one step were written together. The newest step before the time is read whole, one sample a series:
//! overview, findings, jobs, nodes, states of GPUs and the network by leaf and rail are as they were judged then.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use gaunt_api::{
    Answer, FieldKey, FieldKind, FindingList, HistoryQuery, MetricHistory, Question, Subject,
    filter::{USUAL_ROWS, select_rows},
    history_answer::MAX_POINTS,
};
use gaunt_engine::{EngineHandle, EngineOptions, finding_rows};
use gaunt_schema::{
    SanitizedText, UnixMs,
    catalogue::fleet_metrics,
    time::format_time_of_day,
    unit::{MetricKind, Unit},
};
use gaunt_series::{QueryError, SeriesOptions, StoredHistory, StoredSeries, StoredSteps};

use super::{stored_fleet::StoredFleet, stored_usage::read_usage};

/// The span of the history of lost GPUs in an overview.
const LOSSES: Duration = Duration::from_mins(30);

/// The time between two samples of level `screens`.
const SCREEN_INTERVAL: Duration = Duration::from_mins(1);

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
    /// It has no samples of a metric.
    #[error(
        "{server} has no samples of {name} there in this span; metrics are written with store.level = \"screens\""
    )]
    NoSeries {
        /// The address of the store.
        server: SanitizedText,
        /// The name of the series.
        name: &'static str,
    },
    /// It has no usage of the hours.
    #[error("{server} has no samples of {name} in these hours; they are written at each full hour")]
    NoUsage {
        /// The address of the store.
        server: SanitizedText,
        /// The name of the series.
        name: &'static str,
    },
    /// The question names no device, or several.
    #[error(
        "a history out of the store is of one device, as in filter=node=gpu003 and gpu=5, or of metric=lost without a filter; \
         narrow the filter, or leave out span"
    )]
    NotOneDevice,
    /// It has verdicts of that time without the network.
    #[error(
        "the verdicts of {at} in {server} have no ports: no node had an RDMA port then, or the aggregator was older"
    )]
    NoNetwork {
        /// The address of the store.
        server: SanitizedText,
        /// The time of the verdicts.
        at: String,
    },
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

/// A metric of one device, as a series of the store.
struct StoredMetric {
    name: &'static str,
    labels: Vec<(&'static str, String)>,
    is_counter: bool,
    /// Whether it is a verdict, which is written more often.
    is_verdict: bool,
    field: String,
    unit: Unit,
}

impl StoredMetric {
    /// The series that a question is about; none if it is not one.
    fn find(query: &HistoryQuery) -> Option<Self> {
        if query.metric == "lost" && query.of.is_all() {
            return Some(Self {
                name: fleet_metrics::LOST_GPUS.catalogue_row().name,
                labels: Vec::new(),
                is_counter: false,
                is_verdict: true,
                field: "lost".to_owned(),
                unit: Unit::Count,
            });
        }
        let subject = query.of.subject();
        let field = subject.find_field(&query.metric)?;
        let (FieldKey::Metric(metric), FieldKind::Number(unit)) = (field.key, field.kind) else {
            return None;
        };
        let row = metric.catalogue_row();
        let mut labels: Vec<(&str, String)> = Vec::new();
        for label in ["node"].iter().chain(row.class.key_label_names()) {
            let key = subject.find_field(label)?.key;
            let required = query.of.required_texts(key)?;
            let [value] = required.as_slice() else { return None };
            labels.push((label, (*value).to_owned()));
        }
        labels.extend(row.tag.map(|(label, value)| (label, value.to_owned())));
        let is_counter = matches!(row.kind, MetricKind::Counter(_));
        Some(Self {
            name: row.name,
            labels,
            is_counter,
            is_verdict: false,
            field: field.name.clone(),
            unit,
        })
    }
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
                Subject::Jobs | Subject::Nodes | Subject::Gpus | Subject::Ports | Subject::Findings
            ),
            Question::Fabric(filter) => filter.is_all(),
            _ => false,
        }
    }

    /// The history of a metric until `until`, of one device or of the lost GPUs of the whole fleet.
    pub(super) async fn history(
        &mut self,
        until: UnixMs,
        query: &HistoryQuery,
        span: Duration,
    ) -> Result<Answer, StoredPastError> {
        let series = StoredMetric::find(query).ok_or(StoredPastError::NotOneDevice)?;
        let shortest = if series.is_verdict { self.options.interval } else { SCREEN_INTERVAL };
        let points = query.points.clamp(1, MAX_POINTS);
        let step = Duration::from_secs(span.as_secs().div_ceil(u64::from(points))).max(shortest);
        let count = span.as_millis().div_ceil(step.as_millis().max(1)) as usize;
        let stored = self.open_stored().await?;
        let labels: Vec<(&str, &str)> =
            series.labels.iter().map(|(label, value)| (*label, value.as_str())).collect();
        let steps = StoredSteps { until, step, count };
        let read = stored.read_history(series.name, &labels, series.is_counter, steps).await?;
        if read.mean.iter().all(Option::is_none) {
            let (server, name) = (stored.server().clone(), series.name);
            return Err(StoredPastError::NoSeries { server, name });
        }
        let StoredHistory { mean, low, high } = read;
        Ok(Answer::History(Arc::new(MetricHistory {
            at: until,
            metric: series.field,
            unit: series.unit,
            devices: 1,
            together: query.together,
            step_ms: step.as_millis() as u64,
            mean,
            low,
            high,
        })))
    }

    /// GPU time of the full hours in the `span` up to `until`.
    pub(super) async fn usage(
        &mut self,
        until: UnixMs,
        span: Duration,
    ) -> Result<Answer, StoredPastError> {
        let cluster = self.engine.cluster.clone();
        let stored = self.open_stored().await?;
        let mut usage = read_usage(stored, &cluster, until, span).await?;
        if usage.rows.is_empty() {
            let (server, name) = (stored.server().clone(), "gaunt_job_gpu_hours");
            return Err(StoredPastError::NoUsage { server, name });
        }
        self.engine.set_usage_prices(&mut usage.rows);
        Ok(Answer::Usage(Arc::new(usage)))
    }

    async fn open_stored(&mut self) -> Result<&mut StoredSeries, QueryError> {
        if self.stored.is_none() {
            let replica_label = self.options.replica_label.clone();
            let cluster = &self.engine.cluster;
            let opened = StoredSeries::open(&self.options.series, cluster, replica_label).await?;
            self.stored = Some(opened);
        }
        Ok(self.stored.as_mut().expect("it was opened above"))
    }

    /// Answers a question that [`Self::answers`] names as of `at`.
    pub(super) async fn answer(
        &mut self,
        at: UnixMs,
        question: &Question,
    ) -> Result<Answer, StoredPastError> {
        let instant = self.read_instant(at).await?;
        let fleet = &instant.fleet;
        if is_of_network(question) && !fleet.fabric.is_known() {
            let server = SanitizedText::new(&self.options.series.url);
            return Err(StoredPastError::NoNetwork { server, at: fleet.at.to_rfc3339() });
        }
        Ok(match question {
            Question::Nodes => Answer::Nodes(Arc::new(fleet.node_list())),
            Question::List(filter) if filter.subject() == Subject::Nodes => {
                Answer::Nodes(Arc::new(fleet.matching_nodes(filter)))
            }
            Question::Findings => Answer::Findings(Arc::new(fleet.finding_list())),
            Question::GpuTime => Answer::GpuTime(Arc::new(fleet.gpu_time())),
            Question::Fabric(_) => Answer::Fabric(Arc::new(fleet.fabric.fabric_matrix(fleet.at))),
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
            "past, from the verdicts of {} in the store {server}: states, losses, findings, jobs, and the network by leaf and \
             rail; no values of GPUs, single ports and hosts, no changes; of ports those that were not active or had a finding; \
             sentences of findings are from the journal of this aggregator",
            format_time_of_day(fleet.at)
        ));
        let overview = fleet.overview(&self.engine, losses, self.options.interval, vec![note]);
        Answer::Overview(Arc::new(overview))
    }

    async fn read_instant(&mut self, at: UnixMs) -> Result<Arc<StoredInstant>, StoredPastError> {
        if let Some((_, known)) = self.instants.iter().find(|(known, _)| *known == at) {
            return Ok(known.clone());
        }
        let stored = self.open_stored().await?;
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

/// Whether a question is about ports.
fn is_of_network(question: &Question) -> bool {
    match question {
        Question::Fabric(_) => true,
        Question::Table(filter) => filter.subject() == Subject::Ports,
        _ => false,
    }
}
