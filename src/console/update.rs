//! Update function of the console: the only place that changes its state; takes an action and returns effects.

use std::time::Duration;

use gaunt_schema::{SanitizedText, UnixMs};

use super::{
    action::{ConsoleAction, ConsoleEffect, KeyIntent},
    console_state::{
        ConsoleState, HeatGrouping, NetworkMeasure, OverviewPanel, SourceStatus, StatusMessage,
    },
    freshness::is_overview,
    keymap,
    screen::Screen,
};
use gaunt_api::Subject;

mod confirm;
mod mouse;
mod navigation;
mod prompt_input;
mod received_answers;
mod time_navigation;

pub(super) use navigation::openable_devices;

/// How long a message stays.
const MESSAGE: Duration = Duration::from_secs(8);

/// Fields that colour the heat map, in the order of the key; GPU states come after the last one.
const TINTS: [&str; 6] =
    ["utilization", "power", "temperature", "sm_active", "memory_used", "sm_clock"];

/// Result of an action.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct UpdateOutcome {
    /// Whether the screen must be redrawn.
    pub(crate) changed: bool,
    /// Effects to run.
    pub(crate) effects: Vec<ConsoleEffect>,
}

impl UpdateOutcome {
    fn with_redraw() -> Self {
        Self { changed: true, effects: Vec::new() }
    }

    fn with_effect(effect: ConsoleEffect) -> Self {
        Self { changed: true, effects: vec![effect] }
    }
}

/// Applies one action to the state.
pub(crate) fn apply_action(state: &mut ConsoleState, action: ConsoleAction) -> UpdateOutcome {
    match action {
        ConsoleAction::Key(key) if state.confirm.is_some() => confirm::handle_key(state, key),
        ConsoleAction::Key(key) if state.prompt.is_some() => prompt_input::handle_key(state, key),
        ConsoleAction::Key(key) => match keymap::intent_for_key(key, &state.screen) {
            Some(intent) => handle_intent(state, intent),
            // An unbound key also closes the help screen.
            None => UpdateOutcome { changed: std::mem::take(&mut state.help), effects: Vec::new() },
        },
        ConsoleAction::Mouse(mouse) => mouse::handle_mouse(state, mouse),
        ConsoleAction::Answered(now, question, answer) => {
            state.now = now;
            let was_fresh = matches!(state.source_status, SourceStatus::Fresh(_));
            if is_overview(&question) {
                state.source_status = SourceStatus::Fresh(now);
            }
            let had_failed = state.failed_question().is_some();
            state.failed.clear(&question);
            let mut outcome = received_answers::handle_answer(state, *question, answer);
            outcome.changed |= !was_fresh || had_failed;
            outcome
        }
        ConsoleAction::Failed(now, question, why) if !is_overview(&question) => {
            state.now = now;
            state.failed.record_failure(&question, now, why);
            UpdateOutcome::with_redraw()
        }
        ConsoleAction::Failed(now, _, why) => {
            state.now = now;
            let (since, last) = match &state.source_status {
                SourceStatus::Loading => (now, None),
                SourceStatus::Fresh(last) => (now, Some(*last)),
                SourceStatus::Lost { since, last, .. } => (*since, *last),
            };
            state.source_status = SourceStatus::Lost { since, last, why };
            UpdateOutcome::with_redraw()
        }
        ConsoleAction::Done(result) => {
            let (good, text) = match result {
                Ok(text) => (true, text),
                Err(text) => (false, text),
            };
            show_message(state, good, &text);
            UpdateOutcome::with_effect(ConsoleEffect::Ask(state.screen_questions()))
        }
        ConsoleAction::Tick(now) => handle_tick(state, now),
    }
}

/// Shows a message for a limited time.
fn show_message(state: &mut ConsoleState, good: bool, text: &str) {
    state.message = Some(StatusMessage {
        succeeded: good,
        text: SanitizedText::new(text),
        until: state.now + MESSAGE,
    });
}

/// Handles a tick: refreshes the answers, and redraws if the shown data becomes stale.
fn handle_tick(state: &mut ConsoleState, now: UnixMs) -> UpdateOutcome {
    state.now = now;
    let over = state.message.take_if(|message| message.until <= now).is_some();
    UpdateOutcome {
        changed: over || state.has_aging_text(),
        effects: vec![ConsoleEffect::Ask(state.screen_questions())],
    }
}

