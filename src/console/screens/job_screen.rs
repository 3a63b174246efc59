//! Job screen: efficiency of one job, its losses by cause, its outlier GPUs, and its nodes.

use std::time::Duration;

use gaunt_schema::{GpuState, SanitizedText, UnixMs};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use crate::{
    console_state::{ClickArea, ClickTarget, ConsoleState, ScreenLayout},
    cursor::first_visible_row,
    cursor_rows::CursorRows,
    display_text,
    key_binding::{BACK, KeyBinding, OPEN},
    screen::{DeviceScreen, JobScreen, NodeScreen, Screen},
    screen_view::{ScreenCommand, ScreenView},
    theme::{self, StyleRole, Theme},
    view::{
        INDENT, LABEL, draw_lines,
        job_rows::{self, JobNodeTable, JobRow, NAME},
        node_details, render_titled_line,
    },
    widget::bar,
};
use gaunt_api::{JobDetail, Question};

/// Findings with their sentence and next step; the others have a line.
const WHOLE_FINDINGS: usize = 2;
/// Minimum number of lines for the rows: a screen that is too low for all leaves out the end of what is above them.
const ROWS_MIN: u16 = 3;

/// Name of the cursor in the outlier GPUs and nodes.
const CURSOR: &str = "job rows";

impl ScreenView for JobScreen {
    fn commands() -> &'static [ScreenCommand] {
        const {
            &[ScreenCommand::other("job", "one job", |job| {
                Ok(JobScreen(SanitizedText::new(job)).into())
            })
            .with_arguments("NUMBER", "a number", false)]
        }
    }

    fn header_title(&self) -> String {
        format!("job {}", self.0)
    }

    fn keys(&self) -> &'static [&'static [KeyBinding]] {
        &[&[OPEN, BACK]]
    }

    fn questions(&self, _state: &ConsoleState) -> Vec<Question> {
        vec![Question::Job(self.0.clone())]
    }

    fn shown_at(&self, state: &ConsoleState) -> Option<UnixMs> {
        state.data.job.as_deref().filter(|job| job.job == self.0).map(|job| job.at)
    }

    fn cursor_rows(&self, state: &ConsoleState) -> Option<CursorRows> {
        let rows = state.data.job.as_deref().map_or_else(Vec::new, job_rows::collect_rows);
        Some(CursorRows { cursor: CURSOR, keys: rows.iter().map(JobRow::key).collect() })
    }

    fn item_target(&self, state: &ConsoleState) -> Option<Screen> {
        let rows = job_rows::collect_rows(state.data.job.as_deref()?);
        match rows.get(self.cursor_rows(state)?.index(state))? {
            JobRow::Outliers(outliers) => {
                let node = outliers.timeline.node.clone();
                Some(match outliers.gpus.as_slice() {
                    [gpu] => DeviceScreen::of_gpu(node, gpu).into(),
                    _ => NodeScreen(node).into(),
                })
            }
            JobRow::Node(node) => Some(NodeScreen(node.name.clone()).into()),
        }
    }

    /// Draws the job.
    ///
    /// ```text
    ///  job 8812  llama-pt   alice · llm   64 nodes · 512 GPUs   running 3d04h
    ///  USEFUL    ███████████████████████████░░░░░░░░░░░░░  68 %   163 of 512 GPUs lost
    ///  LOST BY   waiting 12.4 GPU·h  data_starved 1.1 GPU·h in the last 30m
    ///  ✖ compute_straggler  gpu-0417 · GPU 5   since 2m
    ///    gpu-0417 · GPU 5 is a straggler: …
    ///    next: check its clocks and limits
    ///
    ///  OUTLIERS                last 1m58, newest at the right
    ///  most GPUs of the job    ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
    ///  gpu-0417 GPU 5          █████████████████████████████████████████████  ◂ differs 98 %
    ///
    ///  NODES     GPUs      finding               util %   SM %  power W
    ///  gpu-0417  ░░░░░█░░  compute_straggler        100     61    3,310
    ///  gpu-0401  ░░░░░░░░                           100     16    1,840
    /// ```
    fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout {
        let known = state.data.job.as_deref().filter(|job| job.job == self.0);
        let Some(job) = known.filter(|_| state.data.refused.is_none()) else {
            return self.draw_waiting(buffer, area, &self.header_title(), state, theme);
        };
        let width = usize::from(area.width);
        let mut lines = vec![render_headline(job, width, theme)];
        lines.push(render_titled_line("USEFUL", render_useful_share(job, width, theme), theme));
        lines.extend(render_loss_causes(job, width, theme));
        for (at, finding) in job.findings.iter().enumerate() {
            let finding = node_details::render_finding(finding, false, job.at, width, theme);
            let shown = if at < WHOLE_FINDINGS { finding.len() } else { 1 };
            lines.extend(finding.into_iter().take(shown));
        }
        lines.push(Line::default());
        lines.truncate(area.height.saturating_sub(ROWS_MIN).into());
        let used = lines.len() as u16;
        let rest = Rect { y: area.y + used, height: area.height - used, ..area };
        draw_lines(buffer, area, &lines);
        draw_rows(buffer, rest, job, state, theme)
    }
}

