//! Selects the questions that the current screen asks the source.

use std::time::Duration;

use gaunt_schema::{SanitizedText, UnixMs};

use super::{ConsoleState, HeatGrouping, OverviewPanel};
use crate::{evidence_history, screen::Screen};
use gaunt_api::{Filter, Finding, Question, Subject, SubjectField, TimeParam};

/// Poll period of expensive questions, such as one value per GPU of the fleet.
const HEAVY: Duration = Duration::from_secs(5);

impl ConsoleState {
    /// Returns the questions that the current screen needs.
    pub(crate) fn screen_questions(&self) -> Vec<Question> {
        let mut questions = vec![Question::Overview];
        match &self.screen {
            Screen::Overview => self.ask_for_overview(&mut questions),
            Screen::Findings => {
                questions.push(self.findings_question());
                self.ask_for_histories(&mut questions);
            }
            Screen::Finding(id) | Screen::Explanation(id) => {
                self.ask_for_finding(id, &mut questions);
            }
            Screen::List(subject) => questions.push(self.list_state(*subject).rows_question()),
            Screen::Job(job) => questions.push(Question::Job(job.clone())),
            Screen::Users => questions.push(users_question()),
            Screen::Network => questions.push(Question::Fabric(Filter::all_rows(Subject::Ports))),
            Screen::Probe => {
                let came = self.data.probe.as_ref().map(|(at, _)| *at);
                // No history is kept for this answer.
                if self.past_instant.is_none() && self.is_due(came) {
                    questions.push(Question::Probe);
                }
            }
            place => questions.extend(place.node_name().cloned().map(Question::Node)),
        }
        let about_findings = self.screen == Screen::Findings || self.screen.finding_id().is_some();
        if about_findings
            && self.past_instant.is_none()
            && self.is_due(self.data.alerts.as_ref().map(|(at, _)| *at))
        {
            questions.push(Question::Alerts);
        }
        questions.extend(self.to_write.iter().map(|(question, ..)| question.clone()));
        match self.past_instant {
            None => questions,
            Some(at) => questions.into_iter().map(|question| at_instant(at, question)).collect(),
        }
    }

    /// Adds the questions for a finding: its explanation and the histories of its evidence. Past explanations are not
    /// kept: in a view of the past, only the finding itself is requested.
    fn ask_for_finding(&self, id: &SanitizedText, questions: &mut Vec<Question>) {
        questions.push(match self.past_instant {
            None => Question::Finding(id.to_string()),
            Some(_) => Question::Findings,
        });
        self.ask_for_histories(questions);
    }

    fn ask_for_histories(&self, questions: &mut Vec<Question>) {
        if let Some(finding) = self.evidence_finding() {
            questions.extend(evidence_history::due_questions(
                finding,
                &self.data.histories,
                self.now - HEAVY,
            ));
        }
    }

    /// Returns the finding whose evidence is shown with its histories.
    pub(crate) fn evidence_finding(&self) -> Option<&Finding> {
        match &self.screen {
            Screen::Finding(id) => {
                let shown = self.data.finding.as_ref().map(|(finding, _)| finding);
                shown.filter(|finding| *id == *finding.id)
            }
            Screen::Findings if self.layout.has_side_pane => self.finding_row()?.single_finding(),
            _ => None,
        }
    }

    /// Returns whether an answer that arrived at `came` is due for a refresh.
    fn is_due(&self, came: Option<UnixMs>) -> bool {
        came.is_none_or(|at| self.now.duration_since(at) >= HEAVY)
    }

    fn ask_for_overview(&self, questions: &mut Vec<Question>) {
        let one = self.data.overview.as_deref().is_some_and(|overview| {
            overview.nodes.live + overview.nodes.stale + overview.nodes.down == 1
        });
        match self.only_node() {
            Some(name) => return questions.push(Question::Node(name.clone())),
            None if one => return questions.push(Question::Nodes),
            None => {}
        }
        if self.panel == OverviewPanel::Heat && self.layout.has_side_pane {
            questions.extend(self.heat_node().cloned().map(Question::Node));
        }
        if let Some(field) = self.tint {
            let known = self.data.tint.as_ref().filter(|(known, ..)| *known == field);
            if self.is_due(known.map(|(_, at, _)| *at)) {
                questions.extend(tint_question(field));
            }
        }
        if self.grouping != HeatGrouping::Node
            && self.is_due(self.data.sites.as_ref().map(|(at, _)| *at))
        {
            questions.extend(sites_question());
        }
    }

    /// Returns the question for the findings that match the filter.
    pub(crate) fn findings_question(&self) -> Question {
        let rows = &self.list_state(Subject::Findings).rows;
        match Filter::parse(Subject::Findings, rows) {
            Ok(filter) if !filter.is_all() => Question::List(filter),
            _ => Question::Findings,
        }
    }
}

/// Converts a question to one about an instant; target status has no history, so the current one is shown.
fn at_instant(at: UnixMs, question: Question) -> Question {
    match question {
        Question::Table(filter) if filter.subject() == Subject::Targets => Question::Table(filter),
        question => Question::AtTime(TimeParam::At(at), Box::new(question)),
    }
}

/// Returns the question for one field of every GPU, in the order of the heat map.
pub(crate) fn tint_question(field: &SubjectField) -> Option<Question> {
    let text = format!("limit 131072 columns {}", field.name);
    Some(Question::Table(Filter::parse(Subject::Gpus, &text).ok()?))
}

/// Returns the question for the leaf and rack of every node.
pub(crate) fn sites_question() -> Option<Question> {
    let text = "sort node limit 131072 columns node,leaf,rack";
    Some(Question::Table(Filter::parse(Subject::Nodes, text).ok()?))
}

/// Returns the question for every job with its user and losses.
pub(crate) fn users_question() -> Question {
    let text = "limit 131072 columns job,user,account,gpus,lost,nodes,gpu_power";
    let filter = Filter::parse(Subject::Jobs, text);
    Question::Table(filter.unwrap_or_else(|_| Filter::all_rows(Subject::Jobs)))
}
