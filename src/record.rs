//! Recording: everything that senders deliver, kept in a bounded ring of segments on disk, and read back from there.
//!
//! A folder holds segments, `START.gaunt` by the instant of their first delivery in milliseconds. A segment begins
//! with a header (magic, version, period, start, checksum) and then has blocks, each with a header of its own (magic,
//! sizes, number of entries, first and last instant, checksum over all of it) and a payload compressed with zstd. A
//! block is the unit of loss: it is written with one call, at the latest a second after its first entry, and a reader
//! believes it only if its checksum holds. Who seeks reads the block headers alone. The first block of each segment
//! repeats the targets, the topology and the jobs, so that the oldest segment can go at any time. The second is a
//! preamble, what the owner knew when the segment began: findings and what is usual, as JSON with a version, and the points of
//! history that were kept, all at most 16 MiB and a quarter of a segment. It is asked for at that moment, and the segment
//! waits up to ten seconds for it. Once a minute another follows, without points. Who does not know an entry's kind passes
//! over it. An entry is its kind, the length of its JSON head, the length of its body, and both; the body of a page is text as on the wire.

use std::{io, path::PathBuf, time::Duration};

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

pub use recorder::{Recorder, RecorderFollowHandle};
pub use recorder_status::RecorderStatus;
pub use recording_inbox::spawn_recording_inbox;
pub use recording_reader::{Earlier, RecordedDeliveries, Recording};
pub use segment::{RecordingSegment, SegmentBlock, SegmentError, decode_segment};
pub use segment_stream::{SegmentStream, SegmentStreamError};

/// The ending of a segment's name.
pub const ENDING: &str = "gaunt";

/// The size of a whole recording unless told otherwise.
pub const MAX_SIZE: u64 = 4 << 30;

/// The smallest size that a recording may be limited to: a few blocks of the largest kind.
pub const SMALLEST_SIZE: u64 = 1 << 20;

/// How long is kept unless told otherwise.
pub const MAX_AGE: Duration = Duration::from_hours(24);

/// Where and how much is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// The folder of the segments; made if it is not there.
    pub folder: PathBuf,
    /// The size of all segments together that makes the oldest go.
    pub max_size: u64,
    /// The age of a segment's last entry that makes it go.
    pub max_age: Duration,
    /// The time between two scrapes of a target, for those who read it back.
    pub period: Duration,
}

/// Why a recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The folder cannot be used.
    #[error("cannot use {} for a recording: {error}; check the path and its permissions", path.display())]
    Folder {
        /// Which folder.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The thread that writes cannot be started.
    #[error("cannot start the thread that records: {0}; see to the limit of threads (ulimit -u)")]
    Thread(io::Error),
    /// A file cannot be read.
    #[error("cannot read {}: {error}; check its permissions", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It is of another version.
    #[error("{} is of version {version} of the format and this gaunt reads {known}; use the gaunt that wrote it", path.display())]
    Version {
        /// Which file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// Ours.
        known: u32,
    },
    /// There is nothing in it.
    #[error("no recording is in {}; `gaunt record --to {}` makes one", .0.display(), .0.display())]
    Empty(PathBuf),
}
