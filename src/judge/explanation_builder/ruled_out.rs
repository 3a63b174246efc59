//! Alternative causes: the value that would indicate each other fault on the same devices, with its limit.

use gaunt_schema::{
    AlternativeDetail, AlternativeOutcome, DeviceClass, EvidenceItem, EvidenceRole, FindingKind,
    HistoryRelation, catalogue::gpu_health,
};

use super::ExplanationScope;
use crate::{EvidenceRow, is_port_active, link_averages};

/// The fault, the value that would show it, and how that is measured. Without a limit a single occurrence is a fault.
struct CauseCheck {
    kind: FindingKind,
    row: EvidenceRow,
    number: fn(&ExplanationScope<'_>) -> Option<f64>,
}

/// All checked alternatives.
const CHECKS: &[CauseCheck] = &[
    CauseCheck {
        kind: FindingKind::GpuFailed,
        row: EvidenceRow::FailedGpus,
        number: |scope| {
            let broken = |row: &&u32| {
                let broken = scope.judge.health.of(**row);
                broken.gone.is_some() || broken.xid.is_some()
            };
            (!scope.gpus.is_empty()).then(|| scope.gpus.iter().filter(broken).count() as f64)
        },
    },
    CauseCheck {
        kind: FindingKind::Throttled,
        row: EvidenceRow::Slowdown,
        number: |scope| {
            let (now, gap) = (scope.cluster.now(), scope.cluster.freshness_window());
            max_of_rows(&scope.gpus, |row| {
                let averages = &scope.judge.gpus.get(row as usize)?.averages;
                let signals = averages.signals_at(now, gap, &scope.judge.limits);
                [signals.hw_slowdown, signals.sw_thermal].into_iter().flatten().reduce(f64::max)
            })
        },
    },
    CauseCheck {
        kind: FindingKind::ComputeStraggler,
        row: EvidenceRow::ClockOfPeers,
        number: |scope| {
            let clock = |row: u32| {
                scope
                    .judge
                    .gpus
                    .get(row as usize)?
                    .averages
                    .clock_hertz(scope.cluster.now(), &scope.judge.limits)
            };
            let peers = ExplanationScope::median_of_rows(&scope.peers, clock)
                .filter(|clock| *clock > 0.0)?;
            let lowest = scope.gpus.iter().filter_map(|row| clock(*row)).reduce(f64::min)?;
            Some(lowest / peers)
        },
    },
    CauseCheck {
        kind: FindingKind::PcieDegraded,
        row: EvidenceRow::PcieReplays,
        number: |scope| {
            max_of_rows(&scope.gpus, |row| {
                scope.cluster.current_rate(gpu_health::PCIE_REPLAYS, row)
            })
        },
    },
    CauseCheck {
        kind: FindingKind::NvlinkDegraded,
        row: EvidenceRow::NvlinkErrors,
        number: |scope| max_of_rows(&scope.gpus, |row| scope.nvlink_error_rate(row)),
    },
    CauseCheck {
        kind: FindingKind::DataStarved,
        row: EvidenceRow::IoPressure,
        number: |scope| {
            max_of_hosts(scope, |host, scope| Some(host.compare_io_pressure(scope.cluster)?.now))
        },
    },
    CauseCheck {
        kind: FindingKind::DataStarved,
        row: EvidenceRow::CpuPressure,
        number: |scope| {
            max_of_hosts(scope, |host, scope| Some(host.compare_cpu_pressure(scope.cluster)?.now))
        },
    },
    CauseCheck {
        kind: FindingKind::HostBound,
        row: EvidenceRow::BusiestCpu,
        number: |scope| {
            max_of_hosts(scope, |host, scope| Some(host.compare_busiest_cpu(scope.cluster)?.now))
        },
    },
    CauseCheck {
        kind: FindingKind::PortDown,
        row: EvidenceRow::InactivePorts,
        number: |scope| {
            let ports = all_ports(scope).into_iter();
            let states: Vec<bool> =
                ports.filter_map(|row| is_port_active(scope.cluster, row)).collect();
            (!states.is_empty()).then(|| states.iter().filter(|active| !**active).count() as f64)
        },
    },
    CauseCheck {
        kind: FindingKind::LinkErrors,
        row: EvidenceRow::LinkErrors,
        number: |scope| max_of_links(scope, |link| link.errors),
    },
    CauseCheck {
        kind: FindingKind::LeafCongested,
        row: EvidenceRow::EcnMarked,
        number: |scope| max_of_links(scope, |link| link.ecn_marked),
    },
    CauseCheck {
        kind: FindingKind::LeafCongested,
        row: EvidenceRow::PauseReceived,
        number: |scope| max_of_links(scope, |link| link.pause_received),
    },
    CauseCheck {
        kind: FindingKind::HostBlocksNetwork,
        row: EvidenceRow::PauseSent,
        number: |scope| max_of_links(scope, |link| link.pause_sent),
    },
];

impl ExplanationScope<'_> {
    /// Checks all alternative causes against their limits.
    pub(super) fn check_alternatives(&self, but: FindingKind) -> Vec<AlternativeDetail> {
        let nothing = self.gpus.is_empty() && self.nodes.is_empty();
        let checks = CHECKS.iter().filter(|check| check.kind != but && !nothing);
        checks.map(|check| self.check_alternative(check)).collect()
    }

    fn check_alternative(&self, check: &CauseCheck) -> AlternativeDetail {
        let limit = self.judge.limits.limit_value(check.row.source().threshold);
        let value = (check.number)(self);
        let beyond = |value: f64| match limit {
            None => value > 0.0,
            Some(limit) => check.row.source().side.contains(value, limit).unwrap_or_default(),
        };
        AlternativeDetail {
            kind: check.kind,
            ruling: match value.map(beyond) {
                Some(true) => AlternativeOutcome::AlsoThere,
                Some(false) => AlternativeOutcome::RuledOut,
                None => AlternativeOutcome::Unknown,
            },
            number: EvidenceItem {
                past: HistoryRelation::Nothing,
                role: EvidenceRole::Context,
                ..check.row.to_evidence(value, limit)
            },
        }
    }
}

fn max_of_rows(rows: &[u32], of: impl Fn(u32) -> Option<f64>) -> Option<f64> {
    rows.iter().filter_map(|row| of(*row)).reduce(f64::max)
}

fn max_of_hosts(
    scope: &ExplanationScope<'_>,
    of: impl Fn(&crate::host_averages::HostAverages, &ExplanationScope<'_>) -> Option<f64>,
) -> Option<f64> {
    let hosts = scope.nodes.iter().filter_map(|id| scope.judge.hosts.get(*id));
    hosts.filter_map(|host| of(host, scope)).reduce(f64::max)
}

/// Returns every port of the nodes.
fn all_ports(scope: &ExplanationScope<'_>) -> Vec<u32> {
    let nodes = scope.nodes.iter().filter_map(|id| scope.cluster.node_by_id(*id));
    nodes.flat_map(|node| node.device_rows(DeviceClass::Port).to_vec()).collect()
}

fn max_of_links(
    scope: &ExplanationScope<'_>,
    of: impl Fn(&link_averages::LinkAverages) -> crate::moving_average::MovingAverage,
) -> Option<f64> {
    let rows = all_ports(scope);
    max_of_rows(&rows, |row| {
        link_averages::current_value(of(scope.judge.links.of(row)?), scope.cluster)
    })
}
