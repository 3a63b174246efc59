//! Overview screen: GPU time and losses, the worst findings with their cost and evidence, heat map, worst nodes.

use std::time::Duration;

use gaunt_schema::{SanitizedText, UnixMs};
use ratatui::{buffer::Buffer, layout::Rect, text::Line};

use crate::{
    action::KeyIntent,
    console_state::{
        ClickArea, ClickTarget, ConsoleState, HEAT_CURSOR, OverviewPanel, ScreenLayout,
        source_clock::RARE_POLL_AGE,
    },
    cursor::RowCursor,
    cursor_rows::{self, CursorRows},
    evidence_history::{self, due_questions},
    finding_list_rows::{FINDINGS_CURSOR, FindingRow},
    heat_index::HeatGrouping,
    key_binding::{FOLD, KeyBinding, MEASURE, OPEN, bind},
    key_press::KeyPress,
    screen::{FindingScreen, FindingsScreen, NodeScreen, OverviewScreen, Screen},
    screen_view::{ScreenCommand, ScreenOutcome, ScreenView},
    theme::Theme,
    time_zoom::{OVERVIEW_SPAN, SPAN_KEYS, lost_history_query, next_span},
    view::{
        draw_lines, draw_page,
        finding_renderer::FindingRenderer,
        fleet_summary, node_details,
        overview_panes::{self, HEAT_MIN, WORST_CURSOR},
        placeholders,
        time_bar::BarRange,
    },
};
use gaunt_api::{Filter, Finding, HistoryQuery, Question, Subject, SubjectField};

/// Maximum width of the findings: on a wider screen their numbers would be far from their names.
const FINDINGS_WIDEST: usize = 160;
/// Minimum number of lines for the next step of the finding under the cursor: a terminal of 24 lines.
const HIGH: u16 = 21;
/// Maximum number of lines about failed targets.
const TROUBLES: usize = 2;

