//! Handles answers of the source: stores each one for the screens that show it.

use std::{collections::HashSet, sync::Arc};

use gaunt_schema::{SanitizedText, Severity};

use super::{search_input, time_navigation, update_outcome::UpdateOutcome};
use crate::{
    action::ConsoleEffect,
    console_state::ConsoleState,
    csv_export,
    evidence_history::EvidenceHistory,
    fabric_cables::domains_question,
    screens::{
        network_screen::selected_cables,
        overview_screen::{sites_question, tint_question},
        view_of,
    },
    search_match::ports_question,
    time_marks::collect_marks,
    user_config::NotificationForm,
    user_totals::users_question,
};
use gaunt_api::{
    Answer, AnswerTable, Explanation, Finding, FindingGroup, FindingList, JobOwner, MetricHistory,
    Overview, Question, Refusal, Subject, TimeParam,
};

/// Stores an answer, if it is about the shown instant.
pub(super) fn handle_answer(
    state: &mut ConsoleState,
    question: Question,
    answer: Answer,
) -> UpdateOutcome {
    let (at, question) = match question {
        Question::AtTime(TimeParam::At(at), question) => (Some(at), *question),
        question => (None, question),
    };
    let targets = |q: &Question| matches!(q, Question::Table(f) if f.subject() == Subject::Targets);
    if at != state.past_instant && !targets(&question) {
        return UpdateOutcome::default();
    }
    if let Answer::Refused(refusal @ Refusal::NotKept { .. }) = &answer {
        return time_navigation::handle_missing_instant(state, refusal);
    }
    if let Answer::Refused(refusal) = &answer
        && question == Question::Overview
        && at.is_some()
    {
        return time_navigation::return_to_present(state, refusal);
    }
    store_answer(state, &question, answer)
}

fn store_answer(state: &mut ConsoleState, question: &Question, answer: Answer) -> UpdateOutcome {
    match answer {
        Answer::Overview(overview) => return store_overview(state, overview),
        Answer::Nodes(nodes) => {
            let before = view_of(&state.screen).all_questions(state);
            let first = state.data.nodes.replace(nodes).is_none();
            if first && view_of(&state.screen).all_questions(state) != before {
                return UpdateOutcome::with_questions(state);
            }
        }
        Answer::Node(node) => {
            state.data.refused = None;
            state.data.node = Some(node);
        }
        Answer::Job(job) => {
            state.data.refused = None;
            state.data.job = Some(job);
        }
        Answer::Fabric(fabric) => state.data.fabric = Some(fabric),
        Answer::Findings(list) => store_findings(state, list),
        Answer::Finding(explained) => store_explanation(state, question, explained),
        Answer::History(history) => store_history(state, question, Some(history)),
        Answer::Alerts(list) => state.data.alerts = Some((state.now, list)),
        Answer::Probe(matrix) => state.data.probe = Some((state.now, matrix)),
        Answer::Coverage(coverage) => state.data.coverage = Some((state.now, coverage)),
        Answer::Table(table) => return store_table(state, question, table),
        Answer::Refused(refusal) => store_refusal(state, question, refusal),
        // An answer that no screen uses changes nothing.
        _ => return UpdateOutcome::default(),
    }
    UpdateOutcome::with_redraw()
}

fn store_overview(state: &mut ConsoleState, mut overview: Arc<Overview>) -> UpdateOutcome {
    if let Some(outcome) = time_navigation::show_after_mark(state, overview.at) {
        return outcome;
    }
    state.record_overview_time(overview.at);
    state.instant_asked = None;
    if let Some(groups) = missing_groups(&overview.findings, &overview.groups) {
        Arc::make_mut(&mut overview).groups = groups;
    }
    let changed = state.data.overview.as_ref() != Some(&overview);
    if state.past_instant.is_none() {
        state.marks = collect_marks(&overview);
    }
    let alarms = detect_new_critical(state, &overview);
    let first = state.data.overview.replace(overview).is_none();
    let mut outcome = UpdateOutcome { changed, effects: Vec::new() };
    outcome.effects.extend(alarms);
    // A fleet of one node is shown in full: its further questions can be asked at once.
    let questions = view_of(&state.screen).all_questions(state);
    if first && questions.len() > 1 {
        outcome.effects.push(ConsoleEffect::Ask(questions));
    }
    outcome
}

/// Computes the groups of an answer without any: older aggregators do not report groups.
fn missing_groups(findings: &[Finding], groups: &[FindingGroup]) -> Option<Vec<FindingGroup>> {
    if !groups.is_empty() {
        return None;
    }
    let groups = FindingGroup::group_findings(findings, |_| JobOwner::default());
    (!groups.is_empty()).then_some(groups)
}

fn store_findings(state: &mut ConsoleState, mut list: Arc<FindingList>) {
    if let Some(groups) = missing_groups(&list.findings, &list.groups) {
        Arc::make_mut(&mut list).groups = groups;
    }
    let is_listed = |id: &String| list.groups.iter().any(|group| group.id == *id);
    if state.list_state(Subject::Findings).rows.is_empty() {
        state.unfolded.retain(is_listed);
    }
    let shown = view_of(&state.screen).finding_id();
    if let (Some(id), Some((stored, open))) = (shown, &mut state.data.finding) {
        let now = list.findings.iter().find(|finding| *id == *finding.id);
        *open = now.is_some();
        if let Some(now) = now {
            *stored = now.clone();
        }
    }
    state.data.findings = Some(list);
}

