//! Status line: result of the last operation, connection errors, and the shown instant of the past. It is always
//! present and mostly empty; a long message also covers the lines above it.

use std::time::Duration;

use gaunt_schema::{SanitizedText, UnixMs};
use ratatui::text::{Line, Span};

use crate::{
    console_state::{ConfirmDialog, ConsoleState, SourceStatus},
    display_text, freshness,
    screens::view_of,
    theme::{StyleRole, Theme},
};

/// Maximum lines of a message.
const LINES: usize = 4;

/// How long an instant of the past may load before that is said.
const LOADING: Duration = Duration::from_secs(1);

/// Returns the most important message, whole where it fits into a few lines; none if there is no message.
pub(super) fn render_status(
    state: &ConsoleState,
    width: usize,
    theme: Theme,
) -> Option<Vec<Line<'static>>> {
    let (text, meaning) = render_message(state)
        .or_else(|| render_failure_reason(state))
        .or_else(|| render_failed_question(state))
        .or_else(|| render_late_answer(state))
        .or_else(|| Some((format!(" ▲ {}", freshness::missing_rows(state)?), StyleRole::Waiting)))
        .or_else(|| render_past_time(state))?;
    let style = theme.style_for(meaning);
    let text = SanitizedText::new(&text);
    if display_text::text_width(&text) <= width {
        return Some(vec![Line::styled(text.to_string(), style)]);
    }
    let mut lines = wrap_message(&text, width.saturating_sub(4));
    if lines.len() > LINES {
        lines.truncate(LINES);
        if let Some(last) = lines.last_mut() {
            *last = display_text::truncate_text(&format!("{last} …"), width.saturating_sub(4));
        }
    }
    let indents = std::iter::once(" ").chain(std::iter::repeat("   "));
    let lines =
        indents.zip(lines).map(|(indent, line)| Line::styled(format!("{indent}{line}"), style));
    Some(lines.collect())
}

/// Wraps a message between its parts where each of them fits in a line, else between words.
fn wrap_message(text: &str, width: usize) -> Vec<String> {
    let parts: Vec<String> = text.split("   ").map(|part| part.trim().to_owned()).collect();
    if parts.iter().all(|part| display_text::text_width(part) <= width) {
        return display_text::join_groups(&parts, "   ", width);
    }
    display_text::wrap_text(text, width)
}

/// Renders the confirmation question, and the keys that answer it.
///
/// ```text
///  ? withdraw mira's acknowledgement of 2m ago: cable is on its way (port_down/gpu003/mlx5_1/1)?
///    y: withdraw   any other key: cancel
/// ```
pub(super) fn render_confirm(
    confirm: &ConfirmDialog,
    width: usize,
    theme: Theme,
) -> [Line<'static>; 2] {
    let question = display_text::truncate_text(&format!(" ? {}", confirm.question), width);
    let keys = vec![
        Span::styled("   y", theme.style_for(StyleRole::Title)),
        Span::styled(
            format!(": {}   any other key: cancel", confirm.yes),
            theme.style_for(StyleRole::Dim),
        ),
    ];
    [Line::styled(question, theme.style_for(StyleRole::Waiting)), Line::from(keys)]
}

/// Renders which source does not respond, and since when; none while the source responds.
pub(super) fn render_lost_source(state: &ConsoleState) -> Option<String> {
    let SourceStatus::Lost { since, .. } = &state.source_status else { return None };
    let who = state.source.as_deref().map_or_else(
        || "the sampler in this process".to_owned(),
        |address| format!("aggregator {address}"),
    );
    let lasted = display_text::format_duration(state.now.duration_since(*since));
    Some(format!(" ✖ {who}: no answer for {lasted}"))
}

/// Renders the result of the last operation.
fn render_message(state: &ConsoleState) -> Option<(String, StyleRole)> {
    let message = state.message.as_ref()?;
    let (sign, meaning) =
        if message.succeeded { ("✔", StyleRole::Good) } else { ("▲", StyleRole::Waiting) };
    Some((format!(" {sign} {}", message.text), meaning))
}

