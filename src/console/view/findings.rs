//! Findings as rows: on the overview the worst of them, on their own screen all.

use gaunt_schema::{LifeState, Safe};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::{alerts, finding, hints, put};
use crate::{
    answer::{AlertList, Finding, Subject},
    console::{
        cursor::window,
        format,
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
    pub(super) at: gaunt_schema::UnixMs,
    /// What Alertmanager does about them, if that is known.
    pub(super) alerts: Option<&'a AlertList>,
    /// The theme.
    pub(super) theme: Theme,
}

/// Every open finding.
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
    let findings = &list.findings;
    let at = state.at.findings.index(findings.len(), |at| &findings[at].id);
    let width = usize::from(area.width);
    let rows = Rows { width, selected: Some(at), at: list.at, alerts: state.alerts(), theme };
    let each = if width >= ONE_LINE { 1 } else { 2 };
    let mut lines = vec![rows.heading(findings.len() as u64, false)];
    let filter = &state.list(Subject::Findings).rows;
    if !filter.is_empty() {
        let text = format!("   {} of {} match {filter}", list.matched, list.total);
        lines.push(Line::styled(text, theme.style(Meaning::Dim)));
    }
    lines.extend(state.alerts().and_then(|list| alerts::trouble(list, width, theme)));
    let (height, needed) = (usize::from(area.height), lines.len() + each * findings.len());
    // On a high screen the finding under the cursor stands below the list, which keeps at least its third.
    let below = (height >= HIGH && !findings.is_empty()).then(|| (needed + 1).min(height / 3));
    let page = (below.unwrap_or(height).saturating_sub(lines.len() + usize::from(below.is_some()))
        / each)
        .max(1);
    let from = window(at, findings.len(), page);
    let mut spots = Vec::new();
    for (at, finding) in findings.iter().enumerate().skip(from).take(page) {
        let y = area.y + lines.len() as u16;
        let area = Rect { y, height: each as u16, ..area };
        spots.push(Spot { area, what: What::Row(at) });
        lines.push(rows.row(at, finding));
        if each == 2 {
            lines.push(rows.sentence(finding));
        }
    }
    put(buffer, area, &lines);
    if let (Some(below), Some(finding)) = (below, findings.get(at)) {
        let gone = (below.max(lines.len() + 1)) as u16;
        let area = Rect { y: area.y + gone, height: area.height.saturating_sub(gone), ..area };
        finding::below(buffer, area, finding, state, theme);
    }
    Room { page, spots, beside: below.is_some(), ..Room::default() }
}

impl Rows<'_> {
    /// The title with the headings of the numbers; `focused` if the cursor is in this panel.
    pub(super) fn heading(self, open: u64, focused: bool) -> Line<'static> {
        let title = if focused { "▸FINDINGS  " } else { " FINDINGS  " };
        let (count, meaning) = match open {
            0 => ("none open".to_owned(), Meaning::Good),
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

    /// As many of the worst findings as fit into `height` lines, with their sentences where there is room, each line
    /// with the place of its finding.
    pub(super) fn worst(self, findings: &[Finding], height: usize) -> Vec<(Line<'static>, usize)> {
        let shown = findings.len().min(height);
        let at = self.selected.unwrap_or(0);
        let from = window(at, findings.len(), shown);
        let mut sentences = if self.in_row() { 0 } else { height - shown };
        let mut lines = Vec::with_capacity(height);
        for (at, finding) in findings.iter().enumerate().skip(from).take(shown) {
            lines.push((self.row(at, finding), at));
            if sentences > 0 {
                sentences -= 1;
                lines.push((self.sentence(finding), at));
            }
        }
        lines
    }

    /// How many lines these findings would take.
    pub(super) fn wanted(self, findings: usize) -> usize {
        if self.in_row() { findings } else { 2 * findings }
    }

    const fn in_row(self) -> bool {
        self.width >= ONE_LINE
    }

    fn row(self, at: usize, finding: &Finding) -> Line<'static> {
        let severity = self.theme.severity(finding.severity);
        let chosen = |style: Style| {
            if self.selected == Some(at) { theme::selected(style) } else { style }
        };
        let mut place = finding.entity.to_string();
        if finding.life.state == LifeState::Flapping {
            place.push_str(" (flapping)");
        }
        if let Some(word) = self.alerts.and_then(|list| alerts::word(list, finding)) {
            place.extend([" (", word, ")"]);
        }
        let room = self.width.saturating_sub(3 + KIND + 1 + NUMBERS);
        let middle = if self.in_row() {
            let sentence = Safe::new(&finding.summary);
            let columns = if self.width >= WIDE { WIDE_PLACE } else { PLACE };
            let sentence = format::cut(&sentence, room.saturating_sub(columns + 1));
            format!("{} {sentence}", format::left(&place, columns))
        } else {
            place
        };
        let taken = finding.acknowledged.is_some();
        let sign = if taken { "✔" } else { theme::severity_sign(finding.severity) };
        let lasted = format::span(self.at.since(finding.since));
        let cost = format::gpus(finding.lost_gpus);
        let sure = format!("{} %", format::whole_percent(Some(finding.confidence)));
        Line::from(vec![
            Span::styled(format!(" {sign} "), severity),
            Span::styled(format::left(finding.kind.as_str(), KIND), chosen(severity)),
            Span::styled(format!(" {}", format::left(&middle, room)), chosen(Style::new())),
            Span::styled(numbers(&lasted, &cost, &sure), chosen(Style::new())),
        ])
    }

    fn sentence(self, finding: &Finding) -> Line<'static> {
        let text = format::cut(&Safe::new(&finding.summary), self.width.saturating_sub(4));
        Line::styled(format!("   {text}"), self.theme.style(Meaning::Dim))
    }
}

fn numbers(since: &str, lost: &str, sure: &str) -> String {
    format!("{since:>7}{lost:>11}{sure:>6}")
}
