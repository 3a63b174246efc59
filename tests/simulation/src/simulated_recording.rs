//! The recording of an aggregator, and what must hold of it: what was written is read back, in order and unchanged.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use gaunt_engine::record::{
    RecordError, RecordOptions, Recorder, RecorderStatus, Recording, RecordingWriter,
    decode_segment,
};
use gaunt_schema::{Batch, Delivery, UnixMs, text};

use crate::{simulated_aggregator::PERIOD, simulated_disk::SimulatedDisk};

/// Folder of the recording.
const FOLDER: &str = "recording";

/// The size of a recording whose segments are never removed, and of one whose oldest are.
const SIZES: [u64; 2] = [64 << 20, 64 << 10];

/// A segment may have this many bytes too much: it ends after the block that exceeds its size.
const BLOCK_ROOM: u64 = 4 << 10;

/// Entries that may wait to be written: those of two seconds, and of a moment in which all targets answer.
const MAX_PENDING: usize = 64;

/// The recorder of one process.
pub(crate) struct SimulatedRecorder {
    status: Arc<RecorderStatus>,
    writer: RecordingWriter,
    /// What was given and is not written yet.
    pending: VecDeque<u64>,
    /// Entries given.
    given: u64,
    /// The newest segment, and the operations of the disk that had failed when the process began.
    newest: Option<PathBuf>,
    failures: u64,
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
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    content.bytes().fold(0xcbf2_9ce4_8422_2325, hash)
}

impl RecordingModel {
    /// A recording that removes nothing, or one that is small.
    pub(crate) fn new(is_small: bool) -> Self {
        Self {
            max_size: SIZES[usize::from(is_small)],
            given: Vec::new(),
            written: BTreeSet::new(),
            complete: BTreeMap::new(),
        }
    }

    /// Starts to record; an error if the disk fails.
    pub(crate) fn start_recorder(
        &self,
        disk: &SimulatedDisk,
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
        let simulated = SimulatedRecorder {
            status,
            writer,
            pending: VecDeque::new(),
            given: 0,
            newest: None,
            failures: disk.failure_count(),
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
        if recorder.pending.len() > MAX_PENDING {
            broken.push(format!("{} entries wait to be recorded", recorder.pending.len()));
        }
        let (segments, bytes) = disk.files_of(FOLDER);
        if after.0 > 0 && bytes > self.max_size + BLOCK_ROOM {
            broken.push(format!("the recording has {bytes} bytes of {}", self.max_size));
        }
        self.complete.retain(|path, _| segments.contains(path));
        // The newest segment, be it of this process or of the one before, has a successor: it is complete, and safe.
        let newest = segments.last().cloned();
        let (done, failures) =
            (std::mem::replace(&mut recorder.newest, newest.clone()), disk.failure_count());
        if let Some(done) = done.filter(|done| Some(done) != newest.as_ref())
            && failures == recorder.failures
            && segments.contains(&done)
        {
            self.complete.insert(done.clone(), block_count(disk, &done));
        }
        broken
    }

    /// Checks what can be read after the process ended; `power` if the power was lost, too.
    pub(crate) fn check_read(&self, disk: &SimulatedDisk, power: bool) -> Vec<String> {
        let mut broken = Vec::new();
        let recording = match Recording::open_on_disk(Arc::new(disk.clone()), Path::new(FOLDER)) {
            Ok(recording) => recording,
            Err(RecordError::Empty(_)) if self.written.is_empty() || power => return broken,
            Err(error) => return vec![format!("the recording cannot be read: {error}")],
        };
        if !power && !recording.damaged_segments().is_empty() {
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

/// The number of whole blocks of a segment.
fn block_count(disk: &SimulatedDisk, path: &Path) -> usize {
    let content = disk.content_of(path);
    decode_segment(&content).map_or(0, |segment| segment.blocks.len())
}
