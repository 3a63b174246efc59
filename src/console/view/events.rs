//! Events of a node: XIDs, links, clocks and memory errors of late, with what to do about each.

use gaunt_schema::Safe;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use super::{hints, node, put, put_page};
use crate::{
    answer::NodeDetail,
    console::{
        events::{self, Event},
        format,
        state::{Room, State},
        theme::{self, Meaning, Theme},
    },
};

/// Draws what happened on a node, the newest first.
///
/// ```text
///  gpu003  live, read 0.4s ago   8 GPUs lost   3,412 W   job 8812
///
///  EVENTS  3 in the past that is kept
///  ✖ 12:02:23Z  mlx5_1/1   port is no longer active     → look at the cable and the switch port
/// ```
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    state: &State,
    name: &Safe,
    theme: Theme,
) -> Room {
    let Some(detail) = state.node(name).filter(|_| state.data.refused.is_none()) else {
        put(buffer, area, &hints::waiting_for(name, state, area.width, theme));
        return Room::default();
    };
    let events = events::of(detail);
    let count = format!("{} in the past that is kept", events.len());
    let mut lines = vec![node::headline(detail, theme), Line::default()];
    lines.push(Line::from(vec![
        Span::styled(" EVENTS  ", theme.style(Meaning::Title)),
        Span::raw(count),
    ]));
    let width = usize::from(area.width);
    lines.extend(events.iter().map(|event| line(event, width, theme)));
    if events.is_empty() {
        let text = "   no XID, no link, no clock and no memory error";
        lines.push(Line::styled(text, theme.style(Meaning::Good)));
    }
    put_page(buffer, area, &lines, state.scroll, theme)
}

/// The newest events of one device.
pub(super) fn about(
    detail: &NodeDetail,
    device: &Safe,
    most: usize,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let mut events = events::of(detail);
    events.retain(|event| event.device == *device);
    if events.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![Line::styled(" EVENTS", theme.style(Meaning::Title))];
    lines.extend(events.iter().take(most).map(|event| line(event, width, theme)));
    lines
}

fn line(event: &Event, width: usize, theme: Theme) -> Line<'static> {
    let sign = theme::severity_sign(event.severity);
    let at = event.at.map_or_else(|| "before   ".to_owned(), format::clock);
    let head = format!(" {sign} {at}  {}  ", format::left(&event.device, 10));
    let room = width.saturating_sub(format::width(&head));
    let what = format::cut(&event.what, room);
    let left = room.saturating_sub(format::width(&what));
    let action = format::cut(&format!("  → {}", event.action), left);
    Line::from(vec![
        Span::styled(head, theme.severity(event.severity)),
        Span::raw(what),
        Span::styled(action, theme.style(Meaning::Dim)),
    ])
}
