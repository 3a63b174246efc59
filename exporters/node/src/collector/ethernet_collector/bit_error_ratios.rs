//! Bit error ratios of a link: the errors of the last minute divided by the bits of that time.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use gaunt_schema::{Device, MetricId, Report, catalogue::ethernet};

/// The window over which errors are counted: a good link has one in many seconds.
const WINDOW: Duration = Duration::from_mins(1);

/// The time between two stored counts.
const STEP: Duration = Duration::from_secs(5);

/// The bits of a link, and the errors among them.
const COUNTERS: [MetricId; 3] =
    [ethernet::PHY_BITS, ethernet::CORRECTED_BITS, ethernet::PCS_SYMBOL_ERRORS];

/// The counts of the last minute: bits, FEC-corrected bits, symbol errors.
#[derive(Default)]
pub(super) struct BitErrorWindow(VecDeque<(Instant, [Option<f64>; COUNTERS.len()])>);

impl BitErrorWindow {
    /// Reads a card's counts from the report, and adds the ratios once there is an older count to compare with.
    pub(super) fn report_error_ratios(&mut self, card: &Device, now: Instant, report: &mut Report) {
        let counts = COUNTERS.map(|metric| report.find_reading(card, metric)?.value());
        if counts[0].is_none() {
            self.0.clear();
            return;
        }
        if self.0.back().is_none_or(|(last, _)| now - *last >= STEP) {
            self.0.push_back((now, counts));
        }
        // One count as old as the window stays as the reference.
        while self.0.get(1).is_some_and(|(time, _)| now - *time >= WINDOW) {
            self.0.pop_front();
        }
        let Some((first_time, first)) = self.0.front() else { return };
        if now - *first_time < STEP {
            return;
        }
        // A counter that decreased was reset with its card: the time in between is unknown.
        let increase =
            |index: usize| Some(counts[index]? - first[index]?).filter(|count| *count >= 0.0);
        let device = report.ensure_device(card.clone());
        let Some(bits) = increase(0).filter(|bits| *bits > 0.0) else {
            self.0.retain(|(time, _)| *time == now);
            return;
        };
        for (index, metric) in [(1, ethernet::RAW_BIT_ERRORS), (2, ethernet::EFFECTIVE_BIT_ERRORS)]
        {
            if let Some(errors) = increase(index) {
                report.push(device, metric, errors / bits);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratios_after(wire: &mut BitErrorWindow, now: Instant, counts: [f64; 3]) -> [Option<f64>; 2] {
        let (mut report, card) = (Report::default(), Device::new_netdev("eth0"));
        let device = report.ensure_device(card.clone());
        for (metric, count) in COUNTERS.into_iter().zip(counts) {
            report.push(device, metric, count);
        }
        wire.report_error_ratios(&card, now, &mut report);
        [ethernet::RAW_BIT_ERRORS, ethernet::EFFECTIVE_BIT_ERRORS]
            .map(|metric| report.find_reading(&card, metric)?.value())
    }

    #[test]
    fn bit_error_ratio_covers_last_minute() {
        let (mut wire, start) = (BitErrorWindow::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(ratios_after(&mut wire, at(0), [1e12, 100.0, 0.0]), [None; 2]);
        assert_eq!(
            ratios_after(&mut wire, at(3), [2e12, 100.0, 0.0]),
            [None; 2],
            "no older count yet"
        );
        assert_eq!(ratios_after(&mut wire, at(10), [3e12, 300.0, 0.0]), [Some(1e-10), Some(0.0)]);
        assert_eq!(ratios_after(&mut wire, at(59), [5e12, 500.0, 4.0]), [Some(1e-10), Some(1e-12)]);
        // The first minute is over, and its errors are out of the window.
        assert_eq!(ratios_after(&mut wire, at(120), [7e12, 500.0, 4.0]), [Some(0.0), Some(0.0)]);
        assert_eq!(
            ratios_after(&mut wire, at(180), [1e6, 0.0, 0.0]),
            [None; 2],
            "a counter was reset"
        );
        assert_eq!(ratios_after(&mut wire, at(190), [2e6, 1.0, 0.0]), [Some(1e-6), Some(0.0)]);
    }

    #[test]
    fn link_without_bit_counter_has_no_ratio() {
        let (mut wire, card) = (BitErrorWindow::default(), Device::new_netdev("eth0"));
        let mut report = Report::default();
        for second in [0, 20] {
            wire.report_error_ratios(
                &card,
                Instant::now() + Duration::from_secs(second),
                &mut report,
            );
        }
        assert!(report.samples.is_empty());
    }
}