/// Renders name, owner, size and run time; what does not fit is left out whole, from the end.
fn render_headline(job: &JobDetail, width: usize, theme: Theme) -> Line<'static> {
    let text = |name: &str| job.line.find_column(name).and_then(|column| column.text_at(0));
    let number = |name: &str| job.line.find_column(name).and_then(|column| column.number_at(0));
    let mut spans =
        vec![Span::styled(format!(" job {}", job.job), theme.style_for(StyleRole::Title))];
    if let Some(name) = text("job_name") {
        spans.push(Span::styled(format!("  {name}"), theme.style_for(StyleRole::Title)));
    }
    let who: Vec<String> = ["user", "account", "partition", "namespace"]
        .iter()
        .filter_map(|name| text(name).map(ToString::to_string))
        .collect();
    if !who.is_empty() {
        spans.push(Span::raw(format!("   {}", who.join(" · "))));
    }
    let count = |name: &str| {
        number(name).map_or_else(|| display_text::ABSENT.into(), display_text::format_gpu_count)
    };
    spans.push(Span::raw(format!("   {} nodes · {} GPUs", count("nodes"), count("gpus"))));
    if let Some(seconds) = number("runtime") {
        let span = display_text::format_duration(Duration::from_secs_f64(seconds.clamp(0.0, 1e12)));
        spans.push(Span::raw(format!("   running {span}")));
    }
    while spans.len() > 1 && spans.iter().map(Span::width).sum::<usize>() > width {
        spans.pop();
    }
    Line::from(spans)
}

/// Renders the GPUs by state, and the share whose time is not lost.
fn render_useful_share(job: &JobDetail, width: usize, theme: Theme) -> Vec<Span<'static>> {
    let amounts: Vec<u64> = job.states.iter().map(|count| count.gpus.into()).collect();
    let columns = bar::share_columns(&amounts, width.saturating_sub(LABEL + 1 + 46).min(60));
    let mut spans: Vec<Span<'static>> = job
        .states
        .iter()
        .zip(columns)
        .map(|(count, columns)| {
            Span::styled(
                theme::state_sign(count.state).repeat(columns),
                theme.state_style(count.state),
            )
        })
        .collect();
    let gpus_in = |is_counted: fn(GpuState) -> bool| -> u32 {
        job.states.iter().filter(|count| is_counted(count.state)).map(|count| count.gpus).sum()
    };
    let unknown = gpus_in(|state| matches!(state, GpuState::Stale | GpuState::Unknown));
    let (all, lost) = (gpus_in(|_| true), job.lost_gpus);
    let known = f64::from(all - unknown);
    let share = (known > 0.0).then(|| (known - lost) / known);
    let meaning = if lost > 0.0 { StyleRole::Bad } else { StyleRole::Good };
    let text = format!("  {} %", display_text::format_whole_percent(share));
    spans.push(Span::styled(text, theme.style_for(meaning)));
    spans
        .push(Span::raw(format!("   {} of {all} GPUs lost", display_text::format_gpu_count(lost))));
    spans
}

