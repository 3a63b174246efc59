//! What is the same on every screen: who and when at the top, trouble with the source below it, keys at the bottom.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use super::line;
use crate::{
    answer::Overview,
    console::{
        action::Intent,
        format, keymap,
        place::{MAIN, Place},
        state::{Link, Spot, State, What},
        theme::{Meaning, Theme},
        update,
    },
    source::Playing,
};

/// Draws header, banner and footer, and gives back what is left between them, and what of it can be pressed.
///
/// ```text
///  gaunt  prod-a   32 nodes · 256 GPUs · 1 down                 12:03:41Z ● 1 s
///  ✖ aggregator 10.0.0.5:9771: no answer since 12:03:42Z (31s), showing 12:03:41Z
///    aggregator 10.0.0.5:9771 unreachable: connection refused; is `gaunt serve` …
///  …
///  1 2 3 4 5 6 7 8 9 overview   Enter open  Tab panel  / filter  ? keys  q quit
/// ```
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    state: &State,
    theme: Theme,
) -> (Rect, Vec<Spot>) {
    let overview = state.data.overview.as_deref();
    header(buffer, area, overview, state, theme);
    let width = usize::from(area.width);
    let mut banner =
        overview.map_or_else(Vec::new, |overview| banner(overview, state, width, theme));
    banner.extend(message(state, width, theme));
    for (y, line) in (area.top() + 1..).zip(&banner) {
        buffer.set_line(area.x, y, line, area.width);
    }
    let top = 1 + banner.len() as u16;
    let mut body = Rect { y: area.y + top, height: area.height - top - 1, ..area };
    let last = Rect { y: area.bottom() - 1, height: 1, ..area };
    let Some(prompt) = &state.prompt else { return (body, footer(buffer, last, state, theme)) };
    let lines = line::lines(prompt, width, theme);
    let height = (lines.len() as u16 - 1).min(body.height);
    body.height -= height;
    for (y, line) in (body.bottom()..area.bottom()).zip(&lines) {
        buffer.set_line(area.x, y, line, area.width);
    }
    (body, Vec::new())
}

/// What was done last, or why it was not.
fn message(state: &State, width: usize, theme: Theme) -> Option<Line<'static>> {
    let message = state.message.as_ref()?;
    let (sign, meaning) =
        if message.good { ("✔", Meaning::Good) } else { ("▲", Meaning::Waiting) };
    let text = format::cut(&message.text, width.saturating_sub(4));
    Some(Line::styled(format!(" {sign} {text}"), theme.style(meaning)))
}

fn header(
    buffer: &mut Buffer,
    area: Rect,
    overview: Option<&Overview>,
    state: &State,
    theme: Theme,
) {
    let now = now(overview, state, theme);
    let width = now.width() as u16;
    let mut left = identity(overview, theme);
    if !matches!(state.place, Place::Overview) {
        let title = format!("   {}", state.place.title());
        left.push(Span::styled(title, theme.style(Meaning::Title)));
    }
    let left = Line::from(left);
    buffer.set_line(area.x, area.y, &left, area.width.saturating_sub(width + 1));
    buffer.set_line(area.right().saturating_sub(width), area.y, &now, width);
}

fn identity(overview: Option<&Overview>, theme: Theme) -> Vec<Span<'static>> {
    let mut spans = vec![Span::styled(" gaunt  ", theme.style(Meaning::Title))];
    let Some(overview) = overview else { return spans };
    if !overview.cluster.is_empty() {
        let cluster = format!("{}   ", format::cut(&overview.cluster, 24));
        spans.push(Span::styled(cluster, theme.style(Meaning::Title)));
    }
    let nodes = overview.nodes;
    let known = nodes.live + nodes.stale + nodes.down;
    if known == 0 {
        let text = match nodes.pending {
            0 => "no node yet".to_owned(),
            pending => format!("no node of {} read yet", format::count(pending.into())),
        };
        spans.push(Span::styled(text, theme.style(Meaning::Dim)));
        return spans;
    }
    let (gpus, s) = (u64::from(overview.gpus()), |n: u64| if n == 1 { "" } else { "s" });
    spans.push(Span::raw(format!(
        "{} node{} · {} GPU{}",
        format::count(known.into()),
        s(known.into()),
        format::count(gpus),
        s(gpus)
    )));
    let mut add = |count: u32, words: &str, meaning| {
        if count > 0 {
            let text = format!(" · {} {words}", format::count(count.into()));
            spans.push(Span::styled(text, theme.style(meaning)));
        }
    };
    // What is wrong comes first: that all others are live needs no room.
    add(nodes.down, "down", Meaning::Bad);
    add(nodes.stale, "stale", Meaning::Waiting);
    add(nodes.pending, "not yet read", Meaning::Dim);
    if nodes.live > 0 && nodes.live == known && nodes.pending == 0 {
        let all = if known == 1 { " · live" } else { " · all live" };
        spans.push(Span::styled(all, theme.style(Meaning::Dim)));
    }
    spans
}

