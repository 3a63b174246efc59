//! Finding rows: the worst findings on the overview, all of them on the findings screen.

use gaunt_schema::{FindingKind, LifeState, SanitizedText, Severity, UnixMs};
use ratatui::{
    style::Style,
    text::{Line, Span},
};

use super::finding_alerts;
use crate::{
    cursor::first_visible_row,
    display_text,
    finding_list_rows::{FindingRow, group_title},
    theme::{self, StyleRole, Theme},
};
use gaunt_api::AlertList;

/// Columns of a finding's kind: the longest is `unexplained_slowdown`.
const KIND: usize = 20;
/// Columns of the numbers at the right: since, GPUs lost, confidence.
const NUMBERS: usize = 7 + 11 + 6;
/// Minimum width for a finding's sentence in its row. Below this width, or if the row is too short for it, it follows in the
/// next line.
const ONE_LINE: usize = 120;
/// Columns of the blamed entity if the sentence is in the same row.
const PLACE: usize = 26;
/// Columns of the blamed entity on a wide screen, with its alert status.
const WIDE_PLACE: usize = 38;
/// Minimum width of a wide screen.
const WIDE: usize = 150;

/// Renders findings as rows.
#[derive(Clone, Copy)]
pub(crate) struct FindingRenderer<'a> {
    /// Available columns.
    pub(crate) width: usize,
    /// The row of the cursor, if it is in this list.
    pub(crate) selected: Option<usize>,
    /// The instant from which ages count.
    pub(crate) at: UnixMs,
    /// Alertmanager status of the findings, if known.
    pub(crate) alerts: Option<&'a AlertList>,
    /// The theme.
    pub(crate) theme: Theme,
}

