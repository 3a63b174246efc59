//! Saved rows: the filter, order and columns of a list, kept under a name that opens it.

use super::update_outcome::UpdateOutcome;
use crate::{
    action::ConsoleEffect, console_state::ConsoleState, preferences::MAX_SAVED, screens::view_of,
};

/// Returns the command of saved rows.
pub(super) fn saved_command(state: &ConsoleState, name: &str) -> Option<String> {
    state.preferences.saved.get(name).cloned()
}

/// Saves the rows of the shown list; rows of the same name are replaced.
pub(super) fn save_rows(state: &mut ConsoleState, name: String) -> Result<UpdateOutcome, String> {
    let view = view_of(&state.screen);
    let shown = view.filter_subject().zip(view.rows_command());
    let (subject, word) = shown.ok_or("this screen has no rows to save; open a list first")?;
    let saved = &state.preferences.saved;
    if saved.len() >= MAX_SAVED && !saved.contains_key(&name) {
        return Err(format!("{MAX_SAVED} names are saved; remove one with :forget NAME"));
    }
    let command = format!("{word} {}", state.list_state(subject).own_clauses());
    state.show_message(true, &format!(":{name} opens {command}"));
    state.preferences.saved.insert(name, command);
    Ok(save_preferences(state))
}

/// Removes saved rows.
pub(super) fn forget_rows(state: &mut ConsoleState, name: &str) -> Result<UpdateOutcome, String> {
    if state.preferences.saved.remove(name).is_none() {
        let known: Vec<&str> = state.preferences.saved.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
        return Err(format!("{name} is not saved; saved is {known}"));
    }
    state.show_message(true, &format!("{name} is removed"));
    Ok(save_preferences(state))
}

fn save_preferences(state: &ConsoleState) -> UpdateOutcome {
    UpdateOutcome::with_effect(ConsoleEffect::SavePreferences(state.preferences.clone()))
}
