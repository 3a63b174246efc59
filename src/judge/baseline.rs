//! The baseline of one signal: learned from its own past while it is not unusual.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Thresholds;

/// The direction in which a signal gets worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorseDirection {
    /// Lower is worse, such as tensor activity.
    Lower,
    /// Higher is worse, such as pressure.
    Higher,
}

/// The time of a sample, and whether the baseline may learn from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleMoment {
    /// Seconds since the sample before it of the same device; none for the first, also after a restart.
    pub(super) since: Option<f64>,
    /// After so long without a sample averages begin anew: the first one is a single instant.
    pub(super) gap: Duration,
    /// An open finding names its device: the baseline is frozen.
    pub(super) frozen: bool,
}

/// The baseline of one signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "SavedBaseline", into = "SavedBaseline")]
pub(super) struct Baseline {
    mean: f32,
    /// Seconds that it was learned from, with its flags.
    learned_from: FlaggedSeconds,
    /// Seconds for which it has been worse than the baseline; below zero, seconds for which the accepted level is
    /// learned.
    unusual: f32,
}

/// Seconds, with two flags in the lowest bits of the mantissa: every GPU and port keeps several baselines. The error is
/// below a millionth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FlaggedSeconds(u32);

/// The baseline was learned.
const LEARNED: u32 = 1;

/// A user accepted the baseline: it counts however bad it is.
const ACCEPTED: u32 = 2;

impl FlaggedSeconds {
    fn new(seconds: f32, learned: bool, accepted: bool) -> Self {
        let flags = u32::from(learned) * LEARNED + u32::from(accepted) * ACCEPTED;
        Self(seconds.to_bits() & !(LEARNED | ACCEPTED) | flags)
    }

    fn seconds(self) -> f32 {
        f32::from_bits(self.0 & !(LEARNED | ACCEPTED))
    }

    fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    fn with_seconds(self, seconds: f32) -> Self {
        Self::new(seconds, self.has(LEARNED), self.has(ACCEPTED))
    }
}

/// The saved form: with or without the fields for acceptance and learning, which earlier files lack. The fourth or fifth
/// field is a timestamp that earlier versions expect, and nothing reads.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum SavedBaseline {
    Accepted(f32, f32, f32, bool, i64, bool),
    Learned(f32, f32, f32, bool, i64),
    Counted(f32, f32, f32, i64),
}

/// Seconds after which a value counts as learned where the file does not contain that field.
const COUNTED_SECONDS: f32 = 40.0;

impl From<SavedBaseline> for Baseline {
    fn from(saved: SavedBaseline) -> Self {
        let (mean, seconds, unusual, learned, accepted) = match saved {
            SavedBaseline::Accepted(mean, seconds, unusual, learned, _, accepted) => {
                (mean, seconds, unusual, learned, accepted)
            }
            SavedBaseline::Learned(mean, seconds, unusual, learned, _) => {
                (mean, seconds, unusual, learned, false)
            }
            SavedBaseline::Counted(mean, seconds, unusual, _) => {
                (mean, seconds, unusual, seconds >= COUNTED_SECONDS, false)
            }
        };
        Self { mean, learned_from: FlaggedSeconds::new(seconds, learned, accepted), unusual }
    }
}

impl From<Baseline> for SavedBaseline {
    fn from(known: Baseline) -> Self {
        let Baseline { mean, learned_from, unusual } = known;
        let (seconds, learned) = (learned_from.seconds(), learned_from.has(LEARNED));
        if known.is_accepted() {
            Self::Accepted(mean, seconds, unusual, learned, 0, true)
        } else {
            Self::Learned(mean, seconds, unusual, learned, 0)
        }
    }
}

impl Baseline {
    /// Whether nothing was learned yet.
    pub(super) fn is_new(&self) -> bool {
        self.learned_from.seconds() <= 0.0
    }

