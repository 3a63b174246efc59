//! Runs several contenders in turn, round after round, so that other load on the machine slows all of them alike.

use std::{hint::black_box, time::Duration};

use crate::cpu_clock;

/// Rounds of each measurement; the median of them is reported.
const ROUNDS: usize = 15;

/// Minimum CPU time of one contender in one round, so that the clock's resolution does not matter.
const ROUND: Duration = Duration::from_millis(60);

/// A contender to measure.
pub(crate) struct RoundContender<'a> {
    /// Its name in the table.
    pub(crate) name: &'static str,
    /// Bytes processed by one run of the work.
    pub(crate) bytes: usize,
    /// The work; its result keeps the compiler from removing it.
    pub(crate) work: Box<dyn FnMut() -> usize + 'a>,
}

/// CPU seconds of one run of the work: the median, and the spread of all rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundCost {
    /// The median of all rounds.
    pub(crate) median: f64,
    /// The cheapest round.
    pub(crate) least: f64,
    /// The most expensive round.
    pub(crate) most: f64,
}

/// Measures all contenders in turn.
pub(crate) fn run(contenders: &mut [RoundContender<'_>]) -> Vec<RoundCost> {
    let repeats: Vec<u32> = contenders.iter_mut().map(calibrate_repeats).collect();
    let mut costs = vec![Vec::with_capacity(ROUNDS); contenders.len()];
    for _ in 0..ROUNDS {
        for ((contender, repeats), costs) in contenders.iter_mut().zip(&repeats).zip(&mut costs) {
            costs.push(time_repeats(contender, *repeats).as_secs_f64() / f64::from(*repeats));
        }
    }
    costs
        .into_iter()
        .map(|mut costs| {
            costs.sort_by(f64::total_cmp);
            RoundCost { median: costs[ROUNDS / 2], least: costs[0], most: costs[ROUNDS - 1] }
        })
        .collect()
}

/// Repeats of the work in a round; running it warms the caches as well.
fn calibrate_repeats(contender: &mut RoundContender<'_>) -> u32 {
    let mut repeats = 1;
    while time_repeats(contender, repeats) < ROUND {
        repeats *= 2;
    }
    repeats
}

fn time_repeats(contender: &mut RoundContender<'_>, repeats: u32) -> Duration {
    let before = cpu_clock::process_cpu_time();
    for _ in 0..repeats {
        black_box((contender.work)());
    }
    cpu_clock::process_cpu_time().saturating_sub(before)
}
