//! Targets: what is scraped, and the result of the last attempt.

use std::time::Duration;

use gaunt_schema::{
    Batch, CowList, Device, DeviceClass, Dialect, InfoSeries, Reading, RejectionCounts,
    SanitizedText, ScrapeFailure, ScrapeTarget, ScrapedPage, UnixMs,
};

use super::{
    cluster_node::NodeId, refused_devices::RefusedDevices, renewal_interval::RenewalInterval,
    source_priority::MetricSet,
};

/// Marks a device of the page that is not ingested.
pub(super) const NOT_TAKEN: u32 = u32::MAX;

/// Longest sampling interval of an exporter that samples on its own schedule instead of at each scrape: 30 s is the
/// common default. A page that repeats itself for longer reports that nothing changes.
pub(super) const LONGEST_LOOK: Duration = Duration::from_mins(1);

/// An odd number that spreads the bits of what it multiplies.
const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Added to the deadline of a batch, for its way through the inbox.
const GRACE: Duration = Duration::from_millis(250);

/// An attempt begins on time within this part of a period.
const ON_TIME: f64 = 0.05;

/// The longest duration of an attempt that is believed: a recording may hold any number.
const LONGEST_ATTEMPT: Duration = Duration::from_mins(10);

/// When an attempt began.
fn attempt_start(batch: &Batch) -> UnixMs {
    let lasted = Duration::try_from_secs_f64(batch.duration_ms / 1e3).unwrap_or_default();
    batch.at - lasted.min(LONGEST_ATTEMPT)
}

/// Whether a target is scraped successfully.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetHealth {
    /// Not attempted yet.
    Pending,
    /// Its last attempt succeeded, within its time.
    Live,
    /// Its last attempt failed, or none was reported within its time.
    Down,
}

/// How long its row shows dropped results.
const DROPS_SAID_FOR: Duration = Duration::from_mins(10);

/// A target and the result of its last attempt.
#[derive(Clone, Debug)]
pub struct TrackedTarget {
    /// The announced target.
    pub target: ScrapeTarget,
    /// Its health.
    pub health: TargetHealth,
    /// The node that it reports.
    pub node: Option<NodeId>,
    /// Its dialect, once known.
    pub dialect: Option<Dialect>,
    /// The end of the last attempt.
    pub last_attempt: Option<UnixMs>,
    /// The end of the last attempt that succeeded.
    pub last_success: Option<UnixMs>,
    /// Why the last attempt failed, if it did.
    pub failure: Option<ScrapeFailure>,
    /// Why its page is not ingested although it was read.
    pub flag: Option<SanitizedText>,
    /// How long the last attempt took, in milliseconds.
    pub duration_ms: Option<f64>,
    /// Samples on its last page.
    pub samples: u64,
    /// Bytes of its last page.
    pub bytes: u64,
    /// Rejected lines of its last page.
    pub rejected: RejectionCounts,
    /// Periods without any reported attempt.
    pub missed: u64,
    /// Dropped results: a later one had been ingested before.
    pub dropped: u64,
    /// When the last dropped result ended.
    pub dropped_at: Option<UnixMs>,
    /// Consecutive periods without information about it because gaunt itself was late.
    pub unjudged: u32,
    /// Consecutive attempts that failed or were missed.
    pub failures: u32,
    /// When the first of them ended.
    pub down_since: Option<UnixMs>,
    /// Whether the last attempt failed.
    last_failed: bool,
    /// When the next attempt must be reported; set by the first tick.
    due: Option<UnixMs>,
    /// When the attempt of its last result began; for one that was left out, its slot.
    reported: Option<UnixMs>,
    /// The name by which its last page called its node.
    pub(super) page_name: Option<SanitizedText>,
    /// Another target that reports the same node and is not used, and when its page came.
    pub(super) rival: Option<(SanitizedText, UnixMs)>,
    /// The node's clock on its last page.
    pub(super) node_time: Option<UnixMs>,
    /// When its values were renewed.
    pub(super) renewals: RenewalInterval,
    /// Hash of the readings of its last page: equal pages have equal hashes.
    readings: u64,
    /// When its page last differed from the one before.
    pub(super) last_change: Option<UnixMs>,
    /// The devices of its last page with their rows.
    pub(super) layout: RowLayout,
}