fn handle_intent(state: &mut ConsoleState, intent: KeyIntent) -> UpdateOutcome {
    match intent {
        KeyIntent::Quit => return UpdateOutcome::with_effect(ConsoleEffect::Quit),
        KeyIntent::Suspend => return UpdateOutcome::with_effect(ConsoleEffect::Suspend),
        KeyIntent::Redraw => return UpdateOutcome::with_effect(ConsoleEffect::Redraw),
        KeyIntent::Help => {
            (state.help, state.scroll) = (!state.help, 0);
            return UpdateOutcome::with_redraw();
        }
        KeyIntent::Up
        | KeyIntent::Down
        | KeyIntent::PageUp
        | KeyIntent::PageDown
        | KeyIntent::First
        | KeyIntent::Last
            if state.help =>
        {
            return navigation::scroll_page(state, intent);
        }
        // Any other bound key closes the help screen too.
        _ if std::mem::take(&mut state.help) && intent == KeyIntent::Back => {
            return UpdateOutcome::with_redraw();
        }
        _ => {}
    }
    match intent {
        KeyIntent::Screen(number) => navigation::open_screen(state, Screen::main(number)),
        KeyIntent::Open => navigation::open_selected(state),
        KeyIntent::Back => navigation::go_back(state),
        KeyIntent::Job => navigation::open_job(state),
        KeyIntent::Explain => open_explanation(state),
        KeyIntent::Topology | KeyIntent::Processes | KeyIntent::Events => {
            navigation::open_node_screen(state, intent)
        }
        KeyIntent::NextPanel | KeyIntent::PreviousPanel => {
            if state.screen == Screen::Overview {
                state.panel = neighbour_panel(state.panel, intent == KeyIntent::NextPanel);
            }
            UpdateOutcome::with_effect(ConsoleEffect::Ask(state.screen_questions()))
        }
        KeyIntent::Filter | KeyIntent::Command | KeyIntent::Columns | KeyIntent::Acknowledge => {
            prompt_input::open_prompt(state, intent)
        }
        KeyIntent::SortNext | KeyIntent::SortPrevious | KeyIntent::Reverse => {
            sort_list(state, intent)
        }
        KeyIntent::Copy => navigation::copy_text(state)
            .map_or_else(UpdateOutcome::default, |text| {
                UpdateOutcome::with_effect(ConsoleEffect::Copy(text))
            }),
        KeyIntent::Earlier | KeyIntent::Later | KeyIntent::MuchEarlier | KeyIntent::MuchLater => {
            time_navigation::step_time(state, intent)
        }
        KeyIntent::Now => time_navigation::show_instant(state, None),
        KeyIntent::ToggleReplay if state.replay.is_some() => {
            UpdateOutcome::with_effect(ConsoleEffect::ToggleReplay)
        }
        KeyIntent::ToggleReplay => UpdateOutcome::default(),
        KeyIntent::Probe => navigation::open_screen(state, Screen::Probe),
        KeyIntent::Fold => cycle_grouping(state),
        KeyIntent::Measure => cycle_measure(state),
        _ => navigation::move_cursor(state, intent),
    }
}

fn open_explanation(state: &mut ConsoleState) -> UpdateOutcome {
    match state.screen.finding_id().cloned() {
        Some(id) => navigation::open_screen(state, Screen::Explanation(id)),
        None => UpdateOutcome::default(),
    }
}

/// Switches to the next grouping of the heat map.
fn cycle_grouping(state: &mut ConsoleState) -> UpdateOutcome {
    if state.screen == Screen::Probe {
        let by_leaf = state.shown_matrix().is_some_and(|(_, square)| square.by_leaf);
        state.cursors.by_leaf = Some(!by_leaf);
        return UpdateOutcome::with_redraw();
    }
    state.grouping = match state.grouping {
        HeatGrouping::Node => HeatGrouping::Leaf,
        HeatGrouping::Leaf => HeatGrouping::Rack,
        HeatGrouping::Rack => HeatGrouping::Node,
    };
    UpdateOutcome::with_effect(ConsoleEffect::Ask(state.screen_questions()))
}

const fn neighbour_panel(panel: OverviewPanel, next: bool) -> OverviewPanel {
    match (panel, next) {
        (OverviewPanel::Findings, true) | (OverviewPanel::Worst, false) => OverviewPanel::Heat,
        (OverviewPanel::Heat, true) | (OverviewPanel::Findings, false) => OverviewPanel::Worst,
        (OverviewPanel::Worst, true) | (OverviewPanel::Heat, false) => OverviewPanel::Findings,
    }
}

fn sort_list(state: &mut ConsoleState, intent: KeyIntent) -> UpdateOutcome {
    let Some(subject) = state.screen.filter_subject() else { return UpdateOutcome::default() };
    let list = state.list_state_mut(subject);
    match intent {
        KeyIntent::SortNext => list.sort_by_neighbour(true),
        KeyIntent::SortPrevious => list.sort_by_neighbour(false),
        _ => list.reverse_order(),
    }
    UpdateOutcome::with_effect(ConsoleEffect::Ask(state.screen_questions()))
}

/// Switches to the next measure of the shown map.
fn cycle_measure(state: &mut ConsoleState) -> UpdateOutcome {
    if state.screen == Screen::Probe {
        let rails = state.probe_matrix().map_or(0, |matrix| matrix.rails.len());
        state.cursors.rail = (state.cursors.rail + 1) % rails.max(1);
        return UpdateOutcome::with_redraw();
    }
    if state.screen == Screen::Network {
        state.measure = match state.measure {
            NetworkMeasure::Load => NetworkMeasure::Pauses,
            NetworkMeasure::Pauses => NetworkMeasure::Congestion,
            NetworkMeasure::Congestion => NetworkMeasure::Errors,
            NetworkMeasure::Errors => NetworkMeasure::Flaps,
            NetworkMeasure::Flaps => NetworkMeasure::Load,
        };
        return UpdateOutcome::with_redraw();
    }
    let known = state.tint.and_then(|field| TINTS.iter().position(|name| *name == field.name));
    let next = known.map_or(0, |at| at + 1);
    // GPU states follow the last field, and any field that was chosen by name.
    let next = if state.tint.is_some() && known.is_none() { TINTS.len() } else { next };
    state.tint = TINTS.get(next).and_then(|name| Subject::Gpus.find_field(name));
    state.panel = OverviewPanel::Heat;
    UpdateOutcome::with_effect(ConsoleEffect::Ask(state.screen_questions()))
}
