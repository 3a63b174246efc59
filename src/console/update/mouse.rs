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
    let screen = state.screen.clone();
    if let Some(turn) = turn {
        if let Some(ClickTarget::Panel(panel, _)) = what {
            state.panel = panel;
        }
        let outcomes = (0..WHEEL).map(|_| view_of(&screen).handle_intent(state, turn));
        return apply_screen_outcome(outcomes.last().unwrap_or_default(), state);
    }
    match what {
        Some(ClickTarget::Key(intent)) => handle_intent(state, intent),
        Some(target) => apply_screen_outcome(view_of(&screen).handle_click(state, target), state),
        None => UpdateOutcome::default(),
    }
}
