//! Recording reader: the time span of a recording, and its deliveries from any time on.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use gaunt_schema::{
    Delivery, RecordingPreamble, UnixMs,
    disk::{Disk, DiskFile},
    text,
};

use super::{
    RecordError,
    segment::{self, HEADER, SegmentError, VERSION},
    segment_ring,
};
use crate::system_disk::system_disk;

/// Blocks that are searched for the first page: the first one after the standing deliveries has it, unless nothing
/// answered.
const FIRST_BLOCKS: usize = 8;

/// The largest segment that is read: twice the largest that is written, with room for its last block.
const MAX_SEGMENT: u64 = 256 << 20;

/// State before a time of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// The state and its time.
    Known(UnixMs, RecordingPreamble),
    /// None: it was written by an older gaunt, or was not available in time.
    Unsaid,
    /// This segment may have had one; this many bytes of it are damaged.
    Damaged(PathBuf, usize),
}

/// A recording whose segments are indexed.
#[derive(Debug)]
pub struct Recording {
    disk: Arc<dyn Disk>,
    /// Each segment that holds a block, with its time span.
    segments: Vec<(PathBuf, UnixMs, UnixMs)>,
    period: Duration,
    /// Bytes of blocks that were not written completely, because the recorder was killed.
    unfinished: usize,
    /// Segments with damage, each with the number of damaged bytes.
    damaged: Vec<(PathBuf, usize)>,
    /// Time of the first page: standing deliveries come before it, and may be as old as the recording process.
    first_page: Option<UnixMs>,
}

impl Recording {
    /// Whether a directory holds segments.
    pub fn has_segments(folder: &Path) -> bool {
        Self::segment_count(folder) > 0
    }

    /// The number of segments in a directory.
    pub fn segment_count(folder: &Path) -> usize {
        segment_ring::segments_in(&*system_disk(), folder).map_or(0, |segments| segments.len())
    }

    /// Indexes a directory.
    pub fn open_folder(folder: &Path) -> Result<Self, RecordError> {
        Self::open_on_disk(system_disk(), folder)
    }

    /// Indexes a directory of this disk.
    pub fn open_on_disk(disk: Arc<dyn Disk>, folder: &Path) -> Result<Self, RecordError> {
        let segments = segment_ring::segments_in(&*disk, folder)
            .map_err(|error| RecordError::Folder { path: folder.to_owned(), error })?;
        let mut recording = Self {
            disk,
            segments: Vec::new(),
            period: Duration::from_secs(1),
            unfinished: 0,
            damaged: Vec::new(),
            first_page: None,
        };
        for DiskFile { path, .. } in segments {
            let bytes = read_segment_file(&*recording.disk, &path)?;
            let segment = match segment::decode_segment(&bytes) {
                Ok(segment) => segment,
                Err(SegmentError::NoHeader) => {
                    // A recorder that is killed at once leaves an empty file, or a part of a header.
                    if bytes.len() < HEADER {
                        recording.unfinished += bytes.len();
                    } else {
                        recording.damaged.push((path, bytes.len()));
                    }
                    continue;
                }
                Err(SegmentError::Version(version)) => {
                    return Err(RecordError::Version { path, version, known: VERSION });
                }
            };
            recording.unfinished += segment.unfinished;
            if segment.lost > segment.unfinished {
                recording.damaged.push((path.clone(), segment.lost - segment.unfinished));
            }
            recording.period = Duration::from_millis(u64::from(segment.period_ms.max(1)));
            let (first, last) =
                (segment.blocks.first(), segment.blocks.iter().map(|b| b.last).max());
            if recording.first_page.is_none() {
                recording.first_page = first_page_time(&segment);
            }
            if let (Some(first), Some(last)) = (first, last) {
                let span = (first.first, last);
                recording.segments.push((path, span.0, span.1));
            }
        }
        if recording.segments.is_empty() {
            return Err(match recording.damaged.pop() {
                Some((path, _)) => RecordError::Damaged(path),
                None => RecordError::Empty(folder.to_owned()),
            });
        }
        Ok(recording)
    }

    /// Times of the first page and of the last delivery.
    pub fn time_span(&self) -> (UnixMs, UnixMs) {
        let first = self.segments.iter().map(|(_, first, _)| *first).min().unwrap_or_default();
        let first = self.first_page.map_or(first, |page| first.max(page));
        let last = self.segments.iter().map(|(_, _, last)| *last).max().unwrap_or_default();
        (first, last)
    }

