//! A segment as bytes: its header, its blocks, and how a reader gets past what is torn or damaged.

use gaunt_schema::{Delivery, RecordingPreamble, UnixMs, text};

use super::entry_codec;

/// What a segment begins with.
const MAGIC: &[u8; 8] = b"gauntrec";

/// The version of the format.
pub(super) const VERSION: u32 = 1;

/// Magic, version, period in milliseconds, start, checksum.
pub(super) const HEADER: usize = 28;

/// What a block begins with.
const BLOCK: [u8; 4] = [0xb1, 0x0c, 0x4b, 0x47];

/// Magic, compressed size, size, entries, first, last, checksum.
const BLOCK_HEADER: usize = 36;

/// The largest block before compression: twice the largest page and what is told beside it.
const MAX_BLOCK: usize = 64 << 20;

/// zstd's fastest usual level: pages shrink ten to twenty times at it.
const LEVEL: i32 = 1;

/// What is wrong with a segment as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// It does not begin as a segment does: cut off in its header, or another file.
    NoHeader,
    /// It is of this other version.
    Version(u32),
}

/// A block whose checksum holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentBlock<'a> {
    /// The instant of its first entry.
    pub first: UnixMs,
    /// The instant of its last entry.
    pub last: UnixMs,
    /// How many entries it has.
    pub entries: u32,
    size: usize,
    payload: &'a [u8],
    /// All of it, header and payload.
    pub(super) bytes: &'a [u8],
}

impl SegmentBlock<'_> {
    /// The preamble among its entries that is the last one at `until`, or else the first, if there is one.
    pub(super) fn find_preamble(&self, until: UnixMs) -> Option<(UnixMs, RecordingPreamble)> {
        let payload = zstd::bulk::decompress(self.payload, self.size).ok()?;
        entry_codec::find_preamble(&payload, until)
    }

    /// Every entry; one that does not decode ends the block.
    pub fn decode_deliveries(&self, limits: &text::PageLimits) -> Vec<(UnixMs, Delivery)> {
        let Ok(payload) = zstd::bulk::decompress(self.payload, self.size) else {
            return Vec::new();
        };
        let mut rest = payload.as_slice();
        let mut found = Vec::new();
        while let Some(entry) = entry_codec::decode_entry(&mut rest, limits) {
            found.push(entry);
        }
        found
    }
}

/// The header of a segment.
pub(super) fn encode_header(period_ms: u32, start: UnixMs) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&period_ms.to_le_bytes());
    header.extend_from_slice(&start.0.to_le_bytes());
    let sum = crc32fast::hash(&header);
    header.extend_from_slice(&sum.to_le_bytes());
    header
}

/// Entries as one block.
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

/// A segment, read.
#[derive(Debug)]
pub struct RecordingSegment<'a> {
    /// The time between two scrapes of a target, in milliseconds.
    pub period_ms: u32,
    /// Its blocks, in order.
    pub blocks: Vec<SegmentBlock<'a>>,
    /// Bytes that belong to no block: a tail that was not finished, or damage.
    pub lost: usize,
}

/// Checks the header of a segment; gives its period in milliseconds.
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

/// Reads the blocks of a segment. What is damaged is passed over up to the next block whose checksum holds.
pub fn decode_segment(bytes: &[u8]) -> Result<RecordingSegment<'_>, SegmentError> {
    let period_ms = decode_header(bytes)?;
    let (mut at, mut blocks, mut lost) = (HEADER, Vec::new(), 0);
    while at < bytes.len() {
        if let Some((block, length)) = decode_block(&bytes[at..]) {
            blocks.push(block);
            at += length;
            continue;
        }
        let next = bytes[at + 1..].windows(BLOCK.len()).position(|window| window == BLOCK);
        let skip = next.map_or(bytes.len() - at, |next| next + 1);
        lost += skip;
        at += skip;
    }
    Ok(RecordingSegment { period_ms, blocks, lost })
}

/// What stands at a place where a block should begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockStart {
    /// The block has this length.
    Block(usize),
    /// Its head has not arrived in full.
    More,
    /// No block.
    Other,
}

/// Looks at the head of a block.
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

/// The block at the beginning of these bytes, with its length.
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
