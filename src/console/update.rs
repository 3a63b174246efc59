//! Update function of the console: the only place that changes its state; takes an action and returns effects.

use gaunt_api::Answer;
use gaunt_schema::{SanitizedText, UnixMs};

use super::{
    action::{ConsoleAction, ConsoleEffect},
    console_state::{ConsoleState, SourceStatus},
    failed_questions::is_overview,
    freshness::has_aging_text,
    key_press::KeyPress,
    keymap,
    screens::view_of,
};
use update_outcome::UpdateOutcome;

mod bound_keys;
mod confirm;
mod key_input;
mod mouse;
mod navigation;
mod plugin_input;
mod prompt_input;
mod received_answers;
mod saved_rows;
mod search_input;
mod ticket_copy;
mod time_navigation;
mod update_outcome;
mod wait_relation;

/// Applies one action to the state.
pub(crate) fn apply_action(state: &mut ConsoleState, action: ConsoleAction) -> UpdateOutcome {
    let outcome = change_state(state, action);
    state.renew_heat_index();
    outcome
}

fn change_state(state: &mut ConsoleState, action: ConsoleAction) -> UpdateOutcome {
    if matches!(action, ConsoleAction::Key(_) | ConsoleAction::Mouse(_)) {
        state.tour = None;
    }
    match action {
        ConsoleAction::Key(key) if state.confirm.is_some() => confirm::handle_key(state, key),
        ConsoleAction::Key(key) if search_input::is_open(state) => {
            search_input::handle_key(state, key)
        }
        ConsoleAction::Key(key) if state.prompt.is_some() => prompt_input::handle_key(state, key),
        ConsoleAction::Key(key) => {
            bound_keys::handle_key(state, key).unwrap_or_else(|| handle_own_key(state, key))
        }
        ConsoleAction::OwnKey(key) => handle_own_key(state, key),
        ConsoleAction::Mouse(mouse) => mouse::handle_mouse(state, mouse),
        // The present state is unknown to who may not read it.
        ConsoleAction::Answered(now, question, Answer::Refused(refusal))
            if is_overview(&question) && refusal.is_denied() =>
        {
            handle_lost_source(state, now, refusal.to_string().into())
        }
        ConsoleAction::Answered(now, question, answer) => {
            state.now = now;
            let was_fresh = matches!(state.source_status, SourceStatus::Fresh(_));
            if is_overview(&question) {
                state.source_status = SourceStatus::Fresh(now);
            }
            let had_failed = view_of(&state.screen).failed_question(state).is_some();
            state.failed.clear(&question);
            let mut outcome = received_answers::handle_answer(state, *question, answer);
            outcome.changed |= !was_fresh || had_failed;
            outcome
        }
        ConsoleAction::Failed(now, question, why) if !is_overview(&question) => {
            state.now = now;
            state.failed.record_failure(&question, now, why);
            UpdateOutcome::with_redraw()
        }
        ConsoleAction::Failed(now, _, why) => handle_lost_source(state, now, why),
        ConsoleAction::Done(result) => {
            let (good, text) = match result {
                Ok(text) => (true, text),
                Err(text) => (false, text),
            };
            state.show_message(good, &text);
            UpdateOutcome::with_questions(state)
        }
        ConsoleAction::Tick(now) => handle_tick(state, now),
    }
}

/// Handles a failed question for the overview: the source is lost until one is answered.
fn handle_lost_source(state: &mut ConsoleState, now: UnixMs, why: SanitizedText) -> UpdateOutcome {
    state.now = now;
    let (since, last) = match &state.source_status {
        SourceStatus::Loading => (now, None),
        SourceStatus::Fresh(last) => (now, Some(*last)),
        SourceStatus::Lost { since, last, .. } => (*since, *last),
    };
    state.source_status = SourceStatus::Lost { since, last, why };
    UpdateOutcome::with_redraw()
}

/// Handles a key by gaunt's own keymap.
fn handle_own_key(state: &mut ConsoleState, key: KeyPress) -> UpdateOutcome {
    match keymap::intent_for_key(key, &state.screen) {
        Some(intent) => key_input::handle_intent(state, intent),
        // An unbound key also closes the help screen.
        None => UpdateOutcome { changed: std::mem::take(&mut state.help), effects: Vec::new() },
    }
}

/// Handles a tick: refreshes the answers, and redraws if the shown data becomes stale.
fn handle_tick(state: &mut ConsoleState, now: UnixMs) -> UpdateOutcome {
    state.now = now;
    state.utc_offset = state.config.zone.offset_seconds(now);
    let over = state.message.take_if(|message| message.until <= now).is_some();
    let changed = over || has_aging_text(state);
    let mut outcome = UpdateOutcome { changed, ..UpdateOutcome::with_questions(state) };
    if let Some((keys, text, lasts)) = state.tour.as_mut().and_then(|tour| tour.take_due_step(now))
    {
        outcome.changed = true;
        outcome.effects.extend(keys.iter().map(|key| ConsoleEffect::Press(*key)));
        state.show_message_for(true, text, lasts);
    }
    outcome
}
