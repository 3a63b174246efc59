//! The judge: derives GPU states, findings and lost GPUs from the ingested metrics. Pure: no I/O, no clock.

use std::collections::{BTreeMap, HashMap, HashSet};

use gaunt_schema::{
    AbsenceReason, DeviceClass, FindingKind, GpuState, SanitizedText, UnixMs, catalogue::gpu,
};

use gaunt_cluster::{Cluster, Node, NodeId};

mod aggregator_late;
mod baseline;
mod baseline_acceptance;
mod baseline_snapshot;
mod checkpoint_pause;
mod clock_drift;
mod collective_hang;
mod data_starvation;
mod evidence_catalogue;
mod evidence_coverage;
mod fabric_congestion;
mod finding_explanation;
mod finding_lifecycle;
mod frozen_baselines;
mod gpu_allocation;
mod gpu_errors;
mod gpu_failed;
mod gpu_power_limits;
mod gpu_signals;
mod gpu_state_rules;
mod host_averages;
mod host_blocks_network;
mod hysteresis;
mod inferred_leaf;
mod job_group;
mod job_imbalance;
mod link_averages;
mod link_quality;
mod loss_attribution;
mod moving_average;
mod node_names;
mod nvlink_degraded;
mod pcie_degraded;
mod peer_clocks;
mod pending_finding;
mod port_down;
mod probe_evidence;
mod recovery_reason;
mod robust_stats;
mod serving_queue;
mod slow_gpu;
mod source_unread;
mod suppression;
mod switch_port_averages;
mod target_down;
mod telemetry_stale;
#[cfg(test)]
mod tests;
mod thresholds;

pub use baseline_acceptance::is_acceptable;
pub use baseline_snapshot::BaselineSnapshot;
use checkpoint_pause::Pauses;
use clock_drift::ClockDrift;
pub use evidence_catalogue::{
    EvidenceRow, EvidenceSource, confidence_limit, detection_rule, explain_limit,
};
pub use finding_explanation::{AlternativeCause, ComparedSignal, FindingExplanation};
use finding_lifecycle::{DetectorOutcome, FindingTracker};
pub use finding_lifecycle::{FindingHistory, FindingRecord, FindingSnapshot, FindingTransition};
use frozen_baselines::FrozenBaselines;
use gpu_allocation::GpuAllocation;
use gpu_errors::GpuErrorTracker;
use gpu_signals::{GpuAverages, GpuSignals};
use host_averages::HostAverages;
use hysteresis::StateHysteresis;
use inferred_leaf::InferredLeaves;
use job_group::JobGroups;
use job_imbalance::WorkShares;
use link_averages::LinkTable;
pub use loss_attribution::{AttributedCause, FleetLoss, GpuLoss, LossTotals, gpus_of_parts};
use moving_average::MovingAverage;
use node_names::{Gone, NodeNames, Whereabouts};
use nvlink_degraded::NvlinkTable;
pub use pending_finding::{DetectedFinding, FindingEvidence};
use port_down::PortTrackers;
pub use port_down::is_port_active;
pub use probe_evidence::CrossNodeBandwidth;
use switch_port_averages::SwitchPortTable;
pub use target_down::{next_step, target_problem};
pub use thresholds::{ImpossibleThreshold, Thresholds};

/// Everything that is judged, with the averages and timers behind it.
#[derive(Debug)]
pub struct Judge {
    limits: Thresholds,
    gpus: Vec<GpuTracker>,
    hosts: HashMap<NodeId, HostAverages>,
    hung_since: BTreeMap<SanitizedText, UnixMs>,
    /// The same as restored after a restart, for jobs that were not seen since.
    restored_hung_since: BTreeMap<SanitizedText, UnixMs>,
    ports: PortTrackers,
    links: LinkTable,
    switches: SwitchPortTable,
    nvlinks: NvlinkTable,
    health: GpuErrorTracker,
    /// The timestamp of each node's page whose health was read last.
    health_read_at: HashMap<NodeId, UnixMs>,
    job_groups: JobGroups,
    pauses: Pauses,
    shares: WorkShares,
    inferred_leaves: InferredLeaves,
    tracker: FindingTracker,
    /// GPUs and nodes that open findings name.
    frozen: FrozenBaselines,
    /// Baselines from before a restart of devices that were not seen since.
    restored_baselines: BaselineSnapshot,
    /// The GPUs of each node from before a restart, by node name.
    restored_gpus: HashMap<SanitizedText, HashSet<SanitizedText>>,
    /// The node that each target reports as, now and before a restart.
    node_names: NodeNames,
    /// The time of the first step.
    first_step: Option<UnixMs>,
    /// Results of probes between nodes.
    cross_node: Vec<CrossNodeBandwidth>,
    /// Lost GPUs as of the last step.
    loss: FleetLoss,
}

