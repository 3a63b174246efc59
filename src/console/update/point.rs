//! The mouse: pressing a row puts the cursor there, pressing it once more opens it; the wheel moves the cursor.

use ratatui::layout::Position;

use super::{Outcome, intend, travel};
use crate::console::{
    action::{Effect, Intent, Mouse},
    place::Place,
    state::{Panel, State, What},
};

/// Lines that one turn of the wheel moves.
const WHEEL: usize = 3;

/// Takes what the mouse did.
pub(super) fn point(state: &mut State, mouse: Mouse) -> Outcome {
    let (x, y, turn) = match mouse {
        Mouse::Press(x, y) => (x, y, None),
        Mouse::WheelUp(x, y) => (x, y, Some(Intent::Up)),
        Mouse::WheelDown(x, y) => (x, y, Some(Intent::Down)),
    };
    if state.prompt.is_some() || state.confirm.is_some() {
        return Outcome::default();
    }
    if state.help {
        state.help = turn.is_some();
        return Outcome::drawn();
    }
    let at = Position { x, y };
    let what = state.room.spots.iter().find(|spot| spot.area.contains(at)).map(|spot| spot.what);
    if let Some(turn) = turn {
        if let Some(What::Panel(panel, _)) = what {
            state.panel = panel;
        }
        let outcomes = (0..WHEEL).map(|_| travel::travel(state, turn));
        return outcomes.last().unwrap_or_default();
    }
    match what {
        Some(What::Key(intent)) => intend(state, intent),
        Some(What::Panel(panel, row)) => panel_row(state, panel, row),
        Some(What::Row(row)) => list_row(state, row),
        Some(What::Heading(column)) => heading(state, column),
        Some(What::Cell(row, column)) if state.place == Place::Probe => {
            let Some((_, square)) = state.square() else { return Outcome::default() };
            let again = travel::put_pair(state, &square, row as isize, column as isize);
            if again { travel::open(state) } else { Outcome::drawn() }
        }
        Some(What::Cell(leaf, rail)) => {
            let again = std::mem::replace(&mut state.at.cell, (leaf, rail)) == (leaf, rail);
            if again { travel::open(state) } else { Outcome::drawn() }
        }
        None => Outcome::default(),
    }
}

fn panel_row(state: &mut State, panel: Panel, row: usize) -> Outcome {
    let Some(overview) = state.data.overview.clone() else { return Outcome::default() };
    let same = std::mem::replace(&mut state.panel, panel) == panel;
    let keys = travel::finding_keys(state);
    let at = &mut state.at;
    let again = match panel {
        Panel::Findings => at.findings.put(row, keys.len(), |at| &keys[at]),
        Panel::Heat => at.heat.put(row, overview.heat.nodes.len(), |at| &overview.heat.nodes[at]),
        Panel::Worst => at.worst.put(row, overview.worst.len(), |at| &overview.worst[at].node),
    };
    if same && again {
        return travel::open(state);
    }
    Outcome::owing(Effect::Ask(state.questions()))
}

/// The row of a list was pressed.
fn list_row(state: &mut State, row: usize) -> Outcome {
    let keys = travel::finding_keys(state);
    let at = &mut state.at;
    let again = match &state.place {
        Place::Findings => at.findings.put(row, keys.len(), |at| &keys[at]),
        Place::List(subject) => {
            let subject = *subject;
            let Some(table) = state.table(subject).cloned() else { return Outcome::default() };
            let again = state.list(subject).place(&table) == row;
            state.list_mut(subject).put(row, &table);
            again
        }
        Place::Users => {
            let rolls =
                state.data.users.as_deref().map_or_else(Vec::new, crate::console::users::Roll::of);
            at.users.put(row, rolls.len(), |at| &rolls[at].name)
        }
        Place::Job(_) => {
            let strips = state.data.job.as_deref().map_or(&[][..], |job| &job.past.strips);
            at.strips.put(row, strips.len(), |at| &strips[at].node)
        }
        Place::Node(_) => {
            let Some(detail) = state.data.node.clone() else { return Outcome::default() };
            let devices = travel::openable(&detail);
            at.devices.put(row, devices.len(), |at| &devices[at].name)
        }
        _ => return Outcome::default(),
    };
    if again { travel::open(state) } else { Outcome::owing(Effect::Ask(state.questions())) }
}

/// The heading of a column was pressed.
fn heading(state: &mut State, column: usize) -> Outcome {
    let Place::List(subject) = state.place else { return Outcome::default() };
    let Some(field) = state.list(subject).columns().get(column).copied() else {
        return Outcome::default();
    };
    state.list_mut(subject).sort_by(field);
    Outcome::owing(Effect::Ask(state.questions()))
}