impl ScreenView for OverviewScreen {
    fn commands() -> &'static [ScreenCommand] {
        const {
            &[ScreenCommand::main(1, "overview", "fleet summary", "overview of the fleet", |_| {
                Ok(OverviewScreen.into())
            })]
        }
    }

    fn header_title(&self) -> String {
        "overview".into()
    }

    fn keys(&self) -> &'static [&'static [KeyBinding]] {
        &[&[OPEN], PANEL_KEYS, &[FOLD, MEASURE], SPAN_KEYS]
    }

    fn questions(&self, state: &ConsoleState) -> Vec<Question> {
        let one = state.data.overview.as_deref().is_some_and(|overview| {
            overview.nodes.live + overview.nodes.stale + overview.nodes.down == 1
        });
        match state.only_node() {
            Some(name) => return vec![Question::Node(name.clone())],
            None if one => return vec![Question::Nodes],
            None => {}
        }
        let mut questions = Vec::new();
        if state.panel == OverviewPanel::Heat && state.layout.has_side_pane {
            questions.extend(state.heat_node().cloned().map(Question::Node));
        }
        if state.data.overview.as_deref().is_some_and(|overview| overview.findings_open > 0) {
            let has_evidence = state.panel == OverviewPanel::Findings && state.layout.has_side_pane;
            let evidence = self.evidence_finding(state).filter(|_| has_evidence);
            questions.extend(state.evidence_questions(evidence));
        }
        let since = state.now - RENEWED;
        let longer = longer_history(state).into_iter().collect();
        questions.extend(due_questions(longer, &state.data.histories, since));
        if let Some(field) = state.tint {
            let stored = state.data.tint.as_ref().filter(|(stored, ..)| *stored == field);
            if state.is_due(stored.map(|(_, at, _)| *at)) {
                questions.extend(tint_question(field));
            }
        }
        if state.grouping != HeatGrouping::Node
            && state.is_due(state.data.sites.as_ref().map(|(at, _)| *at))
        {
            questions.extend(sites_question());
        }
        questions
    }

    fn shown_at(&self, state: &ConsoleState) -> Option<UnixMs> {
        let overview = state.data.overview.as_deref()?;
        let beside = state.layout.has_side_pane && state.panel == OverviewPanel::Heat;
        let node = state.only_node().or_else(|| state.heat_node().filter(|_| beside));
        let node = node.and_then(|name| state.node_detail(name)).map(|node| node.at);
        // Values that colour the map are polled less often: their age counts only when they are overdue.
        let tint = state.data.tint.as_ref().filter(|(field, ..)| state.tint == Some(*field));
        let tint = tint.map(|(_, _, table)| table.at).filter(|at| {
            state.source_now().is_some_and(|now| {
                now.duration_since(*at) >= state.late_threshold() + RARE_POLL_AGE
            })
        });
        [Some(overview.at), node, tint].into_iter().flatten().min()
    }

    fn finding_rows<'a>(&self, state: &'a ConsoleState) -> Vec<FindingRow<'a>> {
        state.overview_rows().0
    }

    fn has_finding_cursor(&self, state: &ConsoleState) -> bool {
        state.panel == OverviewPanel::Findings
    }

    fn item_target(&self, state: &ConsoleState) -> Option<Screen> {
        if let Some(node) = state.only_node() {
            return Some(NodeScreen(node.clone()).into());
        }
        match state.panel {
            OverviewPanel::Findings => {
                let finding = self.finding_row(state)?.single_finding()?;
                Some(FindingScreen(SanitizedText::new(&finding.id)).into())
            }
            OverviewPanel::Heat => state.heat_node().cloned().map(|node| NodeScreen(node).into()),
            OverviewPanel::Worst => {
                let rows = &state.data.overview.as_deref()?.worst;
                let at = state.cursors.of(WORST_CURSOR).row_index(rows.len(), |at| &rows[at].node);
                rows.get(at).map(|line| NodeScreen(line.node.clone()).into())
            }
        }
    }

    /// A wide screen shows the finding under the cursor with its evidence.
    fn evidence_finding<'a>(&self, state: &'a ConsoleState) -> Option<&'a Finding> {
        let row = self.finding_row(state).filter(|_| state.layout.has_side_pane);
        row?.single_finding()
    }

    fn history_queries(&self, state: &ConsoleState) -> Vec<HistoryQuery> {
        let evidence = self.evidence_finding(state).into_iter();
        let evidence = evidence.flat_map(evidence_history::history_queries).flatten();
        evidence.chain(longer_history(state)).collect()
    }

    /// Opens the item under the cursor. There is no space for the members of a group: it is expanded on the screen of
    /// all findings.
    fn open_item(&self, state: &mut ConsoleState) -> ScreenOutcome {
        let Some(FindingRow::Group { group, .. }) = self.finding_row(state) else {
            return ScreenOutcome::open(self.item_target(state));
        };
        let id = group.id.clone();
        let rows = CursorRows::of_findings(self.finding_rows(state));
        let at = rows.index(state);
        rows.move_to(state, at);
        state.unfolded.insert(id);
        // An empty filter is always valid; with the previous one the group may be different.
        _ = state.list_state_mut(Subject::Findings).apply_filter("");
        ScreenOutcome::Open(FindingsScreen.into())
    }

    fn handle_intent(&self, state: &mut ConsoleState, intent: KeyIntent) -> ScreenOutcome {
        match intent {
            KeyIntent::NextPanel => state.panel = neighbour_panel(state.panel, true),
            KeyIntent::PreviousPanel => state.panel = neighbour_panel(state.panel, false),
            KeyIntent::Fold => state.grouping = next_grouping(state.grouping),
            KeyIntent::Measure => show_next_tint(state),
            KeyIntent::ShorterSpan | KeyIntent::LongerSpan => {
                let minutes = state.cursors.bar_span.unwrap_or(OVERVIEW_SPAN);
                state.cursors.bar_span = Some(next_span(minutes, intent));
            }
            _ => {
                let outcome = move_cursor(state, intent);
                // Request the histories of the finding beside the heat map.
                let beside = state.panel == OverviewPanel::Findings && state.layout.has_side_pane;
                return if beside { ScreenOutcome::Ask } else { outcome };
            }
        }
        ScreenOutcome::Ask
    }

    fn handle_click(&self, state: &mut ConsoleState, target: ClickTarget) -> ScreenOutcome {
        let ClickTarget::Panel(panel, row) = target else { return ScreenOutcome::Unchanged };
        let Some(overview) = state.data.overview.clone() else { return ScreenOutcome::Unchanged };
        let same = std::mem::replace(&mut state.panel, panel) == panel;
        let again = match panel {
            OverviewPanel::Findings => {
                CursorRows::of_findings(self.finding_rows(state)).move_to(state, row)
            }
            OverviewPanel::Heat => {
                let nodes = &overview.heat.nodes;
                state.cursors.of_mut(HEAT_CURSOR).move_to(row, nodes.len(), |at| &nodes[at])
            }
            OverviewPanel::Worst => {
                let rows = &overview.worst;
                state.cursors.of_mut(WORST_CURSOR).move_to(row, rows.len(), |at| &rows[at].node)
            }
        };
        if same && again {
            return self.open_item(state);
        }
        ScreenOutcome::Ask
    }

    /// Draws the panels in the order of reading: cost, culprit, reason and next step are in the first lines. If there are too few lines, the heat map loses lines first, then the
    /// worst nodes.
    ///
    /// ```text
    ///  LOST      2,071 of 10,000 GPUs (20.7 %)   $4,142/h   by findings …
    /// ▸FINDINGS  3 open                                       since  GPUs lost  conf
    ///  ✖ port_down           gpu003 · mlx5_1/1                 6m10          8  97 %
    ///    port mlx5_1/1 of gpu003 is down: …
    ///    next: check the cable of mlx5_1/1
    ///  TIME      ▁▁▁▁▂▂▶▁▁▁▁▁▁▁▁▁▁▃▅✖▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇  last 15m
    ///  GPU TIME  ██████████████████████████▒▒▒▒▒▒░░░░░░░░░░░░ddddiii········
    ///            █ computing 64.1 %  ▒ communicating 9.8 %  ░ waiting 15.2 %
    ///  HEAT      one cell = one GPU
    ///  gpu001 ████████  gpu009 ████████  gpu017 ████████  gpu025 ████████
    ///  NODES             state       GPUs       lost  util %  finding
    ///  gpu003            live        ░░░░░░░░      8     100  port_down
    ///  ▲ 10.0.0.7:9770: cannot connect: connection refused; …
    /// ```
    fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout {
        let Some(overview) = state.data.overview.as_deref() else { return ScreenLayout::default() };
        let width = usize::from(area.width);
        let mut lines = fleet_summary::render_losses(overview, width, theme);
        let gpu_time = fleet_summary::render_gpu_time(overview, bar_range(state), width, theme);
        let troubles = overview.trouble.len().min(TROUBLES);
        let left = usize::from(area.height).saturating_sub(lines.len() + gpu_time.len() + troubles);

        let focused = state.panel == OverviewPanel::Findings;
        let (findings, more) = state.overview_rows();
        let at = state
            .cursors
            .of(FINDINGS_CURSOR)
            .row_index(findings.len(), |at| findings[at].row_key());
        let single = state.only_node().and_then(|name| state.node_detail(name));
        let selected = (focused && !findings.is_empty()).then_some(at);
        let rows = FindingRenderer {
            width: width.min(FINDINGS_WIDEST),
            selected,
            at: overview.at,
            alerts: state.current_alerts(),
            contexts: &overview.contexts,
            lost: Some(&overview.lost),
            theme,
        };
        let read = overview.nodes.live > 0;
        lines.push(rows.render_heading(
            overview.findings_open.into(),
            focused && single.is_none(),
            read,
        ));
        lines.extend(fleet_summary::render_unexplained(overview, width, theme));
        // At 80×24 this leaves the title and two rows for the map.
        let most = left.saturating_sub(1 + HEAT_MIN + 2).max(left / 2);
        // The finding under the cursor is whole, even if nothing else has space.
        let mut sentences = rows.wrap_sentences(&findings);
        let lines_of_chosen = sentences.get_mut(at).filter(|_| area.height >= HIGH);
        if let (Some(lines), Some(row)) = (lines_of_chosen, findings.get(at)) {
            *lines = rows.wrap_with_next_step(*row);
        }
        let chosen = sentences.get(at).map_or(0, |sentence| 1 + sentence.len());
        let others = usize::from(findings.len() > 1 || more > 0);
        let most = most.max(chosen + others).min(left.saturating_sub(1));
        let needed = FindingRenderer::lines_needed(&sentences, more);
        let shown = rows.render_worst(&findings, &sentences, more, needed.min(most));
        let mut click_areas = Vec::new();
        for (line, row) in shown {
            let y = area.y + lines.len() as u16;
            let area = Rect { y, height: 1, ..area };
            click_areas.extend(row.map(|row| ClickArea {
                area,
                target: ClickTarget::Panel(OverviewPanel::Findings, row),
            }));
            lines.push(line);
        }
        lines.extend(gpu_time);

        let used = lines.len().min(usize::from(area.height)) as u16;
        draw_lines(buffer, area, &lines);
        let rest = Rect { y: area.y + used, height: area.height - used, ..area };
        let rest = overview_panes::draw_failed_targets(buffer, rest, overview, troubles, theme);
        if overview.nodes.live + overview.nodes.stale + overview.nodes.down == 0 {
            let lines = placeholders::render_empty_fleet(overview, area.width, theme);
            draw_lines(buffer, rest, &lines);
            return ScreenLayout { click_areas, ..ScreenLayout::default() };
        }
        if let Some(detail) = single {
            let lines = node_details::render_body(detail, width, None, theme);
            let lines: Vec<Line<'_>> = lines.into_iter().map(|(line, _)| line).collect();
            return draw_page(buffer, rest, &lines, state.scroll, theme);
        }
        let layout =
            overview_panes::draw_maps(buffer, rest, state, overview, overview_detail(state), theme);
        click_areas.extend(layout.click_areas);
        ScreenLayout { click_areas, ..layout }
    }
}

