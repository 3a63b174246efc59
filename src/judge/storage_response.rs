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

/// Requests and the time that they took, of one kind.
struct RequestCounters {
    requests: MetricId,
    seconds: MetricId,
}

const READS: RequestCounters =
    RequestCounters { requests: hardware::MOUNT_READS, seconds: hardware::MOUNT_READ_TIME };

/// Writes are left out: a checkpoint slows them.
const METADATA: RequestCounters = RequestCounters {
    requests: hardware::MOUNT_METADATA_OPERATIONS,
    seconds: hardware::MOUNT_METADATA_TIME,
};

/// Requests per second from which network file systems work for a job: a few small ones, answered at once while it loads
/// or pauses, are no baseline for the many that read its input.
const LEAST_REQUESTS: f64 = 0.5;

/// Response times below this differ by chance.
const LEAST_RESPONSE_SECONDS: f64 = 1e-4;

/// The time that a host's network file systems take to answer, with baselines.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StorageResponse {
    reads: AnswerTime,
    metadata: AnswerTime,
}

/// Requests of one kind per second and the time that they take, whose ratio is the mean time of one, and its baseline.
#[derive(Clone, Copy, Debug, Default)]
struct AnswerTime {
    requests: MovingAverage,
    seconds: MovingAverage,
    usual: Baseline,
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
        for (time, counters) in [(&mut self.reads, READS), (&mut self.metadata, METADATA)] {
            let rate = |metric| sum_rates(cluster, node, metric);
            time.requests.add_sample(rate(counters.requests), tick);
            time.seconds.add_sample(rate(counters.seconds), tick);
            time.usual.learn_value(
                time.response(at, moment.gap),
                moment,
                WorseDirection::Higher,
                LEAST_RESPONSE_SECONDS,
                limits,
            );
        }
    }

    /// Returns the present time and its baseline: of reads, where a host reads.
    pub(super) fn times(&self, now: UnixMs, gap: Duration) -> (Option<f64>, &Baseline) {
        let reads = self.reads.usual.usual_value().is_some();
        let time = if reads { &self.reads } else { &self.metadata };
        (time.response(now, gap), &time.usual)
    }

    /// Forgets the baselines because other jobs run on the host.
    pub(super) fn reset_baselines(&mut self) {
        self.set_baselines([Baseline::default(); 2]);
    }

    /// Accepts the present times as baselines.
    pub(super) fn accept_baselines(&mut self, now: UnixMs, gap: Duration, limits: &Thresholds) {
        for time in [&mut self.reads, &mut self.metadata] {
            time.usual = time.usual.with_accepted(time.response(now, gap), limits);
        }
    }

    /// Returns the baselines of reads and of the other requests.
    pub(super) fn learned_baselines(&self) -> [Baseline; 2] {
        [self.reads.usual, self.metadata.usual]
    }

    /// Restores them.
    pub(super) fn set_baselines(&mut self, [reads, metadata]: [Baseline; 2]) {
        (self.reads.usual, self.metadata.usual) = (reads, metadata);
    }
}

impl AnswerTime {
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
