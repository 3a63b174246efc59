//! Random numbers that depend on a seed and purpose words alone, so that adding one draw changes no other.

/// A key for random numbers: a value, not a stream. Each method gives the same result whenever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RandomKey(u64);

impl RandomKey {
    /// The key of a seed.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x6761_756e_7477_6f72))
    }

    /// The key of a purpose below this key.
    #[must_use]
    pub fn child(self, purpose: &str) -> Self {
        // FNV-1a over the bytes, then mixed, so that similar words give unrelated keys.
        let hash = purpose.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(mix(self.0.rotate_left(17) ^ mix(hash)))
    }

    /// The key of one of many like things below this key.
    #[must_use]
    pub fn child_index(self, index: usize) -> Self {
        let salted = (index as u64).wrapping_add(0x51ed_270b_7a3f_1c95);
        Self(mix(self.0.rotate_left(29) ^ mix(salted)))
    }

    /// 64 random bits.
    pub fn bits(self) -> u64 {
        mix(self.0 ^ 0x2545_f491_4f6c_dd1d)
    }

    /// A number from 0 to 1, 1 excluded.
    pub fn unit(self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number from `low` to `high`, all equally likely.
    pub fn uniform(self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// A number from `low` to `high`, both above 0, of which every decade is equally likely.
    pub fn log_uniform(self, low: f64, high: f64) -> f64 {
        (low.ln() + (high.ln() - low.ln()) * self.unit()).exp()
    }

    /// Whether something of this probability happens.
    pub fn chance(self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A number below `count`, all equally likely; 0 if `count` is 0.
    pub fn index(self, count: usize) -> usize {
        ((self.unit() * count as f64) as usize).min(count.saturating_sub(1))
    }

    /// One of some values, all equally likely.
    pub fn pick<T: Copy>(self, values: &[T]) -> T {
        values[self.index(values.len())]
    }

    /// A number from the normal distribution with mean 0 and standard deviation 1.
    pub fn normal(self) -> f64 {
        let radius = (-2.0 * (1.0 - self.child("radius").unit()).ln()).sqrt();
        let angle = std::f64::consts::TAU * self.child("angle").unit();
        radius * angle.cos()
    }
}

/// The finalizer of splitmix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_values() {
        let key = RandomKey::new(7).child("word").child_index(3);
        assert_eq!(key.uniform(0.0, 1.0).to_bits(), key.uniform(0.0, 1.0).to_bits());
        assert_ne!(key.bits(), RandomKey::new(7).child("words").child_index(3).bits());
        assert_ne!(key.bits(), RandomKey::new(8).child("word").child_index(3).bits());
        assert_ne!(key.child_index(0).bits(), key.child_index(1).bits());
    }

    #[test]
    fn draws_have_their_distributions() {
        let keys: Vec<RandomKey> = (0..20_000).map(|i| RandomKey::new(1).child_index(i)).collect();
        let mean_of = |draw: &dyn Fn(RandomKey) -> f64| {
            keys.iter().map(|key| draw(*key)).sum::<f64>() / keys.len() as f64
        };
        assert!((mean_of(&|key| key.uniform(2.0, 4.0)) - 3.0).abs() < 0.02);
        assert!((mean_of(&|key| key.log_uniform(0.01, 1.0).log10()) + 1.0).abs() < 0.02);
        assert!((mean_of(&|key| f64::from(u8::from(key.chance(0.3)))) - 0.3).abs() < 0.02);
        assert!((mean_of(&|key| key.index(5) as f64) - 2.0).abs() < 0.05);
        assert!(mean_of(&RandomKey::normal).abs() < 0.03);
        assert!((mean_of(&|key| key.normal().powi(2)) - 1.0).abs() < 0.05);
        assert_eq!(keys[0].index(0), 0);
    }
}
