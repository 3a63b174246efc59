//! The random numbers of a soak run, the same ones for the same seed.

/// Random numbers that repeat (a 64-bit linear congruential generator, upper half).
pub(super) struct SoakRandom(pub(super) u64);

impl SoakRandom {
    /// A number below `limit`.
    pub(super) fn next_below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}
