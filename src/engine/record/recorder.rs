//! Recorder: a thread that writes what it is given and forwards it to followers; senders never wait for it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use gaunt_schema::{Delivery, RecordingPreamble, SanitizedText, UnixMs, disk::Disk};
use hyper::body::Bytes;
use tokio::sync::{Notify, mpsc};

use super::{
    RecordError, RecordOptions,
    recorder_status::RecorderStatus,
    segment_ring::SegmentRing,
    segment_start::{Preambles, preamble_room},
    segment_writer::{SegmentWriter, Waiting, WriterMessage},
};
use crate::system_disk::system_disk;

/// Batches that may be queued for the disk; more are dropped and counted. One of 8 GPUs takes about 50 kB here.
const WAITING: usize = 1_024;

/// Other messages that may be queued: lists of targets, sources, topologies and jobs, followers and the end. If the
/// queue is full, the newest of each source is withheld until there is space.
const BESIDE: usize = 128;

/// The longest wait at the end for a disk that writes nothing meanwhile, and the time between two looks.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
const LOOKS_EVERY: Duration = Duration::from_millis(1);

/// Followers at once: another aggregator, a recording on another machine, and a reserve.
const FOLLOWERS: usize = 4;

/// Blocks queued per follower; a slower follower is disconnected.
const BLOCKS: usize = 64;

/// A recording that runs until it is dropped; what was given by then is written.
#[derive(Debug)]
pub struct Recorder {
    channel: RecorderChannel,
    writer_thread: Option<JoinHandle<()>>,
    status: Option<Arc<RecorderStatus>>,
    /// Standing deliveries that did not fit in the queue: the newest of each source.
    withheld: Mutex<BTreeMap<Standing, (UnixMs, Delivery)>>,
}

/// The writer of a recorder without a thread: it writes when it is told to, by tokio's clock.
#[derive(Debug)]
pub struct RecordingWriter {
    writer: SegmentWriter,
    given: Receiver<WriterMessage>,
    waiting: Arc<Waiting>,
}

impl RecordingWriter {
    /// Handles what was given, and writes what is due now. A process that is killed does not call it again.
    pub fn run_once(&mut self) {
        self.writer.run_once(&self.given, &self.waiting);
    }
}

/// Deliveries that stay valid until they are replaced, by kind and source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Targets,
    Sources,
    Topology(SanitizedText),
    Jobs(SanitizedText),
}

impl Standing {
    fn of(delivery: &Delivery) -> Option<Self> {
        match delivery {
            Delivery::Targets(_) => Some(Self::Targets),
            Delivery::Sources(_) => Some(Self::Sources),
            Delivery::Topology(update) => Some(Self::Topology(update.source.clone())),
            Delivery::Jobs(update) => Some(Self::Jobs(update.source.clone())),
            Delivery::Batch(_)
            | Delivery::RecordingStatus(_)
            | Delivery::SiteFiles(_)
            | Delivery::Preamble(_) => None,
        }
    }
}

/// Channel to the thread.
#[derive(Clone, Debug)]
struct RecorderChannel {
    sender: SyncSender<WriterMessage>,
    /// Counters of queued messages.
    waiting_batches: Arc<Waiting>,
    /// Number of followers.
    follower_count: Arc<AtomicUsize>,
    /// Whether it writes to disk.
    is_on_disk: bool,
    /// How many milliseconds a segment waits for a preamble; 0 while there is no source of preambles.
    preamble_wait: Arc<AtomicU64>,
    /// Wakes the source of preambles: a follower connects, or a segment begins.
    asks: Arc<Notify>,
    /// The most bytes of a preamble.
    preamble_room: usize,
}

/// Handle to follow what is recorded.
#[derive(Clone, Debug)]
pub struct RecorderFollowHandle(RecorderChannel);