/// Renders why the source does not respond; its address is in the header.
fn render_failure_reason(state: &ConsoleState) -> Option<(String, StyleRole)> {
    let SourceStatus::Lost { since, why, .. } = &state.source_status else { return None };
    // The address is in the header.
    let why = match (why.split_once(" unreachable: "), &state.source) {
        (Some((who, why)), Some(address)) if who.ends_with(address.as_str()) => why,
        _ => why,
    };
    Some((format!(" ✖ since {}: {why}", display_text::format_time_of_day(*since)), StyleRole::Bad))
}

/// Renders why only the question of this screen failed.
fn render_failed_question(state: &ConsoleState) -> Option<(String, StyleRole)> {
    let shown = view_of(&state.screen);
    let failed = shown.failed_question(state)?;
    let lasted = display_text::format_duration(state.now.duration_since(failed.since));
    let (title, since) = (shown.header_title(), display_text::format_time_of_day(failed.since));
    Some((
        format!(" ✖ {title}: no answer since {since} ({lasted}): {}", failed.why),
        StyleRole::Bad,
    ))
}

/// Renders an overdue answer, or an earlier answer that does not change.
fn render_late_answer(state: &ConsoleState) -> Option<(String, StyleRole)> {
    let shown = view_of(&state.screen);
    let waits = |since| display_text::format_duration(state.now.duration_since(since));
    let late = |since| state.now.duration_since(since) >= state.late_threshold();
    let title = shown.header_title();
    let text = match (&state.source_status, shown.shown_at(state)) {
        (SourceStatus::Fresh(at), _) if late(*at) => {
            format!(" ▲ waiting {} for an answer from the source", waits(*at))
        }
        (SourceStatus::Fresh(_), None) if late(state.entered) && state.data.refused.is_none() => {
            format!(" ▲ {title}: waiting {} for an answer", waits(state.entered))
        }
        _ => {
            shown.shown_at(state)?;
            let age = display_text::format_duration(freshness::stale_age(state)?);
            format!(" ▲ {title}: rows are {age} old, no newer data")
        }
    };
    Some((text, StyleRole::Waiting))
}

/// Renders the shown instant of the past.
fn render_past_time(state: &ConsoleState) -> Option<(String, StyleRole)> {
    let asked = state.past_instant?;
    let answered = state.data.overview.as_deref().filter(|_| state.instant_asked.is_none());
    // The newest instant that the source keeps may be older than the one that was asked for.
    let then = answered.map_or(asked, |overview| overview.at);
    let ago = state.newest_now().map_or_else(String::new, |now| {
        format!(", {} ago", display_text::format_duration(now.duration_since(then)))
    });
    let mark =
        state.shown_mark.as_ref().map_or_else(String::new, |mark| format!(": {}", mark.text));
    let at = display_text::format_time_of_day(then);
    let is_loading = |asked: UnixMs| state.now.duration_since(asked) >= LOADING;
    if state.instant_asked.is_some_and(is_loading) {
        let shown = state.data.overview.as_deref().map(|overview| overview.at)?;
        let shown = display_text::format_time_of_day(shown);
        let text = format!(" past: {at}{ago}: loading; rows are of {shown}   .: now");
        return Some((text, StyleRole::Waiting));
    }
    let text = format!(" past: {at}{ago}{mark}   []: mark   (): 10 s   {{}}: 1 min   .: now");
    Some((text, StyleRole::Starved))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_breaks_between_its_parts() {
        let past = " past: 13:17:15Z, 17m ago: gpu_failed gpu029 · GPU 6   []: mark   (): 10 s   {}: 1 min   .: now";
        let lines = wrap_message(past, 76);
        assert_eq!(lines[1], "{}: 1 min   .: now");
        let long = "a sentence that has no parts and is wrapped between its words";
        assert_eq!(wrap_message(long, 40).len(), 2);
    }
}
