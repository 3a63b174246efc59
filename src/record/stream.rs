//! A segment as it arrives: bytes in, entries out, as soon as their block is complete.

use gaunt_schema::{Delivery, UnixMs, text};

use super::segment::{self, Beginning, HEADER, Unreadable, VERSION};

/// Why bytes that arrive are no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// It does not begin as a segment does.
    #[error("it is no recording; is it gaunt that answers there?")]
    NoHeader,
    /// It is of another version.
    #[error(
        "it is of version {0} of the format and this gaunt reads {VERSION}; use the same gaunt on both sides"
    )]
    Version(u32),
    /// A block is not what it says it is.
    #[error("a block of it is damaged")]
    Damaged,
}

/// What has arrived of a segment and is not read yet.
#[derive(Debug, Default)]
pub struct Stream {
    bytes: Vec<u8>,
    begun: bool,
    period_ms: u32,
    limits: text::Limits,
}

impl Stream {
    /// Takes what arrived and gives the entries that are complete now.
    pub fn take(&mut self, arrived: &[u8]) -> Result<Vec<(UnixMs, Delivery)>, StreamError> {
        self.bytes.extend_from_slice(arrived);
        let mut at = 0;
        if !self.begun {
            if self.bytes.len() < HEADER {
                return Ok(Vec::new());
            }
            self.period_ms = segment::read_header(&self.bytes).map_err(|error| match error {
                Unreadable::NoHeader => StreamError::NoHeader,
                Unreadable::Version(version) => StreamError::Version(version),
            })?;
            (self.begun, at) = (true, HEADER);
        }
        let mut entries = Vec::new();
        loop {
            let rest = &self.bytes[at..];
            let length = match segment::beginning(rest) {
                Beginning::Block(length) if length <= rest.len() => length,
                Beginning::Block(_) | Beginning::More => break,
                Beginning::Other => return Err(StreamError::Damaged),
            };
            let (block, _) = segment::block_at(rest).ok_or(StreamError::Damaged)?;
            entries.extend(block.deliveries(&self.limits));
            at += length;
        }
        self.bytes.drain(..at);
        Ok(entries)
    }

    /// The time between two scrapes of a target in milliseconds, once the header has arrived.
    pub fn period_ms(&self) -> Option<u32> {
        self.begun.then_some(self.period_ms)
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::Target;

    use super::*;

    fn block(number: u32) -> Vec<u8> {
        let target = Target {
            id: gaunt_schema::TargetId(number),
            address: "a:1".into(),
            node: None,
            origin: "test".into(),
        };
        let mut payload = Vec::new();
        let at = UnixMs(i64::from(number));
        super::super::entry::write(&Delivery::Targets(vec![target]), at, &mut payload);
        segment::block(&payload, 1, at, at).unwrap()
    }

    #[test]
    fn entries_come_as_soon_as_their_block_is_complete_however_it_is_cut() {
        let mut bytes = segment::header(500, UnixMs(0));
        for number in 0..5 {
            bytes.extend(block(number));
        }
        for step in 1..bytes.len() {
            let mut stream = Stream::default();
            let came: Vec<i64> = bytes
                .chunks(step)
                .flat_map(|part| stream.take(part).unwrap())
                .map(|(at, _)| at.0)
                .collect();
            assert_eq!(came, [0, 1, 2, 3, 4], "in parts of {step}");
            assert_eq!((stream.period_ms(), stream.bytes.len()), (Some(500), 0));
        }
    }

    #[test]
    fn what_is_no_segment_is_refused() {
        let take = |bytes: &[u8]| Stream::default().take(bytes).unwrap_err();
        assert_eq!(take(b"HTTP/1.1 200 OK and then some"), StreamError::NoHeader);
        let mut bytes = segment::header(500, UnixMs(0));
        bytes.extend(block(0));
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert_eq!(take(&bytes), StreamError::Damaged);
        let mut bytes = segment::header(500, UnixMs(0));
        bytes.extend([b'x'; 40]);
        assert_eq!(take(&bytes), StreamError::Damaged);
    }
}
