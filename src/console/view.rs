//! What the screens share to draw themselves: functions of answers, the theme and the terminal area.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use super::{
    console_state::ScreenLayout,
    display_text,
    theme::{StyleRole, Theme},
};

pub(crate) mod axis_graph;
pub(crate) mod cable_rows;
pub(crate) mod device_graphs;
pub(crate) mod event_rows;
pub(crate) mod evidence_graph;
pub(crate) mod finding_alerts;
pub(crate) mod finding_details;
pub(crate) mod finding_renderer;
pub(crate) mod fleet_summary;
mod heat_detail;
mod heat_map;
mod heat_values;
pub(crate) mod job_rows;
pub(crate) mod list_columns;
pub(crate) mod node_details;
pub(crate) mod node_tables;
pub(crate) mod overview_panes;
pub(crate) mod placeholders;
pub(crate) mod time_bar;
pub(crate) mod worst_nodes;

/// Minimum width; a narrower screen would cut important content.
pub(crate) const MIN_WIDTH: u16 = 60;
/// Minimum height; a lower screen would cut important content.
pub(crate) const MIN_HEIGHT: u16 = 12;

/// Draws lines from the top of an area; lines that do not fit are left out.
pub(crate) fn draw_lines(buffer: &mut Buffer, area: Rect, lines: &[Line<'_>]) {
    for (y, line) in (area.top()..area.bottom()).zip(lines) {
        buffer.set_line(area.x, y, line, area.width);
    }
}

/// Draws a page without a cursor at its scroll offset.
pub(crate) fn draw_page(
    buffer: &mut Buffer,
    area: Rect,
    lines: &[Line<'_>],
    scroll: usize,
    theme: Theme,
) -> ScreenLayout {
    let fits = lines.len() <= usize::from(area.height);
    // The last line of a page that does not fit shows how many lines are hidden.
    let height = usize::from(area.height.saturating_sub(u16::from(!fits)));
    let hidden = lines.len().saturating_sub(height);
    let from = scroll.min(hidden);
    draw_lines(buffer, Rect { height: height as u16, ..area }, &lines[from..]);
    let below = hidden - from;
    if !fits && area.height > 0 {
        let more = match (from, below) {
            (0, _) => format!(" {below} more below "),
            (_, 0) => format!(" {from} above "),
            _ => format!(" {from} above, {below} more below "),
        };
        let width = more.len().min(usize::from(area.width)) as u16;
        let (x, y) = (area.right() - width, area.bottom() - 1);
        buffer.set_line(x, y, &Line::styled(more, theme.style_for(StyleRole::Dim)), width);
    }
    ScreenLayout { page: height, hidden, ..ScreenLayout::default() }
}

/// Renders a line that begins with a section title in its own column.
pub(crate) fn render_titled_line(
    title: &str,
    rest: Vec<Span<'static>>,
    theme: Theme,
) -> Line<'static> {
    let mut spans =
        vec![Span::styled(format!(" {title:<LABEL$}"), theme.style_for(StyleRole::Title))];
    spans.extend(rest);
    Line::from(spans)
}

/// Renders a titled text in as many lines as needed.
pub(crate) fn render_paragraph(
    title: &str,
    words: &str,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let wrapped = display_text::wrap_text(words, width.saturating_sub(LABEL + 2));
    let titles = std::iter::once(title).chain(std::iter::repeat(""));
    let lines = titles.zip(wrapped);
    lines.map(|(title, line)| render_titled_line(title, vec![Span::raw(line)], theme)).collect()
}

/// Columns of the section titles, gap included, without the left margin.
pub(crate) const LABEL: usize = 10;

/// Columns before the text after a title.
pub(crate) const INDENT: usize = LABEL + 1;
