//! The judge: derives GPU states, findings and lost GPUs from the ingested metrics. Pure: no I/O, no clock.

use std::collections::BTreeMap;

use gaunt_schema::{Finding, FindingKind, GpuState, UnixMs};

use gaunt_cluster::{Cluster, NodeId};

mod aggregator_late;
mod baseline;
mod baseline_acceptance;
mod baseline_restore;
mod baseline_snapshot;
mod below_peers;
mod busy_clock;
mod certificate_expiring;
mod checkpoint_pause;
mod clock_decline;
mod clock_drift;
mod cluster_observation;
mod collective_hang;
mod compact_value;
mod crash_loop;
mod data_starvation;
mod detection_rules;
mod differing_host;
mod ended_jobs;
mod evidence_catalogue;
mod evidence_coverage;
mod evidence_sum;
mod explanation_builder;
mod fabric_congestion;
mod fabric_degraded;
mod fabric_health;
mod failed_programs;
mod filesystem_full;
mod finding_lifecycle;
mod frozen_baselines;
mod full_port;
mod gang_evidence;
mod gpu_allocation;
mod gpu_errors;
mod gpu_failed;
mod gpu_loss;
mod gpu_ratings;
mod gpu_signals;
mod gpu_start;
mod gpu_state_rules;
mod gpu_tracker;
mod growing_pauses;
mod hang_cause;
mod host_averages;
mod host_blocks_network;
mod host_evidence;
mod host_pressure;
mod hysteresis;
mod idle_ranks;
mod incast;
mod inferred_groups;
mod inferred_leaf;
mod job_group;
mod job_imbalance;
mod job_pauses;
mod job_restarts;
mod job_survey;
mod judge_state;
mod judgement_failure;
mod lagging_ranks;
mod late_rank_evidence;
mod late_ranks;
mod leaf_down;
mod leaf_link_errors;
mod leaf_rail_ports;
mod lingering_gpus;
mod link_averages;
mod link_quality;
mod link_resends;
mod loaded_ports;
mod lone_clock;
mod loss_attribution;
mod loss_causes;
mod lost_workers;
mod memory_pressure;
mod missing_ports;
mod moving_average;
mod name_map;
mod netdev_faults;
mod netdev_link;
mod netdev_rates;
mod network_share;
mod node_link_rates;
mod node_means;
mod node_names;
mod node_ports_down;
mod node_table;
mod nvlink_degraded;
mod nvlink_table;
mod one_page;
mod past_pauses;
mod pcie_degraded;
mod peer_clocks;
mod peer_gpus;
mod pending_finding;
mod pfc_pause;
mod port_counters;
mod port_down;
mod port_link;
mod port_rail;
mod port_trackers;
mod probe_evidence;
mod program_error;
mod rack_down;
mod ranks_on_node;
mod rare_events;
mod recovery_reason;
mod recurring_stops;
mod relative_shifts;
mod reporting_delay;
mod residual_histogram;
mod robust_stats;
mod round_shifts;
mod row_remaps;
mod sample_interval;
mod serving_queue;
mod shared_storage;
mod shift_detector;
mod silent_node;
mod slow_gpu;
mod slow_netdev;
mod slow_node;
mod slowdown_causes;
mod source_unread;
mod standing_fault;
mod standing_waits;
mod standout_gpus;
mod starved_job;
mod starved_node;
mod starved_rounds;
mod still_gpu;
mod stop_history;
mod storage_response;
mod strongest_ports;
mod stuck_queues;
mod suppression;
mod switch_port_averages;
mod target_down;
mod tcp_losses;
mod telemetry_stale;
mod thresholds;
mod uneven_group;
mod unexplained_slowdown;
mod unnamed_switches;
mod usual_pressure;
mod waited_for_node;
mod waiting_senders;
mod work_shares;

