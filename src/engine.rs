//! The owner: holds everything that is known and judged, and is the only place where time enters.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use gaunt_schema::{Delivery, FindingKind, GpuState, SanitizedText, UnixMs};
use tokio::sync::watch;

use crate::{
    answer::{
        AlertList, Answer, CumulativeTotals, Finding, FindingList, JobLostTime, NodeList,
        NodeState, Overview, Question, Refusal, Subject, TimeParam,
    },
    cluster::{Cluster, MAX_TARGETS},
    judge::{FleetLoss, GpuLoss, Judge, Thresholds, gpus_of_parts},
    pairing_scheduler::PairingScheduler,
};

mod acknowledgements;
mod engine_handle;
mod engine_loop;
mod fabric_cells;
mod finding_answers;
mod fleet_overview;
mod history_answers;
#[cfg(test)]
mod ingest_cost_tests;
mod ingest_quota;
mod job_answers;
mod job_timeline;
mod judgement_task;
mod lost_gpus;
mod node_answers;
#[cfg(test)]
mod own_lateness_tests;
mod pairing_requests;
mod persisted_state;
mod query_scheduler;
mod recorded_past;
mod snapshot_history;
mod subject_rows;
mod table_answers;
mod target_answers;
#[cfg(test)]
mod tests;
mod time_view;
mod usage_accounting;

pub use crate::judge::BaselineSnapshot;
use acknowledgements::Acknowledgements;
use engine_handle::PublishedState;
pub use engine_handle::{EngineHandle, EngineStopped, FlushRequest, INBOX, QUESTIONS};
pub use engine_loop::{monotonic_clock, spawn_existing, spawn_new, spawn_stepped, tick_interval};
use judgement_task::{JudgementResult, JudgementTask};
use lost_gpus::LostGpuSeries;
pub use persisted_state::PersistedState;
pub use recorded_past::{MAX_PAST, RecordedPast, UnreadablePast};
use snapshot_history::{SnapshotHistory, TickSnapshot};
pub use usage_accounting::UsageWindow;
use usage_accounting::{UsageAccounting, UsageDelta};

/// The most bytes of history unless told otherwise: a quarter of an hour of 12 million series at ten seconds.
pub const HISTORY_BYTES: usize = 2 << 30;

/// What is usual changes slowly, and is much: it is told to who keeps it no more often than this.
const USUAL_EVERY: Duration = Duration::from_mins(1);
/// Once a finding is opened, what it rests on is told this soon: killed then, the next one must see it again.
const USUAL_SOONEST: Duration = Duration::from_secs(5);

/// For how long usage is known unless told otherwise: an hour of a thousand jobs is some 50 MB at worst.
pub const USAGE: Duration = Duration::from_hours(1);

/// How an owner is set up.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The cluster's name as the operator gave it; may be empty.
    pub cluster: SanitizedText,
    /// The time between two scrapes of a target.
    pub period: Duration,
    /// Points of history that are kept of each series, one a period.
    pub slots: usize,
    /// The most bytes of history, of all series together; beyond, the oldest goes first.
    pub history_bytes: usize,
    /// Whether the past of every metric is kept, and not only of those that screens and judge look back at.
    pub every_past: bool,
    /// What a GPU costs in an hour, if the operator said it.
    pub price_per_gpu_hour: Option<f64>,
    /// The currency of the price.
    pub currency: SanitizedText,
    /// The limits of the judge: many, and passed through many hands.
    pub thresholds: Box<Thresholds>,
    /// For how long usage is known.
    pub usage: Duration,
    /// What Alertmanager says, if anybody asks it.
    pub alerts: Option<watch::Receiver<Arc<AlertList>>>,
    /// Whether what is usual is said for who keeps it, also without a state folder.
    pub says_usual: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            cluster: SanitizedText::default(),
            period: Duration::from_secs(1),
            slots: 120,
            history_bytes: HISTORY_BYTES,
            every_past: false,
            price_per_gpu_hour: None,
            currency: SanitizedText::new("USD"),
            thresholds: Box::default(),
            usage: USAGE,
            alerts: None,
            says_usual: false,
        }
    }
}

