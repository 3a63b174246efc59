//! The cluster model: state of all nodes, devices and targets. It does no I/O and reads no clock.

use std::{collections::HashMap, time::Duration};

use gaunt_schema::{
    AbsenceReason, CertificateLine, Delivery, DeviceClass, MetricId, Reading, RecordingStatus,
    SanitizedText, SiteFileStatus, TargetId, TargetSource, UnixMs, catalogue::CATALOGUE,
    unit::MetricKind,
};

mod arrival_offset;
mod batch_ingest;
mod cluster_node;
mod cluster_topology;
mod column;
mod device_identity;
mod device_inventory;
mod history_column;
mod job_table;
mod kept_past;
mod late_share;
#[cfg(test)]
mod multi_exporter_tests;
mod name_spelling;
mod node_join;
mod node_rivals;
mod port_kind;
mod port_netdevs;
mod rate;
mod refused_devices;
mod renewal_interval;
mod source_priority;
mod split_nodes;
#[cfg(test)]
mod tests;
mod tracked_target;

use arrival_offset::{ArrivalOffset, ArrivalOrigin};
pub use cluster_node::{DeviceEntry, Node, NodeId, host_of};
use cluster_topology::TopologyFacts;
pub use cluster_topology::{
    AttributedFact, ClusterTopology, GpuTopology, LeafSwitch, NodeTopology, NvlinkDomainMembers,
    PortTopology,
};
use column::MetricColumn;
use device_inventory::DeviceInventory;
pub use job_table::JobAttributes;
use job_table::JobTable;
pub use kept_past::KeptPast;
use kept_past::Unclaimed;
pub use late_share::LateShare;
use node_rivals::RememberedAddresses;
pub use port_netdevs::{NetdevName, PortName, is_adapter, is_named_by_address, join_netdevs};
pub use refused_devices::RefusedDevices;
pub use renewal_interval::RenewalInterval;
pub use source_priority::MetricSource;
pub use tracked_target::{TargetHealth, TrackedTarget};

/// Values are stale after this many periods.
const STALE_PERIODS: u32 = 3;

/// Maximum number of targets: a fleet of 100,000 GPUs has 12,500 nodes with two exporters each.
pub const MAX_TARGETS: usize = 25_000;

/// Consecutive failed attempts after which a node is down.
const DOWN_AFTER: u32 = 2;

/// Share of the history limit that is kept free for points that arrive before the next check.
const HISTORY_MARGIN: usize = 16;

/// How fresh a node's data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFreshness {
    /// Scraped each period.
    Live,
    /// Scraped before, but its values are stale.
    Stale,
    /// All targets that report this node fail.
    Down,
}

/// The state of the whole cluster.
#[derive(Debug)]
pub struct Cluster {
    period: Duration,
    now: UnixMs,
    targets: Vec<TrackedTarget>,
    target_positions: HashMap<TargetId, usize>,
    /// The positions of the targets at each host.
    targets_at_host: HashMap<SanitizedText, Vec<usize>>,
    sources: Vec<TargetSource>,
    site_files: Vec<SiteFileStatus>,
    recording_status: Option<RecordingStatus>,
    own_certificates: Vec<CertificateLine>,
    late_share: LateShare,
    /// Targets without a reported attempt, at the last [`Self::advance_to`].
    untried: usize,
    inventory: DeviceInventory,
    columns: Vec<MetricColumn>,
    /// The origin of the arrivals in all columns.
    arrivals: ArrivalOrigin,
    /// How long values count as current.
    freshness: Duration,
    /// Maximum size of history in bytes, all metrics together.
    history_limit: usize,
    /// Whether devices that have no history yet may get one.
    may_grow: bool,
    jobs: JobTable,
    jobs_changed: bool,
    topology_facts: TopologyFacts,
    topology: ClusterTopology,
    topology_changed: bool,
    /// History points from before the first page, of devices that no page has named yet.
    unclaimed: Unclaimed,
    /// The addresses of nodes before the start.
    remembered: RememberedAddresses,
}

