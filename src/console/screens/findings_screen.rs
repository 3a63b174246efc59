//! Findings screen: all open findings, and the one under the cursor below them on a high screen.

use std::ops::Range;

use gaunt_schema::{SanitizedText, UnixMs};
use ratatui::{buffer::Buffer, layout::Rect, text::Line};

use crate::{
    action::KeyIntent,
    console_state::{ClickArea, ClickTarget, ConsoleState, ScreenLayout},
    cursor_rows::{self, CursorRows},
    display_text,
    finding_list_rows::{FINDINGS_CURSOR, FindingRow, group_title},
    key_binding::{ACKNOWLEDGE, BACK, FILTER, KeyBinding, OPEN},
    screen::{FindingScreen, FindingsScreen, Screen},
    screen_view::{ScreenCommand, ScreenOutcome, ScreenView},
    theme::{StyleRole, Theme},
    view::{draw_lines, finding_alerts, finding_details, finding_renderer::FindingRenderer},
};
use gaunt_api::{Filter, Finding, FindingGroup, Question, Subject};

/// Minimum number of lines to show the finding under the cursor below the list.
const HIGH: usize = 36;

impl ScreenView for FindingsScreen {
    fn commands() -> &'static [ScreenCommand] {
        const {
            &[ScreenCommand::main(2, "findings", "open findings", "open findings", |_| {
                Ok(FindingsScreen.into())
            })]
        }
    }

    fn header_title(&self) -> String {
        "findings".into()
    }

    fn keys(&self) -> &'static [&'static [KeyBinding]] {
        &[&[OPEN, BACK, FILTER, ACKNOWLEDGE]]
    }

    fn questions(&self, state: &ConsoleState) -> Vec<Question> {
        let rows = &state.list_state(Subject::Findings).rows;
        let mut questions = vec![match Filter::parse(Subject::Findings, rows) {
            Ok(filter) if !filter.is_all() => Question::List(filter),
            _ => Question::Findings,
        }];
        questions.extend(state.evidence_questions(self.evidence_finding(state)));
        questions
    }

    fn shown_at(&self, state: &ConsoleState) -> Option<UnixMs> {
        state.data.findings.as_deref().map(|list| list.at)
    }

    fn row_counts(&self, state: &ConsoleState) -> Option<(u64, u64, &'static str)> {
        let list = state.data.findings.as_deref()?;
        Some((list.findings.len() as u64, list.matched.into(), "findings"))
    }

    fn filter_subject(&self) -> Option<Subject> {
        Some(Subject::Findings)
    }

    fn has_finding_cursor(&self, _state: &ConsoleState) -> bool {
        true
    }

    fn evidence_finding<'a>(&self, state: &'a ConsoleState) -> Option<&'a Finding> {
        let row = self.finding_row(state).filter(|_| state.layout.has_side_pane);
        row?.single_finding()
    }

    fn cursor_rows(&self, state: &ConsoleState) -> Option<CursorRows> {
        Some(CursorRows::of_findings(self.finding_rows(state)))
    }

    fn item_target(&self, state: &ConsoleState) -> Option<Screen> {
        let finding = self.finding_row(state)?.single_finding()?;
        Some(FindingScreen(SanitizedText::new(&finding.id)).into())
    }

    /// Opens the finding, or expands or collapses its group.
    fn open_item(&self, state: &mut ConsoleState) -> ScreenOutcome {
        let Some(FindingRow::Group { group, .. }) = self.finding_row(state) else {
            return ScreenOutcome::open(self.item_target(state));
        };
        let id = group.id.clone();
        if !state.unfolded.remove(&id) {
            state.unfolded.insert(id);
        }
        ScreenOutcome::Ask
    }

    fn handle_intent(&self, state: &mut ConsoleState, intent: KeyIntent) -> ScreenOutcome {
        CursorRows::of_findings(self.finding_rows(state))
            .move_by(state, cursor_rows::row_steps(state, intent));
        // Request the histories of the finding below the list.
        ScreenOutcome::Ask
    }

    /// Draws all open findings; findings of one kind share a group row, which expands.
    ///
    /// ```text
    ///  FINDINGS  3 open                                       since  GPUs lost  conf
    ///  ✖ port_down           gpu003 · mlx5_1/1                 6m10          8  97 %
    ///    port mlx5_1/1 of gpu003 is down: …
    /// ```
    fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout {
        let Some(list) = state.data.findings.as_deref() else {
            return self.draw_waiting(buffer, area, "the findings", state, theme);
        };
        let shown = self.finding_rows(state);
        let at = state.cursors.of(FINDINGS_CURSOR).row_index(shown.len(), |at| shown[at].row_key());
        let width = usize::from(area.width);
        let rows = FindingRenderer {
            width,
            selected: Some(at),
            at: list.at,
            alerts: state.current_alerts(),
            theme,
        };
        let read = state.data.overview.as_deref().is_some_and(|overview| overview.nodes.live > 0);
        let open = u64::from(list.total).max(list.findings.len() as u64);
        let mut lines = vec![rows.render_heading(open, false, read)];
        let filter = &state.list_state(Subject::Findings).rows;
        if !filter.is_empty() {
            let text = format!("   {} of {} match {filter}", list.matched, list.total);
            lines.push(Line::styled(text, theme.style_for(StyleRole::Dim)));
        }
        lines.extend(
            state
                .current_alerts()
                .and_then(|list| finding_alerts::render_failing_servers(list, width, theme)),
        );
        let own_line = |row: &FindingRow<'_>| usize::from(!rows.has_inline_sentence(*row));
        let heights: Vec<usize> = shown.iter().map(|row| 1 + own_line(row)).collect();
        let height = usize::from(area.height);
        let full_height = |(row, lines): (&FindingRow<'_>, &usize)| match lines {
            1 => 1,
            _ => 1 + rows.render_sentence(*row, height).len(),
        };
        let full: usize = shown.iter().zip(&heights).take(height).map(full_height).sum();
        let needed = lines.len() + full;
        // On a high screen the finding under the cursor is shown below the list, which keeps at least a third of the
        // lines.
        let below = (height >= HIGH && !shown.is_empty()).then(|| (needed + 1).min(height / 3));
        let available = below.unwrap_or(height) - usize::from(below.is_some());
        let available = available.saturating_sub(lines.len());
        let visible = visible_rows(&heights, at, available);
        let page = visible.len().max(1);
        let click_areas = push_rows(&mut lines, rows, &shown, &heights, visible, available, area);
        draw_lines(buffer, area, &lines);
        if let (Some(below), Some(row)) = (below, shown.get(at)) {
            let gone = (below.max(lines.len() + 1)) as u16;
            let area = Rect { y: area.y + gone, height: area.height.saturating_sub(gone), ..area };
            match row {
                FindingRow::Single(finding) | FindingRow::Member(finding) => {
                    finding_details::draw_below_list(buffer, area, finding, state, theme);
                }
                FindingRow::Group { group, unfolded, worst } => {
                    let lines = render_group_summary(group, *worst, *unfolded, width, theme);
                    draw_lines(buffer, area, &lines);
                }
            }
        }
        ScreenLayout {
            page,
            click_areas,
            has_side_pane: below.is_some(),
            ..ScreenLayout::default()
        }
    }
}

