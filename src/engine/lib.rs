//! The engine: the single-writer task that owns all state and findings, and the only place where time enters.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use gaunt_schema::{CertificateLine, Delivery, FindingKind, SanitizedText, TargetId, UnixMs};
use tokio::sync::watch;

use crate::pairing_scheduler::PairingScheduler;
use gaunt_api::{
    AlertList, Answer, CumulativeTotals, Finding, FindingList, JobLostTime, NodeList, NodeState,
    Overview, PeerLine, Question, Refusal, StoreLine,
};
use gaunt_cluster::{Cluster, MAX_TARGETS};
use gaunt_judge::{FleetLoss, Judge, Thresholds};

mod acknowledgements;
mod change_log;
#[cfg(test)]
mod churn_memory_tests;
mod coverage_answers;
mod engine_end;
mod engine_handle;
mod engine_loop;
mod fabric_cells;
mod finding_answers;
mod finding_contexts;
mod finding_journal;
mod fleet_overview;
mod gpu_prices;
mod guarded_answer;
mod history_answers;
mod history_readings;
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
pub mod pairing_scheduler;
mod peer_actions;
mod peer_snapshot;
mod persisted_state;
mod power_history;
mod private_files;
mod query_scheduler;
pub mod record;
mod recorded_past;
mod regular_file;
mod snapshot_history;
pub mod state_store;
mod subject_rows;
pub mod system_disk;
mod table_answers;
mod target_answers;
#[cfg(test)]
mod tests;
mod usage_accounting;
mod view;

use acknowledgements::Acknowledgements;
use change_log::ChangeLog;
use engine_handle::PublishedState;
pub use engine_handle::{EngineHandle, EngineStopped, FlushRequest, INBOX, QUESTIONS};
pub use engine_loop::{monotonic_clock, spawn_existing, spawn_new, spawn_stepped, tick_interval};
pub use finding_journal::{FindingJournal, JournalDay, JournalEntry, KEPT_DAYS, day_number};
pub use fleet_overview::{MAX_WORST, worst_findings};
pub use gaunt_judge::BaselineSnapshot;
pub use gpu_prices::{GpuModelPrice, find_model_price};
use guarded_answer::answer_guarded;
pub use history_readings::{HistoryReadings, NodeHistoryReadings};
use judgement_task::{JudgementResult, JudgementTask};
use lost_gpus::LostGpuSeries;
use peer_actions::WaitingActions;
pub use peer_snapshot::{MAX_PEER_PAST, MAX_PEER_SNAPSHOT, PeerSnapshot, PeerStateReport};
pub use persisted_state::PersistedState;
pub use recorded_past::{MAX_PAST, RecordedPast, UnreadablePast};
use snapshot_history::{SnapshotHistory, TickSnapshot};
pub use subject_rows::finding_rows;
pub use table_answers::table_of_rows;
pub use usage_accounting::UsageWindow;
use usage_accounting::{UsageAccounting, UsageDelta};
use view::View;

/// Default limit of history in bytes: a quarter of an hour of 12 million series at ten seconds.
pub const HISTORY_BYTES: usize = 2 << 30;

/// Baselines change slowly and are large: they are exported for saving at most this often.
const USUAL_EVERY: Duration = Duration::from_mins(1);
/// After a finding opens, its baselines are exported this soon: after a crash the next process must detect it again.
const USUAL_SOONEST: Duration = Duration::from_secs(5);

/// Default span of usage accounting: an hour of a thousand jobs is some 50 MB at worst.
pub const USAGE: Duration = Duration::from_hours(1);

/// Options of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Name of the cluster from the operator's configuration; may be empty.
    pub cluster: SanitizedText,
    /// The time between two scrapes of a target.
    pub period: Duration,
    /// History points of each series, one per period.
    pub slots: usize,
    /// Maximum size of the history of all series in bytes; above it, the oldest points are evicted first.
    pub history_bytes: usize,
    /// Whether history of every metric is kept, and not only of those that screens and detectors read.
    pub every_past: bool,
    /// Price of a GPU hour, if configured.
    pub price_per_gpu_hour: Option<f64>,
    /// Prices by GPU model, which precede it in usage.
    pub model_prices: Vec<GpuModelPrice>,
    /// The currency of the prices.
    pub currency: SanitizedText,
    /// The thresholds of the judge; boxed because they are large and passed on often.
    pub thresholds: Box<Thresholds>,
    /// Span of usage accounting.
    pub usage: Duration,
    /// The alerts of Alertmanager, if it is queried.
    pub alerts: Option<watch::Receiver<Arc<AlertList>>>,
    /// The other aggregators of the cluster, if there are any.
    pub peers: Option<watch::Receiver<Vec<PeerLine>>>,
    /// The store that verdicts are written to, if there is one.
    pub store: Option<watch::Receiver<Option<StoreLine>>>,
    /// The certificates that this process presents, if it has any.
    pub certificates: Option<watch::Receiver<Vec<CertificateLine>>>,
    /// Whether baselines are exported even without a state folder.
    pub says_usual: bool,
}