pub use baseline_acceptance::is_acceptable;
pub use baseline_snapshot::BaselineSnapshot;
pub use detection_rules::{confidence_limits, detection_rule, explain_limit};
use evidence_catalogue::EvidenceRow;
use finding_lifecycle::{DetectorOutcome, FindingTracker};
pub use finding_lifecycle::{FindingRecord, FindingSnapshot};
pub use gpu_loss::{AttributedCause, GpuLoss};
use judge_state::JudgeState;
use judgement_failure::JudgementFailure;
pub use judgement_failure::{panic_message, run_guarded};
pub use loss_attribution::{FleetLoss, LossTotals, gpus_of_parts};
pub use loss_causes::LossCauses;
use node_names::{Gone, NodeNames, Whereabouts};
pub use port_link::is_port_active;
pub use probe_evidence::CrossNodeBandwidth;
pub use reporting_delay::{least_inferred_seconds, reported_state_seconds};
pub use target_down::{has_other_nodes, target_problem};
pub use thresholds::{ImpossibleThreshold, Thresholds};

/// Everything that is judged: the state that detectors read, and what is derived from their findings.
#[derive(Debug)]
pub struct Judge {
    state: JudgeState,
    /// Results of probes between nodes.
    cross_node: Vec<CrossNodeBandwidth>,
    /// Lost GPUs as of the last step.
    loss: FleetLoss,
    /// The nodes that are to read the status of a job that seems to hang.
    nodes_to_ask: Vec<NodeId>,
    /// The judgements since the last one that did not fail.
    failure: Option<JudgementFailure>,
}

type Detector = fn(&JudgeState, &Cluster, &mut DetectorOutcome);

/// All detectors; those that look for what no other finding explains come last.
const DETECTORS: [Detector; 31] = [
    gpu_failed::detect_failed_gpus,
    failed_programs::detect_failed_programs,
    slow_gpu::detect_slow_gpus,
    pcie_degraded::detect_degraded_pcie,
    nvlink_degraded::detect_degraded_nvlinks,
    fabric_degraded::detect_degraded_fabric,
    collective_hang::detect_hung_jobs,
    data_starvation::detect_starved_nodes,
    waited_for_node::detect_waited_for_nodes,
    memory_pressure::detect_memory_pressure,
    starved_job::detect_starved_jobs,
    growing_pauses::detect_growing_pauses,
    crash_loop::detect_crash_loops,
    stuck_queues::detect_stuck_queues,
    fabric_congestion::detect_congestion,
    link_quality::detect_bad_links,
    slow_netdev::detect_slow_netdevs,
    port_down::detect_down_ports,
    missing_ports::detect_missing_ports,
    netdev_faults::detect_faulty_netdevs,
    full_port::detect_full_ports,
    tcp_losses::detect_tcp_losses,
    target_down::detect_down_targets,
    source_unread::detect_unread_sources,
    aggregator_late::detect_late_aggregator,
    telemetry_stale::detect_stale_telemetry,
    certificate_expiring::detect_expiring_certificates,
    filesystem_full::detect_full_filesystems,
    differing_host::detect_differing_hosts,
    job_imbalance::detect_job_imbalance,
    recurring_stops::detect_recurring_stops,
];

impl Judge {
    /// Creates a judge with these limits and no state.
    pub fn new(limits: Thresholds) -> Self {
        let state = JudgeState::new(limits);
        Self {
            state,
            cross_node: Vec::new(),
            loss: FleetLoss::default(),
            nodes_to_ask: Vec::new(),
            failure: None,
        }
    }

    /// Continues from the findings of an earlier judge.
    #[must_use]
    pub fn with_findings(mut self, past: FindingSnapshot) -> Self {
        let (hangs, past) = past.into_hangs();
        self.state.tracker = FindingTracker::from_snapshot(past);
        self.state.restored_hung_since = hangs;
        self
    }

