//! Segment writer: the recorder's thread, with the growing block, the ring it is written to, and the followers.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use gaunt_schema::{Delivery, RecordingPreamble, UnixMs};
use hyper::body::Bytes;
use tokio::{sync::mpsc, time::Instant};

use super::{
    entry_codec,
    recorder_status::RecorderStatus,
    segment,
    segment_ring::SegmentRing,
    segment_start::{Preambles, Standing, has_waited, preamble_room},
};

/// A block is written when it has this size before compression.
const BLOCK_SIZE: usize = 1 << 20;

/// A block is written at the latest this long after its first entry: the most that a kill can lose.
const BLOCK_TIME: Duration = Duration::from_secs(1);

/// Time between two attempts to write to a full disk.
const RETRY: Duration = Duration::from_secs(5);

/// Time between two preambles within a segment: what a reader that starts there must replay at most.
const PREAMBLE_EVERY: Duration = Duration::from_mins(1);

/// Counters of messages queued for the thread.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Batches.
    pub(super) batches: AtomicUsize,
    /// Whether a preamble is queued: one is enough, because the next one replaces it.
    pub(super) preamble: AtomicBool,
}

/// Messages to the thread.
#[derive(Debug)]
pub(super) enum WriterMessage {
    /// A delivery and its time.
    Delivery(UnixMs, Box<Delivery>),
    /// The requested preamble and its time; none if it is unavailable.
    Answer(UnixMs, Option<Box<RecordingPreamble>>),
    /// A follower of every block from this time on; whether a current preamble is on its way.
    Follower(mpsc::Sender<Bytes>, UnixMs, bool),
    /// End: write what is pending.
    End,
}

/// The ring, and the time of the next attempt after a failure.
#[derive(Debug)]
struct RingOutput {
    ring: SegmentRing,
    status: Arc<RecorderStatus>,
    retry: Option<Instant>,
}

/// Entries of the next block.
#[derive(Debug, Default)]
struct PendingBlock {
    payload: Vec<u8>,
    entries: u32,
    span: Option<(UnixMs, UnixMs)>,
}

/// State of the thread.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    kept: Option<RingOutput>,
    period: Duration,
    standing: Standing,
    growing: PendingBlock,
    begun: Instant,
    /// Time of the newest entry.
    newest: UnixMs,
    preambles: Preambles,
    /// When a preamble was last written.
    preambled: Option<UnixMs>,
    /// Followers that wait for a current preamble, with the time from which they follow, and the start of their wait.
    arriving: Vec<(mpsc::Sender<Bytes>, UnixMs, Instant)>,
    followers: Vec<mpsc::Sender<Bytes>>,
    follower_count: Arc<AtomicUsize>,
}

impl SegmentWriter {
    pub(super) fn new(
        keep: Option<(SegmentRing, Arc<RecorderStatus>)>,
        period: Duration,
        follower_count: Arc<AtomicUsize>,
        preambles: Preambles,
    ) -> Self {
        Self {
            kept: keep.map(|(ring, status)| RingOutput { ring, status, retry: None }),
            period,
            standing: Standing::default(),
            growing: PendingBlock::default(),
            begun: Instant::now(),
            newest: UnixMs::default(),
            preambles,
            preambled: None,
            arriving: Vec::new(),
            followers: Vec::new(),
            follower_count,
        }
    }

    /// Handles messages until the end; `waiting` counts the queued ones.
    pub(super) fn run(&mut self, given: &Receiver<WriterMessage>, waiting: &Waiting) {
        loop {
            self.record_alive();
            let left = BLOCK_TIME.saturating_sub(self.begun.elapsed());
            let wait = if self.growing.entries == 0 { BLOCK_TIME } else { left };
            // A block that waits for the preamble of its segment is checked again when it arrives or times out.
            let wait = self.preambles.left().unwrap_or(wait);
            match given.recv_timeout(wait) {
                Ok(WriterMessage::End) | Err(RecvTimeoutError::Disconnected) => {
                    return self.end_block();
                }
                Ok(message) => self.handle_message(message, waiting),
                Err(RecvTimeoutError::Timeout) => self.drop_closed_followers(),
            }
            self.flush_due();
        }
    }

    /// Handles the messages that are queued, and what is due now.
    pub(super) fn run_once(&mut self, given: &Receiver<WriterMessage>, waiting: &Waiting) {
        self.record_alive();
        while let Ok(message) = given.try_recv() {
            self.handle_message(message, waiting);
            self.flush_due();
        }
        self.drop_closed_followers();
        self.flush_due();
    }

    fn record_alive(&self) {
        if let Some(kept) = &self.kept {
            kept.status.record_alive();
        }
    }