impl EngineOptions {
    /// The alerts of Alertmanager; empty if it is not queried.
    fn alert_list(&self) -> Arc<AlertList> {
        self.alerts.as_ref().map(|said| said.borrow().clone()).unwrap_or_default()
    }
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
            model_prices: Vec::new(),
            currency: SanitizedText::new("USD"),
            thresholds: Box::default(),
            usage: USAGE,
            alerts: None,
            peers: None,
            store: None,
            certificates: None,
            says_usual: false,
        }
    }
}

/// All state and findings, driven from outside: by the loop of [`spawn_new`], or by a test in virtual time.
#[derive(Debug)]
pub struct Engine {
    options: EngineOptions,
    cluster: Cluster,
    /// None while it runs.
    judge: Option<Judge>,
    /// State and loss of every GPU, as of the last judgement.
    loss: FleetLoss,
    /// The losses before them, kept to reuse their memory.
    spare_loss: FleetLoss,
    lost_series: LostGpuSeries,
    usage: UsageAccounting,
    totals: CumulativeTotals,
    /// Dropped batches, by reason.
    dropped_batches: BTreeMap<SanitizedText, u64>,
    /// Findings that are detected but exceed the limit of the list, by kind, as of the last judgement.
    without_place: BTreeMap<FindingKind, u32>,
    /// The targets that are to read the status of NCCL's RAS, as of the last judgement, sorted.
    ras_targets: Arc<[TargetId]>,
    /// Published once per tick.
    overview: Arc<Overview>,
    findings: Arc<FindingList>,
    /// Closed findings, as of their revision, with those of the journal.
    closed: Arc<FindingList>,
    closed_revision: u64,
    /// Closed findings of the last 90 days; only where state is persisted.
    journal: Option<FindingJournal>,
    acknowledgements: Acknowledgements,
    waiting_actions: WaitingActions,
    change_log: ChangeLog,
    pairing_scheduler: PairingScheduler,
    /// Number of ended pairings, and the minute, when measurements were last submitted to the judge.
    submitted_measurements: Option<(u64, i64)>,
    /// Explanation of each finding, as of the last judgement that made one.
    explanations: finding_answers::ExplanationsById,
    /// Lost time that is reported where state is persisted: only what is saved, so that no counter falls after a
    /// crash.
    confirmed_lost_time: Option<Vec<JobLostTime>>,
    /// Why the state is not saved now, as a sentence with the next step.
    save_failure: Option<SanitizedText>,
    /// Baselines as of the last export; only where they are persisted.
    baselines: Option<Arc<BaselineSnapshot>>,
    baselines_at: Option<UnixMs>,
    /// Since when baselines are learned, restarts included.
    learned_since: Option<UnixMs>,
    /// Number of findings that had been opened by then.
    baselines_opened: u64,
    /// Built by the first query after a tick that needs it.
    nodes: OnceLock<Arc<NodeList>>,
    /// Snapshots published at earlier ticks.
    snapshots: SnapshotHistory,
}

/// The precomputed answers of a tick, to be published.
struct TickOutput {
    overview: Overview,
    lost_series: LostGpuSeries,
    /// For the snapshot history, if one is due.
    snapshot: Option<TickSnapshot>,
    /// GPU usage since the tick before.
    usage_delta: UsageDelta,
}

impl Engine {
    /// The time between two scrapes of a target.
    pub fn scrape_period(&self) -> Duration {
        self.options.period
    }

