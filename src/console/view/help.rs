//! Help: the table of keys and the signs of every GPU state.

use gaunt_schema::GpuState;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use super::put;
use crate::console::{
    format,
    keymap::KEYS,
    theme::{self, Meaning, Theme},
};

/// Columns of the half with the keys.
const KEYS_WIDTH: u16 = 44;

/// Draws keys at the left and signs at the right.
///
/// ```text
///  KEYS                                        WHAT A GPU DOES
///  1          the fleet at a glance            █ computing
///  2          every open finding               ░ waiting for peers      lost
/// ```
pub(super) fn draw(buffer: &mut Buffer, area: Rect, theme: Theme) {
    let mut keys = vec![Line::styled(" KEYS", theme.style(Meaning::Title))];
    keys.extend(KEYS.iter().map(|binding| {
        Line::from(vec![
            Span::styled(
                format!(" {}", format::left(binding.label, 10)),
                theme.style(Meaning::Title),
            ),
            Span::raw(binding.help),
        ])
    }));
    let mut signs = vec![Line::styled("WHAT A GPU DOES", theme.style(Meaning::Title))];
    signs.extend(GpuState::ALL.iter().map(|&state| {
        let lost = if state.is_lost_time() { "lost time" } else { "" };
        Line::from(vec![
            Span::styled(theme::state_sign(state), theme.state(state)),
            Span::raw(format!(" {}", format::left(theme::state_words(state), 18))),
            Span::styled(lost, theme.style(Meaning::Dim)),
        ])
    }));
    let reasons = [
        "",
        "–     not known, which is no zero",
        "perm  may not be read by gaunt-node",
        "old   read too long ago",
        "full  the counter counts no further",
        "lost  the device is gone",
        "error reading failed",
        "12:03:41Z is UTC",
    ];
    signs.extend(reasons.map(Line::raw));
    put(buffer, Rect { width: KEYS_WIDTH.min(area.width), ..area }, &keys);
    let right = area.width.saturating_sub(KEYS_WIDTH);
    put(buffer, Rect { x: area.x + area.width - right, width: right, ..area }, &signs);
}
