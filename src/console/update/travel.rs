//! Going places: opening what the cursor is on, going back, moving the cursor.

use gaunt_schema::{Class, Safe};

use super::Outcome;
use crate::{
    answer::{DeviceDetail, NodeDetail, Subject, filter::quoted},
    console::{
        action::{Effect, Intent},
        cursor::Cursor,
        list::identity,
        matrix::Square,
        place::Place,
        rows::{FindingRow, group_title},
        state::{Panel, State, TRAIL},
        users::Roll,
        wiring,
    },
};

/// Shows a place, and remembers the one before.
pub(super) fn go(state: &mut State, place: Place) -> Outcome {
    if state.place == place {
        return Outcome::drawn();
    }
    if state.trail.len() == TRAIL {
        state.trail.remove(0);
    }
    state.trail.push(std::mem::take(&mut state.place));
    enter(state, place)
}

/// Closes what was opened last.
pub(super) fn back(state: &mut State) -> Outcome {
    let place = state.trail.pop().unwrap_or_default();
    enter(state, place)
}

/// Shows a place and asks at once what it needs.
fn enter(state: &mut State, place: Place) -> Outcome {
    if state.place != place {
        (state.scroll, state.entered) = (0, state.now);
        state.data.refused = None;
        if place.node() != state.place.node() {
            state.at.devices = Cursor::default();
        }
    }
    state.place = place;
    Outcome::owing(Effect::Ask(state.questions()))
}

/// Opens what the cursor is on.
pub(super) fn open(state: &mut State) -> Outcome {
    if let Some(FindingRow::Group { group, .. }) = state.finding_row() {
        let id = group.id.clone();
        return unfold(state, id);
    }
    let Some(target) = target(state) else { return Outcome::drawn() };
    if let Place::Finding(id) = &target {
        let rows = state.finding_rows();
        let found = rows.iter().filter_map(|row| row.finding()).find(|found| *id == *found.id);
        state.data.finding = found.map(|finding| (finding.clone(), true));
        state.data.explained = None;
    }
    // From a row that stands for many to those many.
    let narrow = match (&state.place, &target) {
        (Place::Users, Place::List(subject)) => user(state).map(|filter| (*subject, filter)),
        (Place::Network, Place::List(subject)) => cell(state).map(|filter| (*subject, filter)),
        _ => None,
    };
    if let Some((subject, filter)) = narrow {
        // The filter is made of names that were quoted; what is not understood narrows nothing.
        _ = state.list_mut(subject).narrow(&filter);
    }
    go(state, target)
}

/// Shows the members of a group below it, or hides them again. From the overview, which has no room for them, that is on
/// the screen of all findings.
fn unfold(state: &mut State, id: String) -> Outcome {
    if state.place != Place::Overview {
        if !state.unfolded.remove(&id) {
            state.unfolded.insert(id);
        }
        return Outcome::owing(Effect::Ask(state.questions()));
    }
    let keys = finding_keys(state);
    let at = state.at.findings.index(keys.len(), |at| &keys[at]);
    state.at.findings.put(at, keys.len(), |at| &keys[at]);
    state.unfolded.insert(id);
    // An empty filter is always understood; with the last one the group may be another.
    _ = state.list_mut(Subject::Findings).narrow("");
    go(state, Place::Findings)
}

/// What tells the rows of findings apart, in their order.
pub(super) fn finding_keys(state: &State) -> Vec<String> {
    if !matches!(state.place, Place::Overview | Place::Findings) {
        return Vec::new();
    }
    state.finding_rows().iter().map(|row| row.key().to_owned()).collect()
}