impl RecorderFollowHandle {
    /// Everything given from `now` on, as the bytes of a segment: its header, the engine's state and standing
    /// deliveries, then block by block. None if there are too many followers, or if the disk is so far behind that the
    /// queue is full.
    pub fn start_following(&self, now: UnixMs) -> Option<mpsc::Receiver<Bytes>> {
        let more = |now: usize| (now < FOLLOWERS).then_some(now + 1);
        self.0.follower_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let (blocks, follower) = mpsc::channel(BLOCKS);
        let waits = self.0.preamble_wait.load(Ordering::Relaxed) > 0;
        if self.0.sender.try_send(WriterMessage::Follower(blocks, now, waits)).is_err() {
            self.0.follower_count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        self.0.asks.notify_one();
        Some(follower)
    }

    /// Waits until a current preamble is requested: a follower connects, or a segment begins.
    pub async fn asked(&self) {
        self.0.asks.notified().await;
    }

    /// The most bytes of a preamble; what exceeds it is left out, history points first.
    pub fn preamble_room(&self) -> usize {
        self.0.preamble_room
    }

    /// Whether a preamble is of use: it is recorded, or there is a follower.
    pub fn is_preamble_wanted(&self) -> bool {
        self.0.is_on_disk || self.0.follower_count.load(Ordering::Relaxed) > 0
    }

    /// Announces a source of preambles: a new follower waits a little for one, and a segment for this long.
    pub fn announce_preambles(&self, wait: Duration) {
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.0.preamble_wait.store(wait, Ordering::Relaxed);
    }

    /// Sends the state at `at` without a request, unless an earlier one is still queued.
    pub fn send_preamble(&self, at: UnixMs, preamble: RecordingPreamble) {
        if self.0.waiting_batches.preamble.swap(true, Ordering::Relaxed) {
            return;
        }
        let delivery = Box::new(Delivery::Preamble(preamble));
        if self.0.sender.try_send(WriterMessage::Delivery(at, delivery)).is_err() {
            // The queue is full, or the recorder ended, which it does before its handles.
            self.0.waiting_batches.preamble.store(false, Ordering::Relaxed);
        }
    }

    /// Sends the requested state at `at`; none if it is unavailable, so that the segment need not wait.
    pub fn answer_preamble(&self, at: UnixMs, preamble: Option<RecordingPreamble>) {
        // If the queue is full, the segment begins without it after its timeout.
        drop(self.0.sender.try_send(WriterMessage::Answer(at, preamble.map(Box::new))));
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(writing) = self.writer_thread.take() {
            self.end_thread(writing, ENDS_WITHIN);
        }
    }
}

impl Recorder {
    /// Creates the directory and starts the thread.
    pub fn start_recording(options: RecordOptions) -> Result<Self, RecordError> {
        let (folder, period) = (options.folder.clone(), options.period);
        let status = Arc::new(RecorderStatus::new(&folder));
        let ring = SegmentRing::new(options, system_disk())?;
        Self::spawn_writer(Some((ring, status)), period)
            .map_err(|error| RecordError::Folder { path: folder, error })
    }

    /// A recorder on this disk without a thread.
    pub fn start_stepped(
        options: RecordOptions,
        disk: Arc<dyn Disk>,
    ) -> Result<(Self, RecordingWriter), RecordError> {
        let period = options.period;
        let status = Arc::new(RecorderStatus::new(&options.folder));
        let ring = SegmentRing::new(options, disk)?;
        Ok(Self::with_writer(Some((ring, status)), period))
    }

    /// A recorder that writes nothing and only forwards to followers; without followers it costs nothing.
    pub fn forward_only(period: Duration) -> Result<Self, RecordError> {
        Self::spawn_writer(None, period).map_err(RecordError::Thread)
    }

    fn spawn_writer(
        keep: Option<(SegmentRing, Arc<RecorderStatus>)>,
        period: Duration,
    ) -> std::io::Result<Self> {
        let (mut recorder, RecordingWriter { mut writer, given, waiting }) =
            Self::with_writer(keep, period);
        let thread = thread::Builder::new()
            .name("record".to_owned())
            .spawn(move || writer.run(&given, &waiting))?;
        recorder.writer_thread = Some(thread);
        Ok(recorder)
    }

    fn with_writer(
        keep: Option<(SegmentRing, Arc<RecorderStatus>)>,
        period: Duration,
    ) -> (Self, RecordingWriter) {
        let max_preamble = preamble_room(keep.as_ref().map(|(ring, _)| ring));
        let status = keep.as_ref().map(|(_, status)| status.clone());
        let (recorder, given) = Self::without_thread(status, max_preamble);
        let channel = &recorder.channel;
        let (waiting, followers) =
            (channel.waiting_batches.clone(), channel.follower_count.clone());
        let preambles = Preambles::new(channel.preamble_wait.clone(), channel.asks.clone());
        let writer = SegmentWriter::new(keep, period, followers, preambles);
        (recorder, RecordingWriter { writer, given, waiting })
    }

