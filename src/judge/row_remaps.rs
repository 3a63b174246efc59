//! Row remaps: rows of a GPU's memory that are replaced by spare ones, one after the other. A few over years are what spare
//! rows are for; several within minutes are memory that fails.

use gaunt_schema::UnixMs;
use serde::{Deserialize, Serialize};

/// Rows replaced in one course from which memory fails.
pub(super) const LEAST_ROWS: f64 = 4.0;

/// Seconds without another one after which a course is over.
const OVER_SECONDS: f64 = 600.0;

/// The rows of one GPU that were replaced because of correctable errors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RowRemaps {
    /// The count as last read, and that before the present course.
    counted: f64,
    before: f64,
    /// When the course began, and when another one was last replaced.
    since: UnixMs,
    last: UnixMs,
}

impl RowRemaps {
    /// Adds a count; none is kept of a GPU without any.
    pub(super) fn observe_count(known: Option<Self>, count: f64, at: UnixMs) -> Option<Self> {
        // What was replaced before the first look is old.
        let begins = |before: f64| Self { counted: count, before, since: at, last: at };
        match known {
            None if count <= 0.0 => None,
            None => Some(Self { last: UnixMs::default(), ..begins(count) }),
            // Its driver counts anew.
            Some(known) if count < known.counted => Some(begins(count)),
            Some(known) if count <= known.counted => Some(known),
            Some(known) if known.is_over(at) => Some(begins(known.counted)),
            Some(known) => Some(Self { counted: count, last: at, ..known }),
        }
    }

    /// Returns how many were replaced in the present course, and since when, if memory fails.
    pub(super) fn failing(self, now: UnixMs) -> Option<(f64, UnixMs)> {
        let rows = self.counted - self.before;
        (rows >= LEAST_ROWS && !self.is_over(now)).then_some((rows, self.since))
    }

    fn is_over(self, now: UnixMs) -> bool {
        now.duration_since(self.last).as_secs_f64() > OVER_SECONDS
    }

    /// Clamps timestamps that lie in the future: a clock may have been set back.
    pub(super) fn clamp_times(self, now: UnixMs) -> Self {
        Self { since: self.since.min(now), last: self.last.min(now), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads these counts, one a minute; returns the rows of the course that fails after each.
    fn failing(counts: &[f64]) -> Vec<Option<f64>> {
        let mut known = None;
        let read = counts.iter().zip(1..).map(|(count, minute)| {
            let at = UnixMs(1_800_000_000_000 + minute * 60_000);
            known = RowRemaps::observe_count(known, *count, at);
            known.and_then(|known| Some(known.failing(at)?.0))
        });
        read.collect()
    }

    #[test]
    fn several_rows_within_minutes_fail_and_old_ones_do_not() {
        assert_eq!(failing(&[0.0, 0.0, 2.0, 3.0, 4.0, 4.0]), [None, None, None, None, None, None]);
        assert_eq!(
            failing(&[1.0, 1.0, 3.0, 14.0, 32.0]),
            [None, None, None, Some(13.0), Some(31.0)]
        );
        assert_eq!(failing(&[300.0, 300.0, 301.0]), [None, None, None], "before the first look");
        assert_eq!(failing(&[9.0, 0.0, 1.0]), [None, None, None], "the board was replaced");
    }

    #[test]
    fn a_row_now_and_then_fails_never_and_a_course_is_over_after_a_while() {
        let rare: Vec<f64> = (0..120).map(|minute| f64::from(minute / 12)).collect();
        assert!(failing(&rare).iter().all(Option::is_none));
        let mut course = vec![0.0, 2.0, 5.0, 9.0];
        course.extend([9.0; 12]);
        let told = failing(&course);
        assert_eq!((told[3], told[13], told[14]), (Some(7.0), Some(7.0), None));
    }
}
