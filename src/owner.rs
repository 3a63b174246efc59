//! The owner: holds everything that is known and judged, and is the only place where time enters.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use gaunt_schema::{Delivery, FindingKind, GpuState, Safe, UnixMs};
use tokio::sync::watch;

use crate::{
    answer::{
        AlertList, Answer, Finding, FindingList, NodeList, NodeState, Overview, Question, Refusal,
        Starved, Subject, Totals, When,
    },
    cluster::{Cluster, MAX_TARGETS},
    judge::{GpuLoss, Judge, Loss, Thresholds, gpus_of_parts},
    meeting::Meetings,
};

mod account;
mod acknowledged;
mod album;
mod desk;
mod fabric;
mod findings;
#[cfg(test)]
mod growth;
mod handle;
mod history;
mod ingest_budget;
mod job;
mod lost;
mod meeting;
mod nodes;
mod overview;
#[cfg(test)]
mod own_lateness;
mod recorded_past;
mod remembered;
mod rows;
mod run;
mod sight;
mod strips;
mod table;
mod targets;
#[cfg(test)]
mod tests;

pub use crate::judge::Usual;
pub use account::Recent;
use account::{Account, Counted};
use acknowledged::Acknowledgements;
use album::{Album, Picture};
use handle::Published;
pub use handle::{Flush, Gone, Handle, INBOX, QUESTIONS};
use lost::Ledger;
pub use recorded_past::{MAX_PAST, RecordedPast, UnreadablePast};
pub use remembered::Remembered;
pub use run::{clock, resume, start, start_led, tick};

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
pub struct Options {
    /// The cluster's name as the operator gave it; may be empty.
    pub cluster: Safe,
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
    pub currency: Safe,
    /// The limits of the judge: many, and passed through many hands.
    pub thresholds: Box<Thresholds>,
    /// For how long usage is known.
    pub usage: Duration,
    /// What Alertmanager says, if anybody asks it.
    pub alerts: Option<watch::Receiver<Arc<AlertList>>>,
    /// Whether what is usual is said for who keeps it, also without a state folder.
    pub says_usual: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cluster: Safe::default(),
            period: Duration::from_secs(1),
            slots: 120,
            history_bytes: HISTORY_BYTES,
            every_past: false,
            price_per_gpu_hour: None,
            currency: Safe::new("USD"),
            thresholds: Box::default(),
            usage: USAGE,
            alerts: None,
            says_usual: false,
        }
    }
}

/// All that is known and judged, driven from outside: by the loop of [`start`], or by a test in virtual time.
#[derive(Debug)]
pub struct Owner {
    options: Options,
    /// Shared with the judge while he looks at it; nothing is written into it meanwhile.
    cluster: Arc<Cluster>,
    /// Away while he judges.
    judge: Option<Judge>,
    /// What every GPU does and loses, as last judged.
    loss: Loss,
    /// The losses before them, whose place is used again.
    earlier: Loss,
    ledger: Ledger,
    account: Account,
    totals: Totals,
    /// Batches that were not taken, by reason.
    dropped_batches: BTreeMap<Safe, u64>,
    /// Findings that are seen and have no place, by kind, as last judged.
    without_place: BTreeMap<FindingKind, u32>,
    /// Published once a tick.
    overview: Arc<Overview>,
    findings: Arc<FindingList>,
    /// Findings that closed, as of their revision.
    closed: Arc<FindingList>,
    closed_revision: u64,
    acknowledgements: Acknowledgements,
    meetings: Meetings,
    /// How many meetings had ended, and in which minute, when the judge was last told of them.
    told_measured: Option<(u64, i64)>,
    /// What was around each finding when that was last looked at.
    chains: findings::Chains,
    /// What is told of what was lost where it is kept: only what was, so that no counter falls when the process is killed.
    told_spent: Option<Vec<Starved>>,
    /// What is usual, as it was learned when that was last asked for; only where it is kept.
    usual: Option<Arc<Usual>>,
    usual_at: Option<UnixMs>,
    /// How many findings had been opened then.
    usual_opened: u64,
    /// Made for the first question after a tick that needs it.
    nodes: OnceLock<Arc<NodeList>>,
    /// What was published at earlier ticks.
    album: Arc<Album>,
    /// The instant that is seen while a question about the past is answered, and its picture; none otherwise.
    then: Option<UnixMs>,
    picture: Option<Picture>,
}

/// What everybody asks for, as it is to be published.
struct Told {
    overview: Overview,
    ledger: Ledger,
    /// For the album, if it wants one.
    picture: Option<Picture>,
    /// What GPUs did since the tick before.
    counted: Counted,
}

/// A judgement that is to be made, on whatever thread.
struct Judging {
    cluster: Arc<Cluster>,
    judge: Judge,
    /// The losses before those that are published: their place is used again.
    earlier: Loss,
    /// The closed findings that are known already.
    closed_revision: u64,
    /// Whether to say what is usual.
    usual: bool,
}

/// A judgement that was made.
struct Judged {
    judge: Judge,
    loss: Loss,
    findings: Vec<Finding>,
    /// Findings that closed, if they are others than before.
    closed: Option<Vec<Finding>>,
    chains: findings::Chains,
    usual: Option<Usual>,
}

