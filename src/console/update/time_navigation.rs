//! Time navigation: moves the whole screen back and forth in time.

use std::time::Duration;

use gaunt_schema::UnixMs;

use super::update_outcome::UpdateOutcome;
use crate::{
    ReplayProgress,
    action::{ConsoleEffect, KeyIntent},
    console_state::{ConsoleState, LatestAnswers},
    display_text,
    finding_list_rows::FINDINGS_CURSOR,
    prompt_commands::TimeArgument,
    time_marks::{self, TimeMark},
    time_zoom::{OVERVIEW_SPAN, time_steps},
};
use gaunt_api::Refusal;

/// The time between two instants that a source keeps.
const MARK_STEP: Duration = Duration::from_secs(10);

/// How far after a mark an instant is sought.
const MARK_REACH: Duration = Duration::from_secs(30);

/// Goes back or forward by one step; forward beyond the present returns to the present.
pub(super) fn step_time(state: &mut ConsoleState, intent: KeyIntent) -> UpdateOutcome {
    let Some(shown) = state.data.overview.as_deref().map(|overview| overview.at) else {
        return UpdateOutcome::default();
    };
    let from = state.past_instant.unwrap_or(shown);
    let (small, large) = time_steps(state.cursors.bar_span.unwrap_or(OVERVIEW_SPAN));
    let to = match intent {
        KeyIntent::Earlier => from - small,
        KeyIntent::MuchEarlier => from - large,
        KeyIntent::Later => from + small,
        _ => from + large,
    };
    let is_forward = matches!(intent, KeyIntent::Later | KeyIntent::MuchLater);
    if let Some(start) = state.history_start.filter(|start| !is_forward && to < *start) {
        return show_history_start(state, start.min(from));
    }
    match (is_forward, state.past_instant) {
        (true, None) => state.replay.map_or_else(UpdateOutcome::default, |replay| {
            let span = to.duration_since(from);
            seek_replay(state, replay, replay.seek_target.unwrap_or(replay.now) + span)
        }),
        (true, Some(_)) if state.newest_now().is_none_or(|newest| to >= newest) => {
            show_instant(state, None)
        }
        _ => show_instant(state, Some(to)),
    }
}

/// Goes back to the previous mark or forward to the next one; without one by a small step.
pub(super) fn step_to_mark(state: &mut ConsoleState, intent: KeyIntent) -> UpdateOutcome {
    let shown = state.data.overview.as_deref().map(|overview| overview.at);
    let from = state.shown_mark.as_ref().map(|mark| mark.at).or(state.past_instant).or(shown);
    let Some(from) = from else { return UpdateOutcome::default() };
    let back = intent == KeyIntent::PreviousMark;
    let kept = |mark: &&TimeMark| state.history_start.is_none_or(|start| mark.at >= start);
    let mark = if back {
        time_marks::previous_mark(&state.marks, from).filter(kept)
    } else {
        time_marks::next_mark(&state.marks, from)
    };
    match mark.cloned() {
        Some(mark) => show_mark(state, mark.at, mark),
        None => step_time(state, if back { KeyIntent::Earlier } else { KeyIntent::Later }),
    }
}

/// Shows an instant at or after a mark, with the cursor on its finding.
fn show_mark(state: &mut ConsoleState, at: UnixMs, mark: TimeMark) -> UpdateOutcome {
    let outcome = show_instant(state, Some(at));
    if let Some(finding) = &mark.finding {
        state.cursors.of_mut(FINDINGS_CURSOR).follow(finding.clone());
    }
    state.shown_mark = Some(mark);
    outcome
}

/// Asks for a later instant if the answer for that of a mark is from before it: the source keeps an instant of each ten
/// seconds, and what is marked is not in the one before.
pub(super) fn show_after_mark(state: &mut ConsoleState, answered: UnixMs) -> Option<UpdateOutcome> {
    let mark = state.shown_mark.clone().filter(|mark| answered < mark.at)?;
    let later = state.past_instant? + MARK_STEP;
    let is_past = state.newest_now().is_some_and(|now| later < now);
    (is_past && later <= mark.at + MARK_REACH).then(|| show_mark(state, later, mark))
}

