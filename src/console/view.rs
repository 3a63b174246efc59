//! Drawing: a function of the state, the theme and the room there is. One screen a file.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use super::{
    place::Place,
    state::{Room, State},
    theme::{Meaning, Theme},
};

mod alerts;
mod beside;
mod columns;
mod device;
mod events;
mod explanation;
mod finding;
mod findings;
mod fleet;
mod folded;
mod frame;
mod heat;
mod help;
mod hints;
mod job;
mod line;
mod list;
mod network;
mod node;
mod node_tables;
mod nodes;
mod overview;
mod probe;
mod status;
mod topology;
mod users;

/// Below this, a screen would cut what matters.
pub(crate) const MIN_WIDTH: u16 = 60;
/// Below this, a screen would cut what matters.
pub(crate) const MIN_HEIGHT: u16 = 12;

/// Draws everything, and tells the room that there was.
pub(crate) fn draw(buffer: &mut Buffer, state: &State, theme: Theme) -> Room {
    let area = buffer.area;
    let room = if area.width < MIN_WIDTH || area.height < MIN_HEIGHT {
        hints::too_small(buffer, area);
        Room::default()
    } else {
        let (body, spots) = frame::draw(buffer, area, state, theme);
        let mut room = if state.help {
            help::draw(buffer, body, state, theme)
        } else {
            screen(buffer, body, state, theme)
        };
        room.spots.extend(spots);
        room
    };
    theme.flatten(buffer);
    room
}

fn screen(buffer: &mut Buffer, body: Rect, state: &State, theme: Theme) -> Room {
    let Some(overview) = state.data.overview.as_deref() else {
        hints::loading(buffer, body, state, theme);
        return Room::default();
    };
    match &state.place {
        Place::Overview => overview::draw(buffer, body, state, overview, theme),
        Place::Findings => findings::draw(buffer, body, state, theme),
        Place::Finding(_) => finding::draw(buffer, body, state, theme),
        Place::Explanation(_) => explanation::draw(buffer, body, state, theme),
        Place::List(subject) => list::draw(buffer, body, state, *subject, theme),
        Place::Job(name) => job::draw(buffer, body, state, name, theme),
        Place::Users => users::draw(buffer, body, state, theme),
        Place::Network => network::draw(buffer, body, state, theme),
        Place::Probe => probe::draw(buffer, body, state, theme),
        Place::Node(name) => node::draw(buffer, body, state, name, theme),
        Place::Device(..) => device::draw(buffer, body, state, theme),
        Place::Topology(name) => topology::draw(buffer, body, state, name, theme),
        Place::Events(name) => events::draw(buffer, body, state, name, theme),
    }
}

/// Writes lines from the top of an area; what does not fit is left out.
fn put(buffer: &mut Buffer, area: Rect, lines: &[Line<'_>]) {
    for (y, line) in (area.top()..area.bottom()).zip(lines) {
        buffer.set_line(area.x, y, line, area.width);
    }
}

/// Writes a page that is only read, scrolled by what the reader asked for.
fn put_page(
    buffer: &mut Buffer,
    area: Rect,
    lines: &[Line<'_>],
    scroll: usize,
    theme: Theme,
) -> Room {
    let fits = lines.len() <= usize::from(area.height);
    // A page that is longer than the screen gives its last line to say so.
    let height = usize::from(area.height.saturating_sub(u16::from(!fits)));
    let hidden = lines.len().saturating_sub(height);
    let from = scroll.min(hidden);
    put(buffer, Rect { height: height as u16, ..area }, &lines[from..]);
    let below = hidden - from;
    if !fits && area.height > 0 {
        let more = format!(" {from} lines above, {below} below ");
        let width = more.len().min(usize::from(area.width)) as u16;
        let (x, y) = (area.right() - width, area.bottom() - 1);
        buffer.set_line(x, y, &Line::styled(more, theme.style(Meaning::Dim)), width);
    }
    Room { page: height, hidden, ..Room::default() }
}

/// A line that begins with the name of a part of the screen, in a column of its own.
fn titled(title: &str, rest: Vec<Span<'static>>, theme: Theme) -> Line<'static> {
    let mut spans = vec![Span::styled(format!(" {title:<LABEL$}"), theme.style(Meaning::Title))];
    spans.extend(rest);
    Line::from(spans)
}

/// Columns of the names of parts, gap included, without the one at the left edge.
const LABEL: usize = 10;

/// Columns before the text behind a name.
const INDENT: usize = LABEL + 1;
