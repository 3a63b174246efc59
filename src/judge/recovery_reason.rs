//! Recovery reasons: which value of a finding was beyond its limit and is not any more when the finding closes.

use std::collections::BTreeSet;

use gaunt_schema::{
    DeviceClass, EntityKind, EvidenceItem, Finding, FindingKind,
    catalogue::{gpu_health, port},
    unit::Unit,
};

use super::{
    EvidenceRow, JudgeState, Whereabouts, job_group::JobGroup, link_averages,
    moving_average::MovingAverage, robust_stats::median,
};
use gaunt_cluster::{Cluster, NodeId};

/// An evidence value, and how it is measured now.
type RecoveryMeasure = (EvidenceRow, fn(&BlamedDevices<'_>) -> Option<f64>);

/// Every value that can show that a fault is over.
const MEASURES: &[RecoveryMeasure] = &[
    (EvidenceRow::StarvedUtilization, |it| it.median_of_gpus(|of| of.signals.utilization)),
    (EvidenceRow::IoPressure, |it| it.median_io_pressure()),
    (EvidenceRow::StorageResponse, |it| {
        it.median_of_hosts(|host| Some(host.compare_response_time(it.cluster)?.now))
    }),
    (EvidenceRow::CpuPressure, |it| {
        it.median_of_hosts(|host| Some(host.compare_cpu_pressure(it.cluster)?.now))
    }),
    (EvidenceRow::BusiestCpu, |it| {
        it.median_of_hosts(|host| Some(host.compare_busiest_cpu(it.cluster)?.now))
    }),
    (EvidenceRow::Slowdown, |it| {
        it.median_of_gpus(|of| max_known(of.signals.hw_slowdown, of.signals.sw_thermal))
    }),
    (EvidenceRow::SmClock, |it| it.median_of_gpus(|of| of.clock)),
    (EvidenceRow::PcieWidth, |it| {
        it.median_of_rows(|row| it.cluster.current_value(gpu_health::PCIE_WIDTH, row))
    }),
    (EvidenceRow::PcieGeneration, |it| {
        it.median_of_rows(|row| it.cluster.current_value(gpu_health::PCIE_GENERATION, row))
    }),
    (EvidenceRow::NvlinkErrors, |it| {
        it.median_of_rows(|row| it.judge.nvlinks.error_rate(row, it.cluster))
    }),
    (EvidenceRow::ActiveNvlinks, |it| it.median_of_rows(|row| it.judge.nvlinks.active_links(row))),
    (EvidenceRow::LogicalState, |it| {
        it.lowest_of_ports(|row| it.cluster.current_value(port::STATE, row))
    }),
    (EvidenceRow::PhysicalState, |it| {
        it.lowest_of_ports(|row| it.cluster.current_value(port::PHYSICAL_STATE, row))
    }),
    (EvidenceRow::LineRate, |it| {
        it.lowest_of_ports(|row| it.cluster.current_value(port::RATE, row))
    }),
    (EvidenceRow::LinkErrors, |it| it.median_of_links(|link| link.errors)),
    (EvidenceRow::EcnMarked, |it| it.median_of_links(|link| link.ecn_marked)),
    (EvidenceRow::PauseReceived, |it| it.median_of_links(|link| link.pause_received)),
    (EvidenceRow::PauseSent, |it| it.median_of_links(|link| link.pause_sent)),
    (EvidenceRow::OutOfBuffer, |it| it.median_of_links(|link| link.out_of_buffer)),
    (EvidenceRow::Retransmits, |it| it.median_of_links(|link| link.retransmitted)),
    (EvidenceRow::PcieReplays, |it| {
        it.median_of_rows(|row| it.cluster.current_rate(gpu_health::PCIE_REPLAYS, row))
    }),
    (EvidenceRow::Activity, |it| it.group.and_then(|group| group.pace)),
    (EvidenceRow::JobSlowdown, |it| it.group.and_then(JobGroup::slowdown_ratio)),
    (EvidenceRow::UnexplainedLoss, |it| it.group.and_then(JobGroup::slowdown_ratio)),
];

/// The present devices that a finding blames.
struct BlamedDevices<'a> {
    judge: &'a JudgeState,
    cluster: &'a Cluster,
    gpus: Vec<u32>,
    nodes: BTreeSet<NodeId>,
    ports: Vec<u32>,
    group: Option<&'a JobGroup>,
}

/// The averages of one GPU.
struct GpuRecoveryInput {
    signals: super::gpu_signals::GpuSignals,
    clock: Option<f64>,
}

/// Returns the signal that recovered, with its limit, as displayed text: `IO pressure (PSI or iowait) 2 % < limit 8 %`.
pub(super) fn explain_recovery(judge: &JudgeState, cluster: &Cluster, finding: &Finding) -> String {
    let nodes = Whereabouts::of(&judge.node_names, cluster);
    if let Some(gone) = finding.entity.node.as_ref().and_then(|name| nodes.gone(name)) {
        return gone.reason().to_string();
    }
    let blamed = BlamedDevices::of(judge, cluster, finding);
    let recovered = finding.evidence.iter().find_map(|number| blamed.recovered_number(number));
    recovered.unwrap_or_else(|| default_reason(finding.kind).to_owned())
}

/// Returns the reason where no value shows it.
const fn default_reason(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::TargetDown => "the target answers again",
        FindingKind::DriverHung => "the driver answers again",
        FindingKind::DataStale => "values change again",
        FindingKind::GpuFailed => "the GPU is active again, was reset or is back",
        FindingKind::FabricDegraded => "the fabric is healthy again",
        FindingKind::IdleAllocated => "its GPUs are in use again, or no job holds them",
        FindingKind::CrashLoop => "its processes run for longer than before, or it has ended",
        FindingKind::CollectiveHang => "the job makes progress again, or has ended",
        _ => "evidence gone",
    }
}

