//! Input of the prompt: filters, commands and notes.

use std::{collections::HashMap, path::PathBuf};

use gaunt_schema::SanitizedText;

use super::{
    confirm, navigation, plugin_input, saved_rows, time_navigation, update_outcome::UpdateOutcome,
};
use crate::{
    action::{ConsoleEffect, KeyIntent},
    console_state::{ConsoleState, OverviewPanel},
    csv_export::ExportFormat,
    finding_list_rows::FindingRow,
    key_press::KeyPress,
    prompt::{Prompt, PromptError, PromptKind, PromptOutcome},
    prompt_commands::{self, PromptCommand},
    prompt_completion::{ALL_CLUSTERS, CompletionContext, complete_prompt},
    screen::Screen,
    screens::view_of,
};
use gaunt_api::{Filter, Finding, Question, Subject, SubjectField, filter::MAX_ROWS};

/// Opens the prompt.
pub(super) fn open_prompt(state: &mut ConsoleState, intent: KeyIntent) -> UpdateOutcome {
    let prompt = match (intent, view_of(&state.screen).filter_subject()) {
        (KeyIntent::Filter | KeyIntent::Columns, None) => return UpdateOutcome::default(),
        (KeyIntent::Filter, Some(subject)) => open_filter_prompt(state, subject),
        (KeyIntent::Columns, Some(subject)) => {
            let columns = state.list_state(subject).shown_columns();
            let names: Vec<&str> = columns.iter().map(|field| field.name.as_str()).collect();
            Prompt::new(PromptKind::Command, &format!("columns {}", names.join(",")))
        }
        (KeyIntent::Acknowledge, _) => return start_acknowledgement(state),
        _ => Prompt::new(PromptKind::Command, ""),
    };
    show_prompt(state, prompt);
    UpdateOutcome::with_redraw()
}

/// Returns an empty prompt for a filter; Up recalls the one that it replaces.
fn open_filter_prompt(state: &mut ConsoleState, subject: Subject) -> Prompt {
    let asks = PromptKind::Filter(subject);
    let rows = state.list_state(subject).rows.clone();
    let mut prompt = Prompt::new(asks.clone(), "");
    if !rows.is_empty() {
        state.prompt_history.record_line(&asks, &rows);
        prompt.empty_hint =
            SanitizedText::new(&format!("Enter: all rows   Esc: cancel   Up: edit {rows}"));
    }
    prompt
}

/// Shows the prompt with its completion candidates.
pub(super) fn show_prompt(state: &mut ConsoleState, mut prompt: Prompt) {
    let subject = view_of(&state.screen).filter_subject();
    let table = subject.and_then(|subject| state.subject_table(subject));
    let values = |field: &SubjectField| -> Vec<SanitizedText> {
        let column = table.and_then(|table| table.find_column(&field.name));
        match column.map(|column| &column.cells) {
            Some(gaunt_api::AnswerCells::Texts { words, .. }) => words.clone(),
            _ => Vec::new(),
        }
    };
    let nodes = state.data.overview.as_deref().map_or(&[][..], |overview| &overview.heat.nodes);
    let contexts: Vec<(String, String)> = state
        .config
        .contexts
        .iter()
        .map(|(name, address)| (name.clone(), address.aggregator.clone()))
        .collect();
    let clusters = &state.clusters;
    let saved = &state.preferences.saved;
    let context =
        CompletionContext { values: &values, nodes, contexts: &contexts, clusters, saved, subject };
    prompt.completion = complete_prompt(&prompt, &context);
    state.prompt = Some(prompt);
}

