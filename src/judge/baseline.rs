//! What is usual for a thing: its own past, learned while nothing is unusual.

use serde::{Deserialize, Serialize};

use super::{Thresholds, average::Stamp};

/// In which direction a signal tells of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worse {
    /// Less is worse, such as arithmetic.
    Lower,
    /// More is worse, such as pressure.
    Higher,
}

/// The usual value of one signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f32, f32, f32, bool, i64)", into = "(f32, f32, f32, bool, i64)")]
pub(super) struct Baseline {
    mean: f32,
    seconds: f32,
    /// For so many seconds it has been worse than usual.
    unusual: f32,
    learned: bool,
    last: Stamp,
}

impl From<(f32, f32, f32, bool, i64)> for Baseline {
    fn from((mean, seconds, unusual, learned, last): (f32, f32, f32, bool, i64)) -> Self {
        Self { mean, seconds, unusual, learned, last: Stamp::recalled(last) }
    }
}

impl From<Baseline> for (f32, f32, f32, bool, i64) {
    fn from(known: Baseline) -> Self {
        (known.mean, known.seconds, known.unusual, known.learned, known.last.kept())
    }
}

impl Baseline {
    /// Whether nothing was learned yet.
    pub(super) fn is_new(&self) -> bool {
        !self.last.is_set()
    }

    /// Takes in the signal's average at an instant. `floor` is what is too small to make a difference.
    pub(super) fn learn(
        &mut self,
        now: Option<f64>,
        at: Stamp,
        worse: Worse,
        floor: f64,
        limits: &Thresholds,
    ) {
        let Some(now) = now else { return };
        // Where nobody looked nothing was learned: a sample teaches for the time of a slow period at most.
        let passed = if self.is_new() {
            1.0
        } else {
            at.seconds_since(self.last).min(limits.usual_sample_seconds)
        };
        self.last = at;
        let mean = f64::from(self.mean);
        let mut approach =
            |span: f64| self.mean = (mean + (now - mean) * (passed / span).min(1.0)) as f32;
        if !self.learned {
            self.seconds += passed as f32;
            approach(f64::from(self.seconds));
            self.learned = f64::from(self.seconds) >= limits.usual_learned_seconds;
            return;
        }
        let change = (now - mean) / mean.abs().max(floor);
        let is_worse = (change > 0.0) == (worse == Worse::Higher);
        if change.abs() <= limits.usual_ratio {
            // What grows slowly worse is not to be taken for usual half-way.
            let own = if is_worse { limits.usual_seconds } else { f64::from(self.seconds) };
            approach(own);
            self.unusual = 0.0;
            self.seconds = (self.seconds + passed as f32).min(limits.usual_seconds as f32);
        } else if !is_worse {
            approach(limits.usual_better_seconds);
            self.unusual = 0.0;
        } else {
            self.unusual += passed as f32;
            if f64::from(self.unusual) > limits.usual_accepted_seconds {
                *self = Self { mean: now as f32, last: at, ..Self::default() };
            }
        }
    }

    /// The usual value, once enough was seen.
    pub(super) fn usual(&self) -> Option<f64> {
        self.learned.then_some(f64::from(self.mean))
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::UnixMs;

    use super::*;

    fn after(seconds: i64, baseline: &mut Baseline, from: i64, value: f64) {
        for second in from..from + seconds {
            baseline.learn(
                Some(value),
                Stamp::of(UnixMs(second * 1_000)),
                Worse::Lower,
                0.01,
                &Thresholds::default(),
            );
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
        assert!((usual - 0.3).abs() < 1e-6, "after half an hour the job has changed: {usual}");
    }

    #[test]
    fn hours_in_which_nobody_looked_make_nothing_usual() {
        let mut baseline = Baseline::default();
        after(60, &mut baseline, 0, 0.5);
        let kept: (f32, f32, f32, bool, i64) = baseline.into();
        let mut resumed = Baseline::from(kept);
        assert_eq!(resumed, baseline);
        after(30, &mut resumed, 7_200, 0.3);
        assert_eq!(resumed.usual(), Some(0.5), "a fault that lasts over a restart");
        after(1, &mut resumed, 14_400, 0.48);
        assert!(resumed.usual().unwrap() > 0.49, "nor does one look");
    }

    #[test]
    fn absent_samples_teach_nothing() {
        let mut baseline = Baseline::default();
        for second in 0..100 {
            baseline.learn(
                None,
                Stamp::of(UnixMs(second * 1_000)),
                Worse::Lower,
                0.01,
                &Thresholds::default(),
            );
        }
        assert_eq!(baseline.usual(), None);
    }
}
