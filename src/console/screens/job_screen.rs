//! Job screen: efficiency of one job, its losses by cause, and its outlier GPUs.

use std::time::Duration;

use gaunt_schema::{GpuState, SanitizedText, UnixMs};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use crate::{
    console_state::{ClickArea, ClickTarget, ConsoleState, ScreenLayout},
    cursor::first_visible_row,
    cursor_rows::CursorRows,
    display_text,
    key_binding::{BACK, KeyBinding, OPEN},
    screen::{DeviceScreen, JobScreen, Screen},
    screen_view::{ScreenCommand, ScreenView},
    theme::{self, StyleRole, Theme},
    view::{INDENT, LABEL, draw_lines, node_details, render_titled_line},
    widget::bar,
};
use gaunt_api::{GpuTimeline, JobDetail, Question};

/// Columns of the name of a timeline.
const NAME: usize = 22;
/// Findings with their sentence and next step; the others have a line.
const WHOLE_FINDINGS: usize = 2;
/// Minimum share of differing points for an outlier GPU.
const ODD: f64 = 0.3;

/// Name of the cursor in the GPU timelines.
const CURSOR: &str = "timelines";

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
        let strips = state.data.job.as_deref().map_or(&[][..], outlier_strips);
        let keys = strips.iter().map(|strip| strip.node.to_string()).collect();
        Some(CursorRows { cursor: CURSOR, keys })
    }

    fn item_target(&self, state: &ConsoleState) -> Option<Screen> {
        let strips = outlier_strips(state.data.job.as_deref()?);
        let at = state.cursors.of(CURSOR).row_index(strips.len(), |at| &strips[at].node);
        let strip = strips.get(at)?;
        Some(DeviceScreen::of_gpu(strip.node.clone(), &strip.gpu).into())
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
        let mut lines = vec![render_headline(job, theme)];
        lines.push(render_titled_line("USEFUL", render_useful_share(job, width, theme), theme));
        lines.extend(render_loss_causes(job, width, theme));
        for (at, finding) in job.findings.iter().enumerate() {
            let finding = node_details::render_finding(finding, job.at, width, theme);
            let shown = if at < WHOLE_FINDINGS { finding.len() } else { 1 };
            lines.extend(finding.into_iter().take(shown));
        }
        lines.push(Line::default());
        let used = (lines.len() as u16).min(area.height);
        let rest = Rect { y: area.y + used, height: area.height - used, ..area };
        let (strips, layout) = render_timelines(job, state, rest, theme);
        lines.extend(strips);
        draw_lines(buffer, area, &lines);
        layout
    }
}

fn render_headline(job: &JobDetail, theme: Theme) -> Line<'static> {
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

/// Returns the timelines that differ from the others: the answer has them first.
fn outlier_strips(job: &JobDetail) -> &[GpuTimeline] {
    let strips = &job.past.strips;
    let end = strips.iter().position(|strip| strip.odd_ratio < ODD).unwrap_or(strips.len());
    &strips[..end]
}

fn render_timelines(
    job: &JobDetail,
    state: &ConsoleState,
    area: Rect,
    theme: Theme,
) -> (Vec<Line<'static>>, ScreenLayout) {
    let timeline = &job.past;
    let available = usize::from(area.width).saturating_sub(NAME + 2 + 20).max(10);
    let points = timeline.most.chars().count().min(available);
    let span =
        display_text::format_duration(Duration::from_millis(timeline.step_ms * points as u64));
    let mut lines = vec![Line::from(vec![
        Span::styled(format!(" {:<NAME$}", "OUTLIERS"), theme.style_for(StyleRole::Title)),
        Span::styled(format!("last {span}, newest at the right"), theme.style_for(StyleRole::Dim)),
    ])];
    let mut most = vec![Span::styled(
        format!(" {}", display_text::align_left("most GPUs of the job", NAME)),
        theme.style_for(StyleRole::Dim),
    )];
    most.extend(render_timeline(&timeline.most, points, theme));
    lines.push(Line::from(most));
    let page = usize::from(area.height).saturating_sub(2).max(1);
    let strips = outlier_strips(job);
    if strips.is_empty() {
        lines.push(Line::styled(" no GPU differs", theme.style_for(StyleRole::Dim)));
    }
    let at = state.cursors.of(CURSOR).row_index(strips.len(), |at| &strips[at].node);
    let from = first_visible_row(at, strips.len(), page);
    let mut click_areas = Vec::new();
    for (row, strip) in strips.iter().enumerate().skip(from).take(page) {
        let y = area.y + lines.len() as u16;
        click_areas
            .push(ClickArea { area: Rect { y, height: 1, ..area }, target: ClickTarget::Row(row) });
        lines.push(render_named_timeline(strip, row == at, points, theme));
    }
    (lines, ScreenLayout { page, click_areas, ..ScreenLayout::default() })
}

fn render_named_timeline(
    one: &GpuTimeline,
    chosen: bool,
    points: usize,
    theme: Theme,
) -> Line<'static> {
    let name = display_text::align_left(&format!("{} GPU {}", one.node, one.gpu), NAME);
    let style = if chosen { theme::selected_style(Style::new()) } else { Style::new() };
    let mut spans = vec![Span::raw(" "), Span::styled(name, style)];
    spans.extend(render_timeline(&one.states, points, theme));
    let text = format!("  ◂ differs {} %", display_text::format_whole_percent(Some(one.odd_ratio)));
    spans.push(Span::styled(text, theme.style_for(StyleRole::Title)));
    Line::from(spans)
}

/// Renders the newest part of a timeline; adjacent points of one state share a span.
fn render_timeline(states: &str, points: usize, theme: Theme) -> Vec<Span<'static>> {
    let skipped = states.chars().count().saturating_sub(points);
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut last = None;
    for code in states.chars().skip(skipped) {
        let state = GpuState::from_letter_code(code).unwrap_or(GpuState::Unknown);
        let sign = theme::state_sign(state);
        match spans.last_mut() {
            Some(span) if last == Some(state) => span.content.to_mut().push_str(sign),
            _ => spans.push(Span::styled(sign, theme.state_style(state))),
        }
        last = Some(state);
    }
    spans
}
