//! How long the network file systems of a host take to answer. Reads are compared with reads: requests about names and
//! attributes are answered far sooner, and are all that a job sends while it pauses.

use std::time::Duration;

use gaunt_cluster::{Cluster, Node};
use gaunt_schema::{DeviceClass, MetricId, UnixMs, catalogue::hardware};

use super::{
    Thresholds,
    baseline::{Baseline, SampleMoment, WorseDirection},
    moving_average::{MovingAverage, SampleTiming},
};

/// The counters of reads and of the time that they took.
const READS: [MetricId; 2] = [hardware::MOUNT_READS, hardware::MOUNT_READ_TIME];

/// The same of requests about names and attributes. Writes are left out: a checkpoint slows them.
const METADATA: [MetricId; 2] =
    [hardware::MOUNT_METADATA_OPERATIONS, hardware::MOUNT_METADATA_TIME];

/// Requests per second from which network file systems work for a job: a few small ones, answered at once while it loads
/// or pauses, are no baseline for the many that read its input.
const LEAST_REQUESTS: f64 = 0.5;

/// Response times below this differ by chance.
const LEAST_RESPONSE_SECONDS: f64 = 1e-4;

/// The mean time that a host's network file systems take to answer, in seconds, with its baseline: of reads, once it reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StorageResponse {
    requests: MovingAverage,
    seconds: MovingAverage,
    usual: Baseline,
    /// Whether the host has read anything since its job began.
    reads: bool,
}

impl StorageResponse {
    /// Ingests the newest sample of a node.
    pub(super) fn add_sample(
        &mut self,
        cluster: &Cluster,
        node: &Node,
        tick: &mut SampleTiming,
        (at, moment): (UnixMs, SampleMoment),
        limits: &Thresholds,
    ) {
        let rate = |metric| sum_rates(cluster, node, metric);
        if !self.reads && rate(READS[0]).is_some_and(|reads| reads >= LEAST_REQUESTS) {
            *self = Self { reads: true, ..Self::default() };
        }
        let [requests, seconds] = if self.reads { READS } else { METADATA };
        self.requests.add_sample(rate(requests), tick);
        self.seconds.add_sample(rate(seconds), tick);
        self.usual.learn_value(
            self.response(at, moment.gap),
            moment,
            WorseDirection::Higher,
            LEAST_RESPONSE_SECONDS,
            limits,
        );
    }

    /// Returns the present time and its baseline.
    pub(super) fn times(&self, now: UnixMs, gap: Duration) -> (Option<f64>, &Baseline) {
        (self.response(now, gap), &self.usual)
    }

    /// Accepts the present time as baseline.
    pub(super) fn accept_baseline(&mut self, now: UnixMs, gap: Duration, limits: &Thresholds) {
        self.usual = self.usual.with_accepted(self.response(now, gap), limits);
    }

    /// Returns the baselines of reads and of the other requests; one of them is new.
    pub(super) fn learned_baselines(&self) -> [Baseline; 2] {
        let new = Baseline::default();
        if self.reads { [self.usual, new] } else { [new, self.usual] }
    }

    /// Restores a response with these baselines.
    pub(super) fn from_baselines([reads, metadata]: [Baseline; 2]) -> Self {
        let known = !reads.is_new();
        let usual = if known { reads } else { metadata };
        Self { usual, reads: known, ..Self::default() }
    }

    /// Returns the mean time of a request if there are enough to tell it: that of few says little.
    fn response(&self, now: UnixMs, gap: Duration) -> Option<f64> {
        let requests = self.requests.value_at(now, gap)?;
        (requests >= LEAST_REQUESTS).then_some(self.seconds.value_at(now, gap)? / requests)
    }
}

/// Returns the sum of a rate over the network file systems of a node; none if it is not counted.
fn sum_rates(cluster: &Cluster, node: &Node, metric: MetricId) -> Option<f64> {
    let rows = node.device_rows(DeviceClass::Mount).iter();
    rows.filter_map(|row| cluster.current_rate(metric, *row)).reduce(|a, b| a + b)
}
