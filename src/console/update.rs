//! The only place where the console's state changes: an action in, what is owed out.

use std::time::Duration;

use gaunt_schema::{Safe, UnixMs};

use super::{
    action::{Action, Effect, Intent},
    freshness::is_overview,
    keymap,
    place::Place,
    state::{Fold, Link, Measure, Message, Panel, State},
};
use crate::answer::Subject;

mod answered;
mod confirm;
mod point;
mod speak;
mod time;
mod travel;

pub(super) use travel::openable;

/// How long a message stays.
const MESSAGE: Duration = Duration::from_secs(8);

/// What colours the heat map, one after the other; none for states.
const TINTS: [&str; 6] =
    ["utilization", "power", "temperature", "sm_active", "memory_used", "sm_clock"];

/// What an action led to.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// Whether the screen must be drawn.
    pub(crate) changed: bool,
    /// What is owed.
    pub(crate) effects: Vec<Effect>,
}

impl Outcome {
    fn drawn() -> Self {
        Self { changed: true, effects: Vec::new() }
    }

    fn owing(effect: Effect) -> Self {
        Self { changed: true, effects: vec![effect] }
    }
}

/// Takes one action.
pub(crate) fn update(state: &mut State, action: Action) -> Outcome {
    match action {
        Action::Key(key) if state.confirm.is_some() => confirm::press(state, key),
        Action::Key(key) if state.prompt.is_some() => speak::press(state, key),
        Action::Key(key) => match keymap::intent(key, &state.place) {
            Some(intent) => intend(state, intent),
            // Whatever is pressed, the page of keys has been read.
            None => Outcome { changed: std::mem::take(&mut state.help), effects: Vec::new() },
        },
        Action::Mouse(mouse) => point::point(state, mouse),
        Action::Answered(now, question, answer) => {
            state.now = now;
            let was_fresh = matches!(state.link, Link::Fresh(_));
            if is_overview(&question) {
                state.link = Link::Fresh(now);
            }
            let had_failed = state.failed_question().is_some();
            state.failed.clear(&question);
            let mut outcome = answered::answered(state, *question, answer);
            outcome.changed |= !was_fresh || had_failed;
            outcome
        }
        Action::Failed(now, question, why) if !is_overview(&question) => {
            state.now = now;
            state.failed.note(&question, now, why);
            Outcome::drawn()
        }
        Action::Failed(now, _, why) => {
            state.now = now;
            let (since, last) = match &state.link {
                Link::Loading => (now, None),
                Link::Fresh(last) => (now, Some(*last)),
                Link::Lost { since, last, .. } => (*since, *last),
            };
            state.link = Link::Lost { since, last, why };
            Outcome::drawn()
        }
        Action::Done(result) => {
            let (good, text) = match result {
                Ok(text) => (true, text),
                Err(text) => (false, text),
            };
            say(state, good, &text);
            Outcome::owing(Effect::Ask(state.questions()))
        }
        Action::Tick(now) => tick(state, now),
    }
}

/// Says something for a while.
fn say(state: &mut State, good: bool, text: &str) {
    state.message = Some(Message { good, text: Safe::new(text), until: state.now + MESSAGE });
}

/// Time passed: ask again, and draw if what is shown grows old without an answer.
fn tick(state: &mut State, now: UnixMs) -> Outcome {
    state.now = now;
    let over = state.message.take_if(|message| message.until <= now).is_some();
    Outcome { changed: over || state.ages(), effects: vec![Effect::Ask(state.questions())] }
}

