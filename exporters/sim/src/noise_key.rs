//! Random noise as a pure function of a key, so that a run does not depend on how often it is sampled.

/// A key into an infinite tree of random numbers: the splitmix64 mixing function over a path of numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoiseKey(u64);

impl NoiseKey {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix_bits(seed ^ 0x6761_756e_742d_7369))
    }

    /// The subkey with the given number.
    pub(crate) fn child_key(self, number: u64) -> Self {
        Self(mix_bits(
            self.0.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        ))
    }

    /// A number in [0, 1).
    pub(crate) fn random_unit(self) -> f64 {
        // The upper 53 bits: the precision of an `f64` fraction.
        (mix_bits(self.0) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number from `low` (inclusive) to `high` (exclusive).
    pub(crate) fn random_between(self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.random_unit()
    }

    /// A factor around 1 that differs from it by at most `spread`.
    pub(crate) fn random_factor(self, spread: f64) -> f64 {
        self.random_between(1.0 - spread, 1.0 + spread)
    }

    /// A whole number below `limit`.
    pub(crate) fn random_below(self, limit: u64) -> u64 {
        (self.random_unit() * limit as f64) as u64
    }
}

fn mix_bits(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fill_their_range_evenly() {
        let mut tenths = [0_u32; 10];
        for number in 0..10_000 {
            tenths[(NoiseKey::new(1).child_key(number).random_unit() * 10.0) as usize] += 1;
        }
        assert!(tenths.iter().all(|&count| (900..1100).contains(&count)), "{tenths:?}");
    }

    #[test]
    fn seeds_and_children_differ() {
        let first = |seed, child| NoiseKey::new(seed).child_key(child).random_unit().to_bits();
        assert_ne!(first(1, 0), first(2, 0));
        assert_ne!(first(1, 0), first(1, 1));
        assert_eq!(first(1, 0), first(1, 0));
    }
}
