//! Missing telemetry: evidence that would have raised the confidence of a finding, or shown more of it.

use gaunt_schema::{
    DeviceClass, FindingKind, MetricId,
    catalogue::{ethernet, gpu, gpu_health, hardware, port},
};

use super::{
    super::{
        gpu_errors::UNCORRECTED_ERRORS, link_averages::LinkAverages,
        sample_interval::SampleInterval,
    },
    ExplanationScope,
};

/// The findings that a kind of evidence applies to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MissingScope {
    /// Every finding.
    All,
    /// Findings about GPU activity: what is known of the job.
    Job,
    /// Findings about GPU activity.
    Work,
    /// Findings about the network.
    Network,
    /// Findings that compare a GPU's clock.
    Clock,
    /// Findings about data starvation.
    Feeding,
    /// Slowdowns without a known cause.
    Cause,
}

/// The scope, the check for missing evidence, and the text.
type MissingTelemetryRule = (MissingScope, fn(&ExplanationScope<'_>) -> bool, &'static str);

/// All telemetry that may be missing.
const LACKS: [MissingTelemetryRule; 18] = [
    (
        MissingScope::All,
        has_slow_period,
        "slow scrape interval: anything shorter than two samples is missed",
    ),
    (
        MissingScope::Work,
        |scope| !scope.gpus.is_empty() && !scope.has_values(&[gpu::TENSOR_ACTIVE], &scope.gpus),
        "no profiling counters: tensor and SM activity are estimated from power",
    ),
    (
        MissingScope::Job,
        |scope| scope.group.is_some_and(|group| group.job.is_none()),
        "no job labels: GPUs of one job are inferred",
    ),
    (
        MissingScope::Job,
        |scope| !scope.gpus.is_empty() && scope.group.is_none(),
        "no known job: compared with its own baseline only",
    ),
    (
        MissingScope::Job,
        |scope| scope.group.is_some_and(|group| group.slowdown_ratio().is_none()),
        "no baseline of the job yet: job slowdown unknown",
    ),
    (
        MissingScope::Work,
        |scope| !scope.nodes.is_empty() && !scope.has_pressure_metrics(),
        "no PSI metrics: cannot tell IO wait from CPU contention",
    ),
    (
        MissingScope::Feeding,
        |scope| !scope.gpus.is_empty() && !scope.has_values(&[gpu::PCIE_RECEIVE], &scope.gpus),
        "no PCIe throughput: input rate unknown",
    ),
    (
        MissingScope::Cause,
        |scope| !scope.nodes.is_empty() && !scope.has_mount_metrics(),
        "no NFS statistics: response times of shared storage unknown",
    ),
    (
        MissingScope::Cause,
        |scope| !scope.gpus.is_empty() && !scope.has_values(&[gpu_health::PCIE_WIDTH], &scope.gpus),
        "no PCIe link width: a link with fewer lanes is not seen",
    ),
    (
        MissingScope::Cause,
        |scope| {
            scope.has_values(&NVLINK_TRAFFIC, &scope.gpus)
                && scope.gpus.iter().all(|row| scope.judge.nvlinks.of(*row).is_none())
        },
        "no NVLink counters: inactive links and NVLink errors unknown",
    ),
    (
        MissingScope::Clock,
        |scope| !scope.gpus.is_empty() && !scope.has_values(&CLOCK_EVENTS, &scope.gpus),
        "no clock-event reasons: cannot tell thermal from power throttling",
    ),
    (
        MissingScope::Work,
        |scope| !scope.gpus.is_empty() && scope.ports.is_empty() && scope.peer_ports.is_empty(),
        "no port metrics of the node: network not checked",
    ),
    (
        MissingScope::Network,
        |scope| !scope.all_have_leaf() && !scope.all_have_rail(),
        "no topology: rails are inferred from port names, leaf switches unknown",
    ),
    (
        MissingScope::Network,
        |scope| scope.all_have_leaf() && !scope.all_have_rail(),
        "no source states the rails: they are inferred from port names",
    ),
    (
        MissingScope::Network,
        |scope| !scope.all_have_leaf() && scope.all_have_rail(),
        "no source states the leaf switches: they are unknown",
    ),
    (
        MissingScope::Network,
        |scope| !scope.ports.is_empty() && !scope.has_values(&RDMA, &scope.ports),
        "no RDMA counters: ECN marks, CNPs and retransmitted packets unknown",
    ),
    (
        MissingScope::Network,
        |scope| !scope.ports.is_empty() && !scope.has_pause_counters(),
        "no PFC pause or transmit-wait counters: cannot tell sender from receiver congestion",
    ),
    (
        MissingScope::Network,
        |scope| {
            !scope.ports.is_empty()
                && scope.ports.iter().all(|row| scope.judge.switches.of(*row).is_none())
        },
        "switch not scraped: counters of the other end of the cable unknown",
    ),
];

const CLOCK_EVENTS: [MetricId; 3] =
    [gpu::CLOCK_EVENT_HW_SLOWDOWN, gpu::CLOCK_EVENT_SW_THERMAL, gpu::CLOCK_EVENT_HW_THERMAL];

const NVLINK_TRAFFIC: [MetricId; 2] = [gpu::NVLINK_RECEIVE, gpu::NVLINK_TRANSMIT];

const RDMA: [MetricId; 4] =
    [port::ECN_MARKED, port::CNP_HANDLED, port::OUT_OF_BUFFER, port::PACKET_SEQUENCE_ERRORS];

/// The text for a node that is not read: its last page is from before.
const UNREAD: &str = "node not scraped: its GPUs may still be working";

impl MissingScope {
    fn applies_to(self, kind: FindingKind) -> bool {
        use FindingKind as K;
        let network = matches!(
            kind,
            K::PortDown
                | K::PortRateLow
                | K::LinkErrors
                | K::LeafCongested
                | K::RailSlow
                | K::HostBlocksNetwork
        );
        // A state that the hardware or the exporter reports needs no further evidence.
        let fact = matches!(
            kind,
            K::GpuFailed
                | K::DriverHung
                | K::DataStale
                | K::TargetDown
                | K::FindingsOverLimit
                | K::AggregatorLate
                | K::JudgementFailed
                | K::CertificateExpiring
                | K::FilesystemFull
        );
        // Anything may be the cause of a slowdown that no finding explains.
        let unexplained = kind == K::UnexplainedSlowdown;
        match self {
            Self::All => !fact,
            Self::Job | Self::Work => !network && !fact,
            Self::Network => network || unexplained,
            Self::Clock => matches!(kind, K::ComputeStraggler | K::Throttled) || unexplained,
            Self::Feeding => {
                matches!(kind, K::DataStarved | K::StorageSlow | K::HostBound) || unexplained
            }
            Self::Cause => unexplained,
        }
    }
}

/// Returns what is missing for a node that is not read.
pub(super) fn missing_while_unread() -> Vec<String> {
    vec![UNREAD.to_owned()]
}

fn has_slow_period(scope: &ExplanationScope<'_>) -> bool {
    SampleInterval::of_pages(scope.cluster).is_slow(&scope.judge.limits)
}

impl ExplanationScope<'_> {
    /// Returns what is unknown, in a few words each.
    pub(super) fn missing_telemetry(&self, kind: FindingKind) -> Vec<String> {
        let mut missing: Vec<String> = LACKS
            .iter()
            .filter(|(of, lacks, _)| of.applies_to(kind) && lacks(self))
            .map(|(.., words)| (*words).to_owned())
            .collect();
        if kind == FindingKind::GpuFailed && !self.has_values(UNCORRECTED_ERRORS, &self.gpus) {
            missing.push("no ECC counters: memory errors unknown".to_owned());
        }
        missing
    }

    /// Returns the names of the telemetry that is missing and would show the cause of a slowdown.
    pub(super) fn deciding_telemetry(&self) -> Vec<&'static str> {
        let shows = |of: MissingScope| !matches!(of, MissingScope::All | MissingScope::Job);
        let lacks = LACKS.iter().filter(|(of, lacks, _)| shows(*of) && lacks(self));
        let named = lacks.filter_map(|(.., words)| words.strip_prefix("no ")?.split_once(':'));
        named.map(|(name, _)| name).collect()
    }

    /// Whether one of these series was ever reported for one of these devices.
    fn has_values(&self, series: &[MetricId], rows: &[u32]) -> bool {
        let is_reported = |metric: MetricId| {
            rows.iter().any(|row| self.cluster.last_value(metric, *row).is_some())
        };
        series.iter().any(|metric| is_reported(*metric))
    }

    /// Whether response times of a network file system are reported.
    fn has_mount_metrics(&self) -> bool {
        let nodes = self.nodes.iter().filter_map(|id| self.cluster.node_by_id(*id));
        let rows = nodes.flat_map(|node| node.device_rows(DeviceClass::Mount));
        self.has_values(&[hardware::MOUNT_READ_TIME], &rows.copied().collect::<Vec<u32>>())
    }

    fn has_pressure_metrics(&self) -> bool {
        let mut hosts = self.nodes.iter().filter_map(|id| self.judge.hosts.get(*id));
        hosts.any(|host| host.compare_io_pressure(self.cluster).is_some())
    }

    /// Whether a source states the leaf switch of each port, or of its node.
    fn all_have_leaf(&self) -> bool {
        let topology = self.cluster.topology();
        let node = |row: u32| Some(self.cluster.device_at(DeviceClass::Port, row)?.node);
        self.ports
            .iter()
            .all(|row| node(*row).is_some_and(|node| topology.leaf_of_port(node, *row).is_some()))
    }

    /// Whether a source states the rail of each port.
    fn all_have_rail(&self) -> bool {
        let topology = self.cluster.topology();
        self.ports
            .iter()
            .all(|row| topology.port_topology(*row).is_some_and(|port| port.rail.is_some()))
    }

    fn has_pause_counters(&self) -> bool {
        let pauses = [ethernet::RECEIVE_PAUSED_3, ethernet::RECEIVE_GLOBAL_PAUSED];
        let stopped = |row: &u32| {
            let link = self.judge.links.of(*row);
            link.and_then(LinkAverages::netdev_row)
                .is_some_and(|row| self.has_values(&pauses, &[row]))
        };
        self.has_values(&[port::TRANSMIT_WAIT], &self.ports) || self.ports.iter().any(stopped)
    }
}