/// Opens the prompt for a note on the finding, or withdraws its acknowledgement.
fn start_acknowledgement(state: &mut ConsoleState) -> UpdateOutcome {
    let findings = findings_to_acknowledge(state);
    let Some(first) = findings.first() else { return UpdateOutcome::default() };
    if state.past_instant.is_some() {
        state.show_message(false, "cannot acknowledge at a past time; press . to return to now");
        return UpdateOutcome::with_redraw();
    }
    let open: Vec<SanitizedText> = findings
        .iter()
        .filter(|finding| finding.acknowledged.is_none())
        .map(|finding| SanitizedText::new(&finding.id))
        .collect();
    let what = match &open[..] {
        // One key does not withdraw acknowledgements of other users.
        [] => {
            state.confirm = Some(confirm::confirm_withdrawal(state, &findings));
            return UpdateOutcome::with_redraw();
        }
        [one] => one.clone(),
        many => SanitizedText::new(&format!("{} findings of {}", many.len(), first.kind)),
    };
    show_prompt(state, Prompt::new(PromptKind::Note(open, what), ""));
    UpdateOutcome::with_redraw()
}

/// Returns the findings that an acknowledgement or its withdrawal applies to: those of the row under the cursor.
fn findings_to_acknowledge(state: &ConsoleState) -> Vec<&Finding> {
    let view = view_of(&state.screen);
    if view.finding_id().is_some() {
        return state.data.finding.iter().map(|(finding, _)| finding).collect();
    }
    let group = match view.finding_row(state) {
        Some(FindingRow::Group { group, .. }) => group,
        row => return row.and_then(FindingRow::single_finding).into_iter().collect(),
    };
    let list = state.data.findings.as_deref().map_or(&[][..], |list| &list.findings);
    let findings_by_id: HashMap<&str, &Finding> =
        list.iter().map(|finding| (finding.id.as_str(), finding)).collect();
    group.members.iter().filter_map(|id| findings_by_id.get(id.as_str()).copied()).collect()
}

/// Handles a key in the prompt.
pub(super) fn handle_key(state: &mut ConsoleState, key: KeyPress) -> UpdateOutcome {
    let Some(mut prompt) = state.prompt.take() else { return UpdateOutcome::default() };
    match prompt.handle_key(key, &state.prompt_history) {
        PromptOutcome::Cancelled => {}
        PromptOutcome::Edited => show_prompt(state, prompt),
        PromptOutcome::Completed => state.prompt = Some(prompt),
        PromptOutcome::Entered(line) => {
            let asks = prompt.asks.clone();
            state.clear_warning();
            let result = match &asks {
                PromptKind::Filter(subject) => submit_filter(state, &mut prompt, *subject, &line),
                PromptKind::Search => Ok(UpdateOutcome::default()),
                PromptKind::PluginInput(plugin, _) => {
                    Ok(plugin_input::enter_input(state, *plugin, &line))
                }
                PromptKind::Command => submit_command(state, &mut prompt, &line),
                PromptKind::Note(findings, what) => {
                    Ok(submit_note(state, findings.clone(), what, line.clone()))
                }
            };
            if let Ok(outcome) = result {
                state.prompt_history.record_line(&asks, &line);
                return outcome;
            }
            // The prompt stays open and shows its error.
            state.prompt = Some(prompt);
        }
    }
    UpdateOutcome::with_redraw()
}

/// Acknowledges a finding with the note; many findings only after a confirmation with their number.
fn submit_note(
    state: &mut ConsoleState,
    findings: Vec<SanitizedText>,
    what: &SanitizedText,
    line: String,
) -> UpdateOutcome {
    if findings.len() < 2 {
        return UpdateOutcome::with_effect(ConsoleEffect::Acknowledge(findings, Some(line)));
    }
    state.confirm = Some(confirm::confirm_acknowledgement(findings, what, line));
    UpdateOutcome::with_redraw()
}

/// The line was rejected; the prompt itself shows the reason.
struct PromptRejected;

fn submit_filter(
    state: &mut ConsoleState,
    prompt: &mut Prompt,
    subject: Subject,
    line: &str,
) -> Result<UpdateOutcome, PromptRejected> {
    state.list_state_mut(subject).apply_filter(line).map_err(|error| {
        prompt.show_error(&error);
        PromptRejected
    })?;
    Ok(UpdateOutcome::with_questions(state))
}

