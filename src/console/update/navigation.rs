//! Navigation: opens the item under the cursor, goes back, and moves the cursor.

use gaunt_schema::{DeviceClass, SanitizedText};

use super::UpdateOutcome;
use crate::{
    action::{ConsoleEffect, KeyIntent},
    console_state::{ConsoleState, OverviewPanel, TRAIL},
    cursor::RowCursor,
    fabric_map,
    finding_list_rows::{FindingRow, group_title},
    list_state::identity_fields,
    pair_matrix::PairMatrix,
    screen::Screen,
    user_totals::UserTotals,
};
use gaunt_api::{DeviceDetail, NodeDetail, Subject, filter::quote_text};

/// Opens a screen and pushes the current one on the back stack.
pub(super) fn open_screen(state: &mut ConsoleState, place: Screen) -> UpdateOutcome {
    if state.screen == place {
        return UpdateOutcome::with_redraw();
    }
    if state.back_stack.len() == TRAIL {
        state.back_stack.remove(0);
    }
    state.back_stack.push(std::mem::take(&mut state.screen));
    enter_screen(state, place)
}

/// Closes the current screen and returns to the previous one.
pub(super) fn go_back(state: &mut ConsoleState) -> UpdateOutcome {
    let place = state.back_stack.pop().unwrap_or_default();
    enter_screen(state, place)
}

/// Shows a screen and asks its questions at once.
fn enter_screen(state: &mut ConsoleState, place: Screen) -> UpdateOutcome {
    if state.screen != place {
        (state.scroll, state.entered) = (0, state.now);
        state.data.refused = None;
        if place.node_name() != state.screen.node_name() {
            state.cursors.devices = RowCursor::default();
        }
    }
    state.screen = place;
    UpdateOutcome::with_effect(ConsoleEffect::Ask(state.screen_questions()))
}

/// Opens the item under the cursor.
pub(super) fn open_selected(state: &mut ConsoleState) -> UpdateOutcome {
    if let Some(FindingRow::Group { group, .. }) = state.finding_row() {
        let id = group.id.clone();
        return toggle_group(state, id);
    }
    let Some(target) = cursor_target(state) else { return UpdateOutcome::with_redraw() };
    if let Screen::Finding(id) = &target {
        let rows = state.finding_rows();
        let found =
            rows.iter().filter_map(|row| row.single_finding()).find(|found| *id == *found.id);
        state.data.finding = found.map(|finding| (finding.clone(), true));
        state.data.explained = None;
    }
    // A row that represents several items opens a list filtered to them.
    let narrow = match (&state.screen, &target) {
        (Screen::Users, Screen::List(subject)) => {
            user_filter(state).map(|filter| (*subject, filter))
        }
        (Screen::Network, Screen::List(subject)) => {
            cell_filter(state).map(|filter| (*subject, filter))
        }
        _ => None,
    };
    if let Some((subject, filter)) = narrow {
        // The filter consists of quoted names; if it does not parse, the list stays unfiltered.
        _ = state.list_state_mut(subject).apply_filter(&filter);
    }
    open_screen(state, target)
}

/// Expands or collapses a finding group. From the overview, which has no space for the members, this opens the screen
/// of all findings.
fn toggle_group(state: &mut ConsoleState, id: String) -> UpdateOutcome {
    if state.screen != Screen::Overview {
        if !state.unfolded.remove(&id) {
            state.unfolded.insert(id);
        }
        return UpdateOutcome::with_effect(ConsoleEffect::Ask(state.screen_questions()));
    }
    let keys = finding_keys(state);
    let at = state.cursors.findings.row_index(keys.len(), |at| &keys[at]);
    state.cursors.findings.move_to(at, keys.len(), |at| &keys[at]);
    state.unfolded.insert(id);
    // An empty filter is always valid; with the previous one the group may be different.
    _ = state.list_state_mut(Subject::Findings).apply_filter("");
    open_screen(state, Screen::Findings)
}

