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

/// Executes a kernel; `can_access` returns whether it can access memory at a location.
pub(super) fn execute_kernel(
    memory: &FakeCudaMemory,
    name: &str,
    arguments: &[u64],
    can_access: &dyn Fn(MemoryLocation) -> bool,
) -> Result<KernelTransfer, u32> {
    let find_accessible = |address: u64, bytes: usize| {
        let range = memory.find_range(address, bytes);
        range.filter(|range| can_access(range.location)).ok_or(ILLEGAL_ADDRESS)
    };
    let (kernel, element) = name.rsplit_once('_').ok_or(ILLEGAL_ADDRESS)?;
    let size = element_size(element);
    match (kernel, arguments) {
        ("gaunt", &[to, from, bytes]) if element == "copy" => {
            let (to, from) =
                (find_accessible(to, bytes as usize)?, find_accessible(from, bytes as usize)?);
            memory.write_range(to, &memory.read_range(from));
            Ok(KernelTransfer {
                from: from.location,
                to: to.location,
                bytes: bytes as usize,
                wrote: to,
            })
        }
        ("gaunt_add", &[to, left, right, count]) => {
            let bytes = count as usize * size;
            let (to, left) = (find_accessible(to, bytes)?, find_accessible(left, bytes)?);
            let right = find_accessible(right, bytes)?;
            memory.write_range(
                to,
                &sum_elements(&memory.read_range(left), &memory.read_range(right), element),
            );
            Ok(KernelTransfer { from: right.location, to: to.location, bytes, wrote: to })
        }
        ("gaunt_pattern", &[to, count, base, rank, round]) => {
            let bytes = count as usize * size;
            let to = find_accessible(to, bytes)?;
            let mut values = Vec::with_capacity(bytes);
            for index in 0..count {
                let value = sent_value(rank as u32, base + index, round as u32) as f32;
                values.extend_from_slice(&encode_element(value, size)[..size]);
            }
            memory.write_range(to, &values);
            Ok(KernelTransfer { from: to.location, to: to.location, bytes, wrote: to })
        }
        ("gaunt_check", &[data, count, base, offset, first, ranks, round, wrong]) => {
            let data = find_accessible(data, count as usize * size)?;
            let wrong = find_accessible(wrong, 16)?;
            let expected = |index: u64| {
                let sources = first as u32..(first + ranks) as u32;
                let sum: u32 =
                    sources.map(|rank| sent_value(rank, base + index, round as u32)).sum();
                encode_element(sum as f32, size)
            };
            let found = memory.read_range(data);
            let elements = found.chunks_exact(size).zip(0_u64..);
            let wrong_offsets: Vec<u64> = elements
                .filter(|(element, index)| **element != expected(*index)[..size])
                .map(|(_, index)| offset + index)
                .collect();
            let previous = memory.read_range(wrong);
            let number =
                |start: usize| previous[start..start + 8].try_into().map_or(0, u64::from_le_bytes);
            let count = number(0) + wrong_offsets.len() as u64;
            let first = wrong_offsets.first().map_or(0, |offset| !offset).max(number(8));
            memory.write_range(wrong, &[count.to_le_bytes(), first.to_le_bytes()].concat());
            Ok(KernelTransfer {
                from: data.location,
                to: data.location,
                bytes: found.len(),
                wrote: wrong,
            })
        }
        _ => Err(ILLEGAL_ADDRESS),
    }
}

/// The sums of the elements of two buffers.
pub(super) fn sum_elements(left: &[u8], right: &[u8], element: &str) -> Vec<u8> {
    let size = element_size(element);
    let pairs = left.chunks_exact(size).zip(right.chunks_exact(size));
    let mut sum = Vec::with_capacity(left.len());
    for (left, right) in pairs {
        sum.extend_from_slice(
            &encode_element(decode_element(left) + decode_element(right), size)[..size],
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
    let mix = parts.iter().fold(0, |mix, (part, factor)| mix ^ part.wrapping_mul(*factor) as u32);
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