    /// An engine without any state.
    pub fn new(options: EngineOptions) -> Self {
        let cluster =
            Cluster::new(options.period, options.slots).with_history_limit(options.history_bytes);
        let every = options.every_past;
        let cluster = if every { cluster.with_full_history(options.slots) } else { cluster };
        Self {
            cluster,
            judge: Some(Judge::new((*options.thresholds).clone())),
            loss: FleetLoss::default(),
            spare_loss: FleetLoss::default(),
            lost_series: LostGpuSeries::default(),
            usage: UsageAccounting::default(),
            totals: CumulativeTotals::default(),
            dropped_batches: BTreeMap::new(),
            without_place: BTreeMap::new(),
            ras_targets: Arc::default(),
            overview: Arc::default(),
            findings: Arc::default(),
            closed: Arc::default(),
            closed_revision: 0,
            journal: None,
            acknowledgements: Acknowledgements::default(),
            waiting_actions: WaitingActions::default(),
            change_log: ChangeLog::default(),
            pairing_scheduler: PairingScheduler::default(),
            submitted_measurements: None,
            explanations: finding_answers::ExplanationsById::default(),
            confirmed_lost_time: None,
            save_failure: None,
            baselines: None,
            baselines_at: None,
            learned_since: None,
            baselines_opened: 0,
            nodes: OnceLock::new(),
            snapshots: SnapshotHistory::default(),
            options,
        }
    }

    /// Ingests a delivery.
    pub fn ingest_delivery(&mut self, delivery: Delivery) {
        if let Delivery::Targets(targets) = &delivery
            && targets.len() > MAX_TARGETS
        {
            tracing::error!(
                targets = targets.len(),
                MAX_TARGETS,
                "too many targets: the rest is not scraped"
            );
        }
        if let Delivery::Batch(batch) = &delivery {
            let target = self.cluster.target_by_id(batch.target);
            if let Some(reason) = target_answers::drop_reason(target, batch) {
                *self.dropped_batches.entry(SanitizedText::new(reason)).or_default() += 1;
                self.cluster.drop_result(batch.target, batch.at);
                return tracing::debug!(target = batch.target.0, reason, "batch dropped");
            }
            let periods = self.cluster.periods_of(batch);
            target_answers::count_attempt(&mut self.totals, batch, periods);
        }
        self.cluster.ingest_delivery(delivery);
    }

    /// Extends deadlines because this process was late: reports of that time are still queued, so that no target
    /// counts as missed.
    fn excuse_lateness(&mut self, late: Duration) {
        self.cluster.extend_deadlines(late);
    }

    /// Advances time: runs the judge and publishes the overview.
    pub fn run_tick(&mut self, now: UnixMs) {
        if let Some(judging) = self.begin_tick(now) {
            let judged = judging.run(&self.cluster);
            self.end_tick(judged);
            self.publish_tick(self.build_tick_output());
        }
    }

    /// First part of a tick, up to the judgement, which can run on another thread: meanwhile, queries are answered
    /// from the current state and the previous judgement. None if a judgement is running.
    fn begin_tick(&mut self, now: UnixMs) -> Option<JudgementTask> {
        self.submit_measurements();
        self.apply_accepted_levels();
        let judge = self.judge.take()?;
        self.cluster.advance_to(now);
        if let Some(certificates) = &mut self.options.certificates {
            let certificates = certificates.borrow_and_update().clone();
            self.cluster.set_own_certificates(certificates);
        }
        self.learned_since.get_or_insert(now);
        let opened = self.totals.findings_opened.values().sum::<u64>() != self.baselines_opened;
        let every = if opened { USUAL_SOONEST } else { USUAL_EVERY };
        let due = self.baselines_at.is_none_or(|at| now.duration_since(at) >= every || at > now);
        let usual = (self.options.says_usual || self.confirmed_lost_time.is_some()) && due;
        Some(JudgementTask {
            judge,
            spare_loss: std::mem::take(&mut self.spare_loss),
            closed_revision: self.closed_revision,
            wants_baselines: usual,
        })
    }

    /// Second part: applies the result of the judgement.
    fn end_tick(&mut self, judged: JudgementResult) {
        let JudgementResult {
            judge,
            loss,
            findings,
            closed,
            explanations: chains,
            baselines: usual,
            ras_targets,
        } = judged;
        self.ras_targets = ras_targets.into();
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
        self.change_log.compare_fleet(&self.cluster);
        self.store_findings(findings, closed);
        self.clear_node_list();
    }

