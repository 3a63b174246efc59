//! Sight: what is known now, or as much as is kept of what was known at an instant of the past.

use std::ops::Deref;

use gaunt_schema::{
    MetricId, Reading, UnixMs,
    catalogue::{gpu, host, port},
    unit::Kind,
};

use super::Owner;
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
pub(super) struct Sight<'a> {
    cluster: &'a Cluster,
    /// The instant of the past; none for now.
    then: Option<UnixMs>,
}

impl Owner {
    /// The cluster as of the instant that is asked about.
    pub(super) fn sight(&self) -> Sight<'_> {
        Sight { cluster: &self.cluster, then: self.then }
    }
}

impl Deref for Sight<'_> {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.cluster
    }
}

impl<'a> Sight<'a> {
    /// The cluster itself, for what has no past: who there is, and what hangs where.
    pub(super) fn cluster(self) -> &'a Cluster {
        self.cluster
    }

    /// The instant that is seen.
    pub(super) fn now(self) -> UnixMs {
        self.then.unwrap_or_else(|| self.cluster.now())
    }

    /// The last reading of a metric; of the past a value or nothing.
    pub(super) fn reading(self, metric: MetricId, row: u32) -> Option<Reading> {
        match self.then {
            None => self.cluster.reading(metric, row),
            Some(_) => self.value(metric, row).map(Reading::from),
        }
    }

    /// The value of a metric.
    pub(super) fn value(self, metric: MetricId, row: u32) -> Option<f64> {
        match self.then {
            None => self.cluster.value(metric, row),
            Some(_) if CONSTANT.contains(&metric) => self.cluster.value(metric, row),
            Some(_) if matches!(metric.row().kind, Kind::Counter(_)) => None,
            Some(then) => self.cluster.value_at(metric, row, then),
        }
    }

    /// What a counter grew by in a second.
    pub(super) fn rate(self, metric: MetricId, row: u32) -> Option<f64> {
        match self.then {
            None => self.cluster.rate(metric, row),
            Some(then) => self.cluster.value_at(metric, row, then),
        }
    }

    /// The past of a metric, up to the instant that is seen: at most `most` points.
    pub(super) fn past(
        self,
        metric: MetricId,
        node: &Node,
        row: u32,
        most: usize,
    ) -> Option<Vec<Option<f32>>> {
        match self.then {
            None => self.cluster.past(metric, node, row, most),
            Some(then) => self.cluster.past_until(metric, row, then, most),
        }
    }

    /// Whether traffic can flow over a port.
    pub(super) fn is_active(self, row: u32) -> Option<bool> {
        match self.then {
            None => judge::is_active(self.cluster, row),
            Some(_) => Some(self.value(port::STATE, row)? == ACTIVE),
        }
    }

    /// How old something is that came at an instant; of the past that is not kept.
    pub(super) fn age(self, came: UnixMs) -> Option<std::time::Duration> {
        self.then.is_none().then(|| self.cluster.now().since(came))
    }
}
