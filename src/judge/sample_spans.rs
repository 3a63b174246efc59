//! Spans that contain two samples: where scrapes are rare, evidence must last for as long.

use super::Thresholds;
use gaunt_cluster::Cluster;

impl Thresholds {
    /// Seconds that contain two samples of what an exporter collects only now and then; at a short period every page
    /// has new ones.
    pub(super) fn two_sample_seconds(&self, cluster: &Cluster) -> f64 {
        if self.has_slow_period(cluster) {
            2.0 * cluster.scrape_period().as_secs_f64() + self.sample_slack_seconds
        } else {
            0.0
        }
    }

    /// Seconds that contain two samples of each of several nodes, which are read at different moments of a period: what
    /// all of them did once, such as a checkpoint, still shows up on some of them for one more period.
    pub(super) fn two_sample_seconds_of_all(&self, cluster: &Cluster) -> f64 {
        let spread =
            if self.has_slow_period(cluster) { cluster.scrape_period().as_secs_f64() } else { 0.0 };
        self.two_sample_seconds(cluster) + spread
    }

    /// Seconds that contain two collections of an exporter, however often it is scraped: two values of one page may be
    /// of two instants.
    pub(super) fn two_collection_seconds(&self, cluster: &Cluster) -> f64 {
        let all = 2.0 * self.collected_seconds + self.two_sample_seconds(cluster) / 2.0;
        if self.has_slow_period(cluster) { all.max(self.two_sample_seconds(cluster)) } else { 0.0 }
    }

    /// Whether scrapes are so rare that pages may repeat what an exporter collected before.
    pub(super) fn has_slow_period(&self, cluster: &Cluster) -> bool {
        cluster.scrape_period().as_secs_f64() >= self.slow_period_seconds
    }
}
