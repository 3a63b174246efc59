//! Questions to the source that several screens have in common, and when they are due.

use std::time::Duration;

use gaunt_schema::UnixMs;

use super::ConsoleState;
use crate::{
    evidence_history, prompt::PromptKind, search_match::ports_question, user_totals::users_question,
};
use gaunt_api::{Finding, Question, Subject, TimeParam};

/// Poll period of expensive questions, such as one value per GPU of the fleet.
const HEAVY: Duration = Duration::from_secs(5);

impl ConsoleState {
    /// Returns the questions of a screen together with those that every screen asks, about the shown instant.
    pub(crate) fn complete_questions(&self, screen_questions: Vec<Question>) -> Vec<Question> {
        let export = self.to_write.iter().map(|(question, ..)| question.clone());
        let searched = self.search_questions();
        let questions = std::iter::once(Question::Overview)
            .chain(screen_questions)
            .chain(export)
            .chain(searched);
        match self.past_instant {
            None => questions.collect(),
            Some(at) => questions.map(|question| at_instant(at, question)).collect(),
        }
    }

    /// Returns the questions for the names that the open search needs.
    fn search_questions(&self) -> Vec<Question> {
        let searches = self.prompt.as_ref().is_some_and(|prompt| prompt.asks == PromptKind::Search);
        if !searches {
            return Vec::new();
        }
        let due = self.is_due(self.data.search_ports.as_ref().map(|(at, _)| *at));
        let ports = due.then(ports_question).flatten();
        std::iter::once(users_question()).chain(ports).collect()
    }

    /// Returns the questions of a screen about findings: the histories of the shown evidence, and the alert status.
    pub(crate) fn evidence_questions(&self, shown: Option<&Finding>) -> Vec<Question> {
        let before = self.now - HEAVY;
        let queries = shown.map_or_else(Vec::new, |finding| {
            evidence_history::history_queries(finding).into_iter().flatten().collect()
        });
        let mut questions = evidence_history::due_questions(queries, &self.data.histories, before);
        if self.past_instant.is_none() && self.is_due(self.data.alerts.as_ref().map(|(at, _)| *at))
        {
            questions.push(Question::Alerts);
        }
        questions
    }

    /// Returns whether an answer that arrived at `came` is due for a refresh.
    pub(crate) fn is_due(&self, came: Option<UnixMs>) -> bool {
        came.is_none_or(|at| self.now.duration_since(at) >= HEAVY)
    }
}

/// Converts a question to one about an instant; target status has no history, so the current one is shown.
fn at_instant(at: UnixMs, question: Question) -> Question {
    match question {
        Question::Table(filter) if filter.subject() == Subject::Targets => Question::Table(filter),
        question => Question::AtTime(TimeParam::At(at), Box::new(question)),
    }
}
