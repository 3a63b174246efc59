//! Age of the shown rows by the instant of their own answer, and what is missing or wrong in that answer.

use std::time::Duration;

use gaunt_schema::{SanitizedText, UnixMs};

use super::{
    console_state::{ConsoleState, SourceStatus},
    display_text,
};
use gaunt_api::Question;

/// Maximum number of failures kept: more than any screen asks.
const MAX_FAILURES: usize = 16;

/// Additional age allowed for answers that are polled less often.
pub(crate) const RARE_POLL_AGE: Duration = Duration::from_secs(6);

/// Question whose last attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedQuestion {
    question: Question,
    /// Time of the first failure, by the console's clock.
    pub(crate) since: UnixMs,
    /// Reason of the failure.
    pub(crate) why: SanitizedText,
}

/// Questions whose last attempt failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailedQuestions(Vec<FailedQuestion>);

impl FailedQuestions {
    /// Records that a question failed.
    pub(super) fn record_failure(&mut self, question: &Question, now: UnixMs, why: SanitizedText) {
        if let Some(known) = self.0.iter_mut().find(|known| known.question == *question) {
            known.why = why;
            return;
        }
        if self.0.len() >= MAX_FAILURES {
            self.0.remove(0);
        }
        self.0.push(FailedQuestion { question: question.clone(), since: now, why });
    }

    /// Removes a question that was answered.
    pub(super) fn clear(&mut self, question: &Question) {
        self.0.retain(|known| known.question != *question);
    }
}

/// Returns whether a question asks for the overview, of the present or of the past.
pub(super) fn is_overview(question: &Question) -> bool {
    match question {
        Question::AtTime(_, question) => is_overview(question),
        question => *question == Question::Overview,
    }
}

impl ConsoleState {
    /// Returns the instant of the shown rows; none before their first answer.
    pub(crate) fn shown_at(&self) -> Option<UnixMs> {
        self.screen.shown_at(self)
    }

    /// Returns the present time of the source, whose clock may differ from the console's: the instant of its newest
    /// answer plus the time that has passed since.
    pub(crate) fn source_now(&self) -> Option<UnixMs> {
        if let Some(replay) = self.replay {
            return Some(replay.now);
        }
        self.newest_overview.map(|(seen, at)| at + self.now.duration_since(seen))
    }

    /// Records that an overview of this instant arrived. A repeated instant is not new: the overview keeps aging.
    pub(super) fn record_overview_time(&mut self, at: UnixMs) {
        if self.past_instant.is_none() && self.newest_overview.is_none_or(|(_, known)| at != known)
        {
            self.newest_overview = Some((self.now, at));
        }
    }

    /// Returns the age of the shown rows, if they are stale.
    pub(crate) fn stale_age(&self) -> Option<Duration> {
        // A view of the past does not age, and a replay has its own clock.
        if self.past_instant.is_some() || self.replay.is_some() {
            return None;
        }
        // Before their first answer, only the header is shown.
        let header = || self.data.overview.as_deref().map(|overview| overview.at);
        let age = self.source_now()?.duration_since(self.shown_at().or_else(header)?);
        (age >= self.late_threshold() + self.screen.extra_age()).then_some(age)
    }

    /// Returns how long an answer may be outstanding before the screen shows it as late.
    pub(crate) fn late_threshold(&self) -> Duration {
        let period = self.data.overview.as_deref().map_or(1_000, |overview| overview.period_ms);
        Duration::from_millis(period.max(1_000) * 3)
    }

    /// Returns the failed question of the shown screen, other than the overview.
    pub(crate) fn failed_question(&self) -> Option<&FailedQuestion> {
        let asked = self.screen_questions();
        self.failed
            .0
            .iter()
            .find(|known| !is_overview(&known.question) && asked.contains(&known.question))
    }

    /// Returns what the shown answer leaves out, in one sentence; none if it is complete.
    pub(crate) fn missing_rows(&self) -> Option<String> {
        let (shown, all, what) = self.screen.row_counts(self)?;
        let (shown_text, all_text) =
            (display_text::format_count(shown), display_text::format_count(all));
        (shown < all).then(|| format!("partial: {shown_text} of {all_text} {what} are shown"))
    }

    /// Returns whether the screen shows a text that changes with time alone.
    pub(super) fn has_aging_text(&self) -> bool {
        let fresh = matches!(self.source_status, SourceStatus::Fresh(at) if self.now.duration_since(at) < self.late_threshold());
        let waits = self.shown_at().is_none() || self.failed_question().is_some();
        !fresh || waits || self.stale_age().is_some()
    }
}