/// The devices of a page and their rows: pages of one target rarely differ in them.
#[derive(Clone, Debug, Default)]
pub(super) struct RowLayout {
    pub(super) devices: CowList<Device>,
    pub(super) rows: Vec<u32>,
    pub(super) infos: CowList<InfoSeries>,
    pub(super) ingested: MetricSet,
    /// The devices under the names that the node's other pages use.
    pub(super) names: CowList<Device>,
    /// The classes with ingested measurements of devices that have a row.
    pub(super) fed: Box<[DeviceClass]>,
    /// Devices above the limits of the node.
    pub(super) refused: RefusedDevices,
}

impl TrackedTarget {
    pub(super) fn new(target: ScrapeTarget) -> Self {
        Self {
            target,
            health: TargetHealth::Pending,
            node: None,
            dialect: None,
            last_attempt: None,
            last_success: None,
            failure: None,
            flag: None,
            duration_ms: None,
            samples: 0,
            bytes: 0,
            rejected: RejectionCounts::default(),
            missed: 0,
            dropped: 0,
            dropped_at: None,
            unjudged: 0,
            failures: 0,
            down_since: None,
            last_failed: false,
            due: None,
            reported: None,
            page_name: None,
            rival: None,
            node_time: None,
            renewals: RenewalInterval::default(),
            readings: 0,
            last_change: None,
            layout: RowLayout::default(),
        }
    }

    /// Records a result, which speaks for so many periods; the caller ingests the page itself.
    pub(super) fn record_attempt(&mut self, batch: &Batch, periods: u32, period: Duration) {
        // One period to the next attempt, and up to one more because that one may use its whole deadline.
        self.due = Some(batch.at + period * 2 + GRACE);
        self.reported = Some(attempt_start(batch));
        if matches!(batch.outcome, Err(ScrapeFailure::Resting(_))) {
            return; // No attempt: the result of the last one stays.
        }
        if batch.outcome.as_ref().is_err_and(ScrapeFailure::is_own) {
            self.unjudged = self.unjudged.saturating_add(periods);
            return; // The target did not get its time: likewise.
        }
        self.unjudged = 0;
        self.last_attempt = Some(batch.at);
        self.duration_ms = Some(batch.duration_ms);
        self.last_failed = batch.outcome.is_err();
        match &batch.outcome {
            Ok(page) => self.record_success(batch.at, page),
            Err(failure) => {
                self.failure = Some(failure.clone());
                self.record_failure(batch.at);
            }
        }
    }

    /// Whether a page only repeats the last one because its exporter has not sampled since. At least one value of a
    /// GPU changes from one sample to the next.
    pub(super) fn detect_repeat(&mut self, page: &ScrapedPage, at: UnixMs) -> bool {
        if !page.dialect.has_own_interval() || page.report.node_time.is_some() {
            return false;
        }
        let mut readings = page.report.samples.len() as u64;
        for sample in &page.report.samples {
            let bits = match sample.reading {
                Reading::Value(value) => value.to_bits(),
                Reading::Absent { absent } => absent as u64,
            };
            let series = u64::from(sample.metric.0) << 32 | u64::from(sample.device);
            readings =
                (readings ^ bits ^ series.rotate_left(17)).wrapping_mul(MIXER).rotate_left(29);
        }
        let is_same = std::mem::replace(&mut self.readings, readings) == readings;
        if !is_same {
            self.last_change = Some(at);
        }
        is_same
            && self
                .renewals
                .last()
                .is_some_and(|renewed| at.duration_since(renewed) <= LONGEST_LOOK)
    }

    /// Extends the deadline of its next attempt by a time in which nothing was ingested.
    pub(super) fn extend_deadline(&mut self, late: Duration) {
        self.due = self.due.map(|due| due + late);
        self.reported = self.reported.map(|reported| reported + late);
    }

    /// Returns the periods that a result speaks for: one report covers all of them that passed while gaunt was late.
    pub(super) fn periods_until(&self, batch: &Batch, period: Duration) -> u32 {
        let begun = attempt_start(batch);
        let passed =
            self.reported.map_or(Duration::ZERO, |reported| begun.duration_since(reported));
        let periods = passed.div_duration_f64(period.max(Duration::from_millis(1)));
        // From an attempt that began late in its slot to a slot that was left out it is less than whole periods.
        let is_left_out = matches!(batch.outcome, Err(ScrapeFailure::Skipped));
        let periods = if is_left_out { (periods - ON_TIME).ceil() } else { periods.round() };
        (periods as u32).max(1)
    }

