//! Evidence catalogue: the rows of evidence with their series and limits.

use gaunt_schema::{
    EvidenceItem, EvidenceRole, HistoryRelation, LimitSide, MetricId,
    catalogue::{
        collective, ethernet, exporter, gpu, gpu_health, gpu_parts, hardware, host, nccl_ras, port,
        probe_results, service, switch_port,
    },
    unit::Unit,
};

use super::{
    gpu_errors::MEMORY_ERRORS,
    port_counters::{LINK_ERRORS, NETDEV_ERRORS, RETRANSMITS},
};

#[cfg(test)]
mod tests;

/// The source of one evidence value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EvidenceSource {
    /// The series that it is computed from; empty if gaunt counts it itself.
    pub(super) series: &'static [MetricId],
    /// The settings key of its limit; empty if its limit is no setting.
    pub(super) threshold: &'static str,
    /// Whether it describes the blamed device, and not others that it is compared with.
    own: bool,
    /// Whether its limit has the unit of the series itself. Other limits apply to a value derived from the series.
    same_unit: bool,
    /// The side of its limit on which it counts.
    pub(super) side: LimitSide,
    /// What it is for where it has a limit.
    role: EvidenceRole,
    /// Whether it shows the fault without a limit.
    is_fact: bool,
}

impl EvidenceSource {
    /// Sets the limit, which applies to a value derived from the series.
    const fn limit(self, threshold: &'static str) -> Self {
        Self { threshold, ..self }
    }

    /// Sets the limit, which has the unit of the series.
    const fn series_limit(self, threshold: &'static str) -> Self {
        Self { threshold, same_unit: true, ..self }
    }

    /// Counts below its limit; others count at the limit or above.
    const fn below(self) -> Self {
        Self { side: LimitSide::Below, ..self }
    }

    /// Rules out another cause on its side of the limit.
    const fn rules_out(self) -> Self {
        Self { role: EvidenceRole::RulesOut, ..self }
    }

    /// Shows the fault by itself: an error code, or something that must not occur at all.
    const fn fact(self) -> Self {
        Self { is_fact: true, ..self }
    }

    /// Joins the names of the series for display.
    pub(super) fn join_series(&self) -> String {
        self.series.iter().map(|id| id.series_key()).collect::<Vec<_>>().join(", ")
    }
}

/// A value of the blamed device.
const fn own(series: &'static [MetricId]) -> EvidenceSource {
    EvidenceSource {
        series,
        threshold: "",
        own: true,
        same_unit: false,
        side: LimitSide::AtLeast,
        role: EvidenceRole::Proof,
        is_fact: false,
    }
}

/// A value of other devices, or one that gaunt counts itself.
const fn other(series: &'static [MetricId]) -> EvidenceSource {
    EvidenceSource { own: false, ..own(series) }
}

/// Declares the rows: each by its name, label, unit and source.
macro_rules! evidence_rows {
    ($($row:ident: $label:literal, $unit:ident, $source:expr;)+) => {
        /// One kind of evidence value; its label identifies it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum EvidenceRow {
            $(#[doc = $label] $row,)+
        }

        impl EvidenceRow {
            /// All rows.
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$row,)+];

            /// Returns its label and unit.
            pub(super) const fn label(self) -> (&'static str, Unit) {
                match self {
                    $(Self::$row => ($label, Unit::$unit),)+
                }
            }

            /// Returns the source of its values.
            pub(super) const fn source(self) -> EvidenceSource {
                match self {
                    $(Self::$row => $source,)+
                }
            }
        }
    };
}

impl EvidenceRow {
    /// Whether a value is of this row; the label of a value with a name is no row's.
    pub(super) fn is_row_of(self, number: &EvidenceItem) -> bool {
        self.label().0 == number.what
    }

