//! Update function of the console: the only place that changes its state; takes an action and returns effects.

use std::time::Duration;

use gaunt_schema::{SanitizedText, UnixMs};

use super::{
    action::{ConsoleAction, ConsoleEffect, KeyIntent},
    console_state::{ConsoleState, SourceStatus, StatusMessage},
    freshness::is_overview,
    keymap,
    screen::Screen,
};

mod confirm;
mod mouse;
mod navigation;
mod prompt_input;
mod received_answers;
mod time_navigation;

pub(crate) use navigation::{
    open_filtered_list, open_screen, open_target, row_steps, scroll_by, step_size,
};

/// How long a message stays.
const MESSAGE: Duration = Duration::from_secs(8);

/// Result of an action.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct UpdateOutcome {
    /// Whether the screen must be redrawn.
    pub(crate) changed: bool,
    /// Effects to run.
    pub(crate) effects: Vec<ConsoleEffect>,
}

impl UpdateOutcome {
    /// Returns an outcome that only redraws.
    pub(crate) fn with_redraw() -> Self {
        Self { changed: true, effects: Vec::new() }
    }

    /// Returns an outcome that redraws and runs an effect.
    pub(crate) fn with_effect(effect: ConsoleEffect) -> Self {
        Self { changed: true, effects: vec![effect] }
    }
}

/// Applies one action to the state.
pub(crate) fn apply_action(state: &mut ConsoleState, action: ConsoleAction) -> UpdateOutcome {
    match action {
        ConsoleAction::Key(key) if state.confirm.is_some() => confirm::handle_key(state, key),
        ConsoleAction::Key(key) if state.prompt.is_some() => prompt_input::handle_key(state, key),
        ConsoleAction::Key(key) => match keymap::intent_for_key(key, &state.screen) {
            Some(intent) => handle_intent(state, intent),
            // An unbound key also closes the help screen.
            None => UpdateOutcome { changed: std::mem::take(&mut state.help), effects: Vec::new() },
        },
        ConsoleAction::Mouse(mouse) => mouse::handle_mouse(state, mouse),
        ConsoleAction::Answered(now, question, answer) => {
            state.now = now;
            let was_fresh = matches!(state.source_status, SourceStatus::Fresh(_));
            if is_overview(&question) {
                state.source_status = SourceStatus::Fresh(now);
            }
            let had_failed = state.failed_question().is_some();
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
        ConsoleAction::Failed(now, _, why) => {
            state.now = now;
            let (since, last) = match &state.source_status {
                SourceStatus::Loading => (now, None),
                SourceStatus::Fresh(last) => (now, Some(*last)),
                SourceStatus::Lost { since, last, .. } => (*since, *last),
            };
            state.source_status = SourceStatus::Lost { since, last, why };
            UpdateOutcome::with_redraw()
        }
        ConsoleAction::Done(result) => {
            let (good, text) = match result {
                Ok(text) => (true, text),
                Err(text) => (false, text),
            };
            show_message(state, good, &text);
            UpdateOutcome::with_effect(ConsoleEffect::Ask(state.screen_questions()))
        }
        ConsoleAction::Tick(now) => handle_tick(state, now),
    }
}

/// Shows a message for a limited time.
fn show_message(state: &mut ConsoleState, good: bool, text: &str) {
    state.message = Some(StatusMessage {
        succeeded: good,
        text: SanitizedText::new(text),
        until: state.now + MESSAGE,
    });
}

/// Handles a tick: refreshes the answers, and redraws if the shown data becomes stale.
fn handle_tick(state: &mut ConsoleState, now: UnixMs) -> UpdateOutcome {
    state.now = now;
    let over = state.message.take_if(|message| message.until <= now).is_some();
    UpdateOutcome {
        changed: over || state.has_aging_text(),
        effects: vec![ConsoleEffect::Ask(state.screen_questions())],
    }
}

fn handle_intent(state: &mut ConsoleState, intent: KeyIntent) -> UpdateOutcome {
    match intent {
        KeyIntent::Quit => return UpdateOutcome::with_effect(ConsoleEffect::Quit),
        KeyIntent::Suspend => return UpdateOutcome::with_effect(ConsoleEffect::Suspend),
        KeyIntent::Redraw => return UpdateOutcome::with_effect(ConsoleEffect::Redraw),
        KeyIntent::Help => {
            (state.help, state.scroll) = (!state.help, 0);
            return UpdateOutcome::with_redraw();
        }
        KeyIntent::Up
        | KeyIntent::Down
        | KeyIntent::PageUp
        | KeyIntent::PageDown
        | KeyIntent::First
        | KeyIntent::Last
            if state.help =>
        {
            scroll_by(state, row_steps(state, intent));
            return UpdateOutcome::with_redraw();
        }
        // Any other bound key closes the help screen too.
        _ if std::mem::take(&mut state.help) && intent == KeyIntent::Back => {
            return UpdateOutcome::with_redraw();
        }
        _ => {}
    }
    let screen = state.screen.clone();
    match intent {
        KeyIntent::Screen(number) => open_screen(state, Screen::main(number)),
        KeyIntent::Open => screen.open_item(state),
        KeyIntent::Back => navigation::go_back(state),
        KeyIntent::Job => navigation::open_job(state),
        KeyIntent::Topology | KeyIntent::Processes | KeyIntent::Events => {
            navigation::open_node_screen(state, intent)
        }
        KeyIntent::Filter | KeyIntent::Command | KeyIntent::Columns | KeyIntent::Acknowledge => {
            prompt_input::open_prompt(state, intent)
        }
        KeyIntent::Copy => screen.item_text(state).map_or_else(UpdateOutcome::default, |text| {
            UpdateOutcome::with_effect(ConsoleEffect::Copy(text))
        }),
        KeyIntent::Earlier | KeyIntent::Later | KeyIntent::MuchEarlier | KeyIntent::MuchLater => {
            time_navigation::step_time(state, intent)
        }
        KeyIntent::Now => time_navigation::show_instant(state, None),
        KeyIntent::ToggleReplay if state.replay.is_some() => {
            UpdateOutcome::with_effect(ConsoleEffect::ToggleReplay)
        }
        KeyIntent::ToggleReplay => UpdateOutcome::default(),
        _ => screen.handle_intent(state, intent),
    }
}
