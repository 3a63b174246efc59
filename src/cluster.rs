//! The cluster: what is known about its nodes, devices and targets. No input or output, no clock.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use gaunt_schema::{
    Absent, Class, Delivery, Keeping, MetricId, Reading, Safe, TargetId, TargetSource, UnixMs,
    catalogue::CATALOGUE, unit::Kind,
};

mod column;
mod history;
mod identity;
mod inventory;
mod jobs;
mod kept_past;
mod late_share;
#[cfg(test)]
mod merging;
mod node;
mod rate;
mod refused_devices;
mod speaker;
mod take;
mod target;
#[cfg(test)]
mod tests;
mod wiring;

use column::Column;
use inventory::Inventory;
pub use jobs::JobTold;
use jobs::Jobs;
pub use kept_past::KeptPast;
use kept_past::Unclaimed;
pub use late_share::LateShare;
pub use node::{Entry, Node, NodeId, host_of};
pub use refused_devices::RefusedDevices;
pub use speaker::Speaker;
pub use target::{Scraped, Standing};
use wiring::Facts;
pub use wiring::{Domain, GpuWiring, Leaf, NodeWiring, PortWiring, Told, Wiring};

/// Values are too old to stand for now after this many periods.
const STALE_PERIODS: u32 = 3;

/// The most targets that are kept: a fleet of 100,000 GPUs has 12,500 nodes, with two exporters each.
pub const MAX_TARGETS: usize = 25_000;

/// Attempts that fail in a row until a node is down.
const DOWN_AFTER: u32 = 2;

/// The share of the limit of history that is kept free: what comes until it is looked at again.
const HISTORY_MARGIN: usize = 16;

/// How fresh a node's data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It is read each period.
    Live,
    /// It was read, and its values are too old to stand for now.
    Stale,
    /// All targets that speak for it fail.
    Down,
}

/// All that is known.
#[derive(Debug)]
pub struct Cluster {
    period: Duration,
    now: UnixMs,
    targets: Vec<Scraped>,
    places: HashMap<TargetId, usize>,
    sources: Vec<TargetSource>,
    keeping: Option<Keeping>,
    late_share: LateShare,
    /// Targets of which nobody reported an attempt, at the last [`Self::advance`].
    untried: usize,
    inventory: Inventory,
    columns: Vec<Column>,
    /// The most bytes of history, all metrics together.
    history_limit: usize,
    /// Whether devices that have no history yet may get one.
    may_grow: bool,
    jobs: Jobs,
    jobs_changed: bool,
    facts: Facts,
    wiring: Wiring,
    wiring_changed: bool,
    /// Points of history from before the first page, of devices that no page named yet.
    unclaimed: Unclaimed,
}

impl Cluster {
    /// A cluster of which nothing is known: read each `period`, with a history of `slots` periods.
    pub fn new(period: Duration, slots: usize) -> Self {
        let period = period.max(Duration::from_millis(1));
        Self {
            period,
            now: UnixMs::default(),
            targets: Vec::new(),
            places: HashMap::new(),
            sources: Vec::new(),
            keeping: None,
            late_share: LateShare::default(),
            untried: 0,
            inventory: Inventory::default(),
            columns: MetricId::all().map(|id| Column::new(id, slots.max(1))).collect(),
            history_limit: usize::MAX,
            may_grow: true,
            jobs: Jobs::default(),
            jobs_changed: false,
            facts: Facts::default(),
            wiring: Wiring::default(),
            wiring_changed: false,
            unclaimed: Unclaimed::default(),
        }
    }

    /// The same with at most so many bytes of history: beyond, the oldest goes first.
    #[must_use]
    pub fn with_history_of(self, bytes: usize) -> Self {
        Self { history_limit: bytes, ..self }
    }

    /// The same with a past of every metric, of so many periods, not only of those that screens and judge look back at.
    #[must_use]
    pub fn with_every_past(mut self, slots: usize) -> Self {
        for (metric, column) in MetricId::all().zip(&mut self.columns) {
            if metric.row().kind != Kind::Info && metric.row().class != Class::Fleet {
                *column = Column::new(metric, slots).with_past(metric, slots.max(1));
            }
        }
        self
    }

    /// Whether a past of this metric is kept.
    pub fn keeps_past(&self, metric: MetricId) -> bool {
        self.column(metric).has_past()
    }

