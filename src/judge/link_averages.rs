//! Averages of every port's counters: traffic, errors, retransmissions, ECN, CNPs and PFC pause time.

use std::{
    cell::OnceCell,
    collections::{BTreeSet, HashMap},
};

use gaunt_schema::{
    DeviceClass, SanitizedText, UnixMs,
    catalogue::{ethernet, host, port},
};

use super::{
    Thresholds,
    baseline::{Baseline, SampleMoment, WorseDirection},
    compact_value::{CompactRow, CompactValue, NodeTag},
    frozen_baselines::FrozenBaselines,
    moving_average::{CompactTimestamp, MovingAverage, SampleTiming},
    pfc_pause::{PAUSED, PAUSES},
    port_counters::{LINK_ERRORS, RETRANSMITS, netdev_errors},
    port_link::line_rate,
    rare_events::{PeerEvents, RareEvents},
    strongest_ports::CongestionSign,
};
use gaunt_cluster::{Cluster, NetdevName, Node, PortName, join_netdevs};

/// The network device of a port is resolved every so many seconds: it hardly ever changes.
const SEEK_S: f64 = 20.0;

/// The saved baselines of a port, and the highest line rate that was seen.
pub(super) type PortBaselines = (Vec<Baseline>, Option<f64>);

/// The averages of every port, by row.
#[derive(Debug, Default)]
pub(super) struct LinkTable {
    links: Vec<Option<LinkAverages>>,
}

/// The averages of one port, per second unless stated otherwise.
#[derive(Clone, Debug)]
pub(super) struct LinkAverages {
    node: NodeTag,
    last_sampled: CompactTimestamp,
    /// Traffic of the busier direction, as a share of the line rate.
    pub(super) utilization: MovingAverage,
    /// Symbol errors and receive errors, of the port or of its network device.
    pub(super) errors: MovingAverage,
    /// The same as counts, compared with those of the other ports.
    pub(super) error_events: RareEvents,
    /// Retransmitted packets.
    pub(super) retransmitted: MovingAverage,
    /// FEC-corrected bits.
    pub(super) fec_corrected: MovingAverage,
    usual_corrected: Baseline,
    /// Share of received packets that are ECN-marked.
    pub(super) ecn_marked: MovingAverage,
    usual_marked: Baseline,
    /// CNPs handled, per gigabyte sent.
    pub(super) cnps_handled: MovingAverage,
    usual_notified: Baseline,
    /// PFC pause time received, as a share of the time.
    pub(super) pause_received: MovingAverage,
    /// PFC pause time sent, as a share of the time.
    pub(super) pause_sent: MovingAverage,
    /// Transmit wait ticks, per kilobyte sent.
    pub(super) transmit_wait: MovingAverage,
    usual_waited: Baseline,
    /// `out_of_buffer` drops.
    pub(super) out_of_buffer: MovingAverage,
    /// The row of its network device, and when that was last resolved.
    netdev: CompactRow,
    sought: CompactTimestamp,
    /// The highest line rate that was seen.
    best_rate: CompactValue,
}

impl LinkTable {
    /// Ingests the newest sample of every port.
    pub(super) fn observe_ports(
        &mut self,
        cluster: &Cluster,
        frozen: &FrozenBaselines,
        limits: &Thresholds,
    ) {
        self.links.resize(cluster.row_count(DeviceClass::Port), None);
        for (id, node) in cluster.sorted_nodes() {
            let Some(at) = node.last_fed(DeviceClass::Port) else { continue };
            let stamp = CompactTimestamp::of(at);
            let frozen = frozen.has_node(id);
            let tag = NodeTag::of(&node.name);
            let netdevs = NetdevIndex { cluster, node, rows: OnceCell::new() };
            for row in node.device_rows(DeviceClass::Port) {
                let link = &mut self.links[*row as usize];
                if link.as_ref().is_none_or(|link| link.node != tag) {
                    *link = Some(LinkAverages::new(tag));
                }
                if let Some(link) = link.as_mut().filter(|link| link.last_sampled != stamp) {
                    let before = std::mem::replace(&mut link.last_sampled, stamp);
                    link.add_sample(cluster, &netdevs, *row, (at, frozen), limits);
                    link.learn_baselines(
                        (at, stamp.seconds_after(before)),
                        cluster,
                        frozen,
                        limits,
                    );
                }
            }
        }
    }

    /// Returns the recent errors of all ports together.
    pub(super) fn sum_errors(&self) -> PeerEvents {
        PeerEvents::of(self.links.iter().flatten().map(|link| link.error_events))
    }

