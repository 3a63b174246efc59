//! Back and forth in time: the whole screen as it was.

use std::time::Duration;

use gaunt_schema::UnixMs;

use super::{Outcome, say};
use crate::{
    answer::Refusal,
    console::{
        action::{Effect, Intent},
        state::{Data, State},
    },
};

/// One step back or forth.
const STEP: Duration = Duration::from_secs(10);

/// A large step.
const MINUTE: Duration = Duration::from_mins(1);

/// Goes back or forth by a step; forth beyond now is now.
pub(super) fn step(state: &mut State, intent: Intent) -> Outcome {
    let Some(shown) = state.data.overview.as_deref().map(|overview| overview.at) else {
        return Outcome::default();
    };
    let from = state.then.unwrap_or(shown);
    let to = match intent {
        Intent::Earlier => from - STEP,
        Intent::MuchEarlier => from - MINUTE,
        Intent::Later => from + STEP,
        _ => from + MINUTE,
    };
    let forth = matches!(intent, Intent::Later | Intent::MuchLater);
    match (forth, state.then) {
        (true, None) if state.held.is_some() => {
            let text = "a replay is not led forward: `gaunt replay` takes --speed and --seek";
            say(state, false, text);
            Outcome::drawn()
        }
        (true, None) => Outcome::default(),
        (true, Some(_)) if state.newest_now().is_none_or(|newest| to >= newest) => {
            show(state, None)
        }
        _ => show(state, Some(to)),
    }
}

/// Shows an instant, or now.
pub(super) fn show(state: &mut State, then: Option<UnixMs>) -> Outcome {
    if state.then != then {
        if state.then.is_none() {
            state.newest = state.data.overview.as_deref().map(|overview| (state.now, overview.at));
        }
        state.then = then;
        // What is shown until the answer comes is of another instant: only the frame stays.
        let kept = Data { overview: state.data.overview.take(), ..Data::default() };
        let finding = state.data.finding.take();
        state.data = Data { finding, ..kept };
    }
    Outcome::owing(Effect::Ask(state.questions()))
}

/// Nothing is kept of that instant: as it was before.
pub(super) fn refused(state: &mut State, refusal: &Refusal) -> Outcome {
    say(state, false, &refusal.to_string());
    show(state, None)
}
