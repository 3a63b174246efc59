//! The signals of an explanation, each with its baseline and the median of its peers.

use gaunt_schema::{
    AbsenceReason, Finding, Reading, SignalDetail,
    catalogue::{gpu, gpu_health, port},
};

use super::{ExplanationScope, NodeId, median};
use crate::{EvidenceRow, host_averages::BaselineComparison, link_averages};

/// One signal of a GPU or a port, and how it is read.
type DeviceSignalSpec = (EvidenceRow, fn(&ExplanationScope<'_>, u32) -> Option<f64>);

/// The signals of GPUs.
const GPU: &[DeviceSignalSpec] = &[
    (EvidenceRow::Utilization, |scope, row| signals_of_gpu(scope, row)?.utilization),
    (EvidenceRow::SmActivity, |scope, row| signals_of_gpu(scope, row)?.sm),
    (EvidenceRow::TensorActivity, |scope, row| signals_of_gpu(scope, row)?.tensor),
    (EvidenceRow::DramActivity, |scope, row| signals_of_gpu(scope, row)?.dram),
    (EvidenceRow::Power, |scope, row| signals_of_gpu(scope, row)?.power),
    (EvidenceRow::SmClock, |scope, row| {
        scope
            .judge
            .gpus
            .get(row as usize)?
            .averages
            .clock_hertz(scope.cluster.now(), &scope.judge.limits)
    }),
    (EvidenceRow::Temperature, |scope, row| scope.cluster.current_value(gpu::TEMPERATURE, row)),
    (EvidenceRow::PcieReplays, |scope, row| {
        scope.cluster.current_rate(gpu_health::PCIE_REPLAYS, row)
    }),
];

/// One signal of a host.
type HostSignalSpec =
    (EvidenceRow, fn(&ExplanationScope<'_>, NodeId) -> Option<BaselineComparison>);

/// The signals of hosts, all of them shares.
const HOST: &[HostSignalSpec] = &[
    (EvidenceRow::IoPressure, |scope, id| {
        scope.judge.hosts.get(id)?.compare_io_pressure(scope.cluster)
    }),
    (EvidenceRow::CpuPressure, |scope, id| {
        scope.judge.hosts.get(id)?.compare_cpu_pressure(scope.cluster)
    }),
    (EvidenceRow::BusiestCpu, |scope, id| {
        scope.judge.hosts.get(id)?.compare_busiest_cpu(scope.cluster)
    }),
    (EvidenceRow::PortTraffic, |scope, id| {
        scope.judge.hosts.get(id)?.compare_traffic(scope.cluster)
    }),
];

/// The signals of ports.
const PORT: &[DeviceSignalSpec] = &[
    (EvidenceRow::LineRate, |scope, row| scope.cluster.current_value(port::RATE, row)),
    (EvidenceRow::PortUtilization, |scope, row| {
        link_averages::current_value(scope.judge.links.of(row)?.utilization, scope.cluster)
    }),
    (EvidenceRow::LinkErrors, |scope, row| {
        link_averages::current_value(scope.judge.links.of(row)?.errors, scope.cluster)
    }),
    (EvidenceRow::Retransmits, |scope, row| {
        link_averages::current_value(scope.judge.links.of(row)?.retransmitted, scope.cluster)
    }),
    (EvidenceRow::EcnMarked, |scope, row| {
        link_averages::current_value(scope.judge.links.of(row)?.ecn_marked, scope.cluster)
    }),
    (EvidenceRow::PauseReceived, |scope, row| {
        link_averages::current_value(scope.judge.links.of(row)?.pause_received, scope.cluster)
    }),
    (EvidenceRow::PauseSent, |scope, row| {
        link_averages::current_value(scope.judge.links.of(row)?.pause_sent, scope.cluster)
    }),
];

/// Returns the averages of a GPU.
fn signals_of_gpu(
    scope: &ExplanationScope<'_>,
    row: u32,
) -> Option<crate::gpu_signals::GpuSignals> {
    let averages = &scope.judge.gpus.get(row as usize)?.averages;
    let (now, gap) = (scope.cluster.now(), scope.cluster.freshness_window());
    Some(averages.signals_at(now, gap, &scope.judge.limits))
}

impl ExplanationScope<'_> {
    /// Collects every signal that is relevant to the blamed device.
    pub(super) fn collect_signals(&self, finding: &Finding) -> Vec<SignalDetail> {
        let mut signals = Vec::new();
        if finding.entity.port.is_none() {
            signals
                .extend(GPU.iter().filter(|_| !self.gpus.is_empty()).map(|of| self.gpu_signal(of)));
        }
        let of_host = HOST.iter().filter(|_| !self.nodes.is_empty());
        signals.extend(of_host.map(|of| {
            let signal = self.host_signal(of);
            if finding.entity.port.is_none() {
                return signal;
            }
            // Its peers are ports, and this is a value of their node.
            let what = format!("node: {}", signal.what);
            SignalDetail { what, peers: None, quartiles: None, ..signal }
        }));
        signals
            .extend(PORT.iter().filter(|_| !self.ports.is_empty()).map(|of| self.port_signal(of)));
        signals
    }

    fn gpu_signal(&self, (signal, of): &DeviceSignalSpec) -> SignalDetail {
        let value = Self::median_of_rows(&self.gpus, |row| of(self, row));
        let baseline = |row: u32| {
            let averages = &self.judge.gpus.get(row as usize)?.averages;
            match *signal {
                EvidenceRow::Utilization => averages.usual_utilization(),
                EvidenceRow::Power => averages.usual_power(),
                EvidenceRow::SmClock => averages.usual_clock(),
                _ => None,
            }
        };
        let mut signal = self.build_signal(*signal, value, &self.gpus);
        signal.usual = Self::median_of_rows(&self.gpus, baseline);
        with_peers(signal, self.peers.iter().filter_map(|row| of(self, *row)).collect())
    }

    fn host_signal(&self, (signal, of): &HostSignalSpec) -> SignalDetail {
        let besides: Vec<BaselineComparison> =
            self.nodes.iter().filter_map(|id| of(self, *id)).collect();
        let value = median(besides.iter().map(|beside| beside.now));
        let rows: Vec<u32> =
            self.nodes.iter().filter_map(|id| self.cluster.node_by_id(*id)?.own_row()).collect();
        let mut signal = self.build_signal(*signal, value, &rows);
        signal.usual = median(besides.iter().filter_map(|beside| beside.baseline));
        let peers = self.peer_nodes.iter().filter_map(|id| Some(of(self, *id)?.now));
        with_peers(signal, peers.collect())
    }

    fn port_signal(&self, (signal, of): &DeviceSignalSpec) -> SignalDetail {
        let value = Self::median_of_rows(&self.ports, |row| of(self, row));
        let signal = self.build_signal(*signal, value, &self.ports);
        with_peers(signal, self.peer_ports.iter().filter_map(|row| of(self, *row)).collect())
    }

    /// Builds a signal with its value, or with the reason of its absence where a page gives one.
    fn build_signal(&self, signal: EvidenceRow, value: Option<f64>, rows: &[u32]) -> SignalDetail {
        let ((label, unit), source) = (signal.label(), signal.source());
        let reason = || -> Option<AbsenceReason> {
            let reading = self.cluster.current_reading(*source.series.first()?, *rows.first()?);
            reading.and_then(Reading::absence_reason)
        };
        SignalDetail {
            what: label.to_owned(),
            source: source.join_series(),
            unit,
            value,
            absent: if value.is_none() { reason() } else { None },
            usual: None,
            peers: None,
            quartiles: None,
        }
    }
}

/// Adds the values of its peers to a signal.
fn with_peers(signal: SignalDetail, mut peers: Vec<f64>) -> SignalDetail {
    let middle = median(peers.iter().copied());
    peers.sort_by(f64::total_cmp);
    let at = |share: usize| peers.get(peers.len().saturating_sub(1) * share / 4).copied();
    let quartiles = at(1).zip(at(3)).filter(|_| peers.len() >= FEW);
    SignalDetail { peers: middle, quartiles, ..signal }
}

/// Below this number of peers quartiles are meaningless.
const FEW: usize = 4;