/// Returns the unique keys of the finding rows, in their order.
pub(super) fn finding_keys(state: &ConsoleState) -> Vec<String> {
    if !matches!(state.screen, Screen::Overview | Screen::Findings) {
        return Vec::new();
    }
    state.finding_rows().iter().map(|row| row.row_key().to_owned()).collect()
}

/// Returns the screen that the item under the cursor opens.
fn cursor_target(state: &ConsoleState) -> Option<Screen> {
    let overview = state.data.overview.as_deref();
    match (&state.screen, state.panel) {
        (Screen::Overview, _) if state.only_node().is_some() => {
            state.only_node().cloned().map(Screen::Node)
        }
        (Screen::Overview, OverviewPanel::Findings) | (Screen::Findings, _) => {
            let finding = state.finding_row()?.single_finding()?;
            Some(Screen::Finding(SanitizedText::new(&finding.id)))
        }
        (Screen::Overview, OverviewPanel::Heat) => state.heat_node().cloned().map(Screen::Node),
        (Screen::Overview, OverviewPanel::Worst) => {
            let rows = &overview?.worst;
            let at = state.cursors.worst.row_index(rows.len(), |at| &rows[at].node);
            rows.get(at).map(|line| Screen::Node(line.node.clone()))
        }
        (Screen::List(subject), _) => row_target(state, *subject),
        // A finding opens the entity that it blames.
        (Screen::Finding(_), _) => {
            let (finding, _) = state.data.finding.as_ref()?;
            let entity = &finding.entity;
            let node = entity.node.clone();
            match (&node, &entity.gpu, &entity.device) {
                (Some(node), Some(gpu), _) => {
                    let name = SanitizedText::new(&format!("GPU {gpu}"));
                    Some(Screen::Device(node.clone(), DeviceClass::Gpu, name))
                }
                _ => node.map(Screen::Node).or_else(|| entity.job.clone().map(Screen::Job)),
            }
        }
        (Screen::Job(_), _) => {
            let strips = &state.data.job.as_deref()?.past.strips;
            let at = state.cursors.timelines.row_index(strips.len(), |at| &strips[at].node);
            let strip = strips.get(at)?;
            let name = SanitizedText::new(&format!("GPU {}", strip.gpu));
            Some(Screen::Device(strip.node.clone(), DeviceClass::Gpu, name))
        }
        (Screen::Users, _) => user_filter(state).map(|_| Screen::List(Subject::Jobs)),
        (Screen::Network, _) => cell_filter(state).map(|_| Screen::List(Subject::Ports)),
        (Screen::Probe, _) => {
            let (rail, square) = state.shown_matrix()?;
            let (row, column) = state.selected_pair(&square);
            let pair = &rail.pairs[*square.cell_between(row, column)?.pairs.first()?];
            Some(Screen::Node(pair.from.node.clone())).filter(|_| !square.by_leaf)
        }
        (Screen::Node(name), _) => {
            let devices = openable_devices(state.node_detail(name)?);
            let at = state.cursors.devices.row_index(devices.len(), |at| &devices[at].name);
            let device = devices.get(at)?;
            Some(Screen::Device(name.clone(), device.class, device.name.clone()))
        }
        (Screen::Device(node, DeviceClass::Gpu, _), _) => Some(Screen::Topology(node.clone())),
        _ => None,
    }
}

/// Returns the screen that the row under the cursor opens.
fn row_target(state: &ConsoleState, subject: Subject) -> Option<Screen> {
    let table = state.subject_table(subject)?;
    let row = state.list_state(subject).cursor_row(table)?;
    let text = |name: &str| table.find_column(name)?.text_at(row).cloned();
    Some(match subject {
        Subject::Jobs => Screen::Job(text("job")?),
        Subject::Gpus | Subject::Processes => {
            let name = SanitizedText::new(&format!("GPU {}", text("gpu")?));
            Screen::Device(text("node")?, DeviceClass::Gpu, name)
        }
        Subject::Ports => {
            let name = SanitizedText::new(&format!("{}/{}", text("device")?, text("port")?));
            Screen::Device(text("node")?, DeviceClass::Port, name)
        }
        Subject::Findings | Subject::Closed => Screen::Finding(text("id")?),
        _ => Screen::Node(text("node")?),
    })
}

