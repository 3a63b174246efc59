//! Navigation: opens screens, goes back, and scrolls.

use super::UpdateOutcome;
use crate::{
    action::{ConsoleEffect, KeyIntent},
    console_state::{ConsoleState, TRAIL},
    cursor::RowCursor,
    screen::{EventsScreen, JobScreen, ListScreen, Screen, TopologyScreen},
    screens::node_screen::DEVICES_CURSOR,
};
use gaunt_api::{Subject, filter::quote_text};

/// Opens a screen and pushes the current one on the back stack.
pub(crate) fn open_screen(state: &mut ConsoleState, place: Screen) -> UpdateOutcome {
    if state.screen == place {
        return UpdateOutcome::with_redraw();
    }
    if state.back_stack.len() == TRAIL {
        state.back_stack.remove(0);
    }
    state.back_stack.push(std::mem::take(&mut state.screen));
    enter_screen(state, place)
}

/// Closes the current screen and returns to the previous one.
pub(super) fn go_back(state: &mut ConsoleState) -> UpdateOutcome {
    let place = state.back_stack.pop().unwrap_or_default();
    enter_screen(state, place)
}

/// Shows a screen and asks its questions at once.
fn enter_screen(state: &mut ConsoleState, place: Screen) -> UpdateOutcome {
    if state.screen != place {
        (state.scroll, state.entered) = (0, state.now);
        state.data.refused = None;
        if place.node_name() != state.screen.node_name() {
            *state.cursors.of_mut(DEVICES_CURSOR) = RowCursor::default();
        }
    }
    state.screen = place;
    UpdateOutcome::with_effect(ConsoleEffect::Ask(state.screen_questions()))
}

/// Opens the screen of the item under the cursor. A finding is shown as in its row until its answer arrives.
pub(crate) fn open_target(state: &mut ConsoleState, target: Option<Screen>) -> UpdateOutcome {
    let Some(target) = target else { return UpdateOutcome::with_redraw() };
    if let Some(id) = target.finding_id() {
        let rows = state.finding_rows();
        let found =
            rows.iter().filter_map(|row| row.single_finding()).find(|found| *id == *found.id);
        state.data.finding = found.map(|finding| (finding.clone(), true));
        state.data.explained = None;
    }
    open_screen(state, target)
}

/// Opens the list of a subject with a filter, for an item that represents several rows; none if there is no item.
pub(crate) fn open_filtered_list(
    state: &mut ConsoleState,
    subject: Subject,
    filter: Option<String>,
) -> UpdateOutcome {
    let Some(filter) = filter else { return UpdateOutcome::with_redraw() };
    // The filter consists of quoted names; if it does not parse, the list stays unfiltered.
    _ = state.list_state_mut(subject).apply_filter(&filter);
    open_screen(state, ListScreen(subject).into())
}

/// Opens the job of the shown item.
pub(super) fn open_job(state: &mut ConsoleState) -> UpdateOutcome {
    let Some(job) = state.screen.item_job(state) else {
        super::show_message(state, false, "no job for this item");
        return UpdateOutcome::with_redraw();
    };
    open_screen(state, JobScreen(job).into())
}

/// Opens another screen of the shown node.
pub(super) fn open_node_screen(state: &mut ConsoleState, intent: KeyIntent) -> UpdateOutcome {
    let Some(node) = state.screen.node_name().cloned() else { return UpdateOutcome::default() };
    match intent {
        KeyIntent::Topology => open_screen(state, TopologyScreen(node).into()),
        KeyIntent::Processes => {
            let filter = format!("node={}", quote_text(&node));
            open_filtered_list(state, Subject::Processes, Some(filter))
        }
        _ => open_screen(state, EventsScreen(node).into()),
    }
}

/// Returns how many rows a key moves in a list.
pub(crate) fn row_steps(state: &ConsoleState, intent: KeyIntent) -> isize {
    step_size(state, intent, 1, 0)
}

/// Returns how many items a key moves: `row` per line, `one` per column, and the lines of the screen per page.
pub(crate) fn step_size(state: &ConsoleState, intent: KeyIntent, row: isize, one: isize) -> isize {
    let page = state.layout.page.max(1) as isize;
    match intent {
        KeyIntent::Up => -row,
        KeyIntent::Down => row,
        KeyIntent::Left => -one,
        KeyIntent::Right => one,
        KeyIntent::PageUp => -page,
        KeyIntent::PageDown => page,
        KeyIntent::First => isize::MIN,
        KeyIntent::Last => isize::MAX,
        _ => 0,
    }
}

/// Scrolls a page without a cursor by a number of lines.
pub(crate) fn scroll_by(state: &mut ConsoleState, by: isize) {
    state.scroll = state.scroll.saturating_add_signed(by).min(state.layout.hidden);
}
