//! Search view: the matches, best first, above the input line.

use ratatui::{
    style::Style,
    text::{Line, Span},
};

use super::prompt_view;
use crate::{
    cursor::first_visible_row,
    display_text,
    prompt::Prompt,
    search_match::{SearchMatch, SearchState},
    theme::{self, StyleRole, Theme},
};

/// Columns of the kind of a match.
const KIND: usize = 8;

/// Maximum number of matches shown at once.
const SHOWN: usize = 14;

/// Renders the matches and the input line, at most `height` lines.
///
/// ```text
///  ✖ finding  port_down  gpu003 · mlx5_1/1     port mlx5_1/1 of gpu003 is down since …
///  ✖ node     gpu003
///    port     gpu003 mlx5_0/1
///    3 matches   Enter: open   ↑↓: choose   Esc: close
///  search: gpu003▏
/// ```
pub(super) fn render_search(
    prompt: &Prompt,
    search: &SearchState,
    width: usize,
    height: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let shown = SHOWN.min(height.saturating_sub(2)).min(search.matches.len());
    let from = first_visible_row(search.at, search.matches.len(), shown);
    let visible = search.matches.iter().enumerate().skip(from).take(shown);
    let mut lines = Vec::new();
    for (at, found) in visible {
        lines.push(render_match(found, at == search.at, width, theme));
        if at == search.at {
            lines.extend(render_whole_note(found, width, theme));
        }
    }
    let hint = match search.matches.len() {
        0 => "   no match   Esc: close".to_owned(),
        count => {
            let plural = if count == 1 { "" } else { "es" };
            format!("   {count} match{plural}   Enter: open   ↑↓: choose   Esc: close")
        }
    };
    let hint = display_text::truncate_text(&hint, width);
    lines.push(Line::styled(hint, theme.style_for(StyleRole::Dim)));
    lines.push(prompt_view::render_input(prompt, width, theme).0);
    lines
}

/// Renders the note of the chosen match below it, if it was cut in its line.
fn render_whole_note(found: &SearchMatch, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let used = 2 + KIND + 2 + 1 + display_text::text_width(&found.text) + 3;
    if used + display_text::text_width(&found.note) <= width {
        return Vec::new();
    }
    let style = theme.style_for(StyleRole::Dim);
    let lines = display_text::wrap_text(&found.note, width.saturating_sub(6)).into_iter();
    lines.map(|line| Line::styled(format!("     {line}"), style)).collect()
}

fn render_match(found: &SearchMatch, chosen: bool, width: usize, theme: Theme) -> Line<'static> {
    let (sign, severity) = found.severity.map_or((" ", Style::new()), |severity| {
        (theme::severity_sign(severity), theme.severity_style(severity))
    });
    let kind = format!(" {:<KIND$} ", found.kind.as_str());
    let available = width.saturating_sub(2 + kind.len() + 1);
    let text = display_text::truncate_text(&found.text, available);
    let left = available.saturating_sub(display_text::text_width(&text) + 3);
    let note = if left < 8 || found.note.is_empty() {
        String::new()
    } else {
        format!("   {}", display_text::truncate_text(&found.note, left))
    };
    let style = if chosen { theme::selected_style(severity) } else { severity };
    let dim = theme.style_for(StyleRole::Dim);
    Line::from(vec![
        Span::styled(format!(" {sign}"), severity),
        Span::styled(kind, dim),
        Span::styled(text, style),
        Span::styled(note, dim),
    ])
}
