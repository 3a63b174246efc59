//! The recording of an aggregator, and what must hold of it: what was written is read back, in order and unchanged.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use gaunt::command::engine_preamble::{SerializedBaselines, WAIT, resume_engine};
use gaunt_api::{Answer, Question};
use gaunt_engine::{
    Engine, EngineOptions,
    record::{
        RecordError, RecordOptions, Recorder, RecorderFollowHandle, RecorderStatus, Recording,
        RecordingWriter, decode_segment,
    },
};
use gaunt_schema::{Batch, Delivery, RecordingPreamble, UnixMs, text};
use tokio::task::JoinSet;

use crate::{
    seeded_random::{SeededRandom, continue_hash},
    simulated_aggregator::PERIOD,
    simulated_disk::SimulatedDisk,
    simulated_follower::SimulatedFollower,
};

/// Folder of the recording.
const FOLDER: &str = "recording";

/// The size of a recording whose segments are never removed, and of one whose oldest are.
const SIZES: [u64; 2] = [64 << 20, 64 << 10];

/// A segment may have this many bytes too much: it ends after the block that exceeds its size.
const BLOCK_ROOM: u64 = 4 << 10;

/// Bytes of a segment's header.
const SEGMENT_HEADER: usize = 28;

/// Entries that may wait to be written besides those given lately: those of a moment in which all targets answer.
const MAX_PENDING: usize = 64;

/// Seconds after which the state of the engine is written as an entry when the recorder gets it: a minute after the first entry
/// of its segment, which may be some seconds older than the segment.
const ENTRY_AFTER: u32 = 90;

/// Followers at once, of which the recorder accepts four.
const FOLLOWERS: usize = 5;

/// The part of a recording that is replayed at the end.
const REPLAYED: Duration = Duration::from_secs(30);

/// The recorder of one process.
pub(crate) struct SimulatedRecorder {
    status: Arc<RecorderStatus>,
    writer: RecordingWriter,
    /// What was given and is not written yet.
    pending: VecDeque<u64>,
    /// Entries given.
    given: u64,
    /// The same at the last writes: for so many a segment may wait for its preamble, and two seconds more for its block.
    given_before: VecDeque<u64>,
    /// The newest segment, and the operations of the disk that had failed when the process began.
    newest: Option<PathBuf>,
    failures: u64,
    follow: RecorderFollowHandle,
    followers: Vec<SimulatedFollower>,
    /// Whether the recorder has asked for the state of the engine, and the task that hears of it.
    is_asked: Arc<AtomicBool>,
    _asks: JoinSet<()>,
    baselines: SerializedBaselines,
    /// Seconds since the state of the engine was last written, at the start of a segment or as an entry.
    preambled_for: Option<u32>,
    /// The newest segment when that was noted.
    begun: Option<PathBuf>,
    random: SeededRandom,
}

/// What was given to the recorders of all processes of a run, and what is safe.
#[derive(Debug)]
pub(crate) struct RecordingModel {
    max_size: u64,
    /// The batches given, in order.
    given: Vec<u64>,
    /// The batches that were written.
    written: BTreeSet<u64>,
    /// Segments that are complete and were synchronised, with the number of their blocks.
    complete: BTreeMap<PathBuf, usize>,
    /// Whether bits flipped.
    is_damaged: bool,
}

/// Identifies a delivery; 0 for one that is not the result of a scrape.
pub(crate) fn delivery_key(delivery: &Delivery) -> u64 {
    let Delivery::Batch(Batch { target, at, outcome, .. }) = delivery else { return 0 };
    let mut content = format!("{} {} ", target.0, at.0);
    match outcome {
        Ok(page) => text::write_text(&page.report, &mut content),
        // It can only fail by a lack of memory.
        Err(failure) => drop(write!(content, "{failure:?}")),
    }
    continue_hash(0xcbf2_9ce4_8422_2325, content.as_bytes())
}

impl RecordingModel {
    /// A recording that removes nothing, or one that is small.
    pub(crate) fn new(is_small: bool) -> Self {
        Self {
            max_size: SIZES[usize::from(is_small)],
            given: Vec::new(),
            written: BTreeSet::new(),
            complete: BTreeMap::new(),
            is_damaged: false,
        }
    }