/// Returns the filter for the jobs of the user under the cursor.
fn user_filter(state: &ConsoleState) -> Option<String> {
    let rolls = UserTotals::of(state.data.users.as_deref()?);
    let at = state.cursors.users.row_index(rolls.len(), |at| &rolls[at].name);
    rolls.get(at).map(UserTotals::jobs_filter)
}

/// Returns the filter for the ports of the cell under the cursor.
fn cell_filter(state: &ConsoleState) -> Option<String> {
    let fabric = state.data.fabric.as_deref()?;
    let (row, rail) = state.cursors.cell;
    let cell = fabric_map::fabric_map_rows(fabric).get(row)?.cells.get(rail).copied().flatten()?;
    let part = |field: &str, names: &[SanitizedText], at: u32| {
        let name = names.get(at as usize)?;
        Some(if name.is_empty() {
            format!("not has {field}")
        } else {
            format!("{field}={}", quote_text(name))
        })
    };
    let leaf = part("leaf", &fabric.leaves, fabric.cells.leaf[cell])?;
    let rail = part("rail", &fabric.rails, fabric.cells.rail[cell])?;
    Some(format!("{leaf} and {rail}"))
}

/// Returns the devices of a node that have their own screen, in the order of the node screen.
pub(crate) fn openable_devices(detail: &NodeDetail) -> Vec<&DeviceDetail> {
    let of = |class: DeviceClass| detail.devices.iter().filter(move |device| device.class == class);
    of(DeviceClass::Gpu).chain(of(DeviceClass::Port)).collect()
}

/// Opens the job of the shown item.
pub(super) fn open_job(state: &mut ConsoleState) -> UpdateOutcome {
    let jobs = |detail: &NodeDetail| detail.line.jobs.first().cloned();
    let job = match &state.screen {
        Screen::Finding(_) | Screen::Explanation(_) => {
            state.data.finding.as_ref().and_then(|(finding, _)| {
                let victim = finding.victims.iter().find_map(|victim| victim.job.clone());
                finding.entity.job.clone().or(victim)
            })
        }
        Screen::List(subject) => state.subject_table(*subject).and_then(|table| {
            let row = state.list_state(*subject).cursor_row(table)?;
            let jobs = table.find_column("job")?.text_at(row)?;
            jobs.split(", ").next().map(SanitizedText::new)
        }),
        place => place
            .node_name()
            .and_then(|node| state.node_detail(node))
            .and_then(|detail| jobs(detail)),
    };
    let Some(job) = job else {
        super::show_message(state, false, "no job for this item");
        return UpdateOutcome::with_redraw();
    };
    open_screen(state, Screen::Job(job))
}

/// Opens another screen of the shown node.
pub(super) fn open_node_screen(state: &mut ConsoleState, intent: KeyIntent) -> UpdateOutcome {
    let Some(node) = state.screen.node_name().cloned() else { return UpdateOutcome::default() };
    let place = match intent {
        KeyIntent::Topology => Screen::Topology(node),
        KeyIntent::Processes => {
            // The name is quoted; if the filter does not parse, the list stays unfiltered.
            let rows = format!("node={}", quote_text(&node));
            _ = state.list_state_mut(Subject::Processes).apply_filter(&rows);
            Screen::List(Subject::Processes)
        }
        _ => Screen::Events(node),
    };
    open_screen(state, place)
}