    /// Updates the baseline with the signal's average at an instant. Differences below `floor` are ignored.
    pub(super) fn learn_value(
        &mut self,
        now: Option<f64>,
        at: SampleMoment,
        worse: WorseDirection,
        floor: f64,
        limits: &Thresholds,
    ) {
        let Some(now) = now else { return };
        let SampleMoment { since, gap, frozen } = at;
        if frozen && self.is_learned() && self.unusual >= 0.0 {
            // Neither a fault nor the noise of its end is a baseline; nor does the waiting time count.
            self.unusual = 0.0;
            return;
        }
        // Nothing is learned in gaps, nor of the one sample that an average consists of after them.
        let passed = match since.filter(|since| *since <= gap.as_secs_f64()) {
            _ if self.is_new() => 1.0,
            since => since.unwrap_or(0.0),
        };
        let mean = f64::from(self.mean);
        let approached = |span: f64| (mean + (now - mean) * (passed / span).min(1.0)) as f32;
        let seconds = self.learned_from.seconds();
        if !self.is_learned() {
            let seconds = seconds + passed as f32;
            self.mean = approached(f64::from(seconds));
            let learned = f64::from(seconds) >= limits.usual_learned_seconds;
            self.learned_from = FlaggedSeconds::new(seconds, learned, self.is_accepted());
            return;
        }
        if self.unusual < 0.0 {
            // A user accepted the present level: average it, because a single instant is not representative.
            let seconds = seconds + passed as f32;
            self.mean = approached(f64::from(seconds));
            self.learned_from = self.learned_from.with_seconds(seconds);
            self.unusual = (self.unusual + passed as f32).min(0.0);
            return;
        }
        let change = (now - mean) / mean.abs().max(floor);
        let is_worse = (change > 0.0) == (worse == WorseDirection::Higher);
        if change.abs() <= limits.usual_ratio {
            // A slow degradation must not become the baseline half-way.
            let own = if is_worse { limits.usual_seconds } else { f64::from(seconds) };
            self.mean = approached(own);
            self.unusual = 0.0;
            let seconds = (seconds + passed as f32).min(limits.usual_seconds as f32);
            self.learned_from = self.learned_from.with_seconds(seconds);
        } else if !is_worse {
            // An accepted level may swing: its best moments are not the baseline.
            let slowly = if self.is_accepted() { limits.usual_seconds } else { 0.0 };
            self.mean = approached(limits.usual_better_seconds.max(slowly));
            self.unusual = 0.0;
        } else {
            self.unusual += passed as f32;
            if f64::from(self.unusual) > limits.usual_accepted_seconds {
                *self = Self { mean: now as f32, ..Self::default() };
            }
        }
    }

    /// Accepts the present value as the baseline on behalf of a user. Unchanged where the value is unknown.
    #[must_use]
    pub(super) fn with_accepted(self, now: Option<f64>, limits: &Thresholds) -> Self {
        let Some(now) = now else { return self };
        let (seconds, learns) =
            (limits.average_seconds as f32, limits.usual_learned_seconds as f32);
        let (mean, unusual) = (now as f32, -learns);
        let learned_from = FlaggedSeconds::new(seconds, true, true);
        Self { mean, learned_from, unusual }
    }

    fn is_learned(&self) -> bool {
        self.learned_from.has(LEARNED)
    }

    /// Whether a user accepted it.
    pub(super) fn is_accepted(&self) -> bool {
        self.learned_from.has(ACCEPTED)
    }

