//! Age of the shown rows by the instant of their own answer, and what is missing or wrong in that answer.

use std::time::Duration;

use super::{
    console_state::{ConsoleState, SourceStatus},
    display_text,
    screens::view_of,
};

/// Returns the age of the shown rows, if they are stale.
pub(crate) fn stale_age(state: &ConsoleState) -> Option<Duration> {
    // A view of the past does not age, and a replay has its own clock.
    if state.past_instant.is_some() || state.replay.is_some() {
        return None;
    }
    let shown = view_of(&state.screen);
    // Before their first answer, only the header is shown.
    let header = || state.data.overview.as_deref().map(|overview| overview.at);
    let age = state.source_now()?.duration_since(shown.shown_at(state).or_else(header)?);
    (age >= state.late_threshold() + shown.extra_age()).then_some(age)
}

/// Returns what the shown answer leaves out, in one sentence; none if it is complete.
pub(crate) fn missing_rows(state: &ConsoleState) -> Option<String> {
    let (shown, all, what) = view_of(&state.screen).row_counts(state)?;
    let (shown_text, all_text) =
        (display_text::format_count(shown), display_text::format_count(all));
    (shown < all).then(|| format!("partial: {shown_text} of {all_text} {what} are shown"))
}

/// Returns whether the screen shows a text that changes with time alone.
pub(crate) fn has_aging_text(state: &ConsoleState) -> bool {
    let fresh = matches!(state.source_status, SourceStatus::Fresh(at) if state.now.duration_since(at) < state.late_threshold());
    let shown = view_of(&state.screen);
    let waits = shown.shown_at(state).is_none() || shown.failed_question(state).is_some();
    !fresh || waits || state.instant_asked.is_some() || stale_age(state).is_some()
}
