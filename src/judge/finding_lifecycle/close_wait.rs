//! How long a finding stays open without its evidence.

use std::time::Duration;

use gaunt_schema::FindingKind;

use crate::{Thresholds, pending_finding::rests_on_work};

/// A finding closes after as many periods without its evidence, where that is longer than the limit.
const CLOSE_PERIODS: f64 = 1.5;

/// Returns the seconds without its evidence after which a finding closes whose evidence is sampled at this interval.
pub(super) fn close_samples_s(interval: Duration) -> f64 {
    CLOSE_SAMPLES * interval.as_secs_f64()
}

/// A finding closes after two samples without its evidence.
const CLOSE_SAMPLES: f64 = 2.1;

/// Periods after which a rate shows a pause: the first one mixes work and pause.
const PAUSE_PERIODS: f64 = 2.0;

/// Seconds after which a flapping finding closes about what gaunt could not read.
const UNREAD_FLAPS_S: f64 = 180.0;

/// A flapping finding is over after as many of the longest gaps between its openings.
const GAPS: f64 = 1.5;

/// Upper bound of a lapse in seconds, whatever the settings: larger values overflow a duration.
pub(super) const MOST_LAPSE_S: f64 = 86_400.0;

/// Seconds without its evidence after which a finding closes.
#[derive(Clone, Copy, Debug)]
pub(super) struct CloseWait {
    any: f64,
    /// For findings whose evidence exists only while a job works: a pause of the job is recognised within this time.
    of_work: f64,
}

impl CloseWait {
    pub(super) fn new(period_s: f64, limits: &Thresholds) -> Self {
        let any = limits.close_seconds.max(CLOSE_PERIODS * period_s);
        Self { any, of_work: any.max(limits.pause_seconds + PAUSE_PERIODS * period_s) }
    }

    pub(super) fn of(self, kind: FindingKind) -> f64 {
        if rests_on_work(kind) { self.of_work } else { self.any }
    }

    /// Returns the seconds without its evidence after which a flapping finding closes that came again after `gap_s` at most:
    /// it would have come again. What gaunt could not read, it reads again: that must not be said to fail for long.
    pub(super) fn of_flapping(kind: FindingKind, gap_s: f64, limits: &Thresholds) -> f64 {
        use FindingKind::{AggregatorLate, DataStale, JudgementFailed, TargetDown};
        match kind {
            AggregatorLate | DataStale | JudgementFailed | TargetDown => {
                limits.flap_close_seconds.min(UNREAD_FLAPS_S)
            }
            _ => (gap_s * GAPS).min(limits.flap_window_seconds).max(limits.flap_close_seconds),
        }
    }
}