    /// Counts the periods without a report until `now`.
    pub(super) fn count_missed(&mut self, now: UnixMs, period: Duration) {
        // The first attempt of a spread schedule is within one period, and ends within its deadline.
        let due = *self.due.get_or_insert(now + period * 5 / 2 + GRACE);
        if now <= due {
            return;
        }
        let missed = now.duration_since(due).as_millis() / period.as_millis().max(1) + 1;
        self.due = Some(due + period * u32::try_from(missed).unwrap_or(u32::MAX));
        self.missed += missed as u64;
        self.failure = None;
        for _ in 0..missed.min(2) {
            self.record_failure(now);
        }
    }

    /// When its page last changed; none if it has not been scraped, or if its pages may legitimately stay constant.
    pub fn last_change(&self) -> Option<UnixMs> {
        self.last_change
    }

    /// Refused devices of its last page: its node has too many.
    pub fn refused_devices(&self) -> &RefusedDevices {
        &self.layout.refused
    }

    /// Counts a dropped result.
    pub(super) fn drop_result(&mut self, at: UnixMs) {
        self.dropped += 1;
        self.dropped_at = self.dropped_at.max(Some(at));
    }

    /// Number of its dropped results, if the last of them is recent.
    pub fn dropped_lately(&self) -> Option<u64> {
        let (last, dropped) = (self.last_attempt?, self.dropped_at?);
        (last.duration_since(dropped) <= DROPS_SAID_FOR).then_some(self.dropped)
    }

    /// Whether its last event is a missed report.
    pub fn is_missed(&self) -> bool {
        self.health == TargetHealth::Down && self.failure.is_none()
    }

    /// Whether it is down because an attempt failed, and not only because none was made.
    pub fn has_failed(&self) -> bool {
        self.health == TargetHealth::Down && self.last_failed
    }

    fn record_success(&mut self, at: UnixMs, page: &ScrapedPage) {
        self.health = TargetHealth::Live;
        self.last_success = Some(at);
        self.failure = None;
        self.failures = 0;
        self.down_since = None;
        self.dialect = Some(page.dialect);
        self.samples = page.report.samples.len() as u64;
        self.bytes = page.bytes;
        self.rejected.clone_from(&page.rejected);
    }

    fn record_failure(&mut self, at: UnixMs) {
        self.health = TargetHealth::Down;
        self.failures = self.failures.saturating_add(1);
        self.down_since.get_or_insert(at);
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::TargetId;

    use super::*;

    #[test]
    fn attempt_of_any_duration_has_a_start() {
        let start = |duration_ms| {
            let outcome = Err(ScrapeFailure::OwnLateness(1));
            attempt_start(&Batch { target: TargetId(0), at: UnixMs(900_000), duration_ms, outcome })
                .0
        };
        assert_eq!([start(0.0), start(250.0), start(1e12)], [900_000, 899_750, 300_000]);
        for no_duration in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e300] {
            assert_eq!(start(no_duration), 900_000, "{no_duration}");
        }
    }

    /// A page began 0.9 s late in its slot, and the three slots after it are left out.
    #[test]
    fn slots_after_an_attempt_that_began_late_are_all_counted() {
        let mut target = TrackedTarget::new(ScrapeTarget {
            id: TargetId(0),
            address: "a:1".into(),
            node: None,
            origin: "test".into(),
        });
        let result = |at: i64, duration_ms, outcome| Batch {
            target: TargetId(0),
            at: UnixMs(at),
            duration_ms,
            outcome: Err(outcome),
        };
        let period = Duration::from_secs(1);
        target.record_attempt(&result(12_400, 500.0, ScrapeFailure::Status(500)), 1, period);
        let skipped = result(14_000, 0.0, ScrapeFailure::Skipped);
        assert_eq!(target.periods_until(&skipped, period), 3);
        target.record_attempt(&skipped, 3, period);
        assert_eq!(target.unjudged, 3);
        // The next slot, a little early or late by this process's timers.
        for at in [14_990, 15_000, 15_040] {
            let next = result(at, 0.0, ScrapeFailure::Skipped);
            assert_eq!(target.periods_until(&next, period), 1, "{at}");
        }
        let timed_out = result(15_800, 800.0, ScrapeFailure::OwnLateness(700));
        assert_eq!(target.periods_until(&timed_out, period), 1);
    }
}
