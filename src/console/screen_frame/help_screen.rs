//! Help screen: keys of the current screen, commands, and the meaning of the symbols, all from their tables.

use gaunt_schema::{GpuState, SanitizedText};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use crate::{
    action::KeyIntent,
    console_state::{ConsoleState, ScreenLayout},
    display_text,
    key_binding::KeyBinding,
    keymap, prompt_commands,
    screens::view_of,
    theme::{self, StyleRole, Theme},
    user_config::UserConfig,
    view::draw_lines,
};

/// Columns of the keys of the screen.
const OWN_WIDTH: usize = 44;
/// Columns of the keys of every screen.
const COMMON_WIDTH: usize = 45;
/// Columns of the symbols.
const SIGNS_WIDTH: usize = 30;
/// Columns of the commands.
const COMMANDS_WIDTH: usize = 76;

/// Draws the help screen: the keys of the screen, the keys of every screen and the symbols side by side as far as they
/// fit, and the commands beside them on a wide screen, below them on others.
///
/// ```text
///  KEYS: overview                   KEYS OF EVERY SCREEN                GPU STATES
///  Enter     open the selected item ↑ k       up                        █ computing
///  Tab       next panel             ↓ j       down                      ▒ communicating
/// ```
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    state: &ConsoleState,
    theme: Theme,
) -> ScreenLayout {
    let height = usize::from(area.height);
    let lines = arrange_sections(state, usize::from(area.width), theme);
    let hidden = lines.len().saturating_sub(height);
    let from = state.scroll.min(hidden);
    draw_lines(buffer, area, &lines[from..]);
    if hidden > from {
        // The hint takes the place of a line, which is one more.
        let text = format!(" {} more: down or PgDn ", hidden - from + 1);
        let line = Line::styled(text, theme.style_for(StyleRole::Waiting));
        let y = area.bottom() - 1;
        buffer.set_line(area.x, y, &Line::raw(" ".repeat(usize::from(area.width))), area.width);
        buffer.set_line(area.x, y, &line, area.width);
    }
    ScreenLayout { page: height, hidden, ..ScreenLayout::default() }
}

/// Arranges keys, commands and symbols so that none covers another.
fn arrange_sections(state: &ConsoleState, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let title = format!(" KEYS: {}", view_of(&state.screen).header_title());
    let own = render_keys(&title, keymap::own_bindings(&state.screen), theme);
    let is_active =
        |binding: &KeyBinding| binding.intent != KeyIntent::ToggleReplay || state.replay.is_some();
    let common = keymap::common_bindings().filter(is_active);
    let common = render_keys(" KEYS OF EVERY SCREEN", common, theme);
    let signs = render_signs(state, theme);
    let mut commands = render_commands(width < COMMANDS_WIDTH, theme);
    commands.extend(render_user_config(&state.config, width.min(COMMANDS_WIDTH), theme));
    let (all_keys, beside) = (OWN_WIDTH + COMMON_WIDTH, COMMANDS_WIDTH + SIGNS_WIDTH);
    // The keys of every screen are beside those of this one, unless the commands then have no space there.
    let (keys, keys_width) = if width >= all_keys + beside
        || (all_keys + SIGNS_WIDTH..COMMON_WIDTH + beside).contains(&width)
    {
        (place_beside(own, OWN_WIDTH, common), all_keys)
    } else {
        (own.into_iter().chain(common).collect(), COMMON_WIDTH)
    };
    if width >= keys_width + beside {
        let keys_and_commands = place_beside(keys, keys_width, commands);
        return place_beside(keys_and_commands, width - SIGNS_WIDTH, signs);
    }
    let keys_and_signs = if width >= keys_width + SIGNS_WIDTH {
        place_beside(keys, width - SIGNS_WIDTH, signs)
    } else {
        stack_sections(keys, signs)
    };
    stack_sections(keys_and_signs, commands)
}

/// Places the lines of a section to the right of another one, from this column on.
fn place_beside(
    left: Vec<Line<'static>>,
    column: usize,
    right: Vec<Line<'static>>,
) -> Vec<Line<'static>> {
    let count = left.len().max(right.len());
    let (mut left, mut right) = (left.into_iter(), right.into_iter());
    let pairs = (0..count).map(|_| (left.next().unwrap_or_default(), right.next()));
    pairs
        .map(|(mut line, beside)| {
            if let Some(beside) = beside {
                line.push_span(" ".repeat(column.saturating_sub(line.width())));
                line.extend(beside.spans);
            }
            line
        })
        .collect()
}

