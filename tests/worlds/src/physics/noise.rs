//! Noise as a function of time: the same at whatever cadence it is asked for.

use crate::random::RandomKey;

/// A source of noise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noise {
    seed: u64,
}

/// The finalizer of splitmix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Noise {
    /// The noise of a key.
    pub(super) fn new(key: RandomKey) -> Self {
        Self { seed: key.bits() }
    }

    /// The noise of one of many like things.
    pub(super) fn of(self, index: usize) -> Self {
        Self { seed: mix(self.seed ^ mix(index as u64 ^ 0x5bd1_e995)) }
    }

    fn bits(self, index: i64) -> u64 {
        mix(self.seed ^ (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A number from 0 to 1 for an index.
    pub(super) fn unit(self, index: i64) -> f64 {
        (self.bits(index) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number with mean 0 and standard deviation 1, within ±3.5, for an index.
    pub(super) fn normal(self, index: i64) -> f64 {
        let bits = self.bits(index);
        let sum: u64 = (0..4).map(|part| (bits >> (16 * part)) & 0xffff).sum();
        (sum as f64 / 65_536.0 - 2.0) * 3.0_f64.sqrt()
    }

    /// Correlated noise with mean 0 and standard deviation 1: it forgets its value within a period.
    pub(super) fn wave(self, t_s: f64, period_s: f64) -> f64 {
        let place = t_s / period_s;
        let index = place.floor();
        let share = place - index;
        let left = self.normal(index as i64);
        let right = self.normal(index as i64 + 1);
        let sum = left * (1.0 - share) + right * share;
        sum / ((1.0 - share).powi(2) + share.powi(2)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_have_unit_deviation_and_are_smooth() {
        let noise = Noise::new(RandomKey::new(3));
        let values: Vec<f64> = (0..20_000).map(|i| noise.wave(f64::from(i), 7.3)).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        assert!(mean.abs() < 0.06, "{mean}");
        assert!((variance / values.len() as f64 - 1.0).abs() < 0.1);
        assert!((noise.wave(5.0, 10.0) - noise.wave(5.01, 10.0)).abs() < 0.02);
    }
}