fn submit_command(
    state: &mut ConsoleState,
    prompt: &mut Prompt,
    line: &str,
) -> Result<UpdateOutcome, PromptRejected> {
    if line.is_empty() {
        return Ok(UpdateOutcome::with_redraw());
    }
    let command = complete_word(state, prompt, line);
    let done = run_line(state, &command);
    done.map_err(|why| {
        prompt.error = Some(PromptError { span: None, why: SanitizedText::new(&why) });
        PromptRejected
    })
}

/// Returns the one command that begins with the line, if the line itself is none.
fn complete_word(state: &ConsoleState, prompt: &Prompt, line: &str) -> String {
    match &prompt.completion.candidates[..] {
        [(word, _)] if word.starts_with(line) && !state.config.aliases.contains_key(line) => {
            word.clone()
        }
        _ => line.to_owned(),
    }
}

/// Runs a command line; an alias of the user or the name of saved rows stands for a command, unless it is one.
pub(super) fn run_line(state: &mut ConsoleState, line: &str) -> Result<UpdateOutcome, String> {
    let word = line.split_whitespace().next().unwrap_or("");
    let line = if prompt_commands::is_command(word) {
        line.to_owned()
    } else {
        saved_rows::saved_command(state, word).unwrap_or_else(|| state.config.expand_alias(line))
    };
    prompt_commands::parse(&line).and_then(|command| run(state, command))
}

fn run(state: &mut ConsoleState, command: PromptCommand) -> Result<UpdateOutcome, String> {
    Ok(match command {
        PromptCommand::OpenScreen(screen) => navigation::open_screen(state, screen),
        PromptCommand::OpenRows(screen, text) => {
            if let Some(subject) = view_of(&screen).filter_subject() {
                let list = state.list_state_mut(subject);
                list.apply_filter(&text).map_err(|error| error.to_string())?;
            }
            navigation::open_screen(state, screen);
            UpdateOutcome::with_questions(state)
        }
        PromptCommand::SaveRows(name) => saved_rows::save_rows(state, name)?,
        PromptCommand::ForgetRows(name) => saved_rows::forget_rows(state, &name)?,
        PromptCommand::ShowInstant(None) => time_navigation::show_instant(state, None),
        PromptCommand::ShowInstant(Some(instant)) => {
            time_navigation::show_named_instant(state, instant)?
        }
        PromptCommand::Theme(palette) => {
            state.preferences.theme = palette.map(|palette| palette.as_str().to_owned());
            UpdateOutcome::with_effect(ConsoleEffect::SavePreferences(state.preferences.clone()))
        }
        PromptCommand::Write(..) if state.restriction.confined => {
            return Err("no file is written in restricted mode".into());
        }
        PromptCommand::Write(form, path) => return export_rows(state, form, path),
        PromptCommand::Columns(names) => return choose_columns(state, &names),
        PromptCommand::Sort(words) => {
            let subject = shown_list_subject(state)?;
            let text = format!("sort {words}");
            let filter = Filter::parse(subject, &text).map_err(|error| error.to_string())?;
            state.list_state_mut(subject).sort = filter.sort_fields().next();
            UpdateOutcome::with_questions(state)
        }
        PromptCommand::Filter(text) => {
            let subject = view_of(&state.screen)
                .filter_subject()
                .ok_or("this screen has no rows to filter")?;
            state.list_state_mut(subject).apply_filter(&text).map_err(|error| error.to_string())?;
            UpdateOutcome::with_questions(state)
        }
        PromptCommand::Colour(name) => {
            state.tint = match name {
                None => None,
                Some(name) => {
                    let field = Subject::Gpus.find_field(&name);
                    let number = |f: &&'static SubjectField| !f.is_text();
                    Some(
                        field
                            .filter(number)
                            .ok_or_else(|| format!("GPUs have no numeric field {name}"))?,
                    )
                }
            };
            state.panel = OverviewPanel::Heat;
            navigation::open_screen(state, Screen::default());
            UpdateOutcome::with_questions(state)
        }
        PromptCommand::Context(name) => return open_context(state, &name),
        PromptCommand::Cluster(name) => return open_cluster(state, &name),
        PromptCommand::Key(key) => UpdateOutcome::with_effect(ConsoleEffect::Press(key)),
        PromptCommand::Mouse(on) => UpdateOutcome::with_effect(ConsoleEffect::Mouse(on)),
        PromptCommand::Help => {
            state.help = true;
            UpdateOutcome::with_redraw()
        }
        PromptCommand::Quit => UpdateOutcome::with_effect(ConsoleEffect::Quit),
    })
}