/// Places a section below another one, with a blank line between them.
fn stack_sections(mut above: Vec<Line<'static>>, below: Vec<Line<'static>>) -> Vec<Line<'static>> {
    above.push(Line::default());
    above.extend(below);
    above
}

/// Renders what the user's file adds, and what is wrong with it.
fn render_user_config(config: &UserConfig, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let Some(path) = &config.path else { return Vec::new() };
    let title = SanitizedText::new(&format!(" YOUR FILE: {}", path.display()));
    let style = theme.style_for(StyleRole::Title);
    let mut lines =
        vec![Line::default(), Line::styled(display_text::truncate_text(&title, width), style)];
    let bindings = config.bindings.iter().map(|one| (&one.label, format!(":{}", one.command)));
    let plugins = config.plugins.iter().map(|one| {
        let name = if one.name == one.run[0] { String::new() } else { format!("{}: ", one.name) };
        (&one.label, format!("{name}{}", one.run.join(" ")))
    });
    let aliases = config.aliases.iter().map(|(word, command)| (word, format!(":{command}")));
    let contexts =
        config.contexts.iter().map(|(name, to)| (name, format!(":ctx, {}", to.aggregator)));
    for (label, text) in bindings.chain(plugins).chain(aliases).chain(contexts) {
        let text = SanitizedText::new(&format!(" {label:<10}{text}"));
        lines.push(Line::raw(display_text::truncate_text(&text, width)));
    }
    for error in &config.errors {
        let error = display_text::wrap_text(&SanitizedText::new(error), width.saturating_sub(4));
        let style = theme.style_for(StyleRole::Waiting);
        let signs = std::iter::once("▲").chain(std::iter::repeat(" "));
        lines.extend(
            signs.zip(error).map(|(sign, text)| Line::styled(format!(" {sign} {text}"), style)),
        );
    }
    lines
}

fn render_keys(
    title: &str,
    bindings: impl Iterator<Item = KeyBinding>,
    theme: Theme,
) -> Vec<Line<'static>> {
    let style = theme.style_for(StyleRole::Title);
    let mut lines = vec![Line::styled(title.to_owned(), style)];
    lines.extend(bindings.map(|binding| {
        let label = format!(" {}", display_text::align_left(binding.label, 10));
        Line::from(vec![Span::styled(label, style), Span::raw(binding.help)])
    }));
    lines
}

/// Renders the commands; on a narrow screen with each description below its command.
fn render_commands(narrow: bool, theme: Theme) -> Vec<Line<'static>> {
    let title = theme.style_for(StyleRole::Title);
    let mut lines = vec![Line::styled(" COMMANDS", title)];
    for (word, arguments, help) in prompt_commands::listed_commands() {
        let head = format!(" :{word} {arguments}");
        if narrow {
            lines.push(Line::styled(head, title));
            lines.push(Line::raw(format!("     {help}")));
        } else {
            let head = display_text::align_left(&head, 38);
            lines.push(Line::from(vec![Span::styled(head, title), Span::raw(help)]));
        }
    }
    lines
}

/// The other signs.
const SIGNS: [&str; 9] = [
    "✖     critical finding, failed",
    "▲     warning",
    "●     information; live",
    "○     past, or not live",
    "✔     acknowledged; done",
    "▶ ◀   job started, job ended",
    "◆     node restarted, changed",
    "←     waits for a finding",
    "◂     rank unlike the others",
];

fn render_signs(state: &ConsoleState, theme: Theme) -> Vec<Line<'static>> {
    let mut signs = vec![Line::styled("GPU STATES", theme.style_for(StyleRole::Title))];
    signs.extend(GpuState::ALL.iter().map(|&gpu_state| {
        let lost = if gpu_state.is_lost_time() { "lost time" } else { "" };
        Line::from(vec![
            Span::styled(theme::state_sign(gpu_state), theme.state_style(gpu_state)),
            // The letter is that of the snapshot and of the API, the name that of filters.
            Span::raw(format!(
                " {} {}",
                gpu_state.letter_code(),
                display_text::align_left(gpu_state.as_str(), 16)
            )),
            Span::styled(lost, theme.style_for(StyleRole::Dim)),
        ])
    }));
    signs.extend(SIGNS.map(Line::raw));
    let reasons = [
        "–     unknown, not zero",
        "perm  no permission",
        "old   stale value",
        "full  counter saturated",
        "lost  device lost",
        "error read failed",
    ];
    signs.extend(reasons.map(Line::raw));
    signs.push(Line::raw(match state.utc_offset {
        None => "12:03:41Z is UTC".to_owned(),
        Some(offset) => {
            let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
            format!("times are UTC{sign}{:02}:{:02}", minutes / 60, minutes % 60)
        }
    }));
    signs
}
