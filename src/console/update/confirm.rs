//! Confirmation before an operation on many findings or on other users' acknowledgements: y confirms, any other key
//! cancels.

use std::collections::BTreeSet;

use gaunt_schema::SanitizedText;

use super::update_outcome::UpdateOutcome;
use crate::{
    action::ConsoleEffect,
    console_state::{ConfirmDialog, ConfirmedOperation, ConsoleState},
    display_text,
    key_press::KeyPress,
};
use gaunt_api::Finding;

/// Number of users named in a question; the others are counted.
const PEOPLE: usize = 3;

/// Handles the key that answers the question.
pub(super) fn handle_key(state: &mut ConsoleState, key: KeyPress) -> UpdateOutcome {
    let Some(confirm) = state.confirm.take() else { return UpdateOutcome::default() };
    if matches!(key, KeyPress::Char('y' | 'Y')) {
        return UpdateOutcome::with_effect(match confirm.operation {
            ConfirmedOperation::Acknowledge(findings, note) => {
                ConsoleEffect::Acknowledge(findings, note)
            }
            ConfirmedOperation::Run(command) => ConsoleEffect::Run(command),
        });
    }
    state.show_message(true, "cancelled, nothing changed");
    UpdateOutcome::with_redraw()
}

/// Asks for confirmation to withdraw acknowledgements, with their users and notes.
pub(super) fn confirm_withdrawal(state: &ConsoleState, findings: &[&Finding]) -> ConfirmDialog {
    let acknowledgements = || findings.iter().filter_map(|finding| finding.acknowledged.as_ref());
    let question = match findings {
        [finding] => {
            let ack = acknowledgements().next();
            let by = ack.map_or("unknown user", |ack| ack.by.as_str());
            let ago = ack.zip(state.source_now()).map_or_else(String::new, |(ack, now)| {
                format!(" of {} ago", display_text::format_duration(now.duration_since(ack.at)))
            });
            let note = ack.map(|ack| ack.note.as_str()).filter(|note| !note.is_empty());
            let note = note.map_or_else(|| ", no note".into(), |note| format!(": {note}"));
            format!("withdraw {by}'s acknowledgement{ago}{note} ({})?", finding.id)
        }
        many => {
            let people: BTreeSet<&str> = acknowledgements().map(|ack| ack.by.as_str()).collect();
            let mut names: Vec<&str> = people.iter().copied().take(PEOPLE).collect();
            if people.len() > PEOPLE {
                names.push("others");
            }
            let kind = many.first().map_or("", |finding| finding.kind.as_str());
            let by = names.join(", ");
            format!("withdraw {} acknowledgements of {kind}, made by {by}?", many.len())
        }
    };
    ConfirmDialog {
        question: SanitizedText::new(&question),
        yes: "withdraw",
        operation: ConfirmedOperation::Acknowledge(
            findings.iter().map(|finding| SanitizedText::new(&finding.id)).collect(),
            None,
        ),
    }
}

/// Asks for confirmation to acknowledge many findings with a note.
pub(super) fn confirm_acknowledgement(
    findings: Vec<SanitizedText>,
    what: &str,
    note: String,
) -> ConfirmDialog {
    let note_text =
        if note.is_empty() { "no note".to_owned() } else { format!("the note: {note}") };
    ConfirmDialog {
        question: SanitizedText::new(&format!("acknowledge {what} with {note_text}?")),
        yes: "acknowledge",
        operation: ConfirmedOperation::Acknowledge(findings, Some(note)),
    }
}
