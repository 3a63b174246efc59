//! The source of the console's answers: an engine in this process, or an aggregator over HTTP.

use std::{pin::Pin, sync::Arc};

use gaunt_api::{Answer, FindingAction, Question};

/// An outstanding question or action.
pub type PendingAnswer = Pin<Box<dyn Future<Output = Result<Answer, SourceError>> + Send>>;

/// A source of answers.
pub trait ConsoleSource: Send + Sync {
    /// Sends a question.
    fn ask_question(self: Arc<Self>, question: Question) -> PendingAnswer;

    /// Sends an action on a finding.
    fn send_action(self: Arc<Self>, action: FindingAction) -> PendingAnswer;

    /// Display name: an address, or none for this process.
    fn display_address(&self) -> Option<&str>;

    /// Number of moves from one of several equal sources to another, and the last one in words; none before the first.
    fn last_move(&self) -> Option<(u64, Arc<str>)> {
        None
    }
}

/// Why a source has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The source has ended, and will answer nothing more.
    #[error("{0}")]
    Ended(String),
    /// There is no answer this time.
    #[error("{0}")]
    Unanswered(String),
}
