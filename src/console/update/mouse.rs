//! Mouse input: a click on a row moves the cursor there, a second click opens the row; the wheel moves the cursor.

use ratatui::layout::Position;

use super::{UpdateOutcome, handle_intent, navigation};
use crate::{
    action::{ConsoleEffect, KeyIntent, MouseEvent},
    console_state::{ClickTarget, ConsoleState, OverviewPanel},
    screen::Screen,
};

/// Lines per step of the wheel.
const WHEEL: usize = 3;

/// Handles a mouse event.
pub(super) fn handle_mouse(state: &mut ConsoleState, mouse: MouseEvent) -> UpdateOutcome {
    let (x, y, turn) = match mouse {
        MouseEvent::Press(x, y) => (x, y, None),
        MouseEvent::WheelUp(x, y) => (x, y, Some(KeyIntent::Up)),
        MouseEvent::WheelDown(x, y) => (x, y, Some(KeyIntent::Down)),
    };
    if state.prompt.is_some() || state.confirm.is_some() {
        return UpdateOutcome::default();
    }
    if state.help {
        state.help = turn.is_some();
        return UpdateOutcome::with_redraw();
    }
    let at = Position { x, y };
    let what =
        state.layout.click_areas.iter().find(|spot| spot.area.contains(at)).map(|spot| spot.target);
    if let Some(turn) = turn {
        if let Some(ClickTarget::Panel(panel, _)) = what {
            state.panel = panel;
        }
        let outcomes = (0..WHEEL).map(|_| navigation::move_cursor(state, turn));
        return outcomes.last().unwrap_or_default();
    }
    match what {
        Some(ClickTarget::Key(intent)) => handle_intent(state, intent),
        Some(ClickTarget::Panel(panel, row)) => press_panel_row(state, panel, row),
        Some(ClickTarget::Row(row)) => press_list_row(state, row),
        Some(ClickTarget::Heading(column)) => press_heading(state, column),
        Some(ClickTarget::Cell(row, column)) if state.screen == Screen::Probe => {
            let Some((_, square)) = state.shown_matrix() else { return UpdateOutcome::default() };
            let again = navigation::select_pair(state, &square, row as isize, column as isize);
            if again { navigation::open_selected(state) } else { UpdateOutcome::with_redraw() }
        }
        Some(ClickTarget::Cell(leaf, rail)) => {
            let again = std::mem::replace(&mut state.cursors.cell, (leaf, rail)) == (leaf, rail);
            if again { navigation::open_selected(state) } else { UpdateOutcome::with_redraw() }
        }
        None => UpdateOutcome::default(),
    }
}

fn press_panel_row(state: &mut ConsoleState, panel: OverviewPanel, row: usize) -> UpdateOutcome {
    let Some(overview) = state.data.overview.clone() else { return UpdateOutcome::default() };
    let same = std::mem::replace(&mut state.panel, panel) == panel;
    let keys = navigation::finding_keys(state);
    let at = &mut state.cursors;
    let again = match panel {
        OverviewPanel::Findings => at.findings.move_to(row, keys.len(), |at| &keys[at]),
        OverviewPanel::Heat => {
            at.heat.move_to(row, overview.heat.nodes.len(), |at| &overview.heat.nodes[at])
        }
        OverviewPanel::Worst => {
            at.worst.move_to(row, overview.worst.len(), |at| &overview.worst[at].node)
        }
    };
    if same && again {
        return navigation::open_selected(state);
    }
    UpdateOutcome::with_effect(ConsoleEffect::Ask(state.screen_questions()))
}

/// Handles a click on a row of a list.
fn press_list_row(state: &mut ConsoleState, row: usize) -> UpdateOutcome {
    let keys = navigation::finding_keys(state);
    let at = &mut state.cursors;
    let again = match &state.screen {
        Screen::Findings => at.findings.move_to(row, keys.len(), |at| &keys[at]),
        Screen::List(subject) => {
            let subject = *subject;
            let Some(table) = state.subject_table(subject).cloned() else {
                return UpdateOutcome::default();
            };
            let again = state.list_state(subject).cursor_position(&table) == row;
            state.list_state_mut(subject).move_cursor_to(row, &table);
            again
        }
        Screen::Users => {
            let rolls = state
                .data
                .users
                .as_deref()
                .map_or_else(Vec::new, crate::user_totals::UserTotals::of);
            at.users.move_to(row, rolls.len(), |at| &rolls[at].name)
        }
        Screen::Job(_) => {
            let strips = state.data.job.as_deref().map_or(&[][..], |job| &job.past.strips);
            at.timelines.move_to(row, strips.len(), |at| &strips[at].node)
        }
        Screen::Node(_) => {
            let Some(detail) = state.data.node.clone() else { return UpdateOutcome::default() };
            let devices = navigation::openable_devices(&detail);
            at.devices.move_to(row, devices.len(), |at| &devices[at].name)
        }
        _ => return UpdateOutcome::default(),
    };
    if again {
        navigation::open_selected(state)
    } else {
        UpdateOutcome::with_effect(ConsoleEffect::Ask(state.screen_questions()))
    }
}

/// Handles a click on a column heading.
fn press_heading(state: &mut ConsoleState, column: usize) -> UpdateOutcome {
    let Screen::List(subject) = state.screen else { return UpdateOutcome::default() };
    let Some(field) = state.list_state(subject).shown_columns().get(column).copied() else {
        return UpdateOutcome::default();
    };
    state.list_state_mut(subject).sort_by(field);
    UpdateOutcome::with_effect(ConsoleEffect::Ask(state.screen_questions()))
}
