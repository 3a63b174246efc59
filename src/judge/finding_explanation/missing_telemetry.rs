//! Missing telemetry: evidence that would have raised the confidence of a finding, or shown more of it.

use gaunt_schema::{
    FindingKind, MetricId,
    catalogue::{ethernet, gpu, gpu_health, port},
};

use super::{super::link_averages::LinkAverages, ExplanationScope};

/// The findings that a kind of evidence applies to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MissingScope {
    /// Every finding.
    All,
    /// Findings about GPU activity.
    Work,
    /// Findings about the network.
    Network,
    /// Findings that compare a GPU's clock.
    Clock,
    /// Findings about data starvation.
    Feeding,
}

/// The scope, the check for missing evidence, and the text.
type MissingTelemetryRule = (MissingScope, fn(&ExplanationScope<'_>) -> bool, &'static str);

/// All telemetry that may be missing.
const LACKS: [MissingTelemetryRule; 13] = [
    (
        MissingScope::All,
        has_slow_period,
        "read so seldom that what is shorter than two looks is not seen",
    ),
    (
        MissingScope::Work,
        |place| !place.gpus.is_empty() && !place.has_values(&[gpu::TENSOR_ACTIVE], &place.gpus),
        "no profiling counters: how much its tensor cores and SMs work is told by power alone",
    ),
    (
        MissingScope::Work,
        |place| place.gang.is_some_and(|gang| gang.job.is_none()),
        "nobody names the jobs: which GPUs step together was inferred",
    ),
    (
        MissingScope::Work,
        |place| !place.gpus.is_empty() && place.gang.is_none(),
        "no job is known on it: nobody could be compared with it but its own past",
    ),
    (
        MissingScope::Work,
        |place| place.gang.is_some_and(|gang| gang.slowdown_ratio().is_none()),
        "what is usual for the job is not known yet: what it has lost cannot be told",
    ),
    (
        MissingScope::Work,
        |place| !place.nodes.is_empty() && !place.has_pressure_metrics(),
        "no pressure of the host is told: whether it waits for storage or a CPU is not known",
    ),
    (
        MissingScope::Feeding,
        |place| !place.gpus.is_empty() && !place.has_values(&[gpu::PCIE_RECEIVE], &place.gpus),
        "no PCIe traffic is told: how much input arrives is not known",
    ),
    (
        MissingScope::Clock,
        |place| !place.gpus.is_empty() && !place.has_values(&CLOCK_EVENTS, &place.gpus),
        "no reasons of low clocks are told: whether heat or power holds one is not known",
    ),
    (
        MissingScope::Work,
        |place| !place.gpus.is_empty() && place.ports.is_empty() && place.peer_ports.is_empty(),
        "no port of the node is told: the network could not be looked at",
    ),
    (
        MissingScope::Network,
        |place| {
            !place.ports.is_empty() && !place.ports.iter().all(|row| place.has_leaf_and_rail(*row))
        },
        "nobody names its leaf switch or rail: ports of equal names were taken for a rail, and no leaf for granted",
    ),
    (
        MissingScope::Network,
        |place| !place.ports.is_empty() && !place.has_values(&RDMA, &place.ports),
        "no RDMA counters: marks, notifications to slow down and packets sent again are not known",
    ),
    (
        MissingScope::Network,
        |place| !place.ports.is_empty() && !place.has_pause_counters(),
        "neither pauses nor waiting of its ports are told: who stops whom is not known",
    ),
    (
        MissingScope::Network,
        |place| {
            !place.ports.is_empty()
                && place.ports.iter().all(|row| place.judge.switches.of(*row).is_none())
        },
        "its switch is not read: what the other end of the cable counts is not known",
    ),
];

const CLOCK_EVENTS: [MetricId; 3] =
    [gpu::CLOCK_EVENT_HW_SLOWDOWN, gpu::CLOCK_EVENT_SW_THERMAL, gpu::CLOCK_EVENT_HW_THERMAL];

const RDMA: [MetricId; 4] =
    [port::ECN_MARKED, port::CNP_HANDLED, port::OUT_OF_BUFFER, port::PACKET_SEQUENCE_ERRORS];

/// The text for a node that is not read: its last page is from before.
const UNREAD: &str = "nothing is known of the node while it is not read, and its GPUs may work on";

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
        );
        match self {
            Self::All => !fact,
            Self::Work => !network && !fact,
            Self::Network => network,
            Self::Clock => matches!(kind, K::ComputeStraggler | K::Throttled),
            Self::Feeding => matches!(kind, K::DataStarved | K::StorageSlow | K::HostBound),
        }
    }
}

/// Returns what is missing for a node that is not read.
pub(super) fn missing_while_unread() -> Vec<String> {
    vec![UNREAD.to_owned()]
}

fn has_slow_period(place: &ExplanationScope<'_>) -> bool {
    place.judge.has_slow_period(place.cluster)
}

impl ExplanationScope<'_> {
    /// Returns what is unknown, in a few words each.
    pub(super) fn missing_telemetry(&self, kind: FindingKind) -> Vec<String> {
        let mut missing: Vec<String> = LACKS
            .iter()
            .filter(|(of, lacks, _)| of.applies_to(kind) && lacks(self))
            .map(|(.., words)| (*words).to_owned())
            .collect();
        if kind == FindingKind::GpuFailed
            && !self.has_values(&[gpu_health::ECC_UNCORRECTED_VOLATILE], &self.gpus)
        {
            missing.push(
                "no memory errors are told: whether its memory is sound is not known".to_owned(),
            );
        }
        missing
    }

    /// Whether one of these series was ever reported for one of these devices.
    fn has_values(&self, series: &[MetricId], rows: &[u32]) -> bool {
        let told = |metric: MetricId| {
            rows.iter().any(|row| self.cluster.last_value(metric, *row).is_some())
        };
        series.iter().any(|metric| told(*metric))
    }

    fn has_pressure_metrics(&self) -> bool {
        let mut hosts = self.nodes.iter().filter_map(|id| self.judge.hosts.get(id));
        hosts.any(|host| host.compare_io_pressure(self.cluster).is_some())
    }

    /// Whether the leaf and rail of the port are known.
    fn has_leaf_and_rail(&self, row: u32) -> bool {
        let wiring = self.cluster.topology().port_topology(row);
        wiring.is_some_and(|wiring| wiring.leaf.is_some() && wiring.rail.is_some())
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