impl Judging {
    /// Makes it, and gives the cluster back.
    fn run(self) -> Judged {
        let Self { cluster, mut judge, earlier, closed_revision, usual } = self;
        judge.step(&cluster);
        let loss = judge.swap_loss(earlier);
        let findings = judge.open().into_iter().map(findings::answer).collect();
        let closed = (judge.closed_revision() != closed_revision)
            .then(|| judge.closed().into_iter().map(findings::answer).collect());
        let chains = findings::chains(&judge);
        let usual = usual.then(|| judge.usual(&cluster));
        Judged { judge, loss, findings, closed, chains, usual }
    }
}

impl Owner {
    /// The time between two scrapes of a target.
    pub fn period(&self) -> Duration {
        self.options.period
    }

    /// An owner that knows nothing yet.
    pub fn new(options: Options) -> Self {
        let cluster =
            Cluster::new(options.period, options.slots).with_history_of(options.history_bytes);
        let every = options.every_past;
        let cluster = if every { cluster.with_every_past(options.slots) } else { cluster };
        Self {
            cluster: Arc::new(cluster),
            judge: Some(Judge::new((*options.thresholds).clone())),
            loss: Loss::default(),
            earlier: Loss::default(),
            ledger: Ledger::default(),
            account: Account::default(),
            totals: Totals::default(),
            dropped_batches: BTreeMap::new(),
            without_place: BTreeMap::new(),
            overview: Arc::default(),
            findings: Arc::default(),
            closed: Arc::default(),
            closed_revision: 0,
            acknowledgements: Acknowledgements::default(),
            meetings: Meetings::default(),
            told_measured: None,
            chains: findings::Chains::default(),
            told_spent: None,
            usual: None,
            usual_at: None,
            usual_opened: 0,
            nodes: OnceLock::new(),
            album: Arc::default(),
            then: None,
            picture: None,
            options,
        }
    }