impl Cluster {
    /// An empty cluster whose targets are scraped each `period`, with a history of `slots` periods.
    pub fn new(period: Duration, slots: usize) -> Self {
        let period = period.max(Duration::from_millis(1));
        Self {
            period,
            now: UnixMs::default(),
            targets: Vec::new(),
            target_positions: HashMap::new(),
            targets_at_host: HashMap::new(),
            sources: Vec::new(),
            site_files: Vec::new(),
            recording_status: None,
            own_certificates: Vec::new(),
            late_share: LateShare::default(),
            untried: 0,
            inventory: DeviceInventory::default(),
            columns: MetricId::all_ids().map(|id| MetricColumn::new(id, slots.max(1))).collect(),
            arrivals: ArrivalOrigin::default(),
            freshness: period * STALE_PERIODS,
            history_limit: usize::MAX,
            may_grow: true,
            jobs: JobTable::default(),
            jobs_changed: false,
            topology_facts: TopologyFacts::default(),
            topology: ClusterTopology::default(),
            topology_changed: false,
            unclaimed: Unclaimed::default(),
            remembered: RememberedAddresses::default(),
        }
    }

    /// Limits history to this many bytes; above the limit, the oldest points are evicted first.
    #[must_use]
    pub fn with_history_limit(self, bytes: usize) -> Self {
        Self { history_limit: bytes, ..self }
    }

    /// Keeps a history of this many periods for every metric, not only for those that screens and detectors read.
    #[must_use]
    pub fn with_full_history(mut self, slots: usize) -> Self {
        for (metric, column) in MetricId::all_ids().zip(&mut self.columns) {
            if metric.catalogue_row().kind != MetricKind::Info
                && metric.catalogue_row().class != DeviceClass::Fleet
            {
                *column = MetricColumn::new(metric, slots).with_history(metric, slots.max(1));
            }
        }
        self
    }

    /// Whether history of this metric is kept.
    pub fn has_history(&self, metric: MetricId) -> bool {
        self.metric_column(metric).has_history()
    }