/// Adds the visible rows with their sentences, which get more lines while there are any to spare, and returns their click
/// areas.
fn push_rows(
    lines: &mut Vec<Line<'static>>,
    rows: FindingRenderer<'_>,
    shown: &[FindingRow<'_>],
    heights: &[usize],
    visible: Range<usize>,
    available: usize,
    area: Rect,
) -> Vec<ClickArea> {
    let mut spare = available.saturating_sub(heights[visible.clone()].iter().sum());
    let mut click_areas = Vec::new();
    for at in visible {
        let mut entry = vec![rows.render_row(at, shown[at], heights[at] > 1)];
        if heights[at] > 1 {
            entry.extend(rows.render_sentence(shown[at], 1 + spare));
            spare = spare.saturating_sub(entry.len() - 2);
        }
        let y = area.y + lines.len() as u16;
        let area = Rect { y, height: entry.len() as u16, ..area };
        click_areas.push(ClickArea { area, target: ClickTarget::Row(at) });
        lines.extend(entry);
    }
    click_areas
}

/// Returns the rows to show in `available` lines, of which the row `at` is one; each row has its own number of lines.
fn visible_rows(heights: &[usize], at: usize, available: usize) -> Range<usize> {
    let mut visible = at..(at + 1).min(heights.len());
    let mut used: usize = heights[visible.clone()].iter().sum();
    loop {
        let fits = |height: Option<&usize>| height.is_some_and(|more| used + more <= available);
        let before = visible.start.checked_sub(1).and_then(|before| heights.get(before));
        let after = heights.get(visible.end);
        let is_centred = at - visible.start < visible.end - at;
        if fits(before) && (is_centred || !fits(after)) {
            visible.start -= 1;
            used += heights[visible.start];
        } else if fits(after) {
            used += heights[visible.end];
            visible.end += 1;
        } else {
            return visible;
        }
    }
}

/// Renders what the findings of a group have in common, below the list.
fn render_group_summary(
    group: &FindingGroup,
    worst: Option<&Finding>,
    unfolded: bool,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let severity = theme.severity_style(group.severity);
    let dim = theme.style_for(StyleRole::Dim);
    let title = format!(" {} {}", group.kind, group_title(group));
    let mut lines =
        vec![Line::styled(display_text::truncate_text(&title, width), severity), Line::default()];
    let mut push_paragraph = |text: &str| {
        let text = display_text::wrap_text(&SanitizedText::new(text), width.saturating_sub(4));
        lines.extend(text.into_iter().map(|line| Line::raw(format!("   {line}"))));
    };
    push_paragraph(&format!(
        "oldest since {}; {} of {} acknowledged; confidence at least {} %",
        display_text::format_time_of_day(group.since),
        group.acknowledged,
        group.members.len(),
        display_text::format_whole_percent(Some(group.confidence)),
    ));
    if let Some(worst) = worst {
        push_paragraph(&format!("worst: {}", worst.summary));
        push_paragraph(&format!("next: {}", worst.next));
    }
    let verb = if unfolded { "collapse" } else { "expand" };
    lines.push(Line::default());
    lines.push(Line::styled(format!(" Enter: {verb}   a: acknowledge all"), dim));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_rows_include_the_cursor_and_fill_the_lines() {
        let heights = [1, 2, 2, 1, 2, 2, 1, 2];
        assert_eq!(visible_rows(&heights, 0, 5), 0..3);
        assert_eq!(visible_rows(&heights, 7, 5), 5..8);
        for at in 0..heights.len() {
            for available in 2..14 {
                let visible = visible_rows(&heights, at, available);
                let used: usize = heights[visible.clone()].iter().sum();
                assert!(visible.contains(&at), "{at} of {visible:?}");
                assert!((available - 1..=available).contains(&used.min(13)), "{visible:?}");
            }
        }
        assert_eq!(visible_rows(&[], 0, 5), 0..0);
    }
}
