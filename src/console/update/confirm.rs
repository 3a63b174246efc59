//! Questions before something is done to many findings, or to what somebody else did: y does it, any other key does not.

use std::collections::BTreeSet;

use gaunt_schema::Safe;

use super::{Outcome, say};
use crate::{
    answer::Finding,
    console::{
        action::Effect,
        format,
        keymap::Key,
        state::{Confirm, State},
    },
};

/// Names of people that a question tells; the others are counted.
const PEOPLE: usize = 3;

/// Takes the key that answers the question.
pub(super) fn press(state: &mut State, key: Key) -> Outcome {
    let Some(confirm) = state.confirm.take() else { return Outcome::default() };
    if matches!(key, Key::Char('y' | 'Y')) {
        return Outcome::owing(Effect::Acknowledge(confirm.findings, confirm.note));
    }
    say(state, true, "nothing was changed");
    Outcome::drawn()
}

/// Asks whether acknowledgements are to be withdrawn: whose they are and what was noted.
pub(super) fn withdraw(state: &State, findings: &[&Finding]) -> Confirm {
    let taken = || findings.iter().filter_map(|finding| finding.acknowledged.as_ref());
    let question = match findings {
        [finding] => {
            let ack = taken().next();
            let by = ack.map_or("somebody", |ack| ack.by.as_str());
            let ago = ack.zip(state.source_now()).map_or_else(String::new, |(ack, now)| {
                format!(" of {} ago", format::span(now.since(ack.at)))
            });
            let note = ack.map(|ack| ack.note.as_str()).filter(|note| !note.is_empty());
            let note = note.map_or_else(|| ", no note".into(), |note| format!(": {note}"));
            format!("withdraw {by}'s acknowledgement{ago}{note} ({})?", finding.id)
        }
        many => {
            let people: BTreeSet<&str> = taken().map(|ack| ack.by.as_str()).collect();
            let mut names: Vec<&str> = people.iter().copied().take(PEOPLE).collect();
            if people.len() > PEOPLE {
                names.push("others");
            }
            let kind = many.first().map_or("", |finding| finding.kind.as_str());
            let by = names.join(", ");
            format!("withdraw {} acknowledgements of {kind}, made by {by}?", many.len())
        }
    };
    Confirm {
        question: Safe::new(&question),
        yes: "withdraws",
        findings: findings.iter().map(|finding| Safe::new(&finding.id)).collect(),
        note: None,
    }
}

/// Asks whether many findings are to be acknowledged with a note.
pub(super) fn acknowledge(findings: Vec<Safe>, what: &str, note: String) -> Confirm {
    let told = if note.is_empty() { "no note".to_owned() } else { format!("the note: {note}") };
    Confirm {
        question: Safe::new(&format!("acknowledge {what} with {told}?")),
        yes: "acknowledges",
        findings,
        note: Some(note),
    }
}