    /// Ingests a delivery.
    pub fn ingest_delivery(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Targets(targets) => self.replace_targets(targets),
            Delivery::Batch(batch) => self.ingest_batch(&batch),
            Delivery::Topology(topology) => {
                self.topology_facts.replace_source(topology);
                self.topology_changed = true;
            }
            Delivery::Jobs(list) => {
                self.jobs.replace_list(list);
                self.jobs_changed = true;
            }
            Delivery::Sources(sources) => self.sources = sources,
            Delivery::SiteFiles(files) => self.site_files = files,
            Delivery::RecordingStatus(status) => self.recording_status = Some(status),
            // A replay starts with the preamble; a running cluster ignores it.
            Delivery::Preamble(_) => {}
        }
    }

    /// Extends deadlines after a delay of the engine itself: reports of that time are still queued, so that no target
    /// counts as missed.
    pub fn extend_deadlines(&mut self, late: Duration) {
        self.late_share.stall(self.now + late, late);
        for target in &mut self.targets {
            target.extend_deadline(late);
        }
    }

    /// The certificates that gaunt itself presents.
    pub fn own_certificates(&self) -> &[CertificateLine] {
        &self.own_certificates
    }

    /// Replaces the certificates that gaunt itself presents.
    pub fn set_own_certificates(&mut self, certificates: Vec<CertificateLine>) {
        self.own_certificates = certificates;
    }

    /// How late gaunt itself was in the last minute.
    pub fn late_share(&self) -> &LateShare {
        &self.late_share
    }

    /// The share of the last minute's attempts that carry no information about their targets, and their number.
    pub fn unjudged_attempts(&self) -> (f64, u32) {
        let due = self.targets.len() as f64 * late_share::SPAN.div_duration_f64(self.period);
        self.late_share.unjudged(due, self.now)
    }

    /// Targets without a reported attempt in time because gaunt did not scrape them.
    pub fn untried(&self) -> usize {
        self.untried
    }

    /// Counts a result of an attempt at this target that ended at `at` and is discarded.
    pub fn drop_result(&mut self, target: TargetId, at: UnixMs) {
        if let Some(index) = self.target_positions.get(&target) {
            self.targets[*index].drop_result(at);
        }
    }

    /// Advances time to `now`: flags targets without a report and forgets devices and nodes that are long gone.
    pub fn advance_to(&mut self, now: UnixMs) {
        self.now = self.now.max(now);
        for target in &mut self.targets {
            target.count_missed(self.now, self.period);
        }
        self.untried = self.targets.iter().filter(|target| target.is_missed()).count();
        self.late_share.advance(self.now);
        self.claim_past();
        self.evict_history();
        if self.inventory.forget_gone(self.now, &mut self.columns) {
            self.invalidate_rows();
        }
        if std::mem::take(&mut self.jobs_changed) {
            self.jobs.resolve_allocations(&self.inventory);
        }
        if std::mem::take(&mut self.topology_changed) {
            self.topology = ClusterTopology::from_facts(&self.topology_facts, &self.inventory);
        }
    }

    /// Keeps history within its limit: evicts the oldest points of all metrics alike. If even the newest points exceed
    /// the limit, devices without history get none.
    fn evict_history(&mut self) {
        let limit = self.history_limit - self.history_limit / HISTORY_MARGIN;
        let mut histories: Vec<_> =
            self.columns.iter_mut().filter_map(MetricColumn::history_mut).collect();
        let mut bytes: usize = histories.iter().map(|history| history.memory_bytes()).sum();
        while bytes > limit {
            let Some(end) = histories.iter().filter_map(|history| history.oldest_end()).min()
            else {
                break;
            };
            for history in &mut histories {
                history.evict_before(end);
            }
            bytes = histories.iter().map(|history| history.memory_bytes()).sum();
        }
        self.may_grow = bytes <= limit;
    }

    /// Size of all history in bytes.
    pub fn history_bytes(&mut self) -> usize {
        let histories = self.columns.iter_mut().filter_map(MetricColumn::history_mut);
        histories.map(|history| history.memory_bytes()).sum()
    }

    /// The time of the last [`Self::advance_to`].
    pub fn now(&self) -> UnixMs {
        self.now
    }

    /// The time between two scrapes of a target.
    pub fn scrape_period(&self) -> Duration {
        self.period
    }

    /// Every target, in the order of the target list.
    pub fn tracked_targets(&self) -> &[TrackedTarget] {
        &self.targets
    }

    /// The sources of the targets.
    pub fn target_sources(&self) -> &[TargetSource] {
        &self.sources
    }

    /// The site files.
    pub fn site_files(&self) -> &[SiteFileStatus] {
        &self.site_files
    }

    /// The status of the recording, if there is one.
    pub fn recording_status(&self) -> Option<&RecordingStatus> {
        self.recording_status.as_ref()
    }

    /// The target with this id.
    pub fn target_by_id(&self, id: TargetId) -> Option<&TrackedTarget> {
        self.targets.get(*self.target_positions.get(&id)?)
    }

    /// Every node in name order.
    pub fn sorted_nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.inventory.sorted_nodes()
    }

    /// The node with this id.
    #[inline]
    pub fn node_by_id(&self, id: NodeId) -> Option<&Node> {
        self.inventory.node_by_id(id)
    }

    /// The node with this name.
    pub fn node_by_name(&self, name: &str) -> Option<(NodeId, &Node)> {
        let id = self.inventory.id_by_name(name)?;
        Some((id, self.inventory.node_by_id(id)?))
    }

    /// Number of rows of a class: one more than the highest row in use.
    pub fn row_count(&self, class: DeviceClass) -> usize {
        self.inventory.row_count(class)
    }

    /// The device at a row of its class.
    #[inline]
    pub fn device_at(&self, class: DeviceClass, row: u32) -> Option<&DeviceEntry> {
        self.inventory.entry_at(class, row)
    }

    /// The model of the GPU at a row, if known.
    #[inline]
    pub fn gpu_model(&self, gpu: u32) -> Option<&SanitizedText> {
        self.inventory.gpu_model(gpu)
    }

    /// Whether no recent page named the device at a row.
    #[inline]
    pub fn is_unseen(&self, class: DeviceClass, row: u32) -> bool {
        self.inventory.last_seen(class, row).is_none_or(|at| self.is_stale(at))
    }

    /// The topology, as of the last [`Self::advance_to`].
    pub fn topology(&self) -> &ClusterTopology {
        &self.topology
    }

    /// How fresh a node's data is.
    #[inline]
    pub fn node_freshness(&self, node: &Node) -> NodeFreshness {
        let is_down = |source: &MetricSource| {
            self.target_by_id(source.target)
                .is_some_and(|t| t.has_failed() && t.failures >= DOWN_AFTER)
        };
        if !node.sources.is_empty() && node.sources.iter().all(is_down) {
            return NodeFreshness::Down;
        }
        match node.sampled {
            Some(at) if !self.is_stale(at) => NodeFreshness::Live,
            _ => NodeFreshness::Stale,
        }
    }

    /// The last reading of a metric on the device at `row`: stale if it is too old, none if there never was one.
    #[inline]
    pub fn current_reading(&self, metric: MetricId, row: u32) -> Option<Reading> {
        let (reading, at) = self.metric_column(metric).last_reading(row)?;
        Some(if self.is_stale(at) { AbsenceReason::Stale.into() } else { reading })
    }

    /// The current value of a metric, if known.
    #[inline]
    pub fn current_value(&self, metric: MetricId, row: u32) -> Option<f64> {
        self.current_reading(metric, row)?.value()
    }

    /// The last value of a metric, whatever its age.
    #[inline]
    pub fn last_value(&self, metric: MetricId, row: u32) -> Option<f64> {
        self.metric_column(metric).last_reading(row)?.0.value()
    }

    /// When the last value of a metric arrived; none if its last reading is an absence.
    pub fn last_value_at(&self, metric: MetricId, row: u32) -> Option<UnixMs> {
        let (reading, at) = self.metric_column(metric).last_reading(row)?;
        reading.value().map(|_| at)
    }

    /// The current rate of a counter per second, if known.
    #[inline]
    pub fn current_rate(&self, metric: MetricId, row: u32) -> Option<f64> {
        let (_, at) = self.metric_column(metric).last_reading(row)?;
        if self.is_stale(at) { None } else { self.metric_column(metric).last_rate(row) }
    }

    /// The recent points of a metric of a node's device, oldest first, at most `max_points`; the last point is the
    /// node's newest.
    pub fn recent_points(
        &self,
        metric: MetricId,
        node: &Node,
        row: u32,
        max_points: usize,
    ) -> Option<Vec<Option<f32>>> {
        let now = self.history_slot(self.now);
        // The node's own page of this period may still be in flight: that is no gap.
        let newest = node.sampled.map_or(now, |at| self.history_slot(at));
        self.metric_column(metric).recent_points(
            row,
            if now - newest <= 1 { newest } else { now },
            max_points,
        )
    }

    /// The value of a gauge, or the rate of a counter per second, at a past time that history covers.
    pub fn value_at(&self, metric: MetricId, row: u32, at: UnixMs) -> Option<f64> {
        let within = STALE_PERIODS as usize;
        self.metric_column(metric).newest_point(row, self.history_slot(at), within).map(f64::from)
    }

    /// The recent points of a metric up to a past time, oldest first, at most `max_points`.
    pub fn points_until(
        &self,
        metric: MetricId,
        row: u32,
        at: UnixMs,
        max_points: usize,
    ) -> Option<Vec<Option<f32>>> {
        self.metric_column(metric).recent_points(row, self.history_slot(at), max_points)
    }

    /// Rows may be reassigned to other devices from now on: drops all cached row layouts.
    fn invalidate_rows(&mut self) {
        self.jobs_changed = true;
        self.topology_changed = true;
        for target in &mut self.targets {
            target.layout = tracked_target::RowLayout::default();
        }
    }

    #[inline]
    fn metric_column(&self, metric: MetricId) -> &MetricColumn {
        &self.columns[usize::from(metric.0).min(CATALOGUE.len() - 1)]
    }

    /// How long values count as current.
    pub fn freshness_window(&self) -> Duration {
        self.freshness
    }

    /// Whether a value that arrived at this time is stale.
    #[inline]
    pub fn is_stale(&self, at: UnixMs) -> bool {
        self.now.duration_since(at) > self.freshness_window()
    }

    /// The arrival of readings that are written next.
    fn arrival_offset(&mut self, at: UnixMs) -> ArrivalOffset {
        if self.arrivals.offset_of(at).is_none() {
            let moved = self.arrivals.move_to(at);
            for column in &mut self.columns {
                column.follow_origin(self.arrivals, moved);
            }
        }
        self.arrivals.nearest_offset(at)
    }

    fn history_slot(&self, at: UnixMs) -> i64 {
        at.0.div_euclid(self.period.as_millis() as i64)
    }
}
