//! The source of the console's answers: an engine in this process, or an aggregator over HTTP.

use std::{fmt, pin::Pin, sync::Arc};

use super::user_config::ContextAddress;

use gaunt_api::{Answer, FindingAction, Question};
use gaunt_schema::SanitizedText;

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

    /// The clusters that are joined here; empty for one.
    fn cluster_names(&self) -> Vec<SanitizedText> {
        Vec::new()
    }

    /// The source of one of them alone.
    fn select_cluster(&self, name: &str) -> Option<Arc<dyn ConsoleSource>> {
        _ = name;
        None
    }
}

/// Opens the aggregators that the user's file names.
#[derive(Clone)]
pub struct ContextConnection(OpenContextFn);

/// Opens one aggregator, or returns why that is impossible.
type OpenContextFn =
    Arc<dyn Fn(&ContextAddress) -> Result<Arc<dyn ConsoleSource>, String> + Send + Sync>;

impl ContextConnection {
    /// Creates one from what opens an aggregator.
    pub fn new(
        open: impl Fn(&ContextAddress) -> Result<Arc<dyn ConsoleSource>, String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(open))
    }

    /// Opens an aggregator.
    pub(crate) fn open(&self, address: &ContextAddress) -> Result<Arc<dyn ConsoleSource>, String> {
        (self.0)(address)
    }
}

impl fmt::Debug for ContextConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ContextConnection")
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