/// The state of one GPU, at its row.
#[derive(Debug, Default)]
struct GpuTracker {
    /// The node that it is on: a row may be reassigned.
    node: Option<SanitizedText>,
    averages: GpuAverages,
    allocated: Option<bool>,
    hysteresis: StateHysteresis,
    allocation: GpuAllocation,
    drift: ClockDrift,
    /// The last sample that was read.
    last_sample: Option<UnixMs>,
}

/// All detectors; those that look for what no other finding explains come last.
const DETECTORS: [fn(&Judge, &Cluster, &mut DetectorOutcome); 15] = [
    gpu_failed::detect_failed_gpus,
    slow_gpu::detect_slow_gpus,
    pcie_degraded::detect_degraded_pcie,
    nvlink_degraded::detect_degraded_nvlinks,
    collective_hang::detect_hung_jobs,
    data_starvation::detect_starved_nodes,
    serving_queue::detect_stuck_queues,
    fabric_congestion::detect_congestion,
    link_quality::detect_bad_links,
    port_down::detect_down_ports,
    target_down::detect_down_targets,
    source_unread::detect_unread_sources,
    aggregator_late::detect_late_aggregator,
    telemetry_stale::detect_stale_telemetry,
    job_imbalance::detect_job_imbalance,
];

impl Judge {
    /// Creates a judge with these limits and no state.
    pub fn new(limits: Thresholds) -> Self {
        Self {
            limits,
            gpus: Vec::new(),
            hosts: HashMap::new(),
            hung_since: BTreeMap::new(),
            restored_hung_since: BTreeMap::new(),
            ports: PortTrackers::default(),
            links: LinkTable::default(),
            switches: SwitchPortTable::default(),
            nvlinks: NvlinkTable::default(),
            health: GpuErrorTracker::default(),
            health_read_at: HashMap::new(),
            job_groups: JobGroups::default(),
            pauses: Pauses::default(),
            shares: WorkShares::default(),
            inferred_leaves: InferredLeaves::default(),
            tracker: FindingTracker::default(),
            frozen: FrozenBaselines::default(),
            restored_baselines: BaselineSnapshot::default(),
            restored_gpus: HashMap::new(),
            node_names: NodeNames::default(),
            first_step: None,
            cross_node: Vec::new(),
            loss: FleetLoss::default(),
        }
    }

    /// Continues from the findings of an earlier judge.
    #[must_use]
    pub fn with_findings(self, past: FindingSnapshot) -> Self {
        let (hangs, past) = past.into_hangs();
        Self { tracker: FindingTracker::from_snapshot(past), restored_hung_since: hangs, ..self }
    }

    /// Continues with saved baselines.
    #[must_use]
    pub fn with_baselines(self, baseline: BaselineSnapshot) -> Self {
        let node_names = NodeNames::recalled(baseline.nodes_by_address());
        Self {
            restored_gpus: baseline.gpus_by_node(),
            node_names,
            restored_baselines: baseline,
            ..self
        }
    }

    /// Sets the current results of probes between nodes.
    pub fn set_probe_results(&mut self, measured: Vec<CrossNodeBandwidth>) {
        self.cross_node = measured;
    }

    /// Returns the baselines of all known devices.
    pub fn snapshot_baselines(&self, cluster: &Cluster) -> BaselineSnapshot {
        BaselineSnapshot::of(self, cluster)
    }

    /// Returns the finding state that persists over a restart.
    pub fn snapshot_findings(&self) -> FindingSnapshot {
        self.tracker.to_snapshot().with_hangs(&self.hung_since)
    }