    /// Takes what a sender brought.
    pub fn accept(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Targets(targets) => self.announce(targets),
            Delivery::Batch(batch) => self.take(&batch),
            Delivery::Topology(topology) => {
                self.facts.replace(topology);
                self.wiring_changed = true;
            }
            Delivery::Jobs(list) => {
                self.jobs.replace(list);
                self.jobs_changed = true;
            }
            Delivery::Sources(sources) => self.sources = sources,
            Delivery::Keeping(keeping) => self.keeping = Some(keeping),
            // Whoever reads a recording begins with it; to a cluster that is running it says nothing.
            Delivery::Preamble(_) => {}
        }
    }

    /// The owner itself was late by so much: what was reported meanwhile is not taken yet, and nobody is missed for that.
    pub fn excuse(&mut self, late: Duration) {
        self.late_share.stall(self.now + late, late);
        for target in &mut self.targets {
            target.excuse(late);
        }
    }

    /// How much of the last minute gaunt itself was late.
    pub fn late_share(&self) -> &LateShare {
        &self.late_share
    }

    /// The share of the last minute's attempts that say nothing of their targets, and how many those are.
    pub fn unjudged_attempts(&self) -> (f64, u32) {
        let due = self.targets.len() as f64 * late_share::SPAN.div_duration_f64(self.period);
        self.late_share.unjudged(due)
    }

    /// Targets of which nobody reported an attempt in its time: gaunt did not come to read them.
    pub fn untried(&self) -> usize {
        self.untried
    }

    /// Counts a result of an attempt at this target that ended at `at` and is not taken.
    pub fn drop_result(&mut self, target: TargetId, at: UnixMs) {
        if let Some(place) = self.places.get(&target) {
            self.targets[*place].drop_result(at);
        }
    }

    /// Lets time pass until `now`: flags targets that were not reported, forgets what is long gone.
    pub fn advance(&mut self, now: UnixMs) {
        self.now = self.now.max(now);
        for target in &mut self.targets {
            target.expire(self.now, self.period);
        }
        self.untried = self.targets.iter().filter(|target| target.is_missed()).count();
        self.late_share.advance(self.now);
        self.claim_past();
        self.shed();
        if self.inventory.forget(self.now, &mut self.columns) {
            self.rows_freed();
        }
        if std::mem::take(&mut self.jobs_changed) {
            self.jobs.resolve(&self.inventory);
        }
        if std::mem::take(&mut self.wiring_changed) {
            self.wiring = Wiring::resolve(&self.facts, &self.inventory);
        }
    }

    /// Keeps history within its limit: the oldest goes first, of all metrics alike. Where even the newest is too much,
    /// devices that have none get none.
    fn shed(&mut self) {
        let limit = self.history_limit - self.history_limit / HISTORY_MARGIN;
        let mut histories: Vec<_> = self.columns.iter_mut().filter_map(Column::history).collect();
        let mut bytes: usize = histories.iter().map(|history| history.bytes()).sum();
        while bytes > limit {
            let Some(end) = histories.iter().filter_map(|history| history.oldest_end()).min()
            else {
                break;
            };
            for history in &mut histories {
                history.shed(end);
            }
            bytes = histories.iter().map(|history| history.bytes()).sum();
        }
        self.may_grow = bytes <= limit;
    }

    /// What all history costs, in bytes.
    pub fn history_bytes(&mut self) -> usize {
        let histories = self.columns.iter_mut().filter_map(Column::history);
        histories.map(|history| history.bytes()).sum()
    }

    /// The instant of the last [`Self::advance`].
    pub fn now(&self) -> UnixMs {
        self.now
    }

    /// The time between two scrapes of a target.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Every target, in the order in which they were named.
    pub fn targets(&self) -> &[Scraped] {
        &self.targets
    }

    /// Where the targets come from.
    pub fn sources(&self) -> &[TargetSource] {
        &self.sources
    }

    /// How the recording of all this stands, if there is one.
    pub fn keeping(&self) -> Option<&Keeping> {
        self.keeping.as_ref()
    }

    /// The target of this number.
    pub fn target(&self, id: TargetId) -> Option<&Scraped> {
        self.targets.get(*self.places.get(&id)?)
    }

    /// Every node in name order.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.inventory.nodes()
    }

    /// The node of this number.
    #[inline]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.inventory.node(id)
    }

    /// The node of this name.
    pub fn named(&self, name: &str) -> Option<(NodeId, &Node)> {
        let id = self.inventory.named(name)?;
        Some((id, self.inventory.node(id)?))
    }

    /// How many rows a class has: one more than the highest that is in use.
    pub fn rows(&self, class: Class) -> usize {
        self.inventory.rows(class)
    }

    /// The device at a row of its class.
    #[inline]
    pub fn device(&self, class: Class, row: u32) -> Option<&Entry> {
        self.inventory.entry(class, row)
    }

    /// The model of the GPU at a row, if anybody says it.
    #[inline]
    pub fn model(&self, gpu: u32) -> Option<&Safe> {
        self.inventory.model(gpu)
    }

    /// Whether no page named the device at a row lately.
    #[inline]
    pub fn is_unseen(&self, class: Class, row: u32) -> bool {
        self.inventory.seen(class, row).is_none_or(|at| self.is_old(at))
    }

    /// GPUs of each job, by row.
    pub fn jobs(&self) -> &BTreeMap<Safe, Vec<u32>> {
        self.jobs.gpus()
    }

    /// The job that holds a GPU, as of the last [`Self::advance`]: its page's word, else that of a scheduler.
    #[inline]
    pub fn job(&self, gpu: u32) -> Option<&Safe> {
        self.jobs.of(gpu)
    }

    /// How many GPUs the job that holds this one has; none without a job.
    pub fn job_size(&self, gpu: u32) -> Option<u32> {
        self.jobs.size(gpu)
    }

    /// Who a job is, as far as pages and schedulers say.
    pub fn job_told(&self, job: &str) -> Option<&JobTold> {
        self.jobs.told(job)
    }

    /// What hangs where, as of the last [`Self::advance`].
    pub fn wiring(&self) -> &Wiring {
        &self.wiring
    }

    /// How fresh a node's data is.
    #[inline]
    pub fn freshness(&self, node: &Node) -> Freshness {
        let down = |speaker: &Speaker| {
            self.target(speaker.target).is_some_and(|t| t.has_failed() && t.failures >= DOWN_AFTER)
        };
        if !node.speakers.is_empty() && node.speakers.iter().all(down) {
            return Freshness::Down;
        }
        match node.sampled {
            Some(at) if !self.is_old(at) => Freshness::Live,
            _ => Freshness::Stale,
        }
    }

    /// The last reading of a metric on the device at `row`; stale if it is too old, none if there never was one.
    #[inline]
    pub fn reading(&self, metric: MetricId, row: u32) -> Option<Reading> {
        let (reading, at) = self.column(metric).last(row)?;
        Some(if self.is_old(at) { Absent::Stale.into() } else { reading })
    }

    /// The value of a metric now, if it is known.
    #[inline]
    pub fn value(&self, metric: MetricId, row: u32) -> Option<f64> {
        self.reading(metric, row)?.value()
    }

    /// The last value of a metric, however old.
    #[inline]
    pub fn last_value(&self, metric: MetricId, row: u32) -> Option<f64> {
        self.column(metric).last(row)?.0.value()
    }

    /// When the last value of a metric came; none if its last reading is an absence.
    pub fn last_value_at(&self, metric: MetricId, row: u32) -> Option<UnixMs> {
        let (reading, at) = self.column(metric).last(row)?;
        reading.value().map(|_| at)
    }

    /// What a counter grows by in a second now, if it is known.
    #[inline]
    pub fn rate(&self, metric: MetricId, row: u32) -> Option<f64> {
        let (_, at) = self.column(metric).last(row)?;
        if self.is_old(at) { None } else { self.column(metric).rate(row) }
    }

    /// The recent past of a metric of a node's device, oldest first, the last point the node's newest: at most `most`
    /// points.
    pub fn past(
        &self,
        metric: MetricId,
        node: &Node,
        row: u32,
        most: usize,
    ) -> Option<Vec<Option<f32>>> {
        let now = self.slot(self.now);
        // The node's own page of this period may still be on its way: that is no gap.
        let newest = node.sampled.map_or(now, |at| self.slot(at));
        self.column(metric).past(row, if now - newest <= 1 { newest } else { now }, most)
    }

    /// What a gauge was, or what a counter grew by in a second, at an instant of the past that is kept.
    pub fn value_at(&self, metric: MetricId, row: u32, at: UnixMs) -> Option<f64> {
        let within = STALE_PERIODS as usize;
        self.column(metric).then(row, self.slot(at), within).map(f64::from)
    }

    /// The recent past of a metric up to an instant of it, oldest first: at most `most` points.
    pub fn past_until(
        &self,
        metric: MetricId,
        row: u32,
        at: UnixMs,
        most: usize,
    ) -> Option<Vec<Option<f32>>> {
        self.column(metric).past(row, self.slot(at), most)
    }

    /// Rows may be given to other devices from now on: nobody may remember where his were.
    fn rows_freed(&mut self) {
        self.jobs_changed = true;
        self.wiring_changed = true;
        for target in &mut self.targets {
            target.layout = target::Layout::default();
        }
    }

    #[inline]
    fn column(&self, metric: MetricId) -> &Column {
        &self.columns[usize::from(metric.0).min(CATALOGUE.len() - 1)]
    }

    /// How long values stand for now.
    pub fn fresh_for(&self) -> Duration {
        self.period * STALE_PERIODS
    }

    /// Whether what came at this instant is too old to stand for now.
    #[inline]
    pub fn is_old(&self, at: UnixMs) -> bool {
        self.now.since(at) > self.fresh_for()
    }

    fn slot(&self, at: UnixMs) -> i64 {
        at.0.div_euclid(self.period.as_millis() as i64)
    }
}