    /// Returns the baselines of each port, by row.
    pub(super) fn learned_baselines(&self) -> impl Iterator<Item = (u32, PortBaselines)> {
        let known = self.links.iter().enumerate();
        known.filter_map(|(row, link)| Some((row as u32, link.as_ref()?.learned_baselines())))
    }

    /// Restores the baselines of a port of this node.
    pub(super) fn restore_port(
        &mut self,
        node: &SanitizedText,
        row: u32,
        (baselines, best_rate): PortBaselines,
    ) {
        // An earlier version saved fewer of them.
        let baseline = |at: usize| baselines.get(at).copied().unwrap_or_default();
        if self.links.len() <= row as usize {
            self.links.resize(row as usize + 1, None);
        }
        let (link, node) = (&mut self.links[row as usize], NodeTag::of(node));
        if link.as_ref().is_none_or(|link| link.node != node) {
            let learned = LinkAverages {
                usual_corrected: baseline(0),
                usual_notified: baseline(1),
                usual_waited: baseline(2),
                usual_marked: baseline(3),
                ..LinkAverages::new(node)
            };
            *link = Some(LinkAverages { best_rate: best_rate.into(), ..learned });
        }
    }

    /// Resets the baselines of traffic because another job uses the port.
    pub(super) fn reset_traffic_baselines(&mut self, row: u32) {
        if let Some(Some(link)) = self.links.get_mut(row as usize) {
            for baseline in
                [&mut link.usual_notified, &mut link.usual_waited, &mut link.usual_marked]
            {
                *baseline = Baseline::default();
            }
        }
    }

    /// Accepts the present values of a port as baselines.
    pub(super) fn accept_baselines(&mut self, row: u32, cluster: &Cluster, limits: &Thresholds) {
        let Some(Some(link)) = self.links.get_mut(row as usize) else { return };
        for (baseline, average) in [
            (&mut link.usual_corrected, link.fec_corrected),
            (&mut link.usual_notified, link.cnps_handled),
            (&mut link.usual_waited, link.transmit_wait),
            (&mut link.usual_marked, link.ecn_marked),
        ] {
            *baseline = baseline.with_accepted(current_value(average, cluster), limits);
        }
    }

    /// Returns the rows of a node's network devices that belong to RDMA ports.
    pub(super) fn netdev_rows_of(&self, node: &Node) -> BTreeSet<u32> {
        let ports = node.device_rows(DeviceClass::Port).iter();
        ports.filter_map(|row| self.of(*row)?.netdev_row()).collect()
    }

    /// Returns the averages of the port at this row.
    pub(super) fn of(&self, row: u32) -> Option<&LinkAverages> {
        self.links.get(row as usize)?.as_ref()
    }
}

impl LinkAverages {
    fn new(node: NodeTag) -> Self {
        Self {
            node,
            last_sampled: CompactTimestamp::NEVER,
            utilization: MovingAverage::default(),
            errors: MovingAverage::default(),
            error_events: RareEvents::default(),
            retransmitted: MovingAverage::default(),
            fec_corrected: MovingAverage::default(),
            usual_corrected: Baseline::default(),
            ecn_marked: MovingAverage::default(),
            usual_marked: Baseline::default(),
            cnps_handled: MovingAverage::default(),
            usual_notified: Baseline::default(),
            pause_received: MovingAverage::default(),
            pause_sent: MovingAverage::default(),
            transmit_wait: MovingAverage::default(),
            usual_waited: Baseline::default(),
            out_of_buffer: MovingAverage::default(),
            netdev: CompactRow::default(),
            sought: CompactTimestamp::NEVER,
            best_rate: CompactValue::default(),
        }
    }

