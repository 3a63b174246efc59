//! What is usual for a thing: its own past, learned while nothing is unusual.

use gaunt_schema::UnixMs;
use serde::{Deserialize, Serialize};

/// So many seconds of samples make a past that something can be compared with.
const LEARNED_S: f32 = 40.0;

/// What is usual changes over this time constant: a shift of a quarter of an hour is a new way of working.
const SLOW_S: f32 = 600.0;

/// Better than usual is learned within this: a job that left its start-up behind shows what it can do.
const BETTER_S: f32 = 30.0;

/// A change by more than this share is not learned but remarked.
const UNUSUAL: f64 = 0.08;

/// What stays worse for this long is the new usual: the job has changed.
const ACCEPTED_S: f32 = 1_800.0;

/// In which direction a signal tells of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worse {
    /// Less is worse, such as arithmetic.
    Lower,
    /// More is worse, such as pressure.
    Higher,
}

/// The usual value of one signal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f64, f32, f32, i64)", into = "(f64, f32, f32, i64)")]
pub(super) struct Baseline {
    mean: f64,
    seconds: f32,
    /// For so many seconds it has been worse than usual.
    unusual: f32,
    last: UnixMs,
}

const NEVER: UnixMs = UnixMs(i64::MIN);

impl Default for Baseline {
    fn default() -> Self {
        Self { mean: 0.0, seconds: 0.0, unusual: 0.0, last: NEVER }
    }
}

impl From<(f64, f32, f32, i64)> for Baseline {
    fn from((mean, seconds, unusual, last): (f64, f32, f32, i64)) -> Self {
        Self { mean, seconds, unusual, last: UnixMs(last) }
    }
}

impl From<Baseline> for (f64, f32, f32, i64) {
    fn from(known: Baseline) -> Self {
        (known.mean, known.seconds, known.unusual, known.last.0)
    }
}

impl Baseline {
    /// Whether nothing was learned yet.
    pub(super) fn is_new(&self) -> bool {
        self.last == NEVER
    }

    /// Takes in the signal's average at an instant. `floor` is what is too small to make a difference.
    pub(super) fn learn(&mut self, now: Option<f64>, at: UnixMs, worse: Worse, floor: f64) {
        let Some(now) = now else { return };
        let passed = if self.last == NEVER { 1.0 } else { at.since(self.last).as_secs_f64() };
        self.last = at;
        if self.seconds < LEARNED_S {
            self.seconds += passed as f32;
            self.mean += (now - self.mean) * (passed / f64::from(self.seconds)).min(1.0);
            return;
        }
        let change = (now - self.mean) / self.mean.abs().max(floor);
        let span = if change.abs() <= UNUSUAL {
            self.unusual = 0.0;
            self.seconds = (self.seconds + passed as f32).min(SLOW_S);
            self.seconds
        } else if (change > 0.0) == (worse == Worse::Lower) {
            self.unusual = 0.0;
            BETTER_S
        } else {
            self.unusual += passed as f32;
            if self.unusual > ACCEPTED_S {
                *self = Self { mean: now, last: at, ..Self::default() };
            }
            return;
        };
        self.mean += (now - self.mean) * (passed / f64::from(span)).min(1.0);
    }

    /// The usual value, once enough was seen.
    pub(super) fn usual(&self) -> Option<f64> {
        (self.seconds >= LEARNED_S).then_some(self.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: i64, baseline: &mut Baseline, from: i64, value: f64) {
        for second in from..from + seconds {
            baseline.learn(Some(value), UnixMs(second * 1_000), Worse::Lower, 0.01);
        }
    }

    #[test]
    fn a_past_takes_a_while_to_learn() {
        let mut baseline = Baseline::default();
        after(30, &mut baseline, 0, 0.5);
        assert_eq!(baseline.usual(), None);
        after(20, &mut baseline, 30, 0.5);
        assert_eq!(baseline.usual(), Some(0.5));
    }

    #[test]
    fn what_is_worse_is_not_learned_and_what_is_better_soon_is() {
        let mut baseline = Baseline::default();
        after(60, &mut baseline, 0, 0.5);
        after(600, &mut baseline, 60, 0.3);
        assert_eq!(baseline.usual(), Some(0.5), "a fault does not become usual");
        after(120, &mut baseline, 660, 0.8);
        assert!(baseline.usual().unwrap() > 0.75);
        after(3_000, &mut baseline, 780, 0.3);
        let usual = baseline.usual().unwrap();
        assert!((usual - 0.3).abs() < 1e-9, "after half an hour the job has changed: {usual}");
    }

    #[test]
    fn absent_samples_teach_nothing() {
        let mut baseline = Baseline::default();
        for second in 0..100 {
            baseline.learn(None, UnixMs(second * 1_000), Worse::Lower, 0.01);
        }
        assert_eq!(baseline.usual(), None);
    }
}
