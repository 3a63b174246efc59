//! Moving averages over uneven samples that know when they have nothing to say.

use std::time::Duration;

use gaunt_schema::UnixMs;

/// One sample's place in time, with the weight that it gets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tick {
    at: UnixMs,
    span: f64,
    gap: Duration,
    /// The last interval that was asked for, with its weight: nearly always the same for all averages of a device.
    known: (Duration, f64),
}

impl Tick {
    /// A sample at `at`, in averages over `span` seconds that start anew after `gap` without one.
    pub(super) fn new(at: UnixMs, span: f64, gap: Duration) -> Self {
        Self { at, span: span.max(1e-3), gap, known: (Duration::ZERO, 0.0) }
    }

    /// The weight of the sample after `passed`.
    ///
    /// Half the span is the time constant: then samples are as old on average as in a plain mean over the span.
    fn weight(&mut self, passed: Duration) -> f64 {
        if passed != self.known.0 {
            self.known = (passed, -(-2.0 * passed.as_secs_f64() / self.span).exp_m1());
        }
        self.known.1
    }

    /// When the sample came.
    pub(super) fn at(&self) -> UnixMs {
        self.at
    }
}

/// An exponentially weighted average.
#[derive(Clone, Copy, Debug)]
pub(super) struct Average {
    value: f64,
    /// When its last sample came; [`NEVER`] before the first, which is half the size of an option.
    at: UnixMs,
}

const NEVER: UnixMs = UnixMs(i64::MIN);

impl Default for Average {
    fn default() -> Self {
        Self { value: 0.0, at: NEVER }
    }
}

impl Average {
    /// Adds a sample; an absent one changes nothing, and the average grows old.
    pub(super) fn add(&mut self, sample: Option<f64>, tick: &mut Tick) {
        let Some(sample) = sample else { return };
        let last = self.at;
        self.value = if last != NEVER && tick.at.since(last) <= tick.gap {
            self.value + (sample - self.value) * tick.weight(tick.at.since(last))
        } else {
            sample
        };
        self.at = tick.at;
    }

    /// The average, unless its last sample is more than `gap` before `now`.
    pub(super) fn at(&self, now: UnixMs, gap: Duration) -> Option<f64> {
        (self.at != NEVER && now.since(self.at) <= gap).then_some(self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: Duration = Duration::from_secs(3);

    fn after(samples: &[(i64, Option<f64>)]) -> Average {
        let mut average = Average::default();
        for (at, sample) in samples {
            average.add(*sample, &mut Tick::new(UnixMs(*at), 10.0, GAP));
        }
        average
    }

    #[test]
    fn half_the_way_is_gone_after_a_third_of_the_span() {
        let samples: Vec<_> = (0..=4).map(|s| (s * 1_000, Some(f64::from(s > 0)))).collect();
        let value = after(&samples).at(UnixMs(4_000), GAP).unwrap();
        assert!((value - (1.0 - (-0.8_f64).exp())).abs() < 1e-12, "{value}");
    }

    #[test]
    fn the_rate_of_sampling_does_not_matter() {
        let slow = after(&[(0, Some(1.0)), (2_000, Some(0.0))]);
        let fast = after(&[(0, Some(1.0)), (1_000, Some(0.0)), (2_000, Some(0.0))]);
        assert!((slow.value - fast.value).abs() < 1e-12);
    }

    #[test]
    fn absent_samples_are_not_zero_and_a_gap_starts_anew() {
        let average = after(&[(0, Some(0.5)), (1_000, None), (2_000, None)]);
        assert_eq!(average.at(UnixMs(3_000), GAP), Some(0.5));
        assert_eq!(average.at(UnixMs(3_001), GAP), None);
        assert_eq!(after(&[(0, Some(0.5)), (9_000, Some(0.1))]).value.to_string(), "0.1");
        assert_eq!(Average::default().at(UnixMs(0), GAP), None);
    }
}