    /// A tick without a judgement: the previous one stays valid, and everything else is updated.
    fn tick_without_judgement(&mut self, now: UnixMs) {
        self.cluster.advance_to(now);
        self.clear_node_list();
    }

    /// Drops what is cached per tick.
    fn clear_node_list(&mut self) {
        self.nodes = OnceLock::new();
    }

    /// Third part: builds the output of the tick, which can run on another thread like the judgement.
    fn build_tick_output(&self) -> TickOutput {
        let (at, view) = (self.cluster.now(), self.view());
        let mut overview = view.build_overview();
        let mut lost_series = self.lost_series.clone();
        lost_series.record_loss(at, fleet_overview::known_loss(&overview));
        overview.lost.history = lost_series.points_until(at);
        let snapshot = self.snapshots.is_due(at).then(|| {
            let not_live = self.cluster.sorted_nodes().filter_map(|(_, node)| {
                let state = view.node_state(node);
                (state != NodeState::Live).then(|| (node.name.clone(), state))
            });
            let (not_live, findings) = (Arc::new(not_live.collect()), self.findings.clone());
            TickSnapshot::new(at, &self.loss, findings, overview.nodes, not_live)
        });
        TickOutput { overview, lost_series, snapshot, usage_delta: self.count_usage() }
    }

    /// Last part: publishes the output and stores it in the snapshot history.
    fn publish_tick(&mut self, output: TickOutput) {
        self.record_usage(output.usage_delta);
        self.overview = Arc::new(output.overview);
        // What was read back meanwhile stays.
        self.lost_series = output.lost_series.with_earlier(&self.lost_series);
        if let Some(snapshot) = output.snapshot {
            self.snapshots.add_snapshot(snapshot);
        }
    }

    /// The precomputed answers, as of the last tick.
    fn published_state(&self) -> PublishedState {
        PublishedState {
            overview: self.overview.clone(),
            findings: self.findings.clone(),
            ras_targets: self.ras_targets.clone(),
            peer_actions: self.actions_to_pass().into(),
        }
    }

    /// Answers a question about the last tick.
    pub fn answer_question(&self, question: &Question) -> Answer {
        answer_guarded(|| self.compute_answer(question))
    }

    fn compute_answer(&self, question: &Question) -> Result<Answer, Refusal> {
        self.answer_from_view(&self.view(), question)
    }

    fn answer_from_view(&self, view: &View<'_>, question: &Question) -> Result<Answer, Refusal> {
        let is_past = view.past.is_some();
        Ok(match question {
            Question::Overview if is_past => Answer::Overview(Arc::new(view.build_overview())),
            Question::Overview => Answer::Overview(self.overview.clone()),
            Question::Findings => Answer::Findings(view.findings.clone()),
            Question::Closed => Answer::Findings(self.closed.clone()),
            Question::Finding(id) => Answer::Finding(self.explain_finding(view, id)?),
            Question::Nodes => Answer::Nodes(view.all_nodes().clone()),
            Question::Targets => Answer::Targets(Arc::new(view.target_list())),
            Question::Node(name) => {
                let detail = view.node_detail(name);
                let unknown = || Refusal::UnknownNode { node: name.clone() };
                Answer::Node(Arc::new(detail.ok_or_else(unknown)?))
            }
            Question::List(filter) => view.build_list(filter)?,
            Question::Table(filter) => Answer::Table(Arc::new(view.build_table(filter))),
            Question::Job(job) => Answer::Job(Arc::new(view.job_detail(job)?)),
            Question::Fabric(filter) => Answer::Fabric(Arc::new(view.compute_fabric(filter))),
            Question::History(ask) => Answer::History(Arc::new(view.metric_history(ask)?)),
            Question::GpuTime => {
                // Accounting of a past time is not kept.
                let starved = if is_past { Vec::new() } else { self.reported_lost_time() };
                Answer::GpuTime(Arc::new(view.gpu_time(starved)))
            }
            Question::Probe => Answer::Probe(Arc::new(self.probe_matrix(view))),
            Question::Usage(span) => Answer::Usage(Arc::new(self.usage_report(view, *span))),
            Question::Alerts => Answer::Alerts(self.options.alert_list()),
            Question::Coverage => Answer::Coverage(Arc::new(view.telemetry_coverage())),
            Question::AtTime(when, question) => self.answer_in_past(*when, question)?,
        })
    }
}
