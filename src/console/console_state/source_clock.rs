//! The source's clock as the console knows it, and when an answer of the source is late.

use std::time::Duration;

use gaunt_schema::UnixMs;

use super::ConsoleState;

/// Additional age allowed for answers that are polled less often.
pub(crate) const RARE_POLL_AGE: Duration = Duration::from_secs(6);

impl ConsoleState {
    /// Returns the present time of the source, whose clock may differ from the console's.
    pub(crate) fn newest_now(&self) -> Option<UnixMs> {
        if let Some(replay) = self.replay {
            return Some(replay.now);
        }
        match self.last_present {
            Some((received, at)) if self.past_instant.is_some() => {
                Some(at + self.now.duration_since(received))
            }
            _ => self.data.overview.as_deref().map(|overview| overview.at),
        }
    }

    /// Returns the present time of the source, whose clock may differ from the console's: the instant of its newest
    /// answer plus the time that has passed since.
    pub(crate) fn source_now(&self) -> Option<UnixMs> {
        if let Some(replay) = self.replay {
            return Some(replay.now);
        }
        self.newest_overview.map(|(received, at)| at + self.now.duration_since(received))
    }

    /// Records that an overview of this instant arrived. A repeated instant is not new: the overview keeps aging.
    pub(crate) fn record_overview_time(&mut self, at: UnixMs) {
        if self.past_instant.is_none() && self.newest_overview.is_none_or(|(_, known)| at != known)
        {
            self.newest_overview = Some((self.now, at));
        }
    }

    /// Returns how long an answer may be outstanding before the screen shows it as late.
    pub(crate) fn late_threshold(&self) -> Duration {
        let period = self.data.overview.as_deref().map_or(1_000, |overview| overview.period_ms);
        Duration::from_millis(period.max(1_000) * 3)
    }
}
