//! Finding rows with their sentences: the worst findings on the overview, all of them on the findings screen.

use gaunt_schema::{FindingKind, LifeState, SanitizedText, Severity, UnixMs};
use ratatui::{
    style::Style,
    text::{Line, Span},
};

use super::finding_alerts;
use crate::{
    cursor::visible_rows,
    display_text,
    finding_list_rows::{FindingRow, group_title},
    theme::{self, StyleRole, Theme},
};
use gaunt_api::{AlertList, Finding, FindingContext, LostGpuTime};

/// Columns of a finding's kind: the longest is `unexplained_slowdown`.
const KIND: usize = 20;
/// Columns of the numbers at the right: since, GPUs lost, confidence.
const NUMBERS: usize = 7 + 11 + 6;
/// Columns of the cost per hour, if a price is known.
const COST: usize = 10;
/// Minimum width for the cost.
const COST_FROM: usize = 76;
/// Minimum width for the whole owner of a finding beside its entity; below it, only the user is shown.
const OWNER_FROM: usize = 110;
/// Columns before a sentence.
const SENTENCE_INDENT: usize = 3;

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
    /// Owners and nearby changes of the findings.
    pub(crate) contexts: &'a [FindingContext],
    /// The price and its currency.
    pub(crate) lost: Option<&'a LostGpuTime>,
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
        let left =
            display_text::align_left(&count, self.width.saturating_sub(11 + self.numbers_width()));
        let mut spans = vec![
            Span::styled(title, self.theme.style_for(StyleRole::Title)),
            Span::styled(left, self.theme.style_for(meaning)),
        ];
        if open > 0 {
            let names = self.align_numbers("since", "GPUs lost", "cost", "conf");
            spans.push(Span::styled(names, self.theme.style_for(StyleRole::Dim)));
        }
        Line::from(spans)
    }

    /// Renders as many of the worst rows as fit into `height` lines, each with its whole sentence and with the index of
    /// its row. If there are too few lines, informational findings lose their sentences first. At the end, the findings
    /// without a row are counted.
    pub(crate) fn render_worst(
        self,
        rows: &[FindingRow<'_>],
        sentences: &[Vec<String>],
        more: usize,
        height: usize,
    ) -> Vec<(Line<'static>, Option<usize>)> {
        let available = height.saturating_sub(usize::from(more > 0));
        let heights = overview_heights(rows, sentences, available);
        let at = self.selected.unwrap_or(0);
        let rows_in = |lines| visible_rows(rows.len(), at, lines, |row| heights[row]);
        let mut visible = rows_in(height);
        let (mut above, mut below) = (0, more);
        if more > 0 || visible.len() < rows.len() {
            visible = rows_in(height.saturating_sub(1));
            let count = |rows: &[FindingRow<'_>]| -> usize {
                rows.iter().map(|row| row.finding_count()).sum()
            };
            above = count(&rows[..visible.start]);
            below += count(&rows[visible.end..]);
        }
        let mut lines = Vec::with_capacity(height);
        for at in visible {
            lines.push((self.render_row(at, rows[at]), Some(at)));
            if heights[at] > 1 {
                let sentence = self.style_sentence(&sentences[at]).into_iter();
                lines.extend(sentence.map(|line| (line, Some(at))));
            }
        }
        let height = height.saturating_sub(usize::from(above + below > 0));
        if lines.len() > height {
            lines.truncate(height);
            lines.last_mut().into_iter().for_each(|(line, _)| line.push_span("…"));
        }
        if above + below > 0 {
            let text = format!("   {}; press 2 to list", count_hidden(above, below));
            let text = display_text::truncate_text(&text, self.width);
            lines.push((Line::styled(text, self.theme.style_for(StyleRole::Dim)), None));
        }
        lines
    }

    /// Returns how many lines these rows need with all sentences.
    pub(crate) fn lines_needed(sentences: &[Vec<String>], more: usize) -> usize {
        let lines: usize = sentences.iter().map(|sentence| 1 + sentence.len()).sum();
        lines + usize::from(more > 0)
    }

    /// Wraps the sentence of each row.
    pub(crate) fn wrap_sentences(self, rows: &[FindingRow<'_>]) -> Vec<Vec<String>> {
        rows.iter().map(|row| self.wrap_sentence(*row)).collect()
    }

    /// Wraps the sentence of a row, its next step, and below them the change that is nearest to its start.
    pub(crate) fn wrap_with_next_step(self, row: FindingRow<'_>) -> Vec<String> {
        let (sentence, change) = self.sentence_and_change(row);
        let next = match row {
            FindingRow::Single(finding) | FindingRow::Member(finding) => finding.next.trim(),
            FindingRow::Group { worst, .. } => worst.map_or("", |worst| worst.next.trim()),
        };
        let next = if next.is_empty() { String::new() } else { format!("next: {next}") };
        let change = change.map_or_else(String::new, |change| format!("changed: {change}"));
        [sentence, next, change].iter().flat_map(|text| self.wrap_indented(text)).collect()
    }

    /// Returns the lines of a row with its whole sentence.
    pub(crate) fn entry_height(self, row: FindingRow<'_>) -> usize {
        1 + self.wrap_sentence(row).len()
    }

    const fn shows_cost(self) -> bool {
        self.width >= COST_FROM
            && match self.lost {
                Some(lost) => lost.price_per_gpu_hour.is_some(),
                None => false,
            }
    }

    const fn numbers_width(self) -> usize {
        if self.shows_cost() { NUMBERS + COST } else { NUMBERS }
    }

    /// Returns the columns between the kind and the numbers.
    fn middle_width(self) -> usize {
        self.width.saturating_sub(3 + KIND + 1 + self.numbers_width())
    }

    /// Renders the row of a finding or of a group, without its sentence.
    pub(crate) fn render_row(self, at: usize, row: FindingRow<'_>) -> Line<'static> {
        let (finding, indent) = match row {
            FindingRow::Single(finding) => (finding, " "),
            FindingRow::Member(finding) => (finding, "│"),
            FindingRow::Group { group, unfolded, .. } => {
                let all = group.acknowledged as usize == group.members.len();
                return self.render_cells(&FindingCells {
                    chosen: self.selected == Some(at),
                    severity: group.severity,
                    acknowledged: all,
                    mark: if unfolded { "▾" } else { "▸" },
                    kind: group.kind,
                    entity: group_title(group, false).to_string(),
                    owner: String::new(),
                    since: group.since,
                    lost_gpus: group.lost_gpus,
                    confidence: group.confidence,
                });
            }
        };
        let (mut entity, mut owner) = (finding.entity.to_string(), self.owner_text(finding));
        if owner.strip_prefix(&*entity).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        {
            // The blamed job is its own owner.
            entity = std::mem::take(&mut owner);
        }
        // On a narrow screen the sentence has them.
        for word in self.status_words(finding).filter(|_| self.width >= OWNER_FROM) {
            entity.extend([" (", word, ")"]);
        }
        self.render_cells(&FindingCells {
            chosen: self.selected == Some(at),
            severity: finding.severity,
            acknowledged: finding.acknowledged.is_some(),
            mark: indent,
            kind: finding.kind,
            entity,
            owner,
            since: finding.since,
            lost_gpus: finding.lost_gpus,
            confidence: finding.confidence,
        })
    }

    /// Returns whether it flaps, and whether its alert is silenced or inhibited.
    fn status_words(self, finding: &Finding) -> impl Iterator<Item = &'static str> {
        let flapping = (finding.life.state == LifeState::Flapping).then_some("flapping");
        let alert = self.alerts.and_then(|list| finding_alerts::alert_label(list, finding));
        [flapping, alert].into_iter().flatten()
    }

    fn context_of(&self, finding: &Finding) -> Option<&FindingContext> {
        self.contexts.iter().find(|context| context.id == finding.id)
    }

    /// Returns the jobs that a finding affects with their owners; on a narrow screen the user alone.
    fn owner_text(self, finding: &Finding) -> String {
        let Some(context) = self.context_of(finding) else { return String::new() };
        if self.width >= OWNER_FROM {
            return context.describe_jobs().unwrap_or_default();
        }
        if self.width < COST_FROM {
            // The sentence has it.
            return String::new();
        }
        let first = context.jobs.first();
        let user = first.and_then(|job| job.user.as_ref().or(job.account.as_ref()));
        user.map_or_else(String::new, ToString::to_string)
    }

    fn render_cells(self, cells: &FindingCells) -> Line<'static> {
        let severity = self.theme.severity_style(cells.severity);
        let chosen = |style: Style| if cells.chosen { theme::selected_style(style) } else { style };
        let sign = if cells.acknowledged { "✔" } else { theme::severity_sign(cells.severity) };
        let lasted = display_text::format_duration(self.at.duration_since(cells.since));
        let lost = display_text::format_gpu_count(cells.lost_gpus);
        let sure = format!("{} %", display_text::format_whole_percent(Some(cells.confidence)));
        let price = self.lost.and_then(|lost| Some((lost.price_per_gpu_hour?, &lost.currency)));
        let cost = price.map_or_else(String::new, |(price, currency)| {
            display_text::format_cost(price * cells.lost_gpus, currency)
        });
        let width = self.middle_width();
        let entity = display_text::truncate_text(&cells.entity, width);
        let left = width - display_text::text_width(&entity);
        let owner = if left > 5 && !cells.owner.is_empty() {
            format!("  {}", display_text::truncate_text(&cells.owner, left - 2))
        } else {
            String::new()
        };
        let owner = display_text::align_left(&owner, left);
        Line::from(vec![
            Span::styled(format!(" {sign}{}", cells.mark), severity),
            Span::styled(display_text::align_left(cells.kind.as_str(), KIND), chosen(severity)),
            Span::styled(format!(" {entity}"), chosen(Style::new())),
            Span::styled(owner, chosen(self.theme.style_for(StyleRole::Dim))),
            Span::styled(self.align_numbers(&lasted, &lost, &cost, &sure), chosen(Style::new())),
        ])
    }

    /// Renders the problem in one sentence below its row, whole, in as many lines as it needs.
    pub(crate) fn render_sentence(self, row: FindingRow<'_>) -> Vec<Line<'static>> {
        self.style_sentence(&self.wrap_sentence(row))
    }

    fn style_sentence(self, lines: &[String]) -> Vec<Line<'static>> {
        let style = self.theme.style_for(StyleRole::Dim);
        let indent = " ".repeat(SENTENCE_INDENT);
        let lines = lines.iter();
        lines.map(|line| Line::styled(format!("{indent}{line}"), style)).collect()
    }

    /// Wraps the sentence of a row, with the change that is nearest to its start.
    fn wrap_sentence(self, row: FindingRow<'_>) -> Vec<String> {
        let (mut text, change) = self.sentence_and_change(row);
        if let Some(change) = change {
            text.extend([" · ", &change]);
        }
        self.wrap_indented(&text)
    }

    /// Returns the sentence of a row, and the change that is nearest to its start. On a narrow screen the sentence has the
    /// owner and the cost, for which the row has no columns.
    fn sentence_and_change(self, row: FindingRow<'_>) -> (String, Option<String>) {
        let finding = match row {
            FindingRow::Single(finding) | FindingRow::Member(finding) => finding,
            FindingRow::Group { worst: None, .. } => return (String::new(), None),
            FindingRow::Group { worst: Some(worst), .. } => {
                return (format!("e.g. {}", worst.summary), None);
            }
        };
        let context = self.context_of(finding);
        let changes = context.map(|context| context.describe_changes(finding.since));
        let change = changes.and_then(|changes| changes.into_iter().next());
        let is_narrow = self.width < COST_FROM;
        let owner = context.filter(|_| is_narrow).and_then(FindingContext::describe_jobs);
        let price = self.lost.filter(|_| is_narrow).and_then(|lost| {
            let price = lost.price_per_gpu_hour?;
            Some(display_text::format_cost(price * finding.lost_gpus, &lost.currency))
        });
        // Other parts follow the sentence.
        let mut text = finding.summary.trim_end().trim_end_matches('.').to_owned();
        for part in [owner, price].into_iter().flatten() {
            text.extend([" · ", &part]);
        }
        for word in self.status_words(finding).filter(|_| self.width < OWNER_FROM) {
            text.extend([" · ", word]);
        }
        (text, change)
    }

    fn wrap_indented(self, text: &str) -> Vec<String> {
        let text = SanitizedText::new(text);
        if text.trim().is_empty() {
            return Vec::new();
        }
        display_text::wrap_text(&text, self.width.saturating_sub(SENTENCE_INDENT + 1))
    }

    fn align_numbers(self, since: &str, lost: &str, cost: &str, sure: &str) -> String {
        let cost = if self.shows_cost() { format!("{cost:>COST$}") } else { String::new() };
        format!("{since:>7}{lost:>11}{cost}{sure:>6}")
    }
}

