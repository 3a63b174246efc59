//! Program errors: XIDs by which a program on a GPU failed, and whether its job stopped with it. Most are errors of the
//! program; a GPU on which program after program fails is to be tested.

use gaunt_schema::UnixMs;
use serde::{Deserialize, Serialize};

use super::Thresholds;

/// Seconds within which a job must stand still after the XID of a program: what stops later has another reason.
const STOPS_WITHIN_SECONDS: f64 = 120.0;

/// The XID of a program on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ProgramError {
    pub(super) code: u32,
    pub(super) at: UnixMs,
    /// When its job last stood still, if it did within [`STOPS_WITHIN_SECONDS`].
    pub(super) stopped: Option<UnixMs>,
}

impl ProgramError {
    /// Returns the one that is kept after a new one: the first one of those that stopped a job is the cause of the others.
    pub(super) fn next(before: Option<Self>, code: u32, at: UnixMs) -> Self {
        before
            .filter(|before| {
                before.stopped.is_some() || seconds(before.at, at) <= STOPS_WITHIN_SECONDS
            })
            .unwrap_or(Self { code, at, stopped: None })
    }

    /// Records whether its job stands still, if that is known. One whose job goes on, or goes on again for a minute, is
    /// forgotten; so is one that is long past: its job has ended.
    pub(super) fn observe_job(
        self,
        stands: Option<bool>,
        now: UnixMs,
        limits: &Thresholds,
    ) -> Option<Self> {
        if seconds(self.at, now) > limits.error_speaks_seconds {
            return None;
        }
        match self.stopped {
            _ if stands == Some(true) => Some(Self { stopped: Some(now), ..self }),
            Some(last) => (seconds(last, now) < limits.pause_settle_seconds).then_some(self),
            None => (seconds(self.at, now) <= STOPS_WITHIN_SECONDS).then_some(self),
        }
    }

    pub(super) fn clamp_times(self, now: UnixMs) -> Self {
        Self { at: self.at.min(now), stopped: self.stopped.map(|last| last.min(now)), ..self }
    }
}

fn seconds(from: UnixMs, to: UnixMs) -> f64 {
    to.duration_since(from).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_error_counts_once_its_job_stops_within_two_minutes() {
        let at = |second: i64| UnixMs(1_800_000_000_000 + second * 1_000);
        let error = ProgramError::next(None, 31, at(0));
        let limits = Thresholds::default();
        let observe =
            |error: ProgramError, stands, second| error.observe_job(stands, at(second), &limits);
        assert_eq!(observe(error, Some(false), 60), Some(error));
        assert_eq!(observe(error, None, 121), None, "its job goes on");
        let stopped = observe(error, Some(true), 100).unwrap();
        assert_eq!(ProgramError::next(Some(stopped), 43, at(110)), stopped, "43 follows from 31");
        let still = observe(stopped, Some(true), 400).unwrap();
        assert!(observe(still, Some(false), 450).is_some() && observe(still, None, 460).is_none());
        assert_eq!(observe(still, Some(true), 601), None, "it has ended");
        assert_eq!(ProgramError::next(Some(error), 13, at(500)).code, 13);
    }
}