    /// The time between two scrapes of a target.
    pub fn scrape_period(&self) -> Duration {
        self.period
    }

    /// Bytes of blocks that were not written completely, because the recorder was killed.
    pub fn unfinished_bytes(&self) -> usize {
        self.unfinished
    }

    /// Segments with damage, each with the number of damaged bytes, which are skipped.
    pub fn damaged_segments(&self) -> &[(PathBuf, usize)] {
        &self.damaged
    }

    /// State at this time, or up to a minute before: the preamble of the segment that holds it.
    pub fn earlier(&self, at: UnixMs) -> Result<Earlier, RecordError> {
        let Some((path, _, _)) = self.segments.iter().find(|(_, _, last)| *last >= at) else {
            return Ok(Earlier::Unsaid);
        };
        let bytes = read_segment_file(&*self.disk, path)?;
        let Ok(segment) = segment::decode_segment(&bytes) else { return Ok(Earlier::Unsaid) };
        let mut found = None;
        for block in segment.blocks.iter().take_while(|block| block.first <= at) {
            found = block.find_preamble(at).or(found);
        }
        Ok(match found {
            Some((at, preamble)) => Earlier::Known(at, preamble),
            None if segment.lost > 0 => Earlier::Damaged(path.clone(), segment.lost),
            None => Earlier::Unsaid,
        })
    }

    /// All deliveries from this time on, after the standing ones of its segment up to then.
    pub fn deliveries_from(&self, from: UnixMs) -> RecordedDeliveries {
        let segments = self.segments.iter().filter(|(_, _, last)| *last >= from);
        RecordedDeliveries {
            disk: self.disk.clone(),
            segments: segments.map(|(path, _, _)| path.clone()).collect(),
            waiting: VecDeque::new(),
            blocks: VecDeque::new(),
            from,
            limits: text::PageLimits::default(),
        }
    }
}

/// Deliveries in the order in which they were written, read segment by segment.
#[derive(Debug)]
pub struct RecordedDeliveries {
    disk: Arc<dyn Disk>,
    segments: VecDeque<PathBuf>,
    /// Blocks of the current segment, still compressed.
    blocks: VecDeque<Vec<u8>>,
    waiting: VecDeque<(UnixMs, Delivery)>,
    from: UnixMs,
    limits: text::PageLimits,
}

impl Iterator for RecordedDeliveries {
    type Item = Result<(UnixMs, Delivery), RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some((at, delivery)) = self.waiting.pop_front() {
                // A standing delivery is valid at this time, however old it is.
                if at >= self.from || !matches!(delivery, Delivery::Batch(_)) {
                    return Some(Ok((at, delivery)));
                }
            }
            if let Some(bytes) = self.blocks.pop_front() {
                if let Some((block, _)) = segment::decode_block(&bytes) {
                    let is_before = block.last < self.from;
                    self.waiting.extend(if is_before {
                        block.decode_standing()
                    } else {
                        block.decode_deliveries(&self.limits)
                    });
                }
                continue;
            }
            let path = self.segments.pop_front()?;
            match read_segment_file(&*self.disk, &path) {
                Ok(bytes) => self.queue_blocks(&bytes),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl RecordedDeliveries {
    /// Queues the blocks of a segment: those before this time may replace standing deliveries of its first one.
    fn queue_blocks(&mut self, bytes: &[u8]) {
        let Ok(segment) = segment::decode_segment(bytes) else { return };
        self.blocks.extend(segment.blocks.iter().map(|block| block.bytes.to_vec()));
    }
}

/// Time of the first page of a segment, or of the first failed scrape.
fn first_page_time(segment: &segment::RecordingSegment<'_>) -> Option<UnixMs> {
    let limits = text::PageLimits::default();
    segment.blocks.iter().take(FIRST_BLOCKS).find_map(|block| {
        let deliveries = block.decode_deliveries(&limits);
        let mut pages = deliveries.iter().filter(|(_, what)| matches!(what, Delivery::Batch(_)));
        pages.next().map(|(at, _)| *at)
    })
}

fn read_segment_file(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>, RecordError> {
    disk.read_file(path, MAX_SEGMENT)
        .map_err(|error| RecordError::Read { path: path.to_owned(), error })
}
