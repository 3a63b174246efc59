//! The recorder: a thread that writes what it is given, and a tap that gives it what passes by without ever waiting.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use gaunt_schema::{Clock, Delivery, JobList, Safe, Target, TargetSource, Topology, UnixMs};
use tokio::sync::mpsc;

use super::{Options, RecordError, entry, ring::Ring, segment};

/// Deliveries that may wait for the disk; more are dropped and counted. A page of 8 GPUs takes about 50 kB here.
const WAITING: usize = 1_024;

/// A block is written once it has this size before compression.
const BLOCK_SIZE: usize = 1 << 20;

/// A block is written at the latest this long after its first entry: what a kill can cost.
const BLOCK_TIME: Duration = Duration::from_secs(1);

/// The time between two attempts to write to a disk that is full.
const RETRY: Duration = Duration::from_secs(5);

/// Deliveries that may wait between the senders and the owner: as many as the owner itself lets wait.
const PASSING: usize = 64;

/// How a recording stands.
#[derive(Debug, Default)]
pub struct Status {
    /// Entries that were written.
    pub written: AtomicU64,
    /// Entries that were not, because the disk was too slow or full.
    pub dropped: AtomicU64,
    /// Bytes that were written.
    pub bytes: AtomicU64,
    /// Whether nothing can be written now.
    pub stopped: AtomicBool,
}

/// A recording that goes on until this is dropped; what was given by then is written.
#[derive(Debug)]
pub struct Recorder {
    pages: Option<SyncSender<(UnixMs, Delivery)>>,
    writing: Option<JoinHandle<()>>,
    status: Arc<Status>,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        drop(self.pages.take());
        if let Some(writing) = self.writing.take() {
            // It ended with a panic at worst, which the log has.
            drop(writing.join());
        }
    }
}

impl Recorder {
    /// Makes the folder and starts the thread.
    pub fn start(options: Options) -> Result<Self, RecordError> {
        let folder = options.folder.clone();
        let ring = Ring::new(options)?;
        let (pages, given) = sync_channel(WAITING);
        let status = Arc::new(Status::default());
        let mut writer = Writer::new(ring, status.clone());
        let writing = thread::Builder::new()
            .name("record".to_owned())
            .spawn(move || writer.run(&given))
            .map_err(|error| RecordError::Folder { path: folder, error })?;
        Ok(Self { pages: Some(pages), writing: Some(writing), status })
    }

    /// How it stands.
    pub fn status(&self) -> &Arc<Status> {
        &self.status
    }

