//! Alternative causes: the value that would indicate each other fault on the same devices, with its limit.

use gaunt_schema::{
    DeviceClass, FindingKind, MetricId,
    catalogue::{ethernet, gpu, gpu_health, gpu_parts, host, port},
    unit::Unit,
};

use super::{AlternativeCause, ExplanationScope, FindingEvidence, join_series};
use crate::{Thresholds, link_averages, port_down::is_port_active};

/// The fault, the signal, its series, its unit, the limit's key and value, and the number.
struct CauseCheck {
    kind: FindingKind,
    what: &'static str,
    series: &'static [MetricId],
    unit: Unit,
    threshold: &'static str,
    /// None where a single occurrence is a fault.
    limit: Option<fn(&Thresholds) -> f64>,
    /// Whether values below the limit are bad.
    below: bool,
    number: fn(&ExplanationScope<'_>) -> Option<f64>,
}

/// All checked alternatives.
const CHECKS: &[CauseCheck] = &[
    CauseCheck {
        kind: FindingKind::GpuFailed,
        what: "GPUs that are gone or reported an error that needs a reset",
        series: &[gpu::PRESENT, gpu_parts::XID_ERRORS],
        unit: Unit::Count,
        threshold: "",
        limit: None,
        below: false,
        number: |place| {
            let broken = |row: &&u32| {
                let broken = place.judge.health.of(**row);
                broken.gone.is_some() || broken.xid.is_some()
            };
            (!place.gpus.is_empty()).then(|| place.gpus.iter().filter(broken).count() as f64)
        },
    },
    CauseCheck {
        kind: FindingKind::Throttled,
        what: "time in which heat or hardware held a clock",
        series: &[gpu::CLOCK_EVENT_HW_SLOWDOWN, gpu::CLOCK_EVENT_SW_THERMAL],
        unit: Unit::Ratio,
        threshold: "clock_event_ratio",
        limit: Some(|limits| limits.clock_event_ratio),
        below: false,
        number: |place| {
            let (now, gap) = (place.cluster.now(), place.cluster.freshness_window());
            max_of_rows(&place.gpus, |row| {
                let averages = &place.judge.gpus.get(row as usize)?.averages;
                let signals = averages.signals_at(now, gap, &place.judge.limits);
                [signals.hw_slowdown, signals.sw_thermal].into_iter().flatten().reduce(f64::max)
            })
        },
    },
    CauseCheck {
        kind: FindingKind::ComputeStraggler,
        what: "lowest clock over the middle of its peers",
        series: &[gpu::SM_CLOCK],
        unit: Unit::Ratio,
        threshold: "clock_straggler_ratio",
        limit: Some(|limits| limits.clock_straggler_ratio),
        below: true,
        number: |place| {
            let clock = |row: u32| {
                place
                    .judge
                    .gpus
                    .get(row as usize)?
                    .averages
                    .clock_hertz(place.cluster.now(), &place.judge.limits)
            };
            let peers = ExplanationScope::median_of_rows(&place.peers, clock)
                .filter(|clock| *clock > 0.0)?;
            let lowest = place.gpus.iter().filter_map(|row| clock(*row)).reduce(f64::min)?;
            Some(lowest / peers)
        },
    },
    CauseCheck {
        kind: FindingKind::PcieDegraded,
        what: "packets that a PCIe link sends again in a second",
        series: &[gpu_health::PCIE_REPLAYS],
        unit: Unit::Count,
        threshold: "pcie_replays_per_second",
        limit: Some(|limits| limits.pcie_replays_per_second),
        below: false,
        number: |place| {
            let (now, gap) = (place.cluster.now(), place.cluster.freshness_window());
            max_of_rows(&place.gpus, |row| {
                place.judge.gpus.get(row as usize)?.averages.pcie_replays(now, gap)
            })
        },
    },
    CauseCheck {
        kind: FindingKind::NvlinkDegraded,
        what: "NVLink errors in a second",
        series: &[gpu_parts::NVLINK_REPLAY, gpu_parts::NVLINK_RECOVERY, gpu_parts::NVLINK_CRC],
        unit: Unit::Count,
        threshold: "nvlink_errors_per_second",
        limit: Some(|limits| limits.nvlink_errors_per_second),
        below: false,
        number: |place| max_of_rows(&place.gpus, |row| place.nvlink_error_rate(row)),
    },
    CauseCheck {
        kind: FindingKind::DataStarved,
        what: "tasks of a host waiting for input or output",
        series: &[host::IO_PRESSURE],
        unit: Unit::Ratio,
        threshold: "io_pressure_ratio",
        limit: Some(|limits| limits.io_pressure_ratio),
        below: false,
        number: |place| {
            max_of_hosts(place, |host, place| Some(host.compare_io_pressure(place.cluster)?.now))
        },
    },
    CauseCheck {
        kind: FindingKind::DataStarved,
        what: "tasks of a host waiting for a CPU",
        series: &[host::CPU_PRESSURE],
        unit: Unit::Ratio,
        threshold: "cpu_pressure_ratio",
        limit: Some(|limits| limits.cpu_pressure_ratio),
        below: false,
        number: |place| {
            max_of_hosts(place, |host, place| Some(host.compare_cpu_pressure(place.cluster)?.now))
        },
    },
    CauseCheck {
        kind: FindingKind::HostBound,
        what: "busiest CPU of a host",
        series: &[host::CPU_BUSIEST],
        unit: Unit::Ratio,
        threshold: "busiest_cpu_ratio",
        limit: Some(|limits| limits.busiest_cpu_ratio),
        below: false,
        number: |place| {
            max_of_hosts(place, |host, place| Some(host.compare_busiest_cpu(place.cluster)?.now))
        },
    },
    CauseCheck {
        kind: FindingKind::PortDown,
        what: "ports of the node that are not active",
        series: &[port::STATE],
        unit: Unit::Count,
        threshold: "",
        limit: None,
        below: false,
        number: |place| {
            let ports = all_ports(place).into_iter();
            let states: Vec<bool> =
                ports.filter_map(|row| is_port_active(place.cluster, row)).collect();
            (!states.is_empty()).then(|| states.iter().filter(|active| !**active).count() as f64)
        },
    },
    CauseCheck {
        kind: FindingKind::LinkErrors,
        what: "broken symbols and packets at a port in a second",
        series: &[port::SYMBOL_ERRORS, port::RECEIVE_ERRORS],
        unit: Unit::Count,
        threshold: "link_errors_per_second",
        limit: Some(|limits| limits.link_errors_per_second),
        below: false,
        number: |place| max_of_links(place, |link| link.errors),
    },
    CauseCheck {
        kind: FindingKind::LeafCongested,
        what: "received packets with a congestion mark",
        series: &[port::ECN_MARKED],
        unit: Unit::Ratio,
        threshold: "marked_packets_ratio",
        limit: Some(|limits| limits.marked_packets_ratio),
        below: false,
        number: |place| max_of_links(place, |link| link.ecn_marked),
    },
    CauseCheck {
        kind: FindingKind::LeafCongested,
        what: "time in which the network stops a port",
        series: &[ethernet::RECEIVE_PAUSED_3],
        unit: Unit::Ratio,
        threshold: "paused_ratio",
        limit: Some(|limits| limits.paused_ratio),
        below: false,
        number: |place| max_of_links(place, |link| link.pause_received),
    },
    CauseCheck {
        kind: FindingKind::HostBlocksNetwork,
        what: "time in which a port stops the network",
        series: &[ethernet::TRANSMIT_PAUSED_3],
        unit: Unit::Ratio,
        threshold: "pauses_ratio",
        limit: Some(|limits| limits.pauses_ratio),
        below: false,
        number: |place| max_of_links(place, |link| link.pause_sent),
    },
];

impl ExplanationScope<'_> {
    /// Checks all alternative causes against their limits.
    pub(super) fn check_alternatives(&self, but: FindingKind) -> Vec<AlternativeCause> {
        let nothing = self.gpus.is_empty() && self.nodes.is_empty();
        let checks = CHECKS.iter().filter(|check| check.kind != but && !nothing);
        checks.map(|check| self.check_alternative(check)).collect()
    }

