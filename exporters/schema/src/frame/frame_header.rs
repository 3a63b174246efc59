//! The header of a frame: 56 bytes that describe what follows, and a checksum over all of it.

use super::{FrameError, LayoutHash, frame_format::VERSION};
use crate::UnixMs;

/// The first bytes of every frame.
const MAGIC: [u8; 4] = *b"GNTF";

/// Bytes of a header.
pub(super) const LENGTH: usize = 56;

/// The position of the checksum, and the start of the bytes that it covers.
const CHECKSUM: usize = 8;
const SUMMED: usize = 12;

/// Flags: what follows the header.
const HAS_LAYOUT: u8 = 1;
const IS_DIFFERENCE: u8 = 2;
const HAS_IDENTITY: u8 = 4;

/// No clock value.
const NO_TIME: i64 = i64::MIN;

/// The content of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Whether the layout follows.
    pub(super) has_layout: bool,
    /// Whether the identity follows.
    pub(super) has_identity: bool,
    /// The tick of these readings.
    pub(super) tick: u64,
    /// The tick to which the readings are a difference.
    pub(super) base_tick: Option<u64>,
    /// The hash of the layout.
    pub(super) layout: LayoutHash,
    /// The node's clock.
    pub(super) time: Option<UnixMs>,
}

impl FrameHeader {
    /// Reserves space for a header at the end of a buffer.
    pub(super) fn reserve_header(out: &mut Vec<u8>) -> usize {
        let start = out.len();
        out.resize(start + LENGTH, 0);
        start
    }

    /// Writes the header of the frame that begins at `start` and ends with the buffer.
    pub(super) fn encode_header(&self, start: usize, out: &mut [u8]) {
        let frame = &mut out[start..];
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let marks = flag(self.has_layout, HAS_LAYOUT)
            | flag(self.base_tick.is_some(), IS_DIFFERENCE)
            | flag(self.has_identity, HAS_IDENTITY);
        let length = frame.len() as u32;
        frame[..4].copy_from_slice(&MAGIC);
        frame[4] = VERSION;
        frame[5] = marks;
        frame[12..16].copy_from_slice(&length.to_le_bytes());
        frame[16..24].copy_from_slice(&self.tick.to_le_bytes());
        frame[24..32].copy_from_slice(&self.base_tick.unwrap_or(0).to_le_bytes());
        frame[32..48].copy_from_slice(&self.layout.0);
        let time = self.time.map_or(NO_TIME, |time| time.0);
        frame[48..56].copy_from_slice(&time.to_le_bytes());
        let sum = crc32fast::hash(&frame[SUMMED..]);
        frame[CHECKSUM..SUMMED].copy_from_slice(&sum.to_le_bytes());
    }

    /// Decodes the header of a complete frame, and verifies the checksum over all of it.
    pub(super) fn decode_header(frame: &[u8]) -> Result<Self, FrameError> {
        if !frame.starts_with(&MAGIC) {
            return Err(FrameError::NotAFrame);
        }
        let value = |offset: usize| u64_at(frame, offset).ok_or(FrameError::Short("head"));
        let version = *frame.get(4).ok_or(FrameError::Short("head"))?;
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        let (marks, length) = (*frame.get(5).ok_or(FrameError::Short("head"))?, u32_at(frame, 12));
        let length = length.ok_or(FrameError::Short("head"))?;
        if frame.len() != length as usize || frame.len() < LENGTH {
            return Err(FrameError::Torn(frame.len(), length));
        }
        if u32_at(frame, CHECKSUM) != Some(crc32fast::hash(&frame[SUMMED..])) {
            return Err(FrameError::Checksum);
        }
        let unknown = marks & !(HAS_LAYOUT | IS_DIFFERENCE | HAS_IDENTITY);
        if unknown != 0 || frame[6..8] != [0, 0] {
            return Err(FrameError::Marks(unknown));
        }
        let time = value(48)? as i64;
        let mut layout = [0; 16];
        layout.copy_from_slice(&frame[32..48]);
        let base = value(24)?;
        Ok(Self {
            has_layout: marks & HAS_LAYOUT != 0,
            has_identity: marks & HAS_IDENTITY != 0,
            tick: value(16)?,
            base_tick: (marks & IS_DIFFERENCE != 0).then_some(base),
            layout: LayoutHash(layout),
            time: (time != NO_TIME).then_some(UnixMs(time)),
        })
    }
}

fn u64_at(frame: &[u8], offset: usize) -> Option<u64> {
    frame.get(offset..offset + 8)?.try_into().ok().map(u64::from_le_bytes)
}

fn u32_at(frame: &[u8], offset: usize) -> Option<u32> {
    frame.get(offset..offset + 4)?.try_into().ok().map(u32::from_le_bytes)
}