/// All that is known and judged, driven from outside: by the loop of [`spawn_new`], or by a test in virtual time.
#[derive(Debug)]
pub struct Engine {
    options: EngineOptions,
    /// Shared with the judge while he looks at it; nothing is written into it meanwhile.
    cluster: Arc<Cluster>,
    /// Away while he judges.
    judge: Option<Judge>,
    /// What every GPU does and loses, as last judged.
    loss: FleetLoss,
    /// The losses before them, whose place is used again.
    spare_loss: FleetLoss,
    lost_series: LostGpuSeries,
    usage: UsageAccounting,
    totals: CumulativeTotals,
    /// Batches that were not taken, by reason.
    dropped_batches: BTreeMap<SanitizedText, u64>,
    /// Findings that are seen and have no place, by kind, as last judged.
    without_place: BTreeMap<FindingKind, u32>,
    /// Published once a tick.
    overview: Arc<Overview>,
    findings: Arc<FindingList>,
    /// Findings that closed, as of their revision.
    closed: Arc<FindingList>,
    closed_revision: u64,
    acknowledgements: Acknowledgements,
    meetings: PairingScheduler,
    /// How many meetings had ended, and in which minute, when the judge was last told of them.
    submitted_measurements: Option<(u64, i64)>,
    /// What was around each finding when that was last looked at.
    explanations: finding_answers::ExplanationsById,
    /// What is told of what was lost where it is kept: only what was, so that no counter falls when the process is killed.
    confirmed_lost_time: Option<Vec<JobLostTime>>,
    /// What is usual, as it was learned when that was last asked for; only where it is kept.
    baselines: Option<Arc<BaselineSnapshot>>,
    baselines_at: Option<UnixMs>,
    /// How many findings had been opened then.
    baselines_opened: u64,
    /// Made for the first question after a tick that needs it.
    nodes: OnceLock<Arc<NodeList>>,
    /// What was published at earlier ticks.
    snapshots: Arc<SnapshotHistory>,
    /// The instant that is seen while a question about the past is answered, and its picture; none otherwise.
    past_time: Option<UnixMs>,
    snapshot: Option<TickSnapshot>,
}

/// What everybody asks for, as it is to be published.
struct TickOutput {
    overview: Overview,
    lost_series: LostGpuSeries,
    /// For the album, if it wants one.
    snapshot: Option<TickSnapshot>,
    /// What GPUs did since the tick before.
    usage_delta: UsageDelta,
}

impl Engine {
    /// The time between two scrapes of a target.
    pub fn scrape_period(&self) -> Duration {
        self.options.period
    }

    /// An owner that knows nothing yet.
    pub fn new(options: EngineOptions) -> Self {
        let cluster =
            Cluster::new(options.period, options.slots).with_history_limit(options.history_bytes);
        let every = options.every_past;
        let cluster = if every { cluster.with_full_history(options.slots) } else { cluster };
        Self {
            cluster: Arc::new(cluster),
            judge: Some(Judge::new((*options.thresholds).clone())),
            loss: FleetLoss::default(),
            spare_loss: FleetLoss::default(),
            lost_series: LostGpuSeries::default(),
            usage: UsageAccounting::default(),
            totals: CumulativeTotals::default(),
            dropped_batches: BTreeMap::new(),
            without_place: BTreeMap::new(),
            overview: Arc::default(),
            findings: Arc::default(),
            closed: Arc::default(),
            closed_revision: 0,
            acknowledgements: Acknowledgements::default(),
            meetings: PairingScheduler::default(),
            submitted_measurements: None,
            explanations: finding_answers::ExplanationsById::default(),
            confirmed_lost_time: None,
            baselines: None,
            baselines_at: None,
            baselines_opened: 0,
            nodes: OnceLock::new(),
            snapshots: Arc::default(),
            past_time: None,
            snapshot: None,
            options,
        }
    }

    /// Takes what a sender brought.
    pub fn ingest_delivery(&mut self, delivery: Delivery) {
        if let Delivery::Targets(targets) = &delivery
            && targets.len() > MAX_TARGETS
        {
            tracing::error!(
                targets = targets.len(),
                MAX_TARGETS,
                "too many targets: the rest is not read"
            );
        }
        if let Delivery::Batch(batch) = &delivery {
            let target = self.cluster.target_by_id(batch.target);
            if let Some(reason) = target_answers::drop_reason(target, batch) {
                *self.dropped_batches.entry(SanitizedText::new(reason)).or_default() += 1;
                self.cluster_mut().drop_result(batch.target, batch.at);
                return tracing::debug!(target = batch.target.0, reason, "batch is dropped");
            }
            target_answers::count_attempt(&mut self.totals, batch);
        }
        self.cluster_mut().ingest_delivery(delivery);
    }

    /// This process was late by so much: what targets reported meanwhile still waits, and none is missed for that.
    fn excuse_lateness(&mut self, late: Duration) {
        if self.judge.is_some() {
            self.cluster_mut().extend_deadlines(late);
        }
    }

