//! Prompt view: the input line, with completion candidates and the error above it.

use ratatui::{
    style::{Modifier, Style},
    text::{Line, Span},
};

use crate::{
    display_text,
    prompt::{Prompt, PromptKind},
    theme::{self, StyleRole, Theme},
};

/// Columns of the widest candidate.
const CANDIDATE: usize = 28;

/// Renders the lines from the candidates down to the input line, which is the last.
///
/// ```text
///  power  power_limit  power_10s_min
///  power: Power draw of the board.
///  /pow▏
/// ```
pub(super) fn render_prompt(prompt: &Prompt, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    lines.extend(render_candidates(prompt, width, theme));
    let (line, offset) = render_input(prompt, width, theme);
    if let Some(wrong) = &prompt.error {
        let bad = theme.style_for(StyleRole::Bad);
        let mut text = " ".repeat(1 + prompt_sign(&prompt.asks).len());
        if let Some((from, length)) = wrong.span {
            text.push_str(&" ".repeat(from.saturating_sub(offset)));
            text.push_str(&"^".repeat(length.clamp(1, 40)));
            text.push(' ');
        }
        let why = format!("{text}{}", wrong.why);
        // If the error position is far to the right, the message takes precedence.
        if display_text::text_width(&why) <= width {
            lines.push(Line::styled(why, bad));
        } else {
            let why = display_text::wrap_text(&wrong.why, width.saturating_sub(2)).into_iter();
            lines.extend(why.map(|line| Line::styled(format!(" {line}"), bad)));
        }
    }
    lines.push(line);
    lines
}

const fn prompt_sign(asks: &PromptKind) -> &'static str {
    match asks {
        PromptKind::Filter(_) => "/",
        PromptKind::Command => ":",
        PromptKind::Search => "search: ",
        PromptKind::PluginInput(..) => "text: ",
        PromptKind::Note(..) => "note: ",
    }
}

/// Renders the input line, and returns how many of its columns are scrolled out so that the cursor is visible.
pub(super) fn render_input(prompt: &Prompt, width: usize, theme: Theme) -> (Line<'static>, usize) {
    let head = prompt_sign(&prompt.asks);
    let available = width.saturating_sub(head.len() + 3).max(1);
    let before: Vec<char> = prompt.text[..prompt.cursor].chars().collect();
    let offset = before.len().saturating_sub(available);
    let visible = |part: &[char]| part.iter().collect::<String>();
    let left = visible(&before[offset..]);
    let mut rest = prompt.text[prompt.cursor..].chars();
    let under = rest.next().unwrap_or(' ');
    let right = display_text::truncate_text(
        rest.as_str(),
        available.saturating_sub(display_text::text_width(&left)),
    );
    let line = Line::from(vec![
        Span::styled(format!(" {head}"), theme.style_for(StyleRole::Title)),
        Span::raw(left),
        Span::styled(under.to_string(), Style::new().add_modifier(Modifier::REVERSED)),
        Span::raw(right),
    ]);
    (line, offset)
}

/// Renders the candidates in one line, and the description of the first one in another.
fn render_candidates(prompt: &Prompt, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let offer = &prompt.completion;
    if let (PromptKind::Note(_, what), true) = (&prompt.asks, offer.candidates.is_empty()) {
        let text = format!(" acknowledge {what}: enter a note   Enter: send   Esc: cancel");
        return vec![Line::styled(
            display_text::truncate_text(&text, width),
            theme.style_for(StyleRole::Dim),
        )];
    }
    if let PromptKind::PluginInput(_, what) = &prompt.asks {
        let text = format!(" {what}   Enter: go on   Esc: cancel");
        return vec![Line::styled(
            display_text::truncate_text(&text, width),
            theme.style_for(StyleRole::Dim),
        )];
    }
    if offer.candidates.is_empty() {
        return Vec::new();
    }
    let at = offer.inserted.unwrap_or(0);
    let mut spans = vec![Span::raw(" ")];
    let mut used = 1;
    for (number, (text, _)) in offer.candidates.iter().enumerate().skip(at) {
        let text = display_text::truncate_text(text, CANDIDATE);
        let columns = display_text::text_width(&text) + 2;
        if used + columns > width {
            break;
        }
        used += columns;
        let style = theme.style_for(StyleRole::Neutral);
        let style =
            if offer.inserted == Some(number) { theme::selected_style(style) } else { style };
        spans.push(Span::styled(text, style));
        spans.push(Span::raw("  "));
    }
    let mut lines = vec![Line::from(spans)];
    if prompt.text.is_empty() && !prompt.empty_hint.is_empty() {
        let hint = display_text::truncate_text(&format!(" {}", prompt.empty_hint), width);
        lines.push(Line::styled(hint, theme.style_for(StyleRole::Waiting)));
        return lines;
    }
    let (text, note) = &offer.candidates[at];
    if !note.is_empty() {
        let note = display_text::truncate_text(&format!(" {text}: {note}"), width);
        lines.push(Line::styled(note, theme.style_for(StyleRole::Dim)));
    }
    lines
}
