//! Text tables: fixed column widths, numbers aligned at the right.

use ratatui::{
    style::Style,
    text::{Line, Span},
};

use crate::display_text;

/// Layout of a table column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnLayout {
    /// Heading.
    pub(crate) title: &'static str,
    /// Width in terminal columns.
    pub(crate) width: usize,
    /// Whether its values are right-aligned.
    pub(crate) right: bool,
}

/// Returns the layout of a left-aligned column.
pub(crate) const fn text_column(title: &'static str, width: usize) -> ColumnLayout {
    ColumnLayout { title, width, right: false }
}

/// Returns the layout of a right-aligned column.
pub(crate) const fn number_column(title: &'static str, width: usize) -> ColumnLayout {
    ColumnLayout { title, width, right: true }
}

/// Separator between two columns.
const GAP: &str = "  ";

/// Returns how many of the first columns fit into `available`, and their total width.
pub(crate) fn fit_columns(columns: &[ColumnLayout], available: usize) -> (usize, usize) {
    let mut used = 0;
    for (at, column) in columns.iter().enumerate() {
        let next = used + column.width + if at > 0 { GAP.len() } else { 0 };
        if next > available {
            return (at, used);
        }
        used = next;
    }
    (columns.len(), used)
}

/// Drops columns before the sorted one until that fits, the nearest first, and what they show; the first is kept.
pub(crate) fn make_room<T>(
    columns: &mut Vec<ColumnLayout>,
    shown: &mut Vec<T>,
    sorted: Option<usize>,
    available: usize,
) {
    let mut sorted = sorted.unwrap_or(0);
    while sorted > 1 && fit_columns(&columns[..=sorted], available).0 <= sorted {
        sorted -= 1;
        columns.remove(sorted);
        shown.remove(sorted);
    }
}

/// Renders the line of headings.
pub(crate) fn render_heading(columns: &[ColumnLayout], style: Style) -> Line<'static> {
    render_row(columns, columns.iter().map(|column| (column.title.to_owned(), style)))
}

/// Renders one line of values.
pub(crate) fn render_row(
    columns: &[ColumnLayout],
    cells: impl IntoIterator<Item = (String, Style)>,
) -> Line<'static> {
    let mut spans = Vec::with_capacity(2 * columns.len() + 1);
    spans.push(Span::raw(" "));
    for (at, (column, (value, style))) in columns.iter().zip(cells).enumerate() {
        if at > 0 {
            spans.push(Span::raw(GAP));
        }
        let fit = if column.right { display_text::align_right } else { display_text::align_left };
        spans.push(Span::styled(fit(&value, column.width), style));
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_do_not_fit_are_omitted_whole() {
        let columns = [text_column("node", 6), number_column("lost", 4), text_column("job", 10)];
        assert_eq!(fit_columns(&columns, 80), (3, 24));
        assert_eq!(fit_columns(&columns, 23), (2, 12));
        assert_eq!(fit_columns(&columns, 5), (0, 0));
    }

    #[test]
    fn numbers_are_right_aligned() {
        let columns = [text_column("node", 6), number_column("lost", 4)];
        let line =
            render_row(&columns, [("gpu001".into(), Style::new()), ("8".into(), Style::new())]);
        assert_eq!(line.to_string(), " gpu001     8");
    }
}