/// The place that the cursor points at.
fn target(state: &State) -> Option<Place> {
    let overview = state.data.overview.as_deref();
    match (&state.place, state.panel) {
        (Place::Overview, _) if state.only_node().is_some() => {
            state.only_node().cloned().map(Place::Node)
        }
        (Place::Overview, Panel::Findings) | (Place::Findings, _) => {
            let finding = state.finding_row()?.finding()?;
            Some(Place::Finding(Safe::new(&finding.id)))
        }
        (Place::Overview, Panel::Heat) => state.heat_node().cloned().map(Place::Node),
        (Place::Overview, Panel::Worst) => {
            let rows = &overview?.worst;
            let at = state.at.worst.index(rows.len(), |at| &rows[at].node);
            rows.get(at).map(|line| Place::Node(line.node.clone()))
        }
        (Place::List(subject), _) => row(state, *subject),
        // From a finding to what it blames.
        (Place::Finding(_), _) => {
            let (finding, _) = state.data.finding.as_ref()?;
            let entity = &finding.entity;
            let node = entity.node.clone();
            match (&node, &entity.gpu, &entity.device) {
                (Some(node), Some(gpu), _) => {
                    let name = Safe::new(&format!("GPU {gpu}"));
                    Some(Place::Device(node.clone(), Class::Gpu, name))
                }
                _ => node.map(Place::Node).or_else(|| entity.job.clone().map(Place::Job)),
            }
        }
        (Place::Job(_), _) => {
            let strips = &state.data.job.as_deref()?.past.strips;
            let at = state.at.strips.index(strips.len(), |at| &strips[at].node);
            let strip = strips.get(at)?;
            let name = Safe::new(&format!("GPU {}", strip.gpu));
            Some(Place::Device(strip.node.clone(), Class::Gpu, name))
        }
        (Place::Users, _) => user(state).map(|_| Place::List(Subject::Jobs)),
        (Place::Network, _) => cell(state).map(|_| Place::List(Subject::Ports)),
        (Place::Probe, _) => {
            let (rail, square) = state.square()?;
            let (row, column) = state.pair(&square);
            let pair = &rail.pairs[*square.cell(row, column)?.pairs.first()?];
            Some(Place::Node(pair.from.node.clone())).filter(|_| !square.by_leaf)
        }
        (Place::Node(name), _) => {
            let devices = openable(state.node(name)?);
            let at = state.at.devices.index(devices.len(), |at| &devices[at].name);
            let device = devices.get(at)?;
            Some(Place::Device(name.clone(), device.class, device.name.clone()))
        }
        (Place::Device(node, Class::Gpu, _), _) => Some(Place::Topology(node.clone())),
        _ => None,
    }
}

/// What the row with the cursor stands for.
fn row(state: &State, subject: Subject) -> Option<Place> {
    let table = state.table(subject)?;
    let row = state.list(subject).row(table)?;
    let text = |name: &str| table.column(name)?.text(row).cloned();
    Some(match subject {
        Subject::Jobs => Place::Job(text("job")?),
        Subject::Gpus | Subject::Processes => {
            let name = Safe::new(&format!("GPU {}", text("gpu")?));
            Place::Device(text("node")?, Class::Gpu, name)
        }
        Subject::Ports => {
            let name = Safe::new(&format!("{}/{}", text("device")?, text("port")?));
            Place::Device(text("node")?, Class::Port, name)
        }
        Subject::Findings | Subject::Closed => Place::Finding(text("id")?),
        _ => Place::Node(text("node")?),
    })
}

/// The filter of the jobs of the user under the cursor.
fn user(state: &State) -> Option<String> {
    let rolls = Roll::of(state.data.users.as_deref()?);
    let at = state.at.users.index(rolls.len(), |at| &rolls[at].name);
    rolls.get(at).map(Roll::filter)
}

/// The filter of the ports of the cell under the cursor.
fn cell(state: &State) -> Option<String> {
    let fabric = state.data.fabric.as_deref()?;
    let (row, rail) = state.at.cell;
    let cell = wiring::rows(fabric).get(row)?.cells.get(rail).copied().flatten()?;
    let part = |field: &str, names: &[Safe], at: u32| {
        let name = names.get(at as usize)?;
        Some(if name.is_empty() {
            format!("not has {field}")
        } else {
            format!("{field}={}", quoted(name))
        })
    };
    let leaf = part("leaf", &fabric.leaves, fabric.cells.leaf[cell])?;
    let rail = part("rail", &fabric.rails, fabric.cells.rail[cell])?;
    Some(format!("{leaf} and {rail}"))
}

/// The devices of a node that have a screen of their own, in the order of its page.
pub(in crate::console) fn openable(detail: &NodeDetail) -> Vec<&DeviceDetail> {
    let of = |class: Class| detail.devices.iter().filter(move |device| device.class == class);
    of(Class::Gpu).chain(of(Class::Port)).collect()
}

