//! Numbers and texts in bytes: written at the end of a list, read from the beginning of one and never beyond its end.

use super::Fault;

/// Appends a number, seven bits a byte, the least first.
pub(super) fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a text with its length before it.
pub(super) fn put_text(text: &str, out: &mut Vec<u8>) {
    put_number(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// Signed numbers so that small ones are small, whatever their sign.
#[inline]
pub(super) fn fold(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// The signed number that was folded.
#[inline]
pub(super) fn unfold(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// What is left of a part of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a> {
    /// What the part is called in a fault.
    part: &'static str,
    left: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub(super) fn new(part: &'static str, left: &'a [u8]) -> Self {
        Self { part, left }
    }

    #[inline]
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, left) = self.left.split_at_checked(count).ok_or(Fault::Short(self.part))?;
        self.left = left;
        Ok(taken)
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, Fault> {
        self.take(1).map(|byte| byte[0])
    }

    #[inline]
    pub(super) fn number(&mut self) -> Result<u64, Fault> {
        let mut number = 0;
        for (at, byte) in self.left.iter().enumerate().take(10) {
            number |= u64::from(byte & 0x7f) << (7 * at);
            if *byte < 0x80 {
                self.left = &self.left[at + 1..];
                return Ok(number);
            }
        }
        Err(Fault::Short(self.part))
    }

    /// A count of things of which each takes a byte at least, so that nobody makes room for what cannot come.
    pub(super) fn count(&mut self) -> Result<usize, Fault> {
        let count = self.number()?;
        usize::try_from(count).ok().filter(|count| *count <= self.left.len()).ok_or(Fault::Number(
            self.part,
            count,
            self.left.len() as u64,
        ))
    }

    /// A text; what is no UTF-8 in it is replaced.
    pub(super) fn text(&mut self) -> Result<std::borrow::Cow<'a, str>, Fault> {
        let length = self.count()?;
        self.take(length).map(String::from_utf8_lossy)
    }

    /// A part of this part, with its length before it.
    pub(super) fn part(&mut self, part: &'static str) -> Result<Bytes<'a>, Fault> {
        let length = self.count()?;
        Ok(Bytes::new(part, self.take(length)?))
    }

    /// All that is left.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.left
    }

    pub(super) fn end(&self) -> Result<(), Fault> {
        if self.left.is_empty() { Ok(()) } else { Err(Fault::Long(self.part, self.left.len())) }
    }

    /// A number that is below a limit.
    pub(super) fn number_below(&mut self, limit: u64) -> Result<u64, Fault> {
        let number = self.number()?;
        if number < limit { Ok(number) } else { Err(Fault::Number(self.part, number, limit)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_whatever_their_size_and_sign() {
        for number in [0, 1, -1, 63, 64, -64, -65, 1 << 40, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            put_number(fold(number), &mut out);
            let mut bytes = Bytes::new("test", &out);
            assert_eq!(bytes.number().map(unfold), Ok(number));
            assert_eq!(bytes.end(), Ok(()));
        }
        assert_eq!(Bytes::new("test", &[0xff; 20]).number(), Err(Fault::Short("test")));
        assert_eq!(Bytes::new("test", &[0xff]).number(), Err(Fault::Short("test")));
    }

    #[test]
    fn nobody_makes_room_for_what_cannot_come() {
        let mut out = Vec::new();
        put_number(u64::MAX, &mut out);
        assert_eq!(Bytes::new("test", &out).count(), Err(Fault::Number("test", u64::MAX, 0)));
        out.clear();
        put_text("mlx5_0", &mut out);
        assert_eq!(Bytes::new("test", &out).text().unwrap(), "mlx5_0");
        assert!(Bytes::new("test", &out[..3]).text().is_err());
    }
}
