//! XOR chunks: samples as Prometheus compresses them, after Facebook's Gorilla. Instants as differences of differences,
//! values as the bits that changed.
//!
//! Source: `tsdb/chunkenc/xor.go` of Prometheus and its description of the format in `tsdb/docs/format/chunks.md`.

/// The most samples of one chunk: its count has 16 bits.
const MAX_SAMPLES: usize = 1 << 16;

/// The widths of a difference of differences by the number of ones before it; after four of them it has 64 bits.
const DELTA_WIDTHS: [u32; 4] = [0, 14, 17, 20];

/// Decodes a chunk: milliseconds since 1970 and values; none if it is cut off or has another form.
pub(crate) fn decode_xor_chunk(chunk: &[u8]) -> Option<Vec<(i64, f64)>> {
    let (count, body) = chunk.split_first_chunk::<2>()?;
    let count = usize::from(u16::from_be_bytes(*count));
    let mut samples = Vec::with_capacity(count.min(MAX_SAMPLES));
    let mut bits = BitReader { bytes: body, at: 0 };
    let (mut at, mut delta) = (0_i64, 0_i64);
    let mut value = XorValue::default();
    for number in 0..count {
        match number {
            0 => {
                at = bits.read_signed_varint()?;
                value.bits = bits.read_bits(64)?;
            }
            1 => {
                delta = i64::try_from(bits.read_varint()?).ok()?;
                at = at.checked_add(delta)?;
                value.read_next(&mut bits)?;
            }
            _ => {
                delta = delta.checked_add(bits.read_delta_of_delta()?)?;
                at = at.checked_add(delta)?;
                value.read_next(&mut bits)?;
            }
        }
        samples.push((at, f64::from_bits(value.bits)));
    }
    Some(samples)
}

/// The last value, and where its bits differed from those before.
#[derive(Default)]
struct XorValue {
    bits: u64,
    leading: u32,
    trailing: u32,
}

impl XorValue {
    /// Reads the next value.
    fn read_next(&mut self, bits: &mut BitReader<'_>) -> Option<()> {
        if bits.read_bits(1)? == 0 {
            return Some(());
        }
        if bits.read_bits(1)? == 1 {
            self.leading = bits.read_bits(5)? as u32;
            // Zero stands for 64, which does not fit.
            let significant = match bits.read_bits(6)? as u32 {
                0 => 64,
                width => width,
            };
            self.trailing = 64_u32.checked_sub(self.leading + significant)?;
        }
        let width = 64 - self.leading - self.trailing;
        self.bits ^= bits.read_bits(width)?.checked_shl(self.trailing)?;
        Some(())
    }
}

/// Reads bits, the highest of a byte first.
struct BitReader<'a> {
    bytes: &'a [u8],
    /// Position in bits.
    at: usize,
}

impl BitReader<'_> {
    /// The next bits as a number; none beyond the end.
    fn read_bits(&mut self, count: u32) -> Option<u64> {
        let mut value = 0_u64;
        let mut left = count;
        while left > 0 {
            let byte = *self.bytes.get(self.at / 8)?;
            let rest = 8 - (self.at % 8) as u32;
            let taken = rest.min(left);
            let part = (u64::from(byte) >> (rest - taken)) & ((1 << taken) - 1);
            value = (value << taken) | part;
            self.at += taken as usize;
            left -= taken;
        }
        Some(value)
    }

    /// A number in groups of seven bits, the lowest first.
    fn read_varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.read_bits(8)?;
            value |= (byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// The same with a sign in its lowest bit.
    fn read_signed_varint(&mut self) -> Option<i64> {
        let value = self.read_varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn read_delta_of_delta(&mut self) -> Option<i64> {
        let mut ones = 0;
        while ones < DELTA_WIDTHS.len() && self.read_bits(1)? == 1 {
            ones += 1;
        }
        let Some(width) = DELTA_WIDTHS.get(ones).copied() else {
            return Some(self.read_bits(64)? as i64);
        };
        let value = self.read_bits(width)? as i64;
        // Upper half: negative.
        let is_negative = width > 0 && value > 1 << (width - 1);
        Some(if is_negative { value - (1 << width) } else { value })
    }
}

/// Writes bits as the reader expects them.
#[cfg(test)]
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    used: u32,
}

