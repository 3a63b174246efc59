//! Copies a finding as Markdown, for a ticket or a chat.

use super::update_outcome::UpdateOutcome;
use crate::{action::ConsoleEffect, console_state::ConsoleState, display_text, screens::view_of};
use gaunt_api::{API, Finding, FindingText};

/// Copies the opened finding, or the one under the cursor.
pub(super) fn copy_markdown(state: &mut ConsoleState) -> UpdateOutcome {
    let Some(text) = render_ticket(state) else {
        state.show_message(false, "choose a finding to copy it for a ticket");
        return UpdateOutcome::with_redraw();
    };
    UpdateOutcome::with_effect(ConsoleEffect::Copy(text))
}

fn render_ticket(state: &ConsoleState) -> Option<String> {
    let view = view_of(&state.screen);
    let finding: &Finding = if view.finding_id().is_some() {
        state.data.finding.as_ref().map(|(finding, _)| finding)?
    } else {
        view.finding_row(state)?.single_finding()?
    };
    let explained = state.data.explained.as_deref();
    let explanation = explained.filter(|explained| explained.finding.id == finding.id);
    let link = state.source.as_ref().map(|source| {
        let scheme = if source.contains("://") { "" } else { "http://" };
        format!("{scheme}{}{API}/findings/{}", source.trim_end_matches('/'), finding.id)
    });
    let text = FindingText {
        finding,
        at: state.data.overview.as_deref().map_or(state.now, |overview| overview.at),
        context: state.finding_context(&finding.id),
        explanation,
        plots: &[],
        link: link.as_deref(),
        format: &display_text::format_with_unit,
    };
    Some(text.render_markdown())
}
