//! What is the same on every screen: who and when at the top, trouble with the source below it, keys at the bottom.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use crate::{
    answer::Overview,
    console::{
        action::Intent,
        format,
        keymap::KEYS,
        state::{Link, Place, State},
        theme::{Meaning, Theme},
        update,
    },
};

/// Draws header, banner and footer, and gives back what is left between them.
///
/// ```text
///  gaunt  prod-a   32 nodes · 256 GPUs · 1 down                 12:03:41Z ● 1 s
///  ✖ aggregator 10.0.0.5:9771: no answer since 12:03:42Z (31s), showing 12:03:41Z
///    aggregator 10.0.0.5:9771 unreachable: connection refused; is `gaunt serve` …
///  …
///  1 overview  2 findings  5 nodes  Enter open  Tab panel  ? keys  q quit
/// ```
pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, theme: Theme) -> Rect {
    let overview = state.data.overview.as_deref();
    header(buffer, area, overview, state, theme);
    let width = usize::from(area.width);
    let banner = overview.map_or_else(Vec::new, |overview| banner(overview, state, width, theme));
    for (y, line) in (area.top() + 1..).zip(&banner) {
        buffer.set_line(area.x, y, line, area.width);
    }
    footer(buffer, Rect { y: area.bottom() - 1, height: 1, ..area }, state, theme);
    let top = 1 + banner.len() as u16;
    Rect { y: area.y + top, height: area.height - top - 1, ..area }
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
    let left = Line::from(identity(overview, theme));
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
    let fresh = matches!(state.link, Link::Fresh(at) if state.now.since(at) < update::late(state));
    let (sign, meaning) = if fresh { ("●", Meaning::Good) } else { ("○", Meaning::Bad) };
    let replay = match state.held {
        None => Span::default(),
        Some(false) => Span::styled("replay, z holds  ", theme.style(Meaning::Dim)),
        Some(true) => Span::styled("HELD, z goes on  ", theme.style(Meaning::Waiting)),
    };
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

/// The keys that mean something here, as many as fit.
fn footer(buffer: &mut Buffer, area: Rect, state: &State, theme: Theme) {
    let mut spans = vec![Span::raw(" ")];
    let overview = state.place == Place::Overview;
    let known = state.data.overview.is_some();
    for binding in KEYS {
        let Some(word) = binding.footer else { continue };
        let here = match binding.intent {
            Intent::Help | Intent::Quit => true,
            Intent::Back => !overview || state.help,
            _ if state.help => false,
            Intent::NextPanel => overview && known && state.only_node().is_none(),
            Intent::Open => known && !matches!(state.place, Place::Node(_)),
            _ => true,
        };
        if here {
            spans.push(Span::styled(binding.label, theme.style(Meaning::Title)));
            spans.push(Span::styled(format!(" {word}  "), theme.style(Meaning::Dim)));
        }
    }
    buffer.set_line(area.x, area.y, &Line::from(spans), area.width);
}
