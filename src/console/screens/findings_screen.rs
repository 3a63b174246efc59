//! Findings screen: all open findings, and the one under the cursor beside or below them where it has space.

use std::ops::Range;

use gaunt_schema::{SanitizedText, UnixMs};
use ratatui::{buffer::Buffer, layout::Rect, text::Line};

use crate::{
    action::KeyIntent,
    console_state::{ClickArea, ClickTarget, ConsoleState, ScreenLayout},
    cursor::visible_rows,
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

/// Minimum number of lines to show the finding under the cursor with the list: a terminal of 30 lines.
const HIGH: u16 = 27;
/// Minimum width to show it beside the list.
const BESIDE: u16 = 160;
/// Most lines above the rows: the heading, the filter, and servers that fail.
const HEADING_MAX: usize = 3;
/// Minimum number of lines for it below a list that is whole on a lower screen.
const DETAIL_MIN: usize = 9;

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

    fn rows_command(&self) -> Option<&'static str> {
        Some("findings")
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
        let renderer = |width| FindingRenderer {
            width,
            selected: Some(at),
            at: list.at,
            alerts: state.current_alerts(),
            contexts: &list.contexts,
            lost: state.data.overview.as_deref().map(|overview| &overview.lost),
            theme,
        };
        let rows = renderer(usize::from(area.width));
        let place = DetailPlace::of(area, shown.iter().map(|row| rows.entry_height(*row)));
        let list_area = match place {
            DetailPlace::Nowhere => area,
            DetailPlace::Beside(detail) => Rect { width: area.width - detail.width - 1, ..area },
            DetailPlace::Below(height) => Rect { height, ..area },
        };
        let width = usize::from(list_area.width);
        let rows = renderer(width);
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
        let height = usize::from(list_area.height);
        let available = height.saturating_sub(lines.len());
        let visible = visible_rows(shown.len(), at, available, |row| rows.entry_height(shown[row]));
        let page = visible.len().max(1);
        let click_areas = push_rows(&mut lines, rows, &shown, visible, list_area);
        draw_lines(buffer, list_area, &lines);
        let detail_area = match place {
            DetailPlace::Nowhere => None,
            DetailPlace::Beside(area) => Some(area),
            DetailPlace::Below(_) => {
                let used = (lines.len() as u16 + 1).min(area.height);
                Some(Rect { y: area.y + used, height: area.height - used, ..area })
            }
        };
        if let (Some(area), Some(row)) = (detail_area, shown.get(at)) {
            draw_detail(buffer, area, *row, state, theme);
        }
        ScreenLayout {
            page,
            click_areas,
            has_side_pane: detail_area.is_some(),
            ..ScreenLayout::default()
        }
    }
}

/// Where the finding under the cursor is shown.
#[derive(Clone, Copy)]
enum DetailPlace {
    /// There is no space for it.
    Nowhere,
    /// Below the list, which has this number of lines at most.
    Below(u16),
    /// In this area, beside the list.
    Beside(Rect),
}

impl DetailPlace {
    /// Chooses the place for a list whose rows have these heights.
    fn of(area: Rect, rows: impl ExactSizeIterator<Item = usize>) -> Self {
        if rows.len() == 0 {
            return Self::Nowhere;
        }
        if area.height < HIGH {
            let left = usize::from(area.height).saturating_sub(DETAIL_MIN);
            let mut used = HEADING_MAX;
            let is_whole = rows.into_iter().all(|height| {
                used += height;
                used <= left
            });
            return if is_whole { Self::Below(used as u16) } else { Self::Nowhere };
        }
        if area.width < BESIDE {
            // The list has two fifths of the lines, and gives those that it does not need.
            return Self::Below(area.height * 2 / 5);
        }
        let width = area.width / 2;
        Self::Beside(Rect { x: area.right() - width, width, ..area })
    }
}

/// Draws the finding under the cursor, or what the findings of its group have in common.
fn draw_detail(
    buffer: &mut Buffer,
    area: Rect,
    row: FindingRow<'_>,
    state: &ConsoleState,
    theme: Theme,
) {
    match row {
        FindingRow::Single(finding) | FindingRow::Member(finding) => {
            finding_details::draw_below_list(buffer, area, finding, state, theme);
        }
        FindingRow::Group { group, unfolded, worst } => {
            let width = usize::from(area.width);
            let lines = render_group_summary(group, worst, unfolded, width, theme);
            draw_lines(buffer, area, &lines);
        }
    }
}

/// Adds the visible rows with their sentences, and returns their click areas.
fn push_rows(
    lines: &mut Vec<Line<'static>>,
    rows: FindingRenderer<'_>,
    shown: &[FindingRow<'_>],
    visible: Range<usize>,
    area: Rect,
) -> Vec<ClickArea> {
    let mut click_areas = Vec::new();
    for at in visible {
        let y = area.y + lines.len() as u16;
        lines.push(rows.render_row(at, shown[at]));
        lines.extend(rows.render_sentence(shown[at]));
        let height = (area.y + lines.len() as u16).min(area.bottom()).saturating_sub(y);
        let area = Rect { y, height, ..area };
        click_areas.push(ClickArea { area, target: ClickTarget::Row(at) });
    }
    click_areas
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
    let title = format!(" {} {}", group.kind, group_title(group, true));
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