    /// Lets time pass: judges what is known and publishes the overview.
    pub fn run_tick(&mut self, now: UnixMs) {
        if let Some(judging) = self.begin_tick(now) {
            self.end_tick(judging.run());
            self.publish_tick(self.build_tick_output());
        }
    }

    /// The first part of a tick, up to the judgement, which can be made elsewhere: meanwhile questions are answered
    /// from what is known and from the judgement before. Nothing if a judgement is being made.
    fn begin_tick(&mut self, now: UnixMs) -> Option<JudgementTask> {
        self.submit_measurements();
        self.apply_accepted_levels();
        let judge = self.judge.take()?;
        self.cluster_mut().advance_to(now);
        let (cluster, closed_revision) = (self.cluster.clone(), self.closed_revision);
        let opened = self.totals.findings_opened.values().sum::<u64>() != self.baselines_opened;
        let every = if opened { USUAL_SOONEST } else { USUAL_EVERY };
        let due = self.baselines_at.is_none_or(|at| now.duration_since(at) >= every || at > now);
        let usual = (self.options.says_usual || self.confirmed_lost_time.is_some()) && due;
        let earlier = std::mem::take(&mut self.spare_loss);
        Some(JudgementTask {
            cluster,
            judge,
            spare_loss: earlier,
            closed_revision,
            wants_baselines: usual,
        })
    }

    /// The second part: takes the judgement.
    fn end_tick(&mut self, judged: JudgementResult) {
        let JudgementResult {
            judge,
            loss,
            findings,
            closed,
            explanations: chains,
            baselines: usual,
        } = judged;
        if let Some(usual) = usual {
            (self.baselines, self.baselines_at) = (Some(Arc::new(usual)), Some(self.cluster.now()));
            self.baselines_opened = judge.opened_counts().values().sum();
        }
        self.explanations = chains;
        self.closed_revision = judge.closed_revision();
        self.totals.findings_opened.clone_from(judge.opened_counts());
        self.without_place.clone_from(judge.over_limit_counts());
        self.judge = Some(judge);
        self.spare_loss = std::mem::replace(&mut self.loss, loss);
        self.store_findings(findings, closed);
        self.clear_node_list();
    }

    /// A tick without a judgement: the one before stands, and all else is as it is now.
    fn tick_without_judgement(&mut self, now: UnixMs) {
        if self.judge.is_some() {
            self.cluster_mut().advance_to(now);
            self.clear_node_list();
        }
    }

    /// What hangs on the tick is that of now.
    fn clear_node_list(&mut self) {
        self.nodes = OnceLock::new();
    }

    /// The third part: what is to be published now, which can be made elsewhere like the judgement.
    fn build_tick_output(&self) -> TickOutput {
        let (at, mut overview) = (self.cluster.now(), self.build_overview());
        let mut ledger = self.lost_series.clone();
        ledger.record_loss(at, fleet_overview::known_loss(&overview));
        overview.lost.history = ledger.points_until(at);
        let picture = self.snapshots.is_due(at).then(|| {
            let ailing = self.cluster.sorted_nodes().filter_map(|(_, node)| {
                let state = self.node_state(node);
                (state != NodeState::Live).then(|| (node.name.clone(), state))
            });
            let (ailing, findings) = (Arc::new(ailing.collect()), self.findings.clone());
            TickSnapshot::new(at, &self.loss, findings, overview.nodes, ailing)
        });
        TickOutput {
            overview,
            lost_series: ledger,
            snapshot: picture,
            usage_delta: self.count_usage(),
        }
    }

    /// The last part: publishes it, and keeps it for who looks back.
    fn publish_tick(&mut self, told: TickOutput) {
        self.record_usage(told.usage_delta);
        self.overview = Arc::new(told.overview);
        self.lost_series = told.lost_series;
        if let Some(picture) = told.snapshot {
            Arc::make_mut(&mut self.snapshots).add_snapshot(picture);
        }
    }

    fn cluster_mut(&mut self) -> &mut Cluster {
        Arc::get_mut(&mut self.cluster).expect("the judge gave the cluster back")
    }

    /// What the GPU at this row does, as last judged.
    fn gpu_state(&self, row: u32) -> GpuState {
        self.gpu_loss(row).shown_state()
    }

    /// What the GPU at this row does and loses, as last judged.
    fn gpu_loss(&self, row: u32) -> GpuLoss {
        self.loss.gpus.get(row as usize).copied().unwrap_or_default()
    }

