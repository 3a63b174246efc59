//! One network device that stands for a port: a card without an RDMA port that has carried traffic. Its carrier and its errors.

use gaunt_cluster::Cluster;
use gaunt_schema::{SanitizedText, UnixMs, catalogue::host};

use super::{
    Thresholds,
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
}

impl NetdevLink {
    /// Creates one that was not sampled yet.
    pub(super) fn new(name: &SanitizedText, carrier: PortTracker) -> Self {
        Self {
            name: NodeTag::of(name),
            carrier,
            errors: MovingAverage::default(),
            error_events: RareEvents::default(),
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
        row: u32,
        (at, frozen): (UnixMs, bool),
        limits: &Thresholds,
    ) {
        let value = |metric| cluster.current_value(metric, row);
        let tick = &mut SampleTiming::new(at, limits.average_seconds, cluster.freshness_window());
        let errors = netdev_errors(cluster, row);
        self.errors.add_sample(errors, tick);
        self.error_events.add_rate(errors, tick.sampled_at(), !frozen);
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
}
