//! Rows of events: sign, time, device, what happened and the recommended action.

use gaunt_schema::SanitizedText;
use ratatui::text::{Line, Span};

use crate::{
    display_text,
    node_events::{self, NodeEvent},
    theme::{self, StyleRole, Theme},
};
use gaunt_api::NodeDetail;

/// Renders the newest events of one device.
pub(crate) fn render_device_events(
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

/// Renders one event.
pub(crate) fn render_event(event: &NodeEvent, width: usize, theme: Theme) -> Line<'static> {
    let sign = theme::severity_sign(event.severity);
    let at = event.at.map_or_else(|| "earlier  ".to_owned(), display_text::format_time_of_day);
    let head = format!(" {sign} {at}  {}  ", display_text::align_left(&event.device, 10));
    let available = width.saturating_sub(display_text::text_width(&head));
    let what = display_text::truncate_text(&event.what, available);
    let left = available.saturating_sub(display_text::text_width(&what));
    let action = display_text::truncate_text(&format!("  → {}", event.action), left);
    Line::from(vec![
        Span::styled(head, theme.severity_style(event.severity)),
        Span::raw(what),
        Span::styled(action, theme.style_for(StyleRole::Dim)),
    ])
}
