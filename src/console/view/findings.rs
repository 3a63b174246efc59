//! Findings as rows: on the overview the worst of them, on their own screen all.

use gaunt_schema::{FindingKind, LifeState, Safe, Severity, UnixMs};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::{alerts, finding, hints, put};
use crate::{
    answer::{AlertList, Finding, FindingGroup, Subject},
    console::{
        cursor::window,
        format,
        rows::{FindingRow, group_title},
        state::{Room, Spot, State, What},
        theme::{self, Meaning, Theme},
    },
};

/// Columns of a finding's kind: the longest is `host_blocks_network`.
const KIND: usize = 19;
/// Columns of the numbers at the right: since, GPUs lost, sure.
const NUMBERS: usize = 7 + 11 + 6;
/// From this width on a finding's sentence stands in its row, else below it.
const ONE_LINE: usize = 120;
/// Columns of the blamed place where the sentence stands beside it.
const PLACE: usize = 26;
/// The same on a wide screen, with what is done about it.
const WIDE_PLACE: usize = 38;
/// From this many lines on the finding under the cursor is shown below the list.
const HIGH: usize = 36;
/// From this width on a screen is wide.
const WIDE: usize = 150;

/// How findings are shown.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    /// Columns there are.
    pub(super) width: usize,
    /// The row of the cursor, if it is here.
    pub(super) selected: Option<usize>,
    /// The instant from which ages count.
    pub(super) at: UnixMs,
    /// What Alertmanager does about them, if that is known.
    pub(super) alerts: Option<&'a AlertList>,
    /// The theme.
    pub(super) theme: Theme,
}

/// Every open finding; many of one kind in one row, which unfolds.
///
/// ```text
///  FINDINGS  3 open                                       since  GPUs lost  sure
///  ✖ port_down           gpu003 · mlx5_1/1                 6m10          8  97 %
///    port mlx5_1/1 of gpu003 is down: …
/// ```
pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, theme: Theme) -> Room {
    let Some(list) = state.data.findings.as_deref() else {
        put(buffer, area, &hints::waiting_for("the findings", state, area.width, theme));
        return Room::default();
    };
    let shown = state.finding_rows();
    let at = state.at.findings.index(shown.len(), |at| shown[at].key());
    let width = usize::from(area.width);
    let rows = Rows { width, selected: Some(at), at: list.at, alerts: state.alerts(), theme };
    let each = if width >= ONE_LINE { 1 } else { 2 };
    let read = state.data.overview.as_deref().is_some_and(|overview| overview.nodes.live > 0);
    let open = u64::from(list.total).max(list.findings.len() as u64);
    let mut lines = vec![rows.heading(open, false, read)];
    let filter = &state.list(Subject::Findings).rows;
    if !filter.is_empty() {
        let text = format!("   {} of {} match {filter}", list.matched, list.total);
        lines.push(Line::styled(text, theme.style(Meaning::Dim)));
    }
    lines.extend(state.alerts().and_then(|list| alerts::trouble(list, width, theme)));
    let (height, needed) = (usize::from(area.height), lines.len() + each * shown.len());
    // On a high screen the finding under the cursor stands below the list, which keeps at least its third.
    let below = (height >= HIGH && !shown.is_empty()).then(|| (needed + 1).min(height / 3));
    let page = (below.unwrap_or(height).saturating_sub(lines.len() + usize::from(below.is_some()))
        / each)
        .max(1);
    let from = window(at, shown.len(), page);
    let mut spots = Vec::new();
    for (at, row) in shown.iter().enumerate().skip(from).take(page) {
        let y = area.y + lines.len() as u16;
        let area = Rect { y, height: each as u16, ..area };
        spots.push(Spot { area, what: What::Row(at) });
        lines.push(rows.line(at, *row));
        if each == 2 {
            lines.push(rows.below(*row));
        }
    }
    put(buffer, area, &lines);
    if let (Some(below), Some(row)) = (below, shown.get(at)) {
        let gone = (below.max(lines.len() + 1)) as u16;
        let area = Rect { y: area.y + gone, height: area.height.saturating_sub(gone), ..area };
        match row {
            FindingRow::Single(finding) | FindingRow::Member(finding) => {
                finding::below(buffer, area, finding, state, theme);
            }
            FindingRow::Group { group, unfolded, worst } => {
                let lines = about_group(group, *worst, *unfolded, width, theme);
                put(buffer, area, &lines);
            }
        }
    }
    Room { page, spots, beside: below.is_some(), ..Room::default() }
}

