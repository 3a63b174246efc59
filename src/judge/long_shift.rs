//! Long shifts: a job whose steps take longer than one round shows its pace over several rounds only.

use serde::{Deserialize, Serialize};

use super::shift_detector::ShiftDetector;

/// Rounds of which one mean is made: two minutes where samples are not rare.
const LONG_ROUNDS: u8 = 4;

/// A shift of the mean of several rounds: of a job whose pace swings from one to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct LongShift {
    means: ShiftDetector,
    /// The last mean.
    last: f32,
    /// The rounds since then, and their sum.
    rounds: u8,
    sum: f32,
}

impl LongShift {
    pub(super) fn add_value(&mut self, value: f64, floor: f64) {
        self.sum += value as f32;
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds >= LONG_ROUNDS {
            self.last = self.sum / f32::from(self.rounds);
            self.means.add_value(f64::from(self.last), floor, true);
            (self.rounds, self.sum) = (0, 0.0);
        }
    }

    /// Forgets the rounds before a pause, which began in the last of them.
    pub(super) fn begin_pause(&mut self) {
        (self.rounds, self.sum) = (0, 0.0);
    }

    /// Whether a shift is likely that is at least so large.
    pub(super) fn is_likely(&self, least: f64) -> bool {
        self.means.is_likely() && self.means.rise_of(self.last.into()) >= least
    }

    /// Returns the last mean.
    pub(super) fn last(&self) -> f64 {
        self.last.into()
    }
}
