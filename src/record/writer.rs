//! The recorder's thread: the block that grows, the ring that it is written to, and those who follow.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use gaunt_schema::{Delivery, JobList, Preamble, Safe, Target, TargetSource, Topology, UnixMs};
use hyper::body::Bytes;
use tokio::sync::mpsc;

use super::{entry, recorder::Waiting, ring::Ring, segment, status::Status};

/// A block is written once it has this size before compression.
const BLOCK_SIZE: usize = 1 << 20;

/// A block is written at the latest this long after its first entry: what a kill can cost.
const BLOCK_TIME: Duration = Duration::from_secs(1);

/// The time between two attempts to write to a disk that is full.
const RETRY: Duration = Duration::from_secs(5);

/// The time between two preambles within a segment: what a reader who begins there must live through to know the rest.
const PREAMBLE_EVERY: Duration = Duration::from_mins(1);

/// The largest preamble, before compression.
const MAX_PREAMBLE: usize = 16 << 20;

/// A preamble takes at most this part of a segment.
const PREAMBLE_PART: u64 = 4;

/// How long a follower waits for a preamble of now before it begins with the last one.
const GREETING: Duration = Duration::from_secs(2);

/// What comes to the thread.
#[derive(Debug)]
pub(super) enum Given {
    /// What a sender brought, and when.
    Delivery(UnixMs, Box<Delivery>),
    /// Somebody who wants every block from now on, and when that is; whether a preamble of now is under way.
    Follower(mpsc::Sender<Bytes>, UnixMs, bool),
    /// Nothing more: write what there is.
    End,
}

/// What must be said again at the beginning of each segment.
#[derive(Debug, Default)]
struct Standing {
    targets: Option<Vec<Target>>,
    sources: Option<Vec<TargetSource>>,
    topologies: BTreeMap<Safe, Topology>,
    jobs: BTreeMap<Safe, JobList>,
    /// What was known last, and when.
    preamble: Option<(UnixMs, Preamble)>,
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
            Delivery::Batch(_) | Delivery::Keeping(_) | Delivery::Preamble(_) => {}
        }
    }

    /// Everything that stands, as entries of this instant, with as much of the preamble as there is room for.
    fn write(&self, at: UnixMs, room: usize, out: &mut Vec<u8>) -> u32 {
        let mut entries = 0;
        if let Some((known, preamble)) = &self.preamble
            && let Some(preamble) = preamble.within(room)
        {
            entry::write(&Delivery::Preamble(preamble), *known, out);
            entries += 1;
        }
        let targets = self.targets.clone().map(Delivery::Targets);
        let sources = self.sources.clone().map(Delivery::Sources);
        let topologies = self.topologies.values().cloned().map(Delivery::Topology);
        let jobs = self.jobs.values().cloned().map(Delivery::Jobs);
        let all = targets.into_iter().chain(sources).chain(topologies).chain(jobs);
        for delivery in all {
            entry::write(&delivery, at, out);
            entries += 1;
        }
        entries
    }
}

/// The ring, and when it is tried again after a failure.
#[derive(Debug)]
struct Kept {
    ring: Ring,
    status: Arc<Status>,
    retry: Option<Instant>,
}

/// Entries that make a block.
#[derive(Debug, Default)]
struct Growing {
    payload: Vec<u8>,
    entries: u32,
    span: Option<(UnixMs, UnixMs)>,
}

/// The thread's own.
#[derive(Debug)]
pub(super) struct Writer {
    kept: Option<Kept>,
    period: Duration,
    standing: Standing,
    growing: Growing,
    begun: Instant,
    /// The instant of the newest entry.
    newest: UnixMs,
    /// When a preamble was last written.
    preambled: Option<UnixMs>,
    /// Followers who wait for a preamble of now, with the instant from which they follow, and since when they wait.
    arriving: Vec<(mpsc::Sender<Bytes>, UnixMs, Instant)>,
    followers: Vec<mpsc::Sender<Bytes>>,
    seats: Arc<AtomicUsize>,
}

impl Writer {
    pub(super) fn new(
        keep: Option<(Ring, Arc<Status>)>,
        period: Duration,
        seats: Arc<AtomicUsize>,
    ) -> Self {
        Self {
            kept: keep.map(|(ring, status)| Kept { ring, status, retry: None }),
            period,
            standing: Standing::default(),
            growing: Growing::default(),
            begun: Instant::now(),
            newest: UnixMs::default(),
            preambled: None,
            arriving: Vec::new(),
            followers: Vec::new(),
            seats,
        }
    }