/// What the findings of a group have in common, below the list.
fn about_group(
    group: &FindingGroup,
    worst: Option<&Finding>,
    unfolded: bool,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let severity = theme.severity(group.severity);
    let dim = theme.style(Meaning::Dim);
    let title = format!(" {} {}", group.kind, group_title(group));
    let mut lines = vec![Line::styled(format::cut(&title, width), severity), Line::default()];
    let mut say = |text: &str| {
        let text = format::wrap(&Safe::new(text), width.saturating_sub(4));
        lines.extend(text.into_iter().map(|line| Line::raw(format!("   {line}"))));
    };
    say(&format!(
        "the oldest since {}; {} of {} acknowledged; confidence at least {} %",
        format::clock(group.since),
        group.acknowledged,
        group.members.len(),
        format::whole_percent(Some(group.confidence)),
    ));
    if let Some(worst) = worst {
        say(&format!("the worst: {}", worst.summary));
        say(&format!("next: {}", worst.next));
    }
    let verb = if unfolded { "folds them" } else { "unfolds them" };
    lines.push(Line::default());
    lines.push(Line::styled(format!(" Enter {verb}, a acknowledges all of them"), dim));
    lines
}

impl Rows<'_> {
    /// The title with the headings of the numbers; `focused` if the cursor is in this panel. That none is open is good
    /// news only where something is `read`.
    pub(super) fn heading(self, open: u64, focused: bool, read: bool) -> Line<'static> {
        let title = if focused { "▸FINDINGS  " } else { " FINDINGS  " };
        let (count, meaning) = match open {
            0 if read => ("none open".to_owned(), Meaning::Good),
            0 => ("none open, and no node is read".to_owned(), Meaning::Dim),
            open => (format!("{} open", format::count(open)), Meaning::Plain),
        };
        let left = format::left(&count, self.width.saturating_sub(11 + NUMBERS));
        let mut spans = vec![
            Span::styled(title, self.theme.style(Meaning::Title)),
            Span::styled(left, self.theme.style(meaning)),
        ];
        if open > 0 {
            let names = numbers("since", "GPUs lost", "sure");
            spans.push(Span::styled(names, self.theme.style(Meaning::Dim)));
        }
        Line::from(spans)
    }

    /// As many of the worst rows as fit into `height` lines, with their sentences where there is room, each line with
    /// the place of its row. What is only worth knowing has no sentence, and at the end those that have no row are
    /// counted.
    pub(super) fn worst(
        self,
        rows: &[FindingRow<'_>],
        more: usize,
        height: usize,
    ) -> Vec<(Line<'static>, Option<usize>)> {
        let height = height.saturating_sub(usize::from(more > 0));
        let shown = rows.len().min(height);
        let at = self.selected.unwrap_or(0);
        let from = window(at, rows.len(), shown);
        let mut sentences = if self.in_row() { 0 } else { height - shown };
        let mut lines = Vec::with_capacity(height + 1);
        for (at, row) in rows.iter().enumerate().skip(from).take(shown) {
            lines.push((self.line(at, *row), Some(at)));
            if sentences > 0 && row.severity() > Severity::Info {
                sentences -= 1;
                lines.push((self.below(*row), Some(at)));
            }
        }
        if more > 0 {
            let text =
                format!("   and {} more to know of: 2 lists them", format::count(more as u64));
            let text = format::cut(&text, self.width);
            lines.push((Line::styled(text, self.theme.style(Meaning::Dim)), None));
        }
        lines
    }

    /// How many lines these rows would take.
    pub(super) fn wanted(self, rows: &[FindingRow<'_>], more: usize) -> usize {
        let urgent = rows.iter().filter(|row| row.severity() > Severity::Info).count();
        let sentences = if self.in_row() { 0 } else { urgent };
        rows.len() + sentences + usize::from(more > 0)
    }

    const fn in_row(self) -> bool {
        self.width >= ONE_LINE
    }

    /// A row of a finding, or of a group of them.
    fn line(self, at: usize, row: FindingRow<'_>) -> Line<'static> {
        let (finding, indent) = match row {
            FindingRow::Single(finding) => (finding, " "),
            FindingRow::Member(finding) => (finding, "│"),
            FindingRow::Group { group, unfolded, worst } => {
                let summary = worst.map(|worst| Safe::new(&format!("e.g. {}", worst.summary)));
                let all = group.acknowledged as usize == group.members.len();
                return self.cells(&Cells {
                    chosen: self.selected == Some(at),
                    severity: group.severity,
                    acknowledged: all,
                    mark: if unfolded { "▾" } else { "▸" },
                    kind: group.kind,
                    place: group_title(group).to_string(),
                    // Its place says more than that of one finding, and takes the room of both.
                    sentence: summary.filter(|_| self.width >= WIDE),
                    since: group.since,
                    cost: group.lost_gpus,
                    confidence: group.confidence,
                });
            }
        };
        let mut place = finding.entity.to_string();
        if finding.life.state == LifeState::Flapping {
            place.push_str(" (flapping)");
        }
        if let Some(word) = self.alerts.and_then(|list| alerts::word(list, finding)) {
            place.extend([" (", word, ")"]);
        }
        self.cells(&Cells {
            chosen: self.selected == Some(at),
            severity: finding.severity,
            acknowledged: finding.acknowledged.is_some(),
            mark: indent,
            kind: finding.kind,
            place,
            sentence: Some(Safe::new(&finding.summary)),
            since: finding.since,
            cost: finding.lost_gpus,
            confidence: finding.confidence,
        })
    }

    fn cells(self, cells: &Cells) -> Line<'static> {
        let severity = self.theme.severity(cells.severity);
        let chosen = |style: Style| if cells.chosen { theme::selected(style) } else { style };
        let room = self.width.saturating_sub(3 + KIND + 1 + NUMBERS);
        let middle = match &cells.sentence {
            Some(sentence) if self.in_row() => {
                let columns = if self.width >= WIDE { WIDE_PLACE } else { PLACE };
                let sentence = format::cut(sentence, room.saturating_sub(columns + 1));
                format!("{} {sentence}", format::left(&cells.place, columns))
            }
            _ => cells.place.clone(),
        };
        let sign = if cells.acknowledged { "✔" } else { theme::severity_sign(cells.severity) };
        let lasted = format::span(self.at.since(cells.since));
        let cost = format::gpus(cells.cost);
        let sure = format!("{} %", format::whole_percent(Some(cells.confidence)));
        Line::from(vec![
            Span::styled(format!(" {sign}{}", cells.mark), severity),
            Span::styled(format::left(cells.kind.as_str(), KIND), chosen(severity)),
            Span::styled(format!(" {}", format::left(&middle, room)), chosen(Style::new())),
            Span::styled(numbers(&lasted, &cost, &sure), chosen(Style::new())),
        ])
    }

    /// The line below a row: what is wrong, in a sentence.
    fn below(self, row: FindingRow<'_>) -> Line<'static> {
        let text = match row {
            FindingRow::Single(finding) | FindingRow::Member(finding) => {
                Safe::new(&finding.summary)
            }
            FindingRow::Group { worst: None, .. } => Safe::default(),
            FindingRow::Group { worst: Some(worst), .. } => {
                Safe::new(&format!("e.g. {}", worst.summary))
            }
        };
        let text = format::cut(&text, self.width.saturating_sub(4));
        Line::styled(format!("   {text}"), self.theme.style(Meaning::Dim))
    }
}

/// What a row says.
struct Cells {
    chosen: bool,
    severity: Severity,
    acknowledged: bool,
    mark: &'static str,
    kind: FindingKind,
    place: String,
    sentence: Option<Safe>,
    since: UnixMs,
    cost: f64,
    confidence: f64,
}

fn numbers(since: &str, lost: &str, sure: &str) -> String {
    format!("{since:>7}{lost:>11}{sure:>6}")
}
