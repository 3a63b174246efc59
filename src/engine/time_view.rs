//! A view of the cluster at a time: the current state, or as much as is kept of a past one.

use std::ops::Deref;

use gaunt_schema::{
    MetricId, Reading, UnixMs,
    catalogue::{gpu, host, port},
    unit::MetricKind,
};

use super::Engine;
use gaunt_cluster::{Cluster, Node};

/// Metrics that hardly ever change and have no history: their current value also stands for the past.
const CONSTANT: [MetricId; 6] = [
    gpu::MEMORY_TOTAL,
    gpu::POWER_LIMIT,
    gpu::SM_CLOCK_MAX,
    host::CPUS,
    host::MEMORY_TOTAL,
    host::NETDEV_SPEED,
];

/// The port's logical state when traffic can flow.
const ACTIVE: f64 = 4.0;

/// The cluster at a point in time.
#[derive(Clone, Copy)]
pub(super) struct TimeView<'a> {
    cluster: &'a Cluster,
    /// The past time; none for now.
    past_time: Option<UnixMs>,
}

impl Engine {
    /// The cluster at the time of the query.
    pub(super) fn time_view(&self) -> TimeView<'_> {
        TimeView { cluster: &self.cluster, past_time: self.past_time }
    }
}

impl Deref for TimeView<'_> {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.cluster
    }
}

impl<'a> TimeView<'a> {
    /// The cluster itself, for what has no history: inventory and topology.
    pub(super) fn live_cluster(self) -> &'a Cluster {
        self.cluster
    }

    /// The time of this view.
    pub(super) fn view_time(self) -> UnixMs {
        self.past_time.unwrap_or_else(|| self.cluster.now())
    }

    /// The last reading of a metric; in the past a value or none.
    pub(super) fn last_reading(self, metric: MetricId, row: u32) -> Option<Reading> {
        match self.past_time {
            None => self.cluster.current_reading(metric, row),
            Some(_) => self.metric_value(metric, row).map(Reading::from),
        }
    }

    /// The value of a metric.
    pub(super) fn metric_value(self, metric: MetricId, row: u32) -> Option<f64> {
        match self.past_time {
            None => self.cluster.current_value(metric, row),
            Some(_) if CONSTANT.contains(&metric) => self.cluster.current_value(metric, row),
            Some(_) if matches!(metric.catalogue_row().kind, MetricKind::Counter(_)) => None,
            Some(then) => self.cluster.value_at(metric, row, then),
        }
    }

    /// The rate of a counter per second.
    pub(super) fn counter_rate(self, metric: MetricId, row: u32) -> Option<f64> {
        match self.past_time {
            None => self.cluster.current_rate(metric, row),
            Some(then) => self.cluster.value_at(metric, row, then),
        }
    }

    /// The recent points of a metric up to the time of this view, at most `most`.
    pub(super) fn past_points(
        self,
        metric: MetricId,
        node: &Node,
        row: u32,
        most: usize,
    ) -> Option<Vec<Option<f32>>> {
        match self.past_time {
            None => self.cluster.recent_points(metric, node, row, most),
            Some(then) => self.cluster.points_until(metric, row, then, most),
        }
    }

    /// Whether traffic can flow over a port.
    pub(super) fn is_active(self, row: u32) -> Option<bool> {
        match self.past_time {
            None => gaunt_judge::is_port_active(self.cluster, row),
            Some(_) => Some(self.metric_value(port::STATE, row)? == ACTIVE),
        }
    }

    /// The age of something that arrived at a time; unknown in the past.
    pub(super) fn age_of(self, came: UnixMs) -> Option<std::time::Duration> {
        self.past_time.is_none().then(|| self.cluster.now().duration_since(came))
    }
}
