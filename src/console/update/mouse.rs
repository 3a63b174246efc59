//! Mouse input: a click on a row moves the cursor there, a second click opens the row; the wheel moves the cursor.

use ratatui::layout::Position;

use super::{
    key_input::handle_intent, navigation::apply_screen_outcome, update_outcome::UpdateOutcome,
};
use crate::{
    action::{KeyIntent, MouseEvent},
    console_state::{ClickTarget, ConsoleState},
    screens::view_of,
};

/// Lines per step of the wheel.
const WHEEL: usize = 3;

/// Handles a mouse event.
pub(super) fn handle_mouse(state: &mut ConsoleState, mouse: MouseEvent) -> UpdateOutcome {
    let (x, y, wheel_intent) = match mouse {
        MouseEvent::Press(x, y) => (x, y, None),
        MouseEvent::WheelUp(x, y) => (x, y, Some(KeyIntent::Up)),
        MouseEvent::WheelDown(x, y) => (x, y, Some(KeyIntent::Down)),
    };
    if state.prompt.is_some() || state.confirm.is_some() {
        return UpdateOutcome::default();
    }
    if state.help {
        state.help = wheel_intent.is_some();
        return UpdateOutcome::with_redraw();
    }
    let at = Position { x, y };
    let clicked = state
        .layout
        .click_areas
        .iter()
        .find(|click_area| click_area.area.contains(at))
        .map(|click_area| click_area.target);
    let screen = state.screen.clone();
    if let Some(wheel_intent) = wheel_intent {
        if let Some(ClickTarget::Panel(panel, _)) = clicked {
            state.panel = panel;
        }
        let outcomes = (0..WHEEL).map(|_| view_of(&screen).handle_intent(state, wheel_intent));
        return apply_screen_outcome(outcomes.last().unwrap_or_default(), state);
    }
    match clicked {
        Some(ClickTarget::Key(intent)) => handle_intent(state, intent),
        Some(target) => apply_screen_outcome(view_of(&screen).handle_click(state, target), state),
        None => UpdateOutcome::default(),
    }
}
