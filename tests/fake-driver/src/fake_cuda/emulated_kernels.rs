//! The effects of the kernels, by name. Written from their specification, not from their source.

use super::{
    cuda_codes::ILLEGAL_ADDRESS,
    fake_memory::{FakeCudaMemory, FakeMemoryRange, MemoryLocation},
};

/// The transfer of a kernel, which takes simulated time.
pub(super) struct KernelTransfer {
    pub(super) from: MemoryLocation,
    pub(super) to: MemoryLocation,
    pub(super) bytes: usize,
    /// The written range, in which a fault can flip a bit.
    pub(super) wrote: FakeMemoryRange,
}

/// Executes a kernel; `may` returns whether it can access memory at a location.
pub(super) fn execute_kernel(
    memory: &FakeCudaMemory,
    name: &str,
    arguments: &[u64],
    may: &dyn Fn(MemoryLocation) -> bool,
) -> Result<KernelTransfer, u32> {
    let reach = |at: u64, bytes: usize| {
        memory.find_range(at, bytes).filter(|range| may(range.home)).ok_or(ILLEGAL_ADDRESS)
    };
    let (kernel, element) = name.rsplit_once('_').ok_or(ILLEGAL_ADDRESS)?;
    let size = element_size(element);
    match (kernel, arguments) {
        ("gaunt", &[to, from, bytes]) if element == "copy" => {
            let (to, from) = (reach(to, bytes as usize)?, reach(from, bytes as usize)?);
            memory.write_range(to, &memory.read_range(from));
            Ok(KernelTransfer { from: from.home, to: to.home, bytes: bytes as usize, wrote: to })
        }
        ("gaunt_add", &[to, mine, theirs, count]) => {
            let bytes = count as usize * size;
            let (to, mine) = (reach(to, bytes)?, reach(mine, bytes)?);
            let theirs = reach(theirs, bytes)?;
            memory.write_range(
                to,
                &sum_elements(&memory.read_range(mine), &memory.read_range(theirs), element),
            );
            Ok(KernelTransfer { from: theirs.home, to: to.home, bytes, wrote: to })
        }
        ("gaunt_pattern", &[to, count, base, rank, round]) => {
            let bytes = count as usize * size;
            let to = reach(to, bytes)?;
            let mut values = Vec::with_capacity(bytes);
            for at in 0..count {
                let value = sent_value(rank as u32, base + at, round as u32) as f32;
                values.extend_from_slice(&encode_element(value, size)[..size]);
            }
            memory.write_range(to, &values);
            Ok(KernelTransfer { from: to.home, to: to.home, bytes, wrote: to })
        }
        ("gaunt_check", &[data, count, base, place, first, ranks, round, wrong]) => {
            let data = reach(data, count as usize * size)?;
            let wrong = reach(wrong, 16)?;
            let right = |at: u64| {
                let sources = first as u32..(first + ranks) as u32;
                let sum: u32 = sources.map(|rank| sent_value(rank, base + at, round as u32)).sum();
                encode_element(sum as f32, size)
            };
            let is = memory.read_range(data);
            let elements = is.chunks_exact(size).zip(0_u64..);
            let bad: Vec<u64> = elements
                .filter(|(is, at)| **is != right(*at)[..size])
                .map(|(_, at)| place + at)
                .collect();
            let known = memory.read_range(wrong);
            let number = |at: usize| known[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
            let count = number(0) + bad.len() as u64;
            let first = bad.first().map_or(0, |at| !at).max(number(8));
            memory.write_range(wrong, &[count.to_le_bytes(), first.to_le_bytes()].concat());
            Ok(KernelTransfer { from: data.home, to: data.home, bytes: is.len(), wrote: wrong })
        }
        _ => Err(ILLEGAL_ADDRESS),
    }
}

/// The sums of the elements of two buffers.
pub(super) fn sum_elements(one: &[u8], other: &[u8], element: &str) -> Vec<u8> {
    let size = element_size(element);
    let pairs = one.chunks_exact(size).zip(other.chunks_exact(size));
    let mut sum = Vec::with_capacity(one.len());
    for (one, other) in pairs {
        sum.extend_from_slice(
            &encode_element(decode_element(one) + decode_element(other), size)[..size],
        );
    }
    sum
}

/// Bytes of an element.
fn element_size(element: &str) -> usize {
    if element == "bf16" { 2 } else { 4 }
}

/// The value that a rank sends, as the kernels' pattern defines it.
fn sent_value(rank: u32, index: u64, round: u32) -> u32 {
    let parts = [
        (index & 0xffff_ffff, 0x9E37_79B1_u64),
        (index >> 32, 0x85EB_CA77),
        (u64::from(rank) + 1, 0xC2B2_AE3D),
        (u64::from(round), 0x27D4_EB2F),
    ];
    let mix = parts.iter().fold(0, |mix, (part, by)| mix ^ part.wrapping_mul(*by) as u32);
    let mix = (mix ^ mix >> 15).wrapping_mul(0x2C1B_3C6D);
    let mix = (mix ^ mix >> 12).wrapping_mul(0x297A_2D39);
    (mix >> 28) + 1
}

/// An element as a float: a bf16 is the upper half of one.
fn decode_element(bytes: &[u8]) -> f32 {
    match *bytes {
        [a, b] => f32::from_le_bytes([0, 0, a, b]),
        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
        _ => f32::NAN,
    }
}

/// A float as an element of the first `size` bytes, rounded to the nearest even as the GPU does.
fn encode_element(value: f32, size: usize) -> [u8; 4] {
    let bits = value.to_bits();
    if size == 4 {
        return bits.to_le_bytes();
    }
    let rounded = bits + 0x7fff + (bits >> 16 & 1);
    (rounded >> 16).to_le_bytes()
}
