//! The state of the judge, which it updates at each step and its detectors read.

use std::collections::{BTreeMap, HashMap, HashSet};

use gaunt_cluster::NodeId;
use gaunt_schema::{GpuState, SanitizedText, UnixMs};

use super::{
    BaselineSnapshot, Thresholds,
    finding_lifecycle::FindingTracker,
    frozen_baselines::FrozenBaselines,
    gang_evidence::GangEvidence,
    gpu_errors::GpuErrorTracker,
    gpu_tracker::{self, GpuTracker},
    host_averages::HostAverages,
    inferred_leaf::InferredLeaves,
    job_group::JobGroups,
    job_pauses::Pauses,
    job_restarts::JobRestarts,
    late_ranks::LateRankTable,
    link_averages::LinkTable,
    netdev_rates::NetdevRates,
    node_means::NodeMeans,
    node_names::NodeNames,
    node_table::NodeTable,
    nvlink_table::NvlinkTable,
    port_trackers::PortTrackers,
    standout_gpus::StandoutTable,
    stop_history::StopHistories,
    switch_port_averages::SwitchPortTable,
    usual_pressure::UsualPressure,
    work_shares::WorkShares,
};

/// What the judge knows between two steps: averages, baselines, job groups and findings. Detectors read it.
#[derive(Debug)]
pub(super) struct JudgeState {
    pub(super) limits: Box<Thresholds>,
    pub(super) gpus: Vec<GpuTracker>,
    pub(super) hosts: NodeTable<HostAverages>,
    /// When gaunt was last cut off from its nodes; zero if never.
    pub(super) cut_off_at: UnixMs,
    pub(super) hung_since: BTreeMap<SanitizedText, UnixMs>,
    /// The same as restored after a restart, for jobs that were not seen since.
    pub(super) restored_hung_since: BTreeMap<SanitizedText, UnixMs>,
    pub(super) ports: PortTrackers,
    pub(super) links: LinkTable,
    pub(super) switches: SwitchPortTable,
    pub(super) netdevs: NetdevRates,
    pub(super) nvlinks: NvlinkTable,
    pub(super) health: GpuErrorTracker,
    /// The timestamp of each node's page whose health was read last.
    pub(super) health_read_at: HashMap<NodeId, UnixMs>,
    pub(super) job_groups: JobGroups,
    pub(super) pauses: Pauses,
    pub(super) restarts: JobRestarts,
    pub(super) stops: StopHistories,
    pub(super) shares: WorkShares,
    pub(super) node_means: NodeMeans,
    pub(super) gangs: GangEvidence,
    pub(super) late_ranks: LateRankTable,
    pub(super) standouts: StandoutTable,
    pub(super) usual_pressure: UsualPressure,
    pub(super) inferred_leaves: InferredLeaves,
    pub(super) tracker: FindingTracker,
    /// GPUs and nodes that open findings name.
    pub(super) frozen: FrozenBaselines,
    /// Baselines from before a restart of devices that were not seen since.
    pub(super) restored_baselines: BaselineSnapshot,
    /// The GPUs of each node from before a restart, by node name.
    pub(super) restored_gpus: HashMap<SanitizedText, HashSet<SanitizedText>>,
    /// The node that each target reports as, now and before a restart.
    pub(super) node_names: NodeNames,
    /// The time of the first step.
    pub(super) first_step: Option<UnixMs>,
}

impl JudgeState {
    /// Creates a state with these limits and nothing known.
    pub(super) fn new(limits: Thresholds) -> Self {
        Self {
            limits: Box::new(limits),
            gpus: Vec::new(),
            hosts: NodeTable::default(),
            cut_off_at: UnixMs(0),
            hung_since: BTreeMap::new(),
            restored_hung_since: BTreeMap::new(),
            ports: PortTrackers::default(),
            links: LinkTable::default(),
            switches: SwitchPortTable::default(),
            netdevs: NetdevRates::default(),
            nvlinks: NvlinkTable::default(),
            health: GpuErrorTracker::default(),
            health_read_at: HashMap::new(),
            job_groups: JobGroups::default(),
            pauses: Pauses::default(),
            restarts: JobRestarts::default(),
            stops: StopHistories::default(),
            shares: WorkShares::default(),
            node_means: NodeMeans::default(),
            gangs: GangEvidence::default(),
            late_ranks: LateRankTable::default(),
            standouts: StandoutTable::default(),
            usual_pressure: UsualPressure::default(),
            inferred_leaves: InferredLeaves::default(),
            tracker: FindingTracker::default(),
            frozen: FrozenBaselines::default(),
            restored_baselines: BaselineSnapshot::default(),
            restored_gpus: HashMap::new(),
            node_names: NodeNames::default(),
            first_step: None,
        }
    }

    /// Returns the state of the GPU at this row.
    pub(super) fn gpu_state(&self, row: u32) -> GpuState {
        gpu_tracker::state_at_row(&self.gpus, row)
    }
}