/// The job of what is shown.
pub(super) fn job(state: &mut State) -> Outcome {
    let jobs = |detail: &NodeDetail| detail.line.jobs.first().cloned();
    let job = match &state.place {
        Place::Finding(_) | Place::Explanation(_) => {
            state.data.finding.as_ref().and_then(|(finding, _)| {
                let victim = finding.victims.iter().find_map(|victim| victim.job.clone());
                finding.entity.job.clone().or(victim)
            })
        }
        Place::List(subject) => state.table(*subject).and_then(|table| {
            let row = state.list(*subject).row(table)?;
            let jobs = table.column("job")?.text(row)?;
            jobs.split(", ").next().map(Safe::new)
        }),
        place => place.node().and_then(|node| state.node(node)).and_then(|detail| jobs(detail)),
    };
    let Some(job) = job else {
        super::say(state, false, "no job is known here");
        return Outcome::drawn();
    };
    go(state, Place::Job(job))
}

/// Another side of the node that is shown.
pub(super) fn beside(state: &mut State, intent: Intent) -> Outcome {
    let Some(node) = state.place.node().cloned() else { return Outcome::default() };
    let place = match intent {
        Intent::Topology => Place::Topology(node),
        Intent::Processes => {
            // Its name is quoted: what is not understood narrows nothing.
            let rows = format!("node={}", quoted(&node));
            _ = state.list_mut(Subject::Processes).narrow(&rows);
            Place::List(Subject::Processes)
        }
        _ => Place::Events(node),
    };
    go(state, place)
}

/// What the cursor is on, as text.
pub(super) fn copied(state: &State) -> Option<String> {
    if state.place.finding().is_some() {
        let (finding, _) = state.data.finding.as_ref()?;
        return Some(format!("{}: {} {}", finding.id, finding.summary, finding.next));
    }
    if let Some(FindingRow::Group { group, .. }) = state.finding_row() {
        return Some(format!("{} {}: {}", group.kind, group_title(group), group.members.join(" ")));
    }
    if let Place::List(subject) = state.place {
        let table = state.table(subject)?;
        let row = state.list(subject).row(table)?;
        let parts = identity(subject).iter().filter_map(|name| table.column(name)?.text(row));
        return Some(parts.map(ToString::to_string).collect::<Vec<_>>().join(" "));
    }
    match target(state)? {
        Place::Finding(id) => Some(id.to_string()),
        Place::Device(node, _, name) => Some(format!("{node} {name}")),
        place => place.node().map(ToString::to_string).or_else(|| Some(place.title())),
    }
}

/// Moves a page that is only read.
pub(super) fn page(state: &mut State, intent: Intent) -> Outcome {
    let page = state.room.page.max(1) as isize;
    scroll(state, steps(intent, 1, 0, page));
    Outcome::drawn()
}

/// By how many rows a key moves, where a line is `row` of them, a column `one`, and a page `page`.
const fn steps(intent: Intent, row: isize, one: isize, page: isize) -> isize {
    match intent {
        Intent::Up => -row,
        Intent::Down => row,
        Intent::Left => -one,
        Intent::Right => one,
        Intent::PageUp => -page,
        Intent::PageDown => page,
        Intent::First => isize::MIN,
        Intent::Last => isize::MAX,
        _ => 0,
    }
}

/// Moves the cursor, or the page where there is none.
pub(super) fn travel(state: &mut State, intent: Intent) -> Outcome {
    let page = state.room.page.max(1) as isize;
    let heat = state.place == Place::Overview && state.panel == Panel::Heat;
    let (row, one) = if heat {
        (state.room.heat_row.max(1) as isize, state.room.heat_step.max(1) as isize)
    } else {
        (1, 0)
    };
    let by = steps(intent, row, one, page);
    if state.place == Place::Network {
        return across(state, intent, by);
    }
    if state.place == Place::Probe {
        return beside_pair(state, intent, by);
    }
    let before = (state.place == Place::Overview).then(|| state.heat_node().cloned());
    let asks = matches!(state.place, Place::List(_) | Place::Findings);
    step(state, by);
    // Far rows are asked for when the cursor comes near, the pasts of the finding below its list, and the node beside the
    // map when it is another.
    let other =
        before.is_some_and(|before| state.room.beside && before != state.heat_node().cloned());
    if asks || other { Outcome::owing(Effect::Ask(state.questions())) } else { Outcome::drawn() }
}

