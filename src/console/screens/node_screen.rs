//! Node screen: identity and findings of one node, and its GPUs, ports and host with their recent history.

use gaunt_schema::{DeviceClass, SanitizedText};
use ratatui::{buffer::Buffer, layout::Rect, text::Line};

use crate::{
    action::KeyIntent,
    console_state::{ClickArea, ClickTarget, ConsoleState, ScreenLayout},
    cursor_rows::{self, CursorRows},
    key_binding::{BACK, KeyBinding, NODE_KEYS, OPEN},
    screen::{DeviceScreen, NodeScreen, Screen},
    screen_view::{ScreenCommand, ScreenOutcome, ScreenView},
    theme::Theme,
    view::{
        draw_page,
        node_details::{render_body, render_finding, render_headline, waits_for},
        node_tables,
    },
};
use gaunt_api::{DeviceDetail, NodeDetail};

/// Name of the cursor in the devices of the node.
pub(crate) const DEVICES_CURSOR: &str = "devices";

impl ScreenView for NodeScreen {
    fn commands() -> &'static [ScreenCommand] {
        const {
            &[ScreenCommand::other("node", "one node", |name| {
                Ok(NodeScreen(SanitizedText::new(name)).into())
            })
            .with_arguments("NAME", "a name", true)]
        }
    }

    fn header_title(&self) -> String {
        self.0.to_string()
    }

    fn keys(&self) -> &'static [&'static [KeyBinding]] {
        &[&[OPEN, BACK], NODE_KEYS]
    }

    fn node_name(&self) -> Option<&SanitizedText> {
        Some(&self.0)
    }

    fn cursor_rows(&self, state: &ConsoleState) -> Option<CursorRows> {
        let devices = openable_devices(state.node_detail(&self.0)?);
        let keys = devices.iter().map(|device| device.name.to_string()).collect();
        Some(CursorRows { cursor: DEVICES_CURSOR, keys })
    }

    fn item_target(&self, state: &ConsoleState) -> Option<Screen> {
        let devices = openable_devices(state.node_detail(&self.0)?);
        let at = state.cursors.of(DEVICES_CURSOR).row_index(devices.len(), |at| &devices[at].name);
        let device = devices.get(at)?;
        Some(DeviceScreen(self.0.clone(), device.class, device.name.clone()).into())
    }

    /// Moves the cursor; beyond the last device, the page scrolls on to the host's section, and back.
    fn handle_intent(&self, state: &mut ConsoleState, intent: KeyIntent) -> ScreenOutcome {
        let by = cursor_rows::row_steps(state, intent);
        let rows = self.cursor_rows(state).filter(|rows| !rows.keys.is_empty());
        let scrolled_back = state.scroll > 0 && by < 0 && by != isize::MIN;
        if let (Some(rows), false) = (rows, scrolled_back) {
            let from = rows.index(state);
            rows.move_by(state, by);
            match by {
                isize::MIN => state.scroll = 0,
                isize::MAX => cursor_rows::scroll_by(state, by),
                by if by > 0 && rows.index(state) == from => cursor_rows::scroll_by(state, by),
                _ => {}
            }
        } else {
            cursor_rows::scroll_by(state, by);
        }
        ScreenOutcome::Redraw
    }

    /// Draws the opened node.
    ///
    /// ```text
    ///  gpu003  live, age 0.4s   8 GPUs lost   3,412 W   job llama-pt
    ///          gaunt 127.1.0.3:9770   kernel 6.1.0   clock +2 ms
    ///  ✖ port_down  mlx5_1/1  6m10  port mlx5_1/1 of gpu003 is down: …
    ///  GPU  state              util %  last 2m     …
    ///  PORT      …
    ///  HOST      …
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
        let width = usize::from(area.width);
        let mut lines = vec![render_headline(detail, theme)];
        for finding in &detail.findings {
            let waits = waits_for(finding, &self.0, None);
            lines.extend(render_finding(finding, waits, detail.at, width, theme));
        }
        lines.push(Line::default());
        let devices = openable_devices(detail);
        let at = state.cursors.of(DEVICES_CURSOR).row_index(devices.len(), |at| &devices[at].name);
        let body = render_body(detail, width, Some(at), theme);
        let chosen = lines.len() + body.iter().position(|(_, row)| *row == Some(at)).unwrap_or(0);
        // Keep the cursor visible, and as much of what is above it as fits.
        let below = usize::from(area.height).saturating_sub(2);
        let needed = chosen.saturating_sub(below);
        let from = needed + state.scroll;
        let head = lines.len();
        let mut click_areas = Vec::new();
        for (number, (line, row)) in body.into_iter().enumerate() {
            let offset = (head + number).checked_sub(from).filter(|offset| *offset < below + 1);
            if let (Some(offset), Some(row)) = (offset, row) {
                let area = Rect { y: area.y + offset as u16, height: 1, ..area };
                click_areas.push(ClickArea { area, target: ClickTarget::Row(row) });
            }
            lines.push(line);
        }
        let layout = draw_page(buffer, area, &lines, from, theme);
        ScreenLayout { hidden: layout.hidden.saturating_sub(needed), click_areas, ..layout }
    }
}

/// Returns the devices of a node that have their own screen, in the order of the node screen.
fn openable_devices(detail: &NodeDetail) -> Vec<&DeviceDetail> {
    let of = |class: DeviceClass| node_tables::of(detail, class);
    of(DeviceClass::Gpu).chain(of(DeviceClass::Port)).collect()
}
