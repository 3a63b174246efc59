//! The baseline of one signal: learned from its own past while it is not unusual.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Thresholds, moving_average::CompactTimestamp};

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
    /// The time of the sample.
    pub(super) at: CompactTimestamp,
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
    /// The last sample that averages contain: none after a restart, where they begin anew.
    last: CompactTimestamp,
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

/// The saved form: with or without the fields for acceptance and learning, which earlier files lack.
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
        Self {
            mean,
            learned_from: FlaggedSeconds::new(seconds, learned, accepted),
            unusual,
            last: CompactTimestamp::NEVER,
        }
    }
}

impl From<Baseline> for SavedBaseline {
    fn from(known: Baseline) -> Self {
        let Baseline { mean, learned_from, unusual, last } = known;
        let (seconds, learned) = (learned_from.seconds(), learned_from.has(LEARNED));
        if known.is_accepted() {
            Self::Accepted(mean, seconds, unusual, learned, last.to_millis(), true)
        } else {
            Self::Learned(mean, seconds, unusual, learned, last.to_millis())
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
        let SampleMoment { at, gap, frozen } = at;
        if frozen && self.is_learned() && self.unusual >= 0.0 {
            // Neither a fault nor the noise of its end is a baseline; nor does the waiting time count.
            (self.last, self.unusual) = (at, 0.0);
            return;
        }
        // Nothing is learned in gaps, nor of the one sample that an average consists of after them.
        let since = self.last.is_set().then(|| at.seconds_since(self.last));
        let passed = match since.filter(|since| *since <= gap.as_secs_f64()) {
            Some(since) => since,
            None if self.is_new() => 1.0,
            None => 0.0,
        };
        self.last = at;
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
                *self = Self { mean: now as f32, last: at, ..Self::default() };
            }
        }
    }

    /// Skips the time until an instant: the signal said nothing about what the baseline is for.
    pub(super) fn skip_until(&mut self, at: CompactTimestamp) {
        if !self.is_new() {
            self.last = at;
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
        Self { mean, learned_from, unusual, last: self.last }
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
    use gaunt_schema::UnixMs;

    use super::*;

    fn moment(second: i64, frozen: bool) -> SampleMoment {
        let at = CompactTimestamp::of(UnixMs(second * 1_000));
        SampleMoment { at, gap: Duration::from_secs(3), frozen }
    }

    fn feed_value(seconds: i64, baseline: &mut Baseline, from: i64, value: f64) {
        feed_value_frozen(seconds, baseline, from, value, false);
    }

    fn feed_value_frozen(
        seconds: i64,
        baseline: &mut Baseline,
        from: i64,
        value: f64,
        frozen: bool,
    ) {
        for second in from..from + seconds {
            baseline.learn_value(
                Some(value),
                moment(second, frozen),
                WorseDirection::Lower,
                0.01,
                &Thresholds::default(),
            );
        }
    }

    #[test]
    fn baseline_takes_minutes_to_learn() {
        let mut baseline = Baseline::default();
        feed_value(30, &mut baseline, 0, 0.5);
        assert_eq!(baseline.usual_value(), None);
        feed_value(20, &mut baseline, 30, 0.5);
        assert_eq!(baseline.usual_value(), Some(0.5));
    }

    #[test]
    fn baseline_follows_better_values_soon_and_worse_ones_not() {
        let mut baseline = Baseline::default();
        feed_value(60, &mut baseline, 0, 0.5);
        feed_value(600, &mut baseline, 60, 0.3);
        assert_eq!(baseline.usual_value(), Some(0.5), "a fault does not become usual");
        feed_value(120, &mut baseline, 660, 0.8);
        assert!(baseline.usual_value().unwrap() > 0.75);
        feed_value(3_000, &mut baseline, 780, 0.3);
        let usual = baseline.usual_value().unwrap();
        assert!((usual - 0.3).abs() < 1e-6, "after half an hour the job has changed: {usual}");
    }

    #[test]
    fn frozen_baseline_moves_neither_partly_nor_after_days() {
        let mut baseline = Baseline::default();
        feed_value(60, &mut baseline, 0, 0.5);
        for value in [0.3, 0.48, 0.9] {
            feed_value_frozen(172_800, &mut baseline, 60, value, true);
            assert_eq!(baseline.usual_value(), Some(0.5), "{value}");
        }
        // Unusual values in between reset the wait.
        feed_value(1_700, &mut baseline, 172_860, 0.3);
        assert_eq!(baseline.usual_value(), Some(0.5));
        feed_value(200, &mut baseline, 174_560, 0.3);
        assert!((baseline.usual_value().unwrap() - 0.3).abs() < 1e-6);
    }

    #[test]
    fn new_baseline_is_learned_even_while_a_finding_is_open() {
        let mut baseline = Baseline::default();
        feed_value_frozen(60, &mut baseline, 0, 0.5, true);
        assert_eq!(baseline.usual_value(), Some(0.5));
    }

    #[test]
    fn accepted_level_is_baseline_at_once() {
        let mut baseline = Baseline::default();
        feed_value(60, &mut baseline, 0, 0.5);
        let accepted = baseline.with_accepted(Some(0.3), &Thresholds::default());
        assert!((accepted.usual_value().unwrap() - 0.3).abs() < 1e-6);
        assert_eq!(baseline.with_accepted(None, &Thresholds::default()), baseline);
        let mut accepted = accepted;
        feed_value(40, &mut accepted, 60, 0.34);
        assert!((accepted.usual_value().unwrap() - 0.33).abs() < 0.01, "a while of it is learned");
        feed_value(600, &mut accepted, 100, 0.2);
        assert!(accepted.usual_value().unwrap() > 0.32, "and what comes then is not");
    }

    #[test]
    fn baseline_learns_nothing_from_hours_without_samples() {
        let mut baseline = Baseline::default();
        feed_value(60, &mut baseline, 0, 0.5);
        let save = |known: &Baseline| serde_json::to_string(known).unwrap();
        let mut resumed: Baseline = serde_json::from_str(&save(&baseline)).unwrap();
        let unread = |known: Baseline| Baseline { last: CompactTimestamp::NEVER, ..known };
        assert_eq!(resumed, unread(baseline));
        let accepted = baseline.with_accepted(Some(0.3), &Thresholds::default());
        let known: Baseline = serde_json::from_str(&save(&accepted)).unwrap();
        assert!(known == unread(accepted) && known.is_accepted());
        feed_value(30, &mut resumed, 7_200, 0.3);
        assert_eq!(resumed.usual_value(), Some(0.5), "a fault that lasts over a restart");
        feed_value(1, &mut resumed, 14_400, 0.48);
        assert!(resumed.usual_value().unwrap() > 0.49, "nor does one look");
        let mut better: Baseline = serde_json::from_str(&save(&baseline)).unwrap();
        feed_value(1, &mut better, 70, 0.8);
        assert_eq!(better.usual_value(), Some(0.5), "nor the one sample of a new average");
        feed_value(1, &mut better, 80, 0.8);
        assert_eq!(better.usual_value(), Some(0.5), "nor the one after a gap");
    }

    #[test]
    fn baseline_learns_nothing_from_absent_samples() {
        let mut baseline = Baseline::default();
        for second in 0..100 {
            baseline.learn_value(
                None,
                moment(second, false),
                WorseDirection::Lower,
                0.01,
                &Thresholds::default(),
            );
        }
        assert_eq!(baseline.usual_value(), None);
    }
}
