//! Matches of a search: what was found, how well, and what it opens.

use gaunt_schema::{SanitizedText, Severity};

use super::screen::Screen;
use gaunt_api::{Filter, Question, Subject};

/// Maximum number of matches that are kept: several screens full.
pub(crate) const MAX_MATCHES: usize = 64;

/// Maximum number of ports that are searched; of a larger fleet, ports are found through their node.
const MAX_PORTS: u32 = 16_384;

/// Kind of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MatchKind {
    /// An open finding.
    Finding,
    /// A node.
    Node,
    /// A job.
    Job,
    /// A user.
    User,
    /// A port.
    Port,
    /// A screen or a command.
    Command,
}

impl MatchKind {
    /// Returns its name.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Finding => "finding",
            Self::Node => "node",
            Self::Job => "job",
            Self::User => "user",
            Self::Port => "port",
            Self::Command => "command",
        }
    }
}

/// What a match opens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MatchTarget {
    /// A screen.
    Screen(Screen),
    /// The jobs of a user, by this filter.
    Jobs(String),
    /// The command prompt with this text.
    Command(String),
}

/// One match.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SearchMatch {
    /// Its kind.
    pub(crate) kind: MatchKind,
    /// Its name.
    pub(crate) text: SanitizedText,
    /// What it is, in a few words.
    pub(crate) note: SanitizedText,
    /// Severity of the worst open finding on it.
    pub(crate) severity: Option<Severity>,
    /// What it opens.
    pub(crate) target: MatchTarget,
    /// How well it matches.
    pub(crate) score: i32,
}

/// The matches of the open search, and the chosen one.
#[derive(Debug, Default)]
pub(crate) struct SearchState {
    /// The matches, best first.
    pub(crate) matches: Vec<SearchMatch>,
    /// Index of the chosen match.
    pub(crate) at: usize,
}

/// Returns the question for the names of all ports.
pub(crate) fn ports_question() -> Option<Question> {
    let text = format!("sort node limit {MAX_PORTS} columns node,device,port");
    Some(Question::Table(Filter::parse(Subject::Ports, &text).ok()?))
}