    /// Lost GPUs among these.
    fn lost_gpus<'a>(&self, rows: impl IntoIterator<Item = &'a u32>) -> f64 {
        gpus_of_parts(rows.into_iter().map(|row| u64::from(self.gpu_loss(*row).lost_parts())).sum())
    }

    /// What everybody asks for, as of the last tick.
    fn published_state(&self) -> PublishedState {
        PublishedState { overview: self.overview.clone(), findings: self.findings.clone() }
    }

    /// Answers a question about the last tick.
    pub fn answer_question(&self, question: &Question) -> Answer {
        self.compute_answer(question).unwrap_or_else(Answer::Refused)
    }

    fn compute_answer(&self, question: &Question) -> Result<Answer, Refusal> {
        // Only rows of nodes need the list of nodes.
        let nodes = match question {
            Question::List(filter) | Question::Table(filter)
                if filter.subject() == Subject::Nodes =>
            {
                self.all_nodes()
            }
            Question::History(ask) if ask.of.subject() == Subject::Nodes => self.all_nodes(),
            _ => Arc::default(),
        };
        Ok(match question {
            Question::Overview => Answer::Overview(self.overview.clone()),
            Question::Findings => Answer::Findings(self.findings.clone()),
            Question::Closed => Answer::Findings(self.closed.clone()),
            Question::Finding(id) => Answer::Finding(self.explain_finding(id)?),
            Question::GpuTime => Answer::GpuTime(Arc::new(self.gpu_time())),
            Question::Nodes => Answer::Nodes(self.all_nodes()),
            Question::Targets => Answer::Targets(Arc::new(self.target_list())),
            Question::Node(name) => {
                let detail = self.node_detail(name);
                let unknown = || Refusal::UnknownNode { node: name.clone() };
                Answer::Node(Arc::new(detail.ok_or_else(unknown)?))
            }
            Question::List(filter) => self.build_list(filter, &nodes)?,
            Question::Table(filter) => Answer::Table(Arc::new(self.build_table(filter, &nodes))),
            Question::Job(job) => Answer::Job(Arc::new(self.job_detail(job)?)),
            Question::Fabric(filter) => Answer::Fabric(Arc::new(self.compute_fabric(filter))),
            Question::History(ask) => Answer::History(Arc::new(self.metric_history(ask, &nodes)?)),
            Question::Probe => Answer::Probe(Arc::new(self.probe_matrix())),
            Question::Usage(span) => Answer::Usage(Arc::new(self.usage_report(*span))),
            Question::Alerts => Answer::Alerts(self.alert_list()),
            Question::AtTime(when, question) => self.answer_in_past(*when, question)?,
        })
    }

    /// Answers as if an instant of the past were now: what was judged then stands in the place of what is judged now.
    fn answer_in_past(&self, when: TimeParam, question: &Question) -> Result<Answer, Refusal> {
        let now = self.cluster.now();
        let begins = self.snapshots.oldest_time().unwrap_or(now);
        let not_kept = Refusal::NotKept { seconds: now.duration_since(begins).as_secs() };
        let picture = self.snapshots.snapshot_at(when.to_instant(now)).cloned().ok_or(not_kept)?;
        let mut then = Self {
            options: self.options.clone(),
            cluster: self.cluster.clone(),
            judge: None,
            loss: picture.unpack_loss(),
            spare_loss: FleetLoss::default(),
            lost_series: self.lost_series.clone(),
            // Nobody can ask for the time of then.
            usage: UsageAccounting::default(),
            totals: self.totals.clone(),
            dropped_batches: self.dropped_batches.clone(),
            // How many had none is not kept.
            without_place: BTreeMap::new(),
            overview: Arc::default(),
            findings: picture.findings.clone(),
            closed: self.closed.clone(),
            closed_revision: self.closed_revision,
            acknowledgements: self.acknowledgements.clone(),
            // None of what follows is told of the past.
            meetings: PairingScheduler::default(),
            submitted_measurements: None,
            explanations: finding_answers::ExplanationsById::default(),
            confirmed_lost_time: None,
            baselines: None,
            baselines_at: None,
            baselines_opened: 0,
            nodes: OnceLock::new(),
            snapshots: self.snapshots.clone(),
            past_time: Some(picture.at),
            snapshot: Some(picture),
        };
        then.overview = Arc::new(then.build_overview());
        then.compute_answer(question)
    }

    /// What Alertmanager says; nothing if nobody asks it.
    fn alert_list(&self) -> Arc<AlertList> {
        self.options.alerts.as_ref().map(|said| said.borrow().clone()).unwrap_or_default()
    }

    /// Every node in a line each, made once a tick.
    fn all_nodes(&self) -> Arc<NodeList> {
        self.nodes.get_or_init(|| Arc::new(self.node_list())).clone()
    }
}
