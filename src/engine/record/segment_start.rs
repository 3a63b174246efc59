//! Segment start: repeats standing deliveries and requests a current preamble, so that a segment can be read without
//! those before it.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use gaunt_schema::{
    Delivery, JobList, RecordingPreamble, SanitizedText, ScrapeTarget, SourceTopology,
    TargetSource, UnixMs,
};
use tokio::{sync::Notify, time::Instant};

use super::{entry_codec, segment, segment_ring::SegmentRing};

/// The largest preamble, before compression.
const MAX_PREAMBLE: usize = 16 << 20;

/// A preamble is at most this part of a segment.
const PREAMBLE_PART: u64 = 4;

/// How long a new follower waits for a preamble.
const GREETING_WAIT: Duration = Duration::from_secs(2);

/// A preamble that is no older than this is current.
const FRESH: Duration = Duration::from_secs(2);

/// A segment with this many queued bytes no longer waits for its preamble.
const MOST_WAITING: usize = 8 << 20;

/// The most bytes of a preamble in this ring, or to followers.
pub(super) fn preamble_room(ring: Option<&SegmentRing>) -> usize {
    let part = ring.map(|ring| ring.segment_size() / PREAMBLE_PART);
    part.map_or(MAX_PREAMBLE, |max_bytes| MAX_PREAMBLE.min(max_bytes as usize))
}

/// Whether a follower that arrived at this time has waited long enough.
pub(super) fn has_waited(since: Instant) -> bool {
    since.elapsed() >= GREETING_WAIT
}

/// Preambles requested at the start of a segment.
#[derive(Debug)]
pub(super) struct Preambles {
    /// How many milliseconds a segment waits for one; 0 while there is no source of preambles.
    promised: Arc<AtomicU64>,
    /// Wakes the source of preambles.
    asks: Arc<Notify>,
    /// When the current request began.
    asked: Option<Instant>,
    /// Whether it was answered.
    answered: bool,
}

impl Preambles {
    pub(super) fn new(promised: Arc<AtomicU64>, asks: Arc<Notify>) -> Self {
        Self { promised, asks, asked: None, answered: false }
    }

    /// Whether a segment with this many bytes waits for its preamble; requests it first.
    pub(super) fn keep_waiting(&mut self, bytes: usize) -> bool {
        let wait = self.wait();
        if wait.is_zero() {
            return false;
        }
        let since = *self.asked.get_or_insert_with(|| {
            self.asks.notify_one();
            Instant::now()
        });
        !self.answered && bytes < MOST_WAITING && since.elapsed() < wait
    }

    fn wait(&self) -> Duration {
        Duration::from_millis(self.promised.load(Ordering::Relaxed))
    }

    /// Remaining wait of a segment, if one waits.
    pub(super) fn left(&self) -> Option<Duration> {
        let since = self.asked.filter(|_| !self.answered)?;
        Some(self.wait().saturating_sub(since.elapsed()))
    }

    /// Records the answer; returns whether a segment waited for it.
    pub(super) fn answer(&mut self) -> bool {
        self.answered = self.asked.is_some();
        self.answered
    }

    /// The segment began, or none begins.
    pub(super) fn reset(&mut self) {
        (self.asked, self.answered) = (None, false);
    }
}

/// Deliveries that are repeated at the start of each segment.
#[derive(Debug, Default)]
pub(super) struct Standing {
    targets: Option<Vec<ScrapeTarget>>,
    sources: Option<Vec<TargetSource>>,
    topologies: BTreeMap<SanitizedText, SourceTopology>,
    jobs: BTreeMap<SanitizedText, JobList>,
    /// The last state, and its time.
    preamble: Option<(UnixMs, RecordingPreamble)>,
}

impl Standing {
    pub(super) fn note(&mut self, delivery: &Delivery) {
        match delivery {
            Delivery::Targets(targets) => self.targets = Some(targets.clone()),
            Delivery::Sources(sources) => self.sources = Some(sources.clone()),
            Delivery::Topology(update) => {
                drop(self.topologies.insert(update.source.clone(), update.clone()));
            }
            Delivery::Jobs(update) => drop(self.jobs.insert(update.source.clone(), update.clone())),
            Delivery::Batch(_)
            | Delivery::RecordingStatus(_)
            | Delivery::SiteFiles(_)
            | Delivery::Preamble(_) => {}
        }
    }

    pub(super) fn note_preamble(&mut self, at: UnixMs, preamble: RecordingPreamble) {
        self.preamble = Some((at, preamble));
    }

    /// Whether the last preamble, history points included, is current.
    pub(super) fn knows_now(&self, at: UnixMs) -> bool {
        self.preamble.as_ref().is_some_and(|(known, preamble)| {
            !preamble.past.is_empty()
                && at.duration_since(*known).max(known.duration_since(at)) < FRESH
        })
    }

    /// Drops history points that were written and are outdated at the next start.
    pub(super) fn drop_past(&mut self) {
        if let Some((_, preamble)) = &mut self.preamble {
            preamble.past = Arc::default();
        }
    }

    /// Writes all standing deliveries except the preamble, as entries of this time.
    pub(super) fn write(&self, at: UnixMs, out: &mut Vec<u8>) -> u32 {
        let mut entries = 0;
        let targets = self.targets.clone().map(Delivery::Targets);
        let sources = self.sources.clone().map(Delivery::Sources);
        let topologies = self.topologies.values().cloned().map(Delivery::Topology);
        let jobs = self.jobs.values().cloned().map(Delivery::Jobs);
        let all = targets.into_iter().chain(sources).chain(topologies).chain(jobs);
        for delivery in all {
            entry_codec::encode_delivery(&delivery, at, out);
            entries += 1;
        }
        entries
    }

    /// As much of the preamble as fits, as a separate block with the time span of the block before it: damage to it
    /// affects nothing else. Empty if there is no state.
    pub(super) fn preamble_block(
        &self,
        (first, last): (UnixMs, UnixMs),
        max_bytes: usize,
    ) -> io::Result<Vec<u8>> {
        let preamble = self.preamble.as_ref();
        let Some((known, preamble)) =
            preamble.and_then(|(known, preamble)| Some((*known, preamble.fit_within(max_bytes)?)))
        else {
            return Ok(Vec::new());
        };
        let mut payload = Vec::new();
        entry_codec::encode_delivery(&Delivery::Preamble(preamble), known, &mut payload);
        segment::encode_block(&payload, 1, first, last)
    }
}