/// Time between two answers for a time bar that is longer than what the overview has.
const RENEWED: Duration = Duration::from_secs(10);

/// Returns the question for the longer history that the time bar shows, if it does.
fn longer_history(state: &ConsoleState) -> Option<HistoryQuery> {
    let longer = state.cursors.bar_span.filter(|minutes| *minutes > OVERVIEW_SPAN);
    longer.map(lost_history_query)
}

/// Returns what the time bar shows.
fn bar_range(state: &ConsoleState) -> BarRange<'_> {
    let ask = longer_history(state);
    let stored = state.data.histories.iter().find(|stored| Some(&stored.ask) == ask.as_ref());
    BarRange {
        minutes: state.cursors.bar_span,
        longer: stored.and_then(|stored| stored.history.as_deref()),
    }
}

/// Keys of the panels.
const PANEL_KEYS: &[KeyBinding] = &[
    bind(&[KeyPress::Tab], "Tab", KeyIntent::NextPanel, "next panel", Some("panel")),
    bind(&[KeyPress::BackTab], "Shift-Tab", KeyIntent::PreviousPanel, "previous panel", None),
];

const fn neighbour_panel(panel: OverviewPanel, next: bool) -> OverviewPanel {
    match (panel, next) {
        (OverviewPanel::Findings, true) | (OverviewPanel::Worst, false) => OverviewPanel::Heat,
        (OverviewPanel::Heat, true) | (OverviewPanel::Findings, false) => OverviewPanel::Worst,
        (OverviewPanel::Worst, true) | (OverviewPanel::Heat, false) => OverviewPanel::Findings,
    }
}

