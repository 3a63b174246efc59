//! Segment format: header and blocks as bytes, and recovery from truncated or damaged data.

use std::time::Duration;

use gaunt_schema::{Delivery, RecordingPreamble, UnixMs, text};

use super::entry_codec;

/// Magic of a segment.
const MAGIC: &[u8; 8] = b"gauntrec";

/// The version of the format.
pub(super) const VERSION: u32 = 1;

/// Magic, version, period in milliseconds, start, checksum.
pub(super) const HEADER: usize = 28;

/// Magic of a block.
const BLOCK: [u8; 4] = [0xb1, 0x0c, 0x4b, 0x47];

/// Magic, compressed size, size, entries, first, last, checksum.
const BLOCK_HEADER: usize = 36;

/// The largest block before compression: twice the largest page with its head.
const MAX_BLOCK: usize = 64 << 20;

/// The fastest regular level of zstd: pages shrink ten to twenty times.
const LEVEL: i32 = 1;

/// Error of a whole segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// The header is truncated, or this is another file.
    NoHeader,
    /// Unsupported version.
    Version(u32),
}

/// A block with a valid checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentBlock<'a> {
    /// Time of its first entry.
    pub first: UnixMs,
    /// Time of its last entry.
    pub last: UnixMs,
    /// Number of entries.
    pub entries: u32,
    size: usize,
    payload: &'a [u8],
    /// The whole block, header and payload.
    pub(super) bytes: &'a [u8],
}

impl SegmentBlock<'_> {
    /// Its last preamble at or before `until`, or else the first, if there is one.
    pub(super) fn find_preamble(&self, until: UnixMs) -> Option<(UnixMs, RecordingPreamble)> {
        let payload = zstd::bulk::decompress(self.payload, self.size).ok()?;
        entry_codec::find_preamble(&payload, until)
    }

    /// All entries; one that does not decode ends the block.
    pub fn decode_deliveries(&self, limits: &text::PageLimits) -> Vec<(UnixMs, Delivery)> {
        self.decode_entries(|rest| entry_codec::decode_entry(rest, limits))
    }

    /// The standing deliveries; pages are not decoded.
    pub(super) fn decode_standing(&self) -> Vec<(UnixMs, Delivery)> {
        self.decode_entries(entry_codec::decode_standing)
    }

    fn decode_entries(
        &self,
        mut decode: impl FnMut(&mut &[u8]) -> Option<(UnixMs, Delivery)>,
    ) -> Vec<(UnixMs, Delivery)> {
        let Ok(payload) = zstd::bulk::decompress(self.payload, self.size) else {
            return Vec::new();
        };
        let mut rest = payload.as_slice();
        std::iter::from_fn(|| decode(&mut rest)).collect()
    }
}

/// A duration as encoded in headers.
pub(super) fn to_header_millis(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}

/// Encodes the header of a segment.
pub(super) fn encode_header(period_ms: u32, start: UnixMs) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&period_ms.to_le_bytes());
    header.extend_from_slice(&start.0.to_le_bytes());
    let sum = crc32fast::hash(&header);
    header.extend_from_slice(&sum.to_le_bytes());
    header
}

/// Encodes entries as one block.
pub(super) fn encode_block(
    payload: &[u8],
    entries: u32,
    first: UnixMs,
    last: UnixMs,
) -> std::io::Result<Vec<u8>> {
    let packed = zstd::bulk::compress(payload, LEVEL)?;
    let mut block = Vec::with_capacity(BLOCK_HEADER + packed.len());
    block.extend_from_slice(&BLOCK);
    block.extend_from_slice(&(packed.len() as u32).to_le_bytes());
    block.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    block.extend_from_slice(&entries.to_le_bytes());
    block.extend_from_slice(&first.0.to_le_bytes());
    block.extend_from_slice(&last.0.to_le_bytes());
    let mut sum = crc32fast::Hasher::new();
    sum.update(&block);
    sum.update(&packed);
    block.extend_from_slice(&sum.finalize().to_le_bytes());
    block.extend_from_slice(&packed);
    Ok(block)
}

