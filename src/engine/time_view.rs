//! Sight: what is known now, or as much as is kept of what was known at an instant of the past.

use std::ops::Deref;

use gaunt_schema::{
    MetricId, Reading, UnixMs,
    catalogue::{gpu, host, port},
    unit::MetricKind,
};

use super::Engine;
use crate::{
    cluster::{Cluster, Node},
    judge,
};

/// What hardly ever changes and has no past: what it is now, it was.
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

/// The cluster, seen from an instant.
#[derive(Clone, Copy)]
pub(super) struct TimeView<'a> {
    cluster: &'a Cluster,
    /// The instant of the past; none for now.
    past_time: Option<UnixMs>,
}

impl Engine {
    /// The cluster as of the instant that is asked about.
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
    /// The cluster itself, for what has no past: who there is, and what hangs where.
    pub(super) fn live_cluster(self) -> &'a Cluster {
        self.cluster
    }

    /// The instant that is seen.
    pub(super) fn view_time(self) -> UnixMs {
        self.past_time.unwrap_or_else(|| self.cluster.now())
    }

    /// The last reading of a metric; of the past a value or nothing.
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

    /// What a counter grew by in a second.
    pub(super) fn counter_rate(self, metric: MetricId, row: u32) -> Option<f64> {
        match self.past_time {
            None => self.cluster.current_rate(metric, row),
            Some(then) => self.cluster.value_at(metric, row, then),
        }
    }

    /// The past of a metric, up to the instant that is seen: at most `most` points.
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
            None => judge::is_port_active(self.cluster, row),
            Some(_) => Some(self.metric_value(port::STATE, row)? == ACTIVE),
        }
    }

    /// How old something is that came at an instant; of the past that is not kept.
    pub(super) fn age_of(self, came: UnixMs) -> Option<std::time::Duration> {
        self.past_time.is_none().then(|| self.cluster.now().duration_since(came))
    }
}
