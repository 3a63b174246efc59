//! The recorder: a thread that writes what it is given, and passes it on to whoever follows; nobody waits for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use gaunt_schema::{Delivery, Preamble, UnixMs};
use hyper::body::Bytes;
use tokio::sync::{Notify, mpsc};

use super::{
    Options, RecordError,
    ring::Ring,
    segment_start::{Preambles, preamble_room},
    status::Status,
    writer::{Given, Writer},
};

/// Batches that may wait for the disk; more are dropped and counted. One of 8 GPUs takes about 50 kB here.
const WAITING: usize = 1_024;

/// How many may follow at once: another aggregator, a recording somewhere else, and some room.
const FOLLOWERS: usize = 4;

/// Blocks that may wait for one follower; who is slower is cut off.
const BLOCKS: usize = 64;

/// A recording that goes on until this is dropped; what was given by then is written.
#[derive(Debug)]
pub struct Recorder {
    given: Way,
    writing: Option<JoinHandle<()>>,
    status: Option<Arc<Status>>,
}

/// The way to the thread.
#[derive(Clone, Debug)]
struct Way {
    to: Sender<Given>,
    /// Batches that wait.
    waiting: Arc<AtomicUsize>,
    /// How many follow.
    followers: Arc<AtomicUsize>,
    /// Whether it is written to disk.
    is_kept: bool,
    /// For how many milliseconds a segment waits for a preamble; 0 while nobody gives any.
    preamble_wait: Arc<AtomicU64>,
    /// Wakes who gives preambles: somebody begins to follow, or a segment is to begin.
    asks: Arc<Notify>,
    /// The most bytes that a preamble may have.
    preamble_room: usize,
}

/// A way to follow what is recorded.
#[derive(Clone, Debug)]
pub struct Follow(Way);

impl Follow {
    /// What is given from `now` on, as the bytes of a segment: its header, what is known and stands, then block by block.
    /// None if too many follow.
    pub fn start(&self, now: UnixMs) -> Option<mpsc::Receiver<Bytes>> {
        let more = |now: usize| (now < FOLLOWERS).then_some(now + 1);
        self.0.followers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let (blocks, follower) = mpsc::channel(BLOCKS);
        let waits = self.0.preamble_wait.load(Ordering::Relaxed) > 0;
        self.0.to.send(Given::Follower(blocks, now, waits)).ok()?;
        self.0.asks.notify_one();
        Some(follower)
    }

    /// Waits until a preamble of now is asked for: somebody begins to follow, or a segment is to begin.
    pub async fn asked(&self) {
        self.0.asks.notified().await;
    }

    /// The most bytes that a preamble may have; what is beyond is left out, points of history first.
    pub fn preamble_room(&self) -> usize {
        self.0.preamble_room
    }

    /// Whether a preamble is of use: it is recorded, or somebody follows.
    pub fn is_wanted(&self) -> bool {
        self.0.is_kept || self.0.followers.load(Ordering::Relaxed) > 0
    }

    /// Announces that preambles will be given: who begins to follow waits a little for one, and a segment so
    /// long.
    pub fn promise_preambles(&self, wait: Duration) {
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.0.preamble_wait.store(wait, Ordering::Relaxed);
    }

    /// Gives what is known at `at`, of its own accord.
    pub fn give_preamble(&self, at: UnixMs, preamble: Preamble) {
        let delivery = Box::new(Delivery::Preamble(preamble));
        // The recorder ends before those who know of it, and then wants nothing more.
        drop(self.0.to.send(Given::Delivery(at, delivery)));
    }

    /// Gives what is known at `at` because it was asked for; none if it cannot be said, so that nobody waits for it.
    pub fn answer_preamble(&self, at: UnixMs, preamble: Option<Preamble>) {
        drop(self.0.to.send(Given::Answer(at, preamble.map(Box::new))));
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.given.to.send(Given::End));
        if let Some(writing) = self.writing.take() {
            // It ended with a panic at worst, which the log has.
            drop(writing.join());
        }
    }
}

impl Recorder {
    /// Makes the folder and starts the thread.
    pub fn start(options: Options) -> Result<Self, RecordError> {
        let (folder, period) = (options.folder.clone(), options.period);
        let status = Arc::new(Status::new(&folder));
        let ring = Ring::new(options)?;
        Self::spawn(Some((ring, status)), period)
            .map_err(|error| RecordError::Folder { path: folder, error })
    }

    /// One that writes nothing and only passes on to those who follow; it costs nothing while nobody does.
    pub fn passing_on(period: Duration) -> Result<Self, RecordError> {
        Self::spawn(None, period).map_err(RecordError::Thread)
    }

    fn spawn(keep: Option<(Ring, Arc<Status>)>, period: Duration) -> std::io::Result<Self> {
        let (to, from) = channel();
        let given = Way {
            to,
            waiting: Arc::default(),
            followers: Arc::default(),
            is_kept: keep.is_some(),
            preamble_wait: Arc::default(),
            asks: Arc::default(),
            preamble_room: preamble_room(keep.as_ref().map(|(ring, _)| ring)),
        };
        let status = keep.as_ref().map(|(_, status)| status.clone());
        let (waiting, followers) = (given.waiting.clone(), given.followers.clone());
        let preambles = Preambles::new(given.preamble_wait.clone(), given.asks.clone());
        let mut writer = Writer::new(keep, period, followers, preambles);
        let thread = thread::Builder::new()
            .name("record".to_owned())
            .spawn(move || writer.run(&from, &waiting))?;
        Ok(Self { given, writing: Some(thread), status })
    }

    /// How it stands; none if nothing is written.
    pub fn status(&self) -> Option<&Arc<Status>> {
        self.status.as_ref()
    }

    /// A way to follow it.
    pub fn follow(&self) -> Follow {
        Follow(self.given.clone())
    }

    /// Whether a batch that is given now is not dropped.
    pub fn has_room(&self) -> bool {
        self.given.waiting.load(Ordering::Relaxed) < WAITING
    }

    /// Gives a delivery to be written; a batch is dropped and counted if too many wait already. What stands for a
    /// while is never dropped: batches mean nothing without their targets.
    pub fn give(&self, at: UnixMs, delivery: &Delivery) {
        match delivery {
            Delivery::Keeping(_) => return,
            Delivery::Batch(_) => {
                let nobody = self.given.followers.load(Ordering::Relaxed) == 0;
                if self.status.is_none() && nobody {
                    return;
                }
                if !self.has_room() {
                    if let Some(status) = &self.status {
                        status.behind.fetch_add(1, Ordering::Relaxed);
                    }
                    return;
                }
                self.given.waiting.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        // The thread ends with this recorder and not before, unless it panicked, which the log has.
        drop(self.given.to.send(Given::Delivery(at, Box::new(delivery.clone()))));
    }
}
