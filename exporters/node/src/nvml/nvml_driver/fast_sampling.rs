//! Fast sampling between two ticks: it captures what a mean over a second hides.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use gaunt_schema::{MetricId, catalogue::gpu};

use super::{GpuSamplingRound, NvmlFeatures};

/// The window of the minimum and maximum.
const WINDOW: Duration = Duration::from_secs(10);

/// Below this activity a GPU counts as idle.
const ALMOST_NOTHING: f64 = 0.05;

/// Every metric of fast sampling: of the board's power, and of the GPU's own counters.
const METRICS: [MetricId; 4] =
    [gpu::POWER_MIN, gpu::POWER_MAX, gpu::SM_ACTIVE_MIN, gpu::SM_ACTIVE_MAX];

/// The enabled ones.
pub(super) fn enabled_metrics(features: NvmlFeatures) -> &'static [MetricId] {
    match (features.fast_sampling, features.gpm) {
        (false, _) => &[],
        (true, false) => &METRICS[..2],
        (true, true) => &METRICS,
    }
}

/// The fast samples of one GPU.
#[derive(Default)]
pub(super) struct FastSamples {
    power: SampleWindow,
    sm_active: SampleWindow,
    /// Seconds of almost no activity since the last tick.
    below: f64,
}

/// The values of the last ten seconds.
#[derive(Default)]
struct SampleWindow(VecDeque<(Instant, f64)>);

impl SampleWindow {
    fn push_value(&mut self, now: Instant, value: f64) {
        self.drop_older(now);
        self.0.push_back((now, value));
    }

    fn drop_older(&mut self, now: Instant) {
        while self.0.front().is_some_and(|(time, _)| *time + WINDOW < now) {
            self.0.pop_front();
        }
    }

    fn min_and_max(&self) -> Option<(f64, f64)> {
        let values = || self.0.iter().map(|(_, value)| *value);
        Some((values().reduce(f64::min)?, values().reduce(f64::max)?))
    }
}

impl FastSamples {
    /// Records the board's present power. Not the slope of the energy counter: that is updated ten times a second, at
    /// no fixed distance from the samples, so a fifth of a second holds one to three updates. An H200 that drew a steady
    /// 692 W had extremes of 355 W and 1,062 W that way.
    pub(super) fn observe_power(&mut self, now: Instant, watts: f64) {
        self.power.push_value(now, watts);
    }

    /// Records the activity of the multiprocessors between two instants.
    pub(super) fn observe_sm_active(&mut self, from: Instant, to: Instant, ratio: f64) {
        self.sm_active.push_value(to, ratio);
        if ratio < ALMOST_NOTHING {
            self.below += to.saturating_duration_since(from).as_secs_f64();
        }
    }

    /// Adds the extremes to a tick.
    pub(super) fn record_extremes(
        &mut self,
        now: Instant,
        round: &mut GpuSamplingRound<'_>,
        features: NvmlFeatures,
    ) {
        let extremes =
            |window: &SampleWindow, enabled: bool| window.min_and_max().filter(|_| enabled);
        self.power.drop_older(now);
        if let Some(watts) = round.present_power() {
            self.observe_power(now, watts);
        }
        if let Some((lowest, highest)) = extremes(&self.power, features.fast_sampling) {
            round.record_reading(gpu::POWER_MIN, Ok(lowest));
            round.record_reading(gpu::POWER_MAX, Ok(highest));
        }
        let has_sm_active = features.fast_sampling && features.gpm;
        if let Some((lowest, highest)) = extremes(&self.sm_active, has_sm_active) {
            round.record_reading(gpu::SM_ACTIVE_MIN, Ok(lowest));
            round.record_reading(gpu::SM_ACTIVE_MAX, Ok(highest));
        }
        round.sampled.below = std::mem::take(&mut self.below);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_stall_is_in_extremes_for_ten_seconds() {
        let (mut samples, start) = (FastSamples::default(), Instant::now());
        let tenth = |number: u32| start + number * Duration::from_millis(100);
        for number in 0..20 {
            let ratio = if (4..7).contains(&number) { 0.01 } else { 0.8 };
            samples.observe_sm_active(tenth(number), tenth(number + 1), ratio);
        }
        assert!((samples.below - 0.3).abs() < 1e-9, "{}", samples.below);
        assert_eq!(samples.sm_active.min_and_max(), Some((0.01, 0.8)));
        samples.observe_sm_active(tenth(110), tenth(111), 0.9);
        assert_eq!(samples.sm_active.min_and_max(), Some((0.8, 0.9)));
    }

    #[test]
    fn extremes_of_power_are_values_that_the_board_reported_in_the_last_ten_seconds() {
        let (mut samples, start) = (FastSamples::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(samples.power.min_and_max(), None);
        for (millis, watts) in [(0, 120.0), (100, 691.5), (200, 752.6), (9_000, 662.7)] {
            samples.observe_power(at(millis), watts);
        }
        assert_eq!(samples.power.min_and_max(), Some((120.0, 752.6)));
        samples.observe_power(at(10_150), 700.0);
        assert_eq!(samples.power.min_and_max(), Some((662.7, 752.6)));
    }
}