fn intend(state: &mut State, intent: Intent) -> Outcome {
    match intent {
        Intent::Quit => return Outcome::owing(Effect::Quit),
        Intent::Suspend => return Outcome::owing(Effect::Suspend),
        Intent::Redraw => return Outcome::owing(Effect::Redraw),
        Intent::Help => {
            (state.help, state.scroll) = (!state.help, 0);
            return Outcome::drawn();
        }
        Intent::Up
        | Intent::Down
        | Intent::PageUp
        | Intent::PageDown
        | Intent::First
        | Intent::Last
            if state.help =>
        {
            return travel::page(state, intent);
        }
        // Whatever else is pressed, the page of keys has been read.
        _ if std::mem::take(&mut state.help) && intent == Intent::Back => return Outcome::drawn(),
        _ => {}
    }
    match intent {
        Intent::Screen(number) => travel::go(state, Place::main(number)),
        Intent::Open => travel::open(state),
        Intent::Back => travel::back(state),
        Intent::Job => travel::job(state),
        Intent::Explain => explain(state),
        Intent::Topology | Intent::Processes | Intent::Events => travel::beside(state, intent),
        Intent::NextPanel | Intent::PreviousPanel => {
            if state.place == Place::Overview {
                state.panel = neighbour(state.panel, intent == Intent::NextPanel);
            }
            Outcome::owing(Effect::Ask(state.questions()))
        }
        Intent::Filter | Intent::Command | Intent::Columns | Intent::Acknowledge => {
            speak::begin(state, intent)
        }
        Intent::SortNext | Intent::SortPrevious | Intent::Reverse => sort(state, intent),
        Intent::Copy => travel::copied(state)
            .map_or_else(Outcome::default, |text| Outcome::owing(Effect::Copy(text))),
        Intent::Earlier | Intent::Later | Intent::MuchEarlier | Intent::MuchLater => {
            time::step(state, intent)
        }
        Intent::Now => time::show(state, None),
        Intent::Hold if state.replay.is_some() => Outcome::owing(Effect::Hold),
        Intent::Hold => Outcome::default(),
        Intent::Probe => travel::go(state, Place::Probe),
        Intent::Fold => fold(state),
        Intent::Measure => measure(state),
        _ => travel::travel(state, intent),
    }
}

fn explain(state: &mut State) -> Outcome {
    match state.place.finding().cloned() {
        Some(id) => travel::go(state, Place::Explanation(id)),
        None => Outcome::default(),
    }
}

/// Puts cells together in the next way.
fn fold(state: &mut State) -> Outcome {
    if state.place == Place::Probe {
        let by_leaf = state.square().is_some_and(|(_, square)| square.by_leaf);
        state.at.by_leaf = Some(!by_leaf);
        return Outcome::drawn();
    }
    state.fold = match state.fold {
        Fold::Node => Fold::Leaf,
        Fold::Leaf => Fold::Rack,
        Fold::Rack => Fold::Node,
    };
    Outcome::owing(Effect::Ask(state.questions()))
}

const fn neighbour(panel: Panel, next: bool) -> Panel {
    match (panel, next) {
        (Panel::Findings, true) | (Panel::Worst, false) => Panel::Heat,
        (Panel::Heat, true) | (Panel::Findings, false) => Panel::Worst,
        (Panel::Worst, true) | (Panel::Heat, false) => Panel::Findings,
    }
}

fn sort(state: &mut State, intent: Intent) -> Outcome {
    let Some(subject) = state.place.subject() else { return Outcome::default() };
    let list = state.list_mut(subject);
    match intent {
        Intent::SortNext => list.sort_beside(true),
        Intent::SortPrevious => list.sort_beside(false),
        _ => list.reverse(),
    }
    Outcome::owing(Effect::Ask(state.questions()))
}

/// Colours by the next measure of the map that is shown.
fn measure(state: &mut State) -> Outcome {
    if state.place == Place::Probe {
        let rails = state.probe().map_or(0, |matrix| matrix.rails.len());
        state.at.rail = (state.at.rail + 1) % rails.max(1);
        return Outcome::drawn();
    }
    if state.place == Place::Network {
        state.measure = match state.measure {
            Measure::Load => Measure::Pauses,
            Measure::Pauses => Measure::Congestion,
            Measure::Congestion => Measure::Errors,
            Measure::Errors => Measure::Flaps,
            Measure::Flaps => Measure::Load,
        };
        return Outcome::drawn();
    }
    let known = state.tint.and_then(|field| TINTS.iter().position(|name| *name == field.name));
    let next = known.map_or(0, |at| at + 1);
    // After the last one, and after one that was chosen by its name, come the states.
    let next = if state.tint.is_some() && known.is_none() { TINTS.len() } else { next };
    state.tint = TINTS.get(next).and_then(|name| Subject::Gpus.field(name));
    state.panel = Panel::Heat;
    Outcome::owing(Effect::Ask(state.questions()))
}