    /// Takes what comes until the end; `waiting` says what of it waits.
    pub(super) fn run(&mut self, given: &Receiver<Given>, waiting: &Waiting) {
        loop {
            let left = BLOCK_TIME.saturating_sub(self.begun.elapsed());
            let wait = if self.growing.entries == 0 { BLOCK_TIME } else { left };
            match given.recv_timeout(wait) {
                Ok(Given::Delivery(at, delivery)) => {
                    match *delivery {
                        Delivery::Batch(_) => drop(waiting.batches.fetch_sub(1, Ordering::Relaxed)),
                        Delivery::Preamble(_) => waiting.preamble.store(false, Ordering::Relaxed),
                        _ => {}
                    }
                    self.take(at, &delivery);
                }
                Ok(Given::Follower(follower, at, false)) => self.greet(follower, at),
                Ok(Given::Follower(follower, at, true)) => {
                    self.arriving.push((follower, at, Instant::now()));
                }
                Err(RecvTimeoutError::Timeout) => self.part(),
                Ok(Given::End) | Err(RecvTimeoutError::Disconnected) => return self.flush(),
            }
            if self.arriving.iter().any(|(_, _, since)| since.elapsed() >= GREETING) {
                self.greet_all();
            }
            let late = self.growing.entries > 0 && self.begun.elapsed() >= BLOCK_TIME;
            if late || self.growing.payload.len() >= BLOCK_SIZE {
                self.flush();
            }
        }
    }

    fn take(&mut self, at: UnixMs, delivery: &Delivery) {
        if let Delivery::Preamble(preamble) = delivery {
            return self.take_preamble(at, preamble);
        }
        self.standing.note(delivery);
        self.append(at, delivery);
    }

    /// Keeps a preamble for the next segment and for those who follow; between two pages it is written now and then.
    fn take_preamble(&mut self, at: UnixMs, preamble: &Preamble) {
        self.standing.preamble = Some((at, preamble.clone()));
        self.greet_all();
        let due = self.preambled.is_none_or(|last| at.since(last) >= PREAMBLE_EVERY);
        if let (true, Some(preamble)) = (due, preamble.within(self.preamble_room())) {
            self.preambled = Some(at);
            self.append(at, &Delivery::Preamble(preamble));
        }
    }

    /// The most bytes that a preamble may have here.
    fn preamble_room(&self) -> usize {
        let segment = self.kept.as_ref().map(|kept| kept.ring.segment_size() / PREAMBLE_PART);
        segment.map_or(MAX_PREAMBLE, |room| MAX_PREAMBLE.min(room as usize))
    }

    fn append(&mut self, at: UnixMs, delivery: &Delivery) {
        self.newest = self.newest.max(at);
        if self.growing.entries == 0 {
            self.begun = Instant::now();
        }
        entry::write(delivery, at, &mut self.growing.payload);
        self.growing.entries += 1;
        let (first, last) = self.growing.span.get_or_insert((at, at));
        (*first, *last) = ((*first).min(at), (*last).max(at));
    }

    /// Begins with all who wait.
    fn greet_all(&mut self) {
        for (follower, at, _) in std::mem::take(&mut self.arriving) {
            self.greet(follower, at);
        }
    }

    /// Begins a segment for one who follows from `at` on, with what stands.
    fn greet(&mut self, follower: mpsc::Sender<Bytes>, at: UnixMs) {
        // Pages are given only while somebody follows: the newest entry may be as old as this process.
        let at = self.newest.max(at);
        let mut begin = segment::header(milliseconds(self.period), at);
        let mut standing = Vec::new();
        let entries = self.standing.write(at, MAX_PREAMBLE, &mut standing);
        match segment::block(&standing, entries, at, at) {
            Ok(block) => begin.extend(block),
            Err(error) => tracing::error!(%error, "what stands cannot be passed on"),
        }
        if follower.try_send(begin.into()).is_ok() {
            return self.followers.push(follower);
        }
        self.seats.fetch_sub(1, Ordering::Relaxed);
    }

    /// Lets those go who have gone.
    fn part(&mut self) {
        self.followers.retain(|follower| {
            let stays = !follower.is_closed();
            if !stays {
                self.seats.fetch_sub(1, Ordering::Relaxed);
            }
            stays
        });
    }

