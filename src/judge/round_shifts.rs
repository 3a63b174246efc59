//! Shifts over several rounds of a job at once: where one round alone may be a long step, or contain a pause.

use serde::{Deserialize, Serialize};

use super::shift_detector::ShiftDetector;

/// Rounds of which one mean is made: two minutes where samples are not rare.
const MEAN_ROUNDS: u8 = 4;

/// Rounds of which the median is taken.
const MEDIAN_ROUNDS: usize = 5;

/// How many times less the median must vary than the rounds themselves.
const CALMER_TIMES: f32 = 3.0;

/// The spreads of the median from which a round is clearly above it.
const CLEAR_SPREADS: f32 = 2.0;

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
        if self.rounds >= MEAN_ROUNDS {
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
    pub(super) fn last_mean(&self) -> f64 {
        self.last.into()
    }
}

/// A shift of the median of the last rounds: pauses too short to be seen as such, such as evaluations, do not move it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct MedianShift {
    medians: ShiftDetector,
    last: [f32; MEDIAN_ROUNDS],
    /// The number of them that are known.
    rounds: u8,
    /// Whether the last round shows the shift, and the one next below the median is as close to it as medians usually are.
    stands: bool,
}

impl MedianShift {
    pub(super) fn add_value(&mut self, value: f64, floor: f64, rare: bool) {
        self.last.rotate_left(1);
        self.last[MEDIAN_ROUNDS - 1] = value as f32;
        self.rounds = self.rounds.saturating_add(1).min(MEDIAN_ROUNDS as u8);
        if usize::from(self.rounds) < MEDIAN_ROUNDS {
            return;
        }
        let mut sorted = self.last;
        sorted.sort_by(f32::total_cmp);
        let middle = MEDIAN_ROUNDS / 2;
        self.medians.add_value(f64::from(sorted[middle]), floor, rare);
        let most = CLEAR_SPREADS * self.medians.usual_spread().max(floor as f32);
        // The median of a shift that is over is shifted for as long again; that of rounds that take turns is none of them.
        let lasts = self.medians.rise_of(value) >= f64::from(most);
        self.stands = lasts && sorted[middle] - sorted[middle - 1] <= most;
    }

    /// Returns its evidence if a shift is likely that still stands, and the rounds themselves, whose evidence is given, vary
    /// far more. What pauses take away is no part of it: the rounds themselves show that.
    pub(super) fn likely_shift(&self, rounds: ShiftDetector) -> Option<ShiftDetector> {
        let is_calmer = self.medians.usual_spread() * CALMER_TIMES <= rounds.usual_spread();
        (is_calmer && self.stands && self.medians.is_likely()).then_some(self.medians)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shift_detector::tests::noise;

    /// Returns the rounds after the 24th at which a shift is likely: of the rounds themselves, and of their median. They
    /// vary by half a percent, and each eighth falls into an evaluation that shows in the next one as well.
    fn likely_rounds(shift: f64) -> (Vec<u32>, Vec<u32>) {
        let (mut rounds, mut median) = (ShiftDetector::default(), MedianShift::default());
        let (mut by_rounds, mut by_median) = (Vec::new(), Vec::new());
        for at in 0..60 {
            let value = 0.005 * noise(at) + if at < 24 { 0.0 } else { shift };
            let value = match at % 8 {
                1 => 0.6,
                2 => 0.3,
                _ => value,
            };
            rounds.add_value(value, 0.01, true);
            median.add_value(value, 0.01, true);
            let at = at.saturating_sub(24);
            by_rounds.extend(rounds.is_likely().then_some(at));
            by_median.extend(median.likely_shift(rounds).map(|_| at));
        }
        (by_rounds, by_median)
    }

    #[test]
    fn evaluations_hide_a_standing_loss_from_the_rounds_and_not_from_their_median() {
        let (by_rounds, by_median) = likely_rounds(0.12);
        assert!(by_rounds.len() <= 2, "{by_rounds:?}");
        assert!(by_median.first().is_some_and(|at| (3..=6).contains(at)), "{by_median:?}");
        assert!(by_median.len() > 25, "{by_median:?}");
    }

    #[test]
    fn shift_that_is_over_is_not_told_by_the_median_that_still_contains_it() {
        let (mut rounds, mut median) = (ShiftDetector::default(), MedianShift::default());
        let told: Vec<bool> = (0..60)
            .map(|at| {
                let shift = if (24..34).contains(&at) { 0.12 } else { 0.0 };
                let value = if at % 8 == 1 { 0.6 } else { shift + 0.005 * noise(at) };
                rounds.add_value(value, 0.01, true);
                median.add_value(value, 0.01, true);
                median.likely_shift(rounds).is_some()
            })
            .collect();
        assert!(told[30..=33].contains(&true), "{told:?}");
        let over: Vec<usize> = (34..60).filter(|at| at % 8 != 1 && told[*at]).collect();
        assert_eq!(over, [0; 0]);
    }

    #[test]
    fn median_of_rounds_that_take_turns_is_no_shift() {
        let (mut rounds, mut median) = (ShiftDetector::default(), MedianShift::default());
        for at in 0..80 {
            // A step of four rounds sends more and more; the first ones came before it did.
            let value = [0.02, 0.17, 0.32, 0.47][at as usize % 4] + 0.005 * noise(at);
            let value = if at < 8 { 0.1 + 0.02 * noise(at) } else { value };
            rounds.add_value(value, 0.01, false);
            median.add_value(value, 0.01, false);
            assert_eq!(median.likely_shift(rounds), None, "round {at}");
        }
    }

    #[test]
    fn evaluations_alone_are_no_shift_of_the_median() {
        assert_eq!(likely_rounds(0.0).1, [0; 0]);
    }

    #[test]
    fn median_of_rounds_that_vary_as_much_tells_nothing_of_its_own() {
        let (mut rounds, mut median) = (ShiftDetector::default(), MedianShift::default());
        for at in 0..60 {
            let value = 0.02 * noise(at) + if at < 24 { 0.0 } else { 0.2 };
            rounds.add_value(value, 0.01, true);
            median.add_value(value, 0.01, true);
        }
        assert!(rounds.is_likely());
        assert_eq!(median.likely_shift(rounds), None);
    }
}
