//! What the source answers, put where it is shown.

use std::{collections::HashSet, sync::Arc};

use gaunt_schema::Severity;

use super::{Outcome, time};
use crate::{
    answer::{
        Answer, Explanation, Finding, FindingGroup, FindingList, History, JobOwner, Overview,
        Question, Refusal, Subject, Table, When,
    },
    console::{
        action::Effect,
        place::Place,
        proof::{self, Past},
        sheet,
        state::{State, sites_question, tint_question, users_question},
    },
};

/// Takes an answer, if it is about the instant that is shown.
pub(super) fn answered(state: &mut State, question: Question, answer: Answer) -> Outcome {
    let (at, question) = match question {
        Question::Then(When::At(at), question) => (Some(at), *question),
        question => (None, question),
    };
    let targets = |q: &Question| matches!(q, Question::Table(f) if f.subject() == Subject::Targets);
    if at != state.then && !targets(&question) {
        return Outcome::default();
    }
    if let Answer::Refused(refusal @ Refusal::NotKept { .. }) = &answer {
        return time::refused(state, refusal);
    }
    take(state, &question, answer)
}

fn take(state: &mut State, question: &Question, answer: Answer) -> Outcome {
    match answer {
        Answer::Overview(overview) => return fleet(state, overview),
        Answer::Nodes(nodes) => {
            let first = state.data.nodes.replace(nodes).is_none();
            if first && state.place == Place::Overview && state.only_node().is_some() {
                return Outcome::owing(Effect::Ask(state.questions()));
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
        Answer::Findings(list) => findings(state, list),
        Answer::Finding(explained) => explain(state, question, explained),
        Answer::History(history) => past(state, question, Some(history)),
        Answer::Alerts(list) => state.data.alerts = Some((state.now, list)),
        Answer::Probe(matrix) => state.data.probe = Some((state.now, matrix)),
        Answer::Table(table) => return rows(state, question, table),
        Answer::Refused(refusal) => refused(state, question, refusal),
        // An answer that nobody waits for changes nothing.
        _ => return Outcome::default(),
    }
    Outcome::drawn()
}

fn fleet(state: &mut State, mut overview: Arc<Overview>) -> Outcome {
    state.hear(overview.at);
    if let Some(groups) = missing_groups(&overview.findings, &overview.groups) {
        Arc::make_mut(&mut overview).groups = groups;
    }
    let changed = state.data.overview.as_ref() != Some(&overview);
    let bell = news(state, &overview);
    let first = state.data.overview.replace(overview).is_none();
    let mut outcome = Outcome { changed, effects: Vec::new() };
    outcome.effects.extend(bell);
    // A fleet of one node is shown in full: what that needs can be asked at once.
    if first && state.questions().len() > 1 {
        outcome.effects.push(Effect::Ask(state.questions()));
    }
    outcome
}

/// The groups of an answer that tells none: an older aggregator knows nothing of them.
fn missing_groups(findings: &[Finding], groups: &[FindingGroup]) -> Option<Vec<FindingGroup>> {
    if !groups.is_empty() {
        return None;
    }
    let groups = FindingGroup::all(findings, |_| JobOwner::default());
    (!groups.is_empty()).then_some(groups)
}

fn findings(state: &mut State, mut list: Arc<FindingList>) {
    if let Some(groups) = missing_groups(&list.findings, &list.groups) {
        Arc::make_mut(&mut list).groups = groups;
    }
    let known = |id: &String| list.groups.iter().any(|group| group.id == *id);
    if state.list(Subject::Findings).rows.is_empty() {
        state.unfolded.retain(known);
    }
    if let (Place::Finding(id), Some((kept, open))) = (&state.place, &mut state.data.finding) {
        let now = list.findings.iter().find(|finding| *id == *finding.id);
        *open = now.is_some();
        if let Some(now) = now {
            *kept = now.clone();
        }
    }
    state.data.findings = Some(list);
}

fn refused(state: &mut State, question: &Question, refusal: Refusal) {
    match (question, &refusal) {
        // Of a number whose past is not kept there is nothing to draw.
        (Question::History(_), _) => past(state, question, None),
        // An older aggregator knows nothing of alerts.
        (Question::Alerts, _) => state.data.alerts = Some((state.now, Arc::default())),
        (_, Refusal::UnknownFinding { .. }) => {
            if let Some((_, open)) = &mut state.data.finding {
                *open = false;
            }
            state.data.refused = Some(refusal);
        }
        _ => state.data.refused = Some(refusal),
    }
}

/// Takes what is known of the finding that is shown.
fn explain(state: &mut State, question: &Question, explained: Arc<Explanation>) {
    if state.place.finding().is_some_and(|id| *question == Question::Finding(id.to_string())) {
        let open = explained.finding.life.closed.is_none();
        state.data.refused = None;
        state.data.finding = Some((explained.finding.clone(), open));
        state.data.explained = Some(explained);
    }
}

/// Takes the past behind a number of the finding that is shown.
fn past(state: &mut State, question: &Question, history: Option<Arc<History>>) {
    let Question::History(ask) = question else { return };
    let Some(finding) = state.proven() else { return };
    let wanted: Vec<_> = proof::asks(finding).into_iter().flatten().collect();
    let pasts = &mut state.data.pasts;
    pasts.retain(|past| past.ask != *ask && wanted.contains(&past.ask));
    if wanted.contains(ask) {
        pasts.push(Past { ask: ask.clone(), came: state.now, history });
    }
}

/// Takes rows: for a file, for a list, for the users or for the heat map.
fn rows(state: &mut State, question: &Question, table: Arc<Table>) -> Outcome {
    if let Some((_, form, path)) = state.to_write.take_if(|(wanted, ..)| wanted == question) {
        return Outcome::owing(Effect::Write(path, sheet::text(&table, form)));
    }
    let subject = table.subject;
    if *question == state.list(subject).question() {
        state.list_mut(subject).follow(&table);
        state.data.tables[subject as usize] = Some(table);
    } else if *question == users_question() {
        state.data.users = Some(table);
    } else if let Some(field) = state.tint.filter(|f| tint_question(f).as_ref() == Some(question)) {
        state.data.tint = Some((field, state.now, table));
    } else if sites_question().as_ref() == Some(question) {
        state.data.sites = Some((state.now, table));
    } else {
        return Outcome::default();
    }
    Outcome::drawn()
}

/// Calls the reader if a critical finding is new.
fn news(state: &mut State, overview: &Overview) -> Option<Effect> {
    if state.then.is_some() {
        return None;
    }
    let critical = overview.findings.iter().filter(|f| f.severity == Severity::Critical);
    let groups = overview.groups.iter().filter(|group| group.severity == Severity::Critical);
    let members = groups.flat_map(|group| &group.members);
    let now: HashSet<String> = critical.map(|f| &f.id).chain(members).cloned().collect();
    let new = state.seen.as_ref().is_some_and(|seen| now.iter().any(|id| !seen.contains(id)));
    state.seen = Some(now);
    new.then_some(Effect::Bell)
}
