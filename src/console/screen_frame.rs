//! The whole screen: source and time in the header, the shown screen, status line and keys at the bottom.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::{
    ReplayProgress,
    action::KeyIntent,
    console_state::{ClickArea, ClickTarget, ConsoleState, ScreenLayout, SourceStatus},
    display_text, freshness, keymap,
    prompt::PromptKind,
    screen::Screen,
    screens::{self, view_of},
    theme::{StyleRole, Theme},
    view::{MIN_HEIGHT, MIN_WIDTH, placeholders},
};
use gaunt_api::Overview;

mod help_screen;
mod local_times;
mod prompt_view;
mod search_view;
mod status_line;

/// Lines below the body: status line and footer.
const BELOW: u16 = 2;

/// Draws the whole screen and returns its layout.
pub(crate) fn draw(buffer: &mut Buffer, state: &ConsoleState, theme: Theme) -> ScreenLayout {
    let area = buffer.area;
    let layout = if area.width < MIN_WIDTH || area.height < MIN_HEIGHT {
        placeholders::draw_too_small(buffer, area);
        ScreenLayout::default()
    } else {
        let (body, click_areas) = draw_frame(buffer, area, state, theme);
        let mut layout = if state.help {
            help_screen::draw(buffer, body, state, theme)
        } else if state.data.overview.is_none() {
            placeholders::draw_loading(buffer, body, state, theme)
        } else {
            view_of(&state.screen).draw(buffer, body, state, theme)
        };
        layout.click_areas.extend(click_areas);
        if state.confirm.is_none() && state.prompt.is_none() {
            let lines = status_line::render_status(state, usize::from(area.width), theme);
            match lines {
                Some(lines) => draw_status(buffer, area, &lines),
                None if state.help => {}
                None => layout.click_areas.extend(draw_main_screens(buffer, area, state, theme)),
            }
        }
        layout
    };
    if let Some(offset) = state.utc_offset {
        local_times::show_local_times(buffer, offset);
    }
    theme.replace_non_ascii(buffer);
    layout
}

/// Draws header and footer, and returns the area between them with the click areas. Messages take the line of the main
/// screens, so that no row moves under the pointer when one appears.
///
/// ```text
///  gaunt  prod-a   32 nodes · 256 GPUs · 1 down                 12:03:41Z ● every 1 s
///  …
///  1 overview 2 findings 3 jobs 4 network 5 nodes 6 gpus 7 ports 8 users 9 targets
///  Enter open  Tab panel  / filter  [ back in time  ; search  : command  q quit  ? keys
/// ```
fn draw_frame(
    buffer: &mut Buffer,
    area: Rect,
    state: &ConsoleState,
    theme: Theme,
) -> (Rect, Vec<ClickArea>) {
    let overview = state.data.overview.as_deref();
    draw_header(buffer, area, overview, state, theme);
    let width = usize::from(area.width);
    let mut body = Rect { y: area.y + 1, height: area.height - 1 - BELOW, ..area };
    let last = Rect { y: area.bottom() - 1, height: 1, ..area };
    let lines = match (&state.confirm, &state.prompt) {
        (Some(confirm), _) => status_line::render_confirm(confirm, width, theme).into(),
        (None, Some(prompt)) if prompt.asks == PromptKind::Search => {
            let height = usize::from(body.height / 2 + BELOW);
            search_view::render_search(prompt, &state.search, width, height, theme)
        }
        (None, Some(prompt)) => prompt_view::render_prompt(prompt, width, theme),
        (None, None) => return (body, draw_footer(buffer, last, state, theme)),
    };
    // The prompt may need more lines for its candidates: the user opened it.
    let more = (lines.len() as u16).saturating_sub(BELOW).min(body.height);
    body.height -= more;
    let first = area.bottom().saturating_sub(lines.len() as u16).max(body.bottom());
    for (y, line) in (first..area.bottom()).zip(&lines) {
        buffer.set_line(area.x, y, line, area.width);
    }
    (body, Vec::new())
}

