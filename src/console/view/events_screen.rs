//! Events screen of a node: recent XIDs and changes of links, clocks and memory errors, with the recommended action.

use gaunt_schema::SanitizedText;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use super::{draw_lines, draw_page, node_screen, placeholders};
use crate::{
    console_state::{ConsoleState, ScreenLayout},
    display_text,
    node_events::{self, NodeEvent},
    theme::{self, StyleRole, Theme},
};
use gaunt_api::NodeDetail;

/// Draws the events of a node, the newest first.
///
/// ```text
///  gpu003  live, age 0.4s   8 GPUs lost   3,412 W   job 8812
///
///  EVENTS  3 in the kept history
///  ✖ 12:02:23Z  mlx5_1/1   port is no longer active     → check the cable and the switch port
/// ```
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    state: &ConsoleState,
    name: &SanitizedText,
    theme: Theme,
) -> ScreenLayout {
    let Some(detail) = state.node_detail(name).filter(|_| state.data.refused.is_none()) else {
        draw_lines(buffer, area, &placeholders::render_waiting(name, state, area.width, theme));
        return ScreenLayout::default();
    };
    let events = node_events::of(detail);
    let count = format!("{} in the kept history", events.len());
    let mut lines = vec![node_screen::render_headline(detail, theme), Line::default()];
    lines.push(Line::from(vec![
        Span::styled(" EVENTS  ", theme.style_for(StyleRole::Title)),
        Span::raw(count),
    ]));
    let width = usize::from(area.width);
    lines.extend(events.iter().map(|event| render_event(event, width, theme)));
    if events.is_empty() {
        let text = "   no XID, link, clock or ECC event";
        lines.push(Line::styled(text, theme.style_for(StyleRole::Good)));
    }
    draw_page(buffer, area, &lines, state.scroll, theme)
}

/// Renders the newest events of one device.
pub(super) fn render_device_events(
    detail: &NodeDetail,
    device: &SanitizedText,
    most: usize,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let mut events = node_events::of(detail);
    events.retain(|event| event.device == *device);
    if events.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![Line::styled(" EVENTS", theme.style_for(StyleRole::Title))];
    lines.extend(events.iter().take(most).map(|event| render_event(event, width, theme)));
    lines
}

fn render_event(event: &NodeEvent, width: usize, theme: Theme) -> Line<'static> {
    let sign = theme::severity_sign(event.severity);
    let at = event.at.map_or_else(|| "earlier  ".to_owned(), display_text::format_time_of_day);
    let head = format!(" {sign} {at}  {}  ", display_text::align_left(&event.device, 10));
    let room = width.saturating_sub(display_text::text_width(&head));
    let what = display_text::truncate_text(&event.what, room);
    let left = room.saturating_sub(display_text::text_width(&what));
    let action = display_text::truncate_text(&format!("  → {}", event.action), left);
    Line::from(vec![
        Span::styled(head, theme.severity_style(event.severity)),
        Span::raw(what),
        Span::styled(action, theme.style_for(StyleRole::Dim)),
    ])
}
