//! Placeholders for screens without data: each shows the reason and the next step.

use ratatui::{buffer::Buffer, layout::Rect, text::Line};

use super::{MIN_HEIGHT, MIN_WIDTH, draw_lines};
use crate::{
    console_state::{ConsoleState, ScreenLayout, SourceStatus},
    display_text,
    failed_questions::FailedQuestion,
    theme::{StyleRole, Theme},
};
use gaunt_api::{Overview, Refusal};

/// Draws the message for a terminal that is too small, in as few columns as possible.
///
/// ```text
/// 40×10 is too small:
/// gaunt needs 60×12
/// ```
pub(crate) fn draw_too_small(buffer: &mut Buffer, area: Rect) {
    let (width, height) = (area.width, area.height);
    let lines = [
        Line::raw(format!("{width}×{height} is too small:")),
        Line::raw(format!("gaunt needs {MIN_WIDTH}×{MIN_HEIGHT}")),
        Line::raw("q: quit"),
    ];
    draw_lines(buffer, area, &lines);
}

/// Draws the screen before the first answer: the address of the source, and the error if the connection failed.
///
/// ```text
///  Connecting to aggregator 10.0.0.5:9771 …
///
///  ✖ no answer since 12:01:10Z (31s)
///    aggregator 10.0.0.5:9771 unreachable: connection refused; is `gaunt serve`
///    running there?
///    Retrying until it answers.
/// ```
pub(crate) fn draw_loading(
    buffer: &mut Buffer,
    area: Rect,
    state: &ConsoleState,
    theme: Theme,
) -> ScreenLayout {
    let source_line = state.source.as_deref().map_or_else(
        || "Waiting for the first scrape …".to_owned(),
        |address| format!("Connecting to aggregator {address} …"),
    );
    let mut lines = vec![Line::default(), Line::raw(format!(" {source_line}"))];
    if let SourceStatus::Lost { since, why, .. } = &state.source_status {
        let lasted = display_text::format_duration(state.now.duration_since(*since));
        let first =
            format!(" ✖ no answer since {} ({lasted})", display_text::format_time_of_day(*since));
        lines.push(Line::default());
        lines.push(Line::styled(first, theme.style_for(StyleRole::Bad)));
        let width = usize::from(area.width).saturating_sub(4);
        lines.extend(
            display_text::wrap_text(why, width).into_iter().map(|l| Line::raw(format!("   {l}"))),
        );
        lines.push(Line::styled("   Retrying until it answers.", theme.style_for(StyleRole::Dim)));
    }
    draw_lines(buffer, area, &lines);
    ScreenLayout::default()
}

/// Renders the message for an empty fleet with the next step.
pub(crate) fn render_empty_fleet(
    overview: &Overview,
    width: u16,
    theme: Theme,
) -> Vec<Line<'static>> {
    let text = match overview.nodes.pending {
        0 => {
            "No target is configured. Run `gaunt-node` on each GPU node. Name the targets of \
             `gaunt serve` by --targets 'gpu[001-064]', by --file-sd 'sd/*.json', or by groups in \
             its settings. SIGHUP reloads files and settings."
        }
        _ if overview.trouble.is_empty() => "Waiting for the first scrape of every target …",
        _ => "No target has answered yet. Press 9 for the error of each target.",
    };
    let mut lines = vec![Line::default()];
    let wrapped = display_text::wrap_text(text, usize::from(width).saturating_sub(4));
    let style = theme.style_for(StyleRole::Plain);
    lines.extend(wrapped.into_iter().map(|line| Line::styled(format!("   {line}"), style)));
    lines
}

/// Describes a refusal, and the keys of the next step: the texts of the API name its paths.
fn describe_refusal(refusal: &Refusal) -> (String, &'static str) {
    match refusal {
        Refusal::UnknownNode { node } => {
            (format!("no node is named {node}"), "Esc: back   5: nodes")
        }
        Refusal::UnknownJob { job } => {
            (format!("no job {job} holds a GPU now"), "Esc: back   3: jobs")
        }
        Refusal::UnknownFinding { finding } => {
            (format!("no open or closed finding {finding}"), "Esc: back   2: findings")
        }
        other => (other.to_string(), "Esc: back   5: nodes"),
    }
}

/// Draws a screen that waits for its answer or will get none.
pub(crate) fn draw_waiting(
    buffer: &mut Buffer,
    area: Rect,
    what: &str,
    failed: Option<&FailedQuestion>,
    state: &ConsoleState,
    theme: Theme,
) -> ScreenLayout {
    let width = area.width;
    let mut lines = vec![Line::default()];
    if let Some(refusal) = &state.data.refused {
        let (reason, keys) = describe_refusal(refusal);
        let text = display_text::wrap_text(&reason, usize::from(width).saturating_sub(4));
        let signs = std::iter::once("✖").chain(std::iter::repeat(" "));
        let text = signs.zip(text).map(|(sign, line)| format!(" {sign} {line}"));
        lines.extend(text.map(|line| Line::styled(line, theme.style_for(StyleRole::Bad))));
        lines.push(Line::styled(format!("   {keys}"), theme.style_for(StyleRole::Dim)));
    } else {
        let waited = state.now.duration_since(state.entered);
        let waited = if waited < state.late_threshold() {
            String::new()
        } else {
            format!(" for {}", display_text::format_duration(waited))
        };
        let text = format!(" Loading {what} …{waited}");
        lines.push(Line::styled(text, theme.style_for(StyleRole::Dim)));
        if let Some(failed) = failed {
            let why = display_text::wrap_text(&failed.why, usize::from(width).saturating_sub(4));
            let why = why.into_iter().map(|line| format!("   {line}"));
            lines.extend(why.map(|line| Line::styled(line, theme.style_for(StyleRole::Bad))));
        }
    }
    draw_lines(buffer, area, &lines);
    ScreenLayout::default()
}
