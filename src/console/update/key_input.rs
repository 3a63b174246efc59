//! Key input: performs the operation of a key, on the whole console or on the shown screen.

use super::{
    navigation::{self, apply_screen_outcome},
    prompt_input, search_input, ticket_copy, time_navigation,
    update_outcome::UpdateOutcome,
    wait_relation,
};
use crate::{
    action::{ConsoleEffect, KeyIntent},
    console_state::ConsoleState,
    cursor_rows::{row_steps, scroll_by},
    screens::view_of,
};

/// Handles the operation of a key.
pub(super) fn handle_intent(state: &mut ConsoleState, intent: KeyIntent) -> UpdateOutcome {
    match intent {
        KeyIntent::Quit => return UpdateOutcome::with_effect(ConsoleEffect::Quit),
        KeyIntent::Suspend if state.restriction.confined => {
            state.show_message(false, "the console is not suspended in restricted mode");
            return UpdateOutcome::with_redraw();
        }
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
    let view = view_of(&screen);
    match intent {
        KeyIntent::Screen(number) => navigation::open_main_screen(state, number),
        KeyIntent::Open => apply_screen_outcome(view.open_item(state), state),
        KeyIntent::Back => navigation::go_back(state),
        KeyIntent::Job => navigation::open_job(state),
        KeyIntent::Topology | KeyIntent::Processes | KeyIntent::Events => {
            navigation::open_node_screen(state, intent)
        }
        KeyIntent::Search => search_input::open_search(state),
        KeyIntent::Relation => wait_relation::open_relation(state),
        KeyIntent::Filter | KeyIntent::Command | KeyIntent::Columns | KeyIntent::Acknowledge => {
            prompt_input::open_prompt(state, intent)
        }
        KeyIntent::Copy | KeyIntent::CopyMarkdown if state.restriction.no_copy => {
            state.show_message(false, "nothing is copied in restricted mode");
            UpdateOutcome::with_redraw()
        }
        KeyIntent::CopyMarkdown => ticket_copy::copy_markdown(state),
        KeyIntent::Copy => {
            let target = || Some(view_of(&view.item_target(state)?).copied_name());
            let text = view.item_text(state).or_else(target);
            text.map_or_else(UpdateOutcome::default, |text| {
                UpdateOutcome::with_effect(ConsoleEffect::Copy(text))
            })
        }
        KeyIntent::Earlier | KeyIntent::Later | KeyIntent::MuchEarlier | KeyIntent::MuchLater => {
            time_navigation::step_time(state, intent)
        }
        KeyIntent::PreviousMark | KeyIntent::NextMark => {
            time_navigation::step_to_mark(state, intent)
        }
        KeyIntent::Now => time_navigation::show_instant(state, None),
        KeyIntent::ToggleReplay if state.replay.is_some() => {
            UpdateOutcome::with_effect(ConsoleEffect::ToggleReplay)
        }
        KeyIntent::ToggleReplay => UpdateOutcome::default(),
        _ => apply_screen_outcome(view.handle_intent(state, intent), state),
    }
}
