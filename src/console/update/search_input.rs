//! Input of the search: edits its text, chooses a match, and opens it.

use super::{navigation, prompt_input, update_outcome::UpdateOutcome};
use crate::{
    console_state::ConsoleState,
    key_press::KeyPress,
    prompt::{Prompt, PromptKind, PromptOutcome},
    screen::{ListScreen, Screen},
    search_index::search_fleet,
    search_match::{MatchTarget, SearchState},
};
use gaunt_api::Subject;

/// Number of matches that a page key passes.
const PAGE: usize = 8;

/// Returns whether the search is open.
pub(super) fn is_open(state: &ConsoleState) -> bool {
    state.prompt.as_ref().is_some_and(|prompt| prompt.asks == PromptKind::Search)
}

/// Opens the search and asks for the names that it needs.
pub(super) fn open_search(state: &mut ConsoleState) -> UpdateOutcome {
    state.prompt = Some(Prompt::new(PromptKind::Search, ""));
    state.search = SearchState::default();
    update_matches(state);
    UpdateOutcome::with_questions(state)
}

/// Computes the matches again, because the text or the known names changed; the chosen match stays chosen.
pub(super) fn update_matches(state: &mut ConsoleState) {
    let Some(prompt) = state.prompt.as_ref().filter(|prompt| prompt.asks == PromptKind::Search)
    else {
        return;
    };
    let matches = search_fleet(state, &prompt.text);
    let chosen = state.search.matches.get(state.search.at).filter(|_| state.search.at > 0);
    let at = chosen.and_then(|chosen| matches.iter().position(|it| it.target == chosen.target));
    state.search = SearchState { matches, at: at.unwrap_or(0) };
}

/// Handles a key in the search.
pub(super) fn handle_key(state: &mut ConsoleState, key: KeyPress) -> UpdateOutcome {
    let last = state.search.matches.len().saturating_sub(1);
    let at = &mut state.search.at;
    match key {
        KeyPress::Up | KeyPress::BackTab | KeyPress::Ctrl('p') => *at = at.saturating_sub(1),
        KeyPress::Down | KeyPress::Tab | KeyPress::Ctrl('n') => *at = (*at + 1).min(last),
        KeyPress::PageUp => *at = at.saturating_sub(PAGE),
        KeyPress::PageDown => *at = (*at + PAGE).min(last),
        _ => return edit_text(state, key),
    }
    UpdateOutcome::with_redraw()
}

fn edit_text(state: &mut ConsoleState, key: KeyPress) -> UpdateOutcome {
    let Some(mut prompt) = state.prompt.take() else { return UpdateOutcome::default() };
    match prompt.handle_key(key, &state.prompt_history) {
        PromptOutcome::Cancelled => {
            state.search = SearchState::default();
            return UpdateOutcome::with_redraw();
        }
        PromptOutcome::Entered(_) => return open_match(state),
        PromptOutcome::Edited | PromptOutcome::Completed => {
            state.prompt = Some(prompt);
            state.search.at = 0;
            update_matches(state);
        }
    }
    UpdateOutcome::with_redraw()
}

/// Opens the chosen match and closes the search.
fn open_match(state: &mut ConsoleState) -> UpdateOutcome {
    let search = std::mem::take(&mut state.search);
    let Some(found) = search.matches.into_iter().nth(search.at) else {
        state.show_message(false, "nothing has this name; Esc closes the search");
        return UpdateOutcome::with_redraw();
    };
    match found.target {
        MatchTarget::Screen(screen) => navigation::open_screen(state, screen),
        MatchTarget::Jobs(filter) => {
            // The filter is a quoted name; if it does not parse, the list stays unfiltered.
            _ = state.list_state_mut(Subject::Jobs).apply_screen_filter(&filter);
            navigation::open_screen(state, Screen::from(ListScreen(Subject::Jobs)))
        }
        MatchTarget::Command(text) => {
            prompt_input::show_prompt(state, Prompt::new(PromptKind::Command, &text));
            UpdateOutcome::with_redraw()
        }
    }
}