/// Renders the losses in the retained history, by the state of the GPUs, in as many lines as needed.
fn render_loss_causes(job: &JobDetail, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let timeline = &job.past;
    let span = display_text::format_duration(Duration::from_millis(timeline.span_ms));
    let mut spans = Vec::new();
    for time in &timeline.lost {
        let text = format!("{} {:.2} GPU·h  ", time.state.as_str(), time.gpu_hours);
        spans.push(Span::styled(text, theme.state_style(time.state)));
    }
    if spans.is_empty() {
        spans.push(Span::styled("none", theme.style_for(StyleRole::Good)));
        spans.push(Span::raw("  "));
    }
    spans.push(Span::styled(format!("in the last {span}"), theme.style_for(StyleRole::Dim)));
    let available = width.saturating_sub(INDENT);
    let (mut rows, mut row, mut used) = (Vec::new(), Vec::new(), 0);
    for span in spans {
        // The gap after the last part of a line need not fit.
        let needed = display_text::text_width(span.content.trim_end());
        if used > 0 && used + needed > available {
            rows.push(std::mem::take(&mut row));
            used = 0;
        }
        used += span.width();
        row.push(span);
    }
    rows.push(row);
    let titles = std::iter::once("LOST BY").chain(std::iter::repeat(""));
    titles.zip(rows).map(|(title, row)| render_titled_line(title, row, theme)).collect()
}

/// A line of the lower part.
#[derive(Clone, Copy, Debug)]
enum JobLine {
    /// Title of the timelines.
    Title,
    /// Timeline of most GPUs.
    Most,
    /// That no GPU differs.
    NoOutlier,
    /// A blank line.
    Blank,
    /// Headings of the nodes.
    NodeHeading,
    /// The row of this index.
    Row(usize),
}

/// Draws outlier GPUs and nodes, scrolled to the cursor.
fn draw_rows(
    buffer: &mut Buffer,
    area: Rect,
    job: &JobDetail,
    state: &ConsoleState,
    theme: Theme,
) -> ScreenLayout {
    let rows = job_rows::collect_rows(job);
    let keys = rows.iter().map(JobRow::key).collect();
    let chosen = CursorRows { cursor: CURSOR, keys }.index(state);
    let outliers = rows.iter().take_while(|row| matches!(row, JobRow::Outliers(_))).count();
    let mut lines = vec![JobLine::Title, JobLine::Most];
    lines.extend((outliers == 0).then_some(JobLine::NoOutlier));
    lines.extend((0..outliers).map(JobLine::Row));
    if outliers < rows.len() {
        lines.extend([JobLine::Blank, JobLine::NodeHeading]);
        lines.extend((outliers..rows.len()).map(JobLine::Row));
    }
    let at = lines.iter().position(|line| matches!(line, JobLine::Row(row) if *row == chosen));
    let page = usize::from(area.height).max(1);
    let from = first_visible_row(at.unwrap_or(0), lines.len(), page);

    let width = usize::from(area.width);
    let table = JobNodeTable::new(job, &rows[outliers..], width);
    let timeline = &job.past;
    let points = timeline.most.chars().count().min(width.saturating_sub(NAME + 2 + 20).max(10));
    let mut click_areas = Vec::new();
    for (y, line) in (area.top()..area.bottom()).zip(&lines[from..]) {
        let line = match *line {
            JobLine::Title => {
                let span = Duration::from_millis(timeline.step_ms * points as u64);
                job_rows::render_title(span, theme)
            }
            JobLine::Most => job_rows::render_most(&timeline.most, points, theme),
            JobLine::NoOutlier => Line::styled(" no GPU differs", theme.style_for(StyleRole::Dim)),
            JobLine::Blank => Line::default(),
            JobLine::NodeHeading => table.render_heading(theme),
            JobLine::Row(row) => {
                let area = Rect { y, height: 1, ..area };
                click_areas.push(ClickArea { area, target: ClickTarget::Row(row) });
                match &rows[row] {
                    JobRow::Outliers(gpus) => {
                        job_rows::render_outliers(gpus, row == chosen, points, theme)
                    }
                    JobRow::Node(node) => table.render_node(node, row == chosen, theme),
                }
            }
        };
        buffer.set_line(area.x, y, &line, area.width);
    }
    ScreenLayout { page, click_areas, ..ScreenLayout::default() }
}