    /// Starts to record; an error if the disk fails.
    pub(crate) fn start_recorder(
        &self,
        disk: &SimulatedDisk,
        random: SeededRandom,
    ) -> Result<(Recorder, SimulatedRecorder), RecordError> {
        let options = RecordOptions {
            folder: FOLDER.into(),
            max_size: self.max_size,
            // A clock that is set to 1970 and back removes nothing.
            max_age: Duration::from_hours(24 * 365 * 100),
            period: PERIOD,
        };
        let (recorder, writer) = Recorder::start_stepped(options, Arc::new(disk.clone()))?;
        let status = recorder.disk_status().cloned().unwrap_or_default();
        let follow = recorder.follow_handle();
        follow.announce_preambles(WAIT);
        let (is_asked, mut asks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        let (asked, hears) = (is_asked.clone(), follow.clone());
        asks.spawn(async move {
            loop {
                hears.asked().await;
                asked.store(true, Ordering::Relaxed);
            }
        });
        let simulated = SimulatedRecorder {
            status,
            writer,
            pending: VecDeque::new(),
            given: 0,
            given_before: VecDeque::new(),
            newest: None,
            failures: disk.failure_count(),
            follow,
            followers: Vec::new(),
            is_asked,
            _asks: asks,
            baselines: SerializedBaselines::default(),
            preambled_for: None,
            begun: disk.files_of(FOLDER).0.pop(),
            random,
        };
        Ok((recorder, simulated))
    }

    /// A delivery passed the recorder.
    pub(crate) fn note_given(&mut self, recorder: &mut SimulatedRecorder, delivery: &Delivery) {
        if matches!(delivery, Delivery::RecordingStatus(_)) {
            return;
        }
        let key = delivery_key(delivery);
        recorder.pending.push_back(key);
        recorder.given += 1;
        if key != 0 {
            self.given.push(key);
        }
    }

    /// Lets the recorder write, and checks that every entry is written, or counted as missing.
    pub(crate) fn write(
        &mut self,
        recorder: &mut SimulatedRecorder,
        disk: &SimulatedDisk,
    ) -> Vec<String> {
        let mut broken = Vec::new();
        let status = recorder.status.clone();
        let counts = || {
            let (written, missed) =
                (status.written.load(Ordering::Relaxed), status.missed.load(Ordering::Relaxed));
            (written, missed, status.behind.load(Ordering::Relaxed))
        };
        let before = counts();
        recorder.writer.run_once();
        let after = counts();
        let (written, missed) = (after.0 - before.0, after.1 - before.1);
        for _ in 0..written + missed {
            match recorder.pending.pop_front() {
                // What was written together with something that was not is not known.
                Some(key) if missed == 0 && key != 0 => drop(self.written.insert(key)),
                Some(_) => {}
                None => broken.push("the recorder counts more than it was given".to_owned()),
            }
        }
        let counted = after.0 + after.1 + after.2 + recorder.pending.len() as u64;
        if counted != recorder.given {
            broken.push(format!("{counted} entries are recorded or missed of {}", recorder.given));
        }
        recorder.given_before.push_back(recorder.given);
        if recorder.given_before.len() > WAIT.as_secs() as usize + 2 {
            recorder.given_before.pop_front();
        }
        let lately = (recorder.given - recorder.given_before[0]) as usize;
        if recorder.pending.len() > MAX_PENDING + lately {
            broken.push(format!("{} entries wait to be recorded", recorder.pending.len()));
        }
        broken.extend(self.step_followers(recorder));
        let (segments, bytes) = disk.files_of(FOLDER);
        if after.0 > 0 && bytes > self.max_size + BLOCK_ROOM {
            broken.push(format!("the recording has {bytes} bytes of {}", self.max_size));
        }
        self.complete.retain(|path, _| segments.contains(path));
        recorder.note_newest(segments.last());
        // The newest segment, be it of this process or of the one before, has a successor: it is complete, and safe.
        let newest = segments.last().cloned();
        let (done, failures) =
            (std::mem::replace(&mut recorder.newest, newest.clone()), disk.failure_count());
        if let Some(done) = done.filter(|done| Some(done) != newest.as_ref())
            && failures == recorder.failures
            && disk.hung_for().is_none()
            && segments.contains(&done)
        {
            self.complete.insert(done.clone(), block_count(disk, &done));
        }
        broken
    }

    /// Lets the followers read: what arrives was given, in this order.
    fn step_followers(&self, recorder: &mut SimulatedRecorder) -> Vec<String> {
        let mut broken = Vec::new();
        recorder.followers.retain_mut(|follower| match follower.step() {
            Ok(goes_on) => goes_on,
            Err(why) => {
                broken.push(why);
                false
            }
        });
        for follower in &mut recorder.followers {
            for key in follower.read.drain(..) {
                let mut later = self.given[follower.found..].iter();
                match later.position(|other| *other == key) {
                    Some(before) => follower.found += before + 1,
                    None => broken.push("what a follower reads was not given like this".to_owned()),
                }
            }
        }
        broken
    }

    /// A bit flips in a segment that was complete. Returns what does not hold: a block is the unit of loss, and it is told.
    pub(crate) fn flip_bit(
        &mut self,
        disk: &SimulatedDisk,
        random: &mut SeededRandom,
    ) -> Vec<String> {
        let chosen = random.below(self.complete.len().max(1) as u64) as usize;
        let Some((path, blocks)) = self.complete.iter().nth(chosen) else { return Vec::new() };
        let (path, blocks) = (path.clone(), *blocks);
        self.complete.remove(&path);
        self.written.clear();
        self.is_damaged = true;
        let in_header = disk.flip_bit(&path, random) < SEGMENT_HEADER;
        let left = block_count(disk, &path);
        if left + 1 < blocks && !in_header {
            return vec![format!("a bit flipped: {left} of {blocks} blocks are left")];
        }
        match Recording::open_on_disk(Arc::new(disk.clone()), Path::new(FOLDER)) {
            Ok(read) if left < blocks && read.damaged_segments().is_empty() => {
                let unfinished = read.unfinished_bytes();
                vec![format!("a bit flipped, and nothing says so but {unfinished} bytes")]
            }
            Ok(_) | Err(RecordError::Empty(_) | RecordError::Damaged(_)) => Vec::new(),
            Err(error) => vec![format!("a bit flipped: {error}")],
        }
    }

    /// Replays the end of the recording: every node must be there.
    pub(crate) fn check_replay(disk: &SimulatedDisk, nodes: usize) -> Result<(), String> {
        let plain = |error: RecordError| format!("the recording cannot be replayed: {error}");
        let recording =
            Recording::open_on_disk(Arc::new(disk.clone()), Path::new(FOLDER)).map_err(plain)?;
        let (first, last) = recording.time_span();
        let from = first.max(last - REPLAYED);
        let options = EngineOptions { period: PERIOD, ..EngineOptions::default() };
        let engine = resume_engine(&recording, from, options);
        let mut engine = engine.map_err(|error| format!("no replay: {error}"))?;
        let mut tick = from;
        for delivery in recording.deliveries_from(from) {
            let (at, delivery) = delivery.map_err(plain)?;
            while tick + Duration::from_secs(1) <= at {
                tick = tick + Duration::from_secs(1);
                engine.run_tick(tick);
            }
            engine.ingest_delivery(delivery);
        }
        engine.run_tick(last);
        let Answer::Overview(overview) = engine.answer_question(&Question::Overview) else {
            return Err("a replay has no overview".to_owned());
        };
        let live = overview.nodes.live as usize;
        if live == nodes { Ok(()) } else { Err(format!("{live} of {nodes} nodes are replayed")) }
    }

    /// Checks what can be read after the process ended; `power` if the power was lost, too.
    pub(crate) fn check_read(&self, disk: &SimulatedDisk, power: bool) -> Vec<String> {
        let mut broken = Vec::new();
        let recording = match Recording::open_on_disk(Arc::new(disk.clone()), Path::new(FOLDER)) {
            Ok(recording) => recording,
            Err(RecordError::Empty(_)) if self.written.is_empty() || power => return broken,
            // The open segment is safe from a kill only, and here it is the first one.
            Err(RecordError::Damaged(_)) if power && self.complete.is_empty() => return broken,
            Err(error) => return vec![format!("the recording cannot be read: {error}")],
        };
        if !power && !self.is_damaged && !recording.damaged_segments().is_empty() {
            broken.push(format!("segments are damaged: {:?}", recording.damaged_segments()));
        }
        let mut read = Vec::new();
        for delivery in recording.deliveries_from(UnixMs(i64::MIN)) {
            match delivery {
                Ok((_, delivery)) => read.push(delivery_key(&delivery)),
                Err(error) => broken.push(format!("the recording cannot be read: {error}")),
            }
        }
        read.retain(|key| *key != 0);
        let mut given = self.given.iter();
        if !read.iter().all(|key| given.any(|other| other == key)) {
            broken.push("what is read from the recording was not given like this".to_owned());
        }
        if !power {
            // Only the oldest may be missing, and only if there is no room.
            let read: BTreeSet<u64> = read.into_iter().collect();
            let mut written = self.given.iter().filter(|key| self.written.contains(key));
            let is_oldest_kept = self.max_size == SIZES[0];
            let missing = written.by_ref().take_while(|key| !read.contains(key)).count();
            if written.any(|key| !read.contains(key)) || (is_oldest_kept && missing > 0) {
                broken.push("what was recorded is not read back".to_owned());
            }
        }
        for (path, blocks) in &self.complete {
            let left = block_count(disk, path);
            if left < *blocks {
                broken.push(format!("{left} of {blocks} blocks are left of {}", path.display()));
            }
        }
        broken
    }

    /// The power was lost: what was not synchronised may be gone.
    pub(crate) fn note_power_cut(&mut self, disk: &SimulatedDisk) {
        self.written.clear();
        let (segments, _) = disk.files_of(FOLDER);
        self.complete.retain(|path, _| segments.contains(path));
    }
}

impl SimulatedRecorder {
    /// A second: followers come, and the recorder gets the state of the engine that it asked for, late, or none.
    pub(crate) fn step_engine(
        &mut self,
        engine: &Engine,
        disk: &SimulatedDisk,
        since: Option<UnixMs>,
        now: UnixMs,
    ) {
        if self.followers.len() < FOLLOWERS && self.random.once_in(20) {
            let random = SeededRandom::new(self.random.below(u64::MAX));
            self.followers.extend(SimulatedFollower::start(&self.follow, now, random));
        }
        let is_asked = self.is_asked.load(Ordering::Relaxed);
        self.preambled_for = self.preambled_for.map(|seconds| seconds + 1);
        // Once a write has failed, it is not known whether a segment has its preamble.
        let is_certain = disk.failure_count() == self.failures && disk.hung_for().is_none();
        let is_due = self.preambled_for.is_some_and(|seconds| seconds >= ENTRY_AFTER);
        if is_certain && is_due && !is_asked {
            self.send_preamble(engine, since, now);
        }
        if !is_asked || self.random.once_in(3) {
            return;
        }
        let Some(state) = engine.persisted_state() else { return };
        self.is_asked.store(false, Ordering::Relaxed);
        let preamble = self.baselines.build_preamble(&state, since).ok();
        let preamble = preamble.filter(|_| !self.random.once_in(6)).map(|preamble| {
            let room = self.follow.preamble_room().saturating_sub(preamble.len());
            RecordingPreamble { past: engine.recorded_past(room).to_bytes().into(), ..preamble }
        });
        self.follow.answer_preamble(now, preamble);
    }

    /// A new segment begins with the state of the engine.
    fn note_newest(&mut self, newest: Option<&PathBuf>) {
        if newest.is_some() && newest != self.begun.as_ref() {
            (self.preambled_for, self.begun) = (Some(0), newest.cloned());
        }
    }

    /// Sends the state of the engine that nobody asked for: after so long it is an entry.
    fn send_preamble(&mut self, engine: &Engine, since: Option<UnixMs>, now: UnixMs) {
        let Some(state) = engine.persisted_state() else { return };
        let Ok(preamble) = self.baselines.build_preamble(&state, since) else { return };
        let room = self.follow.preamble_room();
        if self.follow.is_preamble_wanted() && preamble.fit_within(room).is_some() {
            self.preambled_for = Some(0);
            self.pending.push_back(0);
            self.given += 1;
            self.follow.send_preamble(now, preamble);
        }
    }
}

/// The number of whole blocks of a segment.
fn block_count(disk: &SimulatedDisk, path: &Path) -> usize {
    let content = disk.content_of(path);
    decode_segment(&content).map_or(0, |segment| segment.blocks.len())
}