    /// Creates a value with its limit; without one it is context, unless it is a fact.
    pub(super) fn to_evidence(self, value: Option<f64>, limit: Option<f64>) -> EvidenceItem {
        let ((label, unit), source) = (self.label(), self.source());
        let (side, role) = match limit {
            Some(_) => (source.side, source.role),
            None if source.is_fact => (LimitSide::Unknown, EvidenceRole::Proof),
            None => (LimitSide::Unknown, EvidenceRole::Context),
        };
        EvidenceItem {
            what: label.to_owned(),
            value,
            unit,
            limit,
            side,
            role,
            note: String::new(),
            source: source.join_series(),
            threshold: source.threshold.to_owned(),
            past: match (source.own && !source.series.is_empty(), source.same_unit) {
                (false, _) => HistoryRelation::Nothing,
                (true, false) => HistoryRelation::Part,
                (true, true) => HistoryRelation::Same,
            },
        }
    }
}

// A label that is followed by a name ends in a preposition.
evidence_rows! {
    // Ports and links.
    LogicalState: "logical state", Count, own(&[port::STATE]).series_limit("port_samples").below();
    PhysicalState: "physical state", Count, own(&[port::PHYSICAL_STATE]).below();
    ActiveSiblingPorts: "active sibling ports", Count, other(&[port::STATE]);
    ActivePeerPorts: "other nodes with the same port active", Count, other(&[port::STATE]);
    InactivePorts: "inactive ports of the node", Count, own(&[port::STATE]);
    LinkDowned: "link-down events", Count, own(&[port::LINK_DOWNED]).fact();
    LinkRecoveries: "link error recoveries", Count, own(&[port::LINK_ERROR_RECOVERY]).fact();
    Carrier: "carrier", Count, own(&[host::NETDEV_CARRIER]).below();
    CarrierChanges: "carrier changes", Count, own(&[host::NETDEV_CARRIER_CHANGES]).fact();
    LineRate: "line rate", BytesPerSecond, own(&[port::RATE]).below();
    NetdevRate: "line rate of the network device", BytesPerSecond, own(&[host::NETDEV_SPEED]).below();
    FormerLineRate: "line rate while active", BytesPerSecond, own(&[port::RATE]);
    PeerLineRate: "line rate of this port on most other nodes", BytesPerSecond, other(&[port::RATE]);
    LinkWidth: "link width", Count, own(&[port::LANES]);
    LinkErrors: "link errors per second", Count,
        own(ERRORS).series_limit("errors_per_second");
    LinkErrorCount: "link errors, recent minutes", Count, own(ERRORS);
    FaultyPorts: "ports with link errors", Count, own(ERRORS);
    SegmentResends: "share of TCP segments sent again", Ratio, other(&[host::TCP_RESENT, host::TCP_SENT]);
    ResendingNodes: "nodes that send more TCP segments again than before", Count, other(&[host::TCP_RESENT]);
    DroppedPackets: "share of received packets that are dropped", Ratio,
        other(&[host::NETDEV_RECEIVE_DROPS, host::NETDEV_RECEIVE_PACKETS]);
    SwitchLinkErrors: "link errors per second (switch)", Count,
        other(SWITCH_ERRORS).series_limit("errors_per_second");
    CorrectedBits: "FEC-corrected bits / baseline", Count,
        own(&[ethernet::CORRECTED_BITS]).limit("counter_times");
    Retransmits: "retransmitted packets (sequence errors) per second", Count, own(&RETRANSMITS);
    PortUtilization: "port utilization (busier direction)", Ratio, own(TRAFFIC);
    PortTraffic: "port traffic / line rate", Ratio,
        own(NODE_TRAFFIC).limit("silent_network_ratio").below();
    TrafficChange: "port traffic / baseline", Ratio,
        own(TRAFFIC).limit("like_pace_share").rules_out();

    // Congestion.
    CongestedPorts: "congested ports", Count,
        own(&[port::ECN_MARKED, port::CNP_HANDLED]).limit("members_bad_ratio");
    CongestedTogether: "times congested together", Count,
        own(&[port::ECN_MARKED, port::TRANSMIT_WAIT]).limit("together_ports");
    EcnMarked: "ECN-marked packets", Ratio, own(&[port::ECN_MARKED]).limit("congested_ratio");
    MarkedTimes: "ECN-marked packets / baseline", Count, own(&[port::ECN_MARKED]).limit("marked_times");
    CnpsReceived: "CNPs received / baseline", Count, own(&[port::CNP_HANDLED]).limit("counter_times");
    CnpSenders: "senders receiving CNPs", Count, own(&[port::CNP_HANDLED]).limit("sharing_members");
    TransmitWait: "transmit wait / baseline", Count, own(&[port::TRANSMIT_WAIT]).limit("counter_times");
    WaitingSenders: "ports that wait to send", Count, own(WAITING);
    PauseReceived: "PFC pause time received", Ratio,
        own(&[ethernet::RECEIVE_PAUSED_3, ethernet::RECEIVE_GLOBAL_PAUSED]).series_limit("congested_ratio");
    PauseSent: "PFC pause time sent", Ratio, own(PAUSES).series_limit("pauses_ratio");
    PausingPorts: "ports sending PFC pause", Count, own(PAUSES);
    DroppingPorts: "ports with out_of_buffer drops", Count, own(&[port::OUT_OF_BUFFER]);
    OutOfBuffer: "out_of_buffer drops per second", Count,
        own(&[port::OUT_OF_BUFFER]).series_limit("unbuffered_per_second");
    SwitchQueue: "switch queue wait and discards (× limit)", Count,
        other(&[switch_port::TRANSMIT_WAIT, switch_port::TRANSMIT_DISCARDS]).limit("switch_waited_ratio");
    SwitchPauseFrames: "PFC pause frames per second received by the switch", Count,
        other(&[switch_port::RECEIVE_PAUSE]).limit("switch_events_per_second");

    // Hosts and their input.
    IoPressure: "IO pressure (PSI or iowait)", Ratio,
        own(&[host::IO_PRESSURE, host::CPU_IOWAIT]).series_limit("io_pressure_ratio");
    StorageResponse: "NFS response time per request", Seconds,
        own(&[hardware::MOUNT_READ_TIME, hardware::MOUNT_READS]).limit("slow_response_times");
    CpuPressure: "CPU pressure (PSI some)", Ratio,
        own(&[host::CPU_PRESSURE]).series_limit("cpu_pressure_ratio");
    MemoryPressure: "memory pressure (PSI some)", Ratio,
        own(&[host::MEMORY_PRESSURE]).series_limit("memory_pressure_ratio");
    KernelTime: "share of the host's CPUs that its kernel takes", Ratio,
        other(&[host::CPU_KERNEL, host::CPU_BUSY, host::CPUS]);
    DeviceMtu: "MTU of a network device", Bytes, other(&[host::NETDEV_MTU]).below();
    BusiestCpu: "busiest CPU", Ratio, own(&[host::CPU_BUSIEST]).series_limit("busiest_cpu_ratio");
    StarvedGpus: "starved GPUs", Count, own(&[gpu::UTILIZATION]);
    StarvedUtilization: "utilization of the starved GPUs", Ratio,
        own(&[gpu::UTILIZATION]).series_limit("hungry_ratio").below();
    OtherUtilization: "utilization of the job's other GPUs", Ratio, other(&[gpu::UTILIZATION]);
    StarvedNodes: "nodes waiting for IO", Count, own(&[host::IO_PRESSURE, gpu::UTILIZATION]);
    QueuedRequests: "queued requests", Count, own(&[service::WAITING]).limit("queue_requests");
    RunningRequests: "running requests", Count, own(&[service::RUNNING]);
    RequestRate: "completed requests per second", Count, own(&[service::REQUESTS]);
    BusiestGpu: "utilization of the busiest GPU", Ratio,
        own(&[gpu::UTILIZATION]).limit("queue_idle_ratio").below();

    // Jobs.
    JobSlowdown: "job slowdown", Ratio, own(WORK).limit("slowed_ratio");
    UnexplainedLoss: "job slowdown without a cause", Ratio, own(WORK).limit("unexplained_ratio");
    PauseSeconds: "seconds for which the job stands still", Seconds, own(WORK);
    PauseShare: "share of the time in which the job stands still", Ratio,
        own(WORK).limit("unexplained_ratio");
    ProcessEnds: "ends of its processes in a row", Count, own(&[gpu::MEMORY_USED]).fact();
    RestartShare: "share of the time lost to restarts", Ratio,
        own(&[gpu::MEMORY_USED]).limit("unexplained_ratio");
    Activity: "activity / baseline", Ratio, own(WORK).limit("hung_pace_ratio").below();
    BusyWaitingGpus: "GPUs busy-waiting in a collective", Count,
        own(&[gpu::UTILIZATION]).limit("hung_gpus_ratio");
    WaitingGpus: "waiting GPUs of the job", Count,
        own(&[gpu::UTILIZATION, gpu::TENSOR_ACTIVE, gpu::SM_ACTIVE, gpu::POWER])
            .limit("utilization_spinning_ratio");
    IdleGpus: "allocated idle GPUs", Count, own(&[gpu::UTILIZATION, gpu::PROCESSES]).fact();
    NodeWork: "work of this node / the other nodes", Ratio, own(WORK).limit("waited_for_ratio");
    NodeActivity: "activity of these nodes / job median", Count, own(WORK).limit("uneven_times");
    CollectiveTime: "collective time of the last rank / others", Ratio,
        other(&[collective::DURATION]).limit("late_rank_ratio").below();
    LaggingRank: "operations launched by the lagging rank", Count,
        other(&[nccl_ras::LAUNCHED, nccl_ras::EXPECTED]).below();
    UnreachedRanks: "ranks that NCCL RAS does not reach", Count,
        other(&[nccl_ras::MISSING_DEAD, nccl_ras::MISSING_UNRESPONSIVE]).fact();
    BusiestNode: "samples with the same busiest node", Ratio,
        own(WORK).limit("favourite_ratio").below();

    // GPUs.
    Utilization: "utilization", Ratio, own(&[gpu::UTILIZATION]);
    SmActivity: "SM activity", Ratio, own(&[gpu::SM_ACTIVE]);
    TensorActivity: "tensor activity", Ratio, own(&[gpu::TENSOR_ACTIVE]);
    PeerActivity: "tensor activity / peer median", Ratio,
        own(&[gpu::TENSOR_ACTIVE]).limit("uneven_times");
    LingeringGpu: "SM activity for the same tensor activity / job median", Ratio,
        own(&[gpu::SM_ACTIVE, gpu::TENSOR_ACTIVE]);
    AwaitedGpu: "power / usual, as a multiple of that of its waiting job", Ratio, own(&[gpu::POWER]);
    UnchangedGpu: "change of its power, temperature or activity / that of its job", Ratio,
        own(&[gpu::ENERGY, gpu::POWER, gpu::TEMPERATURE, gpu::SM_ACTIVE, gpu::DRAM_ACTIVE, gpu::MEMORY_ACTIVITY]);
    DramActivity: "DRAM activity", Ratio, own(&[gpu::DRAM_ACTIVE]);
    MemoryActivity: "memory activity", Ratio,
        own(&[gpu::MEMORY_ACTIVITY]).limit("standstill_ratio").below();
    Power: "power / power limit", Ratio,
        own(&[gpu::POWER, gpu::POWER_LIMIT]).limit("power_waiting_ratio").below();
    Temperature: "temperature", Celsius, own(&[gpu::TEMPERATURE]);
    SlowGpus: "slow GPUs of the node", Count, own(&[gpu::SM_CLOCK]);
    SmClock: "SM clock", Hertz, own(&[gpu::SM_CLOCK]).series_limit("slow_clock_ratio").below();
    ClockOfPeers: "SM clock / peer median", Ratio,
        own(&[gpu::SM_CLOCK]).series_limit("slow_clock_ratio").below();
    ClockDrift: "SM clock / peer median, drift", Ratio,
        own(&[gpu::SM_CLOCK]).limit("drift_slack_ratio").below();
    ClockChange: "SM clock / baseline", Ratio,
        own(&[gpu::SM_CLOCK]).limit("slow_clock_ratio").rules_out();
    Slowdown: "thermal or HW slowdown", Ratio, own(CLOCK_EVENTS).limit("clock_event_ratio");
    PowerCap: "SW power cap", Count, own(&[gpu::CLOCK_EVENT_SW_POWER_CAP]);
    FailedGpus: "failed GPUs (missing or XID)", Count, own(&[gpu::PRESENT, gpu_parts::XID_ERRORS]);
    GpuPresent: "GPU present (NVML)", Count, own(&[gpu::PRESENT]).below();
    Xid: "XID", Count, own(&[gpu_parts::XID_ERRORS]).fact();
    EccErrorAge: "time since an uncorrectable ECC error", Seconds,
        own(MEMORY_ERRORS).fact();
    RowRemapFailed: "row remapping failed", Count, own(&[gpu_health::REMAP_FAILED]).fact();
    RowsRemapped: "memory rows remapped, recent minutes", Count,
        own(&[gpu_health::REMAPPED_CORRECTED]);
    PcieReplays: "PCIe replays per second", Count,
        own(&[gpu_health::PCIE_REPLAYS]).series_limit("errors_per_second");
    PcieReplayCount: "PCIe replays, recent minutes", Count, own(&[gpu_health::PCIE_REPLAYS]);
    PcieWidth: "PCIe link width", Count,
        own(&[gpu_health::PCIE_WIDTH, gpu_health::PCIE_WIDTH_MAX]).below();
    PcieGeneration: "PCIe generation", Count,
        own(&[gpu_health::PCIE_GENERATION, gpu_health::PCIE_GENERATION_MAX]).below();
    ActiveNvlinks: "active NVLinks", Count, own(&[gpu_parts::NVLINK_UP]).below();
    NvlinkErrorCount: "NVLink errors, recent minutes", Count,
        own(&[gpu_parts::NVLINK_REPLAY, gpu_parts::NVLINK_RECOVERY, gpu_parts::NVLINK_CRC]);
    NvlinkErrors: "NVLink errors per second", Count,
        own(&[gpu_parts::NVLINK_REPLAY, gpu_parts::NVLINK_RECOVERY, gpu_parts::NVLINK_CRC])
            .limit("errors_per_second");
    FabricGpus: "GPUs with a degraded NVLink fabric", Count,
        own(&[gpu_health::FABRIC_HEALTH_MASK, gpu_health::FABRIC_STATE]).fact();
    FabricHealthMask: "NVLink fabric health mask", Count,
        own(&[gpu_health::FABRIC_HEALTH_MASK]).fact();
    FabricHealthSummary: "NVLink fabric health summary", Count,
        own(&[gpu_health::FABRIC_HEALTH_SUMMARY]).fact();
    FabricState: "NVLink fabric registration state", Count, own(&[gpu_health::FABRIC_STATE]).fact();
    ImexState: "IMEX daemon state", Count, own(&[gpu_health::IMEX_STATE]).fact();

    // Probes.
    ProbeBandwidth: "probe bandwidth / baseline", Ratio,
        own(&[probe_results::BASELINE_RATIO]).limit("probe_baseline_ratio").below();
    ProbeReference: "probe bandwidth / reference of the GPU model", Ratio,
        own(&[probe_results::REFERENCE_RATIO]).below();
    CrossNodeProbe: "cross-node probe bandwidth / baseline of the rail", Ratio,
        other(&[]).limit("probe_baseline_ratio").below();
    WrongElements: "wrong elements in the probe result", Count, own(&[probe_results::WRONG]).fact();

    // Telemetry.
    FailedScrapes: "consecutive failed scrapes of", Count, other(&[]).limit("target_failures");
    DiscardedResults: "late results discarded of", Count, other(&[]).limit("target_failures");
    UntriedTargets: "targets not scraped in time by gaunt", Count, other(&[]).limit("untried_targets");
    LateScrapes: "scrapes that gaunt started too late, last minute", Ratio,
        other(&[]).limit("own_late_ratio");
    StalledTime: "time in which gaunt was stalled, last minute", Ratio,
        other(&[]).limit("own_late_ratio");
    ScrapeInterval: "actual scrape interval / configured", Count, other(&[]).limit("own_late_ratio");
    FailedJudgements: "judgements that failed one after the other", Count, other(&[]);
    StaleGpus: "GPUs with stale values", Count,
        own(&[gpu::UTILIZATION, gpu::POWER]).limit("driver_hung_seconds");
    CollectorSuccess: "success of collector", Count,
        own(&[exporter::COLLECTOR_SUCCESS]).limit("driver_hung_seconds").below();
    CertificateTime: "time until the certificate expires", Seconds,
        other(&[host::CERTIFICATE_EXPIRY]).limit("certificate_seconds").below();
    FreeSpace: "free share of the space of", Ratio,
        own(&[hardware::MOUNT_AVAILABLE, hardware::MOUNT_SIZE]).limit("filesystem_free_ratio").below();
    FreeInodes: "free share of the inodes of", Ratio,
        own(&[hardware::MOUNT_FREE_INODES, hardware::MOUNT_INODES]).limit("filesystem_free_ratio").below();
    StaleTime: "time without a changed value", Seconds, other(&[]).limit("stale_seconds");
    SourceUnread: "time since the target source was last readable", Seconds,
        other(&[]).limit("source_unread_seconds");
}