fn step(state: &mut State, by: isize) {
    let keys = finding_keys(state);
    let at = &mut state.at;
    let overview = state.data.overview.clone();
    match (&state.place, state.panel) {
        (Place::Overview, _) if state.data.nodes.is_some() && state.data.node.is_some() => {
            scroll(state, by);
        }
        (Place::Overview, Panel::Findings) | (Place::Findings, _) => {
            at.findings.step(by, keys.len(), |at| &keys[at]);
        }
        (Place::Overview, Panel::Heat) => {
            let rows = overview.as_deref().map_or(&[][..], |overview| &overview.heat.nodes);
            step_in_map(&mut at.heat, by, rows.len(), |at| &rows[at]);
        }
        (Place::Overview, Panel::Worst) => {
            let rows = overview.as_deref().map_or(&[][..], |overview| &overview.worst);
            at.worst.step(by, rows.len(), |at| &rows[at].node);
        }
        (Place::List(subject), _) => {
            let subject = *subject;
            if let Some(table) = state.table(subject).cloned() {
                state.list_mut(subject).step(by, &table);
            }
        }
        (Place::Users, _) => {
            let rolls = state.data.users.as_deref().map_or_else(Vec::new, Roll::of);
            at.users.step(by, rolls.len(), |at| &rolls[at].name);
        }
        (Place::Job(_), _) => {
            let strips = state.data.job.as_deref().map_or(&[][..], |job| &job.past.strips);
            at.strips.step(by, strips.len(), |at| &strips[at].node);
        }
        (Place::Node(name), _) => {
            let detail = state.data.node.clone().filter(|detail| detail.line.node == *name);
            let devices = detail.as_deref().map_or_else(Vec::new, openable);
            let from = at.devices.index(devices.len(), |at| &devices[at].name);
            // Beyond the last device the page scrolls on, to what is read about the host, and back.
            if devices.is_empty() || (state.scroll > 0 && by < 0 && by != isize::MIN) {
                return scroll(state, by);
            }
            at.devices.step(by, devices.len(), |at| &devices[at].name);
            let to = at.devices.index(devices.len(), |at| &devices[at].name);
            match by {
                isize::MIN => state.scroll = 0,
                by if by == isize::MAX || (by > 0 && to == from) => scroll(state, by),
                _ => {}
            }
        }
        _ => scroll(state, by),
    }
}

/// Moves over the map of the network.
fn across(state: &mut State, intent: Intent, by: isize) -> Outcome {
    let Some(fabric) = state.data.fabric.as_deref() else { return Outcome::default() };
    let rows = wiring::rows(fabric).len();
    let (row, rail) = &mut state.at.cell;
    let last = |count: usize| count.saturating_sub(1);
    match intent {
        Intent::Left => *rail = rail.saturating_sub(1),
        Intent::Right => *rail = (*rail + 1).min(last(fabric.rails.len())),
        _ => *row = row.saturating_add_signed(by).min(last(rows)),
    }
    Outcome::drawn()
}

/// Moves over the probe matrix.
fn beside_pair(state: &mut State, intent: Intent, by: isize) -> Outcome {
    let Some((_, square)) = state.square() else { return Outcome::default() };
    let (row, column) = state.pair(&square);
    let one = match intent {
        Intent::Left => -1,
        Intent::Right => 1,
        _ => 0,
    };
    put_pair(state, &square, (row as isize).saturating_add(by), column as isize + one);
    Outcome::drawn()
}

/// Puts the cursor on a cell of the probe matrix; whether it was there already.
pub(super) fn put_pair(state: &mut State, square: &Square, row: isize, column: isize) -> bool {
    let before = state.pair(square);
    let count = square.ends.len();
    let place = |at: isize| at.clamp(0, count.saturating_sub(1) as isize) as usize;
    let after = (place(row), place(column));
    let (one, other) = &mut state.at.pair;
    one.put(after.0, count, |at| &square.ends[at].name);
    other.put(after.1, count, |at| &square.ends[at].name);
    before == after
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
