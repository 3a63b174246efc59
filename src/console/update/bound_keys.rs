//! Keys that the user bound: to a command, or to a program.

use super::{plugin_input, prompt_input, update_outcome::UpdateOutcome};
use crate::{console_state::ConsoleState, key_press::KeyPress};

/// Handles a key, if the user bound it.
pub(super) fn handle_key(state: &mut ConsoleState, key: KeyPress) -> Option<UpdateOutcome> {
    if let Some(plugin) = state.config.bound_plugin(key) {
        return Some(plugin_input::start_plugin(state, plugin));
    }
    let command = state.config.bound_command(key)?.to_owned();
    Some(prompt_input::run_line(state, &command).unwrap_or_else(|why| {
        state.show_message(false, &format!("{command}: {why}"));
        UpdateOutcome::with_redraw()
    }))
}