fn store_refusal(state: &mut ConsoleState, question: &Question, refusal: Refusal) {
    match (question, &refusal) {
        // A number without a stored history has no graph.
        (Question::History(_), _) => store_history(state, question, None),
        // Older aggregators do not support alerts.
        (Question::Alerts, _) => state.data.alerts = Some((state.now, Arc::default())),
        (_, Refusal::UnknownFinding { .. }) => {
            // In a view of the past its list says what was open.
            if let (Some((_, open)), None) = (&mut state.data.finding, state.past_instant) {
                *open = false;
            }
            state.data.refused = Some(refusal);
        }
        _ => state.data.refused = Some(refusal),
    }
}

/// Stores the explanation of the shown finding.
fn store_explanation(state: &mut ConsoleState, question: &Question, explained: Arc<Explanation>) {
    let shown = view_of(&state.screen).finding_id();
    if shown.is_some_and(|id| *question == Question::Finding(id.to_string())) {
        let open = explained.finding.life.closed.is_none();
        let list = state.data.findings.as_deref().filter(|_| state.past_instant.is_some());
        let listed = list.and_then(|list| {
            list.findings.iter().find(|finding| finding.id == explained.finding.id).cloned()
        });
        state.data.refused = None;
        state.data.finding = Some((listed.unwrap_or_else(|| explained.finding.clone()), open));
        state.data.explained = Some(explained);
    }
}

/// Stores the history of an evidence number of the shown finding.
fn store_history(
    state: &mut ConsoleState,
    question: &Question,
    history: Option<Arc<MetricHistory>>,
) {
    let Question::History(ask) = question else { return };
    let queries = view_of(&state.screen).history_queries(state);
    let histories = &mut state.data.histories;
    histories.retain(|entry| entry.ask != *ask && queries.contains(&entry.ask));
    if queries.contains(ask) {
        histories.push(EvidenceHistory { ask: ask.clone(), received_at: state.now, history });
    }
}

/// Stores rows for an export, a list, the users or the heat map.
fn store_table(
    state: &mut ConsoleState,
    question: &Question,
    table: Arc<AnswerTable>,
) -> UpdateOutcome {
    if let Some((_, form, path)) = state.to_write.take_if(|(awaited, ..)| awaited == question) {
        return UpdateOutcome::with_effect(ConsoleEffect::WriteFile(
            path,
            csv_export::render_export(&table, form),
        ));
    }
    let subject = table.subject;
    if *question == state.list_state(subject).rows_question() {
        state.list_state_mut(subject).follow_row(&table);
        state.data.tables[subject as usize] = Some(table);
    } else if *question == users_question() {
        state.data.users = Some(table);
        search_input::update_matches(state);
    } else if ports_question().as_ref() == Some(question) {
        state.data.search_ports = Some((state.now, table));
        search_input::update_matches(state);
    } else if let Some(field) = state.tint.filter(|f| tint_question(f).as_ref() == Some(question)) {
        state.data.tint = Some((field, state.now, table));
    } else if sites_question().as_ref() == Some(question) {
        state.data.sites = Some((state.now, table));
    } else if domains_question().as_ref() == Some(question) {
        state.data.domains = Some((state.now, table));
    } else if selected_cables(state).as_ref() == Some(question) {
        state.data.cables = Some((question.clone(), table));
    } else {
        return UpdateOutcome::default();
    }
    UpdateOutcome::with_redraw()
}

/// Rings the bell and tells the terminal, as the user chose, if there is a new critical finding.
fn detect_new_critical(state: &mut ConsoleState, overview: &Overview) -> Vec<ConsoleEffect> {
    if state.past_instant.is_some() {
        return Vec::new();
    }
    let critical = overview.findings.iter().filter(|f| f.severity == Severity::Critical);
    let groups = overview.groups.iter().filter(|group| group.severity == Severity::Critical);
    let members = groups.flat_map(|group| &group.members);
    let now: HashSet<String> = critical.map(|f| &f.id).chain(members).cloned().collect();
    let is_new = |id: &String| state.seen_critical.as_ref().is_some_and(|seen| !seen.contains(id));
    let mut new = now.iter().filter(|id| is_new(id));
    let first = new.next().cloned();
    state.seen_critical = Some(now);
    let Some(first) = first else { return Vec::new() };
    let mut effects = Vec::new();
    if !state.config.silent {
        effects.push(ConsoleEffect::Bell);
    }
    if state.config.notification != NotificationForm::Off {
        let found = overview.findings.iter().find(|finding| finding.id == first);
        let text = found.map_or(first.as_str(), |finding| finding.summary.as_str());
        let text = SanitizedText::new(text);
        effects.push(ConsoleEffect::Notify(state.config.notification, text));
    }
    effects
}