    /// Continues with saved baselines.
    #[must_use]
    pub fn with_baselines(mut self, mut baseline: BaselineSnapshot) -> Self {
        self.state.gangs.restore_jobs(std::mem::take(&mut baseline.jobs));
        self.state.usual_pressure = std::mem::take(&mut baseline.usual_pressure);
        self.state.node_names = NodeNames::recalled(baseline.nodes_by_address());
        self.state.restored_gpus = baseline.gpus_by_node();
        self.state.restored_baselines = baseline;
        self
    }

    /// Sets the current results of probes between nodes.
    pub fn set_probe_results(&mut self, measured: Vec<CrossNodeBandwidth>) {
        self.cross_node = measured;
    }

    /// Returns the baselines of all known devices.
    pub fn snapshot_baselines(&self, cluster: &Cluster) -> BaselineSnapshot {
        baseline_restore::collect_baselines(&self.state, cluster)
    }

    /// Returns the finding state that persists over a restart.
    pub fn snapshot_findings(&self) -> FindingSnapshot {
        self.state.tracker.to_snapshot().with_hangs(&self.state.hung_since)
    }

    /// Evaluates the current cluster data and updates states and findings.
    pub fn evaluate_cluster(&mut self, cluster: &Cluster) {
        self.evaluate_with(&DETECTORS, cluster);
    }

    /// Does so with these detectors. Where one of them fails, findings stay as they are.
    fn evaluate_with(&mut self, detectors: &[Detector], cluster: &Cluster) {
        let now = cluster.now();
        let waits = self.waits_after_failure(cluster);
        let detected = (!waits).then(|| run_guarded(|| self.detect_faults(detectors, cluster)));
        let is_detected = matches!(detected, Some(Ok(_)));
        let outcome = match detected {
            Some(Ok(outcome)) => outcome,
            Some(Err(error)) => {
                self.note_failure(error, now);
                self.keep_findings(now)
            }
            None => self.keep_findings(now),
        };
        let period = cluster.scrape_period();
        self.state.tracker.apply_outcome(now, period, &self.state.limits, outcome);
        if waits {
            return;
        }
        match run_guarded(|| self.explain_findings(cluster)) {
            Ok(()) if is_detected => self.failure = None,
            Ok(()) => {}
            Err(error) => self.note_failure(error, now),
        }
    }