    /// Passes a block on; who is too slow for it is cut off, and begins anew if he wants to.
    fn pass_on(&mut self, block: &[u8]) {
        if self.followers.is_empty() {
            return;
        }
        let block = Bytes::copy_from_slice(block);
        self.followers.retain(|follower| {
            let stays = follower.try_send(block.clone()).is_ok();
            if !stays {
                self.seats.fetch_sub(1, Ordering::Relaxed);
            }
            stays
        });
    }

    /// Ends the block: writes it and passes it on. On a full disk it is dropped and counted, and the next attempt
    /// waits a little.
    fn flush(&mut self) {
        let mut done = std::mem::take(&mut self.growing);
        let Some(span) = done.span else { return };
        if let Some(mut kept) = self.kept.take() {
            self.keep(&mut kept, &done, span);
            self.kept = Some(kept);
        } else if !self.followers.is_empty() {
            match segment::block(&done.payload, done.entries, span.0, span.1) {
                Ok(block) => self.pass_on(&block),
                Err(error) => tracing::error!(%error, "a block cannot be passed on"),
            }
        }
        done.payload.clear();
        self.growing.payload = done.payload;
    }

    fn keep(&mut self, kept: &mut Kept, done: &Growing, span: (UnixMs, UnixMs)) {
        let given = u64::from(done.entries);
        let resting = kept.retry.is_some_and(|at| Instant::now() < at);
        if resting && self.followers.is_empty() {
            kept.status.missed.fetch_add(given, Ordering::Relaxed);
            return;
        }
        let mut written = self.write(kept, done, span, resting);
        let full = |error: &io::Error| error.kind() == io::ErrorKind::FileTooLarge;
        if written.as_ref().is_err_and(full) {
            // Another segment may still have room.
            written = self.write(kept, done, span, resting);
        }
        match written {
            Ok(None) => drop(kept.status.missed.fetch_add(given, Ordering::Relaxed)),
            Ok(Some(bytes)) => {
                kept.retry = None;
                kept.status.go_on();
                kept.status.written.fetch_add(given, Ordering::Relaxed);
                kept.status.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            Err(error) => {
                kept.retry = Some(Instant::now() + RETRY);
                kept.status.missed.fetch_add(given, Ordering::Relaxed);
                kept.status.stop(&error, span.1);
            }
        }
    }

    /// Makes the block, passes it on and writes it, unless the disk is resting; says how many bytes it has on disk.
    fn write(
        &mut self,
        kept: &mut Kept,
        done: &Growing,
        (first, last): (UnixMs, UnixMs),
        resting: bool,
    ) -> io::Result<Option<u64>> {
        let begin = kept.ring.begins(first);
        let room = MAX_PREAMBLE.min((kept.ring.segment_size() / PREAMBLE_PART) as usize);
        let plain = || segment::block(&done.payload, done.entries, first, last);
        let block = if begin && !resting {
            let mut whole = Vec::with_capacity(done.payload.len());
            let told = self.standing.write(first, room, &mut whole);
            whole.extend_from_slice(&done.payload);
            segment::block(&whole, told + done.entries, first, last)?
        } else {
            plain()?
        };
        self.pass_on(&block);
        if resting {
            return Ok(None);
        }
        kept.ring.write(&block, first, begin)?;
        Ok(Some(block.len() as u64))
    }
}

/// A span as headers have it.
pub(super) fn milliseconds(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of two followers reads nothing: it is cut off and its place is free; the other one gets every block.
    #[test]
    fn follower_that_is_too_slow_is_cut_off_and_holds_up_nobody() {
        let seats = Arc::new(AtomicUsize::new(2));
        let mut writer = Writer::new(None, Duration::from_secs(1), seats.clone());
        let (slow, mut unread) = mpsc::channel(4);
        let (quick, mut read) = mpsc::channel(4);
        writer.greet(slow, UnixMs(1));
        writer.greet(quick, UnixMs(1));
        let blocks = 100_u8;
        let mut came = vec![read.try_recv().unwrap()];
        for nth in 0..blocks {
            writer.pass_on(&[nth]);
            came.extend(read.try_recv());
        }
        assert_eq!(seats.load(Ordering::Relaxed), 1);
        assert_eq!(came.len(), 1 + usize::from(blocks));
        assert!((0..blocks).all(|nth| *came[1 + usize::from(nth)] == [nth]), "in order");
        let kept = std::iter::from_fn(|| unread.try_recv().ok()).count();
        assert_eq!(kept, 4, "what it was given before");
        assert!(unread.is_closed(), "its stream ends, and it can begin anew");
    }
}