    /// Returns the baseline, once enough was seen.
    pub(super) fn usual_value(&self) -> Option<f64> {
        self.is_learned().then_some(f64::from(self.mean))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(since: Option<f64>, frozen: bool) -> SampleMoment {
        SampleMoment { since, gap: Duration::from_secs(3), frozen }
    }

    fn feed_value(seconds: i64, baseline: &mut Baseline, value: f64) {
        feed_value_frozen(seconds, baseline, value, false);
    }

    fn feed_value_frozen(seconds: i64, baseline: &mut Baseline, value: f64, frozen: bool) {
        for _ in 0..seconds {
            feed_moment(moment(Some(1.0), frozen), baseline, value);
        }
    }

    /// Feeds one sample that comes so many seconds after the one before.
    fn feed_after(since: Option<f64>, baseline: &mut Baseline, value: f64) {
        feed_moment(moment(since, false), baseline, value);
    }

    fn feed_moment(moment: SampleMoment, baseline: &mut Baseline, value: f64) {
        let limits = Thresholds::default();
        baseline.learn_value(Some(value), moment, WorseDirection::Lower, 0.01, &limits);
    }

    #[test]
    fn baseline_takes_minutes_to_learn() {
        let mut baseline = Baseline::default();
        feed_value(30, &mut baseline, 0.5);
        assert_eq!(baseline.usual_value(), None);
        feed_value(20, &mut baseline, 0.5);
        assert_eq!(baseline.usual_value(), Some(0.5));
    }

    #[test]
    fn baseline_follows_better_values_soon_and_worse_ones_not() {
        let mut baseline = Baseline::default();
        feed_value(60, &mut baseline, 0.5);
        feed_value(600, &mut baseline, 0.3);
        assert_eq!(baseline.usual_value(), Some(0.5), "a fault does not become usual");
        feed_value(120, &mut baseline, 0.8);
        assert!(baseline.usual_value().unwrap() > 0.75);
        feed_value(3_000, &mut baseline, 0.3);
        let usual = baseline.usual_value().unwrap();
        assert!((usual - 0.3).abs() < 1e-6, "after half an hour the job has changed: {usual}");
    }

    #[test]
    fn frozen_baseline_moves_neither_partly_nor_after_days() {
        let mut baseline = Baseline::default();
        feed_value(60, &mut baseline, 0.5);
        for value in [0.3, 0.48, 0.9] {
            feed_value_frozen(172_800, &mut baseline, value, true);
            assert_eq!(baseline.usual_value(), Some(0.5), "{value}");
        }
        // Unusual values in between reset the wait.
        feed_value(1_700, &mut baseline, 0.3);
        assert_eq!(baseline.usual_value(), Some(0.5));
        feed_value(200, &mut baseline, 0.3);
        assert!((baseline.usual_value().unwrap() - 0.3).abs() < 1e-6);
    }

    #[test]
    fn new_baseline_is_learned_even_while_a_finding_is_open() {
        let mut baseline = Baseline::default();
        feed_value_frozen(60, &mut baseline, 0.5, true);
        assert_eq!(baseline.usual_value(), Some(0.5));
    }

    #[test]
    fn accepted_level_is_baseline_at_once() {
        let mut baseline = Baseline::default();
        feed_value(60, &mut baseline, 0.5);
        let accepted = baseline.with_accepted(Some(0.3), &Thresholds::default());
        assert!((accepted.usual_value().unwrap() - 0.3).abs() < 1e-6);
        assert_eq!(baseline.with_accepted(None, &Thresholds::default()), baseline);
        let mut accepted = accepted;
        feed_value(40, &mut accepted, 0.34);
        assert!((accepted.usual_value().unwrap() - 0.33).abs() < 0.01, "a while of it is learned");
        feed_value(600, &mut accepted, 0.2);
        assert!(accepted.usual_value().unwrap() > 0.32, "and what comes then is not");
    }

    #[test]
    fn baseline_learns_nothing_from_hours_without_samples() {
        let mut baseline = Baseline::default();
        feed_value(60, &mut baseline, 0.5);
        let save = |known: &Baseline| serde_json::to_string(known).unwrap();
        let mut resumed: Baseline = serde_json::from_str(&save(&baseline)).unwrap();
        assert_eq!(resumed, baseline);
        let accepted = baseline.with_accepted(Some(0.3), &Thresholds::default());
        let known: Baseline = serde_json::from_str(&save(&accepted)).unwrap();
        assert!(known == accepted && known.is_accepted());
        feed_after(None, &mut resumed, 0.3);
        feed_value(29, &mut resumed, 0.3);
        assert_eq!(resumed.usual_value(), Some(0.5), "a fault that lasts over a restart");
        feed_after(Some(7_200.0), &mut resumed, 0.48);
        assert!(resumed.usual_value().unwrap() > 0.49, "nor does one look");
        let mut better: Baseline = serde_json::from_str(&save(&baseline)).unwrap();
        feed_after(None, &mut better, 0.8);
        assert_eq!(better.usual_value(), Some(0.5), "nor the one sample of a new average");
        feed_after(Some(10.0), &mut better, 0.8);
        assert_eq!(better.usual_value(), Some(0.5), "nor the one after a gap");
    }

    #[test]
    fn baseline_learns_nothing_from_absent_samples() {
        let mut baseline = Baseline::default();
        for _ in 0..100 {
            baseline.learn_value(
                None,
                moment(Some(1.0), false),
                WorseDirection::Lower,
                0.01,
                &Thresholds::default(),
            );
        }
        assert_eq!(baseline.usual_value(), None);
    }
}
