//! Runs several things in turn, round after round, so that a busy neighbour slows all of them alike.

use std::{hint::black_box, time::Duration};

use crate::clock;

/// Rounds of each measurement; the median of them is reported.
const ROUNDS: usize = 15;

/// What one thing uses in one round at least, so that the clock's steps do not show.
const ROUND: Duration = Duration::from_millis(60);

/// A thing to measure.
pub(crate) struct Contender<'a> {
    /// How it is called in the table.
    pub(crate) name: &'static str,
    /// The bytes that it goes through when the work is done once.
    pub(crate) bytes: usize,
    /// The work; what it returns keeps the compiler from leaving it out.
    pub(crate) work: Box<dyn FnMut() -> usize + 'a>,
}

/// The seconds of CPU that each contender needs to do its work once: the median, and the spread of all rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// The middle one of all rounds.
    pub(crate) median: f64,
    /// The cheapest round.
    pub(crate) least: f64,
    /// The dearest round.
    pub(crate) most: f64,
}

/// Measures all contenders in turn.
pub(crate) fn run(contenders: &mut [Contender<'_>]) -> Vec<Cost> {
    let repeats: Vec<u32> = contenders.iter_mut().map(calibrate).collect();
    let mut costs = vec![Vec::with_capacity(ROUNDS); contenders.len()];
    for _ in 0..ROUNDS {
        for ((contender, repeats), costs) in contenders.iter_mut().zip(&repeats).zip(&mut costs) {
            costs.push(time(contender, *repeats).as_secs_f64() / f64::from(*repeats));
        }
    }
    costs
        .into_iter()
        .map(|mut costs| {
            costs.sort_by(f64::total_cmp);
            Cost { median: costs[ROUNDS / 2], least: costs[0], most: costs[ROUNDS - 1] }
        })
        .collect()
}

/// How often the work is done in a round; doing it warms the caches as well.
fn calibrate(contender: &mut Contender<'_>) -> u32 {
    let mut repeats = 1;
    while time(contender, repeats) < ROUND {
        repeats *= 2;
    }
    repeats
}

fn time(contender: &mut Contender<'_>, repeats: u32) -> Duration {
    let before = clock::cpu();
    for _ in 0..repeats {
        black_box((contender.work)());
    }
    clock::cpu().saturating_sub(before)
}
