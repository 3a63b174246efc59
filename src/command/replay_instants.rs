//! Instants of a replay: one tick after the other up to each delivery, leaving out gaps of the recording.

use std::time::Duration;

use gaunt_schema::UnixMs;

use super::progress_line::ProgressLine;

/// The longest gap without a delivery whose ticks are all run: findings of what fell silent open in it. Beyond it the
/// recorder did not run, or its clock was changed, and a year of ticks would say nothing.
const LONGEST_GAP: Duration = Duration::from_mins(15);

/// The instants of a replay.
#[derive(Debug)]
pub(super) struct ReplayInstants {
    next: UnixMs,
    step: Duration,
    /// Time of the last delivery.
    delivered: UnixMs,
    /// The gaps that were left out.
    gaps: usize,
    /// Shown while the replay takes long; none where its end is not known.
    progress: Option<ProgressLine>,
}

/// The most gaps that are reported: a recording may consist of them.
const REPORTED_GAPS: usize = 3;

impl ReplayInstants {
    /// Instants from the first delivery on, this far apart.
    pub(super) fn new(from: UnixMs, step: Duration) -> Self {
        Self { next: from, step, delivered: from, gaps: 0, progress: None }
    }

    /// The same, with its progress up to the last delivery on the terminal.
    pub(super) fn with_end(self, last: UnixMs) -> Self {
        Self { progress: Some(ProgressLine::new("judging", (self.next, last))), ..self }
    }

    /// The next instant before a delivery at this time; none once it is to be delivered.
    pub(super) fn next_before(&mut self, at: UnixMs) -> Option<UnixMs> {
        if self.next >= at {
            self.delivered = self.delivered.max(at);
            return None;
        }
        if self.next.duration_since(self.delivered) > LONGEST_GAP && at > self.next + self.step {
            self.report_gap(at);
            self.next = at;
            return self.next_before(at);
        }
        let instant = self.next;
        if let Some(progress) = &mut self.progress {
            progress.advance_to(instant);
        }
        self.next = self.next + self.step;
        Some(instant)
    }

    /// The instant after the last delivery.
    pub(super) fn last(&self) -> UnixMs {
        self.next
    }

    fn report_gap(&mut self, at: UnixMs) {
        self.gaps += 1;
        let hours = at.duration_since(self.delivered).as_secs_f64() / 3_600.0;
        if self.gaps <= REPORTED_GAPS {
            tracing::warn!("nothing is recorded for {hours:.1} h; this time is skipped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The instants before deliveries at these seconds, in seconds.
    fn instants_before(deliveries: &[i64]) -> Vec<i64> {
        let mut instants = ReplayInstants::new(UnixMs(0), Duration::from_secs(1));
        let mut found = Vec::new();
        for at in deliveries {
            while let Some(instant) = instants.next_before(UnixMs(at * 1_000)) {
                found.push(instant.0 / 1_000);
            }
        }
        found
    }

    #[test]
    fn short_gap_is_ticked_through_and_a_year_is_left_out() {
        assert_eq!(instants_before(&[1, 3, 3, 2, 5]), [0, 1, 2, 3, 4]);
        assert_eq!(instants_before(&[900]).len(), 900);
        let year = 365 * 86_400;
        let found = instants_before(&[1, year, year + 2]);
        assert_eq!(
            found.len(),
            902 + 2,
            "15 minutes after the last delivery, and from the next on"
        );
        assert_eq!(found[901..], [901, year, year + 1]);
        let (far, step) = (UnixMs(i64::MAX), Duration::from_secs(1));
        let mut instants = ReplayInstants::new(UnixMs(i64::MIN), step);
        let count = std::iter::from_fn(|| instants.next_before(far)).count();
        assert!(count < 1_000, "{count} instants between the ends of time");
    }
}