    /// Evaluates the current cluster data and updates states and findings.
    pub fn evaluate_cluster(&mut self, cluster: &Cluster) {
        let began = *self.first_step.get_or_insert(cluster.now());
        if cluster.now().duration_since(began).as_secs_f64() >= self.limits.resume_seconds {
            self.restored_hung_since.clear();
        }
        self.gpus.resize_with(cluster.row_count(DeviceClass::Gpu), GpuTracker::default);
        self.hosts.retain(|id, _| cluster.node_by_id(*id).is_some());
        self.health_read_at.retain(|id, _| cluster.node_by_id(*id).is_some());
        BaselineSnapshot::restore_devices(self, cluster);
        self.node_names.look(cluster);
        self.frozen = FrozenBaselines::of(self, cluster);
        for (id, node) in cluster.sorted_nodes() {
            let frozen = self.frozen.has_node(id);
            self.hosts.entry(id).or_default().observe_node(cluster, node, frozen, &self.limits);
            self.observe_health(cluster, id, node);
            let host = self.hosts.get(&id).copied().unwrap_or_default();
            let (mut held, mut of_new_jobs) = (0, 0);
            for row in node.device_rows(DeviceClass::Gpu) {
                of_new_jobs += usize::from(self.observe_gpu(cluster, node, &host, *row));
                held += usize::from(cluster.job_of_gpu(*row).is_some());
            }
            if of_new_jobs > 0 && of_new_jobs >= held {
                self.reset_node_baselines(id, node);
            }
        }
        self.mark_hung_jobs(cluster);
        self.ports.observe_ports(cluster, &self.limits);
        self.links.observe_ports(cluster, &self.frozen, &self.limits);
        self.switches.observe_switch_ports(cluster, &self.limits);
        self.nvlinks.observe_nvlinks(cluster, &self.limits);
        JobGroups::rebuild_groups(self, cluster);
        Pauses::look(self, cluster);
        WorkShares::observe_groups(self, cluster);
        InferredLeaves::observe_congestion(self, cluster);
        ClockDrift::observe_clocks(self, cluster);
        let mut outcome = DetectorOutcome::default();
        for find in DETECTORS {
            find(self, cluster, &mut outcome);
        }
        self.leave_out_renamed(cluster, &mut outcome);
        suppression::suppress_consequences(&mut outcome);
        probe_evidence::add_probe_evidence(self, cluster, &mut outcome);
        outcome.undecidable.extend(self.undecidable_findings(cluster));
        outcome.coverage = evidence_coverage::check_coverage(self, cluster);
        self.tracker.apply_outcome(cluster.now(), cluster.scrape_period(), &self.limits, outcome);
        FleetLoss::compute_losses(self, cluster);
        for finding in self.tracker.just_closed(cluster.now()) {
            let signal = recovery_reason::explain_recovery(self, cluster, &finding);
            self.tracker.set_recovery_reason(&finding.id, &signal);
        }
        for finding in self.tracker.due_for_explanation(cluster.now()) {
            let chain = finding_explanation::explain_finding(self, cluster, &finding);
            self.tracker.attach_explanation(&finding.id, chain);
        }
    }

    /// Drops evidence of nodes that now report under another name: their last values remain for a while.
    fn leave_out_renamed(&self, cluster: &Cluster, outcome: &mut DetectorOutcome) {
        let nodes = Whereabouts::of(self, cluster);
        let is_here = |finding: &DetectedFinding| {
            let gone = finding.entity.node.as_ref().and_then(|name| nodes.gone(name));
            !matches!(gone, Some(Gone::Renamed(_)))
        };
        outcome.findings.retain(&is_here);
        outcome.suspicions.retain(|held| is_here(&held.finding));
        outcome.undecidable.retain(|id| self.tracker.open_one(id).is_none_or(is_here));
    }

    /// Open findings that cannot be decided now: those of a silent node stay open, and those of a job that pauses.
    fn undecidable_findings(&self, cluster: &Cluster) -> Vec<String> {
        let nodes = Whereabouts::of(self, cluster);
        self.tracker.open_ids_where(|finding| {
            if checkpoint_pause::is_unclear(self, cluster, finding) {
                return true;
            }
            let Some(name) = finding.entity.node.as_ref() else { return false };
            let silent = cluster
                .node_by_name(name)
                .is_some_and(|(_, node)| evidence_coverage::is_silent(cluster, node, finding.kind));
            silent && nodes.gone(name).is_none()
        })
    }

