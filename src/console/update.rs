//! The only place where the console's state changes: an action in, what is owed out.

use gaunt_schema::UnixMs;

use super::{
    action::{Action, Effect, Intent},
    cursor::Cursor,
    state::{Link, Panel, Place, State, TRAIL},
};
use crate::answer::Answer;

/// What an action led to.
#[derive(Debug, Default, PartialEq, Eq)]
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
        Action::Intent(intent) => intend(state, intent),
        Action::Answered(now, answer) => {
            state.now = now;
            state.link = Link::Fresh(now);
            take(state, answer)
        }
        Action::Failed(now, why) => {
            state.now = now;
            let (since, last) = match &state.link {
                Link::Loading => (now, None),
                Link::Fresh(last) => (now, Some(*last)),
                Link::Lost { since, last, .. } => (*since, *last),
            };
            state.link = Link::Lost { since, last, why };
            Outcome::drawn()
        }
        Action::Tick(now) => tick(state, now),
    }
}

/// Time passed: ask again, and draw if what is shown grows old without an answer.
fn tick(state: &mut State, now: UnixMs) -> Outcome {
    state.now = now;
    let changed = !matches!(state.link, Link::Fresh(at) if now.since(at) < late(state));
    Outcome { changed, effects: vec![Effect::Ask(state.questions())] }
}

/// How long an answer may be awaited before the screen says so.
pub(crate) fn late(state: &State) -> std::time::Duration {
    let period = state.data.overview.as_deref().map_or(1_000, |overview| overview.period_ms);
    std::time::Duration::from_millis(period.max(1_000) * 3)
}

fn take(state: &mut State, answer: Answer) -> Outcome {
    let data = &mut state.data;
    match answer {
        Answer::Overview(overview) => {
            let first = data.overview.replace(overview).is_none();
            // A fleet of one node is shown in full: what that needs can be asked at once.
            if first && state.questions().len() > 1 {
                return Outcome::owing(Effect::Ask(state.questions()));
            }
        }
        Answer::Nodes(nodes) => {
            let first = data.nodes.replace(nodes).is_none();
            if first && state.place == Place::Overview && state.only_node().is_some() {
                return Outcome::owing(Effect::Ask(state.questions()));
            }
        }
        Answer::Node(node) => {
            data.refused = None;
            data.node = Some(node);
        }
        Answer::Findings(list) => {
            if let (Place::Finding(id), Some((kept, open))) = (&state.place, &mut data.finding) {
                let now = list.findings.iter().find(|finding| finding.id == *id);
                *open = now.is_some();
                if let Some(now) = now {
                    *kept = now.clone();
                }
            }
            data.findings = Some(list);
        }
        Answer::Refused(refusal) => data.refused = Some(refusal),
        // An answer that nobody waits for changes nothing.
        _ => return Outcome::default(),
    }
    Outcome::drawn()
}

fn intend(state: &mut State, intent: Intent) -> Outcome {
    match intent {
        Intent::Quit => return Outcome::owing(Effect::Quit),
        Intent::Suspend => return Outcome::owing(Effect::Suspend),
        Intent::Redraw => return Outcome::owing(Effect::Redraw),
        Intent::Help => {
            state.help = !state.help;
            return Outcome::drawn();
        }
        // Whatever else is pressed, the page of keys has been read.
        _ if std::mem::take(&mut state.help) && intent == Intent::Back => return Outcome::drawn(),
        _ => {}
    }
    match intent {
        Intent::Overview => go(state, Place::Overview),
        Intent::Findings => go(state, Place::Findings),
        Intent::Nodes => go(state, Place::Nodes),
        Intent::Open => open(state),
        Intent::Back => {
            let place = state.trail.pop().unwrap_or_default();
            enter(state, place)
        }
        Intent::NextPanel | Intent::PreviousPanel => {
            if state.place == Place::Overview {
                state.panel = neighbour(state.panel, intent == Intent::NextPanel);
            }
            Outcome::drawn()
        }
        _ => travel(state, intent),
    }
}

const fn neighbour(panel: Panel, next: bool) -> Panel {
    match (panel, next) {
        (Panel::Findings, true) | (Panel::Worst, false) => Panel::Heat,
        (Panel::Heat, true) | (Panel::Findings, false) => Panel::Worst,
        (Panel::Worst, true) | (Panel::Heat, false) => Panel::Findings,
    }
}

/// Shows a place, and remembers the one before.
fn go(state: &mut State, place: Place) -> Outcome {
    if state.place == place {
        return Outcome::drawn();
    }
    if state.trail.len() == TRAIL {
        state.trail.remove(0);
    }
    state.trail.push(std::mem::take(&mut state.place));
    enter(state, place)
}

/// Shows a place and asks at once what it needs.
fn enter(state: &mut State, place: Place) -> Outcome {
    if state.place != place {
        state.scroll = 0;
        state.data.refused = None;
    }
    state.place = place;
    Outcome::owing(Effect::Ask(state.questions()))
}

