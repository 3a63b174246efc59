//! The data pattern of every rank, on the host: the same function as in `kernels/pattern.h`, for host transfers.

use crate::cuda::kernel_set::ElementType;

/// The value of an element: 1 to 16, a function of the rank that sends it, its index and the round.
pub(crate) fn element_value(rank: u32, index: u64, round: u32) -> u32 {
    let mut hash = (index as u32).wrapping_mul(0x9E37_79B1)
        ^ ((index >> 32) as u32).wrapping_mul(0x85EB_CA77)
        ^ rank.wrapping_add(1).wrapping_mul(0xC2B2_AE3D)
        ^ round.wrapping_mul(0x27D4_EB2F);
    hash ^= hash >> 15;
    hash = hash.wrapping_mul(0x2C1B_3C6D);
    hash ^= hash >> 12;
    hash = hash.wrapping_mul(0x297A_2D39);
    (hash >> 28) + 1
}

/// The word of pinned memory at a position: one f32, or two bf16.
pub(crate) fn word_at(element: ElementType, index: u64, rank: u32, round: u32) -> u32 {
    let bits = |index| (element_value(rank, index, round) as f32).to_bits();
    match element {
        ElementType::F32 => bits(index),
        ElementType::Bf16 => bits(2 * index) >> 16 | bits(2 * index + 1) & 0xffff_0000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_small_spread_and_different_for_ranks_indices_and_rounds() {
        let mut counts = [0_u32; 17];
        for index in 0..16_000 {
            counts[element_value(3, index, 1) as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        assert!(counts[1..].iter().all(|count| (700..1300).contains(count)), "{counts:?}");
        let differs = |other: fn(u64) -> u32| {
            (0..1600).filter(|index| element_value(3, *index, 1) != other(*index)).count()
        };
        for count in [
            differs(|index| element_value(4, index, 1)),
            differs(|index| element_value(3, index + 1, 1)),
            differs(|index| element_value(3, index + 16, 1)),
            differs(|index| element_value(3, index, 2)),
        ] {
            assert!(count > 1400, "{count} of 1600 differ");
        }
    }
}