    fn handle_message(&mut self, message: WriterMessage, waiting: &Waiting) {
        match message {
            WriterMessage::Delivery(at, delivery) => {
                match *delivery {
                    Delivery::Batch(_) => drop(waiting.batches.fetch_sub(1, Ordering::Relaxed)),
                    Delivery::Preamble(_) => waiting.preamble.store(false, Ordering::Relaxed),
                    _ => {}
                }
                self.handle_delivery(at, &delivery);
            }
            WriterMessage::Answer(at, preamble) => self.take_answer(at, preamble),
            WriterMessage::Follower(follower, at, false) => self.start_follower(follower, at),
            WriterMessage::Follower(follower, at, true) => {
                self.arriving.push((follower, at, Instant::now()));
            }
            WriterMessage::End => self.end_block(),
        }
    }

    /// Begins what has waited long enough, and ends a block that is old or large.
    fn flush_due(&mut self) {
        if self.arriving.iter().any(|(_, _, since)| has_waited(*since)) {
            self.start_waiting_followers();
        }
        let late = self.growing.entries > 0 && self.begun.elapsed() >= BLOCK_TIME;
        if late || self.growing.payload.len() >= BLOCK_SIZE {
            self.flush_block();
        }
    }

    fn handle_delivery(&mut self, at: UnixMs, delivery: &Delivery) {
        if let Delivery::Preamble(preamble) = delivery {
            return self.handle_preamble(at, preamble);
        }
        self.standing.note(delivery);
        self.append_entry(at, delivery);
    }

    /// Stores a preamble for the next segment; between two pages it is also written periodically, without history
    /// points, which were written before it.
    fn handle_preamble(&mut self, at: UnixMs, preamble: &RecordingPreamble) {
        self.standing.note_preamble(at, preamble.clone());
        let due = self.preambled.is_none_or(|last| at.duration_since(last) >= PREAMBLE_EVERY);
        let preamble = preamble.without_past().fit_within(self.max_preamble_bytes());
        if let (true, Some(preamble)) = (due, preamble) {
            self.preambled = Some(at);
            self.append_entry(at, &Delivery::Preamble(preamble));
        }
    }

    /// Begins the waiting segment with the current state, and the new followers.
    fn take_answer(&mut self, at: UnixMs, preamble: Option<Box<RecordingPreamble>>) {
        if let Some(preamble) = preamble {
            self.standing.note_preamble(at, *preamble);
        }
        self.start_waiting_followers();
        if self.preambles.answer() {
            self.flush_block();
        }
    }

    /// The most bytes of a preamble here.
    fn max_preamble_bytes(&self) -> usize {
        preamble_room(self.kept.as_ref().map(|kept| &kept.ring))
    }

    /// Whether the block begins a segment and waits for its preamble: a segment contains the state at its start, not an
    /// earlier one.
    fn waits_for_preamble(&mut self) -> bool {
        let (Some(kept), Some((first, _))) = (&self.kept, self.growing.span) else { return false };
        let rests = kept.retry.is_some_and(|at| Instant::now() < at);
        if rests || !kept.ring.needs_new_segment(first) || self.standing.knows_now(first) {
            self.preambles.reset();
            return false;
        }
        self.preambles.keep_waiting(self.growing.payload.len())
    }

    fn append_entry(&mut self, at: UnixMs, delivery: &Delivery) {
        self.newest = self.newest.max(at);
        if self.growing.entries == 0 {
            self.begun = Instant::now();
        }
        entry_codec::encode_delivery(delivery, at, &mut self.growing.payload);
        self.growing.entries += 1;
        let (first, last) = self.growing.span.get_or_insert((at, at));
        (*first, *last) = ((*first).min(at), (*last).max(at));
    }

    /// Starts all waiting followers.
    fn start_waiting_followers(&mut self) {
        for (follower, at, _) in std::mem::take(&mut self.arriving) {
            self.start_follower(follower, at);
        }
    }