const TRAFFIC: &[MetricId] = &[port::RECEIVE_BYTES, port::TRANSMIT_BYTES];
/// What a node sends and receives: by its ports, or by its network devices where it has none.
const NODE_TRAFFIC: &[MetricId] = &[
    port::RECEIVE_BYTES,
    port::TRANSMIT_BYTES,
    port::RATE,
    host::NETDEV_RECEIVE_BYTES,
    host::NETDEV_TRANSMIT_BYTES,
    host::NETDEV_SPEED,
];
/// Errors of a link, as its port counts them, and as its network device does.
const ERRORS: &[MetricId] = {
    let [symbols, received, integrity, checksums] = LINK_ERRORS;
    let [packets, wrong, uncorrected] = NETDEV_ERRORS;
    &[symbols, received, integrity, checksums, packets, wrong, uncorrected]
};
const SWITCH_ERRORS: &[MetricId] = &[switch_port::SYMBOL_ERRORS, switch_port::RECEIVE_ERRORS];
const WAITING: &[MetricId] =
    &[port::TRANSMIT_WAIT, ethernet::RECEIVE_PAUSED_3, ethernet::RECEIVE_GLOBAL_PAUSED];
const PAUSES: &[MetricId] = &[ethernet::TRANSMIT_PAUSED_3, ethernet::TRANSMIT_GLOBAL_PAUSED];

/// Series that show how much a GPU works.
const WORK: &[MetricId] = &[gpu::TENSOR_ACTIVE, gpu::POWER];

const CLOCK_EVENTS: &[MetricId] = &[
    gpu::CLOCK_EVENT_HW_SLOWDOWN,
    gpu::CLOCK_EVENT_HW_THERMAL,
    gpu::CLOCK_EVENT_HW_POWER_BRAKE,
    gpu::CLOCK_EVENT_SW_THERMAL,
];
