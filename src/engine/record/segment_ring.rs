//! Segment ring: segments in a directory; the newest is written, the oldest are removed.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use gaunt_schema::UnixMs;

use super::{ENDING, RecordError, RecordOptions, segment};
use crate::private_files;

/// A segment is at most this part of the ring, so that little is removed at once.
const PARTS: u64 = 8;

/// The largest segment.
const LARGEST_SEGMENT: u64 = 64 << 20;

/// The longest time span of a segment, which is the precision of the age limit.
const LONGEST_SEGMENT: Duration = Duration::from_hours(1);

/// The directory, and the segment that is written.
#[derive(Debug)]
pub(super) struct SegmentRing {
    options: RecordOptions,
    open: Option<OpenSegment>,
}

#[derive(Debug)]
struct OpenSegment {
    file: File,
    path: PathBuf,
    size: u64,
    start: UnixMs,
}

impl SegmentRing {
    pub(super) fn new(options: RecordOptions) -> Result<Self, RecordError> {
        let failed = |error| RecordError::Folder { path: options.folder.clone(), error };
        private_files::create_folder(&options.folder).map_err(failed)?;
        // A missing permission is reported before anything is recorded.
        let probe = options.folder.join(".writable");
        private_files::create_file(&probe).and_then(|_| fs::remove_file(&probe)).map_err(failed)?;
        Ok(Self { options, open: None })
    }

    /// Size at which a segment ends.
    pub(super) fn segment_size(&self) -> u64 {
        (self.options.max_size / PARTS).min(LARGEST_SEGMENT)
    }

    /// Whether the next block begins a segment, and so must repeat the standing deliveries.
    ///
    /// A segment whose file was removed is not continued: data written there would be lost.
    pub(super) fn needs_new_segment(&self, now: UnixMs) -> bool {
        let limit = self.segment_size();
        self.open.as_ref().is_none_or(|open| {
            let removed = open.file.metadata().is_ok_and(|meta| meta.nlink() == 0);
            open.size >= limit || now.duration_since(open.start) >= LONGEST_SEGMENT || removed
        })
    }

    /// Writes a block, to a new segment if one begins. After a failure nothing of the block remains.
    pub(super) fn write_block(&mut self, block: &[u8], at: UnixMs, begin: bool) -> io::Result<()> {
        if begin {
            if let Some(done) = self.open.take() {
                // Data is safe from a power loss now; it was always safe from a kill.
                drop(done.file.sync_data());
            }
            private_files::create_folder(&self.options.folder)?;
            self.remove_oldest(block.len() as u64)?;
            self.open = Some(self.create_segment(at)?);
        }
        let Some(open) = &mut self.open else { return Err(io::ErrorKind::NotFound.into()) };
        if let Err(error) = open.file.write_all(block) {
            let unfinished = open.file.set_len(open.size);
            if unfinished.is_err() || open.size == segment::HEADER as u64 {
                drop(fs::remove_file(&open.path));
            }
            self.open = None;
            return Err(error);
        }
        open.size += block.len() as u64;
        Ok(())
    }

    fn create_segment(&self, at: UnixMs) -> io::Result<OpenSegment> {
        let period_ms = segment::to_header_millis(self.options.period);
        let mut name = at.0.max(0);
        loop {
            let path = self.options.folder.join(format!("{name:016}.{ENDING}"));
            match private_files::create_segment(&path) {
                Ok(mut file) => {
                    if let Err(error) = file.write_all(&segment::encode_header(period_ms, at)) {
                        drop(fs::remove_file(&path));
                        return Err(error);
                    }
                    return Ok(OpenSegment { file, path, size: segment::HEADER as u64, start: at });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => name += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes the oldest segments until `more` bytes fit, and those that are too old.
    fn remove_oldest(&self, more: u64) -> io::Result<()> {
        let mut segments = Vec::new();
        for path in segments_in(&self.options.folder)? {
            let meta = fs::metadata(&path)?;
            segments.push((path, meta.len(), meta.modified().ok()));
        }
        let mut size: u64 = segments.iter().map(|(_, size, _)| size).sum();
        // The new segment may grow to its limit before the next check.
        let next = (self.options.max_size / PARTS).min(LARGEST_SEGMENT).max(more);
        let now = SystemTime::now();
        for (path, bytes, written) in segments {
            let age = written.and_then(|written| now.duration_since(written).ok());
            let old = age.is_some_and(|age| age > self.options.max_age);
            if !old && size + next <= self.options.max_size {
                break;
            }
            fs::remove_file(&path)?;
            size -= bytes;
        }
        Ok(())
    }
}

/// All segments of a directory, oldest first.
pub(super) fn segments_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == ENDING) {
            segments.push(path);
        }
    }
    segments.sort();
    Ok(segments)
}