    /// Takes what a sender brought.
    pub fn accept(&mut self, delivery: Delivery) {
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
            let target = self.cluster.target(batch.target);
            if let Some(reason) = targets::dropped(target, batch) {
                *self.dropped_batches.entry(Safe::new(reason)).or_default() += 1;
                self.cluster_mut().drop_result(batch.target, batch.at);
                return tracing::debug!(target = batch.target.0, reason, "batch is dropped");
            }
            targets::count(&mut self.totals, batch);
        }
        self.cluster_mut().accept(delivery);
    }

    /// This process was late by so much: what targets reported meanwhile still waits, and none is missed for that.
    fn excuse(&mut self, late: Duration) {
        if self.judge.is_some() {
            self.cluster_mut().excuse(late);
        }
    }

    /// Lets time pass: judges what is known and publishes the overview.
    pub fn tick(&mut self, now: UnixMs) {
        if let Some(judging) = self.begin_tick(now) {
            self.end_tick(judging.run());
            self.publish(self.told());
        }
    }

    /// The first part of a tick, up to the judgement, which can be made elsewhere: meanwhile questions are answered
    /// from what is known and from the judgement before. Nothing if a judgement is being made.
    fn begin_tick(&mut self, now: UnixMs) -> Option<Judging> {
        self.tell_measured();
        self.tell_accepted();
        let judge = self.judge.take()?;
        self.cluster_mut().advance(now);
        let (cluster, closed_revision) = (self.cluster.clone(), self.closed_revision);
        let opened = self.totals.findings_opened.values().sum::<u64>() != self.usual_opened;
        let every = if opened { USUAL_SOONEST } else { USUAL_EVERY };
        let due = self.usual_at.is_none_or(|at| now.since(at) >= every || at > now);
        let usual = (self.options.says_usual || self.told_spent.is_some()) && due;
        let earlier = std::mem::take(&mut self.earlier);
        Some(Judging { cluster, judge, earlier, closed_revision, usual })
    }

    /// The second part: takes the judgement.
    fn end_tick(&mut self, judged: Judged) {
        let Judged { judge, loss, findings, closed, chains, usual } = judged;
        if let Some(usual) = usual {
            (self.usual, self.usual_at) = (Some(Arc::new(usual)), Some(self.cluster.now()));
            self.usual_opened = judge.opened().values().sum();
        }
        self.chains = chains;
        self.closed_revision = judge.closed_revision();
        self.totals.findings_opened.clone_from(judge.opened());
        self.without_place.clone_from(judge.without_place());
        self.judge = Some(judge);
        self.earlier = std::mem::replace(&mut self.loss, loss);
        self.take_findings(findings, closed);
        self.renew();
    }

    /// A tick without a judgement: the one before stands, and all else is as it is now.
    fn pass(&mut self, now: UnixMs) {
        if self.judge.is_some() {
            self.cluster_mut().advance(now);
            self.renew();
        }
    }

    /// What hangs on the tick is that of now.
    fn renew(&mut self) {
        self.nodes = OnceLock::new();
    }

    /// The third part: what is to be published now, which can be made elsewhere like the judgement.
    fn told(&self) -> Told {
        let (at, mut overview) = (self.cluster.now(), self.overview());
        let mut ledger = self.ledger.clone();
        ledger.note(at, overview::loss(&overview));
        overview.lost.history = ledger.until(at);
        let picture = self.album.wants(at).then(|| {
            let ailing = self.cluster.nodes().filter_map(|(_, node)| {
                let state = self.state(node);
                (state != NodeState::Live).then(|| (node.name.clone(), state))
            });
            let (ailing, findings) = (Arc::new(ailing.collect()), self.findings.clone());
            Picture::new(at, &self.loss, findings, overview.nodes, ailing)
        });
        Told { overview, ledger, picture, counted: self.count_time() }
    }

    /// The last part: publishes it, and keeps it for who looks back.
    fn publish(&mut self, told: Told) {
        self.take_time(told.counted);
        self.overview = Arc::new(told.overview);
        self.ledger = told.ledger;
        if let Some(picture) = told.picture {
            Arc::make_mut(&mut self.album).keep(picture);
        }
    }

    fn cluster_mut(&mut self) -> &mut Cluster {
        Arc::get_mut(&mut self.cluster).expect("the judge gave the cluster back")
    }

    /// What the GPU at this row does, as last judged.
    fn state_of(&self, row: u32) -> GpuState {
        self.gpu_loss(row).state()
    }

    /// What the GPU at this row does and loses, as last judged.
    fn gpu_loss(&self, row: u32) -> GpuLoss {
        self.loss.gpus.get(row as usize).copied().unwrap_or_default()
    }

    /// Lost GPUs among these.
    fn lost_gpus<'a>(&self, rows: impl IntoIterator<Item = &'a u32>) -> f64 {
        gpus_of_parts(rows.into_iter().map(|row| u64::from(self.gpu_loss(*row).parts())).sum())
    }

    /// What everybody asks for, as of the last tick.
    fn published(&self) -> Published {
        Published { overview: self.overview.clone(), findings: self.findings.clone() }
    }

    /// Answers a question about the last tick.
    pub fn answer(&self, question: &Question) -> Answer {
        self.work_out(question).unwrap_or_else(Answer::Refused)
    }

    fn work_out(&self, question: &Question) -> Result<Answer, Refusal> {
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
            Question::Finding(id) => Answer::Finding(self.explanation(id)?),
            Question::GpuTime => Answer::GpuTime(Arc::new(self.gpu_time())),
            Question::Nodes => Answer::Nodes(self.all_nodes()),
            Question::Targets => Answer::Targets(Arc::new(self.target_list())),
            Question::Node(name) => {
                let detail = self.node_detail(name);
                let unknown = || Refusal::UnknownNode { node: name.clone() };
                Answer::Node(Arc::new(detail.ok_or_else(unknown)?))
            }
            Question::List(filter) => self.list(filter, &nodes)?,
            Question::Table(filter) => Answer::Table(Arc::new(self.table(filter, &nodes))),
            Question::Job(job) => Answer::Job(Arc::new(self.job_detail(job)?)),
            Question::Fabric(filter) => Answer::Fabric(Arc::new(self.fabric(filter))),
            Question::History(ask) => Answer::History(Arc::new(self.history(ask, &nodes)?)),
            Question::Probe => Answer::Probe(Arc::new(self.probe_matrix())),
            Question::Usage(span) => Answer::Usage(Arc::new(self.usage(*span))),
            Question::Alerts => Answer::Alerts(self.alerts()),
            Question::Then(when, question) => self.look_back(*when, question)?,
        })
    }

    /// Answers as if an instant of the past were now: what was judged then stands in the place of what is judged now.
    fn look_back(&self, when: When, question: &Question) -> Result<Answer, Refusal> {
        let now = self.cluster.now();
        let begins = self.album.begins().unwrap_or(now);
        let not_kept = Refusal::NotKept { seconds: now.since(begins).as_secs() };
        let picture = self.album.at(when.instant(now)).cloned().ok_or(not_kept)?;
        let mut then = Self {
            options: self.options.clone(),
            cluster: self.cluster.clone(),
            judge: None,
            loss: picture.loss(),
            earlier: Loss::default(),
            ledger: self.ledger.clone(),
            // Nobody can ask for the time of then.
            account: Account::default(),
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
            meetings: Meetings::default(),
            told_measured: None,
            chains: findings::Chains::default(),
            told_spent: None,
            usual: None,
            usual_at: None,
            usual_opened: 0,
            nodes: OnceLock::new(),
            album: self.album.clone(),
            then: Some(picture.at),
            picture: Some(picture),
        };
        then.overview = Arc::new(then.overview());
        then.work_out(question)
    }

    /// What Alertmanager says; nothing if nobody asks it.
    fn alerts(&self) -> Arc<AlertList> {
        self.options.alerts.as_ref().map(|said| said.borrow().clone()).unwrap_or_default()
    }

    /// Every node in a line each, made once a tick.
    fn all_nodes(&self) -> Arc<NodeList> {
        self.nodes.get_or_init(|| Arc::new(self.node_list())).clone()
    }
}
