//! The signals of an explanation, each with its baseline and the median of its peers.

use gaunt_schema::{
    AbsenceReason, MetricId, Reading,
    catalogue::{ethernet, gpu, gpu_health, host, port},
    unit::Unit,
};

use super::{ComparedSignal, DetectedFinding, ExplanationScope, NodeId, join_series, median};
use crate::{host_averages::BaselineComparison, link_averages};

/// One signal of a GPU: its name, its series, its unit, and how it is read.
type GpuSignalSpec =
    (&'static str, &'static [MetricId], Unit, fn(&ExplanationScope<'_>, u32) -> Option<f64>);

/// The signals of GPUs.
const GPU: &[GpuSignalSpec] = &[
    ("utilization", &[gpu::UTILIZATION], Unit::Ratio, |place, row| {
        signals_of_gpu(place, row)?.utilization
    }),
    ("SM activity", &[gpu::SM_ACTIVE], Unit::Ratio, |place, row| signals_of_gpu(place, row)?.sm),
    ("tensor activity", &[gpu::TENSOR_ACTIVE], Unit::Ratio, |place, row| {
        signals_of_gpu(place, row)?.tensor
    }),
    ("DRAM activity", &[gpu::DRAM_ACTIVE], Unit::Ratio, |place, row| {
        signals_of_gpu(place, row)?.dram
    }),
    ("power over its limit", &[gpu::POWER, gpu::POWER_LIMIT], Unit::Ratio, |place, row| {
        signals_of_gpu(place, row)?.power
    }),
    ("clock", &[gpu::SM_CLOCK], Unit::Hertz, |place, row| {
        place
            .judge
            .gpus
            .get(row as usize)?
            .averages
            .clock_hertz(place.cluster.now(), &place.judge.limits)
    }),
    ("temperature", &[gpu::TEMPERATURE], Unit::Celsius, |place, row| {
        place.cluster.current_value(gpu::TEMPERATURE, row)
    }),
    (
        "PCIe packets sent again in a second",
        &[gpu_health::PCIE_REPLAYS],
        Unit::Count,
        |place, row| {
            let (now, gap) = (place.cluster.now(), place.cluster.freshness_window());
            place.judge.gpus.get(row as usize)?.averages.pcie_replays(now, gap)
        },
    ),
];

/// One signal of a host.
type HostSignalSpec = (
    &'static str,
    &'static [MetricId],
    fn(&ExplanationScope<'_>, NodeId) -> Option<BaselineComparison>,
);

/// The signals of hosts, all of them shares.
const HOST: &[HostSignalSpec] = &[
    ("tasks waiting for input or output", &[host::IO_PRESSURE], |place, id| {
        place.judge.hosts.get(&id)?.compare_io_pressure(place.cluster)
    }),
    ("tasks waiting for a CPU", &[host::CPU_PRESSURE], |place, id| {
        place.judge.hosts.get(&id)?.compare_cpu_pressure(place.cluster)
    }),
    ("busiest CPU", &[host::CPU_BUSIEST], |place, id| {
        place.judge.hosts.get(&id)?.compare_busiest_cpu(place.cluster)
    }),
    (
        "traffic of all ports over their rates",
        &[port::RECEIVE_BYTES, port::TRANSMIT_BYTES],
        |place, id| place.judge.hosts.get(&id)?.compare_traffic(place.cluster),
    ),
];

/// One signal of a port.
type PortSignalSpec =
    (&'static str, &'static [MetricId], Unit, fn(&ExplanationScope<'_>, u32) -> Option<f64>);

/// The signals of ports.
const PORT: &[PortSignalSpec] = &[
    ("line rate", &[port::RATE], Unit::BytesPerSecond, |place, row| {
        place.cluster.current_value(port::RATE, row)
    }),
    (
        "busier direction over its rate",
        &[port::RECEIVE_BYTES, port::TRANSMIT_BYTES],
        Unit::Ratio,
        |place, row| {
            link_averages::current_value(place.judge.links.of(row)?.utilization, place.cluster)
        },
    ),
    (
        "broken symbols and packets in a second",
        &[port::SYMBOL_ERRORS, port::RECEIVE_ERRORS],
        Unit::Count,
        |place, row| link_averages::current_value(place.judge.links.of(row)?.errors, place.cluster),
    ),
    (
        "packets sent again in a second",
        &[port::PACKET_SEQUENCE_ERRORS],
        Unit::Count,
        |place, row| {
            link_averages::current_value(place.judge.links.of(row)?.retransmitted, place.cluster)
        },
    ),
    ("received packets with a congestion mark", &[port::ECN_MARKED], Unit::Ratio, |place, row| {
        link_averages::current_value(place.judge.links.of(row)?.ecn_marked, place.cluster)
    }),
    (
        "time in which the network stops it",
        &[ethernet::RECEIVE_PAUSED_3],
        Unit::Ratio,
        |place, row| {
            link_averages::current_value(place.judge.links.of(row)?.pause_received, place.cluster)
        },
    ),
    (
        "time in which it stops the network",
        &[ethernet::TRANSMIT_PAUSED_3],
        Unit::Ratio,
        |place, row| {
            link_averages::current_value(place.judge.links.of(row)?.pause_sent, place.cluster)
        },
    ),
];

/// Returns the averages of a GPU.
fn signals_of_gpu(
    place: &ExplanationScope<'_>,
    row: u32,
) -> Option<crate::gpu_signals::GpuSignals> {
    let averages = &place.judge.gpus.get(row as usize)?.averages;
    let (now, gap) = (place.cluster.now(), place.cluster.freshness_window());
    Some(averages.signals_at(now, gap, &place.judge.limits))
}

impl ExplanationScope<'_> {
    /// Collects every signal that is relevant to the blamed device.
    pub(super) fn collect_signals(&self, finding: &DetectedFinding) -> Vec<ComparedSignal> {
        let mut signals = Vec::new();
        if finding.entity.port.is_none() {
            signals
                .extend(GPU.iter().filter(|_| !self.gpus.is_empty()).map(|of| self.gpu_signal(of)));
        }
        signals
            .extend(HOST.iter().filter(|_| !self.nodes.is_empty()).map(|of| self.host_signal(of)));
        signals
            .extend(PORT.iter().filter(|_| !self.ports.is_empty()).map(|of| self.port_signal(of)));
        signals
    }

    fn gpu_signal(&self, (what, series, unit, of): &GpuSignalSpec) -> ComparedSignal {
        let value = Self::median_of_rows(&self.gpus, |row| of(self, row));
        let usual = |row: u32| {
            let averages = &self.judge.gpus.get(row as usize)?.averages;
            match *what {
                "utilization" => averages.usual_utilization(),
                "power over its limit" => averages.usual_power(),
                "clock" => averages.usual_clock(),
                _ => None,
            }
        };
        let mut signal = self.build_signal(what, series, *unit, value, &self.gpus);
        signal.usual = Self::median_of_rows(&self.gpus, usual);
        signal.with_peers(self.peers.iter().filter_map(|row| of(self, *row)).collect())
    }

    fn host_signal(&self, (what, series, of): &HostSignalSpec) -> ComparedSignal {
        let besides: Vec<BaselineComparison> =
            self.nodes.iter().filter_map(|id| of(self, *id)).collect();
        let value = median(besides.iter().map(|beside| beside.now));
        let rows: Vec<u32> =
            self.nodes.iter().filter_map(|id| self.cluster.node_by_id(*id)?.own_row()).collect();
        let mut signal = self.build_signal(what, series, Unit::Ratio, value, &rows);
        signal.usual = median(besides.iter().filter_map(|beside| beside.usual));
        signal
            .with_peers(self.peer_nodes.iter().filter_map(|id| Some(of(self, *id)?.now)).collect())
    }

    fn port_signal(&self, (what, series, unit, of): &PortSignalSpec) -> ComparedSignal {
        let value = Self::median_of_rows(&self.ports, |row| of(self, row));
        let signal = self.build_signal(what, series, *unit, value, &self.ports);
        signal.with_peers(self.peer_ports.iter().filter_map(|row| of(self, *row)).collect())
    }

    /// Builds a signal with its value, or with the reason of its absence where a page gives one.
    fn build_signal(
        &self,
        what: &str,
        series: &[MetricId],
        unit: Unit,
        value: Option<f64>,
        rows: &[u32],
    ) -> ComparedSignal {
        let reason = || -> Option<AbsenceReason> {
            let reading = self.cluster.current_reading(*series.first()?, *rows.first()?);
            reading.and_then(Reading::absence_reason)
        };
        ComparedSignal {
            what: what.to_owned(),
            source: join_series(series),
            unit,
            value,
            absent: if value.is_none() { reason() } else { None },
            usual: None,
            peers: None,
            quartiles: None,
        }
    }
}

impl ComparedSignal {
    /// Adds the values of its peers.
    fn with_peers(mut self, mut peers: Vec<f64>) -> Self {
        self.peers = median(peers.iter().copied());
        peers.sort_by(f64::total_cmp);
        let at = |share: usize| peers.get(peers.len().saturating_sub(1) * share / 4).copied();
        self.quartiles = at(1).zip(at(3)).filter(|_| peers.len() >= FEW);
        self
    }
}

/// Below this number of peers quartiles are meaningless.
const FEW: usize = 4;