    /// Ends the thread once it has written what waits, or leaves it behind if it writes nothing for `within`: a call of a disk
    /// that hangs may never return.
    fn end_thread(&self, writing: JoinHandle<()>, within: Duration) {
        let progress = || {
            let status = self.status.as_ref();
            status.map(|it| (it.written.load(Ordering::Relaxed), it.missed.load(Ordering::Relaxed)))
        };
        let (mut is_asked, mut seen, mut since) = (false, progress(), Instant::now());
        while !writing.is_finished() {
            // The queue may be full.
            is_asked = is_asked || self.channel.sender.try_send(WriterMessage::End).is_ok();
            if progress() != seen {
                (seen, since) = (progress(), Instant::now());
            }
            if since.elapsed() >= within {
                return self.count_abandoned();
            }
            thread::sleep(LOOKS_EVERY);
        }
        // It can only fail by a panic, which is logged.
        drop(writing.join());
    }

    /// What waits is lost, and so is the block that is being written.
    fn count_abandoned(&self) {
        let Some(status) = &self.status else { return };
        let waiting = self.channel.waiting_batches.batches.load(Ordering::Relaxed);
        status.missed.fetch_add(waiting.max(1) as u64, Ordering::Relaxed);
        tracing::error!(waiting, "the last deliveries are not recorded: the disk does not answer");
    }

    /// A recorder without a thread, whose messages stay in the queue.
    fn without_thread(
        status: Option<Arc<RecorderStatus>>,
        preamble_room: usize,
    ) -> (Self, Receiver<WriterMessage>) {
        let (to, from) = sync_channel(WAITING + BESIDE);
        let given = RecorderChannel {
            sender: to,
            waiting_batches: Arc::default(),
            follower_count: Arc::default(),
            is_on_disk: status.is_some(),
            preamble_wait: Arc::default(),
            asks: Arc::default(),
            preamble_room,
        };
        (Self { channel: given, writer_thread: None, status, withheld: Mutex::default() }, from)
    }

    /// Status on disk; none if nothing is written.
    pub fn disk_status(&self) -> Option<&Arc<RecorderStatus>> {
        self.status.as_ref()
    }

    /// A handle to follow it.
    pub fn follow_handle(&self) -> RecorderFollowHandle {
        RecorderFollowHandle(self.channel.clone())
    }

    /// Whether a batch given now is not dropped.
    pub fn has_capacity(&self) -> bool {
        self.channel.waiting_batches.batches.load(Ordering::Relaxed) < WAITING && !self.withholds()
    }

    /// Queues a delivery to be written, without blocking. A batch is dropped and counted if the queue is full. Standing
    /// deliveries are never dropped, because batches mean nothing without their targets: if the queue is full, the
    /// newest of each source is queued later, and batches are dropped until then. Of preambles one may be queued.
    pub fn record_delivery(&self, at: UnixMs, delivery: &Delivery) {
        self.give_withheld();
        if let Some(standing) = Standing::of(delivery) {
            let mut withheld = self.withheld.lock().unwrap_or_else(PoisonError::into_inner);
            if !withheld.is_empty() || !self.pass(at, delivery) {
                withheld.insert(standing, (at, delivery.clone()));
            }
        } else if let Delivery::Batch(_) = delivery {
            let nobody = self.channel.follower_count.load(Ordering::Relaxed) == 0;
            if self.status.is_none() && nobody {
                return;
            }
            if !self.has_capacity() {
                return self.count_dropped();
            }
            self.channel.waiting_batches.batches.fetch_add(1, Ordering::Relaxed);
            if !self.pass(at, delivery) {
                self.channel.waiting_batches.batches.fetch_sub(1, Ordering::Relaxed);
                self.count_dropped();
            }
        } else if let Delivery::Preamble(preamble) = delivery {
            self.follow_handle().send_preamble(at, preamble.clone());
        }
    }

    /// Queues withheld deliveries while there is space.
    fn give_withheld(&self) {
        let mut withheld = self.withheld.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(first) = withheld.first_entry() {
            let (at, delivery) = first.get();
            if !self.pass(*at, delivery) {
                return;
            }
            first.remove();
        }
    }