/// Opens the aggregator of a name in the user's file.
fn open_context(state: &ConsoleState, name: &str) -> Result<UpdateOutcome, String> {
    if state.restriction.confined {
        return Err("no other aggregator is opened in restricted mode".into());
    }
    if !state.config.contexts.contains_key(name) {
        let known: Vec<&str> = state.config.contexts.keys().map(String::as_str).collect();
        return Err(match known.as_slice() {
            [] => "no aggregator is named: add [contexts] to your config.toml".into(),
            known => format!("{name} is not in [contexts]; known are {}", known.join(", ")),
        });
    }
    Ok(UpdateOutcome::with_effect(ConsoleEffect::OpenContext(name.to_owned())))
}

/// Shows one of the joined clusters, or all of them.
fn open_cluster(state: &ConsoleState, name: &str) -> Result<UpdateOutcome, String> {
    let is_known = name == ALL_CLUSTERS || state.clusters.iter().any(|known| &**known == name);
    if state.clusters.is_empty() {
        return Err(
            "one cluster is shown; start with --aggregator NAME=URL for each of several".into()
        );
    }
    if !is_known {
        let known: Vec<&str> = state.clusters.iter().map(|known| &**known).collect();
        return Err(format!("{name} is not a cluster; known are {}, all", known.join(", ")));
    }
    let name = (name != ALL_CLUSTERS).then(|| name.to_owned());
    Ok(UpdateOutcome::with_effect(ConsoleEffect::OpenCluster(name)))
}

/// Returns the subject of the shown list.
fn shown_list_subject(state: &ConsoleState) -> Result<Subject, String> {
    let subject = view_of(&state.screen).table_subject();
    subject.ok_or_else(|| "this screen has no columns; open 3, 5, 6, 7 or 9".into())
}

fn choose_columns(state: &mut ConsoleState, names: &str) -> Result<UpdateOutcome, String> {
    let subject = shown_list_subject(state)?;
    state.list_state_mut(subject).choose_columns(names).map_err(|error| error.to_string())?;
    let (key, saved_columns) = (subject.as_str().to_owned(), &mut state.preferences.columns);
    if names.trim().is_empty() {
        saved_columns.remove(&key);
    } else {
        saved_columns.insert(key, names.to_owned());
    }
    let effects = vec![
        ConsoleEffect::SavePreferences(state.preferences.clone()),
        ConsoleEffect::Ask(view_of(&state.screen).all_questions(state)),
    ];
    Ok(UpdateOutcome { changed: true, effects })
}

/// Requests all rows; the export is written when they arrive.
fn export_rows(
    state: &mut ConsoleState,
    form: ExportFormat,
    path: PathBuf,
) -> Result<UpdateOutcome, String> {
    let subject = view_of(&state.screen)
        .filter_subject()
        .ok_or("this screen has no rows; open a list first")?;
    let list = state.list_state(subject);
    let names: Vec<&str> = list.shown_columns().iter().map(|field| field.name.as_str()).collect();
    let sort = list.sort.map_or_else(String::new, |(field, descending)| {
        format!(" sort {}{}", field.name, if descending { " desc" } else { "" })
    });
    let text = format!("{}{sort} limit {MAX_ROWS} columns {}", list.rows, names.join(","));
    let filter = Filter::parse(subject, &text).map_err(|error| error.to_string())?;
    state.to_write = Some((Question::Table(filter), form, path));
    Ok(UpdateOutcome::with_questions(state))
}
