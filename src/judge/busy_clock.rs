//! Busy clocks: the lowest clock at which a GPU usually works.
//!
//! Clocks are sampled at instants. A GPU that waits or copies boosts its clock, one that computes at its power limit
//! lowers it: so a mean says little, but under its usual load a GPU does not fall below the lowest clock of its past.

/// The lowest usual clock of one GPU, in hertz: eight bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct BusyClock {
    lowest: f32,
    samples: u16,
    /// Whether the mean of an earlier past was restored: better than a few samples, which may be of a fault.
    restored: bool,
}

/// Samples until the lowest clock is known.
const LEARNED_SAMPLES: u16 = 10;

/// How far it moves towards a higher clock with each sample, to a slightly lower one, and to a far lower one.
const RISE: f32 = 0.001;
const FOLLOW: f32 = 0.3;
const FALL: f32 = 0.02;

/// A clock × this or more is slightly lower.
const SLIGHTLY: f32 = 0.97;

impl BusyClock {
    /// Creates one of a past of which only the mean may be known.
    pub(super) fn of_restored() -> Self {
        Self { restored: true, ..Self::default() }
    }

    /// Creates one whose lowest clock is known from before a restart.
    pub(super) fn of_known(hertz: f32) -> Self {
        Self { lowest: hertz, samples: LEARNED_SAMPLES, restored: true }
    }

    /// Returns the lowest clock that it has learned, if it has.
    pub(super) fn learned_hertz(self) -> Option<f32> {
        (self.samples >= LEARNED_SAMPLES).then_some(self.lowest)
    }

    /// Learns from a clock under load.
    pub(super) fn learn_clock(&mut self, clock: f32) {
        let is_lower = clock < self.lowest || self.samples == 0;
        let part = if !is_lower {
            RISE
        } else if self.samples < LEARNED_SAMPLES {
            1.0
        } else if clock >= self.lowest * SLIGHTLY {
            FOLLOW
        } else {
            FALL
        };
        self.lowest += (clock - self.lowest) * part;
        self.samples = self.samples.saturating_add(1);
    }

    /// Returns the lowest usual clock. Before it is known, that is the mean of its past, or the lowest that was seen by now.
    pub(super) fn lowest_hertz(self, mean: Option<f64>) -> Option<f64> {
        let lowest = f64::from(self.lowest);
        match self.samples {
            LEARNED_SAMPLES.. => Some(lowest),
            1.. if !self.restored => mean.map(|mean| mean.min(lowest)),
            _ => mean,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_of_two_modes_is_learned_and_a_fall_is_not() {
        let mut clock = BusyClock::default();
        for at in 0..60 {
            clock.learn_clock(if at % 3 == 0 { 1.55e9 } else { 2.5e9 });
        }
        let lowest = clock.lowest_hertz(None).unwrap();
        assert!((1.5e9..1.6e9).contains(&lowest), "{lowest}");
        for _ in 0..4 {
            clock.learn_clock(1.2e9);
        }
        assert!(clock.lowest_hertz(None).unwrap() > 1.45e9);
        assert_eq!(BusyClock::default().lowest_hertz(None), None);
        let mut new = BusyClock::default();
        assert_eq!(new.lowest_hertz(Some(1.8e9)), Some(1.8e9));
        new.learn_clock(1.5e9);
        new.learn_clock(1.9e9);
        assert!(new.lowest_hertz(Some(1.8e9)).unwrap() < 1.51e9);
        assert_eq!(new.lowest_hertz(None), None);
        let mut restored = BusyClock::of_restored();
        restored.learn_clock(1.2e9);
        assert_eq!(restored.lowest_hertz(Some(1.8e9)), Some(1.8e9));
        let mut known = BusyClock::of_known(lowest as f32);
        assert_eq!(known.learned_hertz(), Some(lowest as f32));
        for _ in 0..4 {
            known.learn_clock(0.6e9);
        }
        assert!(known.lowest_hertz(Some(1.8e9)).unwrap() > 1.4e9, "a fault right after a restart");
    }
}