/// Seeks a replay to an instant, or to its end.
fn seek_replay(state: &mut ConsoleState, replay: ReplayProgress, to: UnixMs) -> UpdateOutcome {
    if replay.seek_target.unwrap_or(replay.now) >= replay.last {
        state.show_message(
            false,
            &format!("the recording ends at {}", display_text::format_time_of_day(replay.last)),
        );
        return UpdateOutcome::with_redraw();
    }
    UpdateOutcome::with_effect(ConsoleEffect::SeekReplay(to.min(replay.last)))
}

/// Shows an instant from a command; in a replay, it may also be in the future.
pub(super) fn show_named_instant(
    state: &mut ConsoleState,
    instant: TimeArgument,
) -> Result<UpdateOutcome, String> {
    let now = state.newest_now().ok_or("no data yet")?;
    let instant = instant.to_utc(state.utc_offset);
    let ahead = |replay: ReplayProgress| {
        Some((replay, instant.upcoming_instant(now).filter(|to| *to <= replay.last)?))
    };
    Ok(match state.replay.and_then(ahead) {
        Some((replay, to)) => {
            let shown = show_instant(state, None);
            let seek_outcome = seek_replay(state, replay, to);
            UpdateOutcome {
                effects: shown.effects.into_iter().chain(seek_outcome.effects).collect(),
                ..seek_outcome
            }
        }
        None => show_instant(state, Some(instant.resolve_instant(now))),
    })
}

/// Shows an instant of the past, or the present.
pub(super) fn show_instant(state: &mut ConsoleState, then: Option<UnixMs>) -> UpdateOutcome {
    state.clear_warning();
    if state.past_instant != then {
        if state.past_instant.is_none() {
            state.last_present =
                state.data.overview.as_deref().map(|overview| (state.now, overview.at));
        }
        state.past_instant = then;
        state.shown_mark = None;
        state.instant_asked = then.map(|_| state.now);
        // Until the answer arrives, the shown data is of another instant: keep only the frame.
        let retained =
            LatestAnswers { overview: state.data.overview.take(), ..LatestAnswers::default() };
        let finding = state.data.finding.take();
        state.data = LatestAnswers { finding, ..retained };
    }
    UpdateOutcome::with_questions(state)
}

/// Handles an instant without recorded data: shows the oldest one that has some, or the present if there is none.
pub(super) fn handle_missing_instant(state: &mut ConsoleState, refusal: &Refusal) -> UpdateOutcome {
    let Refusal::NotKept { seconds, oldest } = refusal else { return UpdateOutcome::default() };
    // Older aggregators report the age only, in whole seconds.
    let age = Duration::from_secs(*seconds);
    let oldest = oldest.or_else(|| Some(state.newest_now()? - age + Duration::from_secs(1)));
    let is_later = |start: &UnixMs| state.past_instant.is_some_and(|then| then < *start);
    if let Some(start) = oldest.filter(is_later)
        && state.newest_now().is_none_or(|now| start < now)
    {
        state.history_start = Some(start);
        return show_history_start(state, start);
    }
    return_to_present(state, refusal)
}

/// Handles an instant whose overview is refused: shows the present, and why. Rows of another instant would be shown as its own
/// otherwise, and it would be asked for again and again.
pub(super) fn return_to_present(state: &mut ConsoleState, refusal: &Refusal) -> UpdateOutcome {
    let outcome = show_instant(state, None);
    state.show_message(false, &refusal.to_string());
    outcome
}

/// Shows the oldest instant, and that there is none before it.
fn show_history_start(state: &mut ConsoleState, start: UnixMs) -> UpdateOutcome {
    let outcome = show_instant(state, Some(start));
    let text = format!("history starts at {}", display_text::format_time_of_day(start));
    state.show_message(false, &text);
    outcome
}