    /// Gives a delivery to be written; it is dropped and counted if too many wait already.
    pub fn give(&self, at: UnixMs, delivery: &Delivery) {
        let Some(pages) = &self.pages else { return };
        match pages.try_send((at, delivery.clone())) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.status.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// An inbox that passes everything on to another one, and to a recorder on the way.
pub fn tap(
    recorder: Recorder,
    onward: mpsc::Sender<Delivery>,
    clock: Clock,
) -> mpsc::Sender<Delivery> {
    let (inbox, mut passing) = mpsc::channel::<Delivery>(PASSING);
    tokio::spawn(async move {
        while let Some(delivery) = passing.recv().await {
            recorder.give(clock(), &delivery);
            if onward.send(delivery).await.is_err() {
                return;
            }
        }
    });
    inbox
}

/// What must be said again at the beginning of each segment.
#[derive(Debug, Default)]
struct Standing {
    targets: Option<Vec<Target>>,
    sources: Option<Vec<TargetSource>>,
    topologies: BTreeMap<Safe, Topology>,
    jobs: BTreeMap<Safe, JobList>,
}

impl Standing {
    fn note(&mut self, delivery: &Delivery) {
        match delivery {
            Delivery::Targets(targets) => self.targets = Some(targets.clone()),
            Delivery::Sources(sources) => self.sources = Some(sources.clone()),
            Delivery::Topology(told) => {
                drop(self.topologies.insert(told.source.clone(), told.clone()));
            }
            Delivery::Jobs(told) => drop(self.jobs.insert(told.source.clone(), told.clone())),
            Delivery::Batch(_) => {}
        }
    }

    /// Everything that stands, as entries of this instant.
    fn write(&self, at: UnixMs, out: &mut Vec<u8>) -> u32 {
        let targets = self.targets.clone().map(Delivery::Targets);
        let sources = self.sources.clone().map(Delivery::Sources);
        let topologies = self.topologies.values().cloned().map(Delivery::Topology);
        let jobs = self.jobs.values().cloned().map(Delivery::Jobs);
        let all = targets.into_iter().chain(sources).chain(topologies).chain(jobs);
        let mut entries = 0;
        for delivery in all {
            entry::write(&delivery, at, out);
            entries += 1;
        }
        entries
    }
}

/// The thread's own: the ring, and the block that grows.
#[derive(Debug)]
struct Writer {
    ring: Ring,
    status: Arc<Status>,
    standing: Standing,
    payload: Vec<u8>,
    entries: u32,
    span: Option<(UnixMs, UnixMs)>,
    begun: Instant,
    retry: Option<Instant>,
}

impl Writer {
    fn new(ring: Ring, status: Arc<Status>) -> Self {
        Self {
            ring,
            status,
            standing: Standing::default(),
            payload: Vec::new(),
            entries: 0,
            span: None,
            begun: Instant::now(),
            retry: None,
        }
    }

    fn run(&mut self, given: &Receiver<(UnixMs, Delivery)>) {
        loop {
            let left = BLOCK_TIME.saturating_sub(self.begun.elapsed());
            let wait = if self.entries == 0 { BLOCK_TIME } else { left };
            match given.recv_timeout(wait) {
                Ok((at, delivery)) => self.take(at, &delivery),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.flush(),
            }
            let late = self.entries > 0 && self.begun.elapsed() >= BLOCK_TIME;
            if late || self.payload.len() >= BLOCK_SIZE {
                self.flush();
            }
        }
    }

    fn take(&mut self, at: UnixMs, delivery: &Delivery) {
        self.standing.note(delivery);
        if self.entries == 0 {
            self.begun = Instant::now();
        }
        entry::write(delivery, at, &mut self.payload);
        self.entries += 1;
        let (first, last) = self.span.get_or_insert((at, at));
        (*first, *last) = ((*first).min(at), (*last).max(at));
    }

    /// Writes the block. On a full disk it is dropped and counted, and the next attempt waits a little.
    fn flush(&mut self) {
        let Some((first, last)) = self.span.take() else { return };
        let given = u64::from(std::mem::take(&mut self.entries));
        let payload = std::mem::take(&mut self.payload);
        if self.retry.is_some_and(|at| Instant::now() < at) {
            self.status.dropped.fetch_add(given, Ordering::Relaxed);
            return;
        }
        match self.write(&payload, given as u32, first, last) {
            Ok(bytes) => {
                self.retry = None;
                if self.status.stopped.swap(false, Ordering::Relaxed) {
                    tracing::info!("recording goes on");
                }
                self.status.written.fetch_add(given, Ordering::Relaxed);
                self.status.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            Err(error) => {
                self.retry = Some(Instant::now() + RETRY);
                self.status.dropped.fetch_add(given, Ordering::Relaxed);
                if !self.status.stopped.swap(true, Ordering::Relaxed) {
                    tracing::error!(%error, "recording stops until there is room; everything else goes on");
                }
            }
        }
        self.payload = payload;
        self.payload.clear();
    }

    fn write(
        &mut self,
        payload: &[u8],
        entries: u32,
        first: UnixMs,
        last: UnixMs,
    ) -> io::Result<u64> {
        let begin = self.ring.begins(first);
        let block = if begin {
            let mut whole = Vec::with_capacity(payload.len());
            let told = self.standing.write(first, &mut whole);
            whole.extend_from_slice(payload);
            segment::block(&whole, told + entries, first, last)?
        } else {
            segment::block(payload, entries, first, last)?
        };
        self.ring.write(&block, first, begin)?;
        Ok(block.len() as u64)
    }
}
