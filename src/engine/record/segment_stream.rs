//! Segment stream: decodes a segment as it arrives; entries are returned as soon as their block is complete.

use gaunt_schema::{Delivery, UnixMs, text};

use super::segment::{self, BlockStart, HEADER, SegmentError, VERSION};

/// Why arriving bytes are not a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentStreamError {
    /// The header is invalid.
    #[error("it is not a recording; is it a gaunt aggregator?")]
    NoHeader,
    /// Unsupported version.
    #[error(
        "it has format version {0}, this gaunt reads {VERSION}; use the same gaunt on both sides"
    )]
    Version(u32),
    /// A block is damaged.
    #[error("it has a damaged block")]
    Damaged,
}

/// Arrived bytes of a segment that are not decoded yet.
#[derive(Debug, Default)]
pub struct SegmentStream {
    bytes: Vec<u8>,
    begun: bool,
    period_ms: u32,
    limits: text::PageLimits,
}

impl SegmentStream {
    /// Adds arrived bytes and returns the entries that are complete now.
    pub fn decode_arrived(
        &mut self,
        arrived: &[u8],
    ) -> Result<Vec<(UnixMs, Delivery)>, SegmentStreamError> {
        self.bytes.extend_from_slice(arrived);
        let mut at = 0;
        if !self.begun {
            if self.bytes.len() < HEADER {
                return Ok(Vec::new());
            }
            self.period_ms = segment::decode_header(&self.bytes).map_err(|error| match error {
                SegmentError::NoHeader => SegmentStreamError::NoHeader,
                SegmentError::Version(version) => SegmentStreamError::Version(version),
            })?;
            (self.begun, at) = (true, HEADER);
        }
        let mut entries = Vec::new();
        loop {
            let rest = &self.bytes[at..];
            let length = match segment::detect_block_start(rest) {
                BlockStart::Block(length) if length <= rest.len() => length,
                BlockStart::Block(_) | BlockStart::More => break,
                BlockStart::Other => return Err(SegmentStreamError::Damaged),
            };
            let (block, _) = segment::decode_block(rest).ok_or(SegmentStreamError::Damaged)?;
            entries.extend(block.decode_deliveries(&self.limits));
            at += length;
        }
        self.bytes.drain(..at);
        Ok(entries)
    }

    /// Time between two scrapes of a target in milliseconds, once the header has arrived.
    pub fn period_ms(&self) -> Option<u32> {
        self.begun.then_some(self.period_ms)
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::ScrapeTarget;

    use super::*;

    fn block_with_target(number: u32) -> Vec<u8> {
        let target = ScrapeTarget {
            id: gaunt_schema::TargetId(number),
            address: "a:1".into(),
            node: None,
            origin: "test".into(),
        };
        let mut payload = Vec::new();
        let at = UnixMs(i64::from(number));
        super::super::entry_codec::encode_delivery(
            &Delivery::Targets(vec![target]),
            at,
            &mut payload,
        );
        segment::encode_block(&payload, 1, at, at).unwrap()
    }

    #[test]
    fn entries_come_as_soon_as_their_block_is_complete_however_it_is_cut() {
        let mut bytes = segment::encode_header(500, UnixMs(0));
        for number in 0..5 {
            bytes.extend(block_with_target(number));
        }
        for step in 1..bytes.len() {
            let mut stream = SegmentStream::default();
            let came: Vec<i64> = bytes
                .chunks(step)
                .flat_map(|part| stream.decode_arrived(part).unwrap())
                .map(|(at, _)| at.0)
                .collect();
            assert_eq!(came, [0, 1, 2, 3, 4], "in parts of {step}");
            assert_eq!((stream.period_ms(), stream.bytes.len()), (Some(500), 0));
        }
    }

    #[test]
    fn invalid_segment_is_rejected() {
        let take = |bytes: &[u8]| SegmentStream::default().decode_arrived(bytes).unwrap_err();
        assert_eq!(take(b"HTTP/1.1 200 OK and then some"), SegmentStreamError::NoHeader);
        let mut bytes = segment::encode_header(500, UnixMs(0));
        bytes.extend(block_with_target(0));
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert_eq!(take(&bytes), SegmentStreamError::Damaged);
        let mut bytes = segment::encode_header(500, UnixMs(0));
        bytes.extend([b'x'; 40]);
        assert_eq!(take(&bytes), SegmentStreamError::Damaged);
    }
}
