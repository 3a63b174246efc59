//! Sample intervals: how often an exporter renews what it serves. Where that is rare, evidence must last for two samples.

use std::time::Duration;

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::DeviceClass;

use super::Thresholds;

/// The time between two samples: the scrape interval, or the collection interval of an exporter that repeats what it
/// collected before.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub(super) struct SampleInterval(f64);

/// Samples in the span of an average: one sample is four fifths of it.
const AVERAGED_SAMPLES: f64 = 1.2;

/// The share of a job's nodes that must have new samples for a round.
pub(super) const NEARLY_ALL: f64 = 0.75;

impl SampleInterval {
    /// Returns the interval of what is new on every page.
    pub(super) fn of_pages(cluster: &Cluster) -> Self {
        Self(cluster.scrape_period().as_secs_f64())
    }

    /// Returns an interval of this length.
    pub(super) fn of_duration(interval: Duration) -> Self {
        Self(interval.as_secs_f64())
    }

    /// Returns the interval of a node's GPU metrics.
    pub(super) fn of_gpus(cluster: &Cluster, node: &Node) -> Self {
        let renewed = node.renewals(DeviceClass::Gpu).interval().unwrap_or_default();
        Self(renewed.max(cluster.scrape_period()).as_secs_f64())
    }

    /// Returns the longest interval of the GPU metrics of all nodes.
    pub(super) fn of_fleet(cluster: &Cluster) -> Self {
        let nodes = cluster.sorted_nodes().map(|(_, node)| Self::of_gpus(cluster, node));
        nodes.fold(Self::of_pages(cluster), Self::longer)
    }

    /// Returns the interval of the GPU metrics within which [`NEARLY_ALL`] of these nodes have a new sample: one exporter
    /// that answers now and then does not make the rest of a job as rare.
    pub(super) fn of_nodes(cluster: &Cluster, nodes: &[NodeId]) -> Self {
        let nodes = nodes.iter().filter_map(|id| cluster.node_by_id(*id));
        let mut intervals: Vec<f64> = nodes.map(|node| Self::of_gpus(cluster, node).0).collect();
        intervals.sort_unstable_by(f64::total_cmp);
        let needed = (intervals.len() as f64 * NEARLY_ALL).ceil() as usize;
        let interval = needed.checked_sub(1).map_or(0.0, |last| intervals[last]);
        Self(interval.max(cluster.scrape_period().as_secs_f64()))
    }

    /// Returns a scrape period as an interval.
    pub(super) fn of_period(period: Duration) -> Self {
        Self(period.as_secs_f64())
    }

    /// Returns the longer one.
    pub(super) fn longer(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    /// Returns it in seconds.
    pub(super) fn seconds(self) -> f64 {
        self.0
    }

    /// Returns it as a duration.
    pub(super) fn to_duration(self) -> Duration {
        Duration::from_secs_f64(self.0)
    }

    /// Whether samples are so rare that each is one instant, and not an average of what happens all the time.
    pub(super) fn is_slow(self, limits: &Thresholds) -> bool {
        self.0 >= limits.slow_period_seconds
    }

    /// Returns the span of moving averages: one sample at least.
    pub(super) fn average_seconds(self, limits: &Thresholds) -> f64 {
        limits.average_seconds.max(AVERAGED_SAMPLES * self.0)
    }

    /// Returns the seconds from one sample until after the next one; at a short interval every page has a new one.
    pub(super) fn two_sample_seconds(self, limits: &Thresholds) -> f64 {
        if self.is_slow(limits) { self.0 + limits.sample_slack_seconds } else { 0.0 }
    }

    /// Returns the seconds that contain two samples of each of several nodes, which are read at different moments of an
    /// interval: what all of them did once, such as a checkpoint, still shows up on some of them for one more interval.
    pub(super) fn two_sample_seconds_of_all(self, limits: &Thresholds) -> f64 {
        let spread = if self.is_slow(limits) { self.0 } else { 0.0 };
        self.two_sample_seconds(limits) + spread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rare_samples_need_time() {
        let limits = Thresholds::default();
        let (fast, slow) = (SampleInterval(1.0), SampleInterval(30.0));
        assert_eq!((fast.two_sample_seconds(&limits), fast.is_slow(&limits)), (0.0, false));
        assert_eq!((slow.two_sample_seconds(&limits), slow.is_slow(&limits)), (35.0, true));
        assert!((slow.two_sample_seconds_of_all(&limits) - 65.0).abs() < 1e-9);
        assert_eq!((fast.average_seconds(&limits), slow.average_seconds(&limits)), (10.0, 36.0));
    }
}
