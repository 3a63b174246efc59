//! How long a run is, and how often it has faults: most are short with many of them, and some are long.

use crate::seeded_random::SeededRandom;

/// Seeds of one group are next to each other: one is a pair.
const GROUP: u64 = crate::PAIR_EVERY;

/// One group in so many is long: the one of this number, and those that follow.
const LONG_EVERY: u64 = 29;
const FIRST_LONG: u64 = 14;

/// Seconds with faults of a long run, and seconds after them in which everything must recover.
const FAULTY: u64 = 150;
const QUIET: u64 = 100;

/// The same for some long runs. A node may stay cut off for 40 s of it, and is read again within 16 s; after 180 s without
/// evidence a finding that came and went often is closed, too.
const LONG_QUIET: u64 = 270;

/// Seconds with faults of a short run: so many at least, and below so many more.
const SHORT_FAULTY: u64 = 10;
const MORE_FAULTY: u64 = 30;

/// Seconds for which everything has recovered at the end of a short run.
pub(crate) const SETTLED: u64 = 5;

/// How long a run is, and how often it has faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunPace {
    /// Seconds with faults.
    pub(crate) faulty: u64,
    /// Seconds after them in which everything must recover.
    pub(crate) quiet: u64,
    /// How many times as frequent as in a long run faults are.
    pub(crate) density: u64,
}

impl RunPace {
    /// The pace of the run of this seed.
    pub(crate) fn of_seed(seed: u64) -> Self {
        if seed / GROUP % LONG_EVERY == FIRST_LONG {
            let quiet = if matches!(seed % 8, 1 | 2) { LONG_QUIET } else { QUIET };
            return Self { faulty: FAULTY, quiet, density: 1 };
        }
        let mut random = SeededRandom::new(seed ^ 0x9ace);
        let (faulty, density) = (SHORT_FAULTY + random.below(MORE_FAULTY), 1 + random.below(3));
        Self { faulty, quiet: QUIET, density }
    }

    /// Whether it ends once everything has recovered, and nothing that is broken stays so after the last fault.
    pub(crate) fn is_short(&self) -> bool {
        self.faulty != FAULTY
    }

    /// Whether everything that came and went must be closed at its end.
    pub(crate) fn closes_all(&self) -> bool {
        self.quiet == LONG_QUIET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_are_of_each_kind_and_few() {
        let long = |seed: &u64| !RunPace::of_seed(*seed).is_short();
        let seeds: Vec<u64> = (0..1_000).filter(long).collect();
        assert!((20..50).contains(&seeds.len()), "{seeds:?}");
        for kind in 0..8 {
            assert!(seeds.iter().any(|seed| seed % 8 == kind), "{kind}");
        }
        assert!(seeds.iter().any(|seed| RunPace::of_seed(*seed).closes_all()));
    }
}