    fn add_sample(
        &mut self,
        cluster: &Cluster,
        netdevs: &NetdevIndex<'_>,
        row: u32,
        (at, frozen): (UnixMs, bool),
        limits: &Thresholds,
    ) {
        let rate = |metric| cluster.current_rate(metric, row);
        let gap = cluster.freshness_window();
        let tick = &mut SampleTiming::new(at, limits.average_seconds, gap);
        let least = limits.least_bytes_per_second;
        let stated = cluster.current_value(port::RATE, row).filter(|rate| *rate > 0.0);
        self.best_rate = self.best_rate.max(stated.into());
        let line = line_rate(cluster, row);
        let sent = rate(port::TRANSMIT_BYTES);
        let busier = sent.zip(rate(port::RECEIVE_BYTES)).map(|(sent, received)| sent.max(received));
        self.utilization.add_sample(busier.zip(line).map(|(bytes, line)| bytes / line), tick);
        let seek = !self.sought.is_set() || tick.sampled_at().seconds_since(self.sought) >= SEEK_S;
        if seek {
            self.sought = tick.sampled_at();
            // A link that is down has no rate, and stays with the network device that it had.
            self.netdev = netdevs.netdev_of_port(row).or(self.netdev.known()).into();
        }
        let errors = self.errors_per_second(cluster, row);
        self.errors.add_sample(errors, tick);
        self.error_events.add_rate(errors, tick.sampled_at(), !frozen);
        self.retransmitted.add_sample(sum_known(RETRANSMITS.into_iter().filter_map(rate)), tick);
        let of = |count: Option<f64>, whole: Option<f64>, least: f64| {
            count.zip(whole.filter(|whole| *whole >= least)).map(|(count, whole)| count / whole)
        };
        let received =
            rate(port::RECEIVE_PACKETS).or_else(|| Some(rate(port::RECEIVE_BYTES)? / PACKET_BYTES));
        self.ecn_marked.add_sample(
            of(rate(port::ECN_MARKED), received, limits.least_packets_per_second),
            tick,
        );
        self.cnps_handled.add_sample(
            of(rate(port::CNP_HANDLED), sent.map(|bytes| bytes / 1e9), least / 1e9),
            tick,
        );
        self.transmit_wait.add_sample(
            of(rate(port::TRANSMIT_WAIT), sent.map(|bytes| bytes / 1e3), least / 1e3),
            tick,
        );
        let of_netdev = |netdev| cluster.current_rate(ethernet::OUT_OF_BUFFER, netdev);
        let unbuffered =
            rate(port::OUT_OF_BUFFER).or_else(|| self.netdev.known().and_then(of_netdev));
        self.out_of_buffer.add_sample(unbuffered, tick);
        if let Some(netdev) = self.netdev.known() {
            self.pause_received.add_sample(PAUSED.stopped_share(cluster, netdev, line), tick);
            self.pause_sent.add_sample(PAUSES.stopped_share(cluster, netdev, line), tick);
            self.fec_corrected
                .add_sample(cluster.current_rate(ethernet::CORRECTED_BITS, netdev), tick);
        }
    }

    /// Learns the baselines from the averages.
    fn learn_baselines(
        &mut self,
        (at, since): (UnixMs, Option<f64>),
        cluster: &Cluster,
        frozen: bool,
        limits: &Thresholds,
    ) {
        let moment = SampleMoment { since, gap: cluster.freshness_window(), frozen };
        for (baseline, average, floor) in [
            (&mut self.usual_corrected, &self.fec_corrected, limits.usual_corrected_per_second),
            (&mut self.usual_notified, &self.cnps_handled, limits.usual_notified_per_gigabyte),
            (&mut self.usual_waited, &self.transmit_wait, limits.usual_waited_per_kilobyte),
            (&mut self.usual_marked, &self.ecn_marked, limits.usual_marked_ratio),
        ] {
            baseline.learn_value(
                average.value_at(at, cluster.freshness_window()),
                moment,
                WorseDirection::Higher,
                floor,
                limits,
            );
        }
    }

    /// Returns its baselines, and the highest line rate that was seen.
    fn learned_baselines(&self) -> PortBaselines {
        let baselines =
            [self.usual_corrected, self.usual_notified, self.usual_waited, self.usual_marked];
        (baselines.to_vec(), self.best_rate())
    }

    /// Returns the errors per second that its port counts, or its network device if that counts more.
    fn errors_per_second(&self, cluster: &Cluster, row: u32) -> Option<f64> {
        let rates = LINK_ERRORS.iter().filter_map(|metric| cluster.current_rate(*metric, row));
        let of_netdev = self.netdev_row().and_then(|netdev| netdev_errors(cluster, netdev));
        sum_known(rates).into_iter().chain(of_netdev).reduce(f64::max)
    }

    /// Returns the row of its network device, if it has one.
    pub(super) fn netdev_row(&self) -> Option<u32> {
        self.netdev.known()
    }

    /// Returns the highest line rate that was seen.
    pub(super) fn best_rate(&self) -> Option<f64> {
        self.best_rate.known().map(f64::from)
    }

    /// Whether this line rate, or none, is below the highest one that was seen, both as they are kept.
    pub(super) fn is_below_best(&self, rate: Option<f64>) -> bool {
        let is_below = |best| rate.is_none_or(|rate| (rate as f32) < best);
        self.best_rate.known().is_some_and(is_below)
    }

    /// Returns FEC-corrected bits / baseline.
    pub(super) fn corrected_times(&self, cluster: &Cluster, limits: &Thresholds) -> Option<f64> {
        ratio_to_baseline(
            self.fec_corrected,
            &self.usual_corrected,
            limits.usual_corrected_per_second,
            cluster,
        )
    }

