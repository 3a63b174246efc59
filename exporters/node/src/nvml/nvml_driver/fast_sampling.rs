//! Fast sampling between two ticks: it captures what a mean over a second hides.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use gaunt_schema::{AbsenceReason, MetricId, catalogue::gpu};

use super::{GpuSamplingRound, NvmlFeatures};

/// The window of the minimum and maximum.
const WINDOW: Duration = Duration::from_secs(10);

/// Below this activity a GPU counts as idle.
const ALMOST_NOTHING: f64 = 0.05;

/// The shortest time over which power is computed from the energy counter: it updates about every tenth of a second, so
/// over less than two updates the quotient would be mostly noise.
const ENERGY_SPAN: Duration = Duration::from_millis(180);

/// Every metric of fast sampling: from the energy counter, and from the GPU's own counters.
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
    /// The last value of the energy counter that differed from the one before, and when it was read first.
    energy: Option<(Instant, u64)>,
    /// When the energy counter was read last.
    energy_read: Option<Instant>,
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
    /// Records the energy counter: the power is the energy used since its last update. A counter that stands still is
    /// not updated, because no board draws nothing: its next step is the energy of the whole time since the last one.
    pub(super) fn observe_energy(&mut self, now: Instant, millijoules: u64) {
        self.energy_read = Some(now);
        self.power.drop_older(now);
        let Some((last_time, before)) = self.energy else {
            self.energy = Some((now, millijoules));
            return;
        };
        let span = now.saturating_duration_since(last_time);
        if span < ENERGY_SPAN || millijoules == before {
            return;
        }
        self.energy = Some((now, millijoules));
        // A counter that decreased was reset: the time in between is unknown.
        if let Some(used) = millijoules.checked_sub(before) {
            self.power.push_value(now, used as f64 / 1e3 / span.as_secs_f64());
        }
    }

    /// Whether the energy counter was not updated for the whole window.
    fn is_energy_stale(&self) -> bool {
        self.energy_read
            .zip(self.energy)
            .is_some_and(|(read, (updated, _))| updated + WINDOW < read)
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
        round: &mut GpuSamplingRound<'_>,
        features: NvmlFeatures,
    ) {
        let extremes =
            |window: &SampleWindow, enabled: bool| window.min_and_max().filter(|_| enabled);
        if let Some((lowest, highest)) = extremes(&self.power, features.fast_sampling) {
            round.record_reading(gpu::POWER_MIN, Ok(lowest));
            round.record_reading(gpu::POWER_MAX, Ok(highest));
        } else if features.fast_sampling && self.is_energy_stale() {
            round.record_reading(gpu::POWER_MIN, Err(AbsenceReason::Stale));
            round.record_reading(gpu::POWER_MAX, Err(AbsenceReason::Stale));
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
    fn power_is_slope_of_energy_and_counter_reset_gives_no_sample() {
        let (mut samples, start) = (FastSamples::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        samples.observe_energy(at(0), 1_000);
        samples.observe_energy(at(100), 1_100);
        assert_eq!(samples.power.min_and_max(), None, "the interval is too short");
        samples.observe_energy(at(200), 61_000);
        samples.observe_energy(at(400), 141_000);
        samples.observe_energy(at(600), 5);
        assert_eq!(samples.power.min_and_max(), Some((300.0, 400.0)));
    }

    /// A counter that stood still made the lowest power 0 W while the board drew 512 W.
    #[test]
    fn energy_counter_that_stands_still_is_no_power_of_zero() {
        let (mut samples, start) = (FastSamples::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        samples.observe_energy(at(0), 0);
        samples.observe_energy(at(200), 102_400);
        for tenth in 3..40 {
            samples.observe_energy(at(tenth * 100), 102_400);
        }
        assert_eq!(samples.power.min_and_max(), Some((512.0, 512.0)));
        assert!(!samples.is_energy_stale());
        // The step after the pause is the energy of the whole pause.
        samples.observe_energy(at(4_200), 102_400 + 4 * 400_000);
        assert_eq!(samples.power.min_and_max(), Some((400.0, 512.0)));
        for tenth in 43..150 {
            samples.observe_energy(at(tenth * 100), 1_702_400);
        }
        assert_eq!(samples.power.min_and_max(), None, "values older than the window are dropped");
        assert!(samples.is_energy_stale());
    }
}