    /// Starts a segment for a follower from `at` on, with the standing deliveries.
    fn start_follower(&mut self, follower: mpsc::Sender<Bytes>, at: UnixMs) {
        // Pages arrive only while there is a follower: the newest entry may be as old as this process.
        let at = self.newest.max(at);
        let mut begin = segment::encode_header(segment::to_header_millis(self.period), at);
        let mut standing = Vec::new();
        let entries = self.standing.write(at, &mut standing);
        let max_preamble = preamble_room(None);
        let preamble = self.standing.preamble_block((at, at), max_preamble);
        match segment::encode_block(&standing, entries, at, at)
            .and_then(|block| Ok((block, preamble?)))
        {
            Ok((block, preamble)) => begin.extend([block, preamble].concat()),
            Err(error) => tracing::error!(%error, "cannot forward standing deliveries"),
        }
        if follower.try_send(begin.into()).is_ok() {
            return self.followers.push(follower);
        }
        self.follower_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Removes followers that disconnected.
    fn drop_closed_followers(&mut self) {
        self.followers.retain(|follower| {
            let stays = !follower.is_closed();
            if !stays {
                self.follower_count.fetch_sub(1, Ordering::Relaxed);
            }
            stays
        });
    }

    /// Forwards a block; a follower that is too slow is disconnected and may reconnect.
    fn forward_block(&mut self, block: &[u8]) {
        if self.followers.is_empty() {
            return;
        }
        let block = Bytes::copy_from_slice(block);
        self.followers.retain(|follower| {
            let stays = follower.try_send(block.clone()).is_ok();
            if !stays {
                self.follower_count.fetch_sub(1, Ordering::Relaxed);
            }
            stays
        });
    }

    /// Ends the block, unless it waits for the preamble of its segment.
    fn flush_block(&mut self) {
        if !self.waits_for_preamble() {
            self.end_block();
        }
    }

    /// Ends the block: writes and forwards it. On a full disk it is dropped and counted, and the next attempt is
    /// delayed.
    fn end_block(&mut self) {
        let mut done = std::mem::take(&mut self.growing);
        let Some(span) = done.span else { return };
        if let Some(mut kept) = self.kept.take() {
            self.store_block(&mut kept, &done, span);
            self.kept = Some(kept);
        } else if !self.followers.is_empty() {
            match segment::encode_block(&done.payload, done.entries, span.0, span.1) {
                Ok(block) => self.forward_block(&block),
                Err(error) => tracing::error!(%error, "cannot forward a block"),
            }
        }
        done.payload.clear();
        self.growing.payload = done.payload;
    }

    fn store_block(&mut self, kept: &mut RingOutput, done: &PendingBlock, span: (UnixMs, UnixMs)) {
        let given = u64::from(done.entries);
        let resting = kept.retry.is_some_and(|at| Instant::now() < at);
        if resting && self.followers.is_empty() {
            kept.status.missed.fetch_add(given, Ordering::Relaxed);
            return;
        }
        let mut written = self.write_block(kept, done, span, resting);
        let full = |error: &io::Error| error.kind() == io::ErrorKind::FileTooLarge;
        if written.as_ref().is_err_and(full) {
            // Another segment may still have space.
            written = self.write_block(kept, done, span, resting);
        }
        match written {
            Ok(None) => drop(kept.status.missed.fetch_add(given, Ordering::Relaxed)),
            Ok(Some(bytes)) => {
                kept.retry = None;
                kept.status.record_resume();
                kept.status.written.fetch_add(given, Ordering::Relaxed);
                kept.status.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            Err(error) => {
                kept.retry = Some(Instant::now() + RETRY);
                kept.status.missed.fetch_add(given, Ordering::Relaxed);
                kept.status.record_stop(&error, span.1);
            }
        }
    }

    /// Encodes the block, forwards it and writes it, unless the disk is backed off; returns its bytes on disk.
    fn write_block(
        &mut self,
        kept: &mut RingOutput,
        done: &PendingBlock,
        (first, last): (UnixMs, UnixMs),
        resting: bool,
    ) -> io::Result<Option<u64>> {
        let begin = kept.ring.needs_new_segment(first);
        if resting || !begin {
            let block = segment::encode_block(&done.payload, done.entries, first, last)?;
            self.forward_block(&block);
            if !resting {
                kept.ring.write_block(&block, first, begin)?;
            }
            return Ok((!resting).then_some(block.len() as u64));
        }
        let mut whole = Vec::with_capacity(done.payload.len());
        let standing_entries = self.standing.write(first, &mut whole);
        whole.extend_from_slice(&done.payload);
        let mut block =
            segment::encode_block(&whole, standing_entries + done.entries, first, last)?;
        self.forward_block(&block);
        block.extend(self.standing.preamble_block((first, last), preamble_room(Some(&kept.ring)))?);
        kept.ring.write_block(&block, first, begin)?;
        self.preambles.reset();
        self.preambled = Some(first);
        self.standing.drop_past();
        Ok(Some(block.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of two followers reads nothing: it is disconnected and its slot is freed; the other one gets every block.
    #[test]
    fn follower_that_is_too_slow_is_disconnected_and_delays_nothing() {
        let follower_count = Arc::new(AtomicUsize::new(2));
        let mut writer = SegmentWriter::new(
            None,
            Duration::from_secs(1),
            follower_count.clone(),
            Preambles::new(Arc::default(), Arc::default()),
        );
        let (slow, mut unread) = mpsc::channel(4);
        let (quick, mut read) = mpsc::channel(4);
        writer.start_follower(slow, UnixMs(1));
        writer.start_follower(quick, UnixMs(1));
        let blocks = 100_u8;
        let mut came = vec![read.try_recv().unwrap()];
        for nth in 0..blocks {
            writer.forward_block(&[nth]);
            came.extend(read.try_recv());
        }
        assert_eq!(follower_count.load(Ordering::Relaxed), 1);
        assert_eq!(came.len(), 1 + usize::from(blocks));
        assert!((0..blocks).all(|nth| *came[1 + usize::from(nth)] == [nth]), "in order");
        let kept = std::iter::from_fn(|| unread.try_recv().ok()).count();
        assert_eq!(kept, 4, "what it was given before");
        assert!(unread.is_closed(), "its stream ends, and it can begin anew");
    }
}