/// Returns the item under the cursor as text.
pub(super) fn copy_text(state: &ConsoleState) -> Option<String> {
    if state.screen.finding_id().is_some() {
        let (finding, _) = state.data.finding.as_ref()?;
        return Some(format!("{}: {} {}", finding.id, finding.summary, finding.next));
    }
    if let Some(FindingRow::Group { group, .. }) = state.finding_row() {
        return Some(format!("{} {}: {}", group.kind, group_title(group), group.members.join(" ")));
    }
    if let Screen::List(subject) = state.screen {
        let table = state.subject_table(subject)?;
        let row = state.list_state(subject).cursor_row(table)?;
        let parts = identity_fields(subject)
            .iter()
            .filter_map(|name| table.find_column(name)?.text_at(row));
        return Some(parts.map(ToString::to_string).collect::<Vec<_>>().join(" "));
    }
    match cursor_target(state)? {
        Screen::Finding(id) => Some(id.to_string()),
        Screen::Device(node, _, name) => Some(format!("{node} {name}")),
        place => place.node_name().map(ToString::to_string).or_else(|| Some(place.header_title())),
    }
}

/// Scrolls a page without a cursor.
pub(super) fn scroll_page(state: &mut ConsoleState, intent: KeyIntent) -> UpdateOutcome {
    let page = state.layout.page.max(1) as isize;
    scroll_by(state, step_size(intent, 1, 0, page));
    UpdateOutcome::with_redraw()
}

/// Returns how many rows a key moves: `row` per line, `one` per column, `page` per page.
const fn step_size(intent: KeyIntent, row: isize, one: isize, page: isize) -> isize {
    match intent {
        KeyIntent::Up => -row,
        KeyIntent::Down => row,
        KeyIntent::Left => -one,
        KeyIntent::Right => one,
        KeyIntent::PageUp => -page,
        KeyIntent::PageDown => page,
        KeyIntent::First => isize::MIN,
        KeyIntent::Last => isize::MAX,
        _ => 0,
    }
}

/// Moves the cursor, or scrolls a page without one.
pub(super) fn move_cursor(state: &mut ConsoleState, intent: KeyIntent) -> UpdateOutcome {
    let page = state.layout.page.max(1) as isize;
    let heat = state.screen == Screen::Overview && state.panel == OverviewPanel::Heat;
    let (row, one) = if heat {
        (state.layout.heat_row.max(1) as isize, state.layout.heat_step.max(1) as isize)
    } else {
        (1, 0)
    };
    let by = step_size(intent, row, one, page);
    if state.screen == Screen::Network {
        return move_in_network(state, intent, by);
    }
    if state.screen == Screen::Probe {
        return move_in_matrix(state, intent, by);
    }
    let before = (state.screen == Screen::Overview).then(|| state.heat_node().cloned());
    let asks = matches!(state.screen, Screen::List(_) | Screen::Findings);
    move_cursor_by(state, by);
    // Request distant rows when the cursor approaches them, the histories of the finding below its list, and the node
    // beside the map when it changes.
    let other = before
        .is_some_and(|before| state.layout.has_side_pane && before != state.heat_node().cloned());
    if asks || other {
        UpdateOutcome::with_effect(ConsoleEffect::Ask(state.screen_questions()))
    } else {
        UpdateOutcome::with_redraw()
    }
}

