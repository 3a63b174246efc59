//! Segment ring: segments in a directory; the newest is written, the oldest are removed.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
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

/// The most segments that a new one removes for their age: more than are written meanwhile, and far from all, so that a
/// clock that is days ahead does not delete a recording before somebody corrects it.
const MOST_AGED: usize = 2;

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
            self.remove_oldest(block.len() as u64, at)?;
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
        // Its name is the newest, so that it is read last and removed last, also after the clock was set back.
        let newest = segments_in(&self.options.folder)?.pop().and_then(|path| start_of(&path));
        let mut name = at.0.max(0).max(newest.map_or(0, |newest| newest.0.saturating_add(1)));
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

    /// Removes the oldest segments until `more` bytes fit, and some of those that are too old at this time.
    fn remove_oldest(&self, more: u64, at: UnixMs) -> io::Result<()> {
        let mut segments = Vec::new();
        for path in segments_in(&self.options.folder)? {
            let meta = fs::metadata(&path)?;
            // Of two clocks, one of which may have been changed, the later one counts.
            let written = meta.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            let last = (UnixMs(0) + written).max(start_of(&path).unwrap_or_default());
            segments.push((path, meta.len(), last));
        }
        let mut size: u64 = segments.iter().map(|(_, size, _)| size).sum();
        // The new segment may grow to its limit before the next check.
        let next = (self.options.max_size / PARTS).min(LARGEST_SEGMENT).max(more);
        let mut aged = 0;
        for (path, bytes, last) in segments {
            if size + next <= self.options.max_size {
                if at.duration_since(last) <= self.options.max_age || aged == MOST_AGED {
                    break;
                }
                aged += 1;
            }
            fs::remove_file(&path)?;
            size -= bytes;
        }
        Ok(())
    }
}

/// The time in the name of a segment, at which it starts or after.
fn start_of(path: &Path) -> Option<UnixMs> {
    path.file_stem()?.to_str()?.parse().ok().map(UnixMs)
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

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    /// Writes a segment each hour from `start` on; returns the number of segments that are there after each.
    fn write_hours(folder: &Path, start: UnixMs, hours: u32) -> Vec<usize> {
        let options = RecordOptions {
            folder: folder.to_owned(),
            max_size: 1 << 30,
            max_age: HOUR * 24,
            period: Duration::from_secs(1),
        };
        let mut ring = SegmentRing::new(options).unwrap();
        let mut counts = Vec::new();
        for hour in 0..hours {
            let at = start + HOUR * hour;
            let begin = ring.needs_new_segment(at);
            ring.write_block(b"block", at, begin).unwrap();
            let path = ring.open.as_ref().unwrap().path.clone();
            let wall_clock = UNIX_EPOCH + Duration::from_millis(at.0 as u64);
            File::options().write(true).open(path).unwrap().set_modified(wall_clock).unwrap();
            counts.push(segments_in(folder).unwrap().len());
        }
        counts
    }

    #[test]
    fn segments_are_kept_for_their_age() {
        let folder = tempfile::tempdir().unwrap();
        let counts = write_hours(folder.path(), UnixMs(1_700_000_000_000), 40);
        assert!(counts.iter().all(|count| *count <= 25) && counts[39] >= 24, "{counts:?}");
    }

    #[test]
    fn clock_that_was_changed_deletes_no_recording() {
        let start = UnixMs(1_700_000_000_000);
        for (stepped, left) in [(start + HOUR * 45, 19), (start - HOUR * 5, 21), (UnixMs(0), 21)] {
            let folder = tempfile::tempdir().unwrap();
            assert_eq!(write_hours(folder.path(), start, 20).last(), Some(&20));
            let before = segments_in(folder.path()).unwrap().pop().unwrap();
            assert_eq!(write_hours(folder.path(), stepped, 1), [left], "at {stepped:?}");
            let newest = segments_in(folder.path()).unwrap().pop().unwrap();
            assert!(newest > before, "what is written now is the newest");
            // The clock is right again.
            let counts = write_hours(folder.path(), start + HOUR * 20, 2);
            assert!(counts[1] >= 20, "{counts:?}");
        }
    }
}
