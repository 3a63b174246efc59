//! Targets: what is to be read, and the fate of the last attempt.

use std::time::Duration;

use gaunt_schema::{
    Batch, CowList, Device, Dialect, InfoSeries, Reading, RejectionCounts, SanitizedText,
    ScrapeFailure, ScrapeTarget, ScrapedPage, UnixMs,
};

use super::{
    batch_ingest::LONGEST_LOOK, cluster_node::NodeId, refused_devices::RefusedDevices,
    source_priority::MetricSet,
};

/// A device of the page that is not taken.
pub(super) const NOT_TAKEN: u32 = u32::MAX;

/// An odd number that spreads the bits of what it multiplies.
const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Added to the time within which a batch must come, for the way through the inbox.
const GRACE: Duration = Duration::from_millis(250);

/// Whether a target is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetHealth {
    /// It has not been tried yet.
    Pending,
    /// Its last attempt succeeded, within its time.
    Live,
    /// Its last attempt failed, or none came within its time.
    Down,
}

/// How long its row says that results of a target were not taken.
const DROPS_SAID_FOR: Duration = Duration::from_mins(10);

/// A target with the fate of its last attempt.
#[derive(Clone, Debug)]
pub struct TrackedTarget {
    /// What was announced.
    pub target: ScrapeTarget,
    /// Whether it is read.
    pub health: TargetHealth,
    /// The node that it speaks for.
    pub node: Option<NodeId>,
    /// In whose words it speaks, once known.
    pub dialect: Option<Dialect>,
    /// The end of the last attempt.
    pub last_attempt: Option<UnixMs>,
    /// The end of the last attempt that succeeded.
    pub last_success: Option<UnixMs>,
    /// Why the last attempt failed, if it did.
    pub failure: Option<ScrapeFailure>,
    /// Why its data is not taken although its page was read.
    pub flag: Option<SanitizedText>,
    /// How long the last attempt took, in milliseconds.
    pub duration_ms: Option<f64>,
    /// Samples on its last page.
    pub samples: u64,
    /// Bytes of its last page.
    pub bytes: u64,
    /// Lines of its last page that were not taken.
    pub rejected: RejectionCounts,
    /// Periods in which no attempt was reported at all.
    pub missed: u64,
    /// Results of attempts that were not taken, because a later one had been taken before.
    pub dropped: u64,
    /// When the last of them ended.
    pub dropped_at: Option<UnixMs>,
    /// Attempts in a row that say nothing of it because gaunt itself was late.
    pub unjudged: u32,
    /// Attempts that failed or were missed, in a row.
    pub failures: u32,
    /// When the first of them ended.
    pub down_since: Option<UnixMs>,
    /// Whether the last attempt that was made failed.
    last_failed: bool,
    /// When the next attempt must have been reported; set by the first tick.
    due: Option<UnixMs>,
    /// The node's clock on its last page.
    pub(super) node_time: Option<UnixMs>,
    /// When that clock last moved.
    pub(super) moved: Option<UnixMs>,
    /// What the readings of its last page were, as a number: equal pages have equal ones.
    readings: u64,
    /// When its page last said anything that the one before did not.
    pub(super) last_change: Option<UnixMs>,
    /// The devices of its last page with their rows.
    pub(super) layout: RowLayout,
}

/// The devices of a page, and where their cells are: pages of one target hardly ever differ in it.
#[derive(Clone, Debug, Default)]
pub(super) struct RowLayout {
    pub(super) devices: CowList<Device>,
    pub(super) rows: Vec<u32>,
    pub(super) infos: CowList<InfoSeries>,
    pub(super) taken: MetricSet,
    /// The devices as the node's other pages call them.
    pub(super) names: CowList<Device>,
    /// Of which classes anything is measured and taken.
    pub(super) measured: Vec<bool>,
    /// Devices for which the node has no room.
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
            node_time: None,
            moved: None,
            readings: 0,
            last_change: None,
            layout: RowLayout::default(),
        }
    }

    /// Notes how an attempt ended; the page itself is for the caller.
    pub(super) fn record_attempt(&mut self, batch: &Batch, period: Duration) {
        // One period to the next attempt, and up to one more because that one may use up its deadline.
        self.due = Some(batch.at + period * 2 + GRACE);
        if matches!(batch.outcome, Err(ScrapeFailure::Resting(_))) {
            return; // No attempt: how the last one ended still stands.
        }
        if batch.outcome.as_ref().is_err_and(ScrapeFailure::is_own) {
            self.unjudged = self.unjudged.saturating_add(1);
            return; // The target was not given its time: likewise.
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

    /// Whether a page only says again what the last one said, because its exporter has not looked since. At least one
    /// value of a GPU moves from one look to the next.
    pub(super) fn detect_repeat(&mut self, page: &ScrapedPage, at: UnixMs) -> bool {
        if !page.dialect.has_own_interval() || page.report.node_time.is_some() {
            return false;
        }
        let mut readings = page.report.samples.len() as u64;
        for sample in &page.report.samples {
            let told = match sample.reading {
                Reading::Value(value) => value.to_bits(),
                Reading::Absent { absent } => absent as u64,
            };
            let place = u64::from(sample.metric.0) << 32 | u64::from(sample.device);
            readings =
                (readings ^ told ^ place.rotate_left(17)).wrapping_mul(MIXER).rotate_left(29);
        }
        let same = std::mem::replace(&mut self.readings, readings) == readings;
        if !same {
            self.last_change = Some(at);
        }
        same && self.moved.is_some_and(|moved| at.duration_since(moved) <= LONGEST_LOOK)
    }

    /// Gives it more time until its next attempt must have been reported: for so long nobody took reports.
    pub(super) fn extend_deadline(&mut self, late: Duration) {
        self.due = self.due.map(|due| due + late);
    }

    /// Counts the periods that passed without a report until `now`.
    pub(super) fn count_missed(&mut self, now: UnixMs, period: Duration) {
        // The first attempt of a spread schedule comes within one period, and ends within its deadline.
        let due = *self.due.get_or_insert(now + period * 5 / 2 + GRACE);
        if now <= due {
            return;
        }
        let late = now.duration_since(due).as_millis() / period.as_millis().max(1) + 1;
        self.due = Some(due + period * u32::try_from(late).unwrap_or(u32::MAX));
        self.missed += late as u64;
        self.failure = None;
        for _ in 0..late.min(2) {
            self.record_failure(now);
        }
    }

    /// When its page last said anything new; none if it has not been read, or if its pages may stand still rightly.
    pub fn last_change(&self) -> Option<UnixMs> {
        self.last_change
    }

    /// Devices of its last page that are refused because its node has too many.
    pub fn refused_devices(&self) -> &RefusedDevices {
        &self.layout.refused
    }

    /// Counts a result that is not taken.
    pub(super) fn drop_result(&mut self, at: UnixMs) {
        self.dropped += 1;
        self.dropped_at = self.dropped_at.max(Some(at));
    }

    /// How many of its results were not taken, if the last of them is recent.
    pub fn dropped_lately(&self) -> Option<u64> {
        let (last, dropped) = (self.last_attempt?, self.dropped_at?);
        (last.duration_since(dropped) <= DROPS_SAID_FOR).then_some(self.dropped)
    }

    /// Whether the last thing that happened to it is that nothing was reported.
    pub fn is_missed(&self) -> bool {
        self.health == TargetHealth::Down && self.failure.is_none()
    }

    /// Whether it is down because an attempt at it failed, and not only because nobody made one.
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
