//! Completion of the prompt: the candidates at its cursor, from the fields, the shown values and the commands.

use std::collections::BTreeMap;

use gaunt_schema::SanitizedText;

use super::{
    prompt::{Prompt, PromptCompletion, PromptKind},
    prompt_commands, screens,
    theme::Palette,
};
use gaunt_api::{Subject, SubjectField, filter::complete_filter};

/// The word of `:cluster` for all of them.
pub(crate) const ALL_CLUSTERS: &str = "all";

/// Data for the completion.
pub(crate) struct CompletionContext<'a> {
    /// The names of joined clusters.
    pub(crate) clusters: &'a [SanitizedText],
    /// Returns the current text values of a field.
    pub(crate) values: &'a dyn Fn(&SubjectField) -> Vec<SanitizedText>,
    /// Names of the nodes.
    pub(crate) nodes: &'a [SanitizedText],
    /// Aggregators of the user's file, with their addresses.
    pub(crate) contexts: &'a [(String, String)],
    /// Commands of saved rows, by name.
    pub(crate) saved: &'a BTreeMap<String, String>,
    /// Subject that a filter applies to on the shown screen.
    pub(crate) subject: Option<Subject>,
}

/// Returns the candidates at the cursor of the prompt.
pub(crate) fn complete_prompt(prompt: &Prompt, known: &CompletionContext<'_>) -> PromptCompletion {
    match &prompt.asks {
        PromptKind::Filter(subject) => {
            let found = complete_filter(*subject, &prompt.text, prompt.cursor, known.values);
            let candidates = found.candidates.into_iter().map(|c| (c.text, c.note));
            PromptCompletion {
                from: found.from,
                to: found.to,
                candidates: candidates.collect(),
                inserted: None,
            }
        }
        PromptKind::Command => complete_command(&prompt.text[..prompt.cursor], known),
        PromptKind::Note(..) | PromptKind::Search | PromptKind::PluginInput(..) => {
            PromptCompletion::default()
        }
    }
}

/// Returns the completions of the beginning of a command.
fn complete_command(before: &str, known: &CompletionContext<'_>) -> PromptCompletion {
    let pick = |from: usize, typed: &str, words: Vec<(String, String)>| {
        let candidates = words.into_iter().filter(|(word, _)| word.starts_with(typed)).take(64);
        PromptCompletion {
            from,
            to: before.len(),
            candidates: candidates.collect(),
            inserted: None,
        }
    };
    let Some((word, rest)) = before.split_once(' ') else {
        let screens = screens::main_commands().into_iter();
        let words = screens
            .map(|command| (command.word, "", command.help))
            .chain(prompt_commands::listed_commands());
        let words = words.map(|(word, args, help)| {
            (word.to_owned(), format!("{args}{}{help}", if args.is_empty() { "" } else { "  " }))
        });
        let saved = known.saved.iter().map(|(name, command)| (name.clone(), command.clone()));
        return pick(0, before, words.chain(saved).collect());
    };
    let typed = rest.rsplit([' ', ',']).next().unwrap_or(rest);
    let from = before.len() - typed.len();
    let plain =
        |words: &[&str]| words.iter().map(|word| ((*word).to_owned(), String::new())).collect();
    let fields = |subject: Subject| {
        let fields = subject.all_fields().iter();
        fields.map(|field| (field.name.clone(), field.help.to_owned())).collect()
    };
    let subject = known.subject.unwrap_or(Subject::Gpus);
    match word {
        "theme" => pick(from, typed, plain(&Palette::ALL.map(Palette::as_str))),
        "ctx" => pick(from, typed, known.contexts.to_vec()),
        "cluster" => {
            let names = known.clusters.iter().map(|name| (name.to_string(), String::new()));
            pick(from, typed, names.chain([(ALL_CLUSTERS.to_owned(), String::new())]).collect())
        }
        "forget" => {
            let saved = known.saved.iter().map(|(name, command)| (name.clone(), command.clone()));
            pick(from, typed, saved.collect())
        }
        "mouse" => pick(from, typed, plain(&["on", "off"])),
        "write" if rest == typed => pick(from, typed, plain(&["csv", "json"])),
        "at" => pick(from, typed, plain(&["-1m", "-5m", "-10m", "-20m", "now"])),
        "columns" | "sort" => pick(from, typed, fields(subject)),
        "colour" | "color" => pick(from, typed, fields(Subject::Gpus)),
        _ if completes_node(word) && rest == typed => pick(
            from,
            typed,
            known.nodes.iter().map(|node| (node.to_string(), String::new())).collect(),
        ),
        _ => complete_rows(word, rest, known),
    }
}

/// Returns the completions of the rows of a list's command: `nodes lo`.
fn complete_rows(word: &str, rest: &str, known: &CompletionContext<'_>) -> PromptCompletion {
    let command = screens::screen_commands().find(|command| command.word == word);
    let screen = command.filter(|it| it.arguments.is_empty()).and_then(|it| (it.open)("").ok());
    let subject = screen.and_then(|screen| screens::view_of(&screen).filter_subject());
    let Some(subject) = subject else { return PromptCompletion::default() };
    // Shown values are those of the shown screen.
    let none = |_: &SubjectField| Vec::new();
    let values = if known.subject == Some(subject) { known.values } else { &none };
    let found = complete_filter(subject, rest, rest.len(), values);
    let before = word.len() + 1;
    PromptCompletion {
        from: before + found.from,
        to: before + found.to,
        candidates: found.candidates.into_iter().map(|c| (c.text, c.note)).collect(),
        inserted: None,
    }
}

/// Returns whether the first argument of a command is the name of a node.
fn completes_node(word: &str) -> bool {
    screens::screen_commands().any(|command| command.word == word && command.takes_node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        key_press::KeyPress,
        prompt::{PromptHistory, PromptOutcome},
    };

    fn type_into(prompt: &mut Prompt, keys: &[KeyPress]) -> PromptOutcome {
        let values = |field: &SubjectField| {
            if field.name == "node" { vec!["gpu001".into(), "gpu 2".into()] } else { Vec::new() }
        };
        let known = CompletionContext {
            values: &values,
            nodes: &[],
            contexts: &[],
            clusters: &[],
            saved: &BTreeMap::new(),
            subject: None,
        };
        keys.iter().fold(PromptOutcome::Edited, |_, key| {
            let outcome = prompt.handle_key(*key, &PromptHistory::default());
            if outcome == PromptOutcome::Edited {
                prompt.completion = complete_prompt(prompt, &known);
            }
            outcome
        })
    }

    #[test]
    fn completion_cycles_through_valid_words() {
        let mut prompt = Prompt::new(PromptKind::Filter(Subject::Nodes), "");
        type_into(&mut prompt, &['n', 'o', 'd'].map(KeyPress::Char));
        type_into(&mut prompt, &[KeyPress::Tab]);
        assert_eq!(prompt.text, "node");
        type_into(&mut prompt, &[KeyPress::Char('=')]);
        type_into(&mut prompt, &[KeyPress::Tab]);
        assert_eq!(prompt.text, "node=gpu001");
        type_into(&mut prompt, &[KeyPress::Tab]);
        assert_eq!(prompt.text, "node=\"gpu 2\"");
        type_into(&mut prompt, &[KeyPress::BackTab]);
        assert_eq!(prompt.text, "node=gpu001");
        let entered = type_into(&mut prompt, &[KeyPress::Enter]);
        assert_eq!(entered, PromptOutcome::Entered("node=gpu001".into()));
    }
}