const fn next_grouping(grouping: HeatGrouping) -> HeatGrouping {
    match grouping {
        HeatGrouping::Node => HeatGrouping::Leaf,
        HeatGrouping::Leaf => HeatGrouping::Rack,
        HeatGrouping::Rack => HeatGrouping::Node,
    }
}

/// Fields that colour the heat map, in the order of the key; GPU states come after the last one.
const TINTS: [&str; 6] =
    ["utilization", "power", "temperature", "sm_active", "memory_used", "sm_clock"];

/// Colours the heat map by the next field.
fn show_next_tint(state: &mut ConsoleState) {
    let current = state.tint.and_then(|field| TINTS.iter().position(|name| *name == field.name));
    let next = current.map_or(0, |at| at + 1);
    // GPU states follow the last field, and any field that was chosen by name.
    let next = if state.tint.is_some() && current.is_none() { TINTS.len() } else { next };
    state.tint = TINTS.get(next).and_then(|name| Subject::Gpus.find_field(name));
    state.panel = OverviewPanel::Heat;
}

/// Moves the cursor of the panel; the overview of a single node scrolls.
fn move_cursor(state: &mut ConsoleState, intent: KeyIntent) -> ScreenOutcome {
    let Some(overview) = state.data.overview.clone() else { return ScreenOutcome::Redraw };
    let (row, step) = match state.panel {
        OverviewPanel::Heat => (state.layout.heat_row.max(1), state.layout.heat_step.max(1)),
        _ => (1, 0),
    };
    let by = cursor_rows::step_size(state, intent, row as isize, step as isize);
    let before = state.heat_node().cloned();
    match state.panel {
        _ if state.data.nodes.is_some() && state.data.node.is_some() => {
            cursor_rows::scroll_by(state, by);
        }
        OverviewPanel::Findings => {
            CursorRows::of_findings(state.overview_rows().0).move_by(state, by);
        }
        OverviewPanel::Heat => {
            let nodes = &overview.heat.nodes;
            move_in_heat_map(state.cursors.of_mut(HEAT_CURSOR), by, nodes.len(), |at| &nodes[at]);
        }
        OverviewPanel::Worst => {
            let rows = &overview.worst;
            state.cursors.of_mut(WORST_CURSOR).move_by(by, rows.len(), |at| &rows[at].node);
        }
    }
    // Request the node beside the map when it changes.
    if state.layout.has_side_pane && before != state.heat_node().cloned() {
        ScreenOutcome::Ask
    } else {
        ScreenOutcome::Redraw
    }
}