impl<'a> BlamedDevices<'a> {
    fn of(judge: &'a JudgeState, cluster: &'a Cluster, finding: &Finding) -> Self {
        let culprit = &finding.entity;
        let node = culprit.node.as_ref().and_then(|name| cluster.node_by_name(name));
        let job = culprit.job.as_ref().and_then(|job| cluster.gpus_by_job().get(job));
        let mut nodes: BTreeSet<NodeId> = node.iter().map(|(id, _)| *id).collect();
        if matches!(culprit.kind, EntityKind::Storage | EntityKind::Leaf | EntityKind::Rail) {
            let victims = finding.victims.iter().filter_map(|victim| victim.node.as_ref());
            nodes.extend(victims.filter_map(|name| Some(cluster.node_by_name(name)?.0)));
        }
        let rows = |class: DeviceClass| {
            let nodes = nodes.iter().filter_map(|id| cluster.node_by_id(*id));
            nodes.flat_map(|node| node.device_rows(class).to_vec()).collect::<Vec<u32>>()
        };
        let is = |class: DeviceClass, row: &u32, keys: &[Option<&gaunt_schema::SanitizedText>]| {
            let entry = cluster.device_at(class, *row);
            keys.iter().enumerate().all(|(at, key)| {
                key.is_none() || entry.and_then(|entry| entry.device.key.get(at)) == *key
            })
        };
        let mut gpus = rows(DeviceClass::Gpu);
        gpus.retain(|row| is(DeviceClass::Gpu, row, &[culprit.gpu.as_ref()]));
        if node.is_none() && nodes.is_empty() {
            gpus = job.cloned().unwrap_or_default();
        }
        let mut ports = rows(DeviceClass::Port);
        ports.retain(|row| {
            is(DeviceClass::Port, row, &[culprit.device.as_ref(), culprit.port.as_ref()])
        });
        let group = gpus.first().and_then(|row| judge.job_groups.of(*row));
        Self { judge, cluster, gpus, nodes, ports, group }
    }

    /// Describes a value that was beyond its limit when it was last evaluated, and is not now.
    fn recovered_number(&self, number: &EvidenceItem) -> Option<String> {
        let (before, limit) = number.value.zip(number.limit)?;
        let (row, measure) = MEASURES.iter().find(|(row, _)| row.is_row_of(number))?;
        let side = row.source().side;
        let beyond = |value: f64| side.contains(value, limit).unwrap_or_default();
        let now = measure(self).filter(|now| beyond(before) && !beyond(*now))?;
        let (sign, unit) = (side.opposite().sign(), number.unit);
        Some(format!(
            "{} {} {sign} limit {}",
            number.what,
            format_value(now, unit),
            format_value(limit, unit)
        ))
    }

    fn median_of_gpus(&self, of: impl Fn(&GpuRecoveryInput) -> Option<f64>) -> Option<f64> {
        let (now, gap) = (self.cluster.now(), self.cluster.freshness_window());
        self.median_of_rows(|row| {
            let averages = &self.judge.gpus.get(row as usize)?.averages;
            let clock = averages.clock_hertz(now, &self.judge.limits);
            of(&GpuRecoveryInput {
                signals: averages.signals_at(now, gap, &self.judge.limits),
                clock,
            })
        })
    }

    fn median_of_rows(&self, of: impl Fn(u32) -> Option<f64>) -> Option<f64> {
        median(self.gpus.iter().filter_map(|row| of(*row)))
    }

    fn median_of_hosts(
        &self,
        of: impl Fn(&super::host_averages::HostAverages) -> Option<f64>,
    ) -> Option<f64> {
        let hosts = self.nodes.iter().filter_map(|id| self.judge.hosts.get(*id));
        median(hosts.filter_map(of))
    }

    fn median_io_pressure(&self) -> Option<f64> {
        self.median_of_hosts(|host| Some(host.compare_io_pressure(self.cluster)?.now))
    }

    fn lowest_of_ports(&self, of: impl Fn(u32) -> Option<f64>) -> Option<f64> {
        self.ports.iter().filter_map(|row| of(*row)).reduce(f64::min)
    }

    fn median_of_links(
        &self,
        of: impl Fn(&link_averages::LinkAverages) -> MovingAverage,
    ) -> Option<f64> {
        let now =
            |row: &u32| link_averages::current_value(of(self.judge.links.of(*row)?), self.cluster);
        median(self.ports.iter().filter_map(now))
    }
}

fn max_known(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}

/// Formats a value with its unit.
fn format_value(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Ratio => super::pending_finding::format_percent(value),
        Unit::Hertz => format!("{:.0} MHz", value / 1e6),
        Unit::BytesPerSecond => super::pending_finding::format_line_rate(value),
        Unit::Seconds => format!("{value:.0} s"),
        _ if value.fract().abs() < 1e-9 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}