/// Draws the message above the footer. A long one covers the last lines of the body, so that it is whole and nothing
/// moves.
fn draw_status(buffer: &mut Buffer, area: Rect, lines: &[Line<'static>]) {
    let first = area.bottom().saturating_sub(1 + lines.len() as u16);
    for (y, line) in (first..).zip(lines) {
        buffer.set_string(area.x, y, " ".repeat(usize::from(area.width)), Style::new());
        buffer.set_line(area.x, y, line, area.width);
    }
}

fn draw_header(
    buffer: &mut Buffer,
    area: Rect,
    overview: Option<&Overview>,
    state: &ConsoleState,
    theme: Theme,
) {
    let now = render_shown_time(overview, state, area.width >= EVERY_FROM, theme);
    let width = now.width() as u16;
    // Outdated counts are not useful: the source that does not respond is shown instead.
    let mut left = match status_line::render_lost_source(state) {
        Some(lost) if overview.is_some() => {
            vec![Span::styled(lost, theme.style_for(StyleRole::Bad))]
        }
        _ => render_identity(overview, theme),
    };
    let is_main = state.screen == Screen::default();
    let title = format!("   {}", view_of(&state.screen).header_title());
    let title_width = if is_main { 0 } else { display_text::text_width(&title) };
    // The last counts are the least important ones: they are left out whole. What is not read stays.
    let available = usize::from(area.width.saturating_sub(width + 1));
    let kept = 2 + usize::from(overview.is_some_and(|it| it.describe_silent_clusters().is_some()));
    let columns = |left: &[Span<'_>]| left.iter().map(Span::width).sum::<usize>();
    while left.len() > kept && columns(&left) + title_width > available {
        left.pop();
    }
    if !is_main {
        let title = display_text::truncate_text(&title, available.saturating_sub(columns(&left)));
        left.push(Span::styled(title, theme.style_for(StyleRole::Title)));
    }
    let left = Line::from(left);
    buffer.set_line(area.x, area.y, &left, area.width.saturating_sub(width + 1));
    buffer.set_line(area.right().saturating_sub(width), area.y, &now, width);
}

fn render_identity(overview: Option<&Overview>, theme: Theme) -> Vec<Span<'static>> {
    let mut spans = vec![Span::styled(" gaunt  ", theme.style_for(StyleRole::Title))];
    let Some(overview) = overview else { return spans };
    if !overview.cluster.is_empty() {
        let cluster = format!("{}   ", display_text::truncate_text(&overview.cluster, 24));
        spans.push(Span::styled(cluster, theme.style_for(StyleRole::Title)));
    }
    // Totals and lists are not whole.
    if let Some(silent) = overview.describe_silent_clusters() {
        let silent = format!("{}   ", display_text::truncate_text(&silent, 24));
        spans.push(Span::styled(silent, theme.style_for(StyleRole::Bad)));
    }
    let nodes = overview.nodes;
    let reported = nodes.live + nodes.stale + nodes.down;
    if reported == 0 {
        let text = match nodes.pending {
            0 => "no node yet".to_owned(),
            pending => {
                format!("0 of {} nodes scraped", display_text::format_count(pending.into()))
            }
        };
        spans.push(Span::styled(text, theme.style_for(StyleRole::Dim)));
        return spans;
    }
    let (gpus, s) = (u64::from(overview.gpu_count()), |n: u64| if n == 1 { "" } else { "s" });
    let nodes_text = display_text::format_count(reported.into());
    spans.push(Span::raw(format!("{nodes_text} node{}", s(reported.into()))));
    let gpus_text = display_text::format_count(gpus);
    spans.push(Span::raw(format!(" · {gpus_text} GPU{}", s(gpus))));
    let mut add = |count: u32, words: &str, meaning| {
        if count > 0 {
            let text = format!(" · {} {words}", display_text::format_count(count.into()));
            spans.push(Span::styled(text, theme.style_for(meaning)));
        }
    };
    // Problems come first: live nodes need no entry.
    add(nodes.down, "down", StyleRole::Bad);
    add(nodes.stale, "stale", StyleRole::Waiting);
    add(nodes.pending, "pending", StyleRole::Dim);
    if nodes.live > 0 && nodes.live == reported && nodes.pending == 0 {
        let all = if reported == 1 { " · live" } else { " · all live" };
        spans.push(Span::styled(all, theme.style_for(StyleRole::Dim)));
    }
    spans
}

/// Minimum width for the word before the scrape period.
const EVERY_FROM: u16 = 100;

/// Renders the instant of the shown rows, and their age if they are stale, else the scrape period.
fn render_shown_time(
    overview: Option<&Overview>,
    state: &ConsoleState,
    has_words: bool,
    theme: Theme,
) -> Line<'static> {
    let Some(overview) = overview else { return Line::default() };
    let answered = matches!(state.source_status, SourceStatus::Fresh(at) if state.now.duration_since(at) < state.late_threshold());
    let age = freshness::stale_age(state);
    let fresh = state.past_instant.is_none() && answered && age.is_none();
    let (sign, meaning) = if fresh { ("●", StyleRole::Good) } else { ("○", StyleRole::Bad) };
    let replay = state.replay.map_or_else(Span::default, |replay| {
        let (text, meaning) = match replay {
            ReplayProgress { seek_target: Some(to), .. } => {
                (format!("seek to {}  ", display_text::format_time_of_day(to)), StyleRole::Waiting)
            }
            ReplayProgress { paused: true, .. } => {
                ("PAUSED z: play  ".to_owned(), StyleRole::Waiting)
            }
            ReplayProgress { now, last, .. } if now >= last => {
                ("end of the replay  ".to_owned(), StyleRole::Waiting)
            }
            ReplayProgress { .. } => ("replay z: pause  ".to_owned(), StyleRole::Dim),
        };
        Span::styled(text, theme.style_for(meaning))
    });
    let at = view_of(&state.screen).shown_at(state).unwrap_or(overview.at);
    let every = if has_words { "every " } else { "" };
    let (period, style) = match (age, state.past_instant) {
        (Some(age), _) => (
            format!("{} old ", display_text::format_duration(age)),
            theme.style_for(StyleRole::Bad),
        ),
        (None, Some(_)) => ("past ".to_owned(), theme.style_for(StyleRole::Starved)),
        (None, None) => (
            format!("{every}{} ", display_text::format_period(overview.period_ms)),
            theme.style_for(StyleRole::Plain),
        ),
    };
    Line::from(vec![
        replay,
        Span::raw(display_text::format_time_of_day(at)),
        Span::styled(format!(" {sign} "), theme.style_for(meaning)),
        Span::styled(period, style),
    ])
}