    /// Returns CNPs handled / baseline.
    pub(super) fn notified_times(&self, cluster: &Cluster, limits: &Thresholds) -> Option<f64> {
        ratio_to_baseline(
            self.cnps_handled,
            &self.usual_notified,
            limits.usual_notified_per_gigabyte,
            cluster,
        )
    }

    /// Returns the share of ECN-marked packets / baseline.
    pub(super) fn marked_times(&self, cluster: &Cluster, limits: &Thresholds) -> Option<f64> {
        ratio_to_baseline(self.ecn_marked, &self.usual_marked, limits.usual_marked_ratio, cluster)
    }

    /// Returns how much more of what shows congestion there is than usual.
    pub(super) fn excess_of(&self, sign: CongestionSign, cluster: &Cluster) -> Option<f64> {
        let (average, baseline) = match sign {
            CongestionSign::Queued => return None,
            CongestionSign::Marked => (self.ecn_marked, self.usual_marked.usual_value()),
            CongestionSign::Waits => (self.transmit_wait, self.usual_waited.usual_value()),
            CongestionSign::Paused => (self.pause_received, None),
            CongestionSign::Resends => (self.retransmitted, None),
        };
        Some((current_value(average, cluster)? - baseline.unwrap_or_default()).max(0.0))
    }

    /// Returns transmit wait / baseline.
    pub(super) fn waited_times(&self, cluster: &Cluster, limits: &Thresholds) -> Option<f64> {
        ratio_to_baseline(
            self.transmit_wait,
            &self.usual_waited,
            limits.usual_waited_per_kilobyte,
            cluster,
        )
    }
}

/// Ports carry as much as others if they carry at least one part in so many of their load.
pub(super) const ALIKE_LOADS: f64 = 2.0;

/// Returns an average if it is current.
pub(super) fn current_value(average: MovingAverage, cluster: &Cluster) -> Option<f64> {
    average.value_at(cluster.now(), cluster.freshness_window())
}

/// Assumed packet size where packets are not counted: that of RoCE.
pub(super) const PACKET_BYTES: f64 = 4_096.0;

fn ratio_to_baseline(
    average: MovingAverage,
    baseline: &Baseline,
    floor: f64,
    cluster: &Cluster,
) -> Option<f64> {
    let now = average.value_at(cluster.now(), cluster.freshness_window())?;
    Some(now / baseline.usual_value()?.max(floor))
}

fn sum_known(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(|a, b| a + b)
}

/// The network devices of a node by its ports, found once for all of its ports and only on demand.
struct NetdevIndex<'a> {
    cluster: &'a Cluster,
    node: &'a Node,
    rows: OnceCell<HashMap<u32, u32>>,
}

impl NetdevIndex<'_> {
    /// Returns the network device that belongs to a port.
    fn netdev_of_port(&self, row: u32) -> Option<u32> {
        self.rows.get_or_init(|| self.join_rows().unwrap_or_default()).get(&row).copied()
    }

    fn join_rows(&self) -> Option<HashMap<u32, u32>> {
        let Self { cluster, node, .. } = self;
        let entry = |class, row: &u32| cluster.device_at(class, *row);
        let port_rows = node.device_rows(DeviceClass::Port);
        let ports = port_rows.iter().map(|row| {
            let entry = entry(DeviceClass::Port, row)?;
            Some(PortName {
                device: entry.device.key.first()?,
                stated: entry.info_label(port::INFO, "netdev").map(SanitizedText::as_str),
                rate: cluster.current_value(port::RATE, *row),
            })
        });
        let netdev_rows = node.device_rows(DeviceClass::Netdev);
        let netdevs = netdev_rows.iter().map(|row| {
            let name = entry(DeviceClass::Netdev, row)?.device.key.first()?;
            Some(NetdevName { name, rate: cluster.current_value(host::NETDEV_SPEED, *row) })
        });
        let (ports, netdevs) =
            (ports.collect::<Option<Vec<_>>>()?, netdevs.collect::<Option<Vec<_>>>()?);
        let joined = join_netdevs(&ports, &netdevs).into_iter().zip(port_rows);
        Some(joined.filter_map(|(at, row)| Some((*row, netdev_rows[at?]))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_keeps_168_bytes() {
        assert_eq!(size_of::<Option<LinkAverages>>(), 168);
    }

    #[test]
    fn a_line_rate_that_four_bytes_cannot_hold_is_not_below_itself() {
        let mut link = LinkAverages::new(NodeTag::of(&"n1".into()));
        assert!(!link.is_below_best(None));
        let rate = 50_000_000_001.0;
        link.best_rate = Some(rate).into();
        assert!(!link.is_below_best(Some(rate)));
        assert!(link.is_below_best(Some(rate / 2.0)) && link.is_below_best(None));
    }
}