/// Moves the cursor in the heat map. A step of a whole row that would leave the map does nothing, so the column is
/// kept.
fn move_in_heat_map<'a>(
    cursor: &mut RowCursor,
    by: isize,
    count: usize,
    key_at: impl Fn(usize) -> &'a str,
) {
    let to = cursor.row_index(count, &key_at).checked_add_signed(by);
    let end = by == isize::MIN || by == isize::MAX || by.unsigned_abs() == 1;
    if end || to.is_some_and(|to| to < count) {
        cursor.move_by(by, count, key_at);
    }
}

/// Returns the question for one field of every GPU, in the order of the heat map.
pub(crate) fn tint_question(field: &SubjectField) -> Option<Question> {
    let text = format!("limit 131072 columns {}", field.name);
    Some(Question::Table(Filter::parse(Subject::Gpus, &text).ok()?))
}

/// Returns the question for the leaf and rack of every node.
pub(crate) fn sites_question() -> Option<Question> {
    let text = "sort node limit 131072 columns node,leaf,rack";
    Some(Question::Table(Filter::parse(Subject::Nodes, text).ok()?))
}

/// Returns the finding that is shown beside the heat map.
fn overview_detail(state: &ConsoleState) -> Option<&Finding> {
    let is_shown = state.panel == OverviewPanel::Findings;
    OverviewScreen.finding_row(state).filter(|_| is_shown)?.single_finding()
}
