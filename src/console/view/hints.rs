//! Pictures for when there is nothing to show: each says why, and what comes next.

use ratatui::{buffer::Buffer, layout::Rect, text::Line};

use super::{MIN_HEIGHT, MIN_WIDTH, put};
use crate::{
    answer::Overview,
    console::{
        format,
        state::{Link, State},
        theme::{Meaning, Theme},
    },
};

/// A terminal that is too small, said in as few columns as possible.
///
/// ```text
/// 40×10 is too small:
/// gaunt needs 60×12
/// ```
pub(super) fn too_small(buffer: &mut Buffer, area: Rect) {
    let (width, height) = (area.width, area.height);
    let lines = [
        Line::raw(format!("{width}×{height} is too small:")),
        Line::raw(format!("gaunt needs {MIN_WIDTH}×{MIN_HEIGHT}")),
        Line::raw("q quits"),
    ];
    put(buffer, area, &lines);
}

/// Nothing was answered yet: whom we ask, and why it did not work if it did not.
///
/// ```text
///  Asking aggregator 10.0.0.5:9771 …
///
///  ✖ no answer since 12:01:10Z (31s)
///    aggregator 10.0.0.5:9771 unreachable: connection refused; is `gaunt serve`
///    running there?
///    Asking again until it answers.
/// ```
pub(super) fn loading(buffer: &mut Buffer, area: Rect, state: &State, theme: Theme) {
    let whom = state.source.as_deref().map_or_else(
        || "Reading the first values …".to_owned(),
        |address| format!("Asking aggregator {address} …"),
    );
    let mut lines = vec![Line::default(), Line::raw(format!(" {whom}"))];
    if let Link::Lost { since, why, .. } = &state.link {
        let lasted = format::span(state.now.since(*since));
        let first = format!(" ✖ no answer since {} ({lasted})", format::clock(*since));
        lines.push(Line::default());
        lines.push(Line::styled(first, theme.style(Meaning::Bad)));
        let width = usize::from(area.width).saturating_sub(4);
        lines.extend(format::wrap(why, width).into_iter().map(|l| Line::raw(format!("   {l}"))));
        lines.push(Line::styled("   Asking again until it answers.", theme.style(Meaning::Dim)));
    }
    put(buffer, area, &lines);
}

/// A fleet of nobody: what would make it one.
pub(super) fn nobody(overview: &Overview, width: u16, theme: Theme) -> Vec<Line<'static>> {
    let text = match overview.nodes.pending {
        0 => {
            "No target is named. `gaunt-node` runs on each machine with GPUs, and `gaunt serve` is \
             told of them by --targets 'gpu[001-064]', by --file-sd 'sd/*.json', or by groups in its \
             settings; SIGHUP reads files and settings again."
        }
        _ if overview.trouble.is_empty() => "Reading the first values of every target …",
        _ => "None of the targets has answered yet: 9 tells of each how that went.",
    };
    let mut lines = vec![Line::default()];
    let wrapped = format::wrap(text, usize::from(width).saturating_sub(4));
    let style = theme.style(Meaning::Plain);
    lines.extend(wrapped.into_iter().map(|line| Line::styled(format!("   {line}"), style)));
    lines
}

/// The lines of a screen that waits for its own answer, or will get none.
pub(super) fn waiting_for(
    what: &str,
    state: &State,
    width: u16,
    theme: Theme,
) -> Vec<Line<'static>> {
    let mut lines = vec![Line::default()];
    if let Some(refusal) = &state.data.refused {
        let text = format::wrap(&refusal.to_string(), usize::from(width).saturating_sub(4));
        let signs = std::iter::once("✖").chain(std::iter::repeat(" "));
        let text = signs.zip(text).map(|(sign, line)| format!(" {sign} {line}"));
        lines.extend(text.map(|line| Line::styled(line, theme.style(Meaning::Bad))));
        lines.push(Line::styled("   Esc goes back, 5 lists the nodes.", theme.style(Meaning::Dim)));
    } else {
        let waited = state.now.since(state.entered);
        let waited = if waited < state.late() {
            String::new()
        } else {
            format!(" for {}", format::span(waited))
        };
        let text = format!(" Reading {what} …{waited}");
        lines.push(Line::styled(text, theme.style(Meaning::Dim)));
        if let Some(failed) = state.failed_question() {
            let why = format::wrap(&failed.why, usize::from(width).saturating_sub(4));
            let why = why.into_iter().map(|line| format!("   {line}"));
            lines.extend(why.map(|line| Line::styled(line, theme.style(Meaning::Bad))));
        }
    }
    lines
}