/// A decoded segment.
#[derive(Debug)]
pub struct RecordingSegment<'a> {
    /// The time between two scrapes of a target, in milliseconds.
    pub period_ms: u32,
    /// Its blocks, in order.
    pub blocks: Vec<SegmentBlock<'a>>,
    /// Bytes outside of blocks: an unfinished tail, or damage.
    pub lost: usize,
    /// Those of an unfinished tail: the block that was being written when the recorder was killed.
    pub unfinished: usize,
}

/// Checks the header of a segment; returns its period in milliseconds.
pub(super) fn decode_header(bytes: &[u8]) -> Result<u32, SegmentError> {
    let head = bytes.get(..HEADER).ok_or(SegmentError::NoHeader)?;
    let sum = u32_at(head, 24).ok_or(SegmentError::NoHeader)?;
    if &head[..8] != MAGIC || crc32fast::hash(&head[..24]) != sum {
        return Err(SegmentError::NoHeader);
    }
    let version = u32_at(head, 8).ok_or(SegmentError::NoHeader)?;
    if version != VERSION {
        return Err(SegmentError::Version(version));
    }
    u32_at(head, 12).ok_or(SegmentError::NoHeader)
}

/// Decodes the blocks of a segment. Damage is skipped up to the next block with a valid checksum.
pub fn decode_segment(bytes: &[u8]) -> Result<RecordingSegment<'_>, SegmentError> {
    let period_ms = decode_header(bytes)?;
    let (mut at, mut blocks, mut lost) = (HEADER, Vec::new(), 0);
    let mut tail = HEADER;
    while at < bytes.len() {
        if let Some((block, length)) = decode_block(&bytes[at..]) {
            blocks.push(block);
            at += length;
            tail = at;
            continue;
        }
        let next = bytes[at + 1..].windows(BLOCK.len()).position(|window| window == BLOCK);
        let skip = next.map_or(bytes.len() - at, |next| next + 1);
        lost += skip;
        at += skip;
    }
    let tail = &bytes[tail..];
    let is_unfinished = match detect_block_start(tail) {
        BlockStart::Block(length) => length > tail.len(),
        BlockStart::More => true,
        BlockStart::Other => false,
    };
    let unfinished = if is_unfinished { tail.len() } else { 0 };
    Ok(RecordingSegment { period_ms, blocks, lost, unfinished })
}

/// Kind of data where a block should begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockStart {
    /// A block of this length.
    Block(usize),
    /// An incomplete block header.
    More,
    /// Not a block.
    Other,
}

/// Detects a block header.
pub(super) fn detect_block_start(bytes: &[u8]) -> BlockStart {
    if !bytes.iter().zip(&BLOCK).all(|(byte, known)| byte == known) {
        return BlockStart::Other;
    }
    match (u32_at(bytes, 4), u32_at(bytes, 8), bytes.len() >= BLOCK_HEADER) {
        (Some(packed), Some(size), true) if packed.max(size) as usize <= MAX_BLOCK => {
            BlockStart::Block(BLOCK_HEADER + packed as usize)
        }
        (_, _, true) => BlockStart::Other,
        _ => BlockStart::More,
    }
}

/// Decodes the block at the start of these bytes; returns it with its length.
pub(super) fn decode_block(bytes: &[u8]) -> Option<(SegmentBlock<'_>, usize)> {
    let head = bytes.get(..BLOCK_HEADER)?;
    if head[..4] != BLOCK {
        return None;
    }
    let (packed, size) = (u32_at(head, 4)? as usize, u32_at(head, 8)? as usize);
    if size > MAX_BLOCK {
        return None;
    }
    let length = BLOCK_HEADER + packed;
    let payload = bytes.get(BLOCK_HEADER..length)?;
    let mut sum = crc32fast::Hasher::new();
    sum.update(&head[..32]);
    sum.update(payload);
    if sum.finalize() != u32_at(head, 32)? {
        return None;
    }
    let instant =
        |at: usize| Some(UnixMs(i64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?)));
    let (first, last) = (instant(16)?, instant(24)?);
    let (entries, bytes) = (u32_at(head, 12)?, &bytes[..length]);
    Some((SegmentBlock { first, last, entries, size, payload, bytes }, length))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