/// Draws the numbers and names of the main screens, and returns their click areas. Where not all names fit, the shown
/// screen has its name, and the first of the others.
fn draw_main_screens(
    buffer: &mut Buffer,
    area: Rect,
    state: &ConsoleState,
    theme: Theme,
) -> Vec<ClickArea> {
    let commands = screens::main_commands();
    let is_shown = |number| state.screen == screens::main_screen(number);
    let shown = commands.iter().filter(|command| command.number().is_some_and(is_shown));
    // A number and a gap each, and the name of the shown screen.
    let reserved = 2 * commands.len() + shown.map(|command| command.word.len() + 1).sum::<usize>();
    let mut left = usize::from(area.width).saturating_sub(reserved);
    let (mut x, y) = (area.x + 1, area.bottom() - BELOW);
    let mut click_areas = Vec::new();
    for command in commands {
        let Some(number) = command.number() else { continue };
        let (is_shown, needed) = (is_shown(number), command.word.len() + 1);
        let has_name = is_shown || needed <= left;
        left = if is_shown || !has_name { left } else { left - needed };
        let text = if has_name { format!("{number} {}", command.word) } else { number.to_string() };
        let role = if is_shown { StyleRole::Title } else { StyleRole::Dim };
        buffer.set_stringn(
            x,
            y,
            &text,
            area.right().saturating_sub(x).into(),
            theme.style_for(role),
        );
        let width = text.len() as u16;
        let target = ClickTarget::Key(KeyIntent::Screen(number));
        click_areas.push(ClickArea { area: Rect { x, y, width, height: 1 }, target });
        x += width + 1;
    }
    click_areas
}

/// Draws the keys of this screen, as many as fit, and returns their click areas.
fn draw_footer(
    buffer: &mut Buffer,
    area: Rect,
    state: &ConsoleState,
    theme: Theme,
) -> Vec<ClickArea> {
    let mut click_areas = Vec::new();
    let (title, dim) = (theme.style_for(StyleRole::Title), theme.style_for(StyleRole::Dim));
    let mut x = area.x + 1;
    let mut put = |text: &str, style, intent, x: &mut u16| {
        let width = display_text::text_width(text) as u16;
        buffer.set_string(*x, area.y, text, style);
        let area = Rect { x: *x, width, ..area };
        click_areas.push(ClickArea { area, target: ClickTarget::Key(intent) });
        *x += width;
    };
    let has_overview = state.data.overview.is_some();
    let has_filter = view_of(&state.screen).has_entered_filter(state);
    // The help key is always shown.
    let help = if state.help { " close" } else { " keys" };
    let right = area.right() - help.len() as u16 - 2;
    for binding in keymap::screen_bindings(&state.screen) {
        let Some(mut word) = binding.footer else { continue };
        if binding.intent == KeyIntent::Back && !state.help && has_filter {
            word = "clear filter";
        }
        let is_active = match binding.intent {
            KeyIntent::Help => false,
            KeyIntent::Quit | KeyIntent::Back => true,
            _ if state.help => false,
            KeyIntent::NextPanel | KeyIntent::Fold => has_overview && state.only_node().is_none(),
            KeyIntent::Open => has_overview,
            _ => true,
        };
        let width = display_text::text_width(binding.label) + word.len() + 3;
        if !is_active || usize::from(x) + width > usize::from(right) {
            continue;
        }
        put(binding.label, title, binding.intent, &mut x);
        put(&format!(" {word}  "), dim, binding.intent, &mut x);
    }
    let mut x = right;
    put("?", title, KeyIntent::Help, &mut x);
    put(help, dim, KeyIntent::Help, &mut x);
    click_areas
}