/// The instant that is shown, and whether it is now.
fn now(overview: Option<&Overview>, state: &State, theme: Theme) -> Line<'static> {
    let Some(overview) = overview else { return Line::default() };
    let fresh = state.then.is_none()
        && matches!(state.link, Link::Fresh(at) if state.now.since(at) < update::late(state));
    let (sign, meaning) = if fresh { ("●", Meaning::Good) } else { ("○", Meaning::Bad) };
    let replay = state.replay.map_or_else(Span::default, |replay| {
        let (text, meaning) = match replay {
            Playing { led: Some(to), .. } => {
                (format!("forward to {}  ", format::clock(to)), Meaning::Waiting)
            }
            Playing { held: true, .. } => ("HELD, z goes on  ".to_owned(), Meaning::Waiting),
            Playing { now, last, .. } if now >= last => {
                ("end of the replay  ".to_owned(), Meaning::Waiting)
            }
            Playing { .. } => ("replay, z holds  ".to_owned(), Meaning::Dim),
        };
        Span::styled(text, theme.style(meaning))
    });
    Line::from(vec![
        replay,
        Span::raw(format::clock(overview.at)),
        Span::styled(format!(" {sign} "), theme.style(meaning)),
        Span::raw(format!("{} ", format::period(overview.period_ms))),
    ])
}

/// What is wrong between this screen and its source; empty when nothing is.
fn banner(overview: &Overview, state: &State, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let showing = format!("showing {}", format::clock(overview.at));
    let mut lines = Vec::new();
    if let Some(then) = state.then {
        let ago = state
            .newest_now()
            .map_or_else(String::new, |now| format!(", {} ago", format::span(now.since(then))));
        let text = format!(
            " ◀ the past: {}{ago}   [ ] 10 s back and forth, {{ }} a minute, . now",
            format::clock(then)
        );
        lines.push(Line::styled(format::cut(&text, width), theme.style(Meaning::Starved)));
    }
    lines.extend(link_banner(state, &showing, width, theme));
    lines
}

/// What is wrong with the way to the source.
fn link_banner(state: &State, showing: &str, width: usize, theme: Theme) -> Vec<Line<'static>> {
    match &state.link {
        Link::Lost { since, why, .. } => {
            let who = state.source.as_deref().map_or_else(
                || "the sampler in this process".to_owned(),
                |address| format!("aggregator {address}"),
            );
            let lasted = format::span(state.now.since(*since));
            let since = format::clock(*since);
            let first = format!(" ✖ {who}: no answer since {since} ({lasted}), {showing}");
            vec![
                Line::styled(first, theme.style(Meaning::Bad)),
                Line::styled(
                    format!("   {}", format::cut(why, width.saturating_sub(4))),
                    theme.style(Meaning::Dim),
                ),
            ]
        }
        Link::Fresh(at) if state.now.since(*at) >= update::late(state) => {
            let waited = format::span(state.now.since(*at));
            let text = format!(" ▲ waiting {waited} for an answer, {showing}");
            vec![Line::styled(text, theme.style(Meaning::Waiting))]
        }
        _ => Vec::new(),
    }
}

/// The main screens and the keys that mean something here, as many as fit; what can be pressed of it.
fn footer(buffer: &mut Buffer, area: Rect, state: &State, theme: Theme) -> Vec<Spot> {
    let mut spots = Vec::new();
    let (title, dim) = (theme.style(Meaning::Title), theme.style(Meaning::Dim));
    let mut x = area.x + 1;
    let mut put = |text: &str, style, key: Option<Intent>, x: &mut u16| {
        let width = format::width(text) as u16;
        if *x + width > area.right() {
            return false;
        }
        buffer.set_string(*x, area.y, text, style);
        if let Some(intent) = key {
            let area = Rect { x: *x, width, ..area };
            spots.push(Spot { area, what: What::Key(intent) });
        }
        *x += width;
        true
    };
    let known = state.data.overview.is_some();
    if !state.help {
        for (number, word, _) in MAIN {
            let here = state.place == Place::main(number);
            let text = if here { format!("{number} {word} ") } else { format!("{number} ") };
            let style = if here { title } else { dim };
            put(&text, style, Some(Intent::Screen(number)), &mut x);
        }
        put(" ", dim, None, &mut x);
    }
    // The way to all other keys is always there.
    let keys = "? keys ";
    let right = area.right() - keys.len() as u16;
    for binding in keymap::here(&state.place) {
        let Some(word) = binding.footer else { continue };
        let here = match binding.intent {
            Intent::Help => false,
            Intent::Quit | Intent::Back => true,
            _ if state.help => false,
            Intent::NextPanel | Intent::Fold => known && state.only_node().is_none(),
            Intent::Open => known,
            _ => true,
        };
        let width = format::width(binding.label) + word.len() + 3;
        if !here || usize::from(x) + width > usize::from(right) {
            continue;
        }
        put(binding.label, title, Some(binding.intent), &mut x);
        put(&format!(" {word}  "), dim, Some(binding.intent), &mut x);
    }
    let mut x = right;
    put("?", title, Some(Intent::Help), &mut x);
    put(" keys", dim, Some(Intent::Help), &mut x);
    spots
}
