//! Segment ring: segments in a directory; the newest is written, the oldest are removed.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use gaunt_schema::{
    UnixMs,
    disk::{Disk, DiskFile},
};

use super::{ENDING, RecordError, RecordOptions, segment};

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
    disk: Arc<dyn Disk>,
    open: Option<OpenSegment>,
}

#[derive(Debug)]
struct OpenSegment {
    path: PathBuf,
    size: u64,
    start: UnixMs,
}

impl SegmentRing {
    pub(super) fn new(options: RecordOptions, disk: Arc<dyn Disk>) -> Result<Self, RecordError> {
        let failed = |error| RecordError::Folder { path: options.folder.clone(), error };
        disk.create_folder(&options.folder).map_err(failed)?;
        // A missing permission is reported before anything is recorded.
        let probe = options.folder.join(".writable");
        disk.write_file(&probe, &[]).and_then(|()| disk.remove_file(&probe)).map_err(failed)?;
        Ok(Self { options, disk, open: None })
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
            let removed = !self.disk.has_file(&open.path);
            open.size >= limit || now.duration_since(open.start) >= LONGEST_SEGMENT || removed
        })
    }

    /// Writes a block, to a new segment if one begins. After a failure nothing of the block remains.
    pub(super) fn write_block(&mut self, block: &[u8], at: UnixMs, begin: bool) -> io::Result<()> {
        if begin {
            self.open = None;
            self.disk.create_folder(&self.options.folder)?;
            self.remove_oldest(block.len() as u64, at)?;
            self.open = Some(self.create_segment(at)?);
        }
        let Some(open) = &mut self.open else { return Err(io::ErrorKind::NotFound.into()) };
        if let Err(error) = self.disk.append_file(&open.path, block) {
            if open.size == segment::HEADER as u64 {
                drop(self.disk.remove_file(&open.path));
            } else {
                // Where this fails too, a reader skips the part of a block at the end of a segment.
                drop(self.disk.truncate_file(&open.path, open.size));
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
        let newest = segments_in(&*self.disk, &self.options.folder)?.pop();
        if let Some(complete) = &newest {
            // It is safe from a power loss now, also where a write failed or the process was killed; it was always safe from
            // a kill.
            drop(self.disk.sync_file(&complete.path));
        }
        let newest = newest.and_then(|newest| start_of(&newest.path));
        let mut name = at.0.max(0).max(newest.map_or(0, |newest| newest.0.saturating_add(1)));
        loop {
            let path = self.options.folder.join(format!("{name:016}.{ENDING}"));
            match self.disk.create_file(&path) {
                Ok(()) => {
                    let header = segment::encode_header(period_ms, at);
                    if let Err(error) = self.disk.append_file(&path, &header) {
                        drop(self.disk.remove_file(&path));
                        return Err(error);
                    }
                    // Its name is safe from a power loss, as its content is once it is complete.
                    drop(self.disk.sync_folder(&self.options.folder));
                    return Ok(OpenSegment { path, size: segment::HEADER as u64, start: at });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => name += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes the oldest segments until `more` bytes fit, and some of those that are too old at this time.
    fn remove_oldest(&self, more: u64, at: UnixMs) -> io::Result<()> {
        let segments = segments_in(&*self.disk, &self.options.folder)?;
        let mut size: u64 = segments.iter().map(|segment| segment.bytes).sum();
        // The new segment may grow to its limit before the next check.
        let next = (self.options.max_size / PARTS).min(LARGEST_SEGMENT).max(more);
        let mut aged = 0;
        for segment in segments {
            // Of two clocks, one of which may have been changed, the later one counts.
            let last = segment.modified.max(start_of(&segment.path).unwrap_or_default());
            if size + next <= self.options.max_size {
                if at.duration_since(last) <= self.options.max_age || aged == MOST_AGED {
                    break;
                }
                aged += 1;
            }
            self.disk.remove_file(&segment.path)?;
            size -= segment.bytes;
        }
        Ok(())
    }
}

/// The time in the name of a segment, at which it starts or after.
fn start_of(path: &Path) -> Option<UnixMs> {
    path.file_stem()?.to_str()?.parse().ok().map(UnixMs)
}

/// All segments of a directory, oldest first.
pub(super) fn segments_in(disk: &dyn Disk, folder: &Path) -> io::Result<Vec<DiskFile>> {
    let mut files = disk.list_files(folder)?;
    files.retain(|file| file.path.extension().is_some_and(|ending| ending == ENDING));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, time::UNIX_EPOCH};

    use super::*;
    use crate::system_disk::system_disk;

    const HOUR: Duration = Duration::from_hours(1);

    /// Writes a segment each hour from `start` on; returns the number of segments that are there after each.
    fn write_hours(folder: &Path, start: UnixMs, hours: u32) -> Vec<usize> {
        let options = RecordOptions {
            folder: folder.to_owned(),
            max_size: 1 << 30,
            max_age: HOUR * 24,
            period: Duration::from_secs(1),
        };
        let mut ring = SegmentRing::new(options, system_disk()).unwrap();
        let mut counts = Vec::new();
        for hour in 0..hours {
            let at = start + HOUR * hour;
            let begin = ring.needs_new_segment(at);
            ring.write_block(b"block", at, begin).unwrap();
            let path = ring.open.as_ref().unwrap().path.clone();
            let wall_clock = UNIX_EPOCH + Duration::from_millis(at.0 as u64);
            File::options().write(true).open(path).unwrap().set_modified(wall_clock).unwrap();
            counts.push(segments_in(&*system_disk(), folder).unwrap().len());
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
            let before = segments_in(&*system_disk(), folder.path()).unwrap().pop().unwrap().path;
            assert_eq!(write_hours(folder.path(), stepped, 1), [left], "at {stepped:?}");
            let newest = segments_in(&*system_disk(), folder.path()).unwrap().pop().unwrap().path;
            assert!(newest > before, "what is written now is the newest");
            // The clock is right again.
            let counts = write_hours(folder.path(), start + HOUR * 20, 2);
            assert!(counts[1] >= 20, "{counts:?}");
        }
    }
}