impl FindingRenderer<'_> {
    /// Renders the title with the headings of the numbers; `focused` if the cursor is in this panel. The absence of
    /// findings is good only if something is `read`.
    pub(crate) fn render_heading(self, open: u64, focused: bool, read: bool) -> Line<'static> {
        let title = if focused { "▸FINDINGS  " } else { " FINDINGS  " };
        let (count, meaning) = match open {
            0 if read => ("none open".to_owned(), StyleRole::Good),
            0 => ("none open; no live node".to_owned(), StyleRole::Dim),
            open => (format!("{} open", display_text::format_count(open)), StyleRole::Plain),
        };
        let left = display_text::align_left(&count, self.width.saturating_sub(11 + NUMBERS));
        let mut spans = vec![
            Span::styled(title, self.theme.style_for(StyleRole::Title)),
            Span::styled(left, self.theme.style_for(meaning)),
        ];
        if open > 0 {
            let names = align_numbers("since", "GPUs lost", "conf");
            spans.push(Span::styled(names, self.theme.style_for(StyleRole::Dim)));
        }
        Line::from(spans)
    }

    /// Renders as many of the worst rows as fit into `height` lines, with their sentences if there is space, each line
    /// with the index of its row. Informational findings have no sentence; at the end, the findings without a row are
    /// counted.
    pub(crate) fn render_worst(
        self,
        rows: &[FindingRow<'_>],
        more: usize,
        height: usize,
    ) -> Vec<(Line<'static>, Option<usize>)> {
        let height = height.saturating_sub(usize::from(more > 0));
        let shown = rows.len().min(height);
        let at = self.selected.unwrap_or(0);
        let from = first_visible_row(at, rows.len(), shown);
        let mut sentences = height - shown;
        let mut lines = Vec::with_capacity(height + 1);
        for (at, row) in rows.iter().enumerate().skip(from).take(shown) {
            let below = sentences > 0 && self.has_own_line(*row);
            lines.push((self.render_row(at, *row, below), Some(at)));
            if below {
                sentences -= 1;
                lines.extend(self.render_sentence(*row, 1).pop().map(|line| (line, Some(at))));
            }
        }
        if more > 0 {
            let text = format!(
                "   and {} more info findings; press 2 to list",
                display_text::format_count(more as u64)
            );
            let text = display_text::truncate_text(&text, self.width);
            lines.push((Line::styled(text, self.theme.style_for(StyleRole::Dim)), None));
        }
        lines
    }

    /// Returns how many lines these rows need.
    pub(crate) fn lines_needed(self, rows: &[FindingRow<'_>], more: usize) -> usize {
        let sentences = rows.iter().filter(|row| self.has_own_line(**row)).count();
        rows.len() + sentences + usize::from(more > 0)
    }

    /// Returns whether the sentence of a row on the overview has a line of its own.
    fn has_own_line(self, row: FindingRow<'_>) -> bool {
        row.severity() > Severity::Info && !self.has_inline_sentence(row)
    }

    /// Returns whether the sentence fits into its row.
    pub(crate) fn has_inline_sentence(self, row: FindingRow<'_>) -> bool {
        let narrowest = match row {
            FindingRow::Group { .. } => WIDE,
            FindingRow::Single(_) | FindingRow::Member(_) => ONE_LINE,
        };
        let sentence = sentence_text(row);
        sentence.is_empty()
            || self.width >= narrowest && display_text::text_width(&sentence) <= self.inline_width()
    }

    /// Returns the columns of a sentence in its row.
    fn inline_width(self) -> usize {
        self.middle_width().saturating_sub(self.entity_width() + 1)
    }

    /// Returns the columns between the kind and the numbers.
    fn middle_width(self) -> usize {
        self.width.saturating_sub(3 + KIND + 1 + NUMBERS)
    }

    /// Returns the columns of the blamed entity before a sentence.
    const fn entity_width(self) -> usize {
        if self.width >= WIDE { WIDE_PLACE } else { PLACE }
    }

    /// Renders the row of a finding or of a group; `below` if its sentence follows in a line of its own.
    pub(crate) fn render_row(self, at: usize, row: FindingRow<'_>, below: bool) -> Line<'static> {
        let (finding, indent) = match row {
            FindingRow::Single(finding) => (finding, " "),
            FindingRow::Member(finding) => (finding, "│"),
            FindingRow::Group { group, unfolded, worst } => {
                let sentence = worst.map(|_| sentence_text(row));
                let all = group.acknowledged as usize == group.members.len();
                return self.render_cells(&FindingCells {
                    chosen: self.selected == Some(at),
                    severity: group.severity,
                    acknowledged: all,
                    mark: if unfolded { "▾" } else { "▸" },
                    kind: group.kind,
                    entity: group_title(group).to_string(),
                    // The entity text of a group is longer than that of one finding: it also takes the space of the
                    // sentence.
                    sentence: sentence.filter(|_| self.width >= WIDE && !below),
                    since: group.since,
                    cost: group.lost_gpus,
                    confidence: group.confidence,
                });
            }
        };
        let mut entity = finding.entity.to_string();
        if finding.life.state == LifeState::Flapping {
            entity.push_str(" (flapping)");
        }
        if let Some(word) = self.alerts.and_then(|list| finding_alerts::alert_label(list, finding))
        {
            entity.extend([" (", word, ")"]);
        }
        self.render_cells(&FindingCells {
            chosen: self.selected == Some(at),
            severity: finding.severity,
            acknowledged: finding.acknowledged.is_some(),
            mark: indent,
            kind: finding.kind,
            entity,
            sentence: Some(sentence_text(row)).filter(|_| self.width >= ONE_LINE && !below),
            since: finding.since,
            cost: finding.lost_gpus,
            confidence: finding.confidence,
        })
    }

    fn render_cells(self, cells: &FindingCells) -> Line<'static> {
        let severity = self.theme.severity_style(cells.severity);
        let chosen = |style: Style| if cells.chosen { theme::selected_style(style) } else { style };
        let middle = match &cells.sentence {
            Some(sentence) => {
                let sentence = display_text::truncate_text(sentence, self.inline_width());
                let entity = display_text::align_left(&cells.entity, self.entity_width());
                format!("{entity} {sentence}")
            }
            None => cells.entity.clone(),
        };
        let sign = if cells.acknowledged { "✔" } else { theme::severity_sign(cells.severity) };
        let lasted = display_text::format_duration(self.at.duration_since(cells.since));
        let cost = display_text::format_gpu_count(cells.cost);
        let sure = format!("{} %", display_text::format_whole_percent(Some(cells.confidence)));
        Line::from(vec![
            Span::styled(format!(" {sign}{}", cells.mark), severity),
            Span::styled(display_text::align_left(cells.kind.as_str(), KIND), chosen(severity)),
            Span::styled(
                format!(" {}", display_text::align_left(&middle, self.middle_width())),
                chosen(Style::new()),
            ),
            Span::styled(align_numbers(&lasted, &cost, &sure), chosen(Style::new())),
        ])
    }

    /// Renders the problem in one sentence below its row, in at most this many lines.
    pub(crate) fn render_sentence(self, row: FindingRow<'_>, most: usize) -> Vec<Line<'static>> {
        let (text, columns) = (sentence_text(row), self.width.saturating_sub(4));
        let mut lines = display_text::wrap_text(&text, columns);
        if lines.len() > most {
            let rest = lines.split_off(most.saturating_sub(1)).join(" ");
            lines.push(display_text::truncate_text(&rest, columns));
        }
        let style = self.theme.style_for(StyleRole::Dim);
        lines.into_iter().map(|line| Line::styled(format!("   {line}"), style)).collect()
    }
}

/// Returns the sentence of a row: of its finding, or of the worst one of a group.
fn sentence_text(row: FindingRow<'_>) -> SanitizedText {
    match row {
        FindingRow::Single(finding) | FindingRow::Member(finding) => {
            SanitizedText::new(&finding.summary)
        }
        FindingRow::Group { worst: None, .. } => SanitizedText::default(),
        FindingRow::Group { worst: Some(worst), .. } => {
            SanitizedText::new(&format!("e.g. {}", worst.summary))
        }
    }
}

/// Cells of a row.
struct FindingCells {
    chosen: bool,
    severity: Severity,
    acknowledged: bool,
    mark: &'static str,
    kind: FindingKind,
    entity: String,
    sentence: Option<SanitizedText>,
    since: UnixMs,
    cost: f64,
    confidence: f64,
}

fn align_numbers(since: &str, lost: &str, sure: &str) -> String {
    format!("{since:>7}{lost:>11}{sure:>6}")
}
