//! The signals of a chain: each beside what is usual for it and what its peers do.

use gaunt_schema::{
    Absent, MetricId, Reading,
    catalogue::{ethernet, gpu, gpu_health, host, port},
    unit::Unit,
};

use super::{Finding, NodeId, Place, Signal, median, named};
use crate::judge::{host::Beside, links};

/// One signal of a GPU: what it is, its series, its unit, and how it is had.
type OfGpu = (&'static str, &'static [MetricId], Unit, fn(&Place<'_>, u32) -> Option<f64>);

/// The signals of GPUs.
const GPU: &[OfGpu] = &[
    ("utilization", &[gpu::UTILIZATION], Unit::Ratio, |place, row| own(place, row)?.utilization),
    ("SM activity", &[gpu::SM_ACTIVE], Unit::Ratio, |place, row| own(place, row)?.sm),
    ("tensor activity", &[gpu::TENSOR_ACTIVE], Unit::Ratio, |place, row| own(place, row)?.tensor),
    ("DRAM activity", &[gpu::DRAM_ACTIVE], Unit::Ratio, |place, row| own(place, row)?.dram),
    ("power over its limit", &[gpu::POWER, gpu::POWER_LIMIT], Unit::Ratio, |place, row| {
        own(place, row)?.power
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
        place.cluster.value(gpu::TEMPERATURE, row)
    }),
    (
        "PCIe packets sent again in a second",
        &[gpu_health::PCIE_REPLAYS],
        Unit::Count,
        |place, row| {
            let (now, gap) = (place.cluster.now(), place.cluster.fresh_for());
            place.judge.gpus.get(row as usize)?.averages.pcie_replays(now, gap)
        },
    ),
];

/// One signal of a host.
type OfHost = (&'static str, &'static [MetricId], fn(&Place<'_>, NodeId) -> Option<Beside>);

/// The signals of hosts, all of them shares.
const HOST: &[OfHost] = &[
    ("tasks waiting for input or output", &[host::IO_PRESSURE], |place, id| {
        place.judge.hosts.get(&id)?.io(place.cluster)
    }),
    ("tasks waiting for a CPU", &[host::CPU_PRESSURE], |place, id| {
        place.judge.hosts.get(&id)?.cpu(place.cluster)
    }),
    ("busiest CPU", &[host::CPU_BUSIEST], |place, id| {
        place.judge.hosts.get(&id)?.busiest(place.cluster)
    }),
    (
        "traffic of all ports over their rates",
        &[port::RECEIVE_BYTES, port::TRANSMIT_BYTES],
        |place, id| place.judge.hosts.get(&id)?.traffic(place.cluster),
    ),
];

/// One signal of a port.
type OfPort = (&'static str, &'static [MetricId], Unit, fn(&Place<'_>, u32) -> Option<f64>);

/// The signals of ports.
const PORT: &[OfPort] = &[
    ("line rate", &[port::RATE], Unit::BytesPerSecond, |place, row| {
        place.cluster.value(port::RATE, row)
    }),
    (
        "busier direction over its rate",
        &[port::RECEIVE_BYTES, port::TRANSMIT_BYTES],
        Unit::Ratio,
        |place, row| links::now(place.judge.links.of(row)?.carried, place.cluster),
    ),
    (
        "broken symbols and packets in a second",
        &[port::SYMBOL_ERRORS, port::RECEIVE_ERRORS],
        Unit::Count,
        |place, row| links::now(place.judge.links.of(row)?.errors, place.cluster),
    ),
    (
        "packets sent again in a second",
        &[port::PACKET_SEQUENCE_ERRORS],
        Unit::Count,
        |place, row| links::now(place.judge.links.of(row)?.resent, place.cluster),
    ),
    ("received packets with a congestion mark", &[port::ECN_MARKED], Unit::Ratio, |place, row| {
        links::now(place.judge.links.of(row)?.marked, place.cluster)
    }),
    (
        "time in which the network stops it",
        &[ethernet::RECEIVE_PAUSED_3],
        Unit::Ratio,
        |place, row| links::now(place.judge.links.of(row)?.paused, place.cluster),
    ),
    (
        "time in which it stops the network",
        &[ethernet::TRANSMIT_PAUSED_3],
        Unit::Ratio,
        |place, row| links::now(place.judge.links.of(row)?.pauses, place.cluster),
    ),
];

/// The averages of a GPU.
fn own(place: &Place<'_>, row: u32) -> Option<crate::judge::signals::Signals> {
    let averages = &place.judge.gpus.get(row as usize)?.averages;
    let (now, gap) = (place.cluster.now(), place.cluster.fresh_for());
    Some(averages.signals(now, gap, &place.judge.limits))
}

impl Place<'_> {
    /// Every signal that says something about what is blamed.
    pub(super) fn signals(&self, finding: &Finding) -> Vec<Signal> {
        let mut signals = Vec::new();
        if finding.entity.port.is_none() {
            signals.extend(GPU.iter().filter(|_| !self.gpus.is_empty()).map(|of| self.of_gpu(of)));
        }
        signals.extend(HOST.iter().filter(|_| !self.nodes.is_empty()).map(|of| self.of_host(of)));
        signals.extend(PORT.iter().filter(|_| !self.ports.is_empty()).map(|of| self.of_port(of)));
        signals
    }

    fn of_gpu(&self, (what, series, unit, of): &OfGpu) -> Signal {
        let value = Self::middle(&self.gpus, |row| of(self, row));
        let usual = |row: u32| {
            let averages = &self.judge.gpus.get(row as usize)?.averages;
            match *what {
                "utilization" => averages.usual_utilization(),
                "power over its limit" => averages.usual_power(),
                "clock" => averages.usual_clock(),
                _ => None,
            }
        };
        let mut signal = self.signal(what, series, *unit, value, &self.gpus);
        signal.usual = Self::middle(&self.gpus, usual);
        signal.beside(self.peers.iter().filter_map(|row| of(self, *row)).collect())
    }

    fn of_host(&self, (what, series, of): &OfHost) -> Signal {
        let besides: Vec<Beside> = self.nodes.iter().filter_map(|id| of(self, *id)).collect();
        let value = median(besides.iter().map(|beside| beside.now));
        let rows: Vec<u32> =
            self.nodes.iter().filter_map(|id| self.cluster.node(*id)?.own_row()).collect();
        let mut signal = self.signal(what, series, Unit::Ratio, value, &rows);
        signal.usual = median(besides.iter().filter_map(|beside| beside.usual));
        signal.beside(self.peer_nodes.iter().filter_map(|id| Some(of(self, *id)?.now)).collect())
    }

    fn of_port(&self, (what, series, unit, of): &OfPort) -> Signal {
        let value = Self::middle(&self.ports, |row| of(self, row));
        let signal = self.signal(what, series, *unit, value, &self.ports);
        signal.beside(self.peer_ports.iter().filter_map(|row| of(self, *row)).collect())
    }

    /// A signal with its value, or with the reason of its absence where a page gives one.
    fn signal(
        &self,
        what: &str,
        series: &[MetricId],
        unit: Unit,
        value: Option<f64>,
        rows: &[u32],
    ) -> Signal {
        let reason = || -> Option<Absent> {
            let reading = self.cluster.reading(*series.first()?, *rows.first()?);
            reading.and_then(Reading::reason)
        };
        Signal {
            what: what.to_owned(),
            source: named(series),
            unit,
            value,
            absent: if value.is_none() { reason() } else { None },
            usual: None,
            peers: None,
            quartiles: None,
        }
    }
}

impl Signal {
    /// The same beside the values of its peers.
    fn beside(mut self, mut peers: Vec<f64>) -> Self {
        self.peers = median(peers.iter().copied());
        peers.sort_by(f64::total_cmp);
        let at = |share: usize| peers.get(peers.len().saturating_sub(1) * share / 4).copied();
        self.quartiles = at(1).zip(at(3)).filter(|_| peers.len() >= FEW);
        self
    }
}

/// Of fewer peers than this quartiles say nothing.
const FEW: usize = 4;