    /// Returns the state and loss of every GPU as of the last step; takes an earlier buffer back in exchange.
    pub fn swap_loss(&mut self, earlier: FleetLoss) -> FleetLoss {
        std::mem::replace(&mut self.loss, earlier)
    }

    /// Returns the state of the GPU at this row.
    pub fn gpu_state(&self, gpu: u32) -> GpuState {
        self.gpus.get(gpu as usize).map_or(GpuState::Unknown, |gpu| gpu.hysteresis.current_state())
    }

    /// Returns all open findings, worst first.
    pub fn open_findings(&self) -> Vec<&DetectedFinding> {
        self.tracker.open_records().into_iter().map(|record| &record.finding).collect()
    }

    /// Returns all open findings with their history, worst first.
    pub fn open_records(&self) -> Vec<&FindingRecord> {
        self.tracker.open_records()
    }

    /// Returns closed findings that are retained, newest first.
    pub fn closed_records(&self) -> Vec<&FindingRecord> {
        self.tracker.closed_records()
    }

    /// Changes whenever a finding closes, reopens or is dropped.
    pub fn closed_revision(&self) -> u64 {
        self.tracker.closed_revision()
    }

    /// Findings that have evidence but exceed the quotas, by kind.
    pub fn over_limit_counts(&self) -> &BTreeMap<FindingKind, u32> {
        self.tracker.over_limit_counts()
    }

    /// Findings that were opened since the start.
    pub fn opened_counts(&self) -> &BTreeMap<FindingKind, u64> {
        self.tracker.opened_counts()
    }

    /// Seconds that contain two samples of what an exporter collects only now and then; at a short period every page
    /// has new ones.
    fn two_sample_seconds(&self, cluster: &Cluster) -> f64 {
        if self.has_slow_period(cluster) {
            2.0 * cluster.scrape_period().as_secs_f64() + self.limits.sample_slack_seconds
        } else {
            0.0
        }
    }

    /// Seconds that contain two samples of each of several nodes, which are read at different moments of a period: what
    /// all of them did once, such as a checkpoint, still shows up on some of them for one more period.
    fn two_sample_seconds_of_all(&self, cluster: &Cluster) -> f64 {
        let spread =
            if self.has_slow_period(cluster) { cluster.scrape_period().as_secs_f64() } else { 0.0 };
        self.two_sample_seconds(cluster) + spread
    }

    /// Seconds that contain two collections of an exporter, however often it is scraped: two values of one page may be
    /// of two instants.
    fn two_collection_seconds(&self, cluster: &Cluster) -> f64 {
        let all = 2.0 * self.limits.collected_seconds + self.two_sample_seconds(cluster) / 2.0;
        if self.has_slow_period(cluster) { all.max(self.two_sample_seconds(cluster)) } else { 0.0 }
    }

    /// Whether scrapes are so rare that pages may repeat what an exporter collected before.
    fn has_slow_period(&self, cluster: &Cluster) -> bool {
        cluster.scrape_period().as_secs_f64() >= self.limits.slow_period_seconds
    }

    fn observe_health(&mut self, cluster: &Cluster, id: NodeId, node: &Node) {
        let Some(at) = node.last_fed(DeviceClass::Gpu) else { return };
        match self.health_read_at.insert(id, at) {
            Some(before) if before == at => {}
            before => self.health.observe_node(cluster, node, at, before.is_none(), &self.limits),
        }
    }