    /// Whether it is too early for another attempt after one that failed.
    fn waits_after_failure(&self, cluster: &Cluster) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.waits(cluster.now()))
    }

    fn note_failure(&mut self, error: String, now: UnixMs) {
        self.failure = Some(JudgementFailure::after(self.failure.take(), error, now));
    }

    /// Returns an outcome after which all findings are as before.
    fn keep_findings(&self, now: UnixMs) -> DetectorOutcome {
        let kept = self.failure.as_ref().map(|failure| failure.keep_findings(&self.state, now));
        kept.unwrap_or_default()
    }

    /// Observes the cluster and returns the faults that it shows.
    fn detect_faults(&mut self, detectors: &[Detector], cluster: &Cluster) -> DetectorOutcome {
        self.state.observe_cluster(cluster);
        let mut outcome = DetectorOutcome::default();
        for find in detectors {
            find(&self.state, cluster, &mut outcome);
        }
        self.leave_out_renamed(cluster, &mut outcome);
        hang_cause::blame_causes_of_hangs(&self.state, cluster, &mut outcome);
        suppression::suppress_consequences(&self.state, &mut outcome);
        late_rank_evidence::add_late_rank_evidence(&self.state, cluster, &mut outcome);
        lagging_ranks::add_lagging_rank_evidence(&self.state, cluster, &mut outcome);
        self.nodes_to_ask = lagging_ranks::nodes_to_ask(&self.state, cluster, &outcome);
        one_page::cap_second_pages(&self.state, &mut outcome);
        one_page::cap_late_starvation(&self.state, cluster, &mut outcome);
        probe_evidence::add_probe_evidence(&self.state, &self.cross_node, cluster, &mut outcome);
        outcome.undecidable.extend(self.undecidable_findings(cluster));
        ended_jobs::close_of_ended_jobs(&self.state, cluster, &mut outcome);
        outcome.coverage = evidence_coverage::check_coverage(&self.state, cluster);
        outcome
    }

    /// Computes what the findings cost, and explains those that opened or closed.
    fn explain_findings(&mut self, cluster: &Cluster) {
        self.loss.compute_losses(&mut self.state, cluster);
        for finding in self.state.tracker.just_closed(cluster.now()) {
            let signal = recovery_reason::explain_recovery(&self.state, cluster, &finding);
            self.state.tracker.set_recovery_reason(&finding.id, &signal);
        }
        for finding in self.state.tracker.due_for_explanation(cluster.now()) {
            let (chain, missing) =
                explanation_builder::explain_finding(&self.state, cluster, &finding);
            self.state.tracker.attach_explanation(&finding.id, chain, missing);
        }
        self.state.job_groups.forget_node_clocks();
    }

    /// Drops evidence of nodes that now report under another name: their last values remain for a while.
    fn leave_out_renamed(&self, cluster: &Cluster, outcome: &mut DetectorOutcome) {
        let nodes = Whereabouts::of(&self.state.node_names, cluster);
        let is_here = |finding: &Finding| {
            let gone = finding.entity.node.as_ref().and_then(|name| nodes.gone(name));
            !matches!(gone, Some(Gone::Renamed(_)))
        };
        outcome.findings.retain(&is_here);
        outcome.suspicions.retain(|held| is_here(&held.finding));
        outcome.undecidable.retain(|id| self.state.tracker.open_one(id).is_none_or(is_here));
    }

    /// Open findings that cannot be decided now: those of a silent node stay open, and those of a job that pauses
    /// or is about to be started again.
    fn undecidable_findings(&self, cluster: &Cluster) -> Vec<String> {
        let nodes = Whereabouts::of(&self.state.node_names, cluster);
        self.state.tracker.open_ids_where(|finding| {
            if checkpoint_pause::is_unclear(&self.state, cluster, finding)
                || crash_loop::is_between_runs(&self.state, finding)
                || standing_fault::outlives_evidence(&self.state, cluster, finding)
            {
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

    /// Returns the state and loss of every GPU as of the last step.
    pub fn loss(&self) -> &FleetLoss {
        &self.loss
    }

    /// Returns the nodes that are to read the status of NCCL's RAS, as of the last step: one of each job that seems to hang.
    pub fn nodes_to_ask(&self) -> &[NodeId] {
        &self.nodes_to_ask
    }

    /// Returns the state of the GPU at this row.
    pub fn gpu_state(&self, gpu: u32) -> GpuState {
        self.state.gpu_state(gpu)
    }

    /// Accepts the present level of all devices that an open finding names, and closes the finding. Returns whether it
    /// was open.
    pub fn accept_finding(&mut self, cluster: &Cluster, id: &str, by: &str) -> bool {
        baseline_acceptance::accept_finding(&mut self.state, cluster, id, by)
    }

    /// Returns all open findings, worst first.
    pub fn open_findings(&self) -> Vec<&Finding> {
        self.state.tracker.open_records().into_iter().map(|record| &record.finding).collect()
    }

    /// Returns all open findings with their history, worst first.
    pub fn open_records(&self) -> Vec<&FindingRecord> {
        self.state.tracker.open_records()
    }

    /// Returns closed findings that are retained, newest first.
    pub fn closed_records(&self) -> Vec<&FindingRecord> {
        self.state.tracker.closed_records()
    }

    /// Changes whenever a finding closes, reopens or is dropped.
    pub fn closed_revision(&self) -> u64 {
        self.state.tracker.closed_revision()
    }

    /// Findings that have evidence but exceed the quotas, by kind.
    pub fn over_limit_counts(&self) -> &BTreeMap<FindingKind, u32> {
        self.state.tracker.over_limit_counts()
    }

    /// Findings that were opened since the start.
    pub fn opened_counts(&self) -> &BTreeMap<FindingKind, u64> {
        self.state.tracker.opened_counts()
    }
}
