//! One network device that stands for a port: a card without an RDMA port that has carried traffic. Its carrier and its errors.

use gaunt_cluster::{Cluster, Node};
use gaunt_schema::{DeviceClass, MetricId, SanitizedText, UnixMs, catalogue::host};

use super::{
    Thresholds,
    baseline::{Baseline, SampleMoment, WorseDirection},
    compact_value::NodeTag,
    moving_average::{CompactTimestamp, MovingAverage, SampleTiming},
    port_counters::netdev_errors,
    port_trackers::{PortSample, PortTracker},
    rare_events::RareEvents,
};

/// The carrier and the errors of one network device.
#[derive(Clone, Debug)]
pub(super) struct NetdevLink {
    name: NodeTag,
    last_sampled: CompactTimestamp,
    pub(super) carrier: PortTracker,
    /// Errors per second.
    pub(super) errors: MovingAverage,
    /// The same as counts, compared with those of the other network devices.
    pub(super) error_events: RareEvents,
    /// What TCP loses, on nodes without RDMA ports.
    pub(super) tcp: Option<Box<TcpShares>>,
}

/// Shares of packets that get lost, with baselines.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TcpShares {
    /// Of the segments that the node sends: those that it sends again.
    pub(super) resent: LostShare,
    /// Of the packets that the device receives: those that are dropped.
    pub(super) dropped: LostShare,
}

/// A share of packets, and what it usually is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LostShare {
    pub(super) now: MovingAverage,
    usual: Baseline,
}

/// Shares of lost packets below this are all the same to a job.
const LEAST_LOST: f64 = 1e-5;

/// Segments or packets per second from which a node sends more than logs and metrics.
const LEAST_PACKETS: f64 = 1e3;

impl NetdevLink {
    /// Creates one that was not sampled yet.
    pub(super) fn new(name: &SanitizedText, carrier: PortTracker) -> Self {
        Self {
            name: NodeTag::of(name),
            carrier,
            last_sampled: CompactTimestamp::NEVER,
            errors: MovingAverage::default(),
            error_events: RareEvents::default(),
            tcp: None,
        }
    }

    /// Whether it is the device of this name on this node: rows are reassigned.
    pub(super) fn is_of(&self, node: &SanitizedText, name: &SanitizedText) -> bool {
        self.carrier.node == NodeTag::of(node) && self.name == NodeTag::of(name)
    }

    /// Ingests the newest sample of the device at its row.
    pub(super) fn add_sample(
        &mut self,
        cluster: &Cluster,
        (node, row): (&Node, u32),
        (at, frozen): (UnixMs, bool),
        limits: &Thresholds,
    ) {
        let value = |metric| cluster.current_value(metric, row);
        let tick = &mut SampleTiming::new(at, limits.average_seconds, cluster.freshness_window());
        let sampled = tick.sampled_at();
        let since = sampled.seconds_after(std::mem::replace(&mut self.last_sampled, sampled));
        let errors = netdev_errors(cluster, row);
        self.errors.add_sample(errors, tick);
        self.error_events.add_rate(errors, sampled, !frozen);
        if node.device_rows(DeviceClass::Port).is_empty() {
            let gap = cluster.freshness_window();
            let moment = SampleMoment { since, gap, frozen };
            let tcp = self.tcp.get_or_insert_default();
            let sent = node
                .own_row()
                .and_then(|row| lost_share(cluster, [host::TCP_RESENT, host::TCP_SENT], row));
            let counters = [host::NETDEV_RECEIVE_DROPS, host::NETDEV_RECEIVE_PACKETS];
            tcp.resent.add_sample(sent, tick, (at, moment), limits);
            tcp.dropped.add_sample(lost_share(cluster, counters, row), tick, (at, moment), limits);
        }
        if let Some(carrier) = value(host::NETDEV_CARRIER).filter(|_| self.carrier.is_new(at)) {
            let changes = cluster.current_rate(host::NETDEV_CARRIER_CHANGES, row);
            let sample = PortSample {
                at,
                is_active: carrier > 0.0,
                downed: None,
                recovered: None,
                has_carrier_changed: changes.is_some_and(|rate| rate > 0.0),
                rate: value(host::NETDEV_SPEED).filter(|rate| *rate > 0.0),
                load: None,
            };
            self.carrier.add_sample(sample, limits);
        }
    }
}

impl LostShare {
    fn add_sample(
        &mut self,
        share: Option<f64>,
        tick: &mut SampleTiming,
        (at, moment): (UnixMs, SampleMoment),
        limits: &Thresholds,
    ) {
        self.now.add_sample(share, tick);
        let now = self.now.value_at(at, moment.gap);
        self.usual.learn_value(now, moment, WorseDirection::Higher, LEAST_LOST, limits);
    }

    /// Returns what it usually is.
    pub(super) fn usual(&self) -> Option<f64> {
        self.usual.usual_value()
    }
}

/// Returns the share of packets that got lost, by the counters of both.
fn lost_share(cluster: &Cluster, [lost, all]: [MetricId; 2], row: u32) -> Option<f64> {
    let all = cluster.current_rate(all, row).filter(|rate| *rate >= LEAST_PACKETS)?;
    Some(cluster.current_rate(lost, row)? / all)
}