fn move_cursor_by(state: &mut ConsoleState, by: isize) {
    let keys = finding_keys(state);
    let at = &mut state.cursors;
    let overview = state.data.overview.clone();
    match (&state.screen, state.panel) {
        (Screen::Overview, _) if state.data.nodes.is_some() && state.data.node.is_some() => {
            scroll_by(state, by);
        }
        (Screen::Overview, OverviewPanel::Findings) | (Screen::Findings, _) => {
            at.findings.move_by(by, keys.len(), |at| &keys[at]);
        }
        (Screen::Overview, OverviewPanel::Heat) => {
            let rows = overview.as_deref().map_or(&[][..], |overview| &overview.heat.nodes);
            move_in_heat_map(&mut at.heat, by, rows.len(), |at| &rows[at]);
        }
        (Screen::Overview, OverviewPanel::Worst) => {
            let rows = overview.as_deref().map_or(&[][..], |overview| &overview.worst);
            at.worst.move_by(by, rows.len(), |at| &rows[at].node);
        }
        (Screen::List(subject), _) => {
            let subject = *subject;
            if let Some(table) = state.subject_table(subject).cloned() {
                state.list_state_mut(subject).move_cursor_by(by, &table);
            }
        }
        (Screen::Users, _) => {
            let rolls = state.data.users.as_deref().map_or_else(Vec::new, UserTotals::of);
            at.users.move_by(by, rolls.len(), |at| &rolls[at].name);
        }
        (Screen::Job(_), _) => {
            let strips = state.data.job.as_deref().map_or(&[][..], |job| &job.past.strips);
            at.timelines.move_by(by, strips.len(), |at| &strips[at].node);
        }
        (Screen::Node(name), _) => {
            let detail = state.data.node.clone().filter(|detail| detail.line.node == *name);
            let devices = detail.as_deref().map_or_else(Vec::new, openable_devices);
            let from = at.devices.row_index(devices.len(), |at| &devices[at].name);
            // Beyond the last device, the page scrolls on to the host's section, and back.
            if devices.is_empty() || (state.scroll > 0 && by < 0 && by != isize::MIN) {
                return scroll_by(state, by);
            }
            at.devices.move_by(by, devices.len(), |at| &devices[at].name);
            let to = at.devices.row_index(devices.len(), |at| &devices[at].name);
            match by {
                isize::MIN => state.scroll = 0,
                by if by == isize::MAX || (by > 0 && to == from) => scroll_by(state, by),
                _ => {}
            }
        }
        _ => scroll_by(state, by),
    }
}

/// Moves the cursor in the network map.
fn move_in_network(state: &mut ConsoleState, intent: KeyIntent, by: isize) -> UpdateOutcome {
    let Some(fabric) = state.data.fabric.as_deref() else { return UpdateOutcome::default() };
    let rows = fabric_map::fabric_map_rows(fabric).len();
    let (row, rail) = &mut state.cursors.cell;
    let last = |count: usize| count.saturating_sub(1);
    match intent {
        KeyIntent::Left => *rail = rail.saturating_sub(1),
        KeyIntent::Right => *rail = (*rail + 1).min(last(fabric.rails.len())),
        _ => *row = row.saturating_add_signed(by).min(last(rows)),
    }
    UpdateOutcome::with_redraw()
}

/// Moves the cursor in the probe matrix.
fn move_in_matrix(state: &mut ConsoleState, intent: KeyIntent, by: isize) -> UpdateOutcome {
    let Some((_, square)) = state.shown_matrix() else { return UpdateOutcome::default() };
    let (row, column) = state.selected_pair(&square);
    let one = match intent {
        KeyIntent::Left => -1,
        KeyIntent::Right => 1,
        _ => 0,
    };
    select_pair(state, &square, (row as isize).saturating_add(by), column as isize + one);
    UpdateOutcome::with_redraw()
}

/// Moves the cursor to a cell of the probe matrix. Returns whether it was already there.
pub(super) fn select_pair(
    state: &mut ConsoleState,
    square: &PairMatrix,
    row: isize,
    column: isize,
) -> bool {
    let before = state.selected_pair(square);
    let count = square.ends.len();
    let place = |at: isize| at.clamp(0, count.saturating_sub(1) as isize) as usize;
    let after = (place(row), place(column));
    let (one, other) = &mut state.cursors.pair;
    one.move_to(after.0, count, |at| &square.ends[at].name);
    other.move_to(after.1, count, |at| &square.ends[at].name);
    before == after
}

fn scroll_by(state: &mut ConsoleState, by: isize) {
    state.scroll = state.scroll.saturating_add_signed(by).min(state.layout.hidden);
}

/// Moves the cursor in the heat map. A step of a whole row that would leave the map does nothing, so the column is
/// kept.
fn move_in_heat_map<'a>(
    cursor: &mut RowCursor,
    by: isize,
    count: usize,
    key_at: impl Fn(usize) -> &'a str,
) {
    let to = cursor.row_index(count, &key_at).checked_add_signed(by);
    let end = by == isize::MIN || by == isize::MAX || by.unsigned_abs() == 1;
    if end || to.is_some_and(|to| to < count) {
        cursor.move_by(by, count, key_at);
    }
}
