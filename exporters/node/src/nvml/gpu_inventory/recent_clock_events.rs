//! Clock events of the last minutes: in how many ticks each reason was active.

use std::collections::VecDeque;

use gaunt_schema::catalogue::gpu;

use crate::nvml::worker_pipe::GpuRoundReadings;

/// The window, in seconds: the one that common alerts on such events use.
const WINDOW: f64 = 300.0;

/// The most ticks in the window, with the shortest period.
const MAX_TICKS: usize = 3_000;

/// The active reasons of each tick in the window.
#[derive(Default)]
pub(super) struct RecentClockEvents {
    /// When, and one bit for each reason in the order of the catalogue.
    ticks: VecDeque<(f64, u8)>,
    /// Total seconds over all workers, each of which starts at zero.
    now: f64,
    counts: [u32; gpu::CLOCK_EVENTS.len()],
}

impl RecentClockEvents {
    /// Records the readings `step` seconds after the previous ones, and adds the counts to them.
    pub(super) fn apply_tick(&mut self, step: f64, readings: &mut GpuRoundReadings) {
        self.now += step.max(0.0);
        let metric_value =
            |metric| readings.find_reading(metric).and_then(gaunt_schema::Reading::value);
        let mut any_value = false;
        let mask = (0..).zip(gpu::CLOCK_EVENTS).fold(0, |mask, (bit, (_, metric))| {
            let active = metric_value(*metric);
            any_value |= active.is_some();
            mask | u8::from(active.is_some_and(|active| active > 0.0)) << bit
        });
        if !any_value {
            return;
        }
        self.ticks.push_back((self.now, mask));
        self.adjust_counts(mask, true);
        while let Some((time, mask)) = self.ticks.front().copied()
            && (self.now - time > WINDOW || self.ticks.len() > MAX_TICKS)
        {
            self.ticks.pop_front();
            self.adjust_counts(mask, false);
        }
        let counts = gpu::RECENT_CLOCK_EVENTS.into_iter().zip(self.counts);
        readings.readings.extend(counts.map(|(metric, count)| (metric, f64::from(count).into())));
    }

    fn adjust_counts(&mut self, mask: u8, increase: bool) {
        for (bit, count) in self.counts.iter_mut().enumerate() {
            let active = u32::from(mask >> bit & 1);
            *count = if increase { *count + active } else { count.saturating_sub(active) };
        }
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{MetricId, Reading};

    use super::*;

    fn counts_after_tick(
        recent: &mut RecentClockEvents,
        step: f64,
        active: &[MetricId],
    ) -> Vec<f64> {
        let events = gpu::CLOCK_EVENTS.iter();
        let readings = events.map(|(_, metric)| {
            (*metric, Reading::of(f64::from(u8::from(active.contains(metric)))))
        });
        let mut readings =
            GpuRoundReadings { readings: readings.collect(), ..GpuRoundReadings::default() };
        recent.apply_tick(step, &mut readings);
        let count = |metric| readings.find_reading(metric).and_then(Reading::value);
        gpu::RECENT_CLOCK_EVENTS.into_iter().filter_map(count).collect()
    }

    #[test]
    fn clock_events_are_counted_by_reason_for_five_minutes() {
        let mut recent = RecentClockEvents::default();
        let reasons = [gpu::CLOCK_EVENT_SW_POWER_CAP, gpu::CLOCK_EVENT_HW_POWER_BRAKE];
        counts_after_tick(&mut recent, 0.0, &reasons);
        counts_after_tick(&mut recent, 100.0, &reasons[..1]);
        assert_eq!(
            counts_after_tick(&mut recent, 100.0, &[]),
            [0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 1.0]
        );
        assert_eq!(
            counts_after_tick(&mut recent, 150.0, &[]),
            [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
        );
        for _ in 0..2 * MAX_TICKS {
            counts_after_tick(&mut recent, 0.001, &reasons);
        }
        assert_eq!(recent.ticks.len(), MAX_TICKS);
        let mut no_readings = GpuRoundReadings::default();
        recent.apply_tick(1.0, &mut no_readings);
        assert!(no_readings.readings.is_empty(), "unknown reasons have no reading");
    }
}
