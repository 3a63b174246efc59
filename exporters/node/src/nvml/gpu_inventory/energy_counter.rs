//! The energy of a GPU between two readings of its counter: each costs the driver milliseconds, its power next to nothing.

use gaunt_schema::{Reading, catalogue::gpu};

use crate::nvml::worker_pipe::GpuRoundReadings;

/// The counter of one GPU, in joules.
#[derive(Default)]
pub(super) struct EnergyCounter {
    /// The last reading of the board's counter; none before the first one, and where it has none.
    read: Option<f64>,
    /// The integral of the power since then.
    since: f64,
    /// The highest value that was reported: a counter does not fall.
    reported: f64,
}

impl EnergyCounter {
    /// Continues the counter in a round without a reading, `step` seconds after the last one.
    pub(super) fn apply_tick(&mut self, step: f64, readings: &mut GpuRoundReadings) {
        let Some(reading) = readings.find_reading(gpu::ENERGY) else {
            let Some(read) = self.read else { return };
            let power = readings.find_reading(gpu::POWER).and_then(Reading::value);
            self.since += power.unwrap_or(0.0) * step.max(0.0);
            self.reported = self.reported.max(read + self.since);
            readings.readings.push((gpu::ENERGY, Reading::of(self.reported)));
            return;
        };
        if let Some(joules) = reading.value() {
            // A driver that was loaded again counts from zero.
            let restarted = self.read.is_none_or(|read| joules < read);
            self.reported = if restarted { joules } else { self.reported.max(joules) };
            let reported = Reading::of(self.reported);
            let readings = readings.readings.iter_mut();
            readings
                .filter(|(metric, _)| *metric == gpu::ENERGY)
                .for_each(|(_, reading)| *reading = reported);
        }
        (self.read, self.since) = (reading.value(), 0.0);
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{AbsenceReason, MetricId};

    use super::*;

    /// The counter that is reported after each round: of a reading, if there is one, and 100 W.
    fn reported(rounds: &[Option<Reading>]) -> Vec<Option<Reading>> {
        let mut counter = EnergyCounter::default();
        let round = |energy: &Option<Reading>| {
            let energy = energy.map(|energy| (gpu::ENERGY, energy));
            let power: (MetricId, Reading) = (gpu::POWER, Reading::of(100.0));
            let mut readings = GpuRoundReadings {
                readings: energy.into_iter().chain([power]).collect(),
                ..GpuRoundReadings::default()
            };
            counter.apply_tick(1.0, &mut readings);
            readings.find_reading(gpu::ENERGY)
        };
        rounds.iter().map(round).collect()
    }

    #[test]
    fn energy_goes_on_with_the_power_until_it_is_read_again() {
        let read = |joules: f64| Some(Reading::of(joules));
        // It used more than 100 W.
        assert_eq!(
            reported(&[read(5000.0), None, None, read(5330.0), None]),
            [5000.0, 5100.0, 5200.0, 5330.0, 5430.0].map(|joules| Some(Reading::of(joules)))
        );
        // It used less: the counter waits, and does not fall.
        assert_eq!(
            reported(&[read(5000.0), None, None, read(5150.0), None, None]),
            [5000.0, 5100.0, 5200.0, 5200.0, 5250.0, 5350.0]
                .map(|joules| Some(Reading::of(joules)))
        );
    }

    #[test]
    fn counter_that_starts_again_or_does_not_exist_is_reported_as_it_is() {
        let (read, absent) = (Reading::of, Reading::new_absent(AbsenceReason::Unsupported));
        let restarted = reported(&[Some(read(5000.0)), None, Some(read(20.0)), None]);
        assert_eq!(restarted, [5000.0, 5100.0, 20.0, 120.0].map(|joules| Some(read(joules))));
        assert_eq!(reported(&[None, Some(absent), None]), [None, Some(absent), None]);
    }
}
