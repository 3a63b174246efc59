//! Questions whose last attempt failed, with the time of the first failure and its reason.

use gaunt_schema::{SanitizedText, UnixMs};

use gaunt_api::Question;

/// Maximum number of failures stored: more than any screen asks.
const MAX_FAILURES: usize = 16;

/// Question whose last attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedQuestion {
    question: Question,
    /// Time of the first failure, by the console's clock.
    pub(crate) since: UnixMs,
    /// Reason of the failure.
    pub(crate) why: SanitizedText,
}

/// Questions whose last attempt failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailedQuestions(Vec<FailedQuestion>);

impl FailedQuestions {
    /// Records that a question failed.
    pub(crate) fn record_failure(&mut self, question: &Question, now: UnixMs, why: SanitizedText) {
        if let Some(failure) = self.0.iter_mut().find(|failure| failure.question == *question) {
            failure.why = why;
            return;
        }
        if self.0.len() >= MAX_FAILURES {
            self.0.remove(0);
        }
        self.0.push(FailedQuestion { question: question.clone(), since: now, why });
    }

    /// Removes a question that was answered.
    pub(crate) fn clear(&mut self, question: &Question) {
        self.0.retain(|failure| failure.question != *question);
    }

    /// Returns the first failure among these questions, other than the overview.
    pub(crate) fn find_failure(&self, questions: &[Question]) -> Option<&FailedQuestion> {
        let mut failed = self.0.iter().filter(|failure| !is_overview(&failure.question));
        failed.find(|failure| questions.contains(&failure.question))
    }
}

/// Returns whether a question asks for the overview, of the present or of the past.
pub(crate) fn is_overview(question: &Question) -> bool {
    match question {
        Question::AtTime(_, question) => is_overview(question),
        question => *question == Question::Overview,
    }
}
