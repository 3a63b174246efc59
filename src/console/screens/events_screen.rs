//! Events screen of a node: recent XIDs and changes of links, clocks and memory errors, with the recommended action.

use gaunt_schema::SanitizedText;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use crate::{
    console_state::{ConsoleState, ScreenLayout},
    key_binding::{BACK, KeyBinding, NODE_KEYS},
    node_events,
    screen::EventsScreen,
    screen_view::ScreenView,
    theme::{StyleRole, Theme},
    view::{draw_page, event_rows::render_event, node_details},
};

impl ScreenView for EventsScreen {
    fn header_title(&self) -> String {
        format!("{} events", self.0)
    }

    fn keys(&self) -> &'static [&'static [KeyBinding]] {
        &[&[BACK], NODE_KEYS]
    }

    fn node_name(&self) -> Option<&SanitizedText> {
        Some(&self.0)
    }

    /// Draws the events of a node, the newest first.
    ///
    /// ```text
    ///  gpu003  live, age 0.4s   8 GPUs lost   3,412 W   job 8812
    ///
    ///  EVENTS  3 in the kept history
    ///  ✖ 12:02:23Z  mlx5_1/1   port is no longer active     → check the cable and the switch port
    /// ```
    fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout {
        let Some(detail) = state.node_detail(&self.0).filter(|_| state.data.refused.is_none())
        else {
            return self.draw_waiting(buffer, area, &self.0, state, theme);
        };
        let events = node_events::of(detail);
        let count = format!("{} in the kept history", events.len());
        let mut lines = vec![node_details::render_headline(detail, theme), Line::default()];
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
}
