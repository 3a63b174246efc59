//! Back and forth in time: the whole screen as it was.

use std::time::Duration;

use gaunt_schema::UnixMs;

use super::{Outcome, say};
use crate::{
    answer::Refusal,
    console::{
        action::{Effect, Intent},
        commands::Instant,
        format,
        state::{Data, State},
    },
    source::Playing,
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
        (true, None) => state.replay.map_or_else(Outcome::default, |replay| {
            let span = to.since(from);
            lead(state, replay, replay.led.unwrap_or(replay.now) + span)
        }),
        (true, Some(_)) if state.newest_now().is_none_or(|newest| to >= newest) => {
            show(state, None)
        }
        _ => show(state, Some(to)),
    }
}

/// Leads a replay to an instant, or to its end.
fn lead(state: &mut State, replay: Playing, to: UnixMs) -> Outcome {
    if replay.led.unwrap_or(replay.now) >= replay.last {
        say(state, false, &format!("the recording ends at {}", format::clock(replay.last)));
        return Outcome::drawn();
    }
    Outcome::owing(Effect::Lead(to.min(replay.last)))
}

/// Shows an instant that was named; of a replay also one that is still to come.
pub(super) fn name(state: &mut State, instant: Instant) -> Result<Outcome, String> {
    let now = state.newest_now().ok_or("nothing is shown yet")?;
    let ahead =
        |replay: Playing| Some((replay, instant.ahead(now).filter(|to| *to <= replay.last)?));
    Ok(match state.replay.and_then(ahead) {
        Some((replay, to)) => {
            let shown = show(state, None);
            let led = lead(state, replay, to);
            Outcome { effects: shown.effects.into_iter().chain(led.effects).collect(), ..led }
        }
        None => show(state, Some(instant.instant(now))),
    })
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