#[cfg(test)]
impl BitWriter {
    fn push(&mut self, value: u64, count: u32) -> &mut Self {
        for bit in (0..count).rev() {
            if self.used.is_multiple_of(8) {
                self.bytes.push(0);
            }
            let last = self.bytes.last_mut().unwrap();
            *last |= (((value >> bit) & 1) as u8) << (7 - self.used % 8);
            self.used += 1;
        }
        self
    }

    /// Writes a number in groups of seven bits, the lowest first.
    fn push_varint(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.push((value & 0x7f) | 0x80, 8);
            value >>= 7;
        }
        self.push(value, 8)
    }
}

/// A chunk of these samples in its longest form: each instant and value is written whole.
#[cfg(test)]
pub(crate) fn encode_xor_chunk(samples: &[(i64, f64)]) -> Vec<u8> {
    let mut bits = BitWriter::default();
    bits.push(samples.len() as u64, 16);
    let (mut before, mut delta, mut value) = (0_i64, 0_i64, 0_u64);
    for (number, (at, sample)) in samples.iter().enumerate() {
        let (next, changed) = (at - before, value ^ sample.to_bits());
        match number {
            0 => bits.push_varint(((at << 1) ^ (at >> 63)) as u64).push(changed, 64),
            1 => bits.push_varint(next as u64),
            _ => bits.push(0b1111, 4).push((next - delta) as u64, 64),
        };
        if number > 0 {
            bits.push(0b11, 2).push(0, 5).push(0, 6).push(changed, 64);
        }
        (before, delta, value) = (*at, next, sample.to_bits());
    }
    bits.bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_chunk_is_decoded() {
        let mut chunk = BitWriter::default();
        // Eight samples; the first at 1,000 (zigzag 2,000: 0xd0 0x0f) with 1.5, the second 15,000 later (0x98 0x75).
        chunk.push(8, 16).push(0xd0, 8).push(0x0f, 8).push(1.5_f64.to_bits(), 64);
        chunk.push(0x98, 8).push(0x75, 8).push(0, 1);
        // The same step and value; then 10 ms late with new bits; 10 ms back with bits in the same place.
        chunk.push(0, 1).push(0, 1);
        let changed = 1.5_f64.to_bits() ^ 1.75_f64.to_bits();
        let (leading, trailing) = (changed.leading_zeros(), changed.trailing_zeros());
        let width = 64 - leading - trailing;
        chunk.push(0b10, 2).push(10, 14).push(0b11, 2);
        chunk
            .push(u64::from(leading), 5)
            .push(u64::from(width), 6)
            .push(changed >> trailing, width);
        chunk.push(0b10, 2).push((1 << 14) - 20, 14).push(0b10, 2).push(changed >> trailing, width);
        // Larger differences, and a value of which all bits changed.
        chunk.push(0b110, 3).push(60_000, 17).push(0, 1);
        chunk.push(0b1110, 4).push((1 << 20) - 60_000, 20).push(0, 1);
        let all = (-1.5_f64).to_bits() ^ !0;
        chunk.push(0b1111, 4).push(1_000_000_000, 64).push(0b11, 2).push(0, 5).push(0, 6);
        chunk.push(1.5_f64.to_bits() ^ all, 64);
        let samples = decode_xor_chunk(&chunk.bytes).unwrap();
        let instants: Vec<i64> = samples.iter().map(|(at, _)| *at).collect();
        let steps: Vec<i64> = instants.windows(2).map(|two| two[1] - two[0]).collect();
        assert_eq!(instants[0], 1_000);
        assert_eq!(steps, [15_000, 15_000, 15_010, 14_990, 74_990, 14_990, 1_000_014_990]);
        let values: Vec<f64> = samples.iter().map(|(_, value)| *value).collect();
        assert_eq!(values[..7], [1.5, 1.5, 1.5, 1.75, 1.5, 1.5, 1.5]);
        assert_eq!(values[7].to_bits(), all);
        for end in 0..chunk.bytes.len() {
            assert_eq!(decode_xor_chunk(&chunk.bytes[..end]), None, "cut at {end}");
        }
    }

    proptest::proptest! {
        #[test]
        fn hostile_chunks_are_no_fault(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            if let Some(samples) = decode_xor_chunk(&bytes) {
                proptest::prop_assert!(samples.len() < MAX_SAMPLES);
            }
        }
    }
}
