//! Moving averages over uneven samples that return no value once they are too old.

use std::time::Duration;

use gaunt_schema::UnixMs;

/// A timestamp in half the bytes, of which every GPU and port keeps dozens: units of a twentieth of a second that wrap
/// around after seven years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CompactTimestamp(u32);

/// Milliseconds in one unit of a timestamp.
const UNIT_MS: i64 = 50;

/// Units by which one timestamp may lie before another that should be later: the clocks differ, it did not wrap around.
const SKEW: u32 = 72_000;

impl CompactTimestamp {
    /// Before all timestamps.
    pub(super) const NEVER: Self = Self(0);

    /// Converts an instant.
    pub(super) fn of(at: UnixMs) -> Self {
        // Zero is reserved for never: it is skipped for one twentieth of a second in seven years.
        Self((at.0.div_euclid(UNIT_MS) as u32).wrapping_add(1).max(1))
    }

    /// Whether it is an instant at all.
    pub(super) fn is_set(self) -> bool {
        self != Self::NEVER
    }

    /// Converts to the saved form: milliseconds, of which only the timestamp counts.
    pub(super) fn to_millis(self) -> i64 {
        if self.is_set() { i64::from(self.0 - 1) * UNIT_MS } else { i64::MIN }
    }

    /// Restores a saved timestamp.
    pub(super) fn from_millis(kept: i64) -> Self {
        if kept < 0 { Self::NEVER } else { Self::of(UnixMs(kept)) }
    }

    /// Returns the instant, which is not after `now`, to a twentieth of a second.
    pub(super) fn to_instant(self, now: UnixMs) -> UnixMs {
        let units = i64::from(Self::of(now).units_since(self));
        UnixMs(now.0 - now.0.rem_euclid(UNIT_MS) - units * UNIT_MS)
    }

    /// Returns the units since an earlier one.
    fn units_since(self, earlier: Self) -> u32 {
        let passed = self.0.wrapping_sub(earlier.0);
        if passed > u32::MAX - SKEW { 0 } else { passed }
    }

    /// Whether it is later than another one, or the first.
    pub(super) fn is_after(self, earlier: Self) -> bool {
        !earlier.is_set() || self.units_since(earlier) > 0
    }

    /// Returns the seconds since the sample before, if there was one.
    pub(super) fn seconds_after(self, before: Self) -> Option<f64> {
        before.is_set().then(|| self.seconds_since(before))
    }

    /// Returns the seconds since an earlier one.
    pub(super) fn seconds_since(self, earlier: Self) -> f64 {
        f64::from(self.units_since(earlier)) * (UNIT_MS as f64 / 1e3)
    }
}

/// The time of one sample, with its weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleTiming {
    at: CompactTimestamp,
    span: f64,
    gap: u32,
    /// The last requested interval, with its weight: nearly always the same for all averages of a device.
    known: (u32, f32),
}

/// Converts a duration to timestamp units.
fn duration_units(span: Duration) -> u32 {
    // In 64 bits: a division of 128 is slow, and every read of an average needs one.
    let units = span.as_secs().saturating_mul(1_000 / UNIT_MS as u64)
        + u64::from(span.subsec_millis()) / UNIT_MS as u64;
    u32::try_from(units).unwrap_or(u32::MAX / 2)
}

impl SampleTiming {
    /// Creates a sample at `at`, for averages over `span` seconds that restart after `gap` without a sample.
    pub(super) fn new(at: UnixMs, span: f64, gap: Duration) -> Self {
        Self {
            at: CompactTimestamp::of(at),
            span: span.max(1e-3),
            gap: duration_units(gap),
            known: (0, 0.0),
        }
    }

    /// Returns the weight of the sample after `passed`.
    ///
    /// The time constant is half the span: then the mean age of samples is that of a plain mean over the span.
    fn weight_after(&mut self, passed: u32) -> f32 {
        if passed != self.known.0 {
            let seconds = f64::from(passed) * (UNIT_MS as f64 / 1e3);
            self.known = (passed, -(-2.0 * seconds / self.span).exp_m1() as f32);
        }
        self.known.1
    }

    /// Returns the time of the sample.
    pub(super) fn sampled_at(&self) -> CompactTimestamp {
        self.at
    }
}

/// An exponentially weighted average: eight bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MovingAverage {
    value: f32,
    /// The time of its last sample.
    at: CompactTimestamp,
}

impl MovingAverage {
    /// Adds a sample; an absent one changes nothing, and the average ages.
    pub(super) fn add_sample(&mut self, sample: Option<f64>, tick: &mut SampleTiming) {
        let Some(sample) = sample else { return };
        let passed = tick.at.units_since(self.at);
        self.value = if self.at.is_set() && passed <= tick.gap {
            self.value + (sample as f32 - self.value) * tick.weight_after(passed)
        } else {
            sample as f32
        };
        self.at = tick.at;
    }

    /// Returns the average, unless its last sample is more than `gap` before `now`.
    pub(super) fn value_at(self, now: UnixMs, gap: Duration) -> Option<f64> {
        let fresh = self.at.is_set()
            && CompactTimestamp::of(now).units_since(self.at) <= duration_units(gap);
        fresh.then_some(f64::from(self.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: Duration = Duration::from_secs(3);

    fn average_of(samples: &[(i64, Option<f64>)]) -> MovingAverage {
        let mut average = MovingAverage::default();
        for (at, sample) in samples {
            average.add_sample(*sample, &mut SampleTiming::new(UnixMs(*at), 10.0, GAP));
        }
        average
    }

    #[test]
    fn average_moves_half_way_in_a_third_of_the_span() {
        let samples: Vec<_> = (0..=4).map(|s| (s * 1_000, Some(f64::from(s > 0)))).collect();
        let value = average_of(&samples).value_at(UnixMs(4_000), GAP).unwrap();
        assert!((value - (1.0 - (-0.8_f64).exp())).abs() < 1e-6, "{value}");
    }

    #[test]
    fn average_does_not_depend_on_the_sample_rate() {
        let slow = average_of(&[(0, Some(1.0)), (2_000, Some(0.0))]);
        let fast = average_of(&[(0, Some(1.0)), (1_000, Some(0.0)), (2_000, Some(0.0))]);
        assert!((slow.value - fast.value).abs() < 1e-6);
    }

    #[test]
    fn average_skips_absent_samples_and_restarts_after_a_gap() {
        let average = average_of(&[(0, Some(0.5)), (1_000, None), (2_000, None)]);
        assert_eq!(average.value_at(UnixMs(3_000), GAP), Some(0.5));
        assert_eq!(average.value_at(UnixMs(3_101), GAP), None);
        assert_eq!(average_of(&[(0, Some(0.5)), (9_000, Some(0.1))]).value.to_string(), "0.1");
        assert_eq!(MovingAverage::default().value_at(UnixMs(0), GAP), None);
    }

    #[test]
    fn timestamp_survives_wrap_around_and_a_clock_that_is_behind() {
        let wrap = (i64::from(u32::MAX) + 1) * UNIT_MS;
        let of = |ms| CompactTimestamp::of(UnixMs(wrap + ms));
        assert!((of(2_000).seconds_since(of(-1_000)) - 3.0).abs() < 1e-9);
        assert_eq!(of(0).seconds_since(of(5_000)).to_string(), "0", "a minute ahead is no time");
        let average = average_of(&[(0, Some(0.5))]);
        assert_eq!(average.value_at(UnixMs(365 * 86_400_000), GAP), None);
        assert_eq!(size_of::<MovingAverage>(), 8);
    }
}
