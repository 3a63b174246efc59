//! Coverage screen: what is not known of the fleet with the next step for each, and how soon findings can be reported.

use std::time::Duration;

use gaunt_schema::UnixMs;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use crate::{
    console_state::{ConsoleState, ScreenLayout, source_clock::RARE_POLL_AGE},
    display_text,
    key_binding::{BACK, KeyBinding},
    screen::CoverageScreen,
    screen_view::{ScreenCommand, ScreenView},
    theme::{StyleRole, Theme},
    view::{draw_lines, draw_page, render_paragraph, render_titled_line},
    widget::text_table::{self, number_column, text_column},
};
use gaunt_api::{CoverageCheck, CoverageState, Question, RenewalGroup, TelemetryCoverage};

/// Columns of the state of a check, with its margins.
const STATE: usize = 11;

impl ScreenView for CoverageScreen {
    fn commands() -> &'static [ScreenCommand] {
        const {
            &[ScreenCommand::other("coverage", "missing telemetry, and next steps", |_| {
                Ok(CoverageScreen.into())
            })]
        }
    }

    fn header_title(&self) -> String {
        "coverage".into()
    }

    fn keys(&self) -> &'static [&'static [KeyBinding]] {
        &[&[BACK]]
    }

    fn questions(&self, state: &ConsoleState) -> Vec<Question> {
        let came = state.data.coverage.as_ref().map(|(at, _)| *at);
        // No history is stored for this answer.
        let asks = state.past_instant.is_none() && state.is_due(came);
        asks.then_some(Question::Coverage).into_iter().collect()
    }

    fn shown_at(&self, state: &ConsoleState) -> Option<UnixMs> {
        state.data.coverage.as_ref().map(|(_, coverage)| coverage.at)
    }

    fn extra_age(&self) -> Duration {
        RARE_POLL_AGE
    }

    /// Draws the checks, those that miss something first, and the renewal intervals.
    ///
    /// ```text
    ///  COVERAGE  32 nodes with GPUs · 256 GPUs · 1 of 9 checks miss something
    ///  DELAY     A state that a device reports, such as a port that is down, is a finding after 2 s; …
    ///  missing  3 of 32 nodes with GPUs have no host metrics: CPU, memory and IO are unknown
    ///           gpu001, gpu002, gpu017
    ///           → Run node_exporter or gaunt-node there
    ///  ok       all 64 targets are read
    ///
    ///  EXPORTER       values  nodes  renewed every  inferred after
    ///  dcgm           GPUs       32           30 s            30 s
    /// ```
    fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout {
        if state.past_instant.is_some() {
            let text = " past coverage is not stored; press . to return to now";
            let dim = theme.style_for(StyleRole::Dim);
            draw_lines(buffer, area, &[Line::default(), Line::styled(text, dim)]);
            return ScreenLayout::default();
        }
        let Some((_, coverage)) = &state.data.coverage else {
            return self.draw_waiting(buffer, area, "the coverage", state, theme);
        };
        let lines = render_coverage(coverage, usize::from(area.width), theme);
        draw_page(buffer, area, &lines, state.scroll, theme)
    }
}

fn render_coverage(coverage: &TelemetryCoverage, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let missing = match (coverage.missing_checks(), coverage.checks.len()) {
        (0, all) => format!("nothing is missing in {all} checks"),
        (1, all) => format!("1 of {all} checks misses something"),
        (missing, all) => format!("{missing} of {all} checks miss something"),
    };
    let count = |number: u32| display_text::format_count(number.into());
    let facts = format!(
        "{} nodes with GPUs · {} GPUs · {missing}",
        count(coverage.gpu_nodes),
        count(coverage.gpus)
    );
    let mut lines = vec![render_titled_line("COVERAGE", vec![Span::raw(facts)], theme)];
    let delays = coverage.describe_delays();
    let (general, slow) = delays.split_first().map_or(("", &[][..]), |(one, more)| (&**one, more));
    lines.extend(render_paragraph("DELAY", general, width, theme));
    for state in [CoverageState::Missing, CoverageState::Note, CoverageState::Ok] {
        let checks = coverage.checks.iter().filter(|check| check.state == state);
        lines.extend(checks.flat_map(|check| render_check(check, width, theme)));
    }
    lines.push(Line::default());
    lines.extend(render_intervals(&coverage.intervals, theme));
    let slow = slow.iter().flat_map(|text| display_text::wrap_text(text, width.saturating_sub(2)));
    lines.extend(slow.map(|line| Line::raw(format!(" {line}"))));
    lines
}

/// Renders the state and the sentence of a check; below it the names, who states what is known, and the next step.
fn render_check(check: &CoverageCheck, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let role = match check.state {
        CoverageState::Missing => StyleRole::Waiting,
        CoverageState::Note => StyleRole::Plain,
        CoverageState::Ok => StyleRole::Dim,
    };
    let wrap = |text: &str| display_text::wrap_text(text, width.saturating_sub(STATE + 1));
    let style = theme.style_for(role);
    let mut lines: Vec<Line<'static>> = Vec::new();
    for text in wrap(&check.summary) {
        let label = if lines.is_empty() { check.state.as_str() } else { "" };
        let text_style = if check.state == CoverageState::Ok { style } else { Style::default() };
        lines.push(Line::from(vec![
            Span::styled(format!(" {label:<0$}", STATE - 1), style),
            Span::styled(text, text_style),
        ]));
    }
    let origins = check.list_origins();
    let stated = if origins.is_empty() { String::new() } else { format!("stated by {origins}") };
    let next = if check.next.is_empty() { String::new() } else { format!("→ {}", check.next) };
    let dim = theme.style_for(StyleRole::Dim);
    for (text, style) in
        [(check.list_missing(), dim), (stated, dim), (next, theme.style_for(StyleRole::Title))]
    {
        let blank = " ".repeat(STATE);
        lines.extend(
            wrap(&text)
                .into_iter()
                .filter(|line| !line.is_empty())
                .map(|line| Line::from(vec![Span::raw(blank.clone()), Span::styled(line, style)])),
        );
    }
    lines
}

fn render_intervals(groups: &[RenewalGroup], theme: Theme) -> Vec<Line<'static>> {
    let columns = [
        text_column("EXPORTER", 14),
        text_column("values", 6),
        number_column("nodes", 7),
        number_column("renewed every", 13),
        number_column("inferred after", 14),
    ];
    let seconds = |value: Option<f64>| {
        value.map_or_else(|| display_text::ABSENT.into(), |value| format!("{value} s"))
    };
    let mut lines = vec![text_table::render_heading(&columns, theme.style_for(StyleRole::Title))];
    lines.extend(groups.iter().map(|group| {
        let cells = [
            group.dialect.as_str().to_owned(),
            group.class_label().to_owned(),
            display_text::format_count(group.nodes.into()),
            seconds(group.renewal_seconds),
            seconds(group.inferred_seconds),
        ];
        text_table::render_row(&columns, cells.map(|cell| (cell, Style::default())))
    }));
    lines
}
