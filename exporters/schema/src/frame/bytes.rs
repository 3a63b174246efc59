//! Byte encoding of numbers and texts: appended to a buffer, and decoded from a slice with bounds checks.

use super::FrameError;

/// Appends a number as a varint: seven bits per byte, the least significant first.
pub(super) fn encode_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a text with its length before it.
pub(super) fn encode_text(text: &str, out: &mut Vec<u8>) {
    encode_number(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// Maps signed numbers to unsigned ones so that small magnitudes stay small.
#[inline]
pub(super) fn zigzag_encode(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// Reverses [`zigzag_encode`].
#[inline]
pub(super) fn zigzag_decode(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// The unread rest of a part of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteDecoder<'a> {
    /// The name of the part in errors.
    part: &'static str,
    left: &'a [u8],
}

impl<'a> ByteDecoder<'a> {
    pub(super) fn new(part: &'static str, left: &'a [u8]) -> Self {
        Self { part, left }
    }

    #[inline]
    pub(super) fn next_bytes(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        let (bytes, left) =
            self.left.split_at_checked(count).ok_or(FrameError::Short(self.part))?;
        self.left = left;
        Ok(bytes)
    }

    #[inline]
    pub(super) fn decode_byte(&mut self) -> Result<u8, FrameError> {
        self.next_bytes(1).map(|byte| byte[0])
    }

    #[inline]
    pub(super) fn decode_number(&mut self) -> Result<u64, FrameError> {
        let mut number = 0;
        for (index, byte) in self.left.iter().enumerate().take(10) {
            number |= u64::from(byte & 0x7f) << (7 * index);
            if *byte < 0x80 {
                self.left = &self.left[index + 1..];
                return Ok(number);
            }
        }
        Err(FrameError::Short(self.part))
    }

    /// A count of items that take at least one byte each; it is checked against the rest before any allocation.
    pub(super) fn decode_count(&mut self) -> Result<usize, FrameError> {
        let count = self.decode_number()?;
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= self.left.len())
            .ok_or(FrameError::Number(self.part, count, self.left.len() as u64))
    }

    /// A text; invalid UTF-8 in it is replaced.
    pub(super) fn decode_text(&mut self) -> Result<std::borrow::Cow<'a, str>, FrameError> {
        let length = self.decode_count()?;
        self.next_bytes(length).map(String::from_utf8_lossy)
    }

    /// A nested part, with its length before it.
    pub(super) fn decode_part(
        &mut self,
        part: &'static str,
    ) -> Result<ByteDecoder<'a>, FrameError> {
        let length = self.decode_count()?;
        Ok(ByteDecoder::new(part, self.next_bytes(length)?))
    }

    /// All unread bytes.
    pub(super) fn remaining_bytes(&self) -> &'a [u8] {
        self.left
    }

    pub(super) fn expect_end(&self) -> Result<(), FrameError> {
        if self.left.is_empty() {
            Ok(())
        } else {
            Err(FrameError::Long(self.part, self.left.len()))
        }
    }

    /// A number that is below a limit.
    pub(super) fn decode_number_below(&mut self, limit: u64) -> Result<u64, FrameError> {
        let number = self.decode_number()?;
        if number < limit { Ok(number) } else { Err(FrameError::Number(self.part, number, limit)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_at_any_size_and_sign() {
        for number in [0, 1, -1, 63, 64, -64, -65, 1 << 40, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            encode_number(zigzag_encode(number), &mut out);
            let mut bytes = ByteDecoder::new("test", &out);
            assert_eq!(bytes.decode_number().map(zigzag_decode), Ok(number));
            assert_eq!(bytes.expect_end(), Ok(()));
        }
        assert_eq!(
            ByteDecoder::new("test", &[0xff; 20]).decode_number(),
            Err(FrameError::Short("test"))
        );
        assert_eq!(
            ByteDecoder::new("test", &[0xff]).decode_number(),
            Err(FrameError::Short("test"))
        );
    }

    #[test]
    fn count_beyond_remaining_bytes_is_rejected() {
        let mut out = Vec::new();
        encode_number(u64::MAX, &mut out);
        assert_eq!(
            ByteDecoder::new("test", &out).decode_count(),
            Err(FrameError::Number("test", u64::MAX, 0))
        );
        out.clear();
        encode_text("mlx5_0", &mut out);
        assert_eq!(ByteDecoder::new("test", &out).decode_text().unwrap(), "mlx5_0");
        assert!(ByteDecoder::new("test", &out[..3]).decode_text().is_err());
    }
}