/// Opens what the cursor is on.
fn open(state: &mut State) -> Outcome {
    let Some(target) = target(state) else { return Outcome::drawn() };
    if let Place::Finding(id) = &target {
        let data = &mut state.data;
        let listed = data.findings.as_deref().map_or(&[][..], |list| &list.findings);
        let worst = data.overview.as_deref().map_or(&[][..], |overview| &overview.findings);
        let found = listed.iter().chain(worst).find(|finding| finding.id == *id);
        data.finding = found.map(|finding| (finding.clone(), true));
    }
    go(state, target)
}

/// The place that the cursor points at.
fn target(state: &State) -> Option<Place> {
    let overview = state.data.overview.as_deref();
    match (&state.place, state.panel) {
        (Place::Overview, Panel::Findings) => {
            let rows = &overview?.findings;
            let at = state.findings.index(rows.len(), |at| &rows[at].id);
            rows.get(at).map(|finding| Place::Finding(finding.id.clone()))
        }
        (Place::Overview, Panel::Heat) => {
            let rows = &overview?.heat.nodes;
            let at = state.heat.index(rows.len(), |at| &rows[at]);
            rows.get(at).cloned().map(Place::Node)
        }
        (Place::Overview, Panel::Worst) => {
            let rows = &overview?.worst;
            let at = state.worst.index(rows.len(), |at| &rows[at].node);
            rows.get(at).map(|line| Place::Node(line.node.clone()))
        }
        (Place::Findings, _) => {
            let rows = &state.data.findings.as_deref()?.findings;
            let at = state.findings.index(rows.len(), |at| &rows[at].id);
            rows.get(at).map(|finding| Place::Finding(finding.id.clone()))
        }
        (Place::Nodes, _) => {
            let rows = &state.data.nodes.as_deref()?.nodes;
            let at = state.nodes.index(rows.len(), |at| &rows[at].node);
            rows.get(at).map(|line| Place::Node(line.node.clone()))
        }
        // From a finding to the node that it blames.
        (Place::Finding(_), _) => {
            let (finding, _) = state.data.finding.as_ref()?;
            finding.entity.node.clone().map(Place::Node)
        }
        (Place::Node(_), _) => None,
    }
}

/// Moves the cursor, or the page where there is none.
fn travel(state: &mut State, intent: Intent) -> Outcome {
    let page = state.room.page.max(1) as isize;
    let heat = state.place == Place::Overview && state.panel == Panel::Heat;
    let (row, one) = if heat {
        (state.room.heat_row.max(1) as isize, state.room.heat_step.max(1) as isize)
    } else {
        (1, 0)
    };
    let by = match intent {
        Intent::Up => -row,
        Intent::Down => row,
        Intent::Left => -one,
        Intent::Right => one,
        Intent::PageUp => -page,
        Intent::PageDown => page,
        Intent::First => isize::MIN,
        Intent::Last => isize::MAX,
        _ => 0,
    };
    let data = &state.data;
    let overview = data.overview.as_deref();
    match (&state.place, state.panel) {
        (Place::Overview, _) if state.only_node().is_some() => scroll(state, by),
        (Place::Overview, Panel::Findings) => {
            let rows = overview.map_or(&[][..], |overview| &overview.findings);
            state.findings.step(by, rows.len(), |at| &rows[at].id);
        }
        (Place::Overview, Panel::Heat) => {
            let rows = overview.map_or(&[][..], |overview| &overview.heat.nodes);
            step_in_map(&mut state.heat, by, rows.len(), |at| &rows[at]);
        }
        (Place::Overview, Panel::Worst) => {
            let rows = overview.map_or(&[][..], |overview| &overview.worst);
            state.worst.step(by, rows.len(), |at| &rows[at].node);
        }
        (Place::Findings, _) => {
            let rows = data.findings.as_deref().map_or(&[][..], |list| &list.findings);
            state.findings.step(by, rows.len(), |at| &rows[at].id);
        }
        (Place::Nodes, _) => {
            let rows = data.nodes.as_deref().map_or(&[][..], |list| &list.nodes);
            state.nodes.step(by, rows.len(), |at| &rows[at].node);
        }
        (Place::Finding(_) | Place::Node(_), _) => scroll(state, by),
    }
    Outcome::drawn()
}

fn scroll(state: &mut State, by: isize) {
    state.scroll = state.scroll.saturating_add_signed(by).min(state.room.hidden);
}

/// In a map, a step of a whole row that would leave it does nothing: the column is kept.
fn step_in_map<'a>(
    cursor: &mut Cursor,
    by: isize,
    count: usize,
    key_at: impl Fn(usize) -> &'a str,
) {
    let to = cursor.index(count, &key_at).checked_add_signed(by);
    let end = by == isize::MIN || by == isize::MAX || by.unsigned_abs() == 1;
    if end || to.is_some_and(|to| to < count) {
        cursor.step(by, count, key_at);
    }
}
