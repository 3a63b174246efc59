//! Help screen: keys of the current screen, commands, and the meaning of the symbols, all from their tables.

use gaunt_schema::GpuState;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use crate::{
    console_state::{ConsoleState, ScreenLayout},
    display_text, keymap, prompt_commands,
    screens::view_of,
    theme::{self, StyleRole, Theme},
    view::draw_lines,
};

/// Columns of the keys.
const KEYS_WIDTH: u16 = 50;
/// Columns of the symbols.
const SIGNS_WIDTH: u16 = 30;
/// Columns of the commands.
const COMMANDS_WIDTH: u16 = 76;

/// Draws the help screen; on a wide screen with the commands.
///
/// ```text
///  KEYS: overview                            GPU STATES
///  Enter     open the selected item          █ computing
///  Tab       next panel                      ▒ communicating
/// ```
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    state: &ConsoleState,
    theme: Theme,
) -> ScreenLayout {
    let wide = area.width >= KEYS_WIDTH + COMMANDS_WIDTH + SIGNS_WIDTH;
    let keys = render_keys(state, theme);
    let commands = render_commands(theme);
    let signs = render_signs(theme);
    let height = usize::from(area.height);
    let right = area.width.saturating_sub(KEYS_WIDTH).min(SIGNS_WIDTH);
    let left = Rect { width: area.width - right, ..area };
    draw_lines(buffer, Rect { x: area.right() - right, width: right, ..area }, &signs);
    let mut lines = keys;
    if wide {
        let x = area.x + KEYS_WIDTH;
        draw_lines(buffer, Rect { x, width: COMMANDS_WIDTH, ..area }, &commands);
    } else {
        lines.push(Line::default());
        lines.extend(commands);
    }
    let width = if wide { KEYS_WIDTH } else { left.width };
    let hidden = lines.len().saturating_sub(height);
    let from = state.scroll.min(hidden);
    draw_lines(buffer, Rect { width, ..left }, &lines[from..]);
    if hidden > from {
        let text = format!(" {} more: down or PgDn ", hidden - from);
        let line = Line::styled(text, theme.style_for(StyleRole::Waiting));
        let y = area.bottom() - 1;
        let blank = " ".repeat(usize::from(width));
        buffer.set_line(area.x, y, &Line::raw(blank), width);
        buffer.set_line(area.x, y, &line, width);
    }
    ScreenLayout { page: height, hidden, ..ScreenLayout::default() }
}

fn render_keys(state: &ConsoleState, theme: Theme) -> Vec<Line<'static>> {
    let title = format!(" KEYS: {}", view_of(&state.screen).header_title());
    let mut lines = vec![Line::styled(title, theme.style_for(StyleRole::Title))];
    lines.extend(keymap::screen_bindings(&state.screen).map(|binding| {
        let label = format!(" {}", display_text::align_left(binding.label, 10));
        Line::from(vec![
            Span::styled(label, theme.style_for(StyleRole::Title)),
            Span::raw(binding.help),
        ])
    }));
    lines
}

fn render_commands(theme: Theme) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled(" COMMANDS", theme.style_for(StyleRole::Title))];
    lines.extend(prompt_commands::listed_commands().map(|(word, arguments, help)| {
        let head = format!(" :{}", display_text::align_left(&format!("{word} {arguments}"), 36));
        Line::from(vec![Span::styled(head, theme.style_for(StyleRole::Title)), Span::raw(help)])
    }));
    lines
}

fn render_signs(theme: Theme) -> Vec<Line<'static>> {
    let mut signs = vec![Line::styled("GPU STATES", theme.style_for(StyleRole::Title))];
    signs.extend(GpuState::ALL.iter().map(|&state| {
        let lost = if state.is_lost_time() { "lost time" } else { "" };
        Line::from(vec![
            Span::styled(theme::state_sign(state), theme.state_style(state)),
            Span::raw(format!(" {}", display_text::align_left(theme::state_label(state), 18))),
            Span::styled(lost, theme.style_for(StyleRole::Dim)),
        ])
    }));
    let reasons = [
        "–     unknown, not zero",
        "perm  no permission",
        "old   stale value",
        "full  counter saturated",
        "lost  device lost",
        "error read failed",
        "12:03:41Z is UTC",
    ];
    signs.extend(reasons.map(Line::raw));
    signs
}