    /// Ingests the newest sample of a GPU; returns whether another job began on it.
    fn observe_gpu(
        &mut self,
        cluster: &Cluster,
        node: &Node,
        host: &HostAverages,
        row: u32,
    ) -> bool {
        if cluster.device_at(DeviceClass::Gpu, row).is_none() {
            return false;
        }
        let gpu = &mut self.gpus[row as usize];
        if gpu.node.as_ref() != Some(&node.name) {
            *gpu = GpuTracker { node: Some(node.name.clone()), ..GpuTracker::default() };
        }
        let silent = node.last_fed(DeviceClass::Gpu).is_none_or(|at| cluster.is_stale(at));
        if silent || cluster.is_unseen(DeviceClass::Gpu, row) {
            gpu.hysteresis.force_state(GpuState::Stale);
            return false;
        }
        let gone =
            cluster.current_reading(gpu::UTILIZATION, row) == Some(AbsenceReason::Lost.into());
        if gone || cluster.current_value(gpu::PRESENT, row) == Some(0.0) {
            gpu.hysteresis.force_state(GpuState::Lost);
            return false;
        }
        let Some(at) = node
            .last_fed(DeviceClass::Gpu)
            .filter(|at| gpu.last_sample.is_none_or(|last| last < *at))
        else {
            return false;
        };
        gpu.last_sample = Some(at);
        let tick = &mut moving_average::SampleTiming::new(
            at,
            self.limits.average_seconds,
            cluster.freshness_window(),
        );
        gpu.averages.add_sample(cluster, row, at, tick, &self.limits);
        gpu.allocated = gpu_signals::is_allocated(cluster, row, &self.limits);
        let begins = self.observe_job_start(cluster, row, at);
        let (frozen, gap) = (self.frozen.has_gpu(row), cluster.freshness_window());
        let gpu = &mut self.gpus[row as usize];
        gpu.averages.learn_baselines(at, gap, frozen, &self.limits);
        self.health.observe_work(
            row,
            at,
            gpu.averages.works_as_usual(at, gap, &self.limits),
            &self.limits,
        );
        let signals = self.collect_signals(cluster, row, host, at);
        let gpu = &mut self.gpus[row as usize];
        let verdict =
            gpu_state_rules::classify_state(&signals, gpu.hysteresis.current_state(), &self.limits);
        gpu.hysteresis.observe_verdict(verdict, at, &self.limits);
        begins
    }

    fn collect_signals(
        &self,
        cluster: &Cluster,
        row: u32,
        host: &HostAverages,
        at: UnixMs,
    ) -> GpuSignals {
        let gpu = &self.gpus[row as usize];
        let mut signals = gpu.averages.signals_at(at, cluster.freshness_window(), &self.limits);
        let of = |average: &MovingAverage| average.value_at(at, cluster.freshness_window());
        signals.allocated = gpu.allocated;
        signals.io_pressure = of(&host.io_pressure);
        signals.cpu_pressure = of(&host.cpu_pressure);
        signals.busiest_cpu = of(&host.busiest_cpu);
        signals.queue = host.queue.map(|queue| queue.waiting);
        signals.comm = match (signals.comm, of(&host.network)) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        signals.has_peers = cluster.job_size(row).is_none_or(|gpus| gpus > 1);
        let least = self.limits.clock_event_ratio;
        if signals.sw_thermal.is_some_and(|share| share >= least) {
            let peers = peer_clocks::clocks_of_peers(self, cluster, row, self.job_groups.of(row));
            let own = gpu.averages.clock_hertz(at, &self.limits);
            signals.clock_in_job = own.zip(peers).map(|(clock, peers)| clock / peers.median);
        }
        signals
    }

    /// Marks a job as hung once all its GPUs wait while the network is silent for long enough.
    fn mark_hung_jobs(&mut self, cluster: &Cluster) {
        let now = cluster.now();
        self.hung_since.retain(|job, _| cluster.gpus_by_job().contains_key(job));
        for (job, gpus) in cluster.gpus_by_job() {
            let still = gpus.iter().all(|row| {
                let waits = matches!(self.gpu_state(*row), GpuState::Waiting | GpuState::Hung);
                let node = cluster.device_at(DeviceClass::Gpu, *row).map(|entry| entry.node);
                let host = node.and_then(|node| self.hosts.get(&node));
                let network =
                    host.and_then(|host| host.network.value_at(now, cluster.freshness_window()));
                waits && network.is_none_or(|share| share < self.limits.silent_network_ratio)
            });
            if !still || gpus.len() < 2 {
                self.hung_since.remove(job);
                continue;
            }
            let before = self.restored_hung_since.remove(job).unwrap_or(now).min(now);
            let since = *self.hung_since.entry(job.clone()).or_insert(before);
            if now.duration_since(since).as_secs_f64() >= self.limits.hung_seconds {
                for row in gpus {
                    self.gpus[*row as usize].hysteresis.force_state(GpuState::Hung);
                }
            }
        }
    }
}