    fn check_alternative(&self, check: &CauseCheck) -> AlternativeCause {
        let limit = check.limit.map(|limit| limit(&self.judge.limits));
        let value = (check.number)(self);
        let beyond = value.map(|value| match limit {
            None => value > 0.0,
            Some(limit) if check.below => value < limit,
            Some(limit) => value >= limit,
        });
        AlternativeCause {
            kind: check.kind,
            beyond,
            number: FindingEvidence::new(check.what, value, check.unit, limit),
            threshold: check.threshold.to_owned(),
            source: join_series(check.series),
        }
    }
}

fn max_of_rows(rows: &[u32], of: impl Fn(u32) -> Option<f64>) -> Option<f64> {
    rows.iter().filter_map(|row| of(*row)).reduce(f64::max)
}

fn max_of_hosts(
    place: &ExplanationScope<'_>,
    of: impl Fn(&crate::host_averages::HostAverages, &ExplanationScope<'_>) -> Option<f64>,
) -> Option<f64> {
    let hosts = place.nodes.iter().filter_map(|id| place.judge.hosts.get(id));
    hosts.filter_map(|host| of(host, place)).reduce(f64::max)
}

/// Returns every port of the nodes.
fn all_ports(place: &ExplanationScope<'_>) -> Vec<u32> {
    let nodes = place.nodes.iter().filter_map(|id| place.cluster.node_by_id(*id));
    nodes.flat_map(|node| node.device_rows(DeviceClass::Port).to_vec()).collect()
}

fn max_of_links(
    place: &ExplanationScope<'_>,
    of: impl Fn(&link_averages::LinkAverages) -> crate::moving_average::MovingAverage,
) -> Option<f64> {
    let rows = all_ports(place);
    max_of_rows(&rows, |row| {
        link_averages::current_value(of(place.judge.links.of(row)?), place.cluster)
    })
}
