//! One network device that stands for a port: a card without an RDMA port that has carried traffic. Its carrier and its errors.

use gaunt_cluster::{Cluster, Node};
use gaunt_schema::{SanitizedText, UnixMs, catalogue::host};

use super::{
    Thresholds,
    baseline::{Baseline, SampleMoment, WorseDirection},
    compact_value::NodeTag,
    moving_average::{MovingAverage, SampleTiming},
    port_counters::netdev_errors,
    port_trackers::{PortSample, PortTracker},
    rare_events::RareEvents,
};

/// The carrier and the errors of one network device.
#[derive(Clone, Debug)]
pub(super) struct NetdevLink {
    name: NodeTag,
    pub(super) carrier: PortTracker,
    /// Errors per second.
    pub(super) errors: MovingAverage,
    /// The same as counts, compared with those of the other network devices.
    pub(super) error_events: RareEvents,
    /// Share of the node's TCP segments that it sends again.
    pub(super) resent: MovingAverage,
    usual_resent: Baseline,
    /// Share of the packets that it received and dropped.
    pub(super) dropped: MovingAverage,
    usual_dropped: Baseline,
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
            errors: MovingAverage::default(),
            error_events: RareEvents::default(),
            resent: MovingAverage::default(),
            usual_resent: Baseline::default(),
            dropped: MovingAverage::default(),
            usual_dropped: Baseline::default(),
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
        let errors = netdev_errors(cluster, row);
        self.errors.add_sample(errors, tick);
        self.error_events.add_rate(errors, tick.sampled_at(), !frozen);
        let share_of = |lost, of, row| {
            let all = cluster.current_rate(of, row).filter(|rate| *rate >= LEAST_PACKETS)?;
            Some(cluster.current_rate(lost, row)? / all)
        };
        let resent = node.own_row().and_then(|row| share_of(host::TCP_RESENT, host::TCP_SENT, row));
        let dropped = share_of(host::NETDEV_RECEIVE_DROPS, host::NETDEV_RECEIVE_PACKETS, row);
        let gap = cluster.freshness_window();
        let moment = SampleMoment { at: tick.sampled_at(), gap, frozen };
        for (average, usual, share) in [
            (&mut self.resent, &mut self.usual_resent, resent),
            (&mut self.dropped, &mut self.usual_dropped, dropped),
        ] {
            average.add_sample(share, tick);
            let now = average.value_at(at, gap);
            usual.learn_value(now, moment, WorseDirection::Higher, LEAST_LOST, limits);
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
            };
            self.carrier.add_sample(sample, limits);
        }
    }

    /// Returns the share of its TCP segments that the node usually sends again.
    pub(super) fn usual_resent(&self) -> Option<f64> {
        self.usual_resent.usual_value()
    }

    /// Returns the share of the packets received that are usually dropped.
    pub(super) fn usual_dropped(&self) -> Option<f64> {
        self.usual_dropped.usual_value()
    }
}
