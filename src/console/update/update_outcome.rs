//! Result of an action: whether the screen changed, and the effects to run.

use crate::{action::ConsoleEffect, console_state::ConsoleState, screens::view_of};

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

    /// Returns an outcome that redraws and asks the questions of the shown screen.
    pub(crate) fn with_questions(state: &ConsoleState) -> Self {
        Self::with_effect(ConsoleEffect::Ask(view_of(&state.screen).all_questions(state)))
    }
}