    fn withholds(&self) -> bool {
        !self.withheld.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Sends a delivery to the thread; false if the queue is full.
    fn pass(&self, at: UnixMs, delivery: &Delivery) -> bool {
        let sent =
            self.channel.sender.try_send(WriterMessage::Delivery(at, Box::new(delivery.clone())));
        // The thread ends with this recorder and not before, unless it panicked, which is logged.
        !matches!(sent, Err(TrySendError::Full(_)))
    }

    fn count_dropped(&self) {
        if let Some(status) = &self.status {
            status.behind.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{
        Batch, JobList, ScrapeFailure, ScrapeTarget, SourceTopology, TargetId,
        topology::TopologyOrigin,
    };

    use super::*;

    fn target(number: u32) -> ScrapeTarget {
        let address = format!("10.0.0.{number}:9770").into();
        ScrapeTarget { id: TargetId(number), address, node: None, origin: "test".into() }
    }

    fn batch(at: UnixMs) -> Delivery {
        let outcome = Err(ScrapeFailure::Connect("refused".into()));
        Delivery::Batch(Batch { target: TargetId(0), at, duration_ms: 1.0, outcome })
    }

    /// The end waits for a thread that writes, and not for one whose disk never answers: what it had is counted.
    #[test]
    fn end_does_not_wait_for_a_disk_that_hangs() {
        let status = Arc::new(RecorderStatus::new(std::path::Path::new("/nowhere")));
        let (recorder, _from) = Recorder::without_thread(Some(status.clone()), preamble_room(None));
        for nth in 0..3 * WAITING as i64 {
            recorder.record_delivery(UnixMs(nth), &batch(UnixMs(nth)));
        }
        let (release, hung) = sync_channel::<()>(0);
        let writing = thread::spawn(move || assert!(hung.recv().is_err()));
        recorder.end_thread(writing, Duration::from_millis(20));
        assert_eq!(status.dropped_entries(), 3 * WAITING as u64);
        drop(release);
        let writing = thread::spawn(|| thread::sleep(Duration::from_millis(20)));
        recorder.end_thread(writing, Duration::from_hours(1));
        assert_eq!(status.dropped_entries(), 3 * WAITING as u64, "it ended");
    }

    /// A stalled disk: senders do not wait, missing entries are counted, and standing deliveries are written in their
    /// newest version.
    #[test]
    fn recorder_is_bounded_while_the_disk_accepts_nothing() {
        let status = Arc::new(RecorderStatus::new(std::path::Path::new("/nowhere")));
        let (recorder, from) = Recorder::without_thread(Some(status.clone()), preamble_room(None));
        let follow = recorder.follow_handle();
        let rounds = 3 * WAITING as i64;
        for nth in 0..rounds {
            let at = UnixMs(nth);
            recorder.record_delivery(at, &batch(at));
            recorder.record_delivery(
                at,
                &Delivery::Targets((0..=nth as u32 % 7).map(target).collect()),
            );
            for source in ["a", "b"] {
                let update = SourceTopology::new(source.into(), TopologyOrigin::Declared);
                recorder.record_delivery(at, &Delivery::Topology(update));
            }
            recorder.record_delivery(
                at,
                &Delivery::Jobs(JobList { source: "squeue".into(), jobs: vec![] }),
            );
            follow.send_preamble(at, RecordingPreamble::default());
        }
        let dropped = status.behind.load(Ordering::Relaxed);
        let (mut batches, mut preambles, mut standing) = (0, 0, BTreeMap::new());
        let mut taken = 0;
        let mut next = |given: WriterMessage| {
            taken += 1;
            let WriterMessage::Delivery(at, delivery) = given else { panic!("{given:?}") };
            match &*delivery {
                Delivery::Batch(_) => batches += 1,
                Delivery::Preamble(_) => preambles += 1,
                update => drop(standing.insert(Standing::of(update), at)),
            }
        };
        from.try_iter().for_each(&mut next);
        // The disk accepts writes again.
        recorder.channel.waiting_batches.batches.store(0, Ordering::Relaxed);
        recorder.record_delivery(UnixMs(rounds), &batch(UnixMs(rounds)));
        from.try_iter().for_each(&mut next);
        assert!(taken <= WAITING + BESIDE + 5, "{taken}");
        assert_eq!(preambles, 1);
        assert_eq!(batches + dropped, rounds as u64 + 1, "every batch is there or counted");
        assert_eq!(standing.len(), 4);
        assert!(standing.values().all(|at| at.0 == rounds - 1), "{standing:?}");
    }
}
