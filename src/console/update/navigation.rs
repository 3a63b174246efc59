//! Navigation: opens screens and goes back.

use super::update_outcome::UpdateOutcome;
use crate::{
    action::KeyIntent,
    console_state::{ConsoleState, TRAIL},
    cursor::RowCursor,
    screen::{EventsScreen, FindingScreen, JobScreen, Screen, TopologyScreen},
    screen_view::ScreenOutcome,
    screens::{self, node_screen::DEVICES_CURSOR, view_of},
};
use gaunt_api::{Subject, filter::quote_text};

/// Does what a screen wants after a key or a click.
pub(super) fn apply_screen_outcome(
    outcome: ScreenOutcome,
    state: &mut ConsoleState,
) -> UpdateOutcome {
    match outcome {
        ScreenOutcome::Unchanged => UpdateOutcome::default(),
        ScreenOutcome::Redraw => UpdateOutcome::with_redraw(),
        ScreenOutcome::Ask => UpdateOutcome::with_questions(state),
        ScreenOutcome::Open(target) => open_screen(state, target),
    }
}

/// Opens a screen and pushes the current one on the back stack. A finding is shown as in its row until its answer
/// arrives.
pub(super) fn open_screen(state: &mut ConsoleState, target: Screen) -> UpdateOutcome {
    if state.screen == target {
        return UpdateOutcome::with_redraw();
    }
    if let Screen::Finding(FindingScreen(id)) = &target {
        let rows = view_of(&state.screen).finding_rows(state);
        let found =
            rows.iter().filter_map(|row| row.single_finding()).find(|found| *id == *found.id);
        state.data.finding = found.map(|finding| (finding.clone(), true));
        state.data.explained = None;
    }
    if state.back_stack.len() == TRAIL {
        state.back_stack.remove(0);
    }
    state.back_stack.push(std::mem::take(&mut state.screen));
    enter_screen(state, target)
}

/// Opens a main screen, without a filter that another screen set for its rows.
pub(super) fn open_main_screen(state: &mut ConsoleState, number: u8) -> UpdateOutcome {
    let screen = screens::main_screen(number);
    if let Some(subject) = view_of(&screen).filter_subject() {
        state.list_state_mut(subject).clear_filter(true);
    }
    if state.screen == screen {
        return UpdateOutcome::with_questions(state);
    }
    open_screen(state, screen)
}

/// Clears the user's filter of the current screen; without one, closes the screen and returns to the previous one.
pub(super) fn go_back(state: &mut ConsoleState) -> UpdateOutcome {
    let view = view_of(&state.screen);
    let (entered, subject) = (view.has_entered_filter(state), view.filter_subject());
    if let Some(subject) = subject {
        state.list_state_mut(subject).clear_filter(false);
    }
    if entered {
        return UpdateOutcome::with_questions(state);
    }
    let screen = state.back_stack.pop().unwrap_or_default();
    enter_screen(state, screen)
}

/// Shows a screen and asks its questions at once.
fn enter_screen(state: &mut ConsoleState, screen: Screen) -> UpdateOutcome {
    if state.screen != screen {
        (state.scroll, state.entered) = (0, state.now);
        state.clear_warning();
        state.data.refused = None;
        if view_of(&screen).node_name() != view_of(&state.screen).node_name() {
            *state.cursors.of_mut(DEVICES_CURSOR) = RowCursor::default();
        }
    }
    state.screen = screen;
    UpdateOutcome::with_questions(state)
}

/// Opens the job of the shown item.
pub(super) fn open_job(state: &mut ConsoleState) -> UpdateOutcome {
    let Some(job) = view_of(&state.screen).item_job(state) else {
        state.show_message(false, "no job for this item");
        return UpdateOutcome::with_redraw();
    };
    open_screen(state, JobScreen(job).into())
}

/// Opens another screen of the shown node.
pub(super) fn open_node_screen(state: &mut ConsoleState, intent: KeyIntent) -> UpdateOutcome {
    let Some(node) = view_of(&state.screen).node_name().cloned() else {
        return UpdateOutcome::default();
    };
    let outcome = match intent {
        KeyIntent::Topology => ScreenOutcome::Open(TopologyScreen(node).into()),
        KeyIntent::Processes => {
            let filter = format!("node={}", quote_text(&node));
            ScreenOutcome::open_filtered_list(state, Subject::Processes, Some(filter))
        }
        _ => ScreenOutcome::Open(EventsScreen(node).into()),
    };
    apply_screen_outcome(outcome, state)
}
