//! Recording: everything that senders deliver, stored in a bounded ring of segments on disk, and read back from there.
//!
//! A directory holds segments, `START.gaunt` by the time of their first delivery in milliseconds. A segment begins with
//! a header (magic, version, period, start, checksum) followed by blocks, each with a header (magic, sizes, number of
//! entries, first and last time, checksum over all of it) and a payload compressed with zstd. A block is the unit of
//! loss: it is written with one call, at the latest a second after its first entry, and a reader accepts it only if its
//! checksum matches. A seek reads the block headers only. The first block of each segment repeats the targets, the
//! topology and the jobs, so that the oldest segment can be removed at any time. The second is a preamble, the engine's
//! state at the start of the segment: findings and baselines, as JSON with a version, and the retained history points,
//! all at most 16 MiB and a quarter of a segment. It is requested at that moment, and the segment waits up to ten
//! seconds for it. Another one follows once a minute, without points. A segment is safe from a loss of power once the
//! next one begins. A reader skips entries of an unknown kind. An entry is its kind, the length of its JSON head, the
//! length of its body, and both; the body of a page is text as on the wire.

use std::{io, path::PathBuf, time::Duration};

use gaunt_schema::plain_error;

mod entry_codec;
mod recorder;
mod recorder_status;
mod recording_inbox;
mod recording_reader;
mod segment;
mod segment_ring;
mod segment_start;
mod segment_stream;
mod segment_writer;
#[cfg(test)]
mod tests;

pub use recorder::{Recorder, RecorderFollowHandle, RecordingWriter};
pub use recorder_status::RecorderStatus;
pub use recording_inbox::spawn_recording_inbox;
pub use recording_reader::{Earlier, RecordedDeliveries, Recording};
pub use segment::{RecordingSegment, SegmentBlock, SegmentError, decode_segment};
pub use segment_stream::{SegmentStream, SegmentStreamError};

/// File extension of a segment.
pub const ENDING: &str = "gaunt";

/// Default size of a recording.
pub const MAX_SIZE: u64 = 4 << 30;

/// The smallest size limit of a recording: a few blocks of the largest kind.
pub const SMALLEST_SIZE: u64 = 1 << 20;

/// Default retention time.
pub const MAX_AGE: Duration = Duration::from_hours(24);

/// Where and how much is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// Directory of the segments; created if it does not exist.
    pub folder: PathBuf,
    /// Total size of all segments above which the oldest is removed.
    pub max_size: u64,
    /// Age of a segment's last entry above which it is removed.
    pub max_age: Duration,
    /// Time between two scrapes of a target, stored for readers.
    pub period: Duration,
}

/// Why a recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The directory cannot be used.
    #[error("cannot use {} for a recording: {error}; check the path and its permissions", path.display())]
    Folder {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The writer thread cannot be started.
    #[error("cannot start the recorder thread: {0}; raise the thread limit (ulimit -u)")]
    Thread(io::Error),
    /// A file cannot be read.
    #[error("cannot read {}: {why}; check the file and its permissions", path.display(), why = plain_error::io(error))]
    Read {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file has another format version.
    #[error("{} has format version {version}, this gaunt reads {known}; use the gaunt that wrote it", path.display())]
    Version {
        /// Its path.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// Version of this gaunt.
        known: u32,
    },
    /// Nothing in the recording can be read.
    #[error("{} is no segment of a recording, or is damaged, and its folder has no other", .0.display())]
    Damaged(PathBuf),
    /// The recording is empty.
    #[error("no recording in {}; create one with `gaunt record --to FOLDER`. A folder of pages is for `gaunt judge`, `explain` and `report`", .0.display())]
    Empty(PathBuf),
}