/// Counts the findings without a row: those before the shown ones, which are worse, and those after them.
fn count_hidden(above: usize, below: usize) -> String {
    let count = |hidden: usize| display_text::format_count(hidden as u64);
    let noun = |hidden: usize| if hidden == 1 { "finding" } else { "findings" };
    match (above, below) {
        (0, _) => format!("and {} more {}", count(below), noun(below)),
        (_, 0) => format!("{} worse {} above", count(above), noun(above)),
        _ => format!("{} worse {} above, {} more below", count(above), noun(above), count(below)),
    }
}

/// Returns the lines of each row on the overview.
fn overview_heights(
    rows: &[FindingRow<'_>],
    sentences: &[Vec<String>],
    available: usize,
) -> Vec<usize> {
    let mut heights: Vec<usize> = sentences.iter().map(|sentence| 1 + sentence.len()).collect();
    if heights.iter().sum::<usize>() > available {
        for (lines, row) in heights.iter_mut().zip(rows) {
            *lines = if row.severity() > Severity::Info { *lines } else { 1 };
        }
    }
    heights
}

/// Cells of a row.
struct FindingCells {
    chosen: bool,
    severity: Severity,
    acknowledged: bool,
    mark: &'static str,
    kind: FindingKind,
    entity: String,
    owner: String,
    since: UnixMs,
    lost_gpus: f64,
    confidence: f64,
}
